"""``rackplan study``: run, stopped, gone on with, reported; the same rows on every engine."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helpers import Result

pq = pytest.importorskip("pyarrow.parquet", reason="studies write Parquet")
pytest.importorskip("joblib", reason="studies run on joblib")
STUDY = """\
kind: score
limit_s: 60
fixed: {model: mixtral-8x7b, cluster: hgx-h100}
grid:
  context: [1024, 4096]
  batch: [1, 8, 100000]
  ep: [4, 8, 17]
"""
ROOT = Path(__file__).parents[2]
MANY = STUDY.replace("[1, 8, 100000]", str(list(range(1, 151))))
TIMES = ("seconds", "cpu_s", "host", "finished")


@pytest.fixture
def study(tmp_path: Path) -> Path:
    path = tmp_path / "study.yaml"
    path.write_text(STUDY, encoding="utf-8")
    return path


def rows(folder: Path) -> dict[str, dict[str, Any]]:
    found = pq.read_table(folder / "results").to_pylist()
    by = {row["digest"]: {key: value for key, value in row.items() if key not in TIMES} for row in found}
    assert len(by) == len(found)
    return by


def test_a_study_runs_once_and_is_reported(study: Path, run: Callable[..., Result], tmp_path: Path) -> None:
    out = tmp_path / "out"
    said = run("study", study, "-o", out, "--json", "--workers", 1)
    assert said.code == 0
    statuses = {row["status"]: row["points"] for row in said.data["statuses"]}
    assert statuses == {"ok": 8, "infeasible": 4, "failed": 6}
    assert said.data["priced"] == 18
    assert "batch=8" in said.data["best"]["options"]
    assert {row["points"] for row in said.data["reasons"]} == {6, 4}
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "Speed against throughput" in page
    assert "Best by option" in page
    assert "http-equiv" in page
    before = rows(out)
    again = run("study", out)  # the folder goes on, and has nothing left to do
    assert again.code == 0
    assert "0 were priced in this run, 18 in earlier runs" in again.out
    assert rows(out) == before


def test_a_folder_of_something_else_is_left_alone(
    study: Path, run: Callable[..., Result], tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "mine.txt").write_text("mine", encoding="utf-8")
    assert "contains files but no study" in run("study", study, "-o", other).error_line
    out = tmp_path / "out"
    assert run("study", study, "-o", out, "--workers", 1).code == 0
    study.write_text(STUDY.replace("[1024, 4096]", "[1024]"), encoding="utf-8")
    assert "9 rows match no point" in run("study", study, "-o", out).error_line
    assert run("study", out).code == 0  # it is the study of before
    study.write_text(STUDY.replace("kind: score", "kind: plan"), encoding="utf-8")
    assert "another study" in run("study", study, "-o", out).error_line
    assert sorted(path.name for path in out.iterdir()) == ["report.html", "results", "study.json"]


@pytest.mark.wide
def test_a_study_goes_on_with_the_code_that_began_it(
    study: Path, run: Callable[..., Result], tmp_path: Path
) -> None:
    """Wherever that is: a copy in another folder does, and one with another figure in its catalog does not."""
    study.write_text(STUDY.replace("[1024, 4096]", "[1024]"), encoding="utf-8")
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
    assert len(refused.stderr.splitlines()) == 1
    assert "code or catalog differ" in refused.stderr
    assert "-o DIR" in refused.stderr


@pytest.mark.wide
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_study_that_is_stopped_goes_on(how: signal.Signals, study: Path, tmp_path: Path) -> None:
    study.write_text(MANY, encoding="utf-8")
    out = tmp_path / "out"
    command = [sys.executable, "-m", "rackplan", "study", str(study), "-o", str(out), "--workers", "1"]
    here = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with (tmp_path / "said").open("w", encoding="utf-8") as file:
        first = subprocess.Popen(command, stdout=file, stderr=file, env=here)
        while first.poll() is None and not list(out.glob("results/*")):
            time.sleep(0.01)
        first.send_signal(how)
        code = first.wait(timeout=60)
    assert code == (130 if how == signal.SIGINT else -signal.SIGKILL)
    before = len(rows(out))
    ended = subprocess.run([*command, "--json"], check=True, capture_output=True, env=here, timeout=120)
    import json

    data = json.loads(ended.stdout)
    assert data["rows"] == 900
    assert 0 < before <= 900 - data["priced"]
    assert len(rows(out)) == 900
