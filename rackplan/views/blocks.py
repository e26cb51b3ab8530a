"""Components of a view: blocks for terminals and reports, and the data of ``--json``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self, TypeVar

from rackplan.report.doc import Block as Block  # noqa: PLC0414 - until these blocks are gone
from topology.base.errors import printable

if TYPE_CHECKING:
    from plotly import graph_objects

T = TypeVar("T")
SCHEMA_VERSION = 1
"""Schema version of all JSON objects that commands print or write, except ``plan.json``."""
WIDTH = 100
"""Maximum text width in columns."""


@dataclass(frozen=True)
class Heading(Block):
    """The title of a view (level 1), or of a section of a page (level 2, which a terminal leaves out).

    A section that is ``folded`` begins so on a page, and is not printed.
    """

    text: str
    level: int = 1
    folded: bool = False


@dataclass(frozen=True)
class Text(Block):
    """A paragraph; ``label`` is before it (an empty one: it continues the one above), ``style`` is a page's.

    With the style ``terminal`` a page leaves it out.
    """

    text: str
    label: str | None = None
    style: str = ""


@dataclass(frozen=True)
class Lines(Block):
    """Unformatted lines, for terminals only."""

    lines: Sequence[str]


@dataclass(frozen=True)
class Items(Block):
    """A list; on a terminal each item continues the paragraph above, or hangs: a paragraph of its own, set in."""

    texts: Sequence[str]
    hanging: bool = False


@dataclass(frozen=True)
class Table(Block):
    """A table.

    Attributes
    ----------
    title:
        The line above it.
    words:
        The numbers of the columns that are words, set to the left on a page and in a ruled table. A plain table on a
        terminal has only its first column there.
    indent:
        Of a plain table on a terminal.
    ruled:
        Whether a terminal draws rules and wraps long cells; in a pipe it is plain but for the wrapping.
    fold:
        On a page the words that it is hidden behind; empty: it is not.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    words: Sequence[int] = (0,)
    indent: int = 2
    ruled: bool = False
    fold: str = ""

    @classmethod
    def of(cls, items: Iterable[T], *columns: tuple[str, Callable[[T], str]], **look: Any) -> Self:
        """Return a table with a row for each item: a column is its name and what its cell says of an item."""
        rows = [tuple(cell(item) for _, cell in columns) for item in items]
        return cls([name for name, _ in columns], rows, **look)

    @property
    def lines(self) -> list[str]:
        """The table as terminal lines: first column left-aligned, the others right-aligned."""
        rows = [[printable(cell) for cell in row] for row in (self.columns, *self.rows)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        found = []
        for first, *rest in rows:
            cells = [first.ljust(widths[0]), *map(str.rjust, rest, widths[1:])]
            found.append(" " * self.indent + "  ".join(cells).rstrip())
        return found

    def parts(self, width: int) -> list[Table]:
        """Return the table as tables of at most ``width`` columns each, as far as cells allow.

        The first column is in all of them; the title in the first alone.
        """
        widths = [
            len(max(map(printable, column), key=len)) for column in zip(self.columns, *self.rows, strict=True)
        ]
        room = width - self.indent - widths[0]
        groups: list[list[int]] = [[]]
        left = room
        for place, wide in enumerate(widths[1:], 1):
            if wide + 2 > left and groups[-1]:
                groups.append([])
                left = room
            groups[-1].append(place)
            left -= wide + 2
        if len(groups) == 1:
            return [self]

        def part(places: list[int]) -> Table:
            kept = [0, *places]
            rows = [[row[place] for place in kept] for row in self.rows]
            return replace(self, columns=[self.columns[place] for place in kept], rows=rows, title="")

        first, *others = map(part, groups)
        return [replace(first, title=self.title), *others]

    def narrowed(self, width: int = WIDTH) -> Table:
        """Return the table with its last columns left out as far as it is wider than ``width``."""
        if max(map(len, self.lines)) <= width or len(self.columns) == 1:
            return self
        return replace(self, columns=self.columns[:-1], rows=[row[:-1] for row in self.rows]).narrowed(width)


@dataclass(frozen=True)
class Chart(Block):
    """A chart of Plotly; ``says`` is a text alternative. Reports only."""

    name: str
    figure: graph_objects.Figure
    says: str
    height: int


@dataclass(frozen=True)
class Beside(Block):
    """Charts side by side where there is room for it, else one below the other. Reports only."""

    charts: Sequence[Chart]


@dataclass(frozen=True)
class Tiles(Block):
    """Key figures side by side: each with what it is. Reports only."""

    shown: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Drawing(Block):
    """The SVG file of a cluster. Reports only."""

    svg: str


@dataclass(frozen=True)
class Page(Block):
    """Blocks for reports only, or a function that makes them; with a ``fold`` they are collapsed."""

    content: Sequence[Block] | Callable[[], Sequence[Block]]
    fold: str = ""

    @property
    def blocks(self) -> Sequence[Block]:
        """The blocks, computed if necessary."""
        return self.content() if callable(self.content) else self.content


@dataclass(frozen=True)
class Details(Block):
    """Blocks for reports, and for terminals with ``--details``."""

    blocks: Sequence[Block]


GAP = Lines([""])
"""An empty line on a terminal."""


@dataclass(frozen=True)
class View:
    """A displayed result: blocks in reading order, and the data of ``--json``."""

    blocks: Sequence[Block]
    result: object = field(default_factory=dict)

    @cached_property
    def data(self) -> Mapping[str, Any]:
        """The object of ``--json``."""
        from rackplan.views.data import json_data  # loads pydantic

        return json_data(self.result)


def sections(*parts: Sequence[Block]) -> list[Block]:
    """Return the blocks of all ``parts``, separated by empty lines."""
    found: list[Block] = []
    begun = False
    for part in parts:
        shown = any(_on_terminal(block) for block in part)
        found += [GAP, *part] if begun and shown else part
        begun = begun or shown
    return found


def _on_terminal(block: Block) -> bool:
    if isinstance(block, Heading):
        return block.level == 1
    if isinstance(block, Items):
        return bool(block.texts)
    return isinstance(block, Text | Lines | Table)


def in_full(blocks: Iterable[Block], *, details: bool = True) -> list[Block]:
    """Return blocks with :class:`Details` expanded or removed."""
    found: list[Block] = []
    for block in blocks:
        if isinstance(block, Details):
            found += [GAP, *block.blocks] if details else []
        else:
            found.append(block)
    return found


def section(title: str, *, folded: bool = False) -> list[Block]:
    """Return the title of a section, underlined on a terminal."""
    return [Heading(title, 2, folded), Lines([title, "-" * len(title)])]


def thinned(items: Sequence[T], most: int) -> list[T]:
    """Return at most ``most`` of ``items`` (2 or more), evenly, the first and the last included."""
    last = len(items) - 1
    return list(items) if last < most else [items[round(i * last / (most - 1))] for i in range(most)]


def labelled(label: str, *texts: str) -> list[Block]:
    """Return a labelled paragraph and its continuations, without empty texts."""
    return [Text(text, "" if number else label) for number, text in enumerate(filter(None, texts))]
