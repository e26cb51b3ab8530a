"""Reading a file of measurements in whichever form it has, and the files that ship with us."""

from __future__ import annotations

from pathlib import Path

from cost.validation.point import Point
from cost.validation.points_csv import is_points, points_from_table
from cost.validation.silicon import is_silicon, silicon_from_table
from cost.validation.transcribed import is_transcribed, transcribed_from_table
from topology.errors import InputError
from topology.table import Table

_DATA = Path(__file__).parent / "data"
_NOT_SERVED = ("recipes.csv", "sparse_kernels.csv")
"""Configurations without figures, and times of single kernels, which no prediction stands beside."""


_FORMS = (
    (is_silicon, silicon_from_table),
    (is_transcribed, transcribed_from_table),
    (is_points, points_from_table),
)
"""Whether a header is that of a form, and what reads its table."""


def shipped_files() -> list[Path]:
    """Return the files of published measurements that ship with the package, sorted by name."""
    return sorted(path for path in _DATA.glob("*.csv") if path.name not in _NOT_SERVED)


def read_measurements(path: str | Path) -> list[Point]:
    """Read a CSV of measured points: our own format, the silicon sample's, or published throughput in words.

    Raises
    ------
    InputError
        If it is none of them, or a value in it cannot be read.
    """
    return read_counted(path)[0]


def read_counted(path: str | Path) -> tuple[list[Point], int]:
    """Return the points of a file and its rows: other forms than ours have several figures a row."""
    table = Table.read(path)
    for fits, read in _FORMS:
        if fits(table.header):
            return read(table), sum(any(map(str.strip, cells)) for cells in table.cells)
    raise InputError(
        f"{path}: neither measured points (columns id, quantity, measured, phase, cluster, ...: see "
        "docs/calibration.md) nor the silicon sample (silicon_tpot_ms, ...) nor a table of published throughput "
        "(parallelism, isl_or_context, tok_s_per_gpu, ...)."
    )
