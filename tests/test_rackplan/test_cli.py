"""The command line as a whole: help, version, exit codes, interruption, progress, schemas, what it loads."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rackplan
from helpers import PLAN, Run
from placement.progress import Progress
from rackplan.cli import function_of, make_app, request_of
from rackplan.commands import COMMANDS
from rackplan.commands import COMMANDS as TYPED
from rackplan.progress import Reporter, progress
from rackplan.report.fields import unit_of
from rackplan.report.schema import NAMES, REQUESTS, SHAPES, json_schema
from topology.base.errors import InfeasibleError, InputError, NoAnswerError

ROOT = Path(rackplan.__file__).parent.parent


def test_version(run: Run) -> None:
    assert run("--version").out.startswith(f"rackplan {rackplan.__version__}\n")


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


PLAN_FILES = ["plan.json", "report.html", "topology.svg"]


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize(
    ("words", "files", "text"),
    [
        (f"{' '.join(PLAN[:-4])} --loads zipf:1 --time-limit 60", PLAN_FILES, "best plan so far"),
        ("replan plan --loads zipf:0.4 --time-limit 60", [*PLAN_FILES, "moves.json"], "best re-plan so far"),
        (
            "replay plan --loads zipf:0.4 --loads zipf:1 --loads zipf:2",
            ["replay.json", "replay.csv", "report.html"],
            "",
        ),
        ("traffic hgx-h100", ["traffic.json", "traffic.html"], "the bound was computed"),
    ],
)
def test_ctrl_c_keeps_the_best_so_far(
    run: Run, prepared: Run, monkeypatch: pytest.MonkeyPatch, words: str, files: list[str], text: str
) -> None:
    prepared(*PLAN)
    heard = []

    def hear(_: Reporter, progress: Progress | float) -> None:
        if not isinstance(progress, Progress) or progress.total or "window 2" in progress.stage:
            heard.append(progress)
            if len(heard) == 2 or words.startswith("traffic"):
                raise KeyboardInterrupt

    monkeypatch.setattr(Reporter, "hear", hear)
    monkeypatch.setattr(Reporter, "arrived", hear)
    monkeypatch.setattr("placement.budget.EVERY_S", 0.0)
    result = run(*words.split(), "-o", "out")
    assert result.code == 130
    assert text in result.err
    assert {path.name for path in Path("out").iterdir()} == set(files)
    data = json.loads(Path("out", files[0]).read_text())
    assert data.get("completion") == "bound" or data.get("proof", data)["interrupted"]


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
        ("import-plan a sglang deepseek-v3", "import-plan a --model sglang --from deepseek-v3"),
    ],
)
def test_words_without_their_options_are_answered_with_what_to_type(typed: str, meant: str, run: Run) -> None:
    result = run(*typed.split())
    assert result.code == 2
    assert result.error_line.endswith(f"options need their names; type: rackplan {meant}")


@pytest.mark.parametrize("name", COMMANDS)
def test_help_shows_twelve_options_at_most_and_help_all_the_rest(name: str, run: Run) -> None:
    def options(flag: str) -> set[str]:
        shown = run(name, flag).out.partition("Examples:")[0]
        return {*re.findall(r"^  (?:-\w, )?(--[\w-]+)", shown, re.MULTILINE)} - {"--help", "--help-all"}

    short = options("--help")
    assert len(short) <= 12
    assert "--json" in short or name == "serve"  # it prints an address
    if request_of(name).FIRST:
        assert short < options("--help-all")
    else:
        assert run(name, "--help-all").code == 2


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


def _parts(schema: Any) -> Iterator[dict[str, Any]]:
    """All mappings in a schema, itself too."""
    if isinstance(schema, dict):
        yield schema
    for value in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        yield from _parts(value)


def test_every_command_has_one() -> None:
    printed = {name for name in TYPED if any(own.name == "json" for own in function_of(name).shown)}
    assert set(SHAPES) - {"import-plan-check"} == printed
    assert set(REQUESTS) == {f"{name}-request" for name in TYPED}


@pytest.mark.parametrize("name", NAMES)
def test_a_schema_is_of_the_dialect_and_says_what_each_field_is(name: str) -> None:
    schema = json_schema(name)
    version = schema["version"]
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["$id"] == f"urn:rackplan:{name}:{version}"
    assert version == (1 if name in REQUESTS or name == "moves.json" else 3 if name == "plan.json" else 2)
    assert schema["description"]
    assert {part["$ref"] for part in _parts(schema) if "$ref" in part} == {
        f"#/$defs/{part}" for part in schema.get("$defs", {})
    }
    for part in _parts(schema):
        for key, field in part.get("properties", {}).items():
            assert field.get("description"), (name, key)
            if name in REQUESTS and (unit := unit_of(key)[0]):
                assert field["x-unit"] == unit
