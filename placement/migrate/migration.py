"""Migration of experts: from what runs to what the loads ask for, with few moves or within a budget of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from placement.anti_affinity import spread_evenly
from placement.arrays import Experts
from placement.migrate.dispatch_refinement import SplitFront
from placement.migrate.front import CurvePoint, Front, along_hulls, reaching, within
from placement.migrate.start import align_slots, fresh_near, restore
from placement.migrate.task import MigrationTask
from topology.errors import InfeasibleError

KNEE = 0.01
"""Without a budget: the fewest moves within this fraction of a fresh placement's balancedness."""

_LONGER = 1.002  # a fresh placement that is searched longer may be as much better, but not above 1
_PASSES = 1_000_000  # more than any time limit allows


@dataclass(frozen=True, eq=False)
class Placements:
    """What was found for one task, int32 ``[layers, slots]`` each; copies that stay keep their slot.

    Attributes
    ----------
    slot_expert:
        The answer.
    start:
        The placement with the fewest moves that restore every expert: the old one where it is complete.
    fresh:
        One made without regard to the old one, on the GPUs that hold most of it already.
    """

    slot_expert: Experts
    start: Experts
    fresh: Experts


@dataclass(frozen=True, eq=False)
class Migration:
    """Placements near the old ones, one for each task.

    ``curve`` is the front over all layers of all tasks, from the fewest moves to the best balance; ``moves`` those
    of the answer; ``interrupted`` whether Ctrl-C ended the search; ``log`` what ran, in words.
    """

    placements: tuple[Placements, ...]
    moves: int
    curve: tuple[CurvePoint, ...]
    interrupted: bool
    log: tuple[str, ...]


def migrate(
    tasks: Sequence[MigrationTask],
    *,
    max_moves: int | None = None,
    only_restore: bool = False,
    time_limit_s: float = 0.0,
    seed: int = 0,
    on_progress: OnProgress | None = None,
) -> Migration:
    """Return placements for the loads of ``tasks`` (the stages of a model, say) after few moves.

    With ``max_moves`` (over all layers of all tasks) the best balanced ones that are found within them; without,
    those with the fewest moves within :data:`KNEE` of a fresh placement's balancedness; with ``only_restore`` those
    with the fewest moves of all. All is judged under the split of the tasks, and no layer is worse than its
    ``start``. ``time_limit_s = 0`` is one deterministic pass; more time makes more passes. ``on_progress`` hears how
    far the search is, a few times a second.

    Raises
    ------
    InfeasibleError
        If restoring every expert takes more than ``max_moves``.
    """
    began = time.monotonic()
    made = [fresh_near(task, seed=seed) for task in tasks]
    fresh = [new.fitted for new in made]
    starts = [_start(task, new, seed) for task, new in zip(tasks, fresh, strict=True)]
    needed = sum(int(task.moves(start).sum()) for task, start in zip(tasks, starts, strict=True))
    if max_moves is not None and needed > max_moves:
        raise InfeasibleError(
            f"{needed:,} moves are needed, for every expert to have a copy where it may lie, and "
            f"{max_moves} are allowed: allow {needed:,}."
        )
    fronts = [SplitFront(*each) for each in zip(tasks, starts, made, strict=True)]
    log = (
        [f"{needed:,} move{'s' * (needed != 1)} needed for every expert to have a copy where it may lie"]
        if needed
        else []
    )
    joined = Front.joined([front.real for front in fronts])
    target = _target(tasks, fresh)
    progress = _Progress(fronts, began, target, 0 if only_restore else max_moves, on_progress)
    interrupted, ran = _search(fronts, progress, began, time_limit_s, seed)
    log.append(ran)
    if only_restore:
        chosen = [0] * len(joined.points)
    elif max_moves is not None:
        chosen = within(joined, max_moves)
    else:
        chosen = reaching(joined, target)
    found, first = [], 0
    for front, start, new in zip(fronts, starts, fresh, strict=True):
        mine = chosen[first : first + len(front.real.points)]
        first += len(mine)
        task = front.real.task
        found.append(
            Placements(
                align_slots(task, front.real.placement(mine)),
                align_slots(task, start),
                align_slots(task, new),
            )
        )
    moves = sum(points[index].moves for points, index in zip(joined.points, chosen, strict=True))
    return Migration(tuple(found), moves, tuple(joined.curve()), interrupted, tuple(log))


