"""Elementary functions whose every bit is the same on every processor.

NumPy's ``exp``, ``log`` and their kin use the vector instructions that they find (AVX-512, AVX2), the C library's use
a fused multiply-add where there is one, and libraries of linear algebra add in an order of their own: last digits
differ between machines, and what is chosen by them. What is here consists of additions, multiplications, divisions
and roots of one array operation each, which IEEE 754 rounds alike everywhere.

Errors are below two units in the last place (float32: three). Infinite, zero and missing arguments give what NumPy
gives, without its warnings.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

_BLOCK = 2**13
"""Numbers that are worked on at a time: what lies between two operations stays in the cache."""
_PARTS = 64
_DIGITS = Context(prec=60)
_LN2 = _DIGITS.ln(Decimal(2))
LN2 = float(_LN2)


def _two(values: list[Decimal]) -> tuple[Floats, Floats]:
    """Return numbers as the sum of two float64 each."""
    high = [float(value) for value in values]
    low = [float(_DIGITS.subtract(value, Decimal(one))) for value, one in zip(values, high, strict=True)]
    return np.array(high), np.array(low)


def _short(value: Decimal, bits: int) -> tuple[float, float]:
    """Return a number as one of few bits, whose small multiples are exact, and the rest."""
    high = float(int(value * 2**bits)) / 2**bits
    return high, float(_DIGITS.subtract(value, Decimal(high)))


# 2 ** (i / 64), and log(i / 64) for i from 45 to 90
_POWER, _POWER_REST = _two([_DIGITS.power(Decimal(2), Decimal(i) / _PARTS) for i in range(_PARTS)])
_LOG, _LOG_REST = _two([_DIGITS.ln(Decimal(max(i, 1)) / _PARTS) for i in range(2 * _PARTS)])
_STEP, _STEP_REST = _short(_LN2 / _PARTS, 40)
_LN2_HIGH, _LN2_REST = _short(_LN2, 40)
_PER_STEP = float(_PARTS / _LN2)
_STEP32, _STEP32_REST = (np.float32(part) for part in _short(_LN2, 12))
_PER_STEP32 = np.float32(1 / _LN2)
_LEAST32, _MOST32 = np.float32(-87.0), np.float32(88.7)
_SERIES32 = [np.float32(1 / factor) for factor in (5040, 720, 120, 24, 6, 2, 1)]


def exp(x: ArrayLike) -> Any:
    """Return e to the power of ``x``, float32 of float32 and float64 of all else; a number of a number."""
    array = np.asarray(x)
    if array.dtype == np.float32:
        return _by_block(_exp32, array)
    return _by_block(_exp, _floats(array))


def expm1(x: ArrayLike) -> Any:
    """Return ``exp(x) - 1``, as precise near 0."""
    return _by_block(_expm1, _floats(x))


def log(x: ArrayLike) -> Any:
    """Return the natural logarithm, float32 of float32 and float64 of all else."""
    array = np.asarray(x)
    found = _by_block(_log, _floats(array))
    return found.astype(np.float32) if array.dtype == np.float32 else found


def log1p(x: ArrayLike) -> Any:
    """Return ``log(1 + x)``, as precise near 0."""
    return _by_block(_log1p, _floats(x))


def power(x: ArrayLike, exponent: float) -> Any:
    """Return ``x ** exponent`` of positive ``x``; of any ``x`` where the exponent is a whole number from 1 to 64.

    Whole powers are products; of others the error grows with the logarithm of the result.
    """
    if exponent != int(exponent) or not 1 <= exponent <= 64:
        return exp(log(x) * exponent)
    square, found = _floats(x), None
    for bit in bin(int(exponent))[:1:-1]:
        if bit == "1":
            found = square if found is None else found * square
        square = square * square
    return found


def geometric(first: float, last: float, count: int) -> Floats:
    """Return ``count`` numbers from ``first`` to ``last``, each the same multiple of the one before."""
    found: Floats = exp(np.linspace(log(first), log(last), count))
    return found


def hypot(x: ArrayLike, y: ArrayLike) -> Any:
    """Return ``sqrt(x * x + y * y)``, whose squares must neither overflow nor vanish."""
    first, second = _floats(x), _floats(y)
    return np.sqrt(first * first + second * second)


def product(left: ArrayLike, right: ArrayLike) -> Floats:
    """Return the product of matrices, ``[.., n, k]`` by ``[.., k, m]``, added in the order of k.

    For a short k: it takes a pass over the result for each.
    """
    first, second = _floats(left), _floats(right)
    found: Floats = first[..., :, 0, None] * second[..., None, 0, :]
    for k in range(1, first.shape[-1]):
        found += first[..., :, k, None] * second[..., None, k, :]
    return found


def normal(rng: np.random.Generator, shape: int | tuple[int, ...]) -> Floats:
    """Draw from the standard normal distribution, in steps of 2 ** -32.

    NumPy draws one in four thousand by the C library's logarithm, whose last digit is not the same everywhere.
    """
    return np.rint(rng.standard_normal(shape) * 2.0**32) * 2.0**-32


def _floats(x: ArrayLike) -> Floats:
    return np.asarray(x, dtype=np.float64)


def _by_block(function: Callable[[NDArray[Any]], NDArray[Any]], x: NDArray[Any]) -> Any:
    flat = x.ravel()
    with np.errstate(all="ignore"):
        if flat.size <= _BLOCK:
            out = function(flat)
        else:
            out = np.empty_like(flat)
            for first in range(0, flat.size, _BLOCK):
                out[first : first + _BLOCK] = function(flat[first : first + _BLOCK])
    return out.reshape(x.shape) if x.ndim else out[0]


def _reduced(x: Floats) -> tuple[NDArray[np.int64], Floats]:
    """Return k and ``exp(r) - 1`` for ``x = k log(2) / 64 + r``; x lies between -800 and 800."""
    k = np.rint(x * _PER_STEP)
    r = x - k * _STEP
    r -= k * _STEP_REST
    tail = r * (1 / 5040)
    for factor in (1 / 720, 1 / 120, 1 / 24, 1 / 6, 0.5):
        tail += factor
        tail *= r
    tail *= r
    tail += r
    return k.astype(np.int64), tail


def _two_to(k: NDArray[np.int64]) -> Floats:
    """Return 2 ** k for k from -1022 to 1023."""
    bits = k + 1023
    bits <<= 52
    found: Floats = bits.view(np.float64)
    return found


def _exp(x: Floats) -> Floats:
    k, tail = _reduced(np.clip(x, -800.0, 800.0))
    base = _POWER.take(k & (_PARTS - 1))
    tail *= base
    tail += base
    k >>= 6
    half = k >> 1  # both halves lie in the range of normal numbers, their sum may not
    k -= half
    tail *= _two_to(half)
    tail *= _two_to(k)
    return tail


def _expm1(x: Floats) -> Floats:
    k, tail = _reduced(np.clip(x, -100.0, 100.0))
    part = k & (_PARTS - 1)
    k >>= 6
    scale = _two_to(k)
    base = _POWER.take(part)
    base *= scale
    tail *= base
    scale *= _POWER_REST.take(part)
    tail += scale
    base -= 1.0
    tail += base
    large = x > 100.0
    if large.any():
        tail[large] = _exp(x[large])
    return tail


def _log(x: Floats) -> Floats:
    if not (x.size and x.min() > 0 and x.max() < np.inf):
        odd = ~((x > 0) & (x < np.inf))
        found = _log(np.where(odd, 1.0, x)) if x.size else x
        return np.where(odd, np.where(x == 0, -np.inf, np.where(x > 0, np.inf, np.nan)), found)
    part, exponent = np.frexp(x)
    low = part < 0.703125  # 45 / 64: from there to twice it
    part += part * low
    exponent -= low
    c = part * _PARTS
    np.rint(c, out=c)
    at = c.astype(np.int64)
    c *= 1 / _PARTS
    s = part - c
    part += c
    s /= part
    z = s * s
    tail: Floats = z * (2 / 9)
    for factor in (2 / 7, 2 / 5, 2 / 3):
        tail += factor
        tail *= z
    tail *= s
    tail += exponent * _LN2_REST
    tail += _LOG_REST.take(at)
    s += s
    tail += s
    tail += exponent * _LN2_HIGH + _LOG.take(at)
    return tail


def _log1p(x: Floats) -> Floats:
    whole: Floats = 1.0 + x
    lost = (x - (whole - 1.0)) / whole
    found = _log(whole)
    if not np.isfinite(lost).all():  # at -1 and infinity
        lost[~np.isfinite(lost)] = 0.0
    found += lost
    return found


def _exp32(x: NDArray[np.float32]) -> NDArray[np.float32]:
    known = np.clip(x, _LEAST32, _MOST32)
    missing = np.isnan(known)
    if missing.any():
        known[missing] = 0.0
    k = np.rint(known * _PER_STEP32)
    known -= k * _STEP32
    known -= k * _STEP32_REST
    found = known * _SERIES32[0]
    for factor in _SERIES32[1:]:
        found += factor
        found *= known
    found += np.float32(1.0)
    whole = k.astype(np.int32)
    half = whole >> 1  # both halves lie in the range of normal numbers, their sum may not
    whole -= half
    for bits in (half + 127, whole + 127):
        found *= (bits << 23).view(np.float32)
    found[x < _LEAST32] = 0.0
    found[x > _MOST32] = np.inf
    found[missing] = np.nan
    return found
