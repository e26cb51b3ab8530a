"""Results: where they go, all or none, replaced where they are ours alone, forms by endings; streams that fail."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

import rackplan
from helpers import Run, plan_of
from rackplan.commands.output import default_output, json_text

ROOT = Path(rackplan.__file__).parent.parent
PLAN = plan_of("mixtral-8x7b")[:-1]
"""All but the folder."""


def test_page_and_picture_carry_the_digest_of_the_plan(run: Run, tmp_path: Path) -> None:
    assert run(*PLAN, "out").code == 0
    first = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    mark = hashlib.sha256(first["plan.json"]).hexdigest().encode()
    assert all(mark in first[name] for name in ("report.html", "topology.svg"))
    (tmp_path / "out/moves.json").write_text("of a re-plan before")
    assert run(*PLAN, "out").code == 0
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == first


def test_a_plan_goes_to_a_folder_named_for_it_and_again(run: Run, tmp_path: Path) -> None:
    assert run(*PLAN[:-1]).code == 0
    folder = tmp_path / "out" / "mixtral-8x7b-on-hgx-h100"
    assert (folder / "plan.json").is_file()
    assert run(*PLAN[:-1], "--context", 1000).code == 0
    assert run("score", folder, "--json").data["tok_s_per_gpu"] > 0


def test_what_is_not_ours_is_left_alone(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "report.html").write_text("mine")
    assert "exists and was not written by rackplan" in run(*PLAN, folder).error_line
    assert (folder / "report.html").read_text() == "mine"
    assert [path.name for path in folder.iterdir()] == ["report.html"]


def test_names_are_safe() -> None:
    assert str(default_output("a/../b c on x<y>@8")) == "out/a-..-b-c-on-x-y-@8"
    assert str(default_output("..")) == "out/plan"
    assert len(default_output("m" * 500).name) <= 120


def test_what_is_said_is_written_as_the_ending_says(run: Run, tmp_path: Path) -> None:
    words = ("traffic", "hgx-h100", "--pattern", "ring")
    printed = run(*words, "--json").data
    result = run(*words, "-o", "t.json")
    assert (result.code, result.out.splitlines()[-1].split()) == (0, ["Written", "t.json"])
    assert json.loads((tmp_path / "t.json").read_text()) == {"schema_version": 2, **printed}
    assert run(*words, "-o", "out").code == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["traffic.html", "traffic.json"]
    assert "rackplan traffic hgx-h100 --pattern ring -o out" in (tmp_path / "out/traffic.html").read_text()


def test_json_has_names_as_they_are() -> None:
    """A name that is spelled as an option of a message is a name all the same."""
    named = {"`cluster`": "lab `model` a", "files": ["`isl`.npy"]}
    assert json.loads(json_text(named)) == named


def test_errors_do_not_steer_the_terminal(run: Run) -> None:
    assert r"no\x1b[2Jsuch" in run("catalog", "no\x1b[2Jsuch").error_line
    assert r"\x1b[2J" in run("plan", "--no\x1b[2Jsuch").error_line
    assert "\x1b" not in run("plan", "--no\n\x1b[2Jsuch").err


def shell(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    line = f'"{sys.executable}" -m rackplan {command}'
    env = {"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii"}
    return subprocess.run(
        ["/bin/bash", "-c", line], capture_output=True, text=True, cwd=folder, env=env, check=False
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_standard_output_is_one_line(tmp_path: Path) -> None:
    ended = shell("catalog > /dev/full", tmp_path)
    assert ended.returncode == 2
    assert ended.stderr == "rackplan: standard output: No space left on device.\n"


@pytest.mark.wide
@pytest.mark.parametrize("reader", [">&-", "| true; exit ${PIPESTATUS[0]}"])
def test_a_reader_that_is_not_there_is_no_error(tmp_path: Path, reader: str) -> None:
    ended = shell(f"{' '.join(PLAN)} out {reader}", tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert (tmp_path / "out/plan.json").is_file()


@pytest.mark.wide
def test_letters_that_the_terminal_lacks(tmp_path: Path) -> None:
    ended = shell(f"{' '.join(PLAN)} $'\\xc3\\xbc'", tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "\\xfc/plan.json" in ended.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["ü"]
