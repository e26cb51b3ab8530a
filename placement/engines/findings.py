"""Findings on plan files by the engine's reaction, and checks shared by all engines."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from placement.arrays import Ints
from placement.engines.mapping import ExpertMapping, ModelFacts
from topology.base.errors import InputError
from topology.base.units import plural

Kind = Literal["refused", "wrong", "note"]
"""``refused``: the engine does not start with it. ``wrong``: it starts, and does something else. ``note``: fine."""

BAD: tuple[Kind, ...] = ("refused", "wrong")
_SHOWN_CHARACTERS = 24
"""Characters of a value that a message repeats."""


def and_more(count: int, words: str = "") -> str:
    """Return how many more there are than the first of ``count``; nothing where it is the only one."""
    return f" (and {count - 1:,} more{words})" if count > 1 else ""


@dataclass(frozen=True)
class Finding:
    """One finding on a plan file: place, problem, and whether the engine rejects or misreads it."""

    where: str
    what: str
    kind: Kind


class NoRowsError(Exception):
    """A file has no rows of expert ids that can be looked at: why not, unless that was found before."""

    def __init__(self, where: str = "", problem: str = "", kind: Kind = "refused") -> None:
        super().__init__(problem)
        self.findings = (Finding(where, problem, kind),) if where else ()


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
    """Reaction of an engine to a mistake."""

    kind: Kind
    words: str

    def of(self, where: str, *problems: str) -> list[Finding]:
        """Return one finding for all of ``what``: the first, and how many more; none where nothing is wrong."""
        if not problems:
            return []
        return [Finding(where, f"{problems[0]}{and_more(len(problems), ' such')}: {self.words}", self.kind)]


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


@dataclass(frozen=True)
class Rows:
    """Rows of expert ids as a file has them, and their places; ``moe`` are those of MoE layers (None: all)."""

    rows: Sequence[object]
    places: Sequence[str]
    moe: Sequence[int] | None = None


def inspect_rows(table_rows: Rows, rules: RowRules, facts: ModelFacts, ranks: int) -> Inspected:
    """Check rows of expert ids, one a layer, dense ones too as engines do. No mapping where a finding is bad."""
    rows, places = table_rows.rows, table_rows.places
    for place, row in zip(places, rows, strict=True):
        if row_findings := _row(place, row, places[0], rows[0], rules, facts):
            return Inspected(None, tuple(row_findings))
    table = np.array(rows, dtype=np.int64)
    findings = [*_values(table, places, rules, facts), *_sizes(table, rules, facts, ranks)]
    mapping = None
    if not any(finding.kind in BAD for finding in findings):
        moe_table = table if table_rows.moe is None else table[list(table_rows.moe)]
        mapping = ExpertMapping(moe_table, facts.moe_layers, facts.experts, ranks)
        if rules.twice is not None and (doubled := mapping.doubled()):
            layer, rank, _ = doubled[0]
            findings += rules.twice.of(
                f"layer {layer}, rank {rank}", *(f"expert {row[2]} twice" for row in doubled)
            )
            mapping = None if rules.twice.kind in BAD else mapping
    return Inspected(mapping, tuple(findings))


def _row(
    place: str, row: object, head_place: str, head: object, rules: RowRules, facts: ModelFacts
) -> list[Finding]:
    """What is wrong with one row: looked at before NumPy sees it, which takes no more than 64 bits."""
    if not isinstance(row, list) or not row:
        content = "an empty list" if row == [] else f"{_short(row)}, not a list"
        return rules.length.of(place, f"{content} of expert ids")
    odd = next((value for value in row if type(value) is not int), None)
    if odd is not None or None in row:
        return _odd(place, odd, rules)
    if max(row) >= facts.experts:
        return rules.high.of(place, f"expert {_short(max(row))}, the model has 0 to {facts.experts - 1}")
    if min(row) < 0:
        return rules.negative.of(place, f"expert {_short(min(row))}")
    if isinstance(head, list) and len(row) != len(head):
        return rules.length.of(place, f"{len(row)} slots, {head_place} has {len(head)}")
    return []


def _odd(place: str, value: object, rules: RowRules) -> list[Finding]:
    """What happens to a value that is no whole number."""
    text = f"{_short(value)} is not a whole number"
    if isinstance(value, bool):
        return [Finding(place, f"{text}, and may be read as {value:d}", "wrong")]
    if rules.converts and (number := whole_of(value)) is not None:
        return [Finding(place, f"{text}, and is read as {_short(number)}", "wrong")]
    return rules.not_whole.of(place, text)


def whole_of(value: object) -> int | None:
    """Return the whole number that Pydantic reads ``value`` as; None where it refuses."""
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and re.fullmatch(r"[+-]?[0-9]{1,18}", value):
        return int(value)
    return None


def _values(table: Ints, places: Sequence[str], rules: RowRules, facts: ModelFacts) -> list[Finding]:
    held = np.zeros((len(table), facts.experts), dtype=bool)
    np.put_along_axis(held, table, values=True, axis=1)
    # whether nothing but the last experts of a row is absent: those held come first
    trailing = held.sum(axis=1) == facts.experts - np.flip(held, axis=1).argmax(axis=1)
    flaws = []
    for chosen, outcome in ((~trailing, rules.absent), (trailing, rules.absent_last or rules.absent)):
        cases = np.argwhere(~held & chosen[:, None]).tolist()
        if cases:
            flaws += outcome.of(places[cases[0][0]], *(f"expert {expert} has no copy" for _, expert in cases))
    return flaws


def _sizes(table: Ints, rules: RowRules, facts: ModelFacts, ranks: int) -> list[Finding]:
    slots = table.shape[1]
    findings = []
    if slots < facts.experts:
        findings += rules.fewer.of("slots", f"{plural(slots, 'slot')} for {plural(facts.experts, 'expert')}")
    if slots % ranks:
        findings += rules.divisible.of("slots", f"{slots} slots do not divide evenly over {ranks} GPUs")
    return findings


def require_sound(path: Path, engine: str, inspected: Inspected) -> ExpertMapping:
    """Return the mapping of a file.

    Raises
    ------
    InputError
        If the file has a bad finding: with the first, and how many more.
    """
    blocking = [finding for finding in inspected.findings if finding.kind in BAD]
    if blocking or inspected.mapping is None:
        raise InputError(
            first_of(
                blocking,
                f"{path}: not a valid placement file of {engine}",
                "; see rackplan import-plan --check",
            )
        )
    return inspected.mapping


def first_of(blocking: Sequence[Finding], words: str, hint: str = "") -> str:
    """Return ``words`` with the first finding and the number of further ones."""
    text = f"{words}: {blocking[0].where}: {blocking[0].what}{and_more(len(blocking), hint)}"
    return text if text.endswith("?") else f"{text}."


def _short(value: object) -> str:
    """A value as a message repeats it; numbers beyond 64 bits by their size."""
    if isinstance(value, list | dict):
        return f"a {'list' if isinstance(value, list) else 'mapping'}"
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 1 << 63:
        return f"a number of {value.bit_length()} bits"
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."
