"""A point has the figures that the library gives; whatever goes wrong in it is a row with its reason."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import rackplan
from rackplan.studies.price import price
from rackplan.studies.rows import FAILED, INFEASIBLE, TIMEOUT
from rackplan.studies.spec import Point
from rackplan.studies.work import Job, pack, run_point, unpack

PLACE: dict[str, Any] = {"model": "qwen3-235b-a22b", "cluster": "hgx-h200@16"}
BASE = PLACE | {"context": 4096}


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process of a point that does not react in time is ended: here that is pytest's own."""
    monkeypatch.setattr("rackplan.studies.work._HARD_S", 300.0)


def priced(kind: Any, options: dict[str, Any], limit_s: float) -> dict[str, Any]:
    return run_point(Job(kind, limit_s, {}, ""), Point(0, options, ""))


def test_a_layout_costs_what_the_sweep_says() -> None:
    found = rackplan.sweep(**BASE)
    for at in (0, len(found) // 2, len(found) - 1):
        if found.moe_tp[at] > 1 or found.stages[at] > 1 or found.batch[at] < 1:
            continue
        asked = {"ep": int(found.ep[at]), "tp": int(found.tp[at]), "stages": 1, "batch": int(found.batch[at])}
        row = price("score", BASE | asked)
        assert row["step_s"] == pytest.approx(found.step_s[at], rel=1e-9)
        assert row["tok_s_per_gpu"] == pytest.approx(found.tok_s_per_gpu[at], rel=1e-9)
        assert row["layout"] == found.label(at)
    most = price("score", BASE | {"tpot_ms": 30})  # the largest batch that keeps the limit
    assert most["step_s"] <= 0.03
    assert price("score", BASE | {"batch": int(most["layout_batch"]) + 1})["step_s"] > 0.03


def test_a_sweep_is_its_best_at_the_limit_and_says_where_a_usual_one_gave_way() -> None:
    found = rackplan.sweep(**BASE)
    row = price("sweep", BASE | {"tpot_ms": 40})
    assert row["step_s"] <= 0.04
    assert row["tok_s_per_gpu"] >= found.tok_s_per_gpu[found.tok_s_per_user >= 25].max()
    free = price("sweep", BASE | {"tpot_ms": "none"})
    assert free["tok_s_per_gpu"] == pytest.approx(found.tok_s_per_gpu.max())
    long = price("sweep", BASE | {"context": 32768, "set.gpu.hbm_bytes_per_s": "0.01x"})
    assert "no limit is met" in long["notes"]


def test_both_phases_are_the_best_pair_of_pools() -> None:
    best = rackplan.sweep(**PLACE, isl=512, osl=128).best
    assert best is not None
    row = price("sweep", PLACE | {"isl": 512, "osl": 128})
    assert row["tok_s_per_gpu"] == pytest.approx(best.output_tok_s_per_gpu)
    assert (row["pools"], row["layout"].startswith("both ")) == (1, True) if best.one_pool else (2, False)


def test_a_plan_is_the_fast_plan() -> None:
    plan = rackplan.plan(BASE["model"], BASE["cluster"], phase="decode", time_limit_s=0, tpot_ms=50)
    row = price("plan", BASE | {"tpot_ms": 50})
    assert row["step_s"] == plan.score.step_s
    assert (row["proof"], row["gap"]) == (plan.proof.status, plan.proof.gap)


def test_a_plan_of_two_models_has_its_totals() -> None:
    models = {"model": {"qwen3-235b-a22b": 0.5, "gpt-oss-120b": 0.5}}
    row = price("plan", PLACE | models | {"isl": 512, "osl": 128})
    assert row["tok_s"] == pytest.approx(row["tok_s_per_gpu"] * 16)
    assert row["pools"] >= 2
    assert row["usd_per_million_tokens"] > 0


@pytest.mark.parametrize(
    ("kind", "asked", "status", "said"),
    [
        ("score", {"model": "no-such"}, FAILED, "no-such"),
        ("score", {"batch": 10**6}, INFEASIBLE, "HBM capacity binds"),
        ("score", {"domain_gpus": 12}, FAILED, "whole nodes (8 GPUs each)"),
        ("score", {"tpot_ms": 0.001}, INFEASIBLE, "`tpot_ms` 0.001"),
        ("sweep", {"tpot_ms": 0.001}, INFEASIBLE, "`tpot_ms` 0.001 is out of reach"),
        ("sweep", {"context": 3 * 10**5, "cluster": "hgx-h200@2048"}, TIMEOUT, "its time limit of 0.05 s"),
    ],
)
def test_what_goes_wrong_is_a_row(
    kind: Any, asked: dict[str, Any], status: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "unraisablehook", print)  # Hypothesis asks to be called by the garbage collector
    row = priced(kind, BASE | asked, 0.05 if status == TIMEOUT else 60.0)
    assert row["status"] == status
    assert said in row["reason"]
    assert row["seconds"] >= 0


def test_a_defect_ends_its_point_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rackplan.studies.work.price", lambda *_: 1 / 0)
    assert priced("score", BASE, 60.0)["reason"] == "a defect: ZeroDivisionError: division by zero"


def test_code_that_holds_the_interpreter_ends_with_its_process() -> None:
    code = (
        "from rackplan.studies import work\n"
        "work.price = lambda *_: sum(range(10**13))\n"
        "work._HARD_S = 0.0\n"
        "work.run_point(work.Job('score', 0.2, {}, ''), work.Point(0, {}, ''))"
    )
    ended = subprocess.run([sys.executable, "-c", code], timeout=30, check=False, capture_output=True)
    assert ended.returncode == 1


def test_shipped_files_keep_their_names_and_come_again_where_they_were_cleaned_away(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text("{}", encoding="utf-8")
    shipped = pack({"config.json": str(config), "model": str(tmp_path)})
    for _ in range(2):
        paths = {name: Path(path) for name, path in unpack(shipped).items()}
        assert paths["config.json"].parts[-2:] == (tmp_path.name, "config.json")
        for path in {paths["config.json"], paths["model"] / "config.json"}:
            assert path.read_text(encoding="utf-8") == "{}"
            path.unlink()
