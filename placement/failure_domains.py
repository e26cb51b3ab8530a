"""Failure domains of a cluster: what fails together, and whether copies can be spread over them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cost.deployment import Deployment
from placement.arrays import Ints
from placement.options import Spread
from topology.cluster import Gpu
from topology.errors import InfeasibleError


def domain_name(gpu: Gpu, spread: Spread) -> str:
    """Return the id of what ``gpu`` fails with: itself, its node, or its rack (its node where none is named)."""
    return {"gpu": gpu.id, "node": gpu.node, "rack": gpu.rack}[spread]


def stage_domains(deployment: Deployment, members: Sequence[Sequence[int]], spread: Spread) -> Ints | None:
    """Return the failure domain of each GPU of a stage in all its replicas, int64 ``[gpus]``; None: each is one.

    ``members`` are the GPUs of the stage in each replica. All hold the same experts, so two of its places are in one
    failure domain where they are in some replica.
    """
    if spread == "gpu":
        return None
    number = deployment.numbered(spread)
    table = np.unique(number[np.array(members)], axis=0)
    joined = np.unique(table[0], return_inverse=True)[1].astype(np.int64).reshape(-1)
    while True:
        before = joined
        for row in table:
            least = np.full(int(row.max()) + 1, joined.size)
            np.minimum.at(least, row, joined)
            joined = least[row]
        if np.array_equal(before, joined):
            return joined


def require_apart(
    experts: int, slots_per_gpu: Ints, domains: Ints | None, word: str = "`spread`", *, once: bool = False
) -> None:
    """Check that the slots can be filled with copies spread evenly over failure domains.

    They can with no expert twice in a domain exactly where no domain has more slots than there are experts
    (``once``: that alone will do). Else, of D domains with slots, an expert of c copies has at most
    ``ceil(c / D) <= (c + D - 1) / D`` in each: summed over experts, that is what the largest domain can take.

    Raises
    ------
    InfeasibleError
        If they cannot: in one domain, with the most copies that would go.
    """
    if domains is None:
        return
    per_domain = np.bincount(domains, weights=slots_per_gpu).astype(np.int64)
    most = int(per_domain.max())
    used = int((per_domain > 0).sum())
    if most <= experts:
        return
    if used > 1 and not once:
        total = int(per_domain.sum())
        room = (total + (used - 1) * experts) // used
        if most > room:
            raise InfeasibleError(
                f"{word}: of {total} slots per layer one of {used} failure domains has {most}, and with the copies "
                f"of {experts} experts spread evenly it can take {room}: give fewer `redundant`, use a narrower "
                "`spread`, or an `ep` with failure domains that are more alike."
            )
    else:
        over = f"these {used} domains" if used > 1 else "one domain"
        raise InfeasibleError(
            f"{word}: a failure domain has {most} slots per layer for {experts} experts, so that one would have two "
            f"copies in it; over {over} at most `redundant` {experts * (used - 1)} goes, or use a "
            "narrower `spread` or a wider `ep`."
        )
