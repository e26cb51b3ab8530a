"""The policies that take part in a replay, by name."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

from placement.arrays import Experts, Floats
from placement.online.balancer import plan, start
from placement.online.engines import SGLANG_STEPS, VLLM_STEPS, VLLM_WINDOW, Eplb, Static
from placement.online.policy import Group
from placement.online.simulate import Entry
from placement.online.state import OnlineOptions
from topology.errors import InputError
from topology.units import plain_number

OURS = "rackplan"
OURS_LINEAR = "rackplan-linear"
"""Ours as it runs in an engine that was given nothing: from the engine's own placement, without stored loads."""
NAMES = ("static", "vllm", "sglang", OURS, OURS_LINEAR)
BUDGET = 0.05
"""Largest part of the copies that a re-plan of ours moves where nobody says."""
LONGER = 4
"""Times the usual interval that ours are replayed at too where no interval is given."""
DEFAULT = (*NAMES, f"{OURS}:1%")
"""Policies that are replayed where none is named."""

_LONGEST = 1e12
"""Of an interval, in steps or windows."""


class Ours:
    """Our balancer (:mod:`placement.online.balancer`) with a budget of moves.

    ``linear``: nothing is known beforehand, and the first re-plan leaves the engine's placement at once.
    """

    def __init__(self, group: Group, budget: float | None, *, linear: bool = False) -> None:
        known = None if linear else group.scenarios
        self._state = start(
            group.experts,
            group.slots_per_gpu,
            layers=group.layers,
            stored=known,
            static=None if known is None else group.start,
            options=OnlineOptions(budget=budget, first_free=linear),
        )

    def observe(self, window: Floats) -> None:
        """Remember the window."""
        self._state = self._state.seen(window)

    def place(self, old: Experts) -> Experts:
        """Return what the balancer decides."""
        decision = plan(self._state, old)
        self._state = decision.state
        return decision.slot_expert


def require_names(names: Sequence[str]) -> None:
    """Refuse names of no policy, and one that is there twice.

    Raises
    ------
    InputError
        With the name.
    """
    for index, name in enumerate(names):
        _entry(name, lambda _: 1, linear=False, steps_per_window=1)
        if name.strip().lower() in [other.strip().lower() for other in names[:index]]:
            raise InputError(f"`policy` {name}: it is there twice; leave one out.")


def entries(
    names: Sequence[str],
    intervals: Sequence[str] = (),
    *,
    steps_per_window: int,
    windows: int,
    planned: bool,
) -> list[Entry]:
    """Return the policies of some names, each at every interval.

    Parameters
    ----------
    names:
        Of :data:`NAMES`; ours with a budget after a colon: ``rackplan:5%``, ``rackplan:0.05``, ``rackplan:0``,
        ``rackplan:none``, ``rackplan-linear:1%``.
    intervals:
        ``3000`` steps or ``2w`` windows; none: each engine's own, ours at vLLM's and at :data:`LONGER` times that.
    steps_per_window, windows:
        Steps that a window stands for, and windows in all.
    planned:
        Whether a plan runs already; else engines begin with their own placement.

    Raises
    ------
    InputError
        If a name, a budget or an interval is none, or a name is there twice.
    """
    require_names(names)
    asked = interval_windows(intervals, steps_per_window)
    found: list[Entry] = []
    for name in names:
        for interval in cast("list[int | None]", asked) or [None]:

            def every(steps: int, interval: int | None = interval) -> int:
                return max(1, round(steps / steps_per_window)) if interval is None else interval

            entry = _entry(name, every, linear=not planned, steps_per_window=steps_per_window)
            found.append(entry)
            longer = LONGER * entry.interval
            if not asked and entry.budget != 0 and _is_ours(name) and longer < windows - 1:
                found.append(replace(entry, interval=longer))
            if not entry.interval:
                break
    return found


def that_apply(entries: Sequence[Entry], groups: Sequence[Group]) -> tuple[list[Entry], list[str]]:
    """Return the entries that can place these groups, and why each other one cannot."""
    kept, why = [], []
    for entry in entries:
        try:
            for group in groups:
                entry.make(group)
        except InputError as error:
            why.append(f"{entry.name} left out: {error}")
        else:
            kept.append(entry)
    return kept, why


def interval_windows(texts: Sequence[str], steps_per_window: int) -> list[int]:
    """Parse intervals, ``3000`` steps or ``2w`` windows, as windows; the same one is taken once.

    Raises
    ------
    InputError
        If one is no whole number from 1.
    """
    found = []
    for text in texts:
        given = text.strip().lower()
        value = plain_number(given.removesuffix("w")) or 0.0
        if not 1 <= value <= _LONGEST or not value.is_integer():
            raise InputError(f"`interval` {text}: expected steps, like 3000, or windows, like 2w; 1 or more.")
        found.append(int(value) if given.endswith("w") else max(1, round(value / steps_per_window)))
    return list(dict.fromkeys(found))


def _is_ours(name: str) -> bool:
    return name.strip().lower().partition(":")[0] == OURS


def _entry(text: str, every: Callable[[int], int], *, linear: bool, steps_per_window: int) -> Entry:
    """Return one policy; ``every`` makes windows of its engine's interval in steps."""
    said = text.strip().lower()
    name, colon, budget = said.partition(":")
    if colon and name not in (OURS, OURS_LINEAR):
        raise InputError(
            f"`policy` {text}: only {OURS} and {OURS_LINEAR} take a budget, like {OURS}:5%; leave it out."
        )
    if name in (OURS, OURS_LINEAR):
        part = budget_of(budget, text) if colon else BUDGET
        bare = name == OURS_LINEAR
        interval = every(VLLM_STEPS) if part != 0 else 0
        return Entry(said, lambda group: Ours(group, part, linear=bare), interval, linear=bare, budget=part)
    if name == "static":
        return Entry(name, Static, 0, budget=0.0)
    if name == "vllm":
        last = math.ceil(VLLM_WINDOW / steps_per_window)
        return Entry(name, lambda group: Eplb(group, last), every(VLLM_STEPS), linear=linear)
    if name == "sglang":
        windows = every(SGLANG_STEPS)
        return Entry(name, lambda group: Eplb(group, windows), windows, blocking=True, linear=linear)
    raise InputError(f"`policy` {text}: expected {', '.join(NAMES)} or {OURS}:BUDGET, like {OURS}:5%.")


def budget_of(text: str, said: str) -> float | None:
    """Parse ``5%``, ``0.05``, ``0`` or ``none``: the largest part of the copies that a re-plan moves.

    Raises
    ------
    InputError
        If it is no part from 0 to 1.
    """
    if text.strip() == "none":
        return None
    percent = text.strip().endswith("%")
    try:
        value = float(text.strip().removesuffix("%")) / (100 if percent else 1)
    except ValueError:
        value = math.nan
    if not 0 <= value <= 1:
        raise InputError(
            f"`policy` {said}: a budget is a part of the copies, from 0 to 100 %: {OURS}:5%, {OURS}:0, {OURS}:none."
        )
    return value
