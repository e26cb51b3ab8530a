"""The command line as a whole: help, version, exit codes, interruption, what it loads."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import rackplan
from helpers import PLAN, Run
from topology.base.errors import InfeasibleError, InputError, MissingFigureError, NoAnswerError

ROOT = Path(rackplan.__file__).parent.parent


def test_version(run: Run) -> None:
    out = run("--version").out
    assert out.startswith(f"rackplan {rackplan.__version__}\n")
    assert all(f"  {name} " in out for name in ("Python", "numpy", "ortools"))


WRONG = "what is wrong,\nwhere, \x1b[31mand what to do"


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        *(
            (error(WRONG), code, r"what is wrong,\nwhere, \x1b[31mand what to do")
            for error, code in (
                (InputError, 2),
                (MissingFigureError, 2),
                (InfeasibleError, 3),
                (NoAnswerError, 4),
            )
        ),
        (KeyboardInterrupt(), 130, "interrupted; nothing was written."),
        (MemoryError(), 1, "out of memory"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_an_error_is_an_exit_code_and_one_line(
    run: Run, error: BaseException, code: int, said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise error

    monkeypatch.setattr("placement.joint.make_plan", refuse)
    result = run(*PLAN, "--json")
    assert result.code == code
    assert result.error_line.startswith(f"rackplan: {said}")
    assert list(tmp_path.iterdir()) == []


def test_interrupted_with_a_plan_writes_it(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from placement.planner import make_plan

    def interrupted(*args: Any, **kwargs: Any) -> object:
        return replace(make_plan(*args, **kwargs), interrupted=True)

    monkeypatch.setattr("placement.joint.make_plan", interrupted)
    result = run(*PLAN)
    assert result.code == 130
    assert "interrupted; wrote the best plan so far" in result.err
    assert "The search was interrupted" in result.out
    assert json.loads((tmp_path / "plan/plan.json").read_text())["proof"]["interrupted"] is True


LOADED = """
import sys
from rackplan.cli import main
for args in {runs}:
    sys.argv = ["rackplan", *args]
    try:
        main()
    except SystemExit as ended:
        assert not ended.code, args
heavy = {{"numpy", "scipy", "networkx", "ortools", "pygraphviz", "pydantic", "yaml"}}
sys.stderr.write(" ".join(sorted(heavy & set(sys.modules))))
"""


def python(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *args], cwd=ROOT, capture_output=True, text=True, check=False, timeout=120
    )


def test_help_loads_no_heavy_package() -> None:
    ended = python("-c", LOADED.format(runs=[["--version"], ["--help"]]))
    assert (ended.returncode, ended.stderr) == (0, "")


def test_as_a_module() -> None:
    ended = python("-m", "rackplan", "catalog", "no-such-entry", "--json")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith("rackplan: 'no-such-entry' is not in the catalog")
    assert len(ended.stderr.splitlines()) == 1
