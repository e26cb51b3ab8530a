"""Pair exchange: the copies of two GPUs placed anew: the best way against all of them, with locks and speeds."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from placement.experts.local_search import deals


def all_ways(slots: int, *, swaps_only: bool) -> list[tuple[int, ...]]:
    """Which copies come first, as sets of positions."""
    ways = [tuple(half) for half in combinations(range(2 * slots), slots)]
    if swaps_only:
        ways = [half for half in ways if sum(position >= slots for position in half) == 1]
    return ways


def brute(
    loads: np.ndarray, slots: int, locked: np.ndarray, speeds: tuple[float, float], *, swaps_only: bool
) -> float:
    best = np.inf
    for half in all_ways(slots, swaps_only=swaps_only):
        moved = [p for p in range(2 * slots) if (p in half) != (p < slots)]
        if not locked[moved].any():
            first = loads[list(half)].sum()
            best = min(best, max(first / speeds[0], (loads.sum() - first) / speeds[1]))
    return float(best)


@pytest.mark.parametrize("slots", [1, 2, 3, 4, 5, 7])
@pytest.mark.parametrize("kind", ["free", "locked", "speeds", "locked, speeds"])
def test_the_best_way(slots: int, kind: str) -> None:
    rng = np.random.default_rng(slots)
    loads = rng.exponential(1.0, (3, 4, 2 * slots))
    locked = rng.random(loads.shape) < (0.4 if "locked" in kind else 0.0)
    speed = rng.uniform(0.5, 2.0, (2, 3, 4)) if "speeds" in kind else np.ones((2, 3, 4))
    ways = deals(slots, mirrored=kind == "free")
    value, choice = ways.best(
        loads[..., :slots],
        loads[..., slots:],
        locked if "locked" in kind else None,
        (speed[0], speed[1]) if "speeds" in kind else None,
    )
    for at in np.ndindex(3, 4):
        wanted = brute(loads[at], slots, locked[at], (speed[0][at], speed[1][at]), swaps_only=slots > 4)
        assert value[at] == pytest.approx(wanted)
        if np.isfinite(wanted):
            order = ways.order(choice[at][None])[0]
            assert sorted(order.tolist()) == list(range(2 * slots))
            first, second = loads[at][order[:slots]].sum(), loads[at][order[slots:]].sum()
            assert max(first / speed[0][at], second / speed[1][at]) == pytest.approx(wanted)


def test_one_gpu_with_many_others() -> None:
    """The first loads broadcast: one GPU beside several."""
    rng = np.random.default_rng(0)
    mine, others = rng.random((2, 1, 3)), rng.random((2, 5, 3))
    value, choice = deals(3, mirrored=True).best(mine, others, None, None)
    for layer, other in np.ndindex(2, 5):
        alone, pick = deals(3, mirrored=True).best(mine[layer], others[layer, other][None], None, None)
        assert value[layer, other] == pytest.approx(alone[0])
        assert choice[layer, other] == pick[0]
