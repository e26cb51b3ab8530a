"""``rackplan study``: run, stopped, gone on with, reported; the same rows on every engine."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

import rackplan
from goldens import require_golden
from helpers import Run
from rackplan.report.study import study_doc

pq = pytest.importorskip("pyarrow.parquet", reason="studies write Parquet")
pytest.importorskip("joblib", reason="studies run on joblib")
STUDY = """\
kind: score
limit_s: 60
fixed: {model: mixtral-8x7b, cluster: hgx-h100}
grid:
  context: [1024, 4096, 16384]
  batch: [1, 8, 100000]
  ep: [4, 8, 17]
"""
ROOT = Path(__file__).parents[2]
MANY = STUDY.replace("[1, 8, 100000]", str(list(range(1, 101))))
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


def test_a_study_runs_once_and_reads_as_it_did(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = rackplan.study(yaml.safe_load(STUDY), Path("out"), workers=1)
    with monkeypatch.context() as patched:
        patched.setattr("rackplan.report.study.rows_digest", lambda _: "0" * 64)  # of code and catalog
        require_golden("study", study_doc(result))
    before = rows(tmp_path / "out")
    again = run("study", "out", "--json")  # the folder goes on, and has nothing left to do
    assert (again.code, again.data["priced"]) == (0, 0)
    assert rows(tmp_path / "out") == before
    text = (tmp_path / "out/report.html").read_text(encoding="utf-8")
    assert "Speed against throughput" in text
    assert "http-equiv" in text


def test_a_folder_of_something_else_is_left_alone(study: Path, run: Run, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "mine.txt").write_text("mine", encoding="utf-8")
    assert "contains files but no study" in run("study", study, "-o", other).error_line
    out = tmp_path / "out"
    assert run("study", study, "-o", out, "--workers", 1).code == 0
    study.write_text(STUDY.replace("[1024, 4096, 16384]", "[1024, 4096]"), encoding="utf-8")
    assert "9 rows match no point" in run("study", study, "-o", out).error_line
    assert run("study", out).code == 0  # it is the study of before
    study.write_text(STUDY.replace("kind: score", "kind: plan"), encoding="utf-8")
    assert "27 rows match no point" in run("study", study, "-o", out).error_line
    assert sorted(path.name for path in out.iterdir()) == ["report.html", "results", "study.json"]


@pytest.mark.wide
def test_a_study_goes_on_with_the_code_that_began_it(study: Path, run: Run, tmp_path: Path) -> None:
    """Wherever that is: a copy in another folder does, and one with another figure in its catalog does not."""
    study.write_text(STUDY.replace("[1024, 4096, 16384]", "[1024]"), encoding="utf-8")
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
