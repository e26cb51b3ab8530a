"""``rackplan export``: files that engines load, refusals with the option that avoids them, nothing overwritten."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from placement.engines.registry import ENGINES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Run = Callable[..., Any]

PLAN = ("plan", "--cluster", "hgx-h100", "--time-limit", "0", "--batch", "4", "-o", "plan", "--model")
FILES = {
    "sglang": "x.json",
    "trtllm": "x.yaml",
    "vllm-ascend": "x.json",
    "vllm": "x.jsonl",
}


@pytest.mark.parametrize("engine", FILES)
def test_writes_a_file_that_checks_and_says_how_to_start(
    run: Run, prepared: Run, tmp_path: Path, engine: str
) -> None:
    prepared(*PLAN, "mixtral-8x7b", "--redundant", 8)
    result = run("export", "plan/plan.json", "--to", engine, "-o", FILES[engine])
    assert (result.code, result.err) == (0, "")
    for words in ("Checked with", "Split", "Start with", "GPU order", "d0.n0.g7", FILES[engine]):
        assert words in result.out
    assert ("NOT RELEASED" in result.out) == (engine == "vllm")
    assert (" \\\n" in result.out) == (engine != "trtllm")  # shell lines go on
    before = (tmp_path / FILES[engine]).read_bytes()
    checked = run("check", FILES[engine], "--for", engine, "--model", "mixtral-8x7b", "--gpus", 8, "--json")
    assert checked.code == 0
    assert (checked.data["loads"], checked.data["right"]) == (True, True)
    again = run("export", "plan/plan.json", "--to", engine, "-o", FILES[engine])
    assert again.code == 2
    assert "is not overwritten" in again.error_line
    assert (tmp_path / FILES[engine]).read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["plan", FILES[engine]])


def test_a_file_longer_than_is_read_is_refused_by_the_engine_s_name(
    run: Run, prepared: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared(*PLAN, "mixtral-8x7b", "--redundant", 8)
    monkeypatch.setattr("placement.engines.strict_text.MOST_YAML_PARTS", 50)
    line = run("export", "plan/plan.json", "--to", "trtllm", "-o", "x.yaml").error_line
    assert line == (
        "rackplan: TensorRT-LLM cannot hold this plan: its file: more than 50 values, which no plan of experts has."
    )


def test_json(run: Run, prepared: Run) -> None:
    prepared(*PLAN, "mixtral-8x7b", "--redundant", 8, "--split", "source")
    data = run("export", "plan/plan.json", "--to", "sglang", "-o", "x.json", "--json").data
    assert data["redundant"] == 8
    assert "--ep-num-redundant-experts 8" in data["flags"]
    assert "--ep-dispatch-algorithm static" in data["flags"]
    assert [row["gpu"] for row in data["ranks"]] == [f"d0.n0.g{gpu}" for gpu in range(8)]
    assert data["warnings"] == []


def test_no_warning_is_of_an_option_that_is_printed(run: Run, prepared: Run) -> None:
    prepared(*PLAN, "mixtral-8x7b", "--redundant", 8)
    data = run("export", "plan/plan.json", "--to", "sglang", "-o", "x.json", "--json").data
    assert "--ep-dispatch-algorithm dynamic" in data["flags"]
    assert data["warnings"] == []


def test_balancedness_is_that_of_the_engines_own_split(run: Run, prepared: Run, tmp_path: Path) -> None:
    prepared(*PLAN, "mixtral-8x7b", "--redundant", 8)
    plan = json.loads((tmp_path / "plan/plan.json").read_text())
    planned = plan["score"]["balancedness_mean"]
    even = run("export", "plan/plan.json", "--to", "trtllm", "-o", "x.yaml", "--json").data["balancedness"]
    assert even == {"engine": pytest.approx(planned), "plan": pytest.approx(planned)}
    tokens = np.array(plan["inputs"]["loads"]["tokens"][0])
    np.save(tmp_path / "loads.npy", tokens)
    for tp in (1, 2, 8):
        found = by_hand(tokens, list(plan["experts"]["layers"].values()), tp)
        file = f"tp{tp}.json"
        asked = ("export", "plan/plan.json", "--to", "vllm-ascend", "-o", file, "--tp", tp, "--json")
        data = run(*asked).data
        assert data["balancedness"] == {"engine": pytest.approx(found), "plan": pytest.approx(planned)}
        assert any(f"--tensor-parallel-size {tp}" in line for line in data["flags"])
        of = (file, "--model", "mixtral-8x7b", "--loads", "loads.npy", "--tp", tp)
        checked = run("check", *of, "--for", "vllm-ascend", "--gpus", 8, "--json")
        assert checked.data["balancedness"] == pytest.approx(found)
    back = run(
        "import-plan", *of, "--from", "vllm-ascend", "--cluster", "hgx-h100", "--batch", 4, "-o", "back"
    )
    assert f"tensor parallelism 8, balancedness is {found:.4f}" in " ".join(back.out.split())
    line = run("export", "plan/plan.json", "--to", "vllm-ascend", "-o", "no.json", "--tp", 3).error_line
    assert "--tp 3: does not divide the 8 GPUs" in line


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
    assert any("plan --split rank" in warning for warning in ascend["warnings"])
    prepared(*PLAN, "mixtral-8x7b", "--redundant", 8, "--split", "source")
    for engine, file in (("vllm-ascend", "z.json"), ("vllm", "z.jsonl"), ("trtllm", "z.yaml")):
        data = run("export", "plan/plan.json", "--to", engine, "-o", file, "--json").data
        fitting = "rank" if engine == "vllm-ascend" else "even"
        assert any(f"plan --split {fitting}" in warning for warning in data["warnings"]), engine


def test_a_plan_for_the_rank_s_number_is_what_the_engine_runs(run: Run, prepared: Run) -> None:
    prepared(*PLAN, "mixtral-8x7b", "--redundant", 8, "--split", "rank-tp4")
    data = run("export", "plan/plan.json", "--to", "vllm-ascend", "-o", "x.json", "--json").data
    assert data["balancedness"]["engine"] == pytest.approx(data["balancedness"]["plan"])
    assert any("--tensor-parallel-size 4" in line for line in data["flags"])
    assert not any("--split" in warning for warning in data["warnings"])
    other = run("export", "plan/plan.json", "--to", "vllm-ascend", "-o", "y.json", "--tp", 1, "--json").data
    assert any(warning.endswith("plan --split rank") for warning in other["warnings"])
    near = run("export", "plan/plan.json", "--to", "sglang", "-o", "z.json", "--json").data
    assert any("nearest copy" in warning for warning in near["warnings"])
    line = run(
        "plan",
        "--cluster",
        "hgx-h100",
        "--model",
        "mixtral-8x7b",
        "--split",
        "rank-tp4",
        "--tp",
        2,
        "-o",
        "no",
    )
    assert "tensor parallelism 4, --tp says 2" in line.error_line


def test_refusals(run: Run, prepared: Run, tmp_path: Path) -> None:
    prepared(*PLAN, "llama-3.1-8b")
    assert "no routed experts" in run("export", "plan/plan.json", "--to", "sglang", "-o", "x.json").error_line
    prepared(*PLAN, "mixtral-8x7b", "--redundant", 3)
    line = run("export", "plan/plan.json", "--to", "sglang", "-o", "x.json").error_line
    assert "1 to 2 slots" in line
    assert "rackplan plan --redundant 8" in line
    assert "expected sglang" in run("export", "plan/plan.json", "--to", "other", "-o", "x.json").error_line
    prepared(*PLAN, "mixtral-8x7b", "--redundant", 8)
    assert "ends in .json" in run("export", "plan/plan.json", "--to", "sglang", "-o", "x.txt").error_line
    assert "cannot write" in run("export", "plan/plan.json", "--to", "sglang", "-o", "no/x.json").error_line
    assert [path.name for path in tmp_path.iterdir()] == ["plan"]


def test_a_link_that_leads_nowhere_is_left_alone(run: Run, prepared: Run, tmp_path: Path) -> None:
    prepared(*PLAN, "mixtral-8x7b", "--redundant", 8)
    (tmp_path / "x.json").symlink_to("elsewhere")
    assert run("export", "plan/plan.json", "--to", "sglang", "-o", "x.json").code == 2
    assert not (tmp_path / "elsewhere").exists()


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
    assert len({row["gpu"] for row in data["ranks"]}) == 16
    assert any("2 replicas" in warning for warning in data["warnings"])
    back = ("import-plan", "x.yaml", "--from", "trtllm", "--model", "mixtral-8x7b", *cluster, "--batch", 2)
    assert run(*back, "-o", "back").code == 0
    with open("plan/plan.json") as one, open("back/plan.json") as two:  # noqa: PTH123 - in the test's folder
        assert json.load(one)["experts"] == json.load(two)["experts"]


def test_the_help_names_every_engine(run: Run) -> None:
    """From their names alone, so that the command line starts without the engines."""
    assert [engine.name for engine in ENGINES.values()] == list(ENGINES)
    for command in ("export", "import-plan", "check"):
        told = " ".join(run(command, "--help").out.split())
        assert f"{', '.join(list(ENGINES)[:-1])} or {list(ENGINES)[-1]}." in told
