"""Command help: the main options in three sections, all with ``--help-all``, and two runnable examples."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from inspect import Parameter, unwrap
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from rackplan.commands import COMMANDS, SECTIONS
from topology.base.errors import InputError

if TYPE_CHECKING:
    from rackplan.requests import Request

_HELP = {"help", "help_all"}
INPUT_SECTIONS = ("Inputs", "Options")
RUN_SECTION = "Run and output"


_SHOWS_ALL = "rackplan.help_all"


def _show_all(ctx: typer.Context, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        ctx.meta[_SHOWS_ALL] = True
        sys.stdout.write(f"{ctx.get_help()}\n")
        raise typer.Exit


HELP_ALL = Parameter(
    "help_all",
    Parameter.KEYWORD_ONLY,
    default=False,
    annotation=Annotated[
        bool,
        typer.Option(
            "--help-all",
            callback=_show_all,
            is_eager=True,
            expose_value=False,
            help="Show every option and exit.",
        ),
    ],
)
"""Parameter of commands that have more options than ``--help`` shows."""


class _Word(str):
    """A word of a command line, compared by identity."""

    __slots__ = ()


class Command(TyperCommand):
    """A command whose help has sections and examples."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse a command line; words without an option lead to a hint at the missing options."""
        if not ctx.resilient_parsing:
            self._refuse_bare_words(ctx, [_Word(word) for word in args])
        return super().parse_args(ctx, args)

    def _refuse_bare_words(self, ctx: Any, words: Sequence[str]) -> None:
        """Reject positional words that probably are values of missing required options.

        Raises
        ------
        InputError
            If there are any, with the corrected command line.
        """
        parsed, bare, _ = self.make_parser(ctx).parse_args(args=list(words))
        missing = [
            option
            for option in self.get_params(ctx)
            if option.required and option.param_type_name == "option" and option.name not in parsed
        ]
        if "help" in parsed or not 0 < len(bare) <= len(missing):
            return
        values = [*bare, *(option.metavar or option.name.upper() for option in missing[len(bare) :])]
        options = [
            text for option, value in zip(missing, values, strict=True) for text in (option.opts[0], value)
        ]
        remaining = [word for word in words if not any(word is positional for positional in bare)]
        typed = shlex.join(["rackplan", ctx.info_name, *remaining, *options])
        raise InputError(f"{' '.join(bare)}: options need their names; type: {typed}")

    def sections(self, ctx: Any, shown: AbstractSet[str] | None = None) -> dict[str, list[tuple[str, str]]]:
        """Return the options in non-empty sections: inputs, one per group, and those of the run.

        With ``shown``, only those parameters, in one section for all groups.
        """
        from rackplan.commands.options import section

        sections: dict[str, list[tuple[str, str]]] = {title: [] for title in INPUT_SECTIONS}
        for parameter in self.get_params(ctx):
            record, name = parameter.get_help_record(ctx), parameter.name or ""
            argument = parameter.param_type_name == "argument"
            if record is None or (shown is not None and not argument and name not in shown):
                continue
            title = INPUT_SECTIONS[0] if argument else section(self.request, name)
            if shown is not None and title not in (INPUT_SECTIONS[0], RUN_SECTION):
                title = INPUT_SECTIONS[1]
            sections.setdefault(title, []).append(record)
        run_options = sections.pop(RUN_SECTION, [])
        return {
            title: records for title, records in {**sections, RUN_SECTION: run_options}.items() if records
        }

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options in their sections: the common ones, or all."""
        common = "" if ctx.meta.get(_SHOWS_ALL) else self.request.FIRST
        shown = {*common.split(), *_HELP} if common else None
        for title, records in self.sections(ctx, shown).items():
            with formatter.section(title):
                formatter.write_dl(records)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - typer's signature
        """Write the examples, each on separate lines."""
        with formatter.section("Examples"):
            for example in self.request.EXAMPLES:
                formatter.write(_folded(example, formatter.width, " " * formatter.current_indent))

    @property
    def request(self) -> type[Request]:
        """The request type of the command."""
        request: type[Request] = unwrap(self.callback).request  # type: ignore[arg-type]
        return request


class Commands(TyperGroup):
    """All commands, in sections by task; one is made when it is called for, so that the list needs none of them."""

    make: Callable[[str], Any]

    def get_command(self, ctx: Any, name: str) -> Any:  # noqa: ARG002 - typer's signature
        """Return a command; None where there is none of that name."""
        if name in COMMANDS and self.commands.get(name) is None:
            self.commands[name] = self.make(name)
        return self.commands.get(name)

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - typer's signature
        """Return the names of all commands."""
        return list(COMMANDS)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - typer's signature
        """Write the commands in their sections."""
        for title, summaries in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, summary.text) for name, summary in summaries.items()])


def _folded(example: str, width: int, indent: str) -> str:
    """Return an example wrapped with line continuations, keeping options with their values."""
    lines, line = [], ""
    for word in example.replace(" -", "\n-").split("\n"):
        if line and len(indent) + len(line) + len(word) + 3 > width:
            lines.append(line)
            line = "    "
        line += ("" if not line.strip() else " ") + word
    return "".join(
        f"{indent}{text}{' ' + chr(92) if number < len(lines) else ''}\n"
        for number, text in enumerate([*lines, line])
    )
