"""The price of a fast mode: a smaller batch steps sooner and costs more per token.

Nothing but the batch differs, so ``price * speed = regular batch / fast batch``, whatever the curve: 2.5 times
the speed at 6 times the price is a batch 15 times smaller. The curve says which two batches those are. Where
memory binds, a step takes ``w + k * batch`` (weights once, caches of each sequence), and with ``x = k * batch / w``
at the regular batch ``(1 + x) = speed * (1 + x / (price * speed))``, so ``x = price * (speed - 1) / (price - 1)``:
for 2.5 and 6 caches take 1.8 times as long as weights, and no smaller batch is more than 2.8 times as fast while it
still uses all experts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cost.economics.roofline import Roofline, check_batch
from topology.errors import InputError

_MOST_BATCH = 1e12
_GRID = 241  # 20 batches in each decade
_HALVINGS = 80
_TOLERANCE = 1e-6


@dataclass(frozen=True)
class FastMode:
    """Two batches of one machine; ``speed`` and ``price`` are ratios per token, fast over regular."""

    regular_batch: float
    fast_batch: float
    speed: float
    price: float


def cache_over_weights(speed: float, price: float) -> float:
    """Seconds for the caches over seconds for the weights, at the regular batch, where memory binds both.

    ``price * (speed - 1) / (price - 1)``; while all weights are read, no batch is more than one more than this
    times as fast.

    Raises
    ------
    InputError
        If one of the two is not above 1.
    """
    _refuse_ratio("speed", speed)
    _refuse_ratio("price", price)
    return price * (speed - 1) / (price - 1)


def fast_mode(line: Roofline, regular_batch: float, speed: float) -> FastMode:
    """Return the cheapest fast mode that steps ``speed`` times as fast as ``regular_batch``.

    The largest batch whose step is short enough; its price follows.

    Raises
    ------
    InputError
        If the batch is none, the speed is not above 1, or not even a batch of 1 is that fast.
    """
    check_batch("regular_batch", regular_batch)
    _refuse_ratio("speed", speed)
    regular_s = float(line.step_s(regular_batch))
    fast = _fast_batch(line, regular_batch, speed)
    if math.isnan(fast):
        raise InputError(
            f"speed {speed:g}: a batch of 1 is only {regular_s / line.step_s(1.0):.3g} times as fast as one of "
            f"{regular_batch:,.0f}; ask for less, or start from a larger batch."
        )
    reached = regular_s / float(line.step_s(fast))
    return FastMode(regular_batch, fast, reached, regular_batch / fast / reached)


def fast_mode_for_price(line: Roofline, speed: float, price: float) -> FastMode:
    """Return the largest regular batch from which ``speed`` times the speed costs ``price`` times as much.

    Raises
    ------
    InputError
        If one of the two is not above 1, or no batch of ``line`` has that price at that speed.
    """
    _refuse_ratio("speed", speed)
    _refuse_ratio("price", price)

    def too_cheap(batch: float) -> bool:
        fast = _fast_batch(line, batch, speed)
        return not math.isnan(fast) and batch / fast / speed < price

    grid = np.geomspace(1.0, _MOST_BATCH, _GRID)
    below = next((k for k in range(_GRID - 1, -1, -1) if not too_cheap(float(grid[k]))), None)
    if below is None or below == _GRID - 1:
        raise _no_such_price(line, speed, price)
    # just above the solution the fast mode exists; just below it may not
    mode = fast_mode(line, _last(float(grid[below]), float(grid[below + 1]), too_cheap)[1], speed)
    if abs(mode.price / price - 1) > 1e-3:
        raise _no_such_price(line, speed, price)
    return mode


def _no_such_price(line: Roofline, speed: float, price: float) -> InputError:
    return InputError(
        f"speed {speed:g} at price {price:g}: no batch has both on this roofline, whose caches take "
        f"{line.cache_s_per_sequence / line.compute_s_per_token:.2g} times as long as computing; a fast mode has a "
        "price of its own where caches bind (a longer context), and none beyond the latency floor."
    )


def _fast_batch(line: Roofline, regular: float, speed: float) -> float:
    """Return the largest batch that steps ``speed`` times as fast as ``regular``, NaN if there is none."""
    most_s = float(line.step_s(regular)) / speed * (1 + _TOLERANCE * 1e-3)
    if line.step_s(1.0) > most_s:
        return math.nan
    return _last(1.0, regular, lambda batch: float(line.step_s(batch)) > most_s)[0]


def _last(low: float, high: float, beyond: Callable[[float], bool]) -> tuple[float, float]:
    """Halve ``low`` to ``high`` around where ``beyond`` becomes true; return the two sides of it."""
    for _ in range(_HALVINGS):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if beyond(middle) else (middle, high)
        if high / low - 1 < _TOLERANCE * 1e-6:
            break
    return low, high


def _refuse_ratio(what: str, ratio: float) -> None:
    if not (math.isfinite(ratio) and ratio > 1):
        raise InputError(f"{what} {ratio:g}: expected a ratio above 1, like 2.5.")
