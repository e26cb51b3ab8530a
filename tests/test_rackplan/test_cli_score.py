"""``rackplan score``: the same figures as the plan's own, others under other loads."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Run = Callable[..., Any]

PLAN = ("plan", "--cluster", "hgx-h100", "--time-limit", "0", "-o", "plan", "--model")


@pytest.mark.parametrize("model", ["mixtral-8x7b", "llama-3.1-8b"])
def test_json_is_the_score_of_the_plan(run: Run, prepared: Run, tmp_path: Path, model: str) -> None:
    prepared(*PLAN, model)
    result = run("score", "plan/plan.json", "--json")
    assert (result.code, result.err) == (0, "")
    written = json.loads((tmp_path / "plan/plan.json").read_text())
    assert result.data == written["score"]


@pytest.mark.parametrize(
    "asked",
    [
        ("--phase", "prefill", "--context", 1000),
        ("--draft-tokens", 3, "--accept-length", 2.5, "--batch", 4),
        ("--overlap", "--engine", "vllm", "--batch", 64),
    ],
    ids=str,
)
def test_every_workload_is_scored_as_it_was_planned(
    run: Run, prepared: Run, tmp_path: Path, asked: tuple[object, ...]
) -> None:
    prepared(*PLAN, "mixtral-8x7b", *asked)
    written = json.loads((tmp_path / "plan/plan.json").read_text())["score"]
    assert run("score", "plan/plan.json", "--json").data == written
    text = run("score", "plan/plan.json").out
    assert ("input tok/s" in text) == ("prefill" in asked)
    assert run("explain", "plan/plan.json", "--json").data["score"] == written


def test_summary(run: Run, prepared: Run) -> None:
    prepared(*PLAN, "mixtral-8x7b")
    result = run("score", "plan/plan.json")
    assert (result.code, result.err) == (0, "")
    assert max(len(line) for line in result.out.splitlines()) <= 100
    for words in ("Throughput", "Step time", "Balancedness", "HBM per GPU"):
        assert words in result.out


def test_other_loads_give_other_scores(run: Run, prepared: Run, tmp_path: Path) -> None:
    prepared(*PLAN, "mixtral-8x7b")
    before = (tmp_path / "plan/plan.json").read_bytes()
    np.save(tmp_path / "even.npy", np.ones((32, 8)))
    own = run("score", "plan/plan.json", "--json").data
    other = run("score", "plan/plan.json", "--loads", "even.npy", "--json").data
    assert set(other["balancedness"]) == set(own["balancedness"])
    assert other["balancedness"] != own["balancedness"]
    assert (tmp_path / "plan/plan.json").read_bytes() == before


def test_bad_plans_and_loads_are_bad_input(run: Run, prepared: Run, tmp_path: Path) -> None:
    prepared(*PLAN, "mixtral-8x7b")
    np.save(tmp_path / "shape.npy", np.ones((31, 8)))
    (tmp_path / "half.json").write_text((tmp_path / "plan/plan.json").read_text()[:5000])
    for args, words in (
        (("absent.json",), "absent.json"),
        (("half.json",), "not valid JSON"),
        (("plan/plan.json", "--loads", "shape.npy"), "shape.npy"),
    ):
        result = run("score", *args, "--json")
        assert result.code == 2
        assert words in result.error_line


def test_loads_for_a_dense_plan_are_refused(run: Run, prepared: Run) -> None:
    prepared(*PLAN, "llama-3.1-8b")
    result = run("score", "plan/plan.json", "--loads", "uniform")
    assert result.code == 2
    assert "no routed experts" in result.error_line


def test_a_trace_says_where_tokens_go(run: Run, prepared: Run, tmp_path: Path) -> None:
    prepared(*PLAN, "mixtral-8x7b")
    before = (tmp_path / "plan/plan.json").read_bytes()
    rng = np.random.default_rng(0)
    first = rng.integers(0, 8, (500, 32))
    pairs = np.stack([first, first ^ 1], axis=2)  # experts 0 and 1 together, 2 and 3, ..
    np.save(tmp_path / "pairs.npy", pairs)
    result = run("score", "plan/plan.json", "--routing", "pairs.npy", "--json")
    assert (result.code, result.err) == (0, "")
    traffic = result.data["traffic"]
    assert (traffic["routing"], traffic["tokens"]) == (["pairs.npy"], 500)
    # recomputed from the plan and the trace alone: distinct GPUs, one copy of each expert
    experts = json.loads(before)["experts"]
    for layer, per_gpu in experts["layers"].items():
        gpu_of = {expert: gpu for gpu, held in enumerate(per_gpu) for expert in held}
        assert sum(map(len, per_gpu)) == 8
        apart = [len({gpu_of[a], gpu_of[b]}) for a, b in pairs[:, int(layer)].tolist()]
        assert traffic["layers"][layer]["gpus_per_token"] == pytest.approx(np.mean(apart))
        assert traffic["layers"][layer]["domains_per_token"] == 1
    assert traffic["independent"]["routing"] == []
    assert set(traffic["bytes_per_step"]) == {"nvlink4"}
    text = run("score", "plan/plan.json", "--routing", "pairs.npy", "--routing", "pairs.npy").out
    assert "pairs.npy, pairs.npy: 1,000 tokens followed" in text
    assert "domains per token" in text
    assert max(map(len, text.splitlines())) <= 100
    both = run("score", "plan/plan.json", "--routing", "pairs.npy", "--loads", "uniform", "--json").data
    assert both["traffic"]["gpus_per_token"] == pytest.approx(traffic["gpus_per_token"])
    assert (tmp_path / "plan/plan.json").read_bytes() == before


def test_bad_traces_are_bad_input(run: Run, prepared: Run, tmp_path: Path) -> None:
    prepared(*PLAN, "mixtral-8x7b")
    np.save(tmp_path / "three.npy", np.zeros((4, 32, 3), dtype=int))
    np.save(tmp_path / "twice.npy", np.ones((4, 32, 2), dtype=int))
    for name, words in (
        ("three.npy", "3 choices of a token"),
        ("twice.npy", "expert 1 twice"),
        ("no.npy", "no such"),
    ):
        result = run("score", "plan/plan.json", "--routing", name)
        assert result.code == 2
        assert words in result.error_line
    prepared(*PLAN, "llama-3.1-8b")
    dense = run("score", "plan/plan.json", "--routing", "three.npy")
    assert dense.code == 2
    assert "leave --routing out" in dense.error_line


def test_a_limit_that_is_exceeded_comes_first(run: Run, prepared: Run, tmp_path: Path) -> None:
    prepared(*PLAN, "mixtral-8x7b")
    np.save(tmp_path / "skewed.npy", np.tile(np.array([[100.0] + [1.0] * 7]), (32, 1)))
    held = run("score", "plan", "--json").data
    assert (held["limit_s"], held["over_limit"]) == (0.05, None)
    assert "limit:" not in run("score", "plan").out
    found = run("score", "plan", "--loads", "skewed.npy", "--json").data
    assert found["over_limit"] == pytest.approx(found["step_s"] / 0.05 - 1)
    first = run("score", "plan", "--loads", "skewed.npy").out.splitlines()[0]
    assert first == (
        f"Misses its limit: {found['step_s'] * 1e3:.1f} ms per token, 50 ms by default "
        f"({found['over_limit'] * 100:.3g}% over)"
    )


def test_a_limit_that_was_given_is_named_so(run: Run, prepared: Run) -> None:
    prepared(*PLAN, "mixtral-8x7b", "--tpot-ms", 40)
    slow = ("--set", "h100.hbm_bytes_per_s=0.5x")
    for command in ("score", "explain", "what-if"):
        first = run(command, "plan", *slow).out.splitlines()[0]
        assert first.startswith("Misses its limit: "), (command, first)
        assert "ms per token, 40 ms asked for (" in first