def _start(task: MigrationTask, fresh: Experts, seed: int) -> Experts:
    """Return the placement with the fewest moves; the fresh one where copies cannot be spread from there."""
    start = restore(task, seed=seed)
    crowded = np.flatnonzero(task.sharing(start) > 0)
    if crowded.size:
        start[crowded] = spread_evenly(task.problem.rows(crowded), start[crowded])[0]
    near = task.sharing(start) > task.sharing(fresh)
    start[near] = fresh[near]
    return start


def _target(tasks: Sequence[MigrationTask], fresh: Sequence[Experts]) -> float:
    """Return the balancedness that is near enough to that of fresh placements."""
    balance = np.concatenate([task.balancedness(new) for task, new in zip(tasks, fresh, strict=True)])
    return (1 - KNEE) * min(1.0, _LONGER * float(balance.mean()))


def _search(
    fronts: Sequence[SplitFront], progress: _Progress, began: float, time_limit_s: float, seed: int
) -> tuple[bool, str]:
    """Make one whole pass, and more while there is time; return whether Ctrl-C came first, and what ran."""
    passes, interrupted = 0, False

    def in_time() -> bool:
        return time.monotonic() - began < time_limit_s

    try:
        while passes < _PASSES and (passes == 0 or in_time()):
            for front in fronts:
                front.search(seed + passes, progress.of_pass(passes + 1), in_time if passes else _always)
            passes += 1
    except KeyboardInterrupt:
        interrupted = True
        for front in fronts:
            front.carry_over()
    text = f"cycles of copies by exact assignment: {passes} pass{'es' * (passes != 1)}, seed {seed}"
    text += "".join(dict.fromkeys(front.words for front in fronts))
    return interrupted, text + ("; interrupted: the best so far is kept" if interrupted else "")


def _always() -> bool:
    return True


_EVERY_S = 0.3


@dataclass(frozen=True)
class State:
    """What a re-plan would answer now.

    Attributes
    ----------
    search_pass:
        Number of the pass, from 1.
    phase:
        What runs, in words: the price of excess load, or swaps under the split.
    layers, layers_near:
        Layers in all, and those that some placement brings to the target.
    balancedness, moves:
        Of the answer so far, mean over layers, and over all layers of one replica.
    target:
        Balancedness near enough to a fresh plan's.
    elapsed_s:
        Seconds since the start.
    """

    search_pass: int
    phase: str
    layers: int
    layers_near: int
    balancedness: float
    moves: int
    target: float
    elapsed_s: float


OnProgress = Callable[[State], None]


class _Progress:
    """Tells ``on_progress`` (None: nobody) how the search over ``fronts`` goes, a few times a second.

    ``max_moves`` is the budget in moves of one replica; None: up to the ``target`` balancedness.
    """

    def __init__(
        self,
        fronts: Sequence[SplitFront],
        began: float,
        target: float,
        max_moves: int | None,
        on_progress: OnProgress | None,
    ) -> None:
        self._fronts, self._began, self._target = fronts, began, target
        self._max_moves, self._on_progress = max_moves, on_progress
        self._last = -_EVERY_S

    def of_pass(self, number: int) -> Callable[[str], None]:
        """Return what to call with the phase in words during pass ``number``."""

        def say(phase: str) -> None:
            now = time.monotonic()
            if self._on_progress is not None and now - self._last >= _EVERY_S:
                self._on_progress(self._state(number, phase, now - self._began))
                self._last = time.monotonic()

        return say

    def _state(self, number: int, phase: str, elapsed_s: float) -> State:
        front = Front.joined([each.now for each in self._fronts])
        fewest = sum(points[0].moves for points in front.points)
        if self._max_moves is None:
            chosen = reaching(front, self._target)
        else:
            chosen = along_hulls(front, max(0, self._max_moves - fewest))
        picked = [points[index] for points, index in zip(front.points, chosen, strict=True)]
        return State(
            number,
            phase,
            len(picked),
            sum(points[-1].balancedness >= self._target for points in front.points),
            sum(point.balancedness for point in picked) / len(picked),
            sum(point.moves for point in picked),
            self._target,
            elapsed_s,
        )
