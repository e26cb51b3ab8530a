"""Counts in JSON: SGLang's ``{"logical_count": [[...]]}``, and vLLM's lines of load statistics (a pull request)."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cost.experts.traces.counts import Recording, Wanted, experts_of_map, of_array, to_experts
from topology.base.errors import InputError
from topology.base.reading import parse_json

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
    return parse_json(decoded, where)


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


# vLLM: counts of slots in each line, with the map of slots to experts.

STATS = "eplb_load_stats"
MOST_LINE_BYTES = 32 * 2**20
"""Of one line: 61 layers of 512 slots take a third of a megabyte; parsed, a line takes nine times as much."""
_NOT_NUMBERS = re.compile(rb"true|false|null")


def read_vllm_lines(path: Path, wanted: Wanted | None) -> Recording:
    """Open JSON lines; each line of type ``eplb_load_stats`` is a window, its rows are the MoE layers in order.

    Raises
    ------
    InputError
        If a line is not a JSON object with a ``record_type``, or no line has loads, or their shapes differ.
    """
    name = str(path)
    others: Counter[str] = Counter()
    windows, shape, experts = 0, None, 0
    labels: list[str] = []
    filled: list[bool] = []
    for where, record in _stats(path, others):
        load, slots = _tables(name, where, record)
        experts = max(experts, experts_of_map(f"{name}, {where}", slots, wanted.experts if wanted else None))
        if shape not in {None, load.shape}:
            raise InputError(f"{name}, {where}: loads {list(load.shape)}, and {list(shape or ())} before.")
        shape = load.shape
        windows += 1
        filled.append(bool(load.any()))
        step = record.get("step")
        labels.append(f"step {step}" if type(step) is int else str(windows - 1))
    if shape is None:
        found = ", ".join(f"{kind[:40]!r}" for kind in list(others)[:8]) or "no line at all"
        raise InputError(f"{name}: no line of type {STATS!r} in it ({found}); set expert_load_stats_path.")
    skipped = tuple(f"{count} lines of type {kind[:40]} skipped" for kind, count in list(others.items())[:8])

    def pieces() -> Iterator[NDArray[np.float64]]:
        for where, record in _stats(path, Counter()):
            load, slots = _tables(name, where, record)
            yield to_experts(name, where, load, slots, experts)[None]

    return Recording(
        name,
        "vLLM load statistics",
        shape[0],
        experts,
        pieces,
        windows,
        names=tuple(labels),
        notes=skipped,
        filled=tuple(filled),
    )


def _stats(path: Path, others: Counter[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the records that hold loads, and count the types of the others."""
    with path.open("rb") as file:
        line_number = 0
        while line := file.readline(MOST_LINE_BYTES + 1):
            line_number += 1
            where = f"line {line_number}"
            if len(line) > MOST_LINE_BYTES:
                raise InputError(
                    f"{path}, {where}: longer than {MOST_LINE_BYTES // 2**20} MiB; is it JSON lines?"
                )
            if not line.strip():
                continue
            record = parse(line, f"{path}, {where}")
            if not isinstance(record, dict) or not isinstance(record.get("record_type"), str):
                raise InputError(f'{path}, {where}: no object with a "record_type", as vLLM writes.')
            if record["record_type"] != STATS:
                others[record["record_type"]] += 1
                continue
            if record.get("version", 1) != 1:
                raise InputError(f"{path}, {where}: version {record['version']!r:.40}; only 1 is known.")
            record["checked"] = not _NOT_NUMBERS.search(line)
            yield where, record


def _tables(name: str, where: str, record: dict[str, Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    tables = []
    for key in ("expert_load", "p2l_map"):
        if key not in record:
            raise InputError(f'{name}, {where}: has no "{key}".')
        table = numbers(f"{name}, {where}", key, record[key], checked=record["checked"])
        if table.ndim != 2 or table.dtype.kind not in "iuf":
            raise InputError(
                f"{name}, {where}: {key} is {list(table.shape)}, not [layers, slots] of numbers."
            )
        tables.append(table)
    return tables[0], tables[1]
