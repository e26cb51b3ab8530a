"""Options of study points: those of the request of each kind of study."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from rackplan.requests import (
    Count,
    FleetRequest,
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

Kind = Literal["score", "sweep", "plan", "fleet"]
KINDS: Mapping[Kind, type[Request]] = {
    "score": LayoutRequest,
    "sweep": SweepRequest,
    "plan": PlanRequest,
    "fleet": FleetRequest,
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


@cache
def fields_of(kind: Kind) -> Mapping[str, str]:
    """Return the fields of a kind's request by their names in studies: flag names, with the unit for seconds."""
    found: dict[str, str] = {}
    for name, (option, _) in options_of(KINDS[kind]).items():
        if not option.python and name != "tok_s_user":
            flag = option.flag(name).removeprefix("--").partition("/")[0].replace("-", "_")
            found[name if name == f"{flag}_s" else flag] = name
    return found


@cache
def _adapter(kind: Kind, name: str) -> TypeAdapter[Any]:
    return TypeAdapter(OWN[name] if name in OWN else options_of(KINDS[kind])[fields_of(kind)[name]][1])


def names_of(kind: Kind) -> list[str]:
    """Return the options of a kind of study, except those for single figures."""
    return [*fields_of(kind), *OWN]


def require_value(kind: Kind, name: str, value: object, where: str) -> Value:
    """Return a valid value of an option.

    Raises
    ------
    InputError
        If this kind of study has no such option, or the value is of another type.
    """
    if name.startswith(FIGURE):
        if name.count(".") < 2 or not all(name.split(".")):
            raise InputError(f"{where}: expected {FIGURE}PART.FIGURE, like {FIGURE}gpu.hbm_bytes_per_s.")
        if isinstance(value, str):
            return value
        return _checked(
            _adapter(kind, "price_more"),
            value,
            f"{where}: expected a quantity, a factor like 2x, or a number",
        )
    mapping, _, gpu = name.partition(".")
    if mapping in OF_GPU and gpu:
        return _checked(_adapter(kind, "price_more"), value, where)
    if name not in names_of(kind):
        others = [other for other in KINDS if name in names_of(other)]
        hint = f"it belongs to kind {' or '.join(others)}." if others else nearest(name, names_of(kind))
        raise InputError(f"{where}: a study of kind {kind} has no option `{name[:60]}`; {hint}")
    if value is None:
        return None
    if isinstance(value, dict) and name in OF_GPU:
        for one in value.values():
            _checked(_adapter(kind, "price_more"), one, where)
    return _checked(_adapter(kind, name), value, where)


def _checked(adapter: TypeAdapter[Any], value: Any, where: str) -> Value:
    """Return a value as written; lengths, limits and shares given as text are parsed."""
    try:
        found: Value = adapter.validate_python(value)
    except ValidationError as error:
        text = expected(error.errors(include_url=False)[0])
        raise InputError(f"{where}: {shown(value)}: {text}") from None
    read = isinstance(value, str) and not isinstance(found, str | list | tuple | dict)
    return found if read or found == "none" else value
