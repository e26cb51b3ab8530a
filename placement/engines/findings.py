"""What is wrong with a plan file, by what an engine does about it; the checks that all engines' rows share."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from placement.arrays import Ints
from placement.engines.mapping import ExpertMapping, ModelFacts
from topology.errors import InputError

Kind = Literal["refused", "wrong", "note"]
"""``refused``: the engine does not start with it. ``wrong``: it starts, and does something else. ``note``: fine."""

BAD: tuple[Kind, ...] = ("refused", "wrong")
_SHOWN = 24
"""Characters of a value that a message repeats."""


@dataclass(frozen=True)
class Finding:
    """One thing about a plan file: where, what, and whether the engine refuses it or goes wrong."""

    where: str
    what: str
    kind: Kind


@dataclass(frozen=True, eq=False)
class Inspected:
    """A file that was read: its mapping (None where it has no sound one), findings, and what surrounds it.

    ``around`` are findings that are not the file's own fault: the engine ignores it for this model or EP size.
    """

    mapping: ExpertMapping | None
    findings: tuple[Finding, ...] = ()
    around: tuple[Finding, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """What an engine does about a mistake."""

    kind: Kind
    words: str


@dataclass(frozen=True)
class RowRules:
    """What an engine does about each mistake that rows of expert ids can have; ``twice`` None: nothing is wrong."""

    not_whole: Outcome
    length: Outcome
    high: Outcome
    negative: Outcome
    absent: Outcome
    divisible: Outcome
    fewer: Outcome
    twice: Outcome | None = None
    absent_last: Outcome | None = None
    """Where only the last experts of a layer are absent; None: like any other."""
    converts: bool = False
    """Whether text and floats that are whole numbers are read as those."""


def inspect_rows(
    rows: Sequence[object],
    places: Sequence[str],
    rules: RowRules,
    facts: ModelFacts,
    ranks: int,
    *,
    moe: Sequence[int] | None = None,
) -> Inspected:
    """Check rows of expert ids, one a layer; ``places`` name them.

    ``moe``: the rows that belong to MoE layers, where there are others too; every row is checked alike, as engines
    look at all of them. The mapping is None where a finding is bad.
    """
    found: list[Finding] = []
    table = _table(rows, places, rules, facts, found)
    if table is not None:
        found += _values(table, places, rules, facts)
        found += _sizes(table, rules, facts, ranks)
    if table is None or any(finding.kind in BAD for finding in found):
        return Inspected(None, tuple(found))
    kept = table if moe is None else table[list(moe)]
    mapping = ExpertMapping(kept, facts.moe_layers, facts.experts, ranks)
    if rules.twice is not None:
        found += _summed(
            [
                f"layer {layer}, rank {rank}: expert {expert} twice"
                for layer, rank, expert in mapping.doubled()
            ],
            rules.twice,
        )
    return Inspected(None if any(f.kind in BAD for f in found) else mapping, tuple(found))


def _table(
    rows: Sequence[object],
    places: Sequence[str],
    rules: RowRules,
    facts: ModelFacts,
    found: list[Finding],
) -> Ints | None:
    """Return the rows as one array, int64 ``[rows, slots]``; None, with a finding, where they are none."""
    width = len(rows[0]) if isinstance(rows[0], list) else 0
    for row, place in zip(rows, places, strict=True):
        wrong = _row(row, rules, facts) or _width(row, width, places[0], rules)
        if wrong is not None:
            found.append(Finding(place, *wrong))
            return None
    return np.array(rows, dtype=np.int64)


def _row(row: object, rules: RowRules, facts: ModelFacts) -> tuple[str, Kind] | None:
    """What is wrong with one row: looked at before NumPy sees it, which takes no more than 64 bits."""
    if not isinstance(row, list) or not row:
        what = "an empty list" if row == [] else f"{_short(row)}, not a list"
        return f"{what} of expert ids: {rules.length.words}", rules.length.kind
    odd = next((value for value in row if type(value) is not int), None)
    if odd is not None or None in row:
        return _odd(odd, rules)
    if max(row) >= facts.experts:
        text = f"expert {_short(max(row))}, the model has 0 to {facts.experts - 1}"
        return f"{text}: {rules.high.words}", rules.high.kind
    if min(row) < 0:
        return f"expert {_short(min(row))}: {rules.negative.words}", rules.negative.kind
    return None


def _odd(value: object, rules: RowRules) -> tuple[str, Kind]:
    """What happens to a value that is no whole number."""
    if isinstance(value, bool):
        return f"{value} is not a whole number, and may be read as {value:d}", "wrong"
    if rules.converts and (number := whole_of(value)) is not None:
        return f"{_short(value)} is not a whole number, and is read as {_short(number)}", "wrong"
    return f"{_short(value)} is not a whole number: {rules.not_whole.words}", rules.not_whole.kind


def whole_of(value: object) -> int | None:
    """Return the whole number that Pydantic reads ``value`` as; None where it refuses."""
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and re.fullmatch(r"[+-]?[0-9]{1,18}", value):
        return int(value)
    return None


def _width(row: object, width: int, first: str, rules: RowRules) -> tuple[str, Kind] | None:
    if isinstance(row, list) and len(row) != width:
        return f"{len(row)} slots, {first} has {width}: {rules.length.words}", rules.length.kind
    return None


def _values(table: Ints, places: Sequence[str], rules: RowRules, facts: ModelFacts) -> list[Finding]:
    held = np.zeros((len(table), facts.experts), dtype=bool)
    np.put_along_axis(held, table, values=True, axis=1)
    # whether nothing but the last experts of a row is absent: those held come first
    last = held.sum(axis=1) == facts.experts - np.flip(held, axis=1).argmax(axis=1)
    found = []
    for chosen, outcome in ((~last, rules.absent), (last, rules.absent_last or rules.absent)):
        cases = np.argwhere(~held & chosen[:, None]).tolist()
        found += _summed([f"{places[row]}: expert {expert} has no copy" for row, expert in cases], outcome)
    return found


def _sizes(table: Ints, rules: RowRules, facts: ModelFacts, ranks: int) -> list[Finding]:
    slots = table.shape[1]
    found = []
    if slots < facts.experts:
        text = f"{slots} slots for {facts.experts} experts: {rules.fewer.words}"
        found.append(Finding("slots", text, rules.fewer.kind))
    if slots % ranks:
        text = f"{slots} slots on {ranks} GPUs do not divide: {rules.divisible.words}"
        found.append(Finding("slots", text, rules.divisible.kind))
    return found


def _summed(cases: list[str], outcome: Outcome) -> list[Finding]:
    """One finding for all ``cases`` ("place: what"): the first, and how many more."""
    if not cases:
        return []
    where, what = cases[0].split(": ", 1)
    more = f" (and {len(cases) - 1:,} more such)" if len(cases) > 1 else ""
    return [Finding(where, f"{what}{more}: {outcome.words}", outcome.kind)]


def require_sound(path: Path, engine: str, inspected: Inspected) -> ExpertMapping:
    """Return the mapping of a file.

    Raises
    ------
    InputError
        If the file has a bad finding: with the first, and how many more.
    """
    bad = [finding for finding in inspected.findings if finding.kind in BAD]
    if bad or inspected.mapping is None:
        first = bad[0]
        more = f" (and {len(bad) - 1} more; see rackplan check)" if len(bad) > 1 else ""
        text = f"{path}: not a sound plan of {engine}: {first.where}: {first.what}{more}"
        raise InputError(text if text.endswith("?") else f"{text}.")
    return inspected.mapping


def _short(value: object) -> str:
    """A value as a message repeats it; numbers beyond 64 bits by their size."""
    if isinstance(value, list | dict):
        return f"a {'list' if isinstance(value, list) else 'mapping'}"
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 1 << 63:
        return f"a number of {value.bit_length()} bits"
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
