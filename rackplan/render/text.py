"""Blocks as lines of text: ruled tables on a terminal, plain ones in a pipe."""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator
from functools import partial

from rackplan.views.blocks import WIDTH, Block, Heading, Items, Lines, Table, Text
from topology.base.errors import printable

LABEL = 14
"""Columns of a paragraph's label."""
_NARROWEST = 40
_SPACES = str.maketrans("\t\n\v\f\r", "     ")
_INDENT = {"-": "  ", "[": "    "}
"""Of the lines that continue an item of a list, or a numbered source."""


_QUOTED = re.compile(r"(?<!key )(option )?`([a-z0-9_]+)`")


def with_flags(text: str) -> str:
    """Return a message with parameters (in backquotes) as the command line calls them."""
    return _QUOTED.sub(_with_flag, text)


def _with_flag(found: re.Match[str]) -> str:
    from rackplan.requests import flag_of, flags

    option, name = found.groups()
    return flag_of(name) if option or name in flags(quoted=True) else found[0]


_wrap = partial(textwrap.wrap, break_on_hyphens=False)
"""Flags, names and paths have hyphens, and are copied whole."""


def text_lines(blocks: Iterable[Block]) -> Iterator[str]:
    """Yield the lines of ``blocks`` without those for reports only; unprintable characters are escaped."""
    width, fits = _width()
    for block in blocks:
        if isinstance(block, Heading) and block.level == 1:
            lines = _wrap(_shown(block.text), width)
            yield from [*lines, "=" * max(map(len, lines))]
        elif isinstance(block, Text):
            yield from _paragraph(block, width)
        elif isinstance(block, Items):
            for text in block.texts:
                yield from _hanging(text, width) if block.hanging else wrapped("", text, width)
        elif isinstance(block, Table) and block.ruled:
            yield from _ruled(block, width)
        elif isinstance(block, Table):
            for number, part in enumerate(block.parts(width) if fits else [block]):
                yield from [""] * (number > 0)
                yield from _wrap(_shown(part.title), width)
                yield from map(with_flags, part.lines)
        elif isinstance(block, Lines):
            for line in block.lines:
                yield from (
                    _broken(with_flags(printable(line)), width) if fits else [with_flags(printable(line))]
                )


def _width() -> tuple[int, bool]:
    """Return how wide text is at most, and whether tables must fit in it: on a terminal, or where COLUMNS says."""
    if not (sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdecimal()):
        return WIDTH, False
    return max(_NARROWEST, min(WIDTH, shutil.get_terminal_size().columns)), True


def _broken(line: str, width: int) -> list[str]:
    """Return a line as lines of at most ``width`` columns, the later ones as far in as the first and two more."""
    indent = line[: len(line) - len(line.lstrip())]
    later = indent + "  "
    return _wrap(line.strip(), width, initial_indent=indent, subsequent_indent=later) or [""]


def wrapped(label: str, text: str, width: int = WIDTH) -> list[str]:
    """Return one labelled paragraph, its lines aligned after the label."""
    head = f"{printable(label):<{LABEL - 1}} "
    body = _wrap(_shown(text), width - len(head)) or [""]
    return [head + body[0], *(" " * LABEL + line for line in body[1:])]


def _shown(text: str) -> str:
    """Return a paragraph for wrapping: white space as spaces, the rest as it can be shown."""
    return with_flags(printable(text.translate(_SPACES)))


def _hanging(text: str, width: int) -> list[str]:
    wrapper = textwrap.TextWrapper(width, "  ", "    ", break_long_words=False, break_on_hyphens=False)
    return wrapper.wrap(_shown(text))


def _paragraph(block: Text, width: int) -> Iterator[str]:
    if block.label is not None:
        yield from wrapped(block.label, block.text, width)
        return
    for line in block.text.split("\n"):
        yield from _wrap(_shown(line), width, subsequent_indent=_INDENT.get(line[:1], "")) or [""]


def _ruled(table: Table, width: int) -> Iterator[str]:
    """Yield the title and the table: ruled on a terminal, plain and indented elsewhere."""
    from rich import box
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text as RichText

    console = Console(file=sys.stdout, highlight=False, markup=False, emoji=False, width=width)
    ruled = console.is_terminal
    drawn = RichTable(
        box=box.SIMPLE_HEAD if ruled else None,
        padding=(0, 1) if ruled else (0, 2, 0, 0),
        show_edge=False,
        pad_edge=False,
    )
    for place, name in enumerate(table.columns):
        words = place in table.words
        drawn.add_column(RichText(name), justify="left" if words else "right", overflow="fold")
    for row in table.rows:
        drawn.add_row(*(RichText(with_flags(printable(cell))) for cell in row))
    indent = "  "
    with console.capture() as caught:
        console.print(RichText(table.title, style="bold"))
        console.print(drawn, width=width - len(indent))
    title, *lines = caught.get().rstrip("\n").split("\n")
    yield from [title, *((indent + line).rstrip() for line in lines)]
