"""Which schemas there are."""

from __future__ import annotations

from pydantic.dataclasses import dataclass

from rackplan.views.blocks import SCHEMA_VERSION, Lines, Table, View, sections
from rackplan.views.schemas import NAMES, about, kind_of


@dataclass(frozen=True)
class SchemaRowData:
    """A schema.

    Attributes
    ----------
    name, kind, of:
        What ``rackplan schema`` calls it, ``command``, ``request`` or ``file``, and what it is of in a sentence.
    """

    name: str
    kind: str
    of: str


@dataclass(frozen=True)
class SchemasResult:
    """What ``rackplan schema --json`` prints without a name.

    Attributes
    ----------
    rows:
        A row for each schema.
    """

    rows: list[SchemaRowData]


def schemas_view() -> View:
    """Return what ``rackplan schema`` prints without a name."""
    rows = [SchemaRowData(name, kind_of(name), about(name)) for name in NAMES]
    table = Table.of(
        rows,
        ("schema", lambda row: row.name),
        ("of", lambda row: row.of.partition(": ")[2] or row.of),
        words=(0, 1),
        ruled=True,
    )
    note = f"`rackplan schema NAME` prints one: JSON Schema of draft 2020-12, version {SCHEMA_VERSION}."
    return View(sections([table], [Lines([note])]), SchemasResult(rows))
