"""Replay recorded windows through online policies: each plans on what it saw and is scored on what comes next.

A window stands for a number of steps. A placement that is made at the end of a window is charged with its moves and
serves the windows after it, until the next one: no policy sees a window before it was scored on it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from placement.arrays import Experts, Floats
from placement.budget import Budget
from placement.online.policy import Group, MakePolicy, Policy
from topology.base.errors import InputError

Placed = Sequence[Experts]
"""Where experts lie, ``[layers, slots]`` for each EP group."""


@dataclass(frozen=True, eq=False)
class Step:
    """One step under one load: its seconds, of which ``links_s`` are on links; balancedness ``[layers]``."""

    seconds: float
    links_s: float
    balancedness: Floats

    @property
    def shared(self) -> float:
        """Seconds that steps lose to a second of moves: their bytes share the links, and sending takes longer."""
        return self.links_s / self.seconds


@dataclass(frozen=True)
class Moves:
    """What a re-plan moves over all replicas; seconds on the links, None where a rate is unknown."""

    copies: int
    bytes: float
    seconds: float | None


class Costs(Protocol):
    """What steps and moves cost; :class:`placement.online.setting.PlanCosts` is that of a plan."""

    @property
    def even_s(self) -> float:
        """Seconds of a step with experts perfectly balanced."""

    def step(self, window: Floats, placed: Placed) -> Step:
        """Return a step under a load, tokens ``[layers, experts]`` of all groups' layers in order."""

    def moves(self, old: Placed, new: Placed) -> Moves:
        """Return what it takes to go from one placement to another."""


@dataclass(frozen=True, eq=False)
class Setting:
    """What is replayed on.

    Attributes
    ----------
    groups:
        The EP groups: each has its rows of a window, the groups before it first.
    costs:
        Of steps and moves.
    copies:
        Copies of all groups and replicas: what is moved is a part of them.
    steps_per_window:
        Steps that a window stands for.
    tokens_per_step:
        Output tokens (prefill: input tokens) of one step, over all GPUs.
    """

    groups: tuple[Group, ...]
    costs: Costs
    copies: int
    steps_per_window: int
    tokens_per_step: float

    def __post_init__(self) -> None:
        if self.steps_per_window < 1:
            raise InputError(f"`steps_per_window` {self.steps_per_window}: expected 1 or more.")

    @property
    def layers(self) -> int:
        """Layers of all groups."""
        return sum(group.layers for group in self.groups)

    def parts(self, window: Floats) -> list[Floats]:
        """Return the rows of each group."""
        ends = np.cumsum([group.layers for group in self.groups])[:-1]
        return np.split(window, ends)


@dataclass(frozen=True, eq=False)
class Entry:
    """A policy that takes part.

    Attributes
    ----------
    name:
        As it was asked for: ``vllm``, ``rackplan:5%``.
    make:
        Makes it for one EP group.
    interval:
        Windows from one re-plan to the next; the first follows the first window. 0: never.
    blocking:
        Whether steps wait for the moves, as SGLang's do; else moves share the links with steps that go on.
    linear:
        Whether it begins as engines do, slot j with expert j mod E; else with the groups' ``start``.
    budget:
        Largest part of the copies that one re-plan of ours moves; None: no limit, or no policy of ours.
    """

    name: str
    make: MakePolicy
    interval: int = 1
    blocking: bool = False
    linear: bool = False
    budget: float | None = None


@dataclass(frozen=True)
class Replan:
    """One re-plan, at the end of ``window``: what it moved, and the seconds that steps lost to that."""

    window: int
    moves: Moves
    lost_s: float


