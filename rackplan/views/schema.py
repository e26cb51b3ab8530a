"""Which schemas there are."""

from __future__ import annotations

from rackplan.schemas.make import COMMANDS, NAMES, about
from rackplan.schemas.records import SchemaPrinted
from rackplan.views.blocks import SCHEMA_VERSION, Lines, Table, View, sections


def schemas_view() -> View:
    """Return what ``rackplan schema`` says without a name."""
    data: SchemaPrinted = {
        "rows": [
            {"name": name, "kind": "command" if name in COMMANDS else "file", "of": about(name)}
            for name in NAMES
        ]
    }
    table = Table.of(
        data["rows"],
        ("schema", lambda one: one["name"]),
        ("of", lambda one: one["of"].partition(": ")[2] or one["of"]),
        words=(0, 1),
        ruled=True,
    )
    note = f"`rackplan schema NAME` prints one: JSON Schema of draft 2020-12, version {SCHEMA_VERSION}."
    return View(sections([table], [Lines([note])]), data)
