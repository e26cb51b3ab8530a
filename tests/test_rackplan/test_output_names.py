"""Where results go: a folder named for what was planned, what is ours alone replaced, forms by endings."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from helpers import Result
from rackplan.commands.output import default_output

MODEL, CLUSTER = "mixtral-8x7b", "hgx-h100"
PLAN = ("plan", "--model", MODEL, "--cluster", CLUSTER, "--time-limit", 0)


def test_a_plan_goes_to_a_folder_named_for_it_and_again(run: Callable[..., Result], tmp_path: Path) -> None:
    assert run(*PLAN).code == 0
    folder = tmp_path / "out" / f"{MODEL}-on-{CLUSTER}"
    assert (folder / "plan.json").is_file()
    assert run(*PLAN, "--context", 1000).code == 0
    assert run("score", folder, "--json").data["tok_s_per_gpu"] > 0
    assert "no plan.json in this folder" in run("score", tmp_path).error_line


def test_what_is_not_ours_is_left_alone(run: Callable[..., Result], tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "report.html").write_text("mine")
    assert "exists and was not written by rackplan" in run(*PLAN, "-o", folder).error_line
    assert (folder / "report.html").read_text() == "mine"
    assert [path.name for path in folder.iterdir()] == ["report.html"]


def test_names_are_safe() -> None:
    assert str(default_output("a/../b c on x<y>@8")) == "out/a-..-b-c-on-x-y-@8"
    assert str(default_output("..")) == "out/plan"
    assert len(default_output("m" * 500).name) <= 120


def test_the_form_follows_the_ending(run: Callable[..., Result], tmp_path: Path) -> None:
    sweep = ("sweep", "--model", MODEL, "--cluster", CLUSTER)
    for name, first in (("a.csv", "tp,"), ("a.json", "{"), ("a.html", "<!DOCTYPE html>")):
        assert run(*sweep, "-o", name).code == 0
        assert first in (tmp_path / name).read_text(encoding="utf-8")[:200]
    assert ".csv, .json or .html" in run(*sweep, "-o", "a.txt").error_line


def test_what_is_said_is_written_as_the_ending_says(run: Callable[..., Result], tmp_path: Path) -> None:
    words = ("traffic", "hgx-h100", "--pattern", "ring")
    printed = run(*words, "--json").data
    result = run(*words, "-o", "t.json")
    assert (result.code, result.out.splitlines()[-1].split()) == (0, ["Written", "t.json"])
    assert json.loads((tmp_path / "t.json").read_text()) == {"schema_version": 2, **printed}
    assert run(*words, "-o", "out").code == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["traffic.html", "traffic.json"]
    assert "rackplan traffic hgx-h100 --pattern ring -o out" in (tmp_path / "out/traffic.html").read_text()
    (tmp_path / "plan.json").write_text("{}")
    assert "it holds another result" in run(*words, "-o", "plan.json").error_line
    assert "the file suffix sets the format: .json or .html" in run(*words, "-o", "t.csv").error_line
