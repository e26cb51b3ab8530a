"""Counts in text: SGLang's JSON, vLLM's lines of load statistics (a pull request), CSV tables."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cost.experts.traces.counts import TokenCounts, Wanted, experts_of_map, of_array, to_experts
from cost.experts.traces.windows import MAX_CELLS
from topology.base.errors import InputError
from topology.base.reading import parse_json
from topology.base.table import Table

MAX_BYTES = 100 * 2**20
"""Of one document, or of a line of JSON: parsed, its numbers take about nine times as much memory."""
_STATS = "eplb_load_stats"
_COLUMNS = ("scenario", "layer", "expert", "tokens")


def parse_document(path: Path, instead: str) -> Any:
    """Parse a JSON file of at most 100 MiB; ``instead`` says what to give of more."""
    _require_short(path, instead)
    return _parse(path.read_bytes(), str(path))


def parse_lines(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield the number and the value of each line of JSON that is not blank."""
    with path.open("rb") as file:
        number = 0
        while line := file.readline(MAX_BYTES + 1):
            number += 1
            if len(line) > MAX_BYTES:
                raise InputError(f"{path}, line {number}: longer than 100 MiB; is it JSON lines?")
            if line.strip():
                yield f"line {number}", _parse(line, f"{path}, line {number}")


def _require_short(path: Path, instead: str) -> None:
    if (size := path.stat().st_size) > MAX_BYTES:
        raise InputError(
            f"{path}: {size:,} bytes are too large for one document; above 100 MiB give {instead}."
        )


def _parse(text: bytes, where: str) -> Any:
    try:
        decoded = text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{where}: not valid JSON (byte {error.start} is not UTF-8).") from None
    return parse_json(decoded, where)


def numbers(path: str, label: str, value: object) -> NDArray[Any]:
    """Return nested lists of numbers as an array."""
    _only_numbers(path, label, value)
    try:
        values = np.asarray(value)
    except (ValueError, OverflowError):
        raise InputError(f"{path}: {label} has rows of unequal length.") from None
    if values.dtype == object:  # whole numbers beyond 64 bits
        raise InputError(f"{path}: {label} holds numbers too large for a count of tokens.")
    return values


def _only_numbers(path: str, label: str, value: object) -> None:
    """Reject what NumPy would turn into a number on its own: true, null, text."""
    for inner in value if isinstance(value, list) else [value]:
        if isinstance(inner, list):
            _only_numbers(path, label, inner)
        elif isinstance(inner, bool) or not isinstance(inner, int | float):
            raise InputError(f"{path}: {label} holds {json.dumps(inner)[:40]}, which is not a number.")


def read_json(path: Path, model: Wanted | None) -> TokenCounts:
    """Read SGLang's ``{"logical_count": [[...]]}``."""
    data = parse_document(
        path, "the .pt that SGLang dumps, or an .npy of the same counts, which are read in pieces"
    )
    if not isinstance(data, dict) or "logical_count" not in data:
        raise InputError(
            f'{path}: has no key "logical_count", as SGLang writes it: {{"logical_count": [[...]]}}.'
        )
    values = numbers(str(path), "logical_count", data["logical_count"])
    return of_array(str(path), "SGLang JSON", values, model)


def read_vllm_lines(path: Path, model: Wanted | None) -> TokenCounts:
    """Open JSON lines; each line of type ``eplb_load_stats`` is a window, its rows are the MoE layers in order."""
    skipped: Counter[str] = Counter()
    shape, experts = None, 0
    labels: list[str] = []
    for where, step, load, slots in _stats(path, skipped):
        experts = max(experts, experts_of_map(where, slots, model))
        if shape not in {None, load.shape}:
            raise InputError(f"{where}: loads {list(load.shape)}, and {list(shape or ())} before.")
        shape = load.shape
        labels.append(f"step {step}" if type(step) is int else str(len(labels)))
    if shape is None:
        kinds = ", ".join(f"{kind[:40]!r}" for kind in list(skipped)[:8]) or "no lines"
        raise InputError(f"{path}: no line of type {_STATS!r} in it ({kinds}); set expert_load_stats_path.")

    def pieces() -> Iterator[NDArray[np.float64]]:
        for where, _, load, slots in _stats(path, Counter()):
            yield to_experts(where, load, slots, experts)[None]

    notes = tuple(f"{count} lines of type {kind[:40]} skipped" for kind, count in list(skipped.items())[:8])
    kind, names = "vLLM load statistics", tuple(labels)
    return TokenCounts(str(path), kind, len(labels), shape[0], experts, pieces, names=names, notes=notes)


