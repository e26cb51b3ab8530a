"""The policies that take part in a replay, by name."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from placement.arrays import Experts, Floats
from placement.online.balancer import plan, start
from placement.online.engines import SGLANG_STEPS, VLLM_STEPS, VLLM_WINDOW, Eplb, Static
from placement.online.policy import Group
from placement.online.simulate import Entry
from placement.online.state import LEAST_GAIN, OnlineOptions
from topology.base.errors import InputError

OURS = "rackplan"
OURS_LINEAR = "rackplan-linear"
"""Ours as it runs in an engine that was given nothing: from the engine's own placement, without stored loads."""
NAMES = ("static", "vllm", "sglang", OURS, OURS_LINEAR)
SLOW_INTERVALS = 4
"""Times the usual interval that ours are replayed at too."""
DEFAULT = (*NAMES, f"{OURS}:1%")
"""Policies that are replayed where none is named."""


class Ours:
    """Our balancer (:mod:`placement.online.balancer`), with a budget of moves or without.

    ``linear``: nothing is known beforehand, and no budget limits the first re-plan, which leaves the engine's
    placement. ``steps``: from a re-plan to the next.
    """

    def __init__(self, group: Group, budget: float | None, *, steps: int, linear: bool = False) -> None:
        known = None if linear else group.scenarios
        price = max(LEAST_GAIN, group.move_steps / steps)
        self._state = start(
            group.experts,
            group.slots_per_gpu,
            layers=group.layers,
            stored=known,
            static=None if known is None else group.start,
            options=OnlineOptions(budget=budget, price=price, first_free=linear),
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
    """Reject names of no policy, and one that is there twice.

    Raises
    ------
    InputError
        With the name.
    """
    for index, name in enumerate(names):
        _entry(name, linear=False, steps_per_window=1)
        if name.strip().lower() in [earlier.strip().lower() for earlier in names[:index]]:
            raise InputError("duplicate; leave one out.", field="policy", value=name)


def entries(names: Sequence[str], *, steps_per_window: int, windows: int, planned: bool) -> list[Entry]:
    """Return the policies of some names at their engine's interval, ours also at :data:`SLOW_INTERVALS` times that.

    Parameters
    ----------
    names:
        Of :data:`NAMES`; ours with a budget after a colon: ``rackplan:5%``, ``rackplan:0.05``, ``rackplan:0``,
        ``rackplan:none`` (as without), ``rackplan-linear:1%``.
    steps_per_window, windows:
        Steps that a window stands for, and windows in all.
    planned:
        Whether a plan runs already; else engines begin with their own placement.

    Raises
    ------
    InputError
        If a name or a budget is none, or a name is there twice.
    """
    require_names(names)
    taking_part: list[Entry] = []
    for name in names:
        entry = _entry(name, linear=not planned, steps_per_window=steps_per_window)
        taking_part.append(entry)
        ours = name.strip().lower().partition(":")[0] == OURS
        if entry.budget != 0 and ours and SLOW_INTERVALS * entry.interval < windows - 1:
            taking_part.append(
                _entry(name, linear=False, steps_per_window=steps_per_window, times=SLOW_INTERVALS)
            )
    return taking_part


def that_apply(entries: Sequence[Entry], groups: Sequence[Group]) -> tuple[list[Entry], list[str]]:
    """Return the entries that can place these groups, and why each other one cannot."""
    applicable, why = [], []
    for entry in entries:
        try:
            for group in groups:
                entry.make(group)
        except InputError as error:
            why.append(f"{entry.name} left out: {error}")
        else:
            applicable.append(entry)
    return applicable, why


def _entry(text: str, *, linear: bool, steps_per_window: int, times: int = 1) -> Entry:
    """Return one policy at its engine's interval, or at some times that."""

    def every(steps: int) -> int:
        return max(1, round(steps / steps_per_window))

    label = text.strip().lower()
    name, colon, budget = label.partition(":")
    if colon and name not in (OURS, OURS_LINEAR):
        raise InputError(
            f"only {OURS} and {OURS_LINEAR} take a budget, like {OURS}:5%; leave it out.",
            field="policy",
            value=text,
        )
    if name in (OURS, OURS_LINEAR):
        part = budget_of(budget, text) if colon else None
        bare = name == OURS_LINEAR
        interval = times * every(VLLM_STEPS) if part != 0 else 0
        steps = max(1, interval * steps_per_window)
        make = partial(Ours, budget=part, steps=steps, linear=bare)
        return Entry(label, make, interval, linear=bare, budget=part)
    if name == "static":
        return Entry(name, Static, 0, budget=0.0)
    if name == "vllm":
        windows_kept = math.ceil(VLLM_WINDOW / steps_per_window)
        return Entry(name, lambda group: Eplb(group, windows_kept), every(VLLM_STEPS), linear=linear)
    if name == "sglang":
        windows = every(SGLANG_STEPS)
        return Entry(name, lambda group: Eplb(group, windows), windows, blocking=True, linear=linear)
    raise InputError(
        f"expected {', '.join(NAMES)} or {OURS}:BUDGET, like {OURS}:5%.", field="policy", value=text
    )


def budget_of(text: str, policy: str) -> float | None:
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
            f"a budget is a share of the copies, from 0 to 100 %: {OURS}:5%, {OURS}:0, {OURS}:none.",
            field="policy",
            value=policy,
        )
    return value
