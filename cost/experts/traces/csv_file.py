"""CSV with the columns scenario, layer, expert, tokens: no cell absent and none a duplicate."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cost.experts.traces.counts import Recording, Wanted
from topology.base.errors import InputError, one_line
from topology.base.reading import FILE_BYTES, shown

Cells = Iterable[tuple[int, Mapping[str, str | None]]]


COLUMNS = ("scenario", "layer", "expert", "tokens")
MOST_CELLS = 2_000_000
"""Each takes about 300 bytes while the table is read: 600 MB."""


def table_of_cells(
    name: str, header: Sequence[str], cells: Cells, *, experts: int | None
) -> tuple[NDArray[np.float64], tuple[str, ...], tuple[int, ...]]:
    """Return loads ``[scenarios, layers, experts]``, the scenarios in order of appearance, and the layers' ids.

    ``cells`` are (line, row). ``experts`` is the model's; without, the highest that is there, and one.

    Raises
    ------
    InputError
        If a column is missing, an entry is not a number, or a cell is a duplicate or absent. The message
        names the line.
    """
    absent = [column for column in COLUMNS if column not in header]
    if absent:
        raise InputError(f"{name}: has no column {', '.join(absent)}; give {', '.join(COLUMNS)}.")
    twice = [column for column in COLUMNS if header.count(column) > 1]
    if twice:
        raise InputError(f"{name}: has two columns {twice[0]}; leave one out.")
    table: dict[tuple[str, int, int], float] = {}
    for line, row in cells:
        scenario = (row["scenario"] or "").strip()
        layer, expert = _whole(name, line, row, "layer"), _whole(name, line, row, "expert")
        if experts is not None and not 0 <= expert < experts:
            raise InputError(f"{name}, line {line}: expert {expert}, but the model has 0..{experts - 1}.")
        if (scenario, layer, expert) in table:
            raise InputError(
                f"{name}, line {line}: duplicate cell: scenario {scenario!r}, layer {layer}, expert {expert}."
            )
        table[scenario, layer, expert] = _tokens(name, line, row)
        if len(table) > MOST_CELLS:
            raise InputError(
                f"{name}: more than {MOST_CELLS:,} lines; give an .npy, which is read in pieces."
            )
    if not table:
        raise InputError(f"{name}: has a header and no loads below it.")
    scenarios = tuple(dict.fromkeys(key[0] for key in table))
    layers = tuple(sorted({key[1] for key in table}))
    columns = max(key[2] for key in table) + 1 if experts is None else experts
    flat = []
    for key in ((s, layer, e) for s in scenarios for layer in layers for e in range(columns)):
        if key not in table:  # before room is made for the highest expert named
            raise InputError(
                f"{name}: scenario {key[0]!r}, layer {key[1]}, expert {key[2]} is absent; "
                "write 0 where no token went."
            )
        flat.append(table[key])
    return np.array(flat).reshape(len(scenarios), len(layers), columns), scenarios, layers


def _whole(name: str, line: int, row: Mapping[str, str | None], column: str) -> int:
    text = (row[column] or "").strip()
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise InputError(f"{name}, line {line}: {column} {shown(text)} is not a whole number from 0.")
    return int(text)


def _tokens(name: str, line: int, row: Mapping[str, str | None]) -> float:
    text = (row["tokens"] or "").strip()
    try:
        # Python reads 1_000 and other scripts' digits as a number; a CSV file does not mean one
        tokens = float(text.replace("_", "?") if text.isascii() else "?")
    except ValueError:
        raise InputError(f"{name}, line {line}: tokens {shown(text)} is not a number.") from None
    if not 0 <= tokens < float("inf"):  # false for nan as well
        raise InputError(f"{name}, line {line}: tokens {text} is not a count; give a finite number from 0.")
    return tokens


def _numbered(name: str, reader: csv.DictReader[str]) -> Cells:
    """Yield each row with its line; one that has more cells than the header is refused."""
    for row in reader:
        if None in row:
            raise InputError(
                f"{name}, line {reader.line_num}: more cells than the header has columns; write numbers without "
                "commas, and quote texts that hold one."
            )
        yield reader.line_num, row


def read_csv(path: Path, wanted: Wanted | None) -> Recording:
    """Read a table of loads, a scenario a window.

    Raises
    ------
    InputError
        If it is too long, not CSV, or a cell is absent, a duplicate or no count.
    """
    if (size := path.stat().st_size) > FILE_BYTES:  # a line of it may be all of it
        raise InputError(
            f"{path}: {size:,} bytes is too long for a table; expected {FILE_BYTES:,} or fewer. Give an .npy, "
            "which is read in pieces."
        )
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            reader = csv.DictReader(lines)
            header = reader.fieldnames or []
            cells = _numbered(str(path), reader)
            values, names, layers = table_of_cells(
                str(path), header, cells, experts=wanted.experts if wanted else None
            )
    except (csv.Error, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not a CSV file ({one_line(error)}).") from error

    def pieces() -> Iterator[NDArray[np.float64]]:
        yield values

    windows, rows, experts = values.shape
    return Recording(str(path), "CSV table", rows, experts, pieces, windows, layers, names)