@dataclass(frozen=True, eq=False)
class Run:
    """How one policy fared.

    Attributes
    ----------
    balancedness:
        ``[windows - 1, layers]``: from the second window on.
    step_s:
        Seconds of a step, ``[windows - 1]``.
    cpu_s:
        Processor time that its planning took here: measured, another time another.
    """

    entry: Entry
    setting: Setting
    balancedness: Floats
    step_s: Floats
    replans: tuple[Replan, ...]
    cpu_s: float

    @property
    def by_window(self) -> Floats:
        """Balancedness of each scored window, mean over layers."""
        by_window: Floats = self.balancedness.mean(axis=1)
        return by_window

    @property
    def mean(self) -> float:
        """Mean balancedness over scored windows and layers."""
        return float(self.balancedness.mean())

    @property
    def worst(self) -> float:
        """The worst window's balancedness, mean over layers."""
        return float(self.by_window.min())

    @property
    def copies_moved(self) -> float:
        """Part of the copies that a re-plan moves, mean over re-plans; 0 without any."""
        moved = [replan.moves.copies for replan in self.replans]
        return sum(moved) / len(moved) / self.setting.copies if moved else 0.0

    @property
    def bytes_moved(self) -> float:
        """Bytes of all moves."""
        return float(sum(replan.moves.bytes for replan in self.replans))

    @property
    def imbalance_s(self) -> float:
        """Seconds that steps took longer than with experts perfectly balanced."""
        return float((self.step_s - self.setting.costs.even_s).sum() * self.setting.steps_per_window)

    @property
    def moves_s(self) -> float:
        """Seconds that steps lost to moves."""
        return float(sum(replan.lost_s for replan in self.replans))

    @property
    def tokens(self) -> float:
        """Tokens of all scored windows: every policy serves the same steps."""
        return self.setting.tokens_per_step * self.setting.steps_per_window * len(self.step_s)

    @cached_property
    def seconds(self) -> float:
        """Seconds of all scored windows, moves too."""
        return float(self.step_s.sum() * self.setting.steps_per_window) + self.moves_s

    @property
    def tok_s(self) -> float:
        """Tokens per second over all scored windows."""
        return self.tokens / self.seconds

    def tokens_gained(self, baseline: Run) -> float:
        """Tokens that it serves more in the seconds that ``baseline`` takes for all windows."""
        return (self.tok_s - baseline.tok_s) * baseline.seconds


@dataclass(frozen=True, eq=False)
class ReplayResult:
    """All policies on the same windows; ``windows`` were replayed of ``given``, fewer where Ctrl-C came."""

    runs: tuple[Run, ...]
    windows: int
    given: int
    interrupted: bool = False

    def run(self, name: str) -> Run | None:
        """Return the first run of that name."""
        return next((run for run in self.runs if run.entry.name == name), None)


def replay(
    windows: Floats,
    entries: Sequence[Entry],
    setting: Setting,
    *,
    budget: Budget | None = None,
    on_progress: Callable[[int, int, str], None] | None = None,
) -> ReplayResult:
    """Replay ``windows``, tokens ``[windows, layers, experts]``, through all policies.

    Ctrl-C, or a ``budget`` that is cancelled, ends it after the windows that all policies were scored on (one or
    more); ``on_progress`` is called with the number of the window, of all windows, and the name of a policy.

    Raises
    ------
    InputError
        If there are fewer than two windows, they are of another shape than the groups, some layer of one has no
        token, or a policy returns what is no placement.
    CancelledError
        If it is cancelled before a window was scored.
    """
    _check(windows, setting)
    budget = budget or Budget()
    costs = _Remembered(setting.costs)
    players = [_Player(entry, setting, costs) for entry in entries]
    scored = 0
    with budget:
        for number in range(len(windows) - 1):
            if budget.interrupted:
                break
            costs.forget()
            for player in players:
                if on_progress is not None:
                    on_progress(number + 1, len(windows), player.entry.name)
                player.see(number, windows[number])
                player.serve(windows[number + 1])
            scored = number + 1
    if not scored:
        budget.unless_cancelled()
        raise KeyboardInterrupt
    runs = tuple(player.run(scored) for player in players)
    return ReplayResult(runs, scored + 1, len(windows), budget.interrupted)


def _check(windows: Floats, setting: Setting) -> None:
    experts = setting.groups[0].experts
    if windows.ndim != 3 or windows.shape[1:] != (setting.layers, experts):
        raise InputError(
            f"windows have shape {list(windows.shape)}: expected [windows, {setting.layers}, {experts}]."
        )
    if len(windows) < 2:
        raise InputError(
            "only one window: a replay plans on one window and scores the next, so it needs at least two."
        )
    empty = np.argwhere(~windows.any(axis=2))
    if empty.size:
        window, layer = empty[0].tolist()
        raise InputError(
            f"window {window}, row {layer}: no tokens; leave the window out, or record for longer."
        )


