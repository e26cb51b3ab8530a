"""The best of a sweep at given speeds per user."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from cost.sweep.result import Sweep


def best_at(sweep: Sweep, target: float) -> int | None:
    """Return the configuration with most tok/s/GPU of those with at least ``target`` tok/s/user, or None."""
    fast = np.flatnonzero(sweep.tok_s_per_user >= target)
    return int(fast[np.argmax(sweep.tok_s_per_gpu[fast])]) if len(fast) else None


def iso_interactivity(sweep: Sweep, targets: Iterable[float]) -> list[float | None]:
    """Return the best tok/s/GPU at each target in tok/s/user; None where no configuration is that fast.

    Every figure is of a configuration that was priced: nothing is interpolated or extrapolated.
    """
    found = (best_at(sweep, target) for target in targets)
    return [None if index is None else float(sweep.tok_s_per_gpu[index]) for index in found]
