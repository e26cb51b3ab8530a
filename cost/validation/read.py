"""Reading a file of measurements, and the files that ship with us."""

from __future__ import annotations

from pathlib import Path

from cost.validation.point import Point
from cost.validation.points_csv import is_points, points_from_table
from topology.base.errors import InputError
from topology.base.table import Table

_DATA = Path(__file__).parent / "data"


def shipped_files() -> list[Path]:
    """Return the files of published measurements that ship with the package, sorted by name."""
    return [_DATA / "alltoall.csv", _DATA / "published.csv"]


def read_measurements(path: str | Path) -> list[Point]:
    """Read a CSV of measured points (docs/calibration.md).

    Raises
    ------
    InputError
        If it is none, or a value in it cannot be read.
    """
    table = Table.read(path)
    if not is_points(table.header):
        raise InputError(
            f"{path}: no measured points; expected columns id, quantity, measured, phase, cluster, ... "
            "(docs/calibration.md)."
        )
    return points_from_table(table)
