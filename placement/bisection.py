"""The last whole number for which something holds."""

from __future__ import annotations

from collections.abc import Callable


def last_where(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """Return the largest number from ``low`` to below ``high`` for which ``holds`` is true; after it, it is false.

    ``low`` is taken to hold and ``high`` not to; neither is tried.
    """
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