class _Remembered:
    """Costs, computed once for policies with the same placements, such as vLLM's and SGLang's."""

    def __init__(self, costs: Costs) -> None:
        self._costs = costs
        self._steps, self._moves = dict[object, Step](), dict[object, Moves]()

    def forget(self) -> None:
        """Forget all: another window follows."""
        self._steps, self._moves = {}, {}

    def step(self, window: Floats, placed: Placed) -> Step:
        """Return a step under the load of the one window that is served now."""
        key = tuple(part.tobytes() for part in placed)
        if key not in self._steps:
            self._steps[key] = self._costs.step(window, placed)
        return self._steps[key]

    def moves(self, old: Placed, new: Placed) -> Moves:
        """Return what it takes to go from one placement to another."""
        key = tuple(part.tobytes() for placed in (old, new) for part in placed)
        if key not in self._moves:
            self._moves[key] = self._costs.moves(old, new)
        return self._moves[key]


class _Player:
    """A policy at work: what lies where now, and what it cost so far."""

    def __init__(self, entry: Entry, setting: Setting, costs: _Remembered) -> None:
        self.entry, self._setting, self._costs = entry, setting, costs
        self._policies: list[Policy] = [entry.make(group) for group in setting.groups]
        self._placed = [group.linear if entry.linear else group.start for group in setting.groups]
        self._balancedness: list[Floats] = []
        self._step_s: list[float] = []
        self._replans: list[Replan] = []
        self._moving: tuple[int, Moves] | None = None
        self._cpu_s: list[float] = []

    def see(self, number: int, window: Floats) -> None:
        """Show a window that has ended, and re-plan where it is time."""
        begun, placed = time.process_time(), list[Experts]()
        for policy, part in zip(self._policies, self._setting.parts(window), strict=True):
            policy.observe(part)
        if self.entry.interval and number % self.entry.interval == 0:
            placed = [policy.place(old) for policy, old in zip(self._policies, self._placed, strict=True)]
        self._cpu_s.append(time.process_time() - begun)
        if placed:
            for group, new in zip(self._setting.groups, placed, strict=True):
                _require_placed(self.entry.name, group, new)
            self._moving = number, self._costs.moves(self._placed, placed)
            self._placed = placed

    def serve(self, window: Floats) -> None:
        """Serve a window with what lies there now."""
        step = self._costs.step(window, self._placed)
        if self._moving is not None:
            (number, moves), share = self._moving, 1.0 if self.entry.blocking else step.shared
            self._replans.append(Replan(number, moves, (moves.seconds or 0.0) * share))
            self._moving = None
        self._balancedness.append(step.balancedness)
        self._step_s.append(step.seconds)

    def run(self, scored: int) -> Run:
        """Return how it fared on the first ``scored`` windows that were scored."""
        return Run(
            self.entry,
            self._setting,
            np.stack(self._balancedness[:scored]),
            np.array(self._step_s[:scored]),
            tuple(replan for replan in self._replans if replan.window < scored),
            sum(self._cpu_s[:scored]),
        )


def _require_placed(name: str, group: Group, placed: Experts) -> None:
    """Reject what no engine could serve with."""
    if placed.shape != group.start.shape or placed.min() < 0 or placed.max() >= group.experts:
        raise InputError(f"policy {name}: its placement {list(placed.shape)} has invalid slots or experts.")
    held = np.zeros((group.layers, group.experts), dtype=bool)
    held[np.arange(group.layers)[:, None], placed] = True
    if not held.all():
        layer, expert = np.argwhere(~held)[0].tolist()
        raise InputError(f"policy {name}: expert {expert} of layer {layer} has no copy in its placement.")


def run_names(runs: Sequence[Run]) -> list[str]:
    """Return a name for each run: that of its policy, with its interval where that takes part more than once."""
    names = [run.entry.name for run in runs]
    return [
        f"{name}, every {run.entry.interval}" if names.count(name) > 1 else name
        for name, run in zip(names, runs, strict=True)
    ]
