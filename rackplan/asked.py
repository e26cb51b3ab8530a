"""What callers of the library give, made plain: names that exist, kinds that fit, NumPy's numbers as Python's."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from functools import cache, wraps
from inspect import Parameter, signature
from os import PathLike
from typing import Any, ParamSpec, TypeVar

import numpy as np

from topology.base.errors import InputError
from topology.base.reading import nearest, shown

P = ParamSpec("P")
R = TypeVar("R")

_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "bool": "True or False",
    "Mapping": "a mapping, like a dict",
    "Hear": "a function",
    "Cancel": "an event or a function",
    "None": "None",
}


def asked(function: Callable[P, R]) -> Callable[P, R]:
    """Check what is given to a public function by the kinds that its annotations name; others are its own matter.

    A keyword that it does not have is an :class:`InputError`, and so is a value of another kind. Numbers of NumPy
    become Python's, whole ones given as ``4096.0`` too. Messages name its keywords, not flags of the command line.
    """
    parameters = signature(function).parameters

    @wraps(function)
    def called(*args: P.args, **given: P.kwargs) -> R:
        kinds = _kinds(function)
        for name in given:
            if name not in kinds:
                raise InputError(f"{function.__name__}: there is no keyword `{name}`; {nearest(name, kinds)}")
        values: Any = [
            checked(value, name, kinds[name]) for name, value in zip(parameters, args, strict=False)
        ]
        named: Any = {name: checked(value, name, kinds[name]) for name, value in given.items()}
        return function(*(values if len(values) == len(args) else args), **named)

    return called


@cache
def _kinds(function: Callable[..., object]) -> dict[str, tuple[str, ...]]:
    """Return the kinds of each keyword as the annotations name them, those of an unpacked ``TypedDict`` with them."""
    found: dict[str, tuple[str, ...]] = {}
    for name, one in signature(function).parameters.items():
        text = str(one.annotation)
        if one.kind is not Parameter.VAR_KEYWORD:
            found[name] = _split(text)
            continue
        fields = function.__globals__[text.removeprefix("Unpack[").removesuffix("]")].__annotations__
        found |= {field: _split(hint.__forward_arg__) for field, hint in fields.items()}
    return found


def _split(annotation: str) -> tuple[str, ...]:
    """Return the members of a union, at its top: ``Mapping[str, float] | None`` are two."""
    members = re.split(r" \| (?![^\[]*\])", annotation)
    return tuple(one if one.startswith("Literal") else one.partition("[")[0] for one in members)


def checked(value: object, name: str, kinds: tuple[str, ...]) -> object:
    """Return a value that is of one of the ``kinds``, plain; where one of them is of another module, as it is.

    Raises
    ------
    InputError
        If it is of none of them.
    """
    value = plain(value)
    literal = [one[len('Literal["') : -len('"]')] for one in kinds if one.startswith("Literal")]
    known = [one for one in kinds if one in _WORDS or one == "Path"]
    if len(known) + len(literal) < len(kinds) or value in literal:
        return value
    whole = isinstance(value, float) and value.is_integer()
    number = isinstance(value, int | float) and not isinstance(value, bool)
    fits = {
        "None": value is None,
        "bool": isinstance(value, bool),
        "int": number and (isinstance(value, int) or whole),
        "float": number,
        "str": isinstance(value, str),
        "Path": isinstance(value, PathLike),
        "Mapping": isinstance(value, Mapping),
        "Hear": callable(value),
        "Cancel": callable(value) or hasattr(value, "is_set"),
    }
    if not any(fits[one] for one in known):
        said = [_WORDS.get(one, "a path") for one in known if one != "None"] + [f"'{one}'" for one in literal]
        raise InputError(f"`{name}`: expected {' or '.join(said)}, not {shown(value)}.")
    require_64_bits(value, f"`{name}`")
    if "int" in known and "float" not in known and number and isinstance(value, float):
        return int(value)
    return value


def require_64_bits(value: object, name: str) -> None:
    """Refuse a whole number that NumPy has no type for."""
    if isinstance(value, int) and abs(value) >= 2**63:
        raise InputError(f"{name} {shown(value)}: a whole number must fit in 64 bits.")


def plain(value: Any) -> Any:
    """Return NumPy's numbers and flags as Python's, inside mappings (tuples are lists there) and lists too.

    Raises
    ------
    InputError
        If a mapping or a list contains itself.
    """
    try:
        return _plain(value)
    except RecursionError:
        raise InputError("what is given contains itself, or is nested too deeply.") from None


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if type(value) is dict:
        return {_plain(key): _plain(list(one) if type(one) is tuple else one) for key, one in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_plain(one) for one in value)
    return value


def positive(value: float, name: str) -> float:
    """Return a finite number above 0.

    Raises
    ------
    InputError
        If it is none.
    """
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 0 < value <= sys.float_info.max  # whole numbers have no end
    ):
        raise InputError(f"`{name}` {shown(value)}: expected a number above 0.")
    return float(value)
