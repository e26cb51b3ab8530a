"""Ranges for sampling: equal seed, name and number give equal values on every machine."""

from __future__ import annotations

import hashlib
import math
import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from rackplan.studies.options import FIGURE, Kind, Value, require_value
from topology.base.errors import InputError
from topology.base.reading import shown
from topology.base.schema import Spec, keyword_spec, validated

_QUANTITY = re.compile(r"((?:[0-9]++(?:\.[0-9]++)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?)\s*+(\S.*)")


@keyword_spec
class _Values(Spec):
    """Values to choose from."""

    values: Annotated[list[Any], Field(min_length=1)]


@keyword_spec
class _Ends(Spec):
    """The ends of a range and its scale."""

    low: Any
    high: Any
    scale: Literal["linear", "log"] = "linear"


@dataclass(frozen=True)
class Range:
    """Range of an option: numbers from ``low`` to ``high``, or one of ``choices``.

    Attributes
    ----------
    unit:
        What stands after the number: ``x`` of a factor, `` TB/s``; empty for a mere number.
    whole:
        Whether only whole numbers are meant.
    log:
        Whether numbers are even in their logarithm.
    """

    low: float = 0.0
    high: float = 0.0
    unit: str = ""
    whole: bool = False
    log: bool = False
    choices: tuple[Value, ...] = ()

    @property
    def factor(self) -> bool:
        """Whether values are multiples of a figure."""
        return self.unit.strip() in ("x", "X")

    @property
    def ends(self) -> list[Value]:
        """Lowest and highest value, or all choices."""
        return list(self.choices) if self.choices else [self.value(self.low), self.value(self.high)]

    def draw(self, seed: int, name: str, number: int) -> Value:
        """Return the value of draw ``number``."""
        return self.at(_uniform(f"{seed}|{name}|{number}"))

    def at(self, part: float) -> Value:
        """Return the value at quantile ``part`` (0 to 1) of the range."""
        if self.choices:
            return self.choices[min(int(part * len(self.choices)), len(self.choices) - 1)]
        if self.log:
            return self.value(
                math.exp(math.log(self.low) + part * (math.log(self.high) - math.log(self.low)))
            )
        if self.whole:
            return self.value(math.floor(self.low + part * (self.high - self.low + 1)))
        return self.value(self.low + part * (self.high - self.low))

    def value(self, number: float) -> Value:
        """Return a number in the option's form, rounded to six digits."""
        if self.whole:
            return int(min(max(round(number), self.low), self.high))
        rounded = min(max(float(f"{number:.6g}"), self.low), self.high)
        return f"{rounded:.6g}{self.unit}" if self.unit else rounded


def range_of(kind: Kind, name: str, value: object, where: str) -> Range:
    """Read ``[low, high]``, ``{low, high, scale: log}``, a list of values to choose from, or ``{values: [...]}``.

    Raises
    ------
    InputError
        If it is none of them, or a value is not one of the option's.
    """
    if isinstance(value, dict) and "values" in value:
        values = validated(_Values, value, where).values
        return Range(choices=tuple(require_value(kind, name, one, where) for one in values))
    if isinstance(value, dict):
        given = validated(_Ends, value, where)
        ends, log = [given.low, given.high], given.scale == "log"
    elif isinstance(value, list) and value:
        ends, log = value, False
    else:
        raise InputError(f"{where}: {shown(value)} must be [low, high] or a list of choices.")
    checked = [require_value(kind, name, one, where) for one in ends]
    numbers = [_number(one, figure=name.startswith(FIGURE)) for one in checked]
    if len(checked) != 2 or None in numbers or (isinstance(value, list) and numbers[0] == numbers[1]):
        if isinstance(value, dict):
            raise InputError(f"{where}: low and high must be numbers with the same unit.")
        return Range(choices=tuple(checked))
    (low, unit), (high, other) = (found for found in numbers if found is not None)
    if unit != other:
        raise InputError(f"{where}: {shown(ends)}: both ends need the same unit.")
    if low >= high or (log and low <= 0):
        raise InputError(
            f"{where}: {shown(ends)}: the first must be less than the second" + ", and above 0." * log
        )
    whole = not unit and all(isinstance(one, int) for one in checked)
    return Range(low, high, unit, whole, log)


def _number(value: Value, *, figure: bool) -> tuple[float, str] | None:
    """Return a number and its unit (for figures), None if it is not a number."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    if not isinstance(value, str):
        return float(value), ""
    if not figure or (found := _QUANTITY.fullmatch(value.strip())) is None:
        return None
    unit = found[2].strip()
    return float(found[1]), unit if unit in ("x", "X") else f" {unit}"


def _uniform(text: str) -> float:
    """Return a pseudo-random number in [0, 1) derived from text."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7]) / 2.0**56
