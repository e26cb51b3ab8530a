"""Help stands in sections with two examples a command, and each example is one that the command takes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable

import pytest

from helpers import Result
from rackplan.cli import make_app, request_of
from rackplan.commands import COMMANDS


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
        ("plan --cluster a --seed 1 a", "plan --cluster a --seed 1 --model a"),
        ("plan deepseek-v3", "plan --model deepseek-v3 --cluster C"),
        (
            "size --model deepseek-v3 gb200-nvl72 --tok-s 1M",
            "size --model deepseek-v3 --tok-s 1M --cluster gb200-nvl72",
        ),
        ("import-plan a sglang deepseek-v3", "import-plan a --model sglang --from deepseek-v3"),
    ],
)
def test_words_without_their_options_are_answered_with_what_to_type(
    typed: str, meant: str, run: Callable[..., Result]
) -> None:
    result = run(*typed.split())
    assert result.code == 2
    assert result.error_line.endswith(f"options need their names; type: rackplan {meant}")


@pytest.mark.parametrize("name", COMMANDS)
def test_help_shows_twelve_options_at_most_and_help_all_the_rest(
    name: str, run: Callable[..., Result]
) -> None:
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
