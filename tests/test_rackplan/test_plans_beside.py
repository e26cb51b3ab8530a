"""Files beside a plan.json that are not of it: after a killed run, or mixed by hand."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers import PLAN, ROOT, Result, Run, plan_of
from placement.plans.reading import read_plan

REPLAN = ("replan", "plan", "--loads", "zipf:0.4", "--time-limit", "0", "-o", "again")
OTHER = plan_of("mixtral-8x7b", "hgx-h200", to="other")
KILLED = """
import os, signal
from pathlib import Path
moved = Path.replace
def move(path, target):
    if target.name == "plan.json":
        os.kill(os.getpid(), signal.SIGKILL)
    return moved(path, target)
Path.replace = move
from rackplan.cli import main
main()
"""
Prepared = Callable[..., Result]


def test_the_files_of_a_run_belong_together(run: Run, prepared: Prepared) -> None:
    prepared(*PLAN)
    assert run(*REPLAN).err == ""
    for folder in ("plan", "again"):
        assert read_plan(folder).differences == ""
        assert run("score", folder).err == ""
    for name in ("report.html", "topology.svg", "moves.json"):
        data = Path("again", name).read_bytes()
        Path("again", name).write_bytes(Path("again/plan.json").read_bytes())  # without a digest
        assert read_plan("again").differences == ""
        if name != "moves.json":
            Path("again", name).write_bytes(Path("plan", name).read_bytes())
            assert f"again: {name}: not of this plan.json" in read_plan("again").differences
        Path("again", name).write_bytes(data)


@pytest.mark.parametrize(
    "words",
    [
        "score PLAN --json", "replan PLAN --loads zipf:0.4 --time-limit 0 -o new",
        "simulate PLAN --req-s 1", "what-if PLAN", "export PLAN --to sglang", "draw hgx-h100 --plan PLAN -o x.svg",
        "traffic PLAN", "replay PLAN --loads zipf:0.4 --loads zipf:0.6",
    ],
)  # fmt: skip
@pytest.mark.usefixtures("few_requests")
def test_every_command_that_reads_a_plan_names_mixed_files(run: Run, prepared: Prepared, words: str) -> None:
    prepared(*PLAN)
    prepared(*OTHER)
    for name in ("report.html", "topology.svg"):
        Path("other", name).replace(Path("plan", name))
    result = run(*words.replace("PLAN", "plan/plan.json").split())
    assert result.code == 0, result.err
    if words.startswith("replay"):  # whose notes are of its result
        assert "report.html, topology.svg: not of this plan.json" in " ".join(result.out.split())
        return
    (line,) = [line for line in result.err.splitlines() if "report.html" in line]
    assert line.startswith("rackplan: note: plan: report.html, topology.svg: not of this plan.json")
    if "--json" in words:
        assert "not of this plan.json" in json.dumps(result.data["notes"])


def test_a_killed_run_is_visible_and_the_next_one_mends_it(run: Run, prepared: Prepared) -> None:
    prepared(*PLAN)
    prepared(*OTHER)
    again = [*OTHER[:-1], "plan"]
    ended = subprocess.run(
        [sys.executable, "-c", KILLED, *again], check=False, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert ended.returncode == -signal.SIGKILL
    (left,) = Path("plan").glob(".rackplan-*")
    (line,) = run("score", "plan").err.splitlines()
    assert "plan: report.html, topology.svg: not of this plan.json" in line
    assert f"plan: {left.name}: of a run that was killed while it wrote" in line
    assert run(*again).code == 0
    (line,) = run("score", "plan").err.splitlines()
    assert line.startswith(f"rackplan: note: plan: {left.name}: of a run that was killed")
