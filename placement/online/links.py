"""What moving copies asks of the links, for many re-plans of one group: sources, bytes, seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from placement.arrays import Experts, Floats, Ints
from placement.migrate.steps import spread_over_sources
from placement.migrate.task import MigrationTask
from topology.base.errors import MissingFigureError
from topology.cluster import Cluster
from topology.routes import Pairs, Router, Traffic


@dataclass(frozen=True, eq=False)
class Fetched:
    """What is fetched where one placement follows another: source and target of each move, its bytes in float64."""

    source: Ints
    target: Ints
    size: Floats

    @property
    def bytes(self) -> float:
        """Bytes of all moves."""
        return float(self.size.sum())

    def on(self, gpus: Ints) -> Fetched:
        """Return the same between other GPUs: those of a replica, by their numbers in the cluster."""
        return Fetched(gpus[self.source], gpus[self.target], self.size)


def fetched(task: MigrationTask, new: Experts, node: Ints, domain: Ints, expert_bytes: Floats) -> Fetched:
    """Return what the GPUs of a group fetch from each other for ``new`` ``[layers, slots]``, by number in the group.

    Each move comes from the nearest GPU of the group that holds the expert, of those the one that sends least.
    ``node`` and ``domain`` ``[gpus]`` say where they are; ``expert_bytes`` ``[layers]`` is the size of one expert.
    """
    come = np.flatnonzero(task.problem.on_gpus(new) > task.held)
    layer, target, expert = np.unravel_index(come, task.held.shape)
    size = expert_bytes[layer]
    source = spread_over_sources(task.held, (layer, target, expert), (node, domain), size)
    return Fetched(source, target, size)


class Links:
    """The links of a cluster, and how long they take for what is fetched at once."""

    def __init__(self, cluster: Cluster) -> None:
        self._router = Router(cluster)
        self._gpus = len(cluster.gpus)

    def seconds(self, parts: Sequence[Fetched]) -> float | None:
        """Return seconds until the last byte has arrived, all fetched at once; None where a rate is not published."""
        source = np.concatenate([part.source for part in parts])
        if not source.size:
            return 0.0
        target = np.concatenate([part.target for part in parts])
        size = np.concatenate([part.size for part in parts])
        pair, at = np.unique(source * self._gpus + target, return_inverse=True)
        pairs = Pairs(pair // self._gpus, pair % self._gpus, np.bincount(at, weights=size).astype(np.float64))
        try:
            return self._router.loads(Traffic("moves", self._gpus, pairs=pairs)).bound_s
        except MissingFigureError:
            return None
