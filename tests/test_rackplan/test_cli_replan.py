"""``rackplan replan``: what it prints and writes, and what it refuses without writing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from placement.plan_file import read_plan

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Run = Callable[..., Any]

PLAN = ("--cluster", "hgx-h100", "--redundant", "16", "--batch", "8")
LAYERS = 8
FAST = ("--time-limit", "0")


@pytest.fixture
def model(few_layers: Callable[[str, int], Path]) -> Path:
    return few_layers("mixtral-8x7b", LAYERS)


@pytest.fixture
def planned(prepared: Run, model: Path, tmp_path: Path, short: None) -> Path:
    """A plan, and other loads beside it; a short search."""
    prepared("plan", "--model", model, *PLAN, *FAST, "-o", "old")
    np.save(tmp_path / "new.npy", np.random.default_rng(1).lognormal(4, 0.7, (LAYERS, 8)))
    return tmp_path


@pytest.mark.wide
def test_files_and_json(run: Run, planned: Path) -> None:
    result = run("replan", "old/plan.json", "--loads", "new.npy", *FAST, "-o", "next", "--json")
    assert (result.code, result.err) == (0, "")
    files = sorted(path.name for path in (planned / "next").iterdir())
    assert files == ["moves.json", "plan.json", "report.html", "topology.svg"]
    report = (planned / "next/report.html").read_text()
    assert "The re-plan" in report
    assert '"name":"this re-plan"' in report.replace('": "', '":"')
    moves = json.loads((planned / "next/moves.json").read_text())
    totals = moves["totals"]
    assert totals["moves"] == len(moves["moves"]) == result.data["moves"] > 0
    assert totals["bytes"] == pytest.approx(sum(step["bytes"] for step in moves["moves"]))
    assert totals["balancedness"]["before"] < totals["balancedness"]["after"]
    assert totals["front"][0]["moves"] == 0
    plan = read_plan(planned / "next/plan.json")
    assert np.mean(list(plan.balancedness.values())) == pytest.approx(totals["balancedness"]["after"])
    step = moves["moves"][0]
    row = plan.experts[0]
    assert row is not None
    assert set(step) == {"layer", "gpu", "slot", "expert", "replaces", "from", "bytes", "buffer"}
    gpu = [gpu.id for gpu in plan.deployment.cluster.gpus].index(step["gpu"])
    assert row.slot_expert[step["layer"], 3 * gpu + step["slot"]] == step["expert"]


def test_summary(run: Run, planned: Path) -> None:
    result = run("replan", "old/plan.json", "--loads", "new.npy", *FAST, "-o", "next")
    assert (result.code, result.err) == (0, "")
    assert max(len(line) for line in result.out.splitlines()) <= 100
    for words in (
        "fewest moves within 1%",
        "EPLB global",
        "old plan",
        "After losing any one",
        "a fresh plan would",
        "relabelling",
        "Front of moves",
        "GB in the node",
    ):
        assert words in " ".join(result.out.split())


@pytest.mark.wide
def test_the_front_says_when_it_is_of_the_worst_scenario(run: Run, planned: Path) -> None:
    """Beside a mean over scenarios it would contradict itself."""
    loads = ("--loads", "new.npy", "--loads", "zipf:0.6")
    worst = run("replan", "old/plan.json", *loads, "--objective", "worst", *FAST, "-o", "next")
    assert (worst.code, worst.err) == (0, "")
    text = " ".join(worst.out.split())
    assert "Front of moves and balance in the worst scenario, every row" in text
    assert "largest over mean GPU load in the worst scenario" in text
    report = (planned / "next/report.html").read_text()
    assert "Front of moves and balance in the worst scenario, every row" in report
    totals = json.loads((planned / "next/moves.json").read_text())["totals"]
    star = next(point for point in reversed(totals["front"]) if point["moves"] <= totals["moves"])
    assert star["balancedness"] < totals["balancedness"]["after"] - 1e-4
    drawn = report.replace('": ', '":').split('"name":"this re-plan"')[1]
    assert f"{star['balancedness']:.6f}"[:6] in drawn.split('"marker"')[0]
    mean = run("replan", "old/plan.json", *loads, *FAST, "-o", "mean")
    assert "worst scenario" not in mean.out


@pytest.mark.wide
def test_throughput_after_a_loss_names_the_gpus_it_is_over(run: Run, planned: Path) -> None:
    """The plan before had one GPU more to divide by."""
    assert planned.exists()
    lost = run("replan", "old/plan.json", "--lost", "d0.n0.g2", *FAST, "-o", "next")
    assert "output tok/s/GPU over the 7 GPUs left (" in " ".join(lost.out.split())
    same = run("replan", "old/plan.json", "--loads", "new.npy", *FAST, "-o", "more")
    assert "GPUs left" not in same.out


@pytest.mark.wide
def test_again_it_writes_the_same_and_then_moves_nothing(run: Run, planned: Path) -> None:
    command = ("replan", "old/plan.json", "--loads", "new.npy", *FAST, "-o")
    assert run(*command, "a").code == run(*command, "b").code == 0
    assert (planned / "a/moves.json").read_bytes() == (planned / "b/moves.json").read_bytes()
    assert run("replan", "a/plan.json", *FAST, "-o", "c", "--json").data["moves"] == 0


@pytest.mark.wide
def test_budget_in_bytes(run: Run, planned: Path) -> None:
    result = run(
        "replan", "old/plan.json", "--loads", "new.npy", "--max-bytes", "2 GB", *FAST, "-o", "next", "--json"
    )
    assert 0 < result.data["bytes"] <= 2e9


def test_a_lost_gpu(run: Run, planned: Path) -> None:
    result = run("replan", "old/plan.json", "--lost", "d0.n0.g2", *FAST, "-o", "next", "--json")
    assert result.code == 0
    assert result.data["moves"] == result.data["needed_moves"]
    assert len(read_plan(planned / "next/plan.json").deployment.cluster.gpus) == 7


@pytest.mark.wide
def test_a_degraded_cluster_and_a_lost_nic(
    run: Run, prepared: Run, few_layers: Callable[[str, int], Path], tmp_path: Path
) -> None:
    cluster = ("--cluster", "hgx-h100@16", "--ep", "16", "--batch", "8")
    prepared("plan", "--model", few_layers("mixtral-8x7b", 2), *cluster, *FAST, "-o", "old")
    (tmp_path / "now.yaml").write_text(
        "domains: [{part: hgx-h100, count: 2}]\nbroken: [{nic: d0.n0.g1}, {leaf: f.p0.l2, factor: 0.5}]\n"
    )
    asked = ("--cluster", "now.yaml", "--lost", "d1.n0.g7.nic", *FAST, "-o", "next")
    result = run("replan", "old/plan.json", *asked)
    assert (result.code, result.err) == (0, "")
    text = " ".join(result.out.split())
    assert "d1.n0.g7.nic: 2 links down; 6 links slow" in text
    assert "GPUs without a link out of their domain hand over" in text
    old, new = (read_plan(tmp_path / name / "plan.json").score.step_s for name in ("old", "next"))
    assert new > old
    cut = run("replan", "old/plan.json", *(f"--lost=d0.n0.g{g}.nic" for g in range(8)), *FAST, "-o", "cut")
    assert cut.code == 3
    assert "cuts GPUs off from the others: 2 islands" in cut.err
    (tmp_path / "now.yaml").write_text("domains: [{part: hgx-h100, count: 3}]\n")
    other = run("replan", "old/plan.json", *asked)
    assert other.code == 2
    assert "--cluster now: its GPUs are not those of the plan" in other.err


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("--lost", "d7"), 2, "--lost d7"),
        (("--lost", "d0"), 3, "nothing is left"),
        (("--max-moves", "-3"), 2, "--max-moves"),
        (("--max-bytes", "many"), 2, "--max-bytes"),
        (("--spread", "galaxy"), 2, "--spread galaxy"),
        (("--objective", "best"), 2, "--objective best"),
        (("--loads", "absent.npy"), 2, "absent.npy"),
    ],
)
def test_refusals_write_nothing(
    run: Run, planned: Path, options: tuple[str, ...], code: int, words: str
) -> None:
    result = run("replan", "old/plan.json", *options, *FAST, "-o", "next")
    assert result.code == code
    assert words in result.error_line
    assert not (planned / "next").exists()


def test_a_model_without_experts_has_nothing_to_move(run: Run, tmp_path: Path) -> None:
    assert run("plan", "--model", "llama-3.1-8b", "--cluster", "hgx-h100", *FAST, "-o", "old").code == 0
    result = run("replan", "old/plan.json", *FAST, "-o", "next")
    assert result.code == 2
    assert "no routed experts" in result.error_line


@pytest.mark.wide
@pytest.mark.parametrize("split", ["source", "lp"])
def test_the_split_that_runs_is_the_one_judged(run: Run, planned: Path, model: Path, split: str) -> None:
    plan_it = ("plan", "--model", model, *PLAN, "--split", split, *FAST)
    assert run(*plan_it, "-o", "ran").code == 0
    result = run("replan", "ran/plan.json", "--loads", "new.npy", *FAST, "-o", "next", "--json")
    assert result.code == 0
    balance = result.data["balancedness"]
    assert run(*plan_it, "--loads", "new.npy", "-o", "fresh").code == 0
    fresh = np.mean(list(read_plan(planned / "fresh/plan.json").balancedness.values()))
    assert fresh * (1 - 1e-3) <= balance["fresh"] <= fresh * 1.05  # other GPUs, other swaps: it may be better
    assert balance["after"] >= 0.99 * balance["fresh"]
    last = result.data["front"][-1]
    assert last["balancedness"] >= balance["after"] - 1e-9
    assert result.data["front"][0]["balancedness"] == pytest.approx(balance["before"], rel=1e-6)
    plan = read_plan(planned / "next/plan.json")
    worst = [1 / value for value in plan.balancedness.values()]
    assert plan.proof.objective == pytest.approx(np.mean(worst), rel=1e-6)
    assert plan.proof.bound <= plan.proof.objective


def test_ctrl_c_writes_the_best_so_far(run: Run, planned: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rackplan.progress import Reporter

    def stop(self: Reporter, state: object, elapsed_s: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Reporter, "replan", stop)
    command = ("replan", "old/plan.json", "--loads", "new.npy", "--time-limit", "600")
    result = run(*command, "-o", "next")
    assert result.code == 130
    assert "interrupted; the best re-plan so far was written" in result.err
    data = json.loads((planned / "next/plan.json").read_text())
    assert data["proof"]["interrupted"] is True
    assert (planned / "next/moves.json").exists()


def test_the_folder_of_the_plan_is_not_overwritten(run: Run, planned: Path) -> None:
    before = (planned / "old/plan.json").read_bytes()
    result = run("replan", "old/plan.json", *FAST, "-o", "old")
    assert result.code == 2
    assert "would be overwritten" in result.error_line
    assert (planned / "old/plan.json").read_bytes() == before
    (planned / "loop").symlink_to("loop")
    assert "loop" in run("replan", "old/plan.json", *FAST, "-o", "loop").error_line
