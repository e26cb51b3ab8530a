"""Options that the points of a study may have: which kinds of study know each, and what a value must be."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from topology.base.errors import InputError
from topology.base.reading import nearest, shown
from topology.base.units import parse_length

Kind = Literal["score", "sweep", "plan", "fleet"]
KINDS: tuple[Kind, ...] = ("score", "sweep", "plan", "fleet")
FIGURE = "set."
"""How the name of an option begins that changes one figure of the cluster: ``set.gpu.hbm_bytes_per_s``."""
OF_GPU = ("price", "power")
"""Mappings by GPU, of which one entry may be an option of its own: ``price.gb200``."""
NAMED_FILES = ("model", "cluster", "prefill_cluster", "loads", "routing")
"""Options whose texts may be names of files."""
Value = str | int | float | bool | list[Any] | dict[str, Any] | None
"""What YAML has for an option; None: as if it were not given."""

_MOST_WHOLE = 10**15
_WORDS = {
    "text": "a text",
    "whole": "a whole number (of at most 15 digits)",
    "number": "a number",
    "flag": "true or false",
}


@dataclass(frozen=True)
class Option:
    """One option.

    Attributes
    ----------
    kinds:
        Kinds of study that know it.
    form:
        What a value is: ``text``, ``whole`` (number), ``length`` (8192 or 8k), ``number``, ``flag``,
        ``limit`` (a number, or ``none``), ``texts`` (a text or a list of them), ``shares`` (a text or
        a mapping to numbers), ``figures`` (a mapping to numbers), ``copies`` (a whole number, or ``auto``).
    """

    kinds: tuple[Kind, ...]
    form: str


def _table() -> dict[str, Option]:
    every = KINDS
    rows: list[tuple[str, str, tuple[Kind, ...]]] = [
        ("cluster", "text", every),
        ("domain_gpus", "whole", every),
        ("weights kv_dtype sparse_attention engine price_basis", "text", every),
        ("draft_tokens", "whole", every),
        ("accept_length", "number", every),
        ("overlap", "flag", every),
        ("set", "texts", every),
        ("price power", "figures", every),
        ("price_more", "number", every),
        ("context", "length", every),
        ("tpot_ms ttft_ms", "limit", ("sweep", "plan", "fleet")),
        ("tpot_ms", "limit", every),
        ("model", "shares", ("fleet",)),
        ("model", "text", ("score", "sweep", "plan")),
        ("phase", "text", ("score", "sweep", "plan")),
        ("batch", "whole", ("score", "plan")),
        ("ep tp stages", "whole", ("score", "plan")),
        ("redundant", "whole", ("score",)),
        ("redundant", "copies", ("plan",)),
        ("prefix_hit", "number", ("sweep",)),
        ("prefill_cluster", "text", ("sweep",)),
        ("loads routing", "texts", ("plan",)),
        ("goal", "text", ("plan", "fleet")),
        ("spread objective split", "text", ("plan",)),
        ("tolerance", "number", ("plan",)),
        ("seed", "whole", ("plan", "fleet")),
        ("time_limit_s", "number", ("plan", "fleet")),
        ("isl osl", "length", ("sweep", "fleet")),
        ("spares", "whole", ("fleet",)),
        ("tok_s utilization", "number", ("fleet",)),
    ]
    found: dict[str, Option] = {}
    for names, form, kinds in rows:
        for name in names.split():
            for kind in kinds:
                found[f"{kind} {name}"] = Option(kinds, form)
    return found


_OPTIONS: Mapping[str, Option] = _table()


def names_of(kind: Kind) -> list[str]:
    """Return the options that a kind of study knows, those of one figure apart."""
    return [name.partition(" ")[2] for name in _OPTIONS if name.startswith(f"{kind} ")]


def require_value(kind: Kind, name: str, value: object, where: str) -> Value:
    """Return a value of an option if it can be one.

    Raises
    ------
    InputError
        If this kind of study has no such option, or the value is of another type.
    """
    if name.startswith(FIGURE):
        if name.count(".") < 2 or not all(name.split(".")):
            raise InputError(f"{where}: expected {FIGURE}PART.FIGURE, like {FIGURE}gpu.hbm_bytes_per_s.")
        if not isinstance(value, str | int | float) or not (isinstance(value, str) or _number(value)):
            raise _wrong(where, value, "a quantity, a factor like 2x, or a number in the SI unit")
        return value
    mapping, _, gpu = name.partition(".")
    if mapping in OF_GPU and gpu:
        return _checked("number", value, where)
    option = _OPTIONS.get(f"{kind} {name}")
    if option is None:
        others = [other for other in KINDS if f"{other} {name}" in _OPTIONS]
        hint = f"one of kind {' or '.join(others)} has." if others else nearest(name, names_of(kind))
        raise InputError(f"{where}: a study of kind {kind} has no option `{name[:60]}`; {hint}")
    return None if value is None else _checked(option.form, value, where)


def _checked(form: str, value: object, where: str) -> Value:
    if isinstance(value, float) and not math.isfinite(value):
        raise _wrong(where, value, "finite")
    if form == "texts":
        several = value if isinstance(value, list) else [value]
        if not all(isinstance(one, str) and one for one in several):
            raise _wrong(where, value, "a text or a list of texts")
        return value  # type: ignore[return-value]
    if form in ("shares", "figures"):
        if isinstance(value, str) and form == "shares":
            return value
        if not (isinstance(value, dict) and value and all(map(_number, value.values()))):
            raise _wrong(where, value, "a mapping of names to numbers")
        return value
    if form == "length":
        if isinstance(value, str):
            return parse_length(value, where)
        form = "whole"
    words = {"limit": "none", "copies": "auto"}.get(form)
    if words is not None and isinstance(value, str) and value.strip().lower() == words:
        return words
    kind = {"limit": "number", "copies": "whole"}.get(form, form)
    fits = {
        "text": isinstance(value, str) and bool(value.strip()),
        "whole": isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _MOST_WHOLE,
        "number": _number(value),
        "flag": isinstance(value, bool),
    }
    if not fits[kind]:
        raise _wrong(where, value, _WORDS[kind] + (f", or {words}" if words else ""))
    return value  # type: ignore[return-value]


def _number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return -sys.float_info.max <= value <= sys.float_info.max  # whole numbers of YAML have no end


def _wrong(where: str, value: object, what: str) -> InputError:
    return InputError(f"{where}: {shown(value)} must be {what}.")
