"""What a balancer knows between two re-plans: options, stored scenarios, last windows, what is placed; on disk."""

from __future__ import annotations

import io
import json
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cost.traces.arrays import npz_array, npz_names
from placement.arrays import Experts, Floats, Ints
from placement.online.memory import Memory
from placement.online.votes import relative
from topology.errors import InputError, one_line
from topology.files import write_whole
from topology.reading import parse_json, require_version

_VERSION = 1
ARRAYS = (
    *("about", "slots_per_gpu", "stored", "last", "kinds", "kind_windows", "kind_age"),
    *("static", "placed"),
)
"""Of the file of a balancer's state."""


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
    least_gain:
        What a move must gain in its layer, in largest over mean GPU load, to be made: below it are the chances of a
        window.
    """

    budget: float | None = 0.05
    history: int = 8
    first_free: bool = True
    least_gain: float = 2e-5

    def __post_init__(self) -> None:
        if self.budget is not None and not 0 <= self.budget <= 1:
            raise InputError(
                f"`budget` {self.budget}: give a part of all copies from 0 to 1 (0.05 is 5 %), or None."
            )
        if isinstance(self.history, bool) or not isinstance(self.history, int) or self.history < 1:
            raise InputError(f"`history` {self.history}: give a whole number of windows, at least 1.")
        if not 0 <= self.least_gain < float("inf"):
            raise InputError(f"`least_gain` {self.least_gain}: give a number that is not negative.")


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

    def save(self, path: Path | str) -> None:
        """Write the state as ``.npz``, whole or not at all.

        Raises
        ------
        InputError
            If it cannot be written.
        """
        none = np.zeros((0, 0), dtype=np.int32)
        about = {
            "version": _VERSION,
            "windows": self.windows,
            "surprise": self.memory.surprise,
            "options": asdict(self.options),
        }
        made = io.BytesIO()
        np.savez(
            made,
            about=np.frombuffer(json.dumps(about, sort_keys=True).encode(), dtype=np.uint8),
            slots_per_gpu=self.slots_per_gpu,
            stored=self.stored,
            last=self.last,
            kinds=self.memory.loads,
            kind_windows=self.memory.windows,
            kind_age=self.memory.age,
            static=none if self.static is None else self.static,
            placed=none if self.placed is None else self.placed,
        )
        write_whole(Path(path), made.getvalue())

    @classmethod
    def load(cls, path: Path | str) -> OnlineState:
        """Read what :meth:`save` wrote.

        Raises
        ------
        InputError
            If the file is not that, or what it says does not fit together.
        """
        path = Path(path)
        found = _arrays(path)
        try:
            return cls._checked(found)
        except InputError as error:
            raise InputError(f"{path}: {error}") from None

    @classmethod
    def _checked(cls, found: dict[str, NDArray[np.generic]]) -> OnlineState:
        about = parse_json(found["about"].tobytes().decode("utf-8", "replace"), "`about`")
        require_version(about.get("version") if isinstance(about, dict) else None, "`about`", _VERSION)
        if not isinstance(about, dict) or set(about) != {"version", "windows", "surprise", "options"}:
            raise InputError("`about` is not that of a balancer's state.")
        if about["version"] != _VERSION:
            raise InputError(
                f"version {about['version']} of a balancer's state; this rackplan reads {_VERSION}."
            )
        windows, surprise, options = about["windows"], about["surprise"], about["options"]
        if isinstance(windows, bool) or not isinstance(windows, int) or windows < 0:
            raise InputError(f"`windows` {windows}: not a number of windows.")
        if isinstance(surprise, bool) or not isinstance(surprise, (int, float)) or not 0 <= surprise <= 1:
            raise InputError(f"`surprise` {surprise}: not a number from 0 to 1.")
        if not isinstance(options, dict) or set(options) != {field.name for field in fields(OnlineOptions)}:
            raise InputError("`options` are not those of a balancer.")
        if not isinstance(options["first_free"], bool) or any(
            isinstance(options[key], bool) or not isinstance(options[key], (int, float))
            for key in ("history", "least_gain", *(("budget",) if options["budget"] is not None else ()))
        ):
            raise InputError(f"`options` {options}: not those of a balancer.")
        slots = checked_slots(found["slots_per_gpu"])
        loads = {}
        for name, axes in (("stored", 3), ("last", 2), ("kinds", 3)):
            if found[name].ndim != axes or found[name].dtype != np.float64:
                raise InputError(f"`{name}` is not float64 of {axes} axes.")
            loads[name] = checked_loads(found[name], name, (0, *found["last"].shape)[-axes:])
        windows_of, age = (_counts(found[name], name) for name in ("kind_windows", "kind_age"))
        memory = Memory(loads["kinds"], windows_of, age, float(surprise))
        if not len(memory.loads) == len(memory.windows) == len(memory.age):
            raise InputError("`kinds`, `kind_windows` and `kind_age` are not of one length.")
        options = OnlineOptions(**options)
        state = cls(options, slots, loads["stored"], loads["last"], memory, windows=windows)
        if state.experts < 1 or state.slots < state.experts:
            raise InputError(f"{state.slots} slots for {state.experts} experts: each expert needs one.")
        placements = {
            name: checked_placement(found[name], state, name)
            for name in ("static", "placed")
            if found[name].size
        }
        return replace(state, static=placements.get("static"), placed=placements.get("placed"))


def _arrays(path: Path) -> dict[str, NDArray[np.generic]]:
    """Return the arrays of the file; nothing in it is run."""
    try:
        if set(npz_names(path)) != set(ARRAYS):
            raise InputError(f"{path}: not a balancer's state: other arrays are in it.")
        return {name: npz_array(path, name) for name in ARRAYS}
    except OSError as error:
        raise InputError(f"{path}: cannot be read as a balancer's state ({one_line(error)}).") from None


def _counts(given: NDArray[np.generic], name: str) -> Ints:
    if given.ndim == 1 and given.dtype == np.int64:
        counts = given.astype(np.int64)
        if (counts >= 0).all():
            return counts
    raise InputError(f"`{name}` is not int64 [kinds] of numbers that are not negative.")


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
    if not np.isfinite(loads).all() or (loads < 0).any():
        at = np.argwhere(~np.isfinite(loads) | (loads < 0))[0]
        raise InputError(
            f"`{name}` has {loads[tuple(at)]} at {at.tolist()}: loads are finite and not negative."
        )
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
    return slots.astype(np.int64)


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
