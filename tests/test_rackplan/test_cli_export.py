"""``rackplan export``: files that engines load, flags that follow the split, nothing overwritten."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers import PLAN, Run

FEW = (*PLAN, "--batch", "4", "--redundant", 8)
FILES = {"sglang": "x.json", "trtllm": "x.yaml", "vllm-ascend": "x.json", "vllm": "x.jsonl"}


@pytest.mark.parametrize("engine", FILES)
def test_writes_a_file_that_checks_and_says_how_to_start(
    run: Run, prepared: Run, tmp_path: Path, engine: str
) -> None:
    prepared(*FEW)
    file = FILES[engine]
    result = run("export", "plan/plan.json", "--to", engine, "-o", file)
    assert (result.code, result.err) == (0, "")
    for words in ("Start with", "d0.n0.g7", file):
        assert words in result.out
    assert ("No release of" in result.out) == (engine == "vllm")
    assert (" \\\n" in result.out) == (engine != "trtllm")  # shell lines go on
    check = ("import-plan", file, "--check", "--from", engine, "--model", "mixtral-8x7b", "--ep", 8, "--json")
    checked = run(*check).data
    assert (checked["can_load"], checked["is_right"]) == (True, True)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["plan", file])


def test_balancedness_is_that_of_the_engines_own_split(run: Run, prepared: Run, tmp_path: Path) -> None:
    prepared(*FEW)
    plan = json.loads((tmp_path / "plan/plan.json").read_text())
    planned = pytest.approx(plan["score"]["balancedness_mean"])
    even = run("export", "plan", "--to", "trtllm", "--json").data
    assert even["engine_balancedness"] == even["balancedness"] == planned
    tokens = np.array(plan["inputs"]["loads"]["tokens"][0])
    found = []
    for load, row in zip(tokens, plan["experts"]["layers"].values(), strict=True):
        busy = [0.0] * 8
        for expert, each in enumerate(load):
            holders = [gpu for gpu, held in enumerate(row) if expert in held]
            for rank in range(8):  # sends an eighth of an expert's tokens to the copy that its number says
                tp = plan["layout"]["tp"]
                copy = rank if tp == 1 else rank % tp + rank // tp + expert
                busy[holders[copy % len(holders)]] += each / 8
        found.append(sum(busy) / 8 / max(busy))
    to = ("--to", "vllm-ascend")
    ascend = run("export", "plan", *to, "-o", "x.json", "--json").data
    assert ascend["engine_balancedness"] == pytest.approx(np.mean(found))
    assert ascend["balancedness"] == planned
    back = ("--model", "mixtral-8x7b", "--cluster", "hgx-h100", "--batch", 4, "-o", "back", "--json")
    imported = run("import-plan", "x.json", "--from", "vllm-ascend", *back).data
    again = run("export", "back", *to, "--json").data
    assert imported["engine_balancedness"] == again["engine_balancedness"] < imported["balancedness"]


def test_without_an_output_the_file_is_printed_alone(run: Run, prepared: Run, tmp_path: Path) -> None:
    prepared(*FEW)
    asked = ("export", "plan", "--to", "sglang")
    assert run(*asked, "-o", "x.json").code == 0
    written = (tmp_path / "x.json").read_text()
    (tmp_path / "x.json").unlink()
    assert run(*asked).out == run(*asked, "--json").data["text"] == written
    launched = run(*asked, "--launch", "slurm")
    assert "sglang.json" in launched.out
    assert sorted(path.name for path in tmp_path.glob("sglang.*")) == ["sglang.json", "sglang.slurm.sh"]


def warnings(data: dict[str, Any]) -> str:
    return "\n".join(note["text"] for note in data["notes"] if note["kind"] == "warning")


def test_the_flag_follows_the_split(run: Run, prepared: Run) -> None:
    prepared(*FEW)
    data = run("export", "plan", "--to", "sglang", "--json").data
    assert "--ep-dispatch-algorithm dynamic" in data["flags"]
    assert "plan --split rank" in warnings(run("export", "plan", "--to", "vllm-ascend", "--json").data)
    prepared(*FEW, "--split", "source")
    for engine, fitting in (("vllm-ascend", "rank"), ("vllm", "even"), ("trtllm", "even")):
        data = run("export", "plan", "--to", engine, "--json").data
        assert f"plan --split {fitting}" in warnings(data), engine


def test_stages_and_replicas(run: Run) -> None:
    cluster = ("--cluster", "hgx-h100@16", "--ep", "4", "--stages", "2", "--batch", 2)
    assert run(*PLAN, *cluster).code == 0
    data = run("export", "plan", "--to", "trtllm", "-o", "x.yaml", "--json").data
    assert "pipeline_parallel_size: 2" in data["flags"]
    line = run("export", "plan", "--to", "vllm-ascend", "-o", "x.json").error_line
    assert "counts MoE layers from 0 in each process" in line
    assert "rackplan plan --stages 1" in line
    ranks = [(row["replica"], row["stage"], row["rank"]) for row in data["ranks"]]
    assert ranks == [(replica, rank // 4, rank) for replica in range(2) for rank in range(8)]
    assert len({row["gpu_id"] for row in data["ranks"]}) == 16
    assert "2 replicas" in warnings(data)
