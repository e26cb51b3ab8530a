"""Studies: figures of the library, refusals, rows that survive what goes wrong, trials that are the same."""

from __future__ import annotations

import fcntl
import io
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import rackplan
from goldens import require_golden
from helpers import Run
from rackplan.digests import code_digest
from rackplan.report.study import study_doc
from rackplan.requests import StudyRequest, make
from rackplan.studies.rows import WHEN, version
from rackplan.studies.run import run_study
from rackplan.studies.spec import Point, read_study, study_of
from rackplan.studies.work import Job, run_point
from topology.base.errors import InputError

pq = pytest.importorskip("pyarrow.parquet", reason="studies write Parquet")
pytest.importorskip("joblib", reason="studies run on joblib")
ROOT = Path(__file__).parents[2]
PLACE: dict[str, Any] = {"model": "qwen3-235b-a22b", "cluster": "hgx-h200@16"}
BASE = PLACE | {"context": 4096}
SMALL: dict[str, Any] = {"kind": "score", "fixed": {"model": "mixtral-8x7b", "cluster": "hgx-h100"}}
GRID: dict[str, Any] = {**SMALL, "grid": {"batch": list(range(1, 13)), "ep": [4, 8]}}
TEXT = """\
kind: score
limit_s: 60
fixed: {model: mixtral-8x7b, cluster: hgx-h100}
grid:
  context: [1024, 4096, 16384]
  batch: [1, 8, 100000]
  ep: [4, 8, 17]
"""
TUNED: dict[str, Any] = {
    "kind": "score",
    "limit_s": 60,
    "fixed": {"model": "qwen3-235b-a22b", "cluster": "hgx-h200@16", "batch": 16},
    "optimize": {
        "goal": "usd_per_million_tokens",
        "trials": 12,
        "search": {
            "set.gpu.hbm_bytes_per_s": {"low": "0.5x", "high": "8x", "scale": "log"},
            "set.gpu.flop_per_s": ["0.9x", "1.1x"],
        },
        "usd_per_h": {"set.gpu.hbm_bytes_per_s": 0.4},
        "curve": {"ep": [8, 16]},
    },
}


def rows_of(
    folder: Path, kind: str, grid: dict[str, Any], fixed: dict[str, Any] = BASE
) -> list[dict[str, Any]]:
    study = {"kind": kind, "fixed": {k: v for k, v in fixed.items() if k not in grid}, "grid": grid}
    return rackplan.study(study, folder, workers=2).rows


def comparable(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key not in WHEN} for row in rows]


def test_a_machine_that_lacks_the_files_of_a_study_is_sent_them(tmp_path: Path) -> None:
    names, sent = ("in/deep/a.npy", "in/deep/b.npy"), []
    for name in names:
        np.save(file := io.BytesIO(), np.random.default_rng(len(sent)).random((32, 8)) + 0.1)
        sent.append((name, file.getvalue()))
    job = Job("score", 60.0, str(tmp_path / "nowhere"), names, version())
    rows = [run_point(job, Point(0, {**SMALL["fixed"], "loads": name}, ""), tuple(sent)) for name in names]
    assert [row["status"] for row in rows] == ["ok", "ok"], [row["reason"] for row in rows]


def test_code_is_told_by_its_files_wherever_they_are(tmp_path: Path) -> None:
    digests = []
    for place, text in (("a", "x = 1"), ("b", "x = 1"), ("c", "x = 2")):
        (tmp_path / place / "cost/__pycache__").mkdir(parents=True)
        (tmp_path / place / "cost/model.py").write_text(text)
        for name in ("cost/__pycache__/model.pyc", "cost/.hidden", "notes.py"):
            (tmp_path / place / name).write_text(place)
        digests.append(code_digest(tmp_path / place))
    assert digests[0] == digests[1] != digests[2]


