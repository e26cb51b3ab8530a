"""A document as lines of text: ruled tables on a terminal, plain ones in a pipe; control characters are escaped."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import Any, TypeVar

from rackplan.report.doc import Block, Code, Doc, Note, Record, Row, Table
from rackplan.report.fields import FIELDS, Field
from topology.base.errors import printable, spelled

T = TypeVar("T")
WIDTH = 100
"""Maximum text width in columns."""
_LABEL = 14
"""Columns of the label of a note."""
_MIN_WIDTH = 40
"""Columns that text takes in a narrower terminal too, where figures would be folded."""
_UNBROKEN_COLUMNS = 26
"""Columns of a cell that is not broken where other columns can be narrower: a name, a figure with its unit."""
_MAX_ACROSS = 4
"""Records of a table that is turned by itself where it is too wide."""
_KINDS = {"note": "Note", "warning": "Warning", "method": "Method", "next": "Next", "written": "Written"}
_wrap = partial(textwrap.wrap, break_on_hyphens=False)
"""Flags, names and paths have hyphens, and are copied whole."""


def text(doc: Doc, *, details: bool = True) -> str:
    """Return the document as text; without ``details`` what everyone reads."""
    width = _width()
    parts = [[*_wrap(_plain(doc.title), width)]] if doc.title else []
    for title in parts:
        title.append("=" * max(map(len, title)))
    parts.append([line for sentence in doc.sentences for line in _wrap(_plain(sentence), width)])
    blocks = doc.all if details else doc.blocks
    shown = [
        block for block in blocks if not (isinstance(block, Note) and _is_hidden(block, details=details))
    ]
    for noted, group in groupby(shown, lambda block: isinstance(block, Note)):
        if noted:
            parts.append(list(_notes([block for block in group if isinstance(block, Note)], width)))
        else:
            parts += [list(_lines(block, width)) for block in group]
    if not details and doc.details:
        parts.append([f"{'More':<{_LABEL}}--details"])
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _is_hidden(note: Note, *, details: bool) -> bool:
    return not note.text or (note.kind == "method" and not details)


def _width() -> int:
    """Return how wide text is: that of the terminal, or what COLUMNS says, within reason."""
    if not (sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdecimal()):
        return WIDTH
    return max(_MIN_WIDTH, min(WIDTH, shutil.get_terminal_size().columns))


def _plain(words: str) -> str:
    return printable(" ".join(spelled(words).split()))


def _notes(notes: Sequence[Note], width: int) -> Iterator[str]:
    """Yield notes, each kind under its label once."""
    previous = ""
    for (kind, note_text), group in groupby(notes, lambda note: (note.kind, note.text)):
        label, words = _KINDS.get(kind, ""), note_text
        if kind == "missing":
            label = ", ".join(
                FIELDS[note.about].label if note.about in FIELDS else note.about for note in group
            )
            if len(label) >= _LABEL:
                label, words = "Unknown", f"{label}: {note_text}"
        head = "" if label == previous else label
        previous = label
        body = _wrap(_plain(words), width - _LABEL, break_long_words=False)
        yield f"{printable(head):<{_LABEL - 1}} {body[0]}"
        yield from (" " * _LABEL + line for line in body[1:])


def _lines(block: Block, width: int) -> Iterator[str]:
    match block:
        case Record() if block.max_rows != 0:
            yield from _record(block, width)
        case Table() if not isinstance(block, Record):
            yield from _table(block, width)
        case Code():
            yield from [block.title] * bool(block.title)
            yield from (printable(line) for line in block.text.splitlines())


def _record(record: Record, width: int) -> Iterator[str]:
    """Yield labels and values; what is null is said by a note."""
    for row in record.rows:
        fields = record.columns(text=True)
        wide = max((len(field.label) for field in fields), default=0) + 2
        if fields and record.title:
            yield printable(record.title)
        for field in fields:
            body = _wrap(_plain(field.text(row[field.key])), width - wide) or [""]
            yield f"{field.label:<{wide}}{body[0]}"
            yield from (" " * wide + line for line in body[1:])


def _table(table: Table, width: int) -> Iterator[str]:
    parts = table.parts()
    for value, part in parts.items():
        if table.max_rows != 0 and part.rows:
            title = table.title + f": {value}" * (len(parts) > 1)
            yield from _one_table(replace(part, title=title), width)


def thinned(rows: Sequence[T], limit: int, *, even: bool) -> Sequence[T]:
    """Return at most ``limit`` rows: the first, or evenly spaced with both ends."""
    last = len(rows) - 1
    if last < limit:
        return rows
    return (
        [rows[round(at * last / (limit - 1))] for at in range(limit)] if even and limit > 1 else rows[:limit]
    )


def cells_of(
    table: Table, fields: Sequence[Field], rows: Sequence[Row], *, turned: bool = False
) -> tuple[list[str], list[list[str]], list[bool]]:
    """Return heads and cells of a table, and which columns are words; ``turned``: records are columns."""
    if not turned:
        cells = [[field.text(row[field.key]) for field in fields] for row in rows]
        return [field.label for field in fields], cells, [not field.is_number for field in fields]
    key_field, *columns = fields
    heads = ["", *(key_field.text(row[key_field.key]) for row in rows)]
    lines = [[field.label, *(field.text(row[field.key]) for row in rows)] for field in columns]
    if table.change and len(rows) == 2:
        heads.append("change")
        for field, line in zip(columns, lines, strict=True):
            old, new = (row[field.key] for row in rows)
            ratio = field.is_number and old and new is not None
            line.append(f"{new / old - 1:+.1%}" if ratio and new != old else "")
    return heads, lines, [True, *[False] * (len(heads) - 1)]


def _unbroken(cell: str) -> int:
    """Return the length of what stays on a line: a label, a name, a figure with its unit, else a word."""
    fits = len(cell) <= _LABEL or (len(cell) <= _UNBROKEN_COLUMNS and cell.count(" ") <= cell[0].isdigit())
    return len(cell) if fits else max(map(len, cell.split()), default=0)


def _widths(columns: Sequence[Sequence[str]], room: int) -> list[int | None]:
    """Return widths of columns that break sentences and heads, but no name or figure; None: Rich chooses."""
    widths = [max(map(len, column)) for column in columns]
    least = [max(map(_unbroken, [*head.split(), *cells]), default=1) for head, *cells in columns]
    slack = [wide - narrow for wide, narrow in zip(widths, least, strict=True)]
    excess = sum(widths) - room
    if excess <= 0 or excess > sum(slack):
        return [None] * len(columns)
    return [wide - -(-excess * margin // sum(slack)) for wide, margin in zip(widths, slack, strict=True)]


def _one_table(table: Table, width: int) -> Iterator[str]:
    """Yield the title and the table: ruled on a terminal, plain and indented elsewhere."""
    from rich import box
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text as RichText

    limit = len(table.rows) if table.max_rows is None else table.max_rows
    fields, rows = table.columns(text=True), thinned(table.rows, limit, even=table.even)
    heads, cells, words = cells_of(table, fields, rows, turned=table.across)
    natural = sum(max(len(line[at]) for line in (heads, *cells)) + 2 for at in range(len(heads)))
    if not table.across and natural > width and len(rows) <= _MAX_ACROSS and len(fields) > len(rows) + 1:
        heads, cells, words = cells_of(table, fields, rows, turned=True)
    console = Console(file=sys.stdout, highlight=False, markup=False, emoji=False, width=width)
    ruled = console.is_terminal
    drawn = RichTable(
        box=box.SIMPLE_HEAD if ruled else None,
        padding=(0, 1) if ruled else (0, 2, 0, 0),
        show_edge=False,
        pad_edge=False,
    )
    widths = _widths(list(zip(heads, *cells, strict=True)), width - 2 * len(heads))
    for name, is_words, wide in zip(heads, words, widths, strict=True):
        side: Any = "left" if is_words else "right"
        drawn.add_column(RichText(printable(name)), justify=side, overflow="fold", width=wide)
    for line in cells:
        drawn.add_row(*(RichText(_plain(cell)) for cell in line))
    with console.capture() as caught:
        console.print(drawn, width=width - 2)
    if table.title:
        yield _plain(table.title)
    yield from ((f"  {line}").rstrip() for line in caught.get().rstrip("\n").split("\n"))
    if len(rows) < len(table.rows):
        how = "evenly spaced" if table.even else "the first"
        yield f"  {how} {len(rows):,} of {len(table.rows):,}; --json has all"
