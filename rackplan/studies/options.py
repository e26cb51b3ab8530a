"""Options of study points: those of the request of each kind of study, their values and ranges to draw from."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from rackplan.requests import (
    Count,
    LayoutRequest,
    Number,
    PlanRequest,
    Request,
    SweepRequest,
    expected,
    options_of,
)
from topology.base.errors import InputError
from topology.base.reading import nearest, shown
from topology.base.schema import Spec, keyword_spec, validated

Kind = Literal["score", "sweep", "plan"]
KINDS: Mapping[Kind, type[Request]] = {
    "score": LayoutRequest,
    "sweep": SweepRequest,
    "plan": PlanRequest,
}
"""Request type of points by kind."""
FIGURE = "set."
"""Prefix of options that change one figure of the cluster: ``set.gpu.hbm_bytes_per_s``."""
OF_GPU = ("price", "power")
"""Mappings by GPU whose entries may be separate options: ``price.gb200``."""
NAMED_FILES = ("model", "cluster", "prefill_cluster", "loads", "routing")
"""Options that may name files."""
OWN: Mapping[str, Any] = {"domain_gpus": Count, "price_more": Number}
"""Options that only studies have: GPUs per scale-up domain, and extra USD per hour and GPU."""
Value = str | int | float | bool | list[Any] | dict[str, Any] | None
"""Value of an option in YAML; None: not given."""
_QUANTITY = re.compile(r"((?:[0-9]++(?:\.[0-9]++)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?)\s*+(\S.*)")


@cache
def fields_of(kind: Kind) -> Mapping[str, str]:
    """Return the fields of a kind's request by their names in studies: flag names, with the unit for seconds."""
    fields: dict[str, str] = {}
    for name, (option, _) in options_of(KINDS[kind]).items():
        if not option.python and name != "tok_s_user":
            flag = option.flag(name).removeprefix("--").replace("-", "_")
            fields[name if name == f"{flag}_s" else flag] = name
    return fields


def require_value(kind: Kind, name: str, value: object, where: str) -> Value:
    """Return a valid value of an option.

    Raises
    ------
    InputError
        If this kind of study has no such option, or the value is of another type.
    """
    known = [*fields_of(kind), *OWN]
    group, _, gpu = name.partition(".")
    if name.startswith(FIGURE):
        if name.count(".") < 2 or not all(name.split(".")):
            raise InputError(f"{where}: expected {FIGURE}PART.FIGURE, like {FIGURE}gpu.hbm_bytes_per_s.")
        if isinstance(value, str):
            return value
        name, where = "price_more", f"{where}: expected a quantity, a factor like 2x, or a number"
    elif group in OF_GPU and gpu:
        name = "price_more"
    elif name not in known:
        others = [other for other in KINDS if name in fields_of(other)]
        hint = f"it belongs to kind {' or '.join(others)}." if others else nearest(name, known)
        raise InputError(f"{where}: a study of kind {kind} has no option `{name[:60]}`; {hint}")
    elif value is None:
        return None
    elif name in OF_GPU and isinstance(value, dict):
        for figure in value.values():
            _read(kind, "price_more", figure, where)
    return _read(kind, name, value, where)


def _read(kind: Kind, name: str, value: Any, where: str) -> Value:
    """Return a value as written; lengths, limits and shares given as text are parsed."""
    try:
        read: Value = _adapter(kind, name).validate_python(value)
    except ValidationError as error:
        text = expected(error.errors(include_url=False)[0])
        raise InputError(f"{where}: {shown(value)}: {text}") from None
    parsed = isinstance(value, str) and not isinstance(read, str | list | tuple | dict)
    return read if parsed or read == "none" else value


@cache
def _adapter(kind: Kind, name: str) -> TypeAdapter[Any]:
    return TypeAdapter(OWN[name] if name in OWN else options_of(KINDS[kind])[fields_of(kind)[name]][1])


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
    def ends(self) -> list[Value]:
        """Lowest and highest value, or all choices."""
        return list(self.choices) if self.choices else [self.value(self.low), self.value(self.high)]

    def draw(self, seed: int, name: str, number: int) -> Value:
        """Return the value of draw ``number``."""
        digest = hashlib.sha256(f"{seed}|{name}|{number}".encode()).digest()
        return self.at(int.from_bytes(digest[:7]) / 2.0**56)

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