def test_a_sweep_is_its_best_at_the_limit_and_says_where_a_usual_one_gave_way(tmp_path: Path) -> None:
    sweep = rackplan.sweep(**BASE)
    limited, free = rows_of(tmp_path / "limits", "sweep", {"tpot_ms": [40, "none"]})
    assert limited["step_s"] <= 0.04
    assert limited["tok_s_per_gpu"] >= sweep.tok_s_per_gpu[sweep.tok_s_per_user >= 25].max()
    assert free["tok_s_per_gpu"] == pytest.approx(sweep.tok_s_per_gpu.max())
    slow = {"context": [32768], "set.gpu.hbm_bytes_per_s": ["0.01x"]}
    assert "no limit is met" in rows_of(tmp_path / "slow", "sweep", slow)[0]["notes"]
    best = rackplan.sweep(**PLACE, isl=512, osl=128).best
    (whole,) = rows_of(tmp_path / "whole", "sweep", {"isl": [512], "osl": [128]}, PLACE)
    assert best is not None
    assert whole["tok_s_per_gpu"] == pytest.approx(best.output_tok_s_per_gpu)
    assert whole["pools"] == (1 if best.one_pool else 2)


def test_a_plan_is_the_fast_plan_and_one_of_two_models_has_its_totals(tmp_path: Path) -> None:
    plan = rackplan.plan(BASE["model"], BASE["cluster"], phase="decode", time_limit_s=0, tpot_ms=50)
    (row,) = rows_of(tmp_path / "plan", "plan", {"tpot_ms": [50]})
    assert row["step_s"] == pytest.approx(plan.score.step_s, rel=1e-9)
    assert (row["proof"], row["layout_ep"]) == (plan.proof.status, plan.layout.ep)
    models = {"model": [{"qwen3-235b-a22b": 0.5, "gpt-oss-120b": 0.5}]}
    (row,) = rows_of(tmp_path / "models", "plan", models, PLACE | {"isl": 512, "osl": 128})
    assert row["tok_s"] == pytest.approx(row["tok_s_per_gpu"] * 16)
    assert row["pools"] >= 2
    assert row["usd_per_million_tokens"] > 0


def test_what_goes_wrong_is_a_row(tmp_path: Path) -> None:
    wrong = [
        ("score", {"model": "no-such"}, "failed", "no-such"),
        ("score", {"batch": 10**6}, "infeasible", "HBM capacity binds"),
        ("sweep", {"tpot_ms": 0.001}, "infeasible", "`tpot_ms` 0.001 is out of reach"),
    ]
    for at, (kind, options, status, reason) in enumerate(wrong):
        (row,) = rows_of(tmp_path / str(at), kind, {name: [value] for name, value in options.items()})
        assert row["status"] == status
        assert reason in row["reason"]
    slow = BASE | {"context": 300_000, "cluster": "hgx-h200@2048"}
    (row,) = rackplan.study({"kind": "sweep", "limit_s": 0.05, "fixed": slow}, tmp_path / "slow").rows
    assert (row["status"], "0.05 s (`limit_s`)" in row["reason"]) == ("timeout", True)


def deadly(job: Job, point: Point) -> dict[str, Any]:
    """Price a point, but for one that kills its worker."""
    if point.options["batch"] == 7:
        os.kill(os.getpid(), signal.SIGKILL)
    return run_point(job, point)


@pytest.mark.wide
def test_a_point_that_kills_its_workers_is_given_up_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rackplan.studies.work._run", deadly)
    result = rackplan.study(GRID, tmp_path / "out", workers=2)
    assert {(row["batch"], row["status"]) for row in result.rows if row["status"] != "ok"} == {(7, "failed")}
    assert len(result.rows) == 24


@pytest.mark.wide
def test_rows_are_the_same_though_workers_are_killed(tmp_path: Path) -> None:
    whole = rackplan.study(GRID, tmp_path / "whole", workers=1)
    kills = 0

    def kill(_: str) -> None:
        nonlocal kills
        children = (
            Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text(encoding="utf-8").split()
        )
        for child in children if kills < 2 else []:
            if b"popen_loky" in Path(f"/proc/{child}/cmdline").read_bytes():
                os.kill(int(child), signal.SIGKILL)
        kills += 1

    killed = run_study(make(StudyRequest, GRID, tmp_path / "killed", workers=2), say=kill)
    assert kills >= 2
    assert comparable(killed.rows) == comparable(whole.rows)


