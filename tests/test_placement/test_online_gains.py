"""The moves that a descent looks at: the best of every row, as all pairs worked out one by one have them."""

from __future__ import annotations

import numpy as np
import pytest

from placement.online.gains import HELD, WAS_HELD, Gains, Loads, Slots

SLOTS = np.array([4, 3, 3, 4])
EXPERTS = 9


def gains_of(seed, layers=3, scenarios=4):
    """Return gains where some copies have moved since the start, their loads, and the parts they were made of."""
    rng = np.random.default_rng(seed)
    slots = Slots(SLOTS)
    load = rng.lognormal(sigma=0.7, size=(scenarios, layers, EXPERTS))
    load /= load.mean(axis=2, keepdims=True)
    weights = rng.random((scenarios, layers))
    rows = [
        np.append(np.arange(EXPERTS), rng.integers(0, EXPERTS, slots.count - EXPERTS)) for _ in range(layers)
    ]
    table = np.stack([rng.permutation(row) for row in rows])
    bits = np.where(rng.random((layers, slots.gpus, EXPERTS)) < 0.3, WAS_HELD, 0).astype(np.int8)
    bits[np.arange(layers)[:, None], slots.gpu, table] |= HELD
    loads = Loads(load, weights, slots)
    gains = Gains(loads, table, bits)
    gains.objective(np.arange(layers))
    return gains, loads, table, bits


def best_by_hand(loads, table, bits, layer, price):
    """Return the least change of the objective plus price over all exchanges and swaps of one layer."""
    gpu, theta, row = loads.slots.gpu, loads.theta[layer], table[layer]
    cost, grown, thinner = loads.price[layer], loads.grown[layer], loads.thinner[layer]
    is_held, was_held = bits[layer] & HELD > 0, bits[layer] & WAS_HELD > 0
    price_of = np.array([cost[:, gpu[row == expert]].sum(axis=1) for expert in range(EXPERTS)])
    found = [np.inf]

    def add(change, new, gone):
        if not any(is_held[where] for where in new):
            moves = sum(not was_held[where] for where in new) - sum(not was_held[where] for where in gone)
            found.append(change / theta + price * moves)

    for a, (g, x) in enumerate(zip(gpu, row, strict=True)):
        for b, (h, y) in enumerate(zip(gpu, row, strict=True)):
            if a != b:
                up, down = cost[:, g] / grown[:, x] * grown[:, y], cost[:, h] / grown[:, y] * grown[:, x]
                add((up + down - cost[:, g] - cost[:, h]).sum(), [(g, y), (h, x)], [(g, x), (h, y)])
        if (row == x).sum() > 1:
            rest = ((price_of[x] - cost[:, g]) * loads.fewer[layer][:, x] - cost[:, g]).sum()
            for y in range(EXPERTS):
                there = (price_of[y] * (thinner[:, y] / grown[:, y] - 1)).sum()
                here = (cost[:, g] / grown[:, x] * thinner[:, y]).sum()
                add(rest + there + here, [(g, y)], [(g, x)])
    return min(found)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("price", [0.1, 1e-3])
def test_the_best_move_is_that_of_all_pairs(seed, price):
    gains, loads, table, bits = gains_of(seed)
    found = gains.paying(np.arange(3), price)
    best = {int(layer): values.min() for layer, values in zip(found.layers, found.value, strict=True)}
    for layer in range(3):
        value = best_by_hand(loads, table, bits, layer, price)
        if value < -1e-5:
            assert best[layer] == pytest.approx(value, rel=1e-9)
        else:
            assert layer not in best or best[layer] == pytest.approx(value, abs=1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_lists_that_are_kept_at_falling_prices_are_those_made_afresh(seed):
    kept, *_ = gains_of(seed)
    for price in (1.0, 0.1, 1e-3, 1e-4):
        found, fresh = kept.paying(np.arange(3), price), gains_of(seed)[0].paying(np.arange(3), price)
        for name in ("layers", "value", "moves", "slot", "other", "goes", "comes"):
            assert (getattr(found, name) == getattr(fresh, name)).all()
    again = kept.paying(np.arange(3), 1.0)  # a price that rises
    assert (again.value == gains_of(seed)[0].paying(np.arange(3), 1.0).value).all()
