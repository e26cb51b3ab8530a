"""``rackplan export``: files that engines load, refusals with the option that avoids them, nothing overwritten."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Run = Callable[..., Any]

PLAN = ("plan", "--cluster", "hgx-h100", "--time-limit", "0", "--batch", "4", "-o", "plan", "--model")
FILES = {"sglang": "x.json", "trtllm": "x.yaml", "vllm-ascend": "x.json", "vllm": "x.jsonl"}


@pytest.mark.parametrize("engine", FILES)
def test_writes_a_file_that_checks_and_says_how_to_start(
    run: Run, prepared: Run, tmp_path: Path, engine: str
) -> None:
    prepared(*PLAN, "mixtral-8x7b", "--redundant", 8)
    result = run("export", "plan/plan.json", "--to", engine, "-o", FILES[engine])
    assert (result.code, result.err) == (0, "")
    for words in ("Start with", "d0.n0.g7", FILES[engine]):
        assert words in result.out
    assert ("No release of" in result.out) == (engine == "vllm")
    assert (" \\\n" in result.out) == (engine != "trtllm")  # shell lines go on
    before = (tmp_path / FILES[engine]).read_bytes()
    check = ("import-plan", FILES[engine], "--check", "--from", engine, "--model", "mixtral-8x7b", "--ep", 8)
    checked = run(*check, "--json")
    assert checked.code == 0
    assert (checked.data["can_load"], checked.data["is_right"]) == (True, True)
    again = run("export", "plan/plan.json", "--to", engine, "-o", FILES[engine])
    assert again.code == 2
    assert "will not be overwritten" in again.error_line
    assert (tmp_path / FILES[engine]).read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["plan", FILES[engine]])


def test_balancedness_is_that_of_the_engines_own_split(run: Run, prepared: Run, tmp_path: Path) -> None:
    prepared(*PLAN, "mixtral-8x7b", "--redundant", 8)
    plan = json.loads((tmp_path / "plan/plan.json").read_text())
    planned = plan["score"]["balancedness_mean"]
    even = run("export", "plan/plan.json", "--to", "trtllm", "-o", "x.yaml", "--json").data
    assert even["engine_balancedness"] == even["balancedness"] == pytest.approx(planned)
    tokens = np.array(plan["inputs"]["loads"]["tokens"][0])
    np.save(tmp_path / "loads.npy", tokens)
    layers = list(plan["experts"]["layers"].values())
    asked = ("export", "plan/plan.json", "--to", "vllm-ascend", "-o", "ours.json", "--json")
    data = run(*asked).data
    assert data["engine_balancedness"] == pytest.approx(by_hand(tokens, layers, plan["layout"]["tp"]))
    assert data["balancedness"] == pytest.approx(planned)
    of = ("ours.json", "--model", "mixtral-8x7b", "--loads", "loads.npy")
    back = ("--from", "vllm-ascend", "--cluster", "hgx-h100", "--batch", 4, "-o", "back", "--json")
    found = run("import-plan", *of, *back).data["engine_balancedness"]
    assert found == pytest.approx(by_hand(tokens, layers, 1))


def test_without_an_output_the_file_is_printed_alone(run: Run, prepared: Run, tmp_path: Path) -> None:
    prepared(*PLAN, "mixtral-8x7b", "--redundant", 8)
    asked = ("export", "plan", "--to", "sglang")
    assert run(*asked, "-o", "x.json").code == 0
    written = (tmp_path / "x.json").read_text()
    (tmp_path / "x.json").unlink()
    assert run(*asked).out == run(*asked, "--json").data["text"] == written
    launched = run(*asked, "--launch", "slurm")
    assert "sglang.json" in launched.out
    assert sorted(path.name for path in tmp_path.glob("sglang.*")) == ["sglang.json", "sglang.slurm.sh"]


def warnings(data: dict[str, Any]) -> list[str]:
    return [note["text"] for note in data["notes"] if note["kind"] == "warning"]


def by_hand(tokens: np.ndarray, layers: list[list[list[int]]], tp: int) -> float:
    """GPU r sends an eighth of every expert's tokens to the copy that its number says."""
    found = []
    for load, row in zip(tokens, layers, strict=True):
        busy = [0.0] * 8
        for expert, each in enumerate(load):
            holders = [gpu for gpu, held in enumerate(row) if expert in held]
            for rank in range(8):
                copy = rank if tp == 1 else rank % tp + rank // tp + expert
                busy[holders[copy % len(holders)]] += each / 8
        found.append(sum(busy) / 8 / max(busy))
    return sum(found) / len(found)


def test_the_flag_follows_the_split(run: Run, prepared: Run) -> None:
    prepared(*PLAN, "mixtral-8x7b", "--redundant", 8)
    data = run("export", "plan/plan.json", "--to", "sglang", "-o", "x.json", "--json").data
    assert "--ep-dispatch-algorithm dynamic" in data["flags"]
    ascend = run("export", "plan/plan.json", "--to", "vllm-ascend", "-o", "y.json", "--json").data
    assert any("plan --split rank" in warning for warning in warnings(ascend))
    prepared(*PLAN, "mixtral-8x7b", "--redundant", 8, "--split", "source")
    for engine, file in (("vllm-ascend", "z.json"), ("vllm", "z.jsonl"), ("trtllm", "z.yaml")):
        data = run("export", "plan/plan.json", "--to", engine, "-o", file, "--json").data
        fitting = "rank" if engine == "vllm-ascend" else "even"
        assert any(f"plan --split {fitting}" in warning for warning in warnings(data)), engine


def test_stages_and_replicas(run: Run) -> None:
    cluster = ("--cluster", "hgx-h100@16", "--ep", "4", "--stages", "2")
    made = run("plan", "--model", "mixtral-8x7b", *cluster, "--time-limit", 0, "--batch", 2, "-o", "plan")
    assert made.code == 0, made.err
    data = run("export", "plan/plan.json", "--to", "trtllm", "-o", "x.yaml", "--json").data
    assert "pipeline_parallel_size: 2" in data["flags"]
    line = run("export", "plan/plan.json", "--to", "vllm-ascend", "-o", "x.json").error_line
    assert "counts MoE layers from 0 in each process" in line
    assert "rackplan plan --stages 1" in line
    ranks = [(row["replica"], row["stage"], row["rank"]) for row in data["ranks"]]
    assert ranks == [(replica, rank // 4, rank) for replica in range(2) for rank in range(8)]
    assert len({row["gpu_id"] for row in data["ranks"]}) == 16
    assert any("2 replicas" in warning for warning in warnings(data))
    back = ("import-plan", "x.yaml", "--from", "trtllm", "--model", "mixtral-8x7b", *cluster, "--batch", 2)
    assert run(*back, "-o", "back").code == 0
    with open("plan/plan.json") as one, open("back/plan.json") as two:  # noqa: PTH123 - in the test's folder
        assert json.load(one)["experts"] == json.load(two)["experts"]
