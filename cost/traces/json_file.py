"""Counts in JSON: SGLang's ``{"logical_count": [[...]]}``, and what other readers of JSON need."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cost.traces.recording import Recording, Wanted, of_array
from topology.errors import InputError
from topology.reading import parse_json

MOST_JSON_BYTES = 100 * 2**20
"""Of one JSON document: parsed, its numbers take about nine times as much memory."""

MOST_PARTS = 4_000_000
"""Lists, objects and texts of one document, some 100 bytes each, whatever is in them."""


def read_json(path: Path, wanted: Wanted | None) -> Recording:
    """Read the counts of a JSON file.

    Raises
    ------
    InputError
        If it is larger than 100 MiB, not JSON, has a duplicate key, or no rows of numbers under ``logical_count``.
    """
    if (size := path.stat().st_size) > MOST_JSON_BYTES:
        raise InputError(
            f"{path}: {size / 1e6:,.0f} MB of JSON; above {MOST_JSON_BYTES / 1e6:.0f} MB give the .pt that SGLang "
            "dumps, or an .npy of the same counts, which are read in pieces."
        )
    data = parse(path.read_bytes(), str(path))
    if not isinstance(data, dict) or "logical_count" not in data:
        raise InputError(
            f'{path}: has no key "logical_count", as SGLang writes it: {{"logical_count": [[...]]}}.'
        )
    needs = f"; the model needs {wanted.words}" if wanted else ""
    values = numbers(str(path), "logical_count", data.pop("logical_count"), needs)
    return of_array(str(path), "SGLang JSON", values, wanted)


def parse(text: bytes, where: str) -> Any:
    """Parse JSON in UTF-8.

    Raises
    ------
    InputError
        If it is not JSON, has duplicate keys, or more than 4,000,000 lists and texts.
    """
    if sum(map(text.count, (b"[", b"{", b'"'))) > MOST_PARTS:
        raise InputError(f"{where}: more than {MOST_PARTS:,} lists and texts.")
    try:
        decoded = text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{where}: not valid JSON (byte {error.start} is not UTF-8).") from None
    return parse_json(decoded, lambda _, problem: InputError(f"{where}: {problem}"))


def numbers(path: str, what: str, value: object, needs: str = "", *, checked: bool = False) -> NDArray[Any]:
    """Return nested lists of numbers as an array; ``checked`` says that there is nothing else in them.

    Raises
    ------
    InputError
        If the lists are of unequal length, or hold anything but numbers below 2^64.
    """
    if not checked:
        _only_numbers(path, what, value)
    try:
        values = np.asarray(value)
    except (ValueError, OverflowError):
        raise InputError(f"{path}: {what} has rows of unequal length{needs}.") from None
    if values.dtype == object:  # whole numbers beyond 64 bits
        raise InputError(f"{path}: {what} holds numbers too large for a count of tokens.")
    return values


def _only_numbers(path: str, what: str, value: object) -> None:
    """Refuse what NumPy would turn into a number on its own: true, null, text."""
    for inner in value if isinstance(value, list) else [value]:
        if isinstance(inner, list):
            _only_numbers(path, what, inner)
        elif isinstance(inner, bool) or not isinstance(inner, int | float):
            raise InputError(f"{path}: {what} holds {json.dumps(inner)[:40]}, which is not a number.")
