"""The policies that take part in a replay, by name."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from placement.arrays import Experts, Floats
from placement.migrate.migration import migrate
from placement.online.engines import SGLANG_STEPS, VLLM_STEPS, VLLM_WINDOW, Eplb, Static
from placement.online.flashlb import STEPS as ASCEND_STEPS
from placement.online.flashlb import FlashLB
from placement.online.policy import Group
from placement.online.simulate import Entry
from placement.online.swift import SwiftBalancer
from topology.errors import InputError

OURS = "rackplan"
NAMES = ("static", "vllm", "sglang", "flashlb", "swift", OURS)
BUDGET = 0.05
"""Largest part of the copies that a re-plan of ours moves where nobody says."""
DEFAULT = (*NAMES, f"{OURS}:1%")
"""Policies that are replayed where none is named."""


class Ours:
    """Our balancer with a budget of moves."""

    def __init__(self, group: Group, budget: float | None) -> None:
        self._group, self._budget = group, budget
        self._window = np.zeros((group.layers, group.experts))

    def observe(self, window: Floats) -> None:
        """Add the window to the load since the last re-plan."""
        self._window = self._window + window

    def place(self, old: Experts) -> Experts:
        """Return what the balancer decides."""
        window, self._window = self._window, np.zeros_like(self._window)
        if self._budget == 0:
            return old
        known = self._group.scenarios
        loads = window[None] if known is None else np.concatenate([known, window[None]])
        task = self._group.problem(loads)
        most = None if self._budget is None else math.floor(self._budget * old.size)
        from placement.migrate.task import migration_task

        return migrate([migration_task(task, old)], max_moves=most).placements[0].slot_expert


def entries(
    names: Sequence[str], *, steps_per_window: int, layers: int, interval: int | None = None, planned: bool
) -> list[Entry]:
    """Return the policies of some names, at their engines' intervals or all at ``interval`` windows.

    Parameters
    ----------
    names:
        Of :data:`NAMES`; ours with a budget after a colon: ``rackplan:5%``, ``rackplan:0.05``, ``rackplan:0``,
        ``rackplan:none``.
    steps_per_window, layers:
        Steps that a window stands for, and layers with experts: an interval in steps becomes one in windows.
    planned:
        Whether a plan runs already; else engines begin with their own placement.

    Raises
    ------
    InputError
        If a name or a budget is none, or one is there twice.
    """
    found: list[Entry] = []
    for name in names:
        entry = _entry(name, steps_per_window, layers, interval, planned)
        if any(entry.name == other.name for other in found):
            raise InputError(f"`policy` {name}: it is there twice; leave one out.")
        found.append(entry)
    return found


def _entry(text: str, steps_per_window: int, layers: int, interval: int | None, planned: bool) -> Entry:
    name, colon, budget = text.strip().lower().partition(":")
    if colon and name != OURS:
        raise InputError(f"`policy` {text}: only {OURS} takes a budget, like {OURS}:5%; leave it out.")

    def every(steps: int) -> int:
        return max(1, round(steps / steps_per_window)) if interval is None else interval

    if name == "static":
        return Entry(name, Static, 0)
    if name == "vllm":
        last = math.ceil(VLLM_WINDOW / steps_per_window)
        return Entry(name, lambda group: Eplb(group, last), every(VLLM_STEPS), linear=not planned)
    if name == "sglang":
        windows = every(SGLANG_STEPS)
        return Entry(name, lambda group: Eplb(group, windows), windows, blocking=True, linear=not planned)
    if name in ("flashlb", "swift"):
        make = FlashLB if name == "flashlb" else SwiftBalancer
        return Entry(name, make, every(ASCEND_STEPS + layers), linear=not planned)
    if name == OURS:
        part = budget_of(budget, text) if colon else BUDGET
        return Entry(text.strip().lower(), lambda group: Ours(group, part), every(VLLM_STEPS), budget=part)
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
