"""Re-plan experts: from what runs to what the loads ask for, with few moves or within a budget of them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from placement.replan.budget import reaching, within
from placement.replan.descend import explore
from placement.replan.front import Front
from placement.replan.relabel import align_slots, relabel
from placement.replan.restore import restore
from topology.errors import InfeasibleError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from placement.replan.front import CurvePoint
    from placement.replan.task import ReplanTask

__all__ = ["KNEE", "FewMoves", "few_moves", "fresh_placement"]

KNEE = 0.01
"""Without a budget: the fewest moves within this fraction of a fresh placement's balancedness."""

_MARGIN = 0.001  # of it is left for a fresh placement that is searched longer
_PASSES = 1_000_000  # more than any time limit allows


@dataclass(frozen=True, eq=False)
class FewMoves:
    """A placement near the old one.

    Attributes
    ----------
    slot_expert:
        int32 ``[layers, slots]``; copies that stay keep their slot.
    start:
        The same with the fewest moves that restore every expert: the old placement where it is complete.
    fresh:
        A placement made without regard to the old one, on the GPUs that hold most of it already.
    curve:
        The front from the fewest moves to the best balance.
    interrupted:
        Whether Ctrl-C ended the search.
    log:
        What ran, in words.
    """

    slot_expert: NDArray[np.int32]
    start: NDArray[np.int32]
    fresh: NDArray[np.int32]
    curve: tuple[CurvePoint, ...]
    interrupted: bool
    log: tuple[str, ...]


def few_moves(
    task: ReplanTask,
    *,
    max_moves: int | None = None,
    only_restore: bool = False,
    time_limit_s: float = 0.0,
    seed: int = 0,
    fresh: NDArray[np.int32] | None = None,
) -> FewMoves:
    """Return a placement for the loads of ``task`` after few moves.

    With ``max_moves`` (over all layers) the best balanced one that is found within them; without, the one with the
    fewest moves within :data:`KNEE` of a fresh placement's balancedness; with ``only_restore`` the one with the
    fewest moves of all. No layer is worse than ``start``. ``time_limit_s = 0`` is one deterministic pass; more time
    makes more passes. ``fresh`` ``[layers, slots]`` is made here if not given.

    Raises
    ------
    InfeasibleError
        If restoring every expert takes more than ``max_moves``.
    """
    began = time.monotonic()
    start = restore(task, seed=seed)
    needed = int(task.moves(start).sum())
    if max_moves is not None and needed > max_moves:
        raise InfeasibleError(
            f"{needed} moves are needed at least, for every expert to have a copy where it may lie, and "
            f"{max_moves} are allowed: allow {needed}."
        )
    fresh = relabel(task, fresh_placement(task, seed=seed) if fresh is None else fresh)
    front = Front(task, start)
    log = [f"{needed} moves restore every expert"] if needed else []
    interrupted = False
    if not only_restore:
        front.add(np.arange(task.problem.layers), fresh)
        interrupted, ran = _search(front, fresh, began, time_limit_s, seed)
        log.append(ran)
    if only_restore:
        chosen = [0] * task.problem.layers
    elif max_moves is not None:
        chosen = within(front, max_moves)
    else:
        chosen = reaching(front, float(task.balancedness(fresh).mean()) * (1 - KNEE + _MARGIN))
    found = align_slots(task, front.placement(chosen))
    return FewMoves(found, align_slots(task, start), fresh, tuple(front.curve()), interrupted, tuple(log))


def _search(
    front: Front, fresh: NDArray[np.int32], began: float, time_limit_s: float, seed: int
) -> tuple[bool, str]:
    """Make one whole pass, and more while there is time; return whether Ctrl-C came first, and what ran."""
    passes, interrupted = 0, False
    try:
        explore(front, fresh, seed=seed)
        passes = 1
        while passes < _PASSES and time.monotonic() - began < time_limit_s:
            explore(front, fresh, seed=seed + passes, keep_on=lambda: time.monotonic() - began < time_limit_s)
            passes += 1
    except KeyboardInterrupt:
        interrupted = True
    text = f"cycles of copies by exact assignment: {passes} passes, seed {seed}"
    return interrupted, text + ("; interrupted: the best so far is kept" if interrupted else "")


def fresh_placement(task: ReplanTask, *, seed: int = 0) -> NDArray[np.int32]:
    """Return a placement for the loads alone, ``[layers, slots]``: that of the fast path."""
    from placement.scenarios import place_over_scenarios, scenario_problem

    problem = task.problem
    scenarios = scenario_problem(
        task.tokens,
        problem.slots_per_gpu,
        speed=problem.gpu_speed,
        spread=problem.spread,
        objective=task.objective,
    )
    result = place_over_scenarios(scenarios, time_limit_s=0.0, seed=seed, eplb_groups=None, nodes=1)
    return result.assignment.slot_expert
