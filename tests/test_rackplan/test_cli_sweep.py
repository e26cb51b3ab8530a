"""``rackplan sweep``: one phase, both phases, the CSV file, and what is refused."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]

MIXTRAL = ("sweep", "--model", "mixtral-8x7b", "--cluster", "hgx-h100")


def test_both_phases_are_matched(run: Run) -> None:
    args = (*MIXTRAL, "--isl", "2000", "--osl", "400", "--ttft-ms", "500", "--tpot-ms", "30")
    data = run(*args, "--json").data
    matched = data["whole_requests"]
    best = next(way for way in matched["ways"] if way["serving"] == "two pools")
    assert (data["context"], data["prefill"]["context"]) == (2200, 2000)
    assert (matched["isl"], matched["osl"], matched["gpus"]) == (2000, 400, 8)
    assert matched["derate"]["value"] == 0.92
    assert matched["serving"] == matched["best"]["serving"] == matched["ways"][0]["serving"]
    assert best["ttft_s"] <= 0.5
    assert best["tok_s_per_user"] >= 1 / 0.03
    used = sum(best[pool]["workers"] * best[pool]["gpus_per_worker"] for pool in ("prefill", "decode"))
    assert used == best["gpus_used"] <= 8
    assert best["total_tok_s_per_gpu"] == pytest.approx(best["output_tok_s_per_gpu"] * 2400 / 400)
    (one,) = (way for way in matched["ways"] if way["serving"] == "one pool")
    assert (one["prefill"], one["prefill_gpus"], one["transfer_s"]) == (None, 0, 0.0)
    assert matched["best"]["output_tok_s_per_gpu"] == max(way["output_tok_s_per_gpu"] for way in (best, one))
    assert {turn["serving"] for turn in matched["turns"]} <= {"one pool", "two pools"}
    text = run(*args).out
    assert "queueing excluded" in " ".join(text.split())
    assert f"{best['output_tok_s_per_gpu']:,.0f} output tok/s/GPU" in text
    assert "measured runs of two pools" not in text
    assert "measured runs of two pools" in " ".join(run(*args, "--details").out.split())
    assert max(map(len, text.splitlines())) <= 100
    none = run(*args[:-1], "0.001")
    assert (none.code, none.out) == (3, "")
    assert "--tpot-ms 0.001 is out of reach on" in none.error_line


def test_every_configuration_is_written(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "all.csv"
    data = run(*MIXTRAL, "--isl", 900, "--osl", 100, "-o", path, "--json").data
    rows = list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))))
    assert len(rows) > data["configurations"] + data["prefill"]["configurations"]
    assert {row["phase"] for row in rows} == {"decode", "prefill", "both"}
    for row in rows[:: len(rows) // 50]:
        parts = [
            float(value)
            for name, value in row.items()
            if name.endswith("_s") and name not in {"step_s", "lower_step_s"} and value
        ]
        assert sum(parts) == pytest.approx(float(row["step_s"]))
        assert float(row["longest_wait_ms"]) == pytest.approx(2000 * float(row["step_s"]))
    best = max(data["pareto"], key=lambda row: row["tok_s_per_gpu"])
    assert str(best["step_s"]) in {row["step_s"] for row in rows}


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--isl", 0, "--osl", 10), "--isl 0"),
        (("--isl", 100, "--osl", 10, "--ttft-ms", -5), "--ttft-ms -5"),
        (("--tok-s-user", "fast"), "--tok-s-user fast"),
        (("--prefix-hit", 0.5, "--phase", "decode"), "applies only to prefill"),
        (("--draft-tokens", 5), "give --accept-length"),
    ],
)
def test_bad_input_is_said_in_one_line(run: Run, args: tuple[object, ...], said: str) -> None:
    result = run(*MIXTRAL, *args)
    assert result.code == 2
    assert said in result.error_line
