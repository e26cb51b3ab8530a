"""How an assignment shares the routed tokens: each GPU's part, and the slots it touches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cost.assignment import Assignment
from cost.loads import ExpertLoads
from cost.split import Split, slot_shares
from topology.errors import InputError


@dataclass(frozen=True, eq=False)
class ExpertUse:
    """What some layers' experts ask of each GPU of their EP group, by scenario.

    Attributes
    ----------
    share:
        Fraction of a layer's token-expert pairs that a GPU receives, ``[scenarios, layers, gpus]``.
    slot_share:
        The same for each slot, ``[scenarios, layers, slots]``.
    slot_gpu:
        GPU of each slot, ``[slots]``.
    experts, top_k:
        Logical experts, and how many of them a token uses.
    repeats:
        How many equal layers each row stands for.
    """

    share: NDArray[np.float64]
    slot_share: NDArray[np.float64]
    slot_gpu: NDArray[np.int32]
    experts: int
    top_k: int
    repeats: int = 1

    @property
    def gpus(self) -> int:
        """GPUs of the EP group."""
        return int(self.share.shape[2])

    def touched_slots(self, tokens: float) -> NDArray[np.float64]:
        """Expected slots of each GPU that some of ``tokens`` tokens use, ``[scenarios, layers, gpus]``.

        A token uses a slot with probability ``top_k * slot_share``, so a slot is read with probability
        ``1 - (1 - p) ** tokens``: nearly all of them at large batch, few at small.
        """
        chance = np.clip(self.top_k * self.slot_share, 0.0, 1.0)
        touched = -np.expm1(tokens * np.log1p(-np.minimum(chance, 1 - 1e-15)))
        starts = np.searchsorted(self.slot_gpu, np.arange(self.gpus))
        sums = np.add.reduceat(np.pad(touched, ((0, 0), (0, 0), (0, 1))), starts, axis=2)
        return np.where(np.bincount(self.slot_gpu, minlength=self.gpus) > 0, sums, 0.0)

    def token_share(self) -> NDArray[np.float64]:
        """Fraction of the tokens that a GPU receives, one copy a GPU, ``[scenarios, layers, gpus]``.

        A GPU with share ``s`` of the pairs stands for ``m = s * experts`` equally likely experts, and a token
        misses it with probability ``C(experts - m, top_k) / C(experts, top_k)``: exact for equal loads.
        A part of an expert draws no more tokens than it has pairs.
        """
        held = self.share * self.experts
        missed = np.ones_like(held)
        for draw in range(self.top_k):
            missed *= np.clip((self.experts - held - draw) / (self.experts - draw), 0.0, 1.0)
        return np.minimum(1.0 - missed, self.top_k * self.share)


def expert_use(
    assignment: Assignment,
    loads: ExpertLoads,
    top_k: int,
    *,
    split: Split = "even",
    nodes: NDArray[np.int64] | None = None,
    speed: NDArray[np.float64] | None = None,
) -> ExpertUse:
    """Return the use of ``assignment`` under ``loads``, an expert's tokens split over its copies as the engine does.

    ``split``, ``nodes`` and ``speed``: as for :func:`cost.split.slot_shares`; an LP splits each scenario anew.

    Raises
    ------
    InputError
        If the loads are of other layers or experts than the assignment, or the split is not known.
    """
    tokens = loads.tokens
    if tokens.shape[1:] != (assignment.layers, assignment.experts):
        raise InputError(
            f"loads of {tokens.shape[1]} layers x {tokens.shape[2]} experts do not fit an assignment of "
            f"{assignment.layers} layers x {assignment.experts} experts."
        )
    fraction = loads.normalised / tokens.shape[2]
    shares = [
        None
        if split == "even"  # divided by the copies, not multiplied: the same bits as ever
        else slot_shares(assignment, split, load=scenario, nodes=nodes, speed=speed)
        for scenario in fraction
    ]
    scenarios = list(zip(fraction, shares, strict=True))
    share = np.stack([assignment.gpu_load(scenario, part) for scenario, part in scenarios])
    slot_share = np.stack([assignment.slot_load(scenario, part) for scenario, part in scenarios])
    return ExpertUse(share, slot_share, assignment.slot_gpu, assignment.experts, top_k)


def balanced_use(
    layers: int,
    slots_per_gpu: NDArray[np.int64],
    experts: int,
    top_k: int,
    speed: NDArray[np.float64] | None = None,
) -> ExpertUse:
    """Return the use of an ideal placement: every GPU with slots receives the same, its slots all alike.

    With ``speed`` ``[gpus]`` it receives in proportion to that, so that all take equally long.

    No placement receives less on its busiest GPU. (At a few tokens a step skew may still help a little: fewer
    experts are read.)
    """
    gpus = len(slots_per_gpu)
    slot_gpu = np.repeat(np.arange(gpus, dtype=np.int32), slots_per_gpu)
    weight = np.where(slots_per_gpu > 0, 1.0 if speed is None else speed, 0.0)
    share = weight / weight.sum()
    per_slot = share / np.maximum(slots_per_gpu, 1)
    shape = (1, 1)
    return ExpertUse(
        np.broadcast_to(share, (*shape, gpus)),
        np.broadcast_to(per_slot[slot_gpu], (*shape, len(slot_gpu))),
        slot_gpu,
        experts,
        top_k,
        repeats=layers,
    )
