"""GPUs without a way out of their domain of their own: others of their node, else of their domain, stand in."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from topology.cluster import Gpu
from topology.routes.demand import Pairs, no_pairs

Bools = NDArray[np.bool_]


class Orphans:
    """GPUs whose NIC or leaf is missing, and who hands their bytes over, evenly.

    Parameters
    ----------
    has_nic:
        Which GPUs have a link out of their domain, ``[gpus]``.
    """

    def __init__(self, gpus: Sequence[Gpu], has_nic: Bools) -> None:
        by_node: dict[str, list[int]] = {}
        by_domain: dict[int, list[int]] = {}
        for number in np.flatnonzero(has_nic).tolist():
            by_node.setdefault(gpus[number].node, []).append(number)
            by_domain.setdefault(gpus[number].domain, []).append(number)
        self._stand_ins = {
            number: stand_ins
            for number in np.flatnonzero(~has_nic).tolist()
            if (stand_ins := by_node.get(gpus[number].node) or by_domain.get(gpus[number].domain))
        }
        self.mask: Bools = np.zeros(len(gpus), dtype=bool)
        self.mask[list(self._stand_ins)] = True

    def pairs_of_uniform(self, members: Bools, amount: float, domain: NDArray[np.int64]) -> Pairs:
        """Return the pairs between orphans and members of other domains, each with ``amount`` bytes."""
        who = np.flatnonzero(members)
        lost = np.flatnonzero(members & self.mask)
        if amount <= 0 or not len(lost):
            return no_pairs()
        there = np.repeat(lost, len(who)), np.tile(who, len(lost))
        rest = np.flatnonzero(members & ~self.mask)
        back = np.repeat(rest, len(lost)), np.tile(lost, len(rest))
        sources, targets = (np.concatenate(ends) for ends in zip(there, back, strict=True))
        away = domain[sources] != domain[targets]
        return sources[away], targets[away], np.full(int(away.sum()), amount)

    def replaced(self, pairs: Pairs) -> tuple[Pairs, Pairs]:
        """Return the pairs between those who stand in, and the hops to and from them inside domains."""
        sources, targets, amounts = pairs
        affected = self.mask[sources] | self.mask[targets]
        if not affected.any():
            return pairs, no_pairs()
        out: list[tuple[int, int, float]] = []
        hops: list[tuple[int, int, float]] = []
        for source, target, amount in zip(
            sources[affected].tolist(), targets[affected].tolist(), amounts[affected].tolist(), strict=True
        ):
            givers = self._stand_ins.get(source, [source])
            takers = self._stand_ins.get(target, [target])
            hops += [(source, giver, amount / len(givers)) for giver in givers if giver != source]
            hops += [(taker, target, amount / len(takers)) for taker in takers if taker != target]
            share = amount / (len(givers) * len(takers))
            out += [(giver, taker, share) for giver in givers for taker in takers]
        kept = [part[~affected] for part in pairs]
        new = _columns(out)
        joined = tuple(np.concatenate([old, more]) for old, more in zip(kept, new, strict=True))
        return (joined[0], joined[1], joined[2]), _columns(hops)


def _columns(rows: list[tuple[int, int, float]]) -> Pairs:
    table = np.array(rows, dtype=np.float64).reshape(-1, 3)
    return table[:, 0].astype(np.int64), table[:, 1].astype(np.int64), table[:, 2]