def test_a_study_is_enlarged_stopped_and_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rackplan.studies.rows.PART_S", 0.0)
    monkeypatch.setattr("rackplan.studies.rows.PART_SHARE", 0.0)
    out = tmp_path / "out"
    rackplan.study({**GRID, "grid": {"batch": [5, 6], "ep": [4, 8]}}, out)
    counts = Counter[str]()

    def stop(_: str) -> None:
        counts["rows"] += 1
        if counts["rows"] == 6:
            raise KeyboardInterrupt

    stopped = run_study(make(StudyRequest, GRID, out, workers=1), say=stop)
    assert (stopped.interrupted, stopped.priced, len(list((out / "results").iterdir()))) == (True, 6, 7)
    parts = sorted((out / "results").iterdir())
    (out / "results" / "part-99999.parquet").write_bytes(
        parts[0].read_bytes()
    )  # killed before it was removed
    result = rackplan.study(out)
    assert result.priced == 24 - 4 - 6
    assert [(row["point"], row["batch"]) for row in result.rows] == [(at, 1 + at // 2) for at in range(24)]
    assert [path.name for path in (out / "results").iterdir()] == ["part-00000.parquet"]
    assert pq.read_table(out / "results").column("point").to_pylist() == list(range(24))


def test_a_folder_in_use_a_damaged_one_and_one_with_changed_files_are_refused(tmp_path: Path) -> None:
    out, own = tmp_path / "out", tmp_path / "own.yaml"
    own.write_text("name: own\ndomains: [{part: hgx-h100}]\n", encoding="utf-8")
    study = {"kind": "score", "fixed": {"model": "mixtral-8x7b", "cluster": str(own)}, "grid": {"batch": [1]}}
    assert rackplan.study(study, out).rows[0]["status"] == "ok"
    lock = os.open(out, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    with pytest.raises(InputError, match="another rackplan process is writing to it"):
        rackplan.study(study, out)
    os.close(lock)
    (out / "results/part-00001.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match=r"part-00001\.parquet: not a valid results file"):
        rackplan.study(study, out)
    own.write_text("name: own\ndomains: [{part: hgx-h100, count: 2}]\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"own\.yaml has changed since the study began"):
        rackplan.study(study, out)


def test_examples_are_read() -> None:
    for name, points in (("grid", 36), ("sample", 900), ("domain-size", 224)):
        assert read_study(ROOT / "examples" / f"study-{name}.yaml").size == points


def test_every_combination_of_a_grid_at_every_draw_is_a_point() -> None:
    ranges = {
        "context": [1024, 4096],
        "price.h100": [2.0, 6.0],
        "tp": {"values": [1, 2]},
        "set.gpu.hbm_bytes_per_s": {"low": "0.5x", "high": "8x", "scale": "log"},
    }
    study = study_of(
        {**SMALL, "grid": {"ep": [4, 8]}, "sample": {"points": 40, "seed": 7, **ranges}}, "s", Path()
    )
    points = list(study.points())
    assert [point.number for point in points] == list(range(80))
    assert len({point.digest for point in points}) == 80
    draws = [{name: point.options[name] for name in ranges} for point in points]
    assert draws[:40] == draws[40:]
    assert all(isinstance(draw["context"], int) and 1024 <= draw["context"] <= 4096 for draw in draws)
    assert all(2 <= draw["price.h100"] <= 6 for draw in draws)
    assert {draw["tp"] for draw in draws} == {1, 2}
    factors = sorted(float(draw["set.gpu.hbm_bytes_per_s"].removesuffix("x")) for draw in draws)
    assert 0.5 <= factors[0] < 1 < factors[len(factors) // 2] < 4 < factors[-1] <= 8


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"grid": {"contxt": [1]}}, "study: grid: contxt: a study of kind score has no option `contxt`"),
        ({"grid": {"batch": list(range(1, 1002)), "context": list(range(1, 1001))}}, "1,001,000 points"),
        ({"grid": {"model": ["mixtral-8x7b"]}}, "`model` is there twice"),
        ({"sample": {"points": 3, "context": [4096, 1024]}}, "[4096, 1024]: expected two numbers"),
        ({"grid": {"ep": [8]}, "optimize": {"search": {"tp": [1, 2]}}}, "use `optimize: curve`"),
        ({"optimize": {"search": {"context": [1, 9]}, "usd_per_h": {"context": 1}}}, "context: needs"),
    ],
)
def test_what_cannot_be_is_refused_with_its_place(more: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as refusal:
        rackplan.study({**SMALL, **more}, tmp_path / "out")
    assert message in str(refusal.value)
    assert not (tmp_path / "out").exists()


@pytest.fixture
def study(tmp_path: Path) -> Path:
    path = tmp_path / "study.yaml"
    path.write_text(TEXT, encoding="utf-8")
    return path


def rows(folder: Path) -> list[dict[str, Any]]:
    return comparable(pq.read_table(folder / "results").to_pylist())


def test_a_study_runs_once_and_reads_as_it_did(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = rackplan.study(yaml.safe_load(TEXT), Path("out"), workers=1)
    with monkeypatch.context() as patched:
        patched.setattr("rackplan.report.study.rows_digest", lambda _: "0" * 64)  # of code and catalog
        require_golden("study", study_doc(result))
    before = rows(tmp_path / "out")
    again = run("study", "out", "--json")  # the folder goes on, and has nothing left to do
    assert (again.code, again.data["priced"]) == (0, 0)
    assert rows(tmp_path / "out") == before


def test_a_folder_of_something_else_is_left_alone(study: Path, run: Run, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "mine.txt").write_text("mine", encoding="utf-8")
    assert "contains files but no study" in run("study", study, "-o", other).error_line
    out = tmp_path / "out"
    assert run("study", study, "-o", out, "--workers", 1).code == 0
    study.write_text(TEXT.replace("[1024, 4096, 16384]", "[1024, 4096]"), encoding="utf-8")
    assert "9 rows match no point" in run("study", study, "-o", out).error_line
    assert run("study", out).code == 0  # it is the study of before
    assert sorted(path.name for path in out.iterdir()) == ["report.html", "results", "study.json"]


@pytest.mark.wide
def test_a_study_goes_on_with_the_code_that_began_it(study: Path, run: Run, tmp_path: Path) -> None:
    """Wherever that is: a copy in another folder does, and one with another figure in its catalog does not."""
    study.write_text(TEXT.replace("[1024, 4096, 16384]", "[1024]"), encoding="utf-8")
    assert run("study", study, "-o", tmp_path / "out", "--workers", 1).code == 0
    copy = tmp_path / "copy"
    for package in ("cost", "placement", "rackplan", "topology"):
        shutil.copytree(ROOT / package, copy / package, ignore=shutil.ignore_patterns("*.pyc"))
    command = [sys.executable, "-B", "-m", "rackplan", "study", "out"]

    def again() -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "PYTHONPATH": str(copy)}
        return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)

    assert again().returncode == 0
    with (copy / "topology/catalog/gpus.yaml").open("a", encoding="utf-8") as catalog:
        catalog.write("# another figure\n")
    refused = again()
    assert refused.returncode == 2
    assert "code or catalog differ" in refused.stderr


def trials(folder: Path, workers: int | None = None) -> StudyRequest:
    return make(StudyRequest, TUNED, folder, optimize=True, workers=workers)


@pytest.mark.wide
def test_trials_are_the_same_stopped_or_not(tmp_path: Path) -> None:
    pytest.importorskip("optuna", reason="it proposes the trials")
    from rackplan.studies.tune import JOURNAL

    whole = run_study(trials(tmp_path / "whole", 1))
    assert len(whole.rows) == 24
    calls = 0

    def stop(_: str) -> None:
        nonlocal calls
        calls += 1
        if calls == 12:
            raise KeyboardInterrupt

    first = run_study(trials(tmp_path / "stopped", 1), say=stop)
    assert first.interrupted
    journal = tmp_path / "stopped" / JOURNAL
    journal.write_bytes(journal.read_bytes()[:-7])  # as a kill leaves it
    (tmp_path / "stopped" / f"{JOURNAL}.lock").touch()
    second = run_study(trials(tmp_path / "stopped", 2))
    assert comparable(second.rows) == comparable(whole.rows)
    assert run_study(trials(tmp_path / "stopped")).priced == 0