def _stats(path: Path, skipped: Counter[str]) -> Iterator[tuple[str, object, NDArray[Any], NDArray[Any]]]:
    """Yield place, step, loads of slots and map of slots of each line that holds loads; count types of others."""
    for line, record in parse_lines(path):
        where = f"{path}, {line}"
        if not isinstance(record, dict) or not isinstance(record.get("record_type"), str):
            raise InputError(f'{where}: not an object with a "record_type", as vLLM writes.')
        if record["record_type"] != _STATS:
            skipped[record["record_type"]] += 1
            continue
        if record.get("version", 1) != 1:
            raise InputError(f"{where}: version {record['version']!r:.40}; only 1 is known.")
        tables = []
        for key in ("expert_load", "p2l_map"):
            if key not in record:
                raise InputError(f'{where}: has no "{key}".')
            table = numbers(where, key, record[key])
            if table.ndim != 2 or table.dtype.kind not in "iuf":
                raise InputError(f"{where}: {key} is {list(table.shape)}, not [layers, slots] of numbers.")
            tables.append(table)
        yield where, record.get("step"), tables[0], tables[1]


def read_tables(
    files: Sequence[Path], columns: Sequence[str], model: Wanted | None
) -> tuple[tuple[str, ...], tuple[int, ...], NDArray[np.float64]]:
    """Return scenarios, layers and counts ``[scenarios, layers, experts]`` of CSV files, NaN where a cell is absent.

    ``columns`` are the names of those of layer, expert and count; before them that of scenarios, or each file is one.
    Without a model, experts are those up to the highest that is there.
    """
    *labels, of_layer, of_expert, of_count = columns
    cells: dict[tuple[str, int, int], float] = {}
    for path in files:
        _require_short(path, "an .npy, which is read in pieces")
        table = Table.read(path)
        for column in columns:
            if table.header.count(column) > 1:
                raise InputError(f"{path}: duplicate column {column}; give {', '.join(columns)} once each.")
        for row in table.rows(columns):
            scenario = row.text(labels[0]) if labels else str(path)
            key = scenario, row.count(of_layer, None), row.count(of_expert, None)
            if model and key[2] >= model.experts:
                row.fail(of_expert, f"expert {key[2]}, but the model has 0..{model.experts - 1}.")
            if key in cells:
                row.fail(of_expert, f"duplicate cell: scenario {key[0]!r}, layer {key[1]}, expert {key[2]}.")
            cells[key] = row.number(of_count, None, most=math.inf)
    if not cells:
        raise InputError(f"{files[0]}: has a header but no loads.")
    scenarios = tuple(dict.fromkeys(scenario for scenario, _, _ in cells))
    layers = tuple(sorted({layer for _, layer, _ in cells}))
    experts = model.experts if model else max(expert for _, _, expert in cells) + 1
    shape = len(scenarios), len(layers), experts
    if math.prod(shape) > MAX_CELLS:  # before room is made for the highest expert named
        raise InputError(
            f"{files[0]}: {list(shape)} scenarios, layers and experts are too many; are these their ids?"
        )
    counts = np.full(shape, np.nan)
    at, row_of = ({name: i for i, name in enumerate(names)} for names in (scenarios, layers))
    for (scenario, layer, expert), count in cells.items():
        counts[at[scenario], row_of[layer], expert] = count
    return scenarios, layers, counts


def read_csv(path: Path, model: Wanted | None) -> TokenCounts:
    """Read a table with the columns scenario, layer, expert, tokens; a scenario is a window, in order of appearance.

    Every cell must be there.
    """
    scenarios, layers, counts = read_tables([path], _COLUMNS, model)
    for window, row, expert in np.argwhere(np.isnan(counts)):
        where = f"scenario {scenarios[window]!r}, layer {layers[row]}, expert {expert}"
        raise InputError(f"{path}: {where} is absent; write 0 where no token went.")
    counted = of_array(str(path), "CSV table", counts, model)
    return replace(counted, layer_ids=layers, names=scenarios)
