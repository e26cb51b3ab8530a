"""Published figures and configurations, as files that anybody can edit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from topology.base.figures import Figure
from topology.catalog import FigureFile


def catalog_figures(stem: str, table: str, units: Mapping[str, str]) -> dict[str, dict[str, Figure]]:
    """Return the figures of every entry in a ``table`` of ``stem.yaml`` by name, ``units`` by key."""
    return FigureFile.read(Path(__file__).parent / f"{stem}.yaml", table).figures(units)
