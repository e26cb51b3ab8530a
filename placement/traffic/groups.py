"""Group-limited routing: what is known of tokens without a trace, and whole groups in domains."""

from __future__ import annotations

import numpy as np

from placement.arrays import Floats, Ints
from placement.baselines import balanced_packing
from placement.traffic.tokens import Tokens


def drawn_tokens(
    load: Floats, k: int, groups: int, chosen: int, *, number: int = 20_000, seed: int = 0
) -> Tokens:
    """Draw tokens that choose ``k`` experts of the best ``chosen`` of ``groups`` groups, otherwise independently.

    An expert's score is the logarithm of its ``load`` ``[experts]`` and Gumbel noise, a group's the sum of its two
    highest (DeepSeek-V3 report, section 2.1.2), so that an expert is chosen about as often as its load says.
    """
    rng = np.random.default_rng(seed)
    experts = load.size
    score = np.log(np.maximum(load, load.max() * 1e-9)) + rng.gumbel(size=(number, experts))
    if groups > 1 and chosen < groups:
        size = experts // groups
        two = np.partition(score.reshape(number, groups, size), -min(2, size), axis=2)[:, :, -2:].sum(axis=2)
        best = np.argpartition(-two, chosen - 1, axis=1)[:, :chosen]
        keep = np.zeros((number, groups), dtype=bool)
        np.put_along_axis(keep, best, values=True, axis=1)
        score = np.where(np.repeat(keep, size, axis=1), score, -np.inf)
    return Tokens.of(np.argpartition(-score, k - 1, axis=1)[:, :k], experts)


def whole_groups(load: Floats, groups: int, domains: int) -> Ints | None:
    """Return the domain of each expert, ``[experts]``, with groups kept whole; None where they cannot be.

    Groups go to domains as EPLB's hierarchical policy deals them: heaviest first to the lightest domain with room.
    """
    experts = load.size
    if groups < 1 or experts % groups or groups % domains:
        return None
    size = experts // groups
    order = balanced_packing(load.reshape(1, groups, size).sum(axis=2), domains)[0]
    domain = np.empty(groups, dtype=np.int64)
    domain[order] = np.repeat(np.arange(domains), groups // domains)
    return np.repeat(domain, size)
