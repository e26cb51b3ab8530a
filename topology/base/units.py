"""Quantities such as "4.8 TB/s" or "80 GiB", parsed into SI floats and formatted.

GB is not GiB, Gb is not GB; rates are per direction; peaks are dense. Anything that does not say so plainly
is refused rather than guessed.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Collection, Iterable, Mapping
from decimal import Decimal
from functools import reduce
from typing import TypeVar, cast

from topology.base.errors import InputError
from topology.base.reading import shown

_Number = TypeVar("_Number")
_SI: Mapping[str, float] = {prefix: 10.0 ** (3 * power) for power, prefix in enumerate(["", *"kMGTPEZY"])}
_BINARY: Mapping[str, float] = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50}
_SMALL: Mapping[str, float] = {"": 1.0, "m": 1e-3, "u": 1e-6, "µ": 1e-6, "μ": 1e-6, "n": 1e-9}
_LENGTH_PREFIXES: Mapping[str, int] = {"k": 2**10, "m": 2**20}
_LONG_UNITS = (("years", 365.25 * 86400.0), ("days", 86400.0), ("h", 3600.0), ("min", 60.0))
_LONG_UNITS_FROM_S = 120.0
"""Seconds from which times are told in longer units."""
_SECONDS = [("", 1.0), ("m", 1e-3), ("u", 1e-6), ("n", 1e-9)]  # as written, largest first


def _unit_table() -> dict[str, tuple[str, float]]:
    """Every unit we read, as written: its SI unit and the factor to it."""
    table: dict[str, tuple[str, float]] = {}
    for prefix, factor in (*_SI.items(), *_BINARY.items()):
        table[f"{prefix}B"] = ("byte", factor)
        table[f"{prefix}B/s"] = ("byte/s", factor)
    for prefix, factor in _SI.items():
        for bit in ("b", "bit"):
            table[f"{prefix}{bit}"] = ("bit", factor)  # so that `80 Gb` of memory is refused as what it is
            table[f"{prefix}{bit}/s"] = ("byte/s", factor / 8)
        for flop in ("flop/s", "FLOP/s", "FLOPS"):
            table[f"{prefix}{flop}"] = ("flop/s", factor)
        table[f"{prefix}W"] = ("W", factor)
    for prefix, factor in _SMALL.items():
        table[f"{prefix}s"] = ("s", factor)
    table |= {name: ("s", factor) for name, factor in _LONG_UNITS}
    for dollars in ("USD/h", "$/h"):
        table[dollars] = ("USD/h", 1.0)
    table |= {"kg": ("kg", 1.0), "t": ("kg", 1e3), "m": ("m", 1.0), "km": ("m", 1e3)}
    return table


_UNITS = _unit_table()
_BARE: Mapping[str, tuple[str, float]] = {
    "": ("", 1.0), "x": ("x", 1.0), "X": ("x", 1.0), "\u00d7": ("x", 1.0), "%": ("%", 1.0)
}  # fmt: skip
_EXAMPLES: Mapping[str, str] = {
    "byte": "80 GiB",
    "byte/s": "4.8 TB/s",
    "flop/s": "1979 TFLOP/s",
    "s": "0.5 us",
    "W": "700 W",
    "USD/h": "10.5 USD/h",
    "kg": "1360 kg",
    "m": "3200 m",
}
# A leading sign is read so that "-1 GB" is refused as negative, not as unreadable.
_QUANTITY = re.compile(r"([+-]?(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][+-]?\d++)?)\s*+(.*)")
_PLAIN = re.compile(
    r"[+-]?(?:(?:[0-9]{1,3}(?:,[0-9]{3})++|[0-9]++)(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?"
)
_BOTH_WAYS = re.compile(r"bi-?dir|both (?:ways|directions)|duplex", re.IGNORECASE)
_SPARSE = re.compile(r"spars", re.IGNORECASE)


def parse_quantity(text: object, unit: str, where: str) -> float:
    """Read a quantity such as ``"400 Gb/s"`` as a float in the SI unit ``unit``.

    Parameters
    ----------
    text:
        Number and unit. Decimal prefixes are powers of 1000, ``Ki``, ``Mi``, ... powers of 1024, ``b`` is a
        bit (an eighth of a byte).
    unit:
        ``"byte"``, ``"byte/s"``, ``"flop/s"``, ``"s"``, ``"W"``, ``"USD/h"``, ``"kg"`` or ``"m"``.
    where:
        The place the text comes from, for the message.

    Raises
    ------
    InputError
        If it is not a positive quantity of that dimension, or speaks of both directions or of sparsity.
    """
    example = _EXAMPLES[unit]
    if not isinstance(text, str):
        raise InputError(
            f'{where}: {shown(text)} has no unit; write it as text with a unit, like "{example}".'
        )
    if _BOTH_WAYS.search(text):
        raise InputError(f'{where}: "{text}": rates are per direction; give half of a bidirectional figure.')
    if _SPARSE.search(text):
        raise InputError(f'{where}: "{text}": peaks are dense; give the figure without 2:4 sparsity.')
    match = _QUANTITY.fullmatch(text.strip())
    if match is None:
        raise InputError(f'{where}: "{text}" is not a number with a unit; write it like "{example}".')
    number, symbol = float(match[1]), match[2]
    factor = _factor(symbol, unit, f'{where}: "{text}"')
    value = number * factor
    if not math.isfinite(value) or value <= 0:
        raise InputError(f'{where}: "{text}" must be greater than zero and finite.')
    return value


def amount(text: str, where: str, unit: str = "byte") -> float:
    """Parse a quantity in the SI unit ``unit``, the unit written or not: bytes are ``2e11`` or ``200 GB``.

    Raises
    ------
    InputError
        If it is neither a number nor such a quantity.
    """
    try:
        return float(text)
    except ValueError:
        return parse_quantity(text, unit, where)


def _factor(symbol: str, unit: str, place: str) -> float:
    """Return the factor of a unit as written, or say what is wrong with it."""
    example = _EXAMPLES[unit]
    if not symbol:
        raise InputError(f'{place} has no unit; write it like "{example}".')
    if symbol not in _UNITS:
        alike = sorted(known for known in _UNITS if known.lower() == symbol.lower())
        meant = f"did you mean {' or '.join(alike)}" if alike else f'write it like "{example}"'
        raise InputError(f"{place}: unknown unit {symbol!r}; {meant}? (GB is not GiB, Gb is not GB)")
    dimension, factor = _UNITS[symbol]
    if dimension != unit:
        raise InputError(f'{place} is in {dimension}, but {unit} is needed here, like "{example}".')
    return factor


def read_number(text: str) -> tuple[float, str] | None:
    """Return the number that a text means and of what: ``500 GB/s`` is 5e11 of ``byte/s``, ``2x`` 2 of ``x``.

    Without a unit it is of nothing; None where it is no number, or of a unit that is not known.
    """
    match = _QUANTITY.fullmatch(text.strip())
    if match is None:
        return None
    symbol = match[2].strip()
    known = _UNITS.get(symbol) or _BARE.get(symbol)
    return None if known is None else (float(match[1]) * known[1], known[0])


def plain_number(text: str) -> float | None:
    """Return the number that a text spells, commas between thousands or not; None where it spells none.

    ``1,5`` is none (1.5 to some, 15 to Python), nor are other scripts' digits, ``1_000``, ``inf`` and ``nan``.
    """
    return float(text.replace(",", "")) if _PLAIN.fullmatch(text.strip()) else None


def parse_length(text: str, where: str) -> int:
    """Return a length in tokens: ``8192``, or ``8k`` and ``1M`` with prefixes that are binary, as models have them.

    Raises
    ------
    InputError
        If it is not a whole number of tokens.
    """
    number = text.strip().lower()
    factor = _LENGTH_PREFIXES.get(number[-1:], 1)
    value = plain_number(number[:-1] if factor > 1 else number)
    if value is None or not 0 <= value < 1e15 or not (value * factor).is_integer():
        raise InputError(
            f"{where}: {text[:40]!r} is not a length; write a whole number of tokens, like 8192 or 8k (8,192)."
        )
    return round(value * factor)


def format_quantity(value: float, unit: str, digits: int = 4) -> str:
    """Write ``value`` (in the SI unit ``unit``) for people, with at most ``digits`` significant digits.

    Bytes are written in decimal multiples (1 GB = 1e9 bytes); NaN is "not published".
    """
    if math.isnan(value):
        return "not published"
    if unit == "USD/h":
        return f"{value:.{digits}g} USD/h"
    if unit in ("kg", "m"):  # whole ones are never rounded away
        return f"{f'{value:.2f}'.rstrip('0').rstrip('.') if value < 1000 else f'{value:,.0f}'} {unit}"
    symbol = {"byte": "B", "byte/s": "B/s", "flop": "flop", "flop/s": "flop/s", "s": "s", "W": "W"}[unit]
    prefixes = _SECONDS if unit == "s" else list(_SI.items())[::-1]
    size = abs(float(f"{value:.{digits}g}"))
    if unit == "s" and size >= _LONG_UNITS_FROM_S:
        name, factor = next((name, factor) for name, factor in _LONG_UNITS if size >= 2 * factor)
        return f"{_plain(value / factor, digits)} {name}"
    prefix, factor = next(((p, f) for p, f in prefixes if size >= f), prefixes[-1])
    return f"{_plain(value / factor, digits)} {prefix}{symbol}"


def _plain(number: float, digits: int) -> str:
    """Write ``number`` with at most ``digits`` significant digits, never in scientific notation."""
    text = f"{Decimal(f'{number:.{digits}g}'):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def plural(count: int, word: str) -> str:
    """Return "1 leaf", "1,024 leaves"."""
    several = {"leaf": "leaves", "copy": "copies"}.get(word, f"{word}{'es' if word.endswith('ch') else 's'}")
    return f"{count:,} {word if count == 1 else several}"


def span(texts: Iterable[str]) -> str:
    """Return "4 to 32" for the two ends of a range, or the one text that both are."""
    return " to ".join(dict.fromkeys(texts))


def format_number(value: float, digits: int = 3) -> str:
    """Write a plain number for people, with at most ``digits`` significant digits where it has a fraction."""
    if value == round(value):
        return str(round(value))
    return _plain(value, digits) if abs(value) >= 1e-3 else f"{value:.{digits}g}"


def added(values: Iterable[_Number]) -> _Number:
    """Return the sum of numbers or arrays, added in order and rounded each time; 0.0 of none.

    Python's own ``sum`` makes up for rounding since 3.12: figures would differ in their last digit from 3.11's, and
    those of one configuration from the same of many in an array.
    """
    return cast(_Number, reduce(operator.add, values, 0.0))


def mean_of(values: Collection[float]) -> float:
    """Return the mean of one number or more, added as :func:`added` does."""
    return added(values) / len(values)
