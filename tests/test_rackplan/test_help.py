"""Help stands in sections with two examples a command, and each example is one that the command takes."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import pytest
import typer

from rackplan.cli import COMMANDS, app
from rackplan.help import EXAMPLES, Commands

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Result


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_two_examples_that_parse(name: str) -> None:
    for example in EXAMPLES[name]:
        program, command, *words = shlex.split(example)
        assert (program, command) == ("rackplan", name)
        group = typer.main.get_command(app)
        assert isinstance(group, Commands)
        found = group.get_command(None, name)  # type: ignore[arg-type]
        assert found is not None
        found.make_context(name, words)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_80_wide_and_shows_the_examples(
    name: str, run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    said = run(name, "--help").out
    assert max(map(len, said.splitlines())) <= 80
    assert "Examples:" in said
    joined = said.replace(" \\\n", " ").split()
    for example in EXAMPLES[name]:
        assert " ".join(example.split()) in " ".join(joined)


def test_options_of_a_group_stand_together(run: Callable[..., Result]) -> None:
    said = run("plan", "--help").out
    places = [
        said.index(text)
        for text in (
            "Inputs:",
            "--model",
            "What is served:",
            "--context",
            "How a step is priced:",
            "--price-basis",
            "Run and output:",
            "--seed",
            "Examples:",
        )
    ]
    assert places == sorted(places)


def test_every_command_stands_in_a_section(run: Callable[..., Result]) -> None:
    said = run("--help").out
    assert "Others:" not in said
    for title in ("Plans:", "Clusters and money:", "Engines:", "Data:"):
        assert title in said
