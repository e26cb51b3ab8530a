"""Checks of single values (numbers, integers, text, names) with errors that name place and value.

Each function returns the value, and raises InputError where it is another thing; ``where`` is its place.
"""

from __future__ import annotations

import math
from numbers import Integral
from typing import Any

from topology.base.errors import InputError, printable
from topology.base.reading import shown

MAX_COUNT = 1_000_000
"""The largest whole number, where no other limit is given."""


def wrong(value: object, where: str, expected: str) -> InputError:
    """Return the error of a value that must be something else."""
    return InputError(f"{where}: {shown(value)} must be {expected}.")


def require_number(
    value: object, where: str, minimum: float | None = None, maximum: float = math.inf
) -> float:
    """Return a finite number above zero, or from ``minimum`` on, and at most ``maximum``."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            number = float(value)
            above = number > 0 if minimum is None else number >= minimum
            if math.isfinite(number) and above and number <= maximum:
                return number
        except OverflowError:
            pass
    if minimum is None:
        limit = "greater than zero" + (f", at most {maximum:g}" if maximum < math.inf else "")
    else:
        limit = f"of {minimum:g} or more" if maximum == math.inf else f"from {minimum:g} to {maximum:g}"
    with_unit = isinstance(value, str) and value[:1].isdigit() and value[-1].isalpha()
    raise wrong(value, where, f"a number {limit}{', without a unit' * with_unit}")


def require_whole(value: object, where: str, minimum: int = 1, maximum: int = MAX_COUNT) -> int:
    """Return a whole number from ``minimum`` to ``maximum``."""
    if type(value) is not bool and isinstance(value, Integral) and minimum <= int(value) <= maximum:
        return int(value)  # numpy's too
    raise wrong(value, where, f"a whole number from {minimum} to {maximum}")


def require_text(value: object, where: str) -> str:
    """Return a text that is not empty and that can be printed: the name of something, or where it is from."""
    if not isinstance(value, str) or not value.strip():
        raise wrong(value, where, "text")
    if printable(value) != value:
        raise wrong(value, where, "text without control characters")
    return value


def require_name(value: object, where: str) -> str:
    """Return a name: a text, or a number as its digits (names like 17 are often not quoted)."""
    number = isinstance(value, int) and not isinstance(value, bool)
    try:
        text = str(value) if number else value
    except ValueError:  # thousands of digits
        text = value
    return require_text(text, where).strip()


def require_flag(value: object, where: str) -> bool:
    """Return true or false."""
    if not isinstance(value, bool):
        raise wrong(value, where, "true or false")
    return value


def require_mapping(value: object, where: str) -> dict[str, object]:
    """Return a mapping."""
    if not isinstance(value, dict):
        raise wrong(value, where, "a mapping of keys to values")
    return value


def require_list(value: object, where: str) -> list[object]:
    """Return a list."""
    if not isinstance(value, list):
        raise wrong(value, where, "a list")
    return value


def plain(value: Any) -> Any:
    """Return NumPy's numbers and flags as Python's, inside mappings and lists too.

    Raises
    ------
    InputError
        If a mapping or a list contains itself.
    """
    try:
        return _plain(value)
    except RecursionError:
        raise InputError("the value contains itself, or is nested too deeply.") from None


def _plain(value: Any) -> Any:
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        return value.item()
    if type(value) is dict:
        return {
            _plain(key): _plain(list(item) if type(item) is tuple else item) for key, item in value.items()
        }
    if type(value) in (list, tuple):
        return type(value)(map(_plain, value))
    return value
