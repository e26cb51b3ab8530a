"""What a balancer knows between two re-plans: options, stored scenarios, last windows, what is placed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from placement.arrays import Experts, Floats, Ints, first_bad
from placement.experts.problem import Problem
from placement.online.memory import Memory
from placement.online.votes import relative
from topology.base.errors import InputError
from topology.base.npy import whole_numbers

LEAST_GAIN = 2e-5
"""Of largest over mean GPU load of a layer: what a move gains at least until the next re-plan.

Where costs of moves are not known it is their price too. SwiftBalancer (vLLM #22246) spends 1 to 2 ms on a layer's
re-plan and saves 5 to 8 ms a step of 58 layers; over 3,000 steps a copy of 288 then costs 1.5e-5 of what it saves.
"""
_FORGETTING = 0.9  # of promises, by each window since


@dataclass(frozen=True)
class OnlineOptions:
    """What a user may ask of the balancer.

    Attributes
    ----------
    budget:
        Largest part of all copies (layers x slots) that one re-plan may move; 0: nothing ever moves; None: all that
        pays.
    history:
        Windows that are remembered; alike ones are one.
    price:
        What a move costs, as by how much it must lower largest over mean GPU load of a layer until the next re-plan.
    first_free:
        Whether no budget limits the first re-plan, since an engine's own start lies there.
    """

    budget: float | None = None
    history: int = 8
    price: float = LEAST_GAIN
    first_free: bool = False

    def __post_init__(self) -> None:
        if self.budget is not None and not 0 <= self.budget <= 1:
            raise InputError(
                f"`budget` {self.budget}: give a share of all copies from 0 to 1 (0.05 is 5 %), or None."
            )
        if isinstance(self.history, bool) or not isinstance(self.history, int) or self.history < 1:
            raise InputError(f"`history` {self.history}: give a number of windows, at least 1.")


class Promise(NamedTuple):
    """A proposal and the gain that it promised, in largest over mean GPU load, summed over layers.

    ``before`` and ``after`` are ``[layers, slots]``; the proposal counts whether it was carried out or not.
    """

    before: Experts
    after: Experts
    gain: float


class Record(NamedTuple):
    """What was promised, and what of it the next windows kept; sums that forget."""

    promised: float = 0.0
    kept: float = 0.0

    def after(self, promised: float, kept: float) -> Record:
        """Return the record with one proposal more."""
        return Record(_FORGETTING * self.promised + promised, _FORGETTING * self.kept + kept)

    @property
    def trust(self) -> float:
        """The part of a promise to count on, from 0 to 1; 1 before the first window."""
        return min(1.0, max(0.0, self.kept / self.promised)) if self.promised else 1.0


@dataclass(frozen=True, eq=False)
class OnlineState:
    """All that a re-plan depends on besides what is placed; :func:`placement.online.balancer.start` makes one.

    Attributes
    ----------
    slots_per_gpu:
        int64 ``[gpus]``.
    stored:
        float64 ``[scenarios, layers, experts]``: known workloads, one of each group of alike ones, rows of mean 1,
        or all 0 where unknown.
    last:
        float64 ``[layers, experts]``: the last window, in the same form; all 0 before the first.
    memory:
        Kinds of windows seen, the last one included.
    static:
        int32 ``[layers, slots]``: the robust plan over ``stored`` where somebody has made one.
    placed:
        int32 ``[layers, slots]``: the answer of the last re-plan; None before the first.
    windows:
        Windows seen so far.
    promise, record:
        The last proposal, until a window has judged it; how much of those before came true.
    """

    options: OnlineOptions
    slots_per_gpu: Ints
    stored: Floats
    last: Floats
    memory: Memory
    static: Experts | None = None
    placed: Experts | None = None
    windows: int = 0
    promise: Promise | None = None
    record: Record = field(default_factory=Record)

    @property
    def layers(self) -> int:
        """Layers, 0 while nobody has said how many."""
        return int(self.last.shape[0])

    @property
    def experts(self) -> int:
        """Logical experts of a layer."""
        return int(self.last.shape[1])

    @property
    def gpus(self) -> int:
        """GPUs of the EP group."""
        return int(self.slots_per_gpu.size)

    @property
    def slots(self) -> int:
        """Slots of a layer over all GPUs."""
        return int(self.slots_per_gpu.sum())

    def seen(self, window: ArrayLike) -> OnlineState:
        """Return the state with one window more, ``[layers, experts]`` tokens of any scale.

        Raises
        ------
        InputError
            If its shape is another one, or a load is negative or not finite.
        """
        load = relative(checked_loads(window, "window", (self.layers, self.experts)))
        stored = self.stored if len(self.stored) else np.zeros((0, *load.shape))
        memory = self.memory.with_window(load, self.last, self.options.history)
        updated = replace(self, stored=stored, last=load, memory=memory, windows=self.windows + 1)
        judged = load.max(axis=1) > 0
        if self.promise is None or not judged.any():
            return updated
        restored, proposal, gain = self.promise
        gained = (updated.window.evaluate(restored) - updated.window.evaluate(proposal))[judged]
        return replace(updated, promise=None, record=self.record.after(gain, float(gained.sum())))

    @property
    def window(self) -> Problem:
        """The problem of the last window; a layer without tokens counts as even."""
        load = self.last.copy()
        load[load.max(axis=1) <= 0] = 1.0
        return Problem(load, self.slots_per_gpu)


def checked_loads(values: ArrayLike, name: str, shape: tuple[int, ...]) -> Floats:
    """Return loads as float64 ``shape`` (a 0 in it stands for any size).

    Raises
    ------
    InputError
        If they have another shape, or a load is negative or not finite.
    """
    try:
        loads = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"`{name}` is not an array of numbers.") from None
    if loads.ndim != len(shape) or any(
        want not in (0, size) for want, size in zip(shape, loads.shape, strict=True)
    ):
        want = ", ".join(str(size) if size else "any" for size in shape)
        raise InputError(f"`{name}` has shape {list(loads.shape)}, not [{want}].")
    at = first_bad(loads)
    if at:
        raise InputError(f"`{name}` has {loads[at]} at {list(at)}: loads must be finite and non-negative.")
    return loads


def checked_slots(values: ArrayLike) -> Ints:
    """Return slots of each GPU, int64 ``[gpus]``.

    Raises
    ------
    InputError
        If they are not whole numbers above 0.
    """
    slots = np.asarray(values)
    if slots.ndim != 1 or slots.size == 0 or slots.dtype.kind not in "iu" or (slots < 1).any():
        raise InputError(f"`slots_per_gpu` {slots.tolist()}: give each GPU a whole number of slots above 0.")
    return whole_numbers(slots)


def checked_placement(values: ArrayLike, state: OnlineState, name: str) -> Experts:
    """Return a placement as int32 ``[layers, slots]``; -1 stands for an empty slot.

    Raises
    ------
    InputError
        If its shape is another one, or an expert is named that does not exist.
    """
    placement = np.asarray(values)
    if placement.dtype.kind not in "iu" or placement.shape != (state.layers, state.slots):
        raise InputError(
            f"`{name}` has shape {list(placement.shape)} of {placement.dtype}, not whole numbers "
            f"[{state.layers}, {state.slots}] (layers, slots of {state.gpus} GPUs)."
        )
    if placement.size and (int(placement.min()) < -1 or int(placement.max()) >= state.experts):
        unknown = placement[(placement < -1) | (placement >= state.experts)][0]
        raise InputError(f"`{name}` names expert {unknown}, which is not in 0..{state.experts - 1}.")
    return np.ascontiguousarray(placement, dtype=np.int32)
