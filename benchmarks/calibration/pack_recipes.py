"""Packs InferenceX's public configurations into the facts that a fit joins (benchmarks/calibration/data/recipes.csv).

``python benchmarks/calibration/pack_recipes.py CONFIGS.csv``: one row a configuration, without its name, with all
request counts that it was run at.
"""

from __future__ import annotations

import argparse
import csv
import re
from collections import defaultdict
from pathlib import Path

from silicon import RECIPES, plain_image

ENGINES = {"trt": "trtllm", "sglang": "sglang", "vllm": "vllm"}
COLUMNS = (
    *("chip", "engine", "model", "precision", "isl", "osl"),
    *(f"prefill_{name}" for name in ("workers", "gpus", "ep", "dp")),
    *("workers", "gpus", "ep", "dp", "drafts", "batch", "slots", "image", "first", "last", "requests"),
)
MODELS = {
    "dsr1": "deepseek-r1",
    "dsr1-fp8": "deepseek-r1",
    "DeepSeek-R1-0528": "deepseek-r1",
    "dsv4": "deepseek-v4-pro",
    "glm5": "glm-5",
    "gptoss": "gpt-oss-120b",
    "kimik2.5": "kimi-k2.5",
    "minimaxm2.5": "minimax-m2.5",
    "qwen3.5": "qwen3.5-397b-a17b",
}


PLACEHOLDER = ("1", "1", "yes")
"""Widths, experts and attention of SGLang's pools on GB200 before 19 January 2026, where they "do nothing"."""
NODES = {("fp8", "8192", "6", "1"): ("8", "24"), ("fp8", "8192", "1", "1"): ("4", "4")}
"""GPUs of a prefill and of a decode worker of placeholders without a later version: 12 and 6 nodes of 4, 1 and 1."""


def main() -> None:
    """Read, pack, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("configs", type=Path)
    requests: dict[tuple[str, ...], set[int]] = defaultdict(set)
    with parser.parse_args().configs.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    later = {_run(row): row for row in rows if row["ep"] != "1"}
    for row in rows:
        if row["workers"] == "0":  # one engine does both, whatever the row calls it
            continue
        if row["model_prefix"] == "dsr1" and (row["tp"], row["ep"], row["dp_attention"]) == PLACEHOLDER:
            _fill(row, later.get(_run(row)))
        requests[_facts(row)].add(int(row["concurrency"]))
    with RECIPES.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for facts, counts in sorted(requests.items()):
            writer.writerow((*facts, " ".join(map(str, sorted(counts)))))


def _run(row: dict[str, str]) -> tuple[str, ...]:
    names = ("config", "precision", "isl", "osl", "concurrency", "prefill_workers", "workers")
    return tuple(row[name] for name in names)


def _fill(row: dict[str, str], later: dict[str, str] | None) -> None:
    """Widths that a later version of the configuration gives, or its nodes."""
    gpus = NODES.get((row["precision"], row["isl"], row["prefill_workers"], row["workers"]))
    row["prefill_ep"], row["ep"] = (later["prefill_ep"], later["ep"]) if later else gpus or ("1", "1")


def _facts(row: dict[str, str]) -> tuple[str, ...]:
    chip = re.match(r"[a-z]+\d+", row["runner"])
    assert chip, row["runner"]
    prefill = [row[f"prefill_{name}"] for name in ("workers", "tp", "ep", "dp_attention")]
    drafts = (
        (row["draft_tokens"] or "mtp") if row["spec_decoding"] == "mtp" else (row["draft_tokens"] or "none")
    )
    return (
        chip[0],
        ENGINES[row["framework"].removeprefix("dynamo-")],
        MODELS[row["model_prefix"]],
        {"nvfp4": "fp4"}.get(row["precision"], row["precision"]),
        row["isl"],
        row["osl"],
        *(prefill if row["disaggregated"] == "yes" else [""] * 4),
        *(row[name] or "1" for name in ("workers", "tp", "ep", "dp_attention")),
        drafts,
        row["recipe_batch"],
        row["recipe_eplb_slots"].replace("0", "")
        if row["recipe_eplb_slots"] == "0"
        else row["recipe_eplb_slots"],
        plain_image(row["image"]),
        row["first_seen"],
        row["last_seen"],
    )


if __name__ == "__main__":
    main()
