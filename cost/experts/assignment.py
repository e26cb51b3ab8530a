"""The bare arrays that say which expert sits in which slot of which GPU."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from topology.base.shown import Shown


def sum_by_gpu(values: NDArray[np.float64], slot_gpu: NDArray[np.int32], gpus: int) -> NDArray[np.float64]:
    """Sum of each GPU's slots, ``[..., slots]`` to ``[..., gpus]``; 0 for a GPU without slots."""
    starts = np.searchsorted(slot_gpu, np.arange(gpus))
    if (np.diff(starts, append=slot_gpu.size) > 0).all():
        sums: NDArray[np.float64] = np.add.reduceat(values, starts, axis=-1)
        return sums
    ended = np.concatenate([values, np.zeros((*values.shape[:-1], 1))], axis=-1)
    sums = np.add.reduceat(ended, starts, axis=-1)
    return np.where(np.bincount(slot_gpu, minlength=gpus) > 0, sums, 0.0)


def sum_by_place(values: NDArray[np.float64], place: NDArray[np.int64]) -> NDArray[np.float64]:
    """Sum of each place's GPUs, ``[..., gpus]`` to ``[..., places]``; every place, numbered from 0, has some."""
    order = np.argsort(place, kind="stable")  # sums in a fixed order, as BLAS has none
    found: NDArray[np.float64] = np.add.reduceat(
        values[..., order], np.unique(place[order], return_index=True)[1], axis=-1
    )
    return found


def numbered(where: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return ``where`` with its values numbered from 0 in increasing order."""
    return np.unique(where, return_inverse=True)[1].reshape(-1).astype(np.int64)


@dataclass(frozen=True, eq=False, repr=False)
class Assignment(Shown):
    """Experts in the slots of one EP group, for some layers.

    Attributes
    ----------
    slot_expert:
        int32 ``[layers, slots]``: the logical expert whose copy sits in the slot.
    slot_gpu:
        int32 ``[slots]``, non-decreasing: the GPU of the slot, ``0 .. gpus - 1`` within the EP group. GPUs
        may have unequal numbers of slots; the same in every layer.
    experts, gpus:
        Number of logical experts and of GPUs in the group.
    """

    slot_expert: NDArray[np.int32]
    slot_gpu: NDArray[np.int32]
    experts: int
    gpus: int

    def brief(self) -> str:
        """Return layers, experts, slots and GPUs."""
        return f"{self.layers} layers, {self.experts} experts in {self.slots} slots on {self.gpus} GPUs"

    @property
    def layers(self) -> int:
        """Number of layers."""
        return int(self.slot_expert.shape[0])

    @property
    def slots(self) -> int:
        """Slots per layer over all GPUs."""
        return int(self.slot_expert.shape[1])

    @cached_property
    def slots_per_gpu(self) -> NDArray[np.int64]:
        """Slots of each GPU, ``[gpus]``."""
        return np.bincount(self.slot_gpu, minlength=self.gpus)

    @cached_property
    def copies(self) -> NDArray[np.int64]:
        """Copies of each expert, ``[layers, experts]``."""
        counts = np.bincount(self._cells.ravel(), minlength=self.layers * self.experts)
        return counts.reshape(self.layers, self.experts)

    @cached_property
    def _cells(self) -> NDArray[np.int64]:
        """Where the expert of each slot is in a flat table ``[layers, experts]``, ``[layers, slots]``."""
        return np.arange(self.layers)[:, None] * self.experts + self.slot_expert

    def slot_load(
        self, load: NDArray[np.float64], shares: NDArray[np.float64] | None = None
    ) -> NDArray[np.float64]:
        """Return the load of each slot, ``[layers, slots]``, for ``load`` ``[layers, experts]``.

        ``shares`` ``[layers, slots]``: fraction of its expert's load that a slot takes
        (:func:`cost.experts.dispatch.slot_shares`); None: even.
        """
        if shares is not None:
            return load.take(self._cells) * shares
        return (load / np.maximum(self.copies, 1)).take(self._cells)

    def gpu_load(
        self, load: NDArray[np.float64], shares: NDArray[np.float64] | None = None
    ) -> NDArray[np.float64]:
        """Return the load of each GPU, ``[layers, gpus]``; arguments as for :meth:`slot_load`."""
        return sum_by_gpu(self.slot_load(load, shares), self.slot_gpu, self.gpus)

    def balancedness(
        self, load: NDArray[np.float64], shares: NDArray[np.float64] | None = None
    ) -> NDArray[np.float64]:
        """Return mean GPU load over max GPU load, ``[layers]``, as EPLB's users define it."""
        per_gpu = self.gpu_load(load, shares)
        balance: NDArray[np.float64] = per_gpu.mean(axis=1) / per_gpu.max(axis=1)
        return balance
