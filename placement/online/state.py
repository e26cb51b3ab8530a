"""What a balancer knows between two re-plans: options, stored scenarios, last windows, what is placed."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from placement.arrays import Experts, Floats, Ints, first_bad
from placement.online.memory import Memory
from placement.online.votes import relative
from topology.base.errors import InputError
from topology.base.npy import whole_numbers


@dataclass(frozen=True)
class OnlineOptions:
    """What a user may ask of the balancer.

    Attributes
    ----------
    budget:
        Largest part of all copies (layers x slots) that one re-plan may move; 0: nothing ever moves; None: no limit.
    history:
        Windows that are remembered; alike ones are one.
    first_free:
        Whether the first re-plan may move as much as it likes where what it finds is clearly worse than a plan
        (a linear placement, say).
    """

    budget: float | None = 0.05
    history: int = 8
    first_free: bool = True

    def __post_init__(self) -> None:
        if self.budget is not None and not 0 <= self.budget <= 1:
            raise InputError(
                f"`budget` {self.budget}: give a share of all copies from 0 to 1 (0.05 is 5 %), or None."
            )
        if isinstance(self.history, bool) or not isinstance(self.history, int) or self.history < 1:
            raise InputError(f"`history` {self.history}: give a number of windows, at least 1.")


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
    """

    options: OnlineOptions
    slots_per_gpu: Ints
    stored: Floats
    last: Floats
    memory: Memory
    static: Experts | None = None
    placed: Experts | None = None
    windows: int = 0

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
        return replace(self, stored=stored, last=load, memory=memory, windows=self.windows + 1)


def checked_loads(given: ArrayLike, name: str, shape: tuple[int, ...]) -> Floats:
    """Return loads as float64 ``shape`` (a 0 in it stands for any size).

    Raises
    ------
    InputError
        If they have another shape, or a load is negative or not finite.
    """
    try:
        loads = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"`{name}` is not an array of numbers.") from None
    if loads.ndim != len(shape) or any(
        want not in (0, size) for want, size in zip(shape, loads.shape, strict=True)
    ):
        want = ", ".join(str(size) if size else "any" for size in shape)
        raise InputError(f"`{name}` has shape {list(loads.shape)}, not [{want}].")
    bad = first_bad(loads)
    if bad:
        raise InputError(f"`{name}` has {loads[bad]} at {list(bad)}: loads must be finite and non-negative.")
    return loads


def checked_slots(given: ArrayLike) -> Ints:
    """Return slots of each GPU, int64 ``[gpus]``.

    Raises
    ------
    InputError
        If they are not whole numbers above 0.
    """
    slots = np.asarray(given)
    if slots.ndim != 1 or slots.size == 0 or slots.dtype.kind not in "iu" or (slots < 1).any():
        raise InputError(f"`slots_per_gpu` {slots.tolist()}: give each GPU a whole number of slots above 0.")
    return whole_numbers(slots)


def checked_placement(given: ArrayLike, state: OnlineState, name: str) -> Experts:
    """Return a placement as int32 ``[layers, slots]``; -1 stands for an empty slot.

    Raises
    ------
    InputError
        If its shape is another one, or an expert is named that does not exist.
    """
    placement = np.asarray(given)
    if placement.dtype.kind not in "iu" or placement.shape != (state.layers, state.slots):
        raise InputError(
            f"`{name}` has shape {list(placement.shape)} of {placement.dtype}, not whole numbers "
            f"[{state.layers}, {state.slots}] (layers, slots of {state.gpus} GPUs)."
        )
    if placement.size and (int(placement.min()) < -1 or int(placement.max()) >= state.experts):
        wrong = placement[(placement < -1) | (placement >= state.experts)][0]
        raise InputError(f"`{name}` names expert {wrong}, which is not in 0..{state.experts - 1}.")
    return np.ascontiguousarray(placement, dtype=np.int32)
