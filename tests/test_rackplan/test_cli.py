"""The command line as a whole: help, version, exit codes, interruption, progress, what it loads."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import rackplan
from cost.resolve import resolve_model
from helpers import PLAN, Run
from placement.progress import Progress
from rackplan.cli import make_app, request_of
from rackplan.commands import COMMANDS
from rackplan.inputs import loads_of
from rackplan.progress import progress
from rackplan.requests import DEFAULT_LOADS
from topology.base.errors import InfeasibleError, InputError, NoAnswerError

ROOT = Path(rackplan.__file__).parent.parent


def test_version(run: Run) -> None:
    out = run("--version").out
    assert out.startswith(f"rackplan {rackplan.__version__}\n")
    assert all(f"  {name} " in out for name in ("Python", "numpy", "ortools"))


WRONG = "what is wrong,\nwhere, \x1b[31mand what to do"
ESCAPED = r"what is wrong,\nwhere, \x1b[31mand what to do"


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (InputError(WRONG), 2, ESCAPED),
        (InfeasibleError(WRONG), 3, ESCAPED),
        (NoAnswerError(WRONG), 4, ESCAPED),
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
    assert "interrupted" in result.err
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


def test_help_loads_no_heavy_package() -> None:
    code = LOADED.format(runs=[["--version"], ["--help"]])
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False, timeout=120
    )
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_two_examples_that_parse(name: str) -> None:
    examples = request_of(name).EXAMPLES
    assert len(examples) == 2
    for example in examples:
        program, command, *words = shlex.split(example)
        assert (program, command) == ("rackplan", name)
        found = make_app().get_command(None, name)
        assert found is not None
        found.make_context(name, words)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("plan deepseek-v3 gb200-nvl72", "plan --model deepseek-v3 --cluster gb200-nvl72"),
        (
            "size --model deepseek-v3 gb200-nvl72 --tok-s 1M",
            "size --model deepseek-v3 --tok-s 1M --cluster gb200-nvl72",
        ),
        ("import-plan a sglang deepseek-v3", "import-plan a --model sglang --from deepseek-v3"),
    ],
)
def test_words_without_their_options_are_answered_with_what_to_type(typed: str, meant: str, run: Run) -> None:
    result = run(*typed.split())
    assert result.code == 2
    assert result.error_line.endswith(f"options need their names; type: rackplan {meant}")


@pytest.mark.parametrize("name", COMMANDS)
def test_help_shows_twelve_options_at_most_and_help_all_the_rest(name: str, run: Run) -> None:
    def options(text: str) -> set[str]:
        found = re.findall(r"^  (?:-\w, )?(--[\w-]+)", text.partition("Examples:")[0], re.MULTILINE)
        return set(found) - {"--help", "--help-all"}

    result = run(name, "--help")
    assert (result.code, result.err) == (0, "")
    assert f"Usage: rackplan {name}" in result.out
    short = options(result.out)
    assert len(short) <= 12
    assert "--json" in short or name == "serve"  # it prints an address
    if request_of(name).FIRST:
        whole = run(name, "--help-all")
        assert (whole.code, whole.err) == (0, "")
        assert short < options(whole.out)
    else:
        assert run(name, "--help-all").code == 2


def test_default_loads_are_synthetic_and_seeded() -> None:
    model = resolve_model("mixtral-8x7b")
    first, again, other = (loads_of(model, seed=seed) for seed in (0, 0, 1))
    assert first is not None
    assert again is not None
    assert other is not None
    assert first.synthetic
    assert first.names[0].startswith(DEFAULT_LOADS)
    assert (first.tokens == again.tokens).all()
    assert (first.tokens != other.tokens).any()


@pytest.mark.parametrize("terminal", [False, True])
def test_progress_is_said_on_a_terminal_alone_and_never_on_standard_output(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)
    with progress() as reporter:
        reporter.stage("working")
        reporter.hear(Progress("placing experts", 1, 2, 1.5, 1.2, 3.0))
    out, err = capsys.readouterr()
    assert out == ""
    assert terminal or err == ""
