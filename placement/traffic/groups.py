"""Whole groups of experts in domains, where routing is limited by group."""

from __future__ import annotations

import numpy as np

from placement.arrays import Floats, Ints
from placement.experts.baselines import balanced_packing


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
