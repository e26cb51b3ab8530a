"""The slots of one EP group: which GPU, node and domain each lies on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from placement.arrays import Experts, Floats, Ints
from topology.base.errors import InputError


@dataclass(frozen=True, eq=False)
class Places:
    """GPUs with their slots, nodes and domains; domains and nodes are numbered as they come.

    Attributes
    ----------
    slots_per_gpu, domain, node:
        int64 ``[gpus]``. A node lies in one domain. A GPU may have no slots.
    speed:
        float64 ``[gpus]``: relative speed of each GPU; loads are even where each takes as long.
    """

    slots_per_gpu: Ints
    domain: Ints
    node: Ints
    speed: Floats

    @staticmethod
    def of(
        slots_per_gpu: ArrayLike,
        domain: ArrayLike,
        node: ArrayLike | None = None,
        speed: ArrayLike | None = None,
    ) -> Places:
        """Check and number; without ``node`` each domain is one node, without ``speed`` all GPUs are as fast.

        Raises
        ------
        InputError
            If the arrays differ in length, a node lies in two domains, there is no slot, or a speed is not positive.
        """
        slots = np.asarray(slots_per_gpu, dtype=np.int64)
        domains = _numbered(np.asarray(domain))
        nodes = domains if node is None else _numbered(np.asarray(node))
        pace = np.ones(slots.shape) if speed is None else np.asarray(speed, dtype=np.float64)
        if not slots.shape == domains.shape == nodes.shape == pace.shape or slots.ndim != 1:
            raise InputError(
                f"slots of {slots.size} GPUs, domains of {domains.size}, nodes of {nodes.size}, "
                f"speeds of {pace.size}: give one for each GPU."
            )
        if not (np.isfinite(pace) & (pace > 0)).all():
            raise InputError("speeds of GPUs: expected finite numbers above 0.")
        if slots.size == 0 or int(slots.min()) < 0 or int(slots.sum()) == 0:
            raise InputError("slots of GPUs: expected whole numbers from 0, some above.")
        if np.unique(np.stack([nodes, domains]), axis=1).shape[1] > np.unique(nodes).size:
            raise InputError("a node lies in more than one domain: give each node one domain.")
        return Places(slots.copy(), domains, nodes, pace.copy())

    @property
    def gpus(self) -> int:
        """GPUs of the group."""
        return int(self.slots_per_gpu.size)

    @property
    def slots(self) -> int:
        """Slots over all GPUs."""
        return int(self.slots_per_gpu.sum())

    @cached_property
    def slot_gpu(self) -> Experts:
        """GPU of each slot, int32 ``[slots]``, non-decreasing."""
        return np.repeat(np.arange(self.gpus, dtype=np.int32), self.slots_per_gpu)

    @cached_property
    def slot_domain(self) -> Ints:
        """Domain of each slot, ``[slots]``."""
        where: Ints = self.domain[self.slot_gpu]
        return where

    @cached_property
    def slot_node(self) -> Ints:
        """Node of each slot, ``[slots]``."""
        where: Ints = self.node[self.slot_gpu]
        return where

    @property
    def domains(self) -> int:
        """Number of domains."""
        return int(self.domain.max()) + 1

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return int(self.node.max()) + 1

    @cached_property
    def domain_slots(self) -> Ints:
        """Slots of each domain, ``[domains]``."""
        return np.bincount(self.slot_domain, minlength=self.domains)

    @cached_property
    def node_slots(self) -> Ints:
        """Slots of each node, ``[nodes]``."""
        return np.bincount(self.slot_node, minlength=self.nodes)

    @cached_property
    def node_domain(self) -> Ints:
        """Domain of each node, ``[nodes]``."""
        where = np.zeros(self.nodes, dtype=np.int64)
        where[self.node] = self.domain
        return where

    def fair(self, part: Ints) -> Floats:
        """Share of the load that is even for each part: the speed of its GPUs with slots; ``part`` ``[gpus]``."""
        used = np.where(self.slots_per_gpu > 0, self.speed, 0.0)
        share: Floats = np.bincount(part, weights=used) / used.sum()
        return share


def _numbered(names: np.ndarray) -> Ints:
    """Number names from 0 in the order in which they first come."""
    if names.ndim != 1 or names.size == 0:
        return np.zeros(names.size, dtype=np.int64)
    _, first, inverse = np.unique(names, return_index=True, return_inverse=True)
    rank = np.empty(first.size, dtype=np.int64)
    rank[np.argsort(first)] = np.arange(first.size)
    number: Ints = rank[inverse.reshape(-1)]
    return number
