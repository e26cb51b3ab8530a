"""Failure domains of a cluster: what fails together, and whether copies can be spread over them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cost.inputs.deployment import Deployment
from placement.arrays import Ints
from placement.experts.problem import spread_slots
from placement.experts.spread_feasibility import can_spread
from placement.options import Spread
from topology.base.errors import InfeasibleError, input_name
from topology.base.units import plural
from topology.cluster import Gpu


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
    experts: int,
    slots_per_gpu: Ints,
    domains: Ints | None,
    word: str = input_name("spread"),
    *,
    once: bool = False,
) -> None:
    """Check that the slots can be filled with copies spread evenly over failure domains.

    They can with no expert twice in a domain exactly where no domain has more slots than there are experts
    (``once``: that alone will do). Else, of D domains with slots, an expert of c copies has at most
    ``ceil(c / D) <= (c + D - 1) / D`` in each: summed over experts, that is what the largest domain can take. That no
    GPU may hold an expert twice limits it further. Exact: what is refused has no legal placement
    (:mod:`placement.experts.spread_feasibility`).

    Raises
    ------
    InfeasibleError
        If they cannot: what binds, and what would go.
    """
    if domains is None:
        return
    per_domain = np.bincount(domains, weights=slots_per_gpu).astype(np.int64)
    most = int(per_domain.max())
    used = int((per_domain > 0).sum())
    if most <= experts or (used > 1 and not once and can_spread(experts, slots_per_gpu, domains)):
        return
    if used == 1 or once:
        over = f"these {used} domains" if used > 1 else "one domain"
        raise InfeasibleError(
            f"{word}: a failure domain has {plural(most, 'slot')} per layer for {plural(experts, 'expert')}, "
            f"so that one would have two copies in it; over {over} at most {input_name('redundant')} "
            f"{experts * (used - 1)} goes, or use a narrower {input_name('spread')} or a wider "
            f"{input_name('ep')}."
        )
    total = int(per_domain.sum())
    room = (total + (used - 1) * experts) // used
    if most > room:
        what = f"with the copies of {plural(experts, 'expert')} spread evenly it can take {room}"
    else:
        what = (
            f"the copies of {plural(experts, 'expert')} cannot fill them spread evenly with no "
            f"two of one on a GPU; failure "
            f"domains have {'/'.join(map(str, per_domain[per_domain > 0].tolist()))} slots"
        )
    raise InfeasibleError(
        f"{word}: of {total} slots per layer one of {used} failure domains has {most}, and {what}: "
        f"{_what_would_go(experts, slots_per_gpu, domains)}; or use a narrower {input_name('spread')}, or an "
        f"{input_name('ep')} with failure domains that are more alike."
    )


def _what_would_go(experts: int, slots_per_gpu: Ints, domains: Ints) -> str:
    """Return, in words, how many copies can be spread: of slots dealt to GPUs in turn `redundant` in all."""
    gpus, redundant = slots_per_gpu.size, int(slots_per_gpu.sum()) - experts
    if np.array_equal(slots_per_gpu, spread_slots(experts, gpus, redundant)):
        fits = (
            fewer
            for fewer in range(redundant - 1, -1, -1)
            if can_spread(experts, spread_slots(experts, gpus, fewer), domains)
        )
        return f"at most {input_name('redundant')} {next(fits)} goes"  # without extra copies it always does
    left = slots_per_gpu.copy()
    while not can_spread(experts, left, domains):
        per_domain = np.bincount(domains, weights=left)
        left[np.argmax(np.where(domains == np.argmax(per_domain), left, -1))] -= 1
    fewer = int(slots_per_gpu.sum() - left.sum())
    return f"with {fewer} slot{'s' * (fewer > 1)} fewer there it goes"
