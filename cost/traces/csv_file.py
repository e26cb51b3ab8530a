"""CSV with the columns scenario, layer, expert, tokens."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cost.load_tables import table_of_cells
from cost.traces.recording import Recording, Wanted, one_line
from topology.errors import InputError


def read_csv(path: Path, wanted: Wanted | None) -> Recording:
    """Read a table of loads, a scenario a window.

    Raises
    ------
    InputError
        If it is not CSV, or a cell is absent, twice there or no count.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            reader = csv.DictReader(lines)
            header = reader.fieldnames or []
            cells = ((reader.line_num, row) for row in reader)
            values, names, layers = table_of_cells(
                str(path), header, cells, experts=wanted.experts if wanted else None
            )
    except (csv.Error, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not a CSV file ({one_line(error)}).") from error

    def pieces() -> Iterator[NDArray[np.float64]]:
        yield values

    windows, rows, experts = values.shape
    return Recording(str(path), "CSV table", rows, experts, pieces, windows, layers, names)
