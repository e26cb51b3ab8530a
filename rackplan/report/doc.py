"""The document of a result: what every face is made of.

``Result -> Doc(Record, Table, Chart, Picture, Note, Code) -> text | JSON | JSON Schema | frame | page``. Blocks hold
plain text and plain figures; only faces escape, round and wrap. Nothing here imports what draws or prints.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, Self

from rackplan.report.fields import FIELDS, Field
from topology.base.errors import spelled
from topology.base.values import plain

SCHEMA_VERSION = 2
"""Of all JSON objects that commands print or write, except ``plan.json`` and ``moves.json``."""
Row = Mapping[str, Any]
"""Numbers, texts, true or false, null, and lists of these, by key."""


class Block:
    """Base class of blocks."""


@dataclass(frozen=True)
class Table(Block):
    """Records of the same fields: an array in JSON, a table of text and of a page, a frame.

    Attributes
    ----------
    key:
        Where the JSON has it.
    fields, title:
        What a record has, and what the records are.
    rows:
        The records.
    per:
        A field by which text and page cut it into sections; JSON has one array.
    max_rows, even:
        How many rows text shows (0: none, the table is data alone; None: all), and whether they are evenly spaced,
        both ends included, in place of the first.
    across:
        Whether records are columns.
    change:
        Whether text and page add the second record relative to the first.
    shown:
        Keys of the fields that text and page show; empty: all but, in text, those of fields that are ``long``.
    """

    key: str
    fields: tuple[Field, ...]
    title: str = ""
    rows: Sequence[Row] = ()
    per: str = ""
    max_rows: int | None = 12
    even: bool = False
    across: bool = False
    change: bool = False
    shown: str = ""

    @classmethod
    def of(cls, key: str, fields: str, title: str = "", **look: Any) -> Self:
        """Return a table of the fields named in ``fields``, separated by spaces; one that is unknown raises.

        Text and page show those before a ``|``, where there is one.
        """
        shown, bar, data = fields.partition("|")
        look = {"shown": shown, **look} if bar else look
        names = dict.fromkeys([*shown.split(), *data.split()])
        return cls(key, tuple(FIELDS[name] for name in names), title, **look)

    def __call__(self, rows: Iterable[Row | tuple[Any, ...]], **look: Any) -> Self:
        """Return the table with these rows, by key or in the order of the fields.

        A row that lacks a field raises ``KeyError``, null is a value.
        """
        cut = [self._cut(row) for row in rows]
        return replace(self, rows=cut, **look)

    def _cut(self, row: Row | tuple[Any, ...]) -> Row:
        if isinstance(row, tuple):
            return {column.key: value for column, value in zip(self.fields, row, strict=True)}
        try:
            return {column.key: row[column.key] for column in self.fields}
        except KeyError as missing:
            raise KeyError(f"{self.key or 'the root'}: a row lacks {missing}") from None

    def row(self, *sources: object, **values: Any) -> dict[str, Any]:
        """Return a row of fields that ``sources`` have as attributes, the first that has one, and of ``values``.

        Where one of them is None, fields that nobody has are null.
        """
        named = [column.key for column in self.fields if column.key not in values]
        row = dict.fromkeys(named) if any(source is None for source in sources) else {}
        for source in reversed(sources):
            row |= {key: getattr(source, key) for key in named if hasattr(source, key)}
        return row | values

    def visible(self, *, text: bool = False) -> tuple[Field, ...]:
        """Return the fields that a page shows, or that ``text`` does."""
        if self.shown:
            by_key = {column.key: column for column in self.fields}
            return tuple(by_key[key] for key in self.shown.split() if key in by_key)
        return tuple(column for column in self.fields if not (text and column.long))

    def columns(self, *, text: bool = False) -> list[Field]:
        """Return the fields that are shown and that a row has: not those that are null or empty in all of them."""
        return [
            column
            for column in self.visible(text=text)
            if any(row[column.key] not in (None, "", []) for row in self.rows)
        ]

    def parts(self) -> dict[str, Table]:
        """Return the table for each value of :attr:`per`, without that field; the whole where it is cut by none."""
        if not self.per:
            return {"": self}
        by, columns = FIELDS[self.per], tuple(column for column in self.fields if column.key != self.per)
        rows: dict[str, list[Row]] = {}
        for row in self.rows:
            rows.setdefault(by.text(row[self.per]), []).append(row)
        return {value: replace(self, fields=columns, per="", rows=part) for value, part in rows.items()}

    @property
    def data(self) -> Any:
        """What the JSON has under :attr:`key`."""
        return [plain(dict(row)) for row in self.rows]

    @property
    def schema(self) -> dict[str, Any]:
        """Its JSON Schema."""
        properties = {column.key: column.schema for column in self.fields}
        items = {"type": "object", "properties": properties, "required": list(properties)}
        return {"type": "array", "description": self.title, "items": items}


@dataclass(frozen=True)
class Record(Table):
    """One record: labels and values. Without a key its fields are at the root of the JSON.

    Attributes
    ----------
    tiles:
        Keys of the fields that a page shows as key figures.
    """

    tiles: str = ""

    def __call__(self, row: Row | None, **look: Any) -> Self:  # type: ignore[override]
        """Return the record with these values; None: there is none, and the JSON has null."""
        return super().__call__([] if row is None else [row], **look)

    @property
    def data(self) -> Any:
        """What the JSON has under :attr:`key`."""
        return next(iter(super().data), None)

    @property
    def schema(self) -> dict[str, Any]:
        """Its JSON Schema."""
        return {**super().schema["items"], "type": ["object", "null"], "description": self.title}


@dataclass(frozen=True)
class Layer:
    """Marks of a chart over the rows of a table.

    Attributes
    ----------
    mark:
        ``line``, ``point``, ``bar``, ``band`` (between ``base`` and ``y``) or ``rule`` (a line across at ``y``).
    table:
        Whose rows; those in which ``x`` or ``y`` is null are left out.
    x, y:
        Keys of its fields.
    color:
        A key: rows of one value are one trace; empty: all are, under ``name``.
    base:
        The key of where a bar or a band begins; empty: at zero.
    name:
        In the legend, where there is no ``color``.
    text:
        The key of the labels beside marks; empty: none.
    """

    mark: Literal["line", "point", "bar", "band", "rule", "star", "ring"]
    table: Table
    x: str
    y: str
    color: str = ""
    base: str = ""
    name: str = ""
    text: str = ""


@dataclass(frozen=True)
class Chart(Block):
    """Layers on common axes, named after the fields of the first. Bars with a ``base`` float: a waterfall.

    Attributes
    ----------
    title, alt:
        What it shows, and the same for who does not see it.
    layers:
        From the back to the front.
    log:
        Which axes are logarithmic: ``x``, ``y``, ``xy``.
    stacked:
        Whether bars of one place lie end to end, from left to right.
    height:
        In pixels.
    """

    title: str
    layers: Sequence[Layer]
    log: str = ""
    alt: str = ""
    stacked: bool = False
    height: int = 380


@dataclass(frozen=True)
class Picture(Block):
    """A picture that is drawn by hand.

    Attributes
    ----------
    key, alt:
        Its name on a page, and what is to be seen.
    svg:
        The drawing, or what makes it when it is needed.
    data:
        In its place: what a script of the page draws it from, plain values.
    title:
        The title of its section.
    scene:
        Whether it is the drawing of a cluster, whose parts can be pointed at.
    """

    key: str
    alt: str
    svg: str | Callable[[], str] = ""
    data: Row = field(default_factory=dict)
    title: str = ""
    scene: bool = False

    @property
    def drawn(self) -> str:
        """The drawing as an SVG element, without the prologue of a file."""
        svg = self.svg() if callable(self.svg) else self.svg
        return svg[max(svg.find("<svg"), 0) :]


@dataclass(frozen=True)
class Note(Block):
    """A sentence.

    Attributes
    ----------
    text:
        The sentence; a note without one is left out.
    about:
        The key of the figure that it is about.
    kind:
        ``missing`` says why ``about`` is null, ``method`` how figures are made (with ``--details`` and on pages),
        ``next`` is a command worth running, ``written`` names the files that were written.
    """

    text: str
    about: str = ""
    kind: Literal["note", "warning", "missing", "method", "next", "written"] = "note"


@dataclass(frozen=True)
class Code(Block):
    """Text to copy: flags of an engine, or a file.

    Attributes
    ----------
    key:
        Where the JSON has it; empty: it has not.
    text, title:
        The text, and what it is.
    """

    key: str
    text: str
    title: str = ""


@dataclass(frozen=True)
class Late(Block):
    """Blocks for pages alone that take long to compute: made when a page is."""

    make: Callable[[], Sequence[Block]]


class LateRows(Sequence[Row]):
    """Rows that take long to compute: made when they are read, which text does not of a table that it never shows."""

    def __init__(self, make: Callable[[], Sequence[Row]]) -> None:
        self._make = make

    @cached_property
    def _rows(self) -> Sequence[Row]:
        return self._make()

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: Any) -> Any:
        return self._rows[index]


def blocks_of(blocks: Iterable[Block]) -> Iterator[Any]:
    """Yield blocks, those that are made late in their place."""
    for block in blocks:
        if isinstance(block, Late):
            yield from blocks_of(block.make())
        else:
            yield block


@dataclass(frozen=True)
class Shape:
    """What a command answers with, known before there is a result: its JSON Schema needs no run.

    Attributes
    ----------
    name, meaning:
        Of the command or the file, and what it holds, in a sentence.
    tables:
        Its records and tables.
    texts:
        Keys of its :class:`Code`, separated by spaces.
    """

    name: str
    meaning: str
    tables: tuple[Table, ...]
    texts: str = ""

    @cached_property
    def declared(self) -> frozenset[object]:
        """What a document of this shape may hold."""
        return frozenset([*((table.key, table.fields) for table in self.tables), *self.texts.split(), ""])


@dataclass(frozen=True)
class Doc:
    """A result told.

    Attributes
    ----------
    shape:
        What it may hold.
    title, answer:
        What was asked, and one to three sentences that answer it; empty ones are left out.
    blocks, details:
        For everyone, and for ``--details`` and pages.
    frame:
        Makes the rows of a frame, where those are not the first table's: columns by name, or a mapping a row.
    """

    shape: Shape
    title: str
    answer: Sequence[str]
    blocks: Sequence[Block]
    details: Sequence[Block] = ()
    frame: Callable[[], Any] | None = None

    def __post_init__(self) -> None:
        """Refuse a table that the shape does not declare, so that the schema is never wrong."""
        for block in self.all:
            declared = (block.key, block.fields) if isinstance(block, Table) else getattr(block, "key", "")
            if isinstance(block, Table | Code) and declared not in self.shape.declared:
                raise ValueError(f"{self.shape.name}: {block.key or 'the root'} is not declared")

    @property
    def all(self) -> list[Block]:
        """Blocks and details."""
        return [*self.blocks, *self.details]

    @property
    def sentences(self) -> list[str]:
        """The answer without empty sentences."""
        return [text for text in self.answer if text]

    @property
    def row(self) -> dict[str, Any]:
        """The record at the root: a row of a study, a frame of one row."""
        roots = [block.data for block in self.all if isinstance(block, Record) and not block.key]
        return {key: value for root in roots if root for key, value in root.items()}

    @property
    def data(self) -> dict[str, Any]:
        """The object of ``--json``."""
        tables = [block for block in self.all if isinstance(block, Table) and block.key]
        codes = [block for block in self.all if isinstance(block, Code) and block.key]
        notes = [block for block in self.all if isinstance(block, Note) and block.text]
        notes = [note for note in notes if note.kind != "written"]
        return {
            "schema_version": SCHEMA_VERSION,
            "answer": list(map(spelled, self.sentences)),
            **self.row,
            **{table.key: table.data for table in tables},
            **{code.key: code.text for code in codes},
            "notes": [{"kind": note.kind, "about": note.about, "text": spelled(note.text)} for note in notes],
        }

    @property
    def rows(self) -> Any:
        """Rows for a frame: what :attr:`frame` makes, else those of the first table with rows, else the root's."""
        if self.frame is not None:
            return self.frame()
        tables = [block for block in self.all if isinstance(block, Table) and not isinstance(block, Record)]
        return next((table.data for table in tables if table.rows), [self.row])

    def with_blocks(self, *blocks: Block) -> Doc:
        """Return the document with more blocks for everyone."""
        return replace(self, blocks=[*self.blocks, *blocks])
