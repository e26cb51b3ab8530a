"""Catalog files of this package: entries of figures, each with unit, kind of evidence and source."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from topology.catalog_files import read_evidence
from topology.errors import InputError
from topology.fields import Fields, load_yaml
from topology.figures import Figure
from topology.units import parse_quantity

_CATALOG = Path(__file__).parent.parent / "catalog"


class FigureFile:
    """One file: ``sources`` by key, and one table of entries."""

    def __init__(self, path: Path, table: str) -> None:
        where = f"catalog {path.name}"
        fields = Fields(load_yaml(path, where), where)
        sources = fields.sub("sources")
        self._sources = {key: sources.text(key) for key in sources.names()}
        self._table = fields.sub(table)
        self.names = self._table.names()
        fields.done()

    def entry(self, name: str) -> Fields:
        """Return the entry called ``name``, which must exist."""
        return self._table.sub(name)

    def figures(self, fields: Fields, units: Mapping[str, str]) -> dict[str, Figure]:
        """Return the figures of an entry by key; nothing else may be left in it.

        Raises
        ------
        InputError
            If one cannot be read, or names a source that the file does not have.
        """
        found = {key: self._figure(fields.sub(key), unit) for key, unit in units.items() if key in fields}
        fields.done()
        return found

    def _figure(self, fields: Fields, unit: str) -> Figure:
        text = f"{fields.number('value'):g}" if unit == "1" else fields.text("value")
        source = fields.text("source")
        if source not in self._sources:
            raise InputError(f"{fields.at('source')}: {source!r} is not among the file's sources.")
        note = fields.text("note") if "note" in fields else ""
        origin = f"{self._sources[source]} ({note})" if note else self._sources[source]
        value = float(text) if unit == "1" else parse_quantity(text, unit, fields.at("value"))
        figure = Figure(value, unit, read_evidence(fields), origin, text)
        fields.done()
        return figure


@cache
def figure_file(stem: str, table: str) -> FigureFile:
    """Return the table of one of the files in the catalog, read once."""
    return FigureFile(_CATALOG / f"{stem}.yaml", table)
