"""What placed experts ask of each GPU of their EP group: tokens that it receives, slots that it reads."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from cost.experts.assignment import Assignment, sum_by_gpu
from cost.experts.dispatch import DispatchPolicy, slot_shares
from cost.experts.hits import TokenHits
from cost.experts.loads import ExpertLoads
from topology.base.errors import InputError


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
    hits:
        What the tokens of routing traces reach (:func:`cost.experts.hits.token_hits`); None: experts are taken to be
        chosen independently of each other.
    """

    share: NDArray[np.float64]
    slot_share: NDArray[np.float64]
    slot_gpu: NDArray[np.int32]
    experts: int
    top_k: int
    repeats: int = 1
    hits: TokenHits | None = None

    @property
    def gpus(self) -> int:
        """GPUs of the EP group."""
        return int(self.share.shape[2])

    @cached_property
    def digest(self) -> bytes:
        """A few bytes that are equal for equal uses, as a key: the arrays themselves are long."""
        found = blake2b(f"{self.experts} {self.top_k} {self.repeats}".encode(), digest_size=20)
        hits = (
            () if self.hits is None else (self.hits.gpus, self.hits.pairs, self.hits.nodes, self.hits.domains)
        )
        for array in (self.slot_gpu, self.share, self.slot_share, *hits):
            found.update(f"{array.dtype}{array.shape}".encode())
            found.update(np.ascontiguousarray(array).data)
        return found.digest()

    def touched_slots(self, tokens: float) -> NDArray[np.float64]:
        """Expected slots of each GPU that some of ``tokens`` tokens use, ``[scenarios, layers, gpus]``.

        A token uses a slot with probability ``top_k * slot_share``, so a slot is read with probability
        ``1 - (1 - p) ** tokens``: nearly all of them at large batch, few at small.
        """
        touched = -np.expm1(tokens * self._log_missed)
        return sum_by_gpu(touched, self.slot_gpu, self.gpus)

    @cached_property
    def _log_missed(self) -> NDArray[np.float64]:
        """Log of the chance that a token misses a slot, ``[scenarios, layers, slots]``, the same at every batch."""
        chance = np.clip(self.top_k * self.slot_share, 0.0, 1.0)
        found: NDArray[np.float64] = np.log1p(-np.minimum(chance, 1 - 1e-15))
        return found

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
    split: DispatchPolicy = "even",
    nodes: NDArray[np.int64] | None = None,
    speed: NDArray[np.float64] | None = None,
) -> ExpertUse:
    """Return the use of ``assignment`` under ``loads``, an expert's tokens split over its copies as the engine does.

    ``split``, ``nodes`` and ``speed``: as for :func:`cost.experts.dispatch.slot_shares`; an LP splits each scenario
    anew.

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
    slot_share = np.stack([assignment.slot_load(*each) for each in zip(fraction, shares, strict=True)])
    share = sum_by_gpu(slot_share, assignment.slot_gpu, assignment.gpus)
    return ExpertUse(share, slot_share, assignment.slot_gpu, assignment.experts, top_k)


def balanced_use(
    layers: int,
    slots_per_gpu: NDArray[np.int64],
    experts: int,
    top_k: int,
    speed: NDArray[np.float64] | None = None,
) -> ExpertUse:
    """Return the use of an ideal placement: every GPU with slots receives the same, spread evenly over its slots.

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
