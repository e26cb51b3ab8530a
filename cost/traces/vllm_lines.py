"""vLLM's JSON lines of load statistics (an open pull request): counts of slots, each with its map."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cost.traces.json_file import numbers, parse
from cost.traces.recording import Recording, Wanted, experts_of_map, to_experts
from topology.errors import InputError

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
