"""Writing commands stopped at their file events: nothing half, nothing mixed, nothing left (benchmarks/kills.py)."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from inspect import signature
from pathlib import Path
from typing import Any

import pytest

from helpers import script
from rackplan.cli import COMMANDS
from rackplan.options import flat

ROOT = Path(__file__).parents[2]
FILE = ROOT / "benchmarks/kills.py"


@cache
def kills() -> Any:
    return script("benchmarks/kills.py")


def stopped(*args: object) -> str:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(
        [sys.executable, FILE, *map(str, args)], capture_output=True, text=True, env=env, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout.splitlines()[-1]


def test_every_writing_command_is_killed() -> None:
    writing = {name for name, run in COMMANDS.items() if "output" in signature(flat(run)).parameters}
    tried = {case.command[0] for case in kills().CASES.values()} - {"small"}
    assert tried == writing


@pytest.mark.parametrize("how", ["KILL", "INT"])
def test_the_way_of_writing_survives_a_stop_before_each_event(how: str) -> None:
    assert "0 mixed after the next start, 0 left something after it, 0 wrong" in stopped(
        "--small", "--with", how
    )


@pytest.mark.wide
@pytest.mark.parametrize("how", ["TERM", "ENOSPC", "EIO", "FULL"])
def test_the_way_of_writing_survives_faults(how: str) -> None:
    assert "0 wrong" in stopped("--small", "--with", how)


@pytest.mark.wide
@pytest.mark.parametrize(
    ("cases", "every"),
    [(("traffic", "import"), 6), (("study", "study --report"), 40), (("study --optimize",), 50)],
)
def test_commands_survive_kills(cases: tuple[str, ...], every: int) -> None:
    assert "0 wrong" in stopped(*cases, "--every", every)
