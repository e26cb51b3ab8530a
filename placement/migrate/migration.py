"""Migration of experts from the running placement towards the loads, with few moves or within a budget."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from placement.arrays import Experts, Floats
from placement.budget import CUT, Budget
from placement.migrate.fewest import fewest_moves, is_quick
from placement.migrate.front import CurvePoint, Front, along_hulls, paying, reaching, within
from placement.migrate.search import Search
from placement.migrate.split_front import SplitFront
from placement.migrate.start import align_slots, fresh_near, restore
from placement.migrate.task import MigrationTask
from topology.base.errors import InfeasibleError, NoAnswerError

KNEE = 0.01
"""Without a budget: the fewest moves within this fraction of a fresh placement's balancedness."""

Price = Callable[[Sequence[Experts], Sequence[Experts]], float]
"""Of a move in mean objective, for the placements with the fewest moves and for fresh ones."""

_SMALL, _SMALL_PASSES = 64, 3  # GPUs of all layers, and passes that so few are worth
_REST = 0.9  # of the work that is left after the first pass: the next one, longer and so better
_LAYER_WORK = 1000.0  # units, about, of the fewest moves of a layer that takes long
_LONGER = 1.002  # a fresh placement that is searched longer may be as much better, but not above 1


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
    of the answer; ``interrupted`` whether Ctrl-C ended the search; ``log`` what ran, in words. ``placed`` makes the
    placements of a point of the curve by its number, ``[layers, slots]`` for each task.
    """

    placements: tuple[Placements, ...]
    moves: int
    curve: tuple[CurvePoint, ...]
    interrupted: bool
    log: tuple[str, ...]
    placed: Callable[[int], list[Experts]]


def migrate(
    tasks: Sequence[MigrationTask],
    *,
    replicas: Sequence[int] | None = None,
    max_moves: int | None = None,
    only_restore: bool = False,
    price: Price | None = None,
    budget: Budget | None = None,
    seed: int = 0,
) -> Migration:
    """Return placements for the loads of ``tasks`` (the stages of a model, say) after few moves.

    ``replicas``: how many each task is of (None: one each), in all of which its moves and its balance count.
    With ``max_moves`` (over all layers of all tasks, and replicas) the best balanced ones that are found within
    them; without, those with the fewest moves within :data:`KNEE` of a fresh placement's balancedness; with
    ``only_restore`` those with the fewest moves of all; with a ``price`` those with every move that is worth it.
    All is judged under the split of the tasks, and no layer is worse than its ``start``. A ``budget`` without seconds
    (or none) is one deterministic pass; more time makes more passes. Its ``on_progress`` is called with a
    :class:`State` and seconds, a few times a second.

    Raises
    ------
    InfeasibleError
        If restoring every expert takes more than ``max_moves``: proven.
    NoAnswerError
        If it is not known whether it does.
    """
    budget = budget or Budget()
    made = [fresh_near(task, seed=seed) for task in tasks]
    starts = [_start(task, new.fitted, seed) for task, new in zip(tasks, made, strict=True)]
    times = [1] * len(tasks) if replicas is None else list(replicas)
    needed = _moves(tasks, starts, times)
    what = "to give every expert a valid copy"
    if max_moves is not None and needed > max_moves:
        starts, needed = _fewest(tasks, starts, times, max_moves, what, budget)
    elif only_restore:
        starts = _nearest(tasks, starts, budget.part(0.5).search(0.0))
        needed = _moves(tasks, starts, times)
    log = [f"{needed:,} move{'s' * (needed != 1)} needed {what}"] if needed else []
    with budget.keeping():
        fronts = [SplitFront(*parts) for parts in zip(tasks, starts, made, times, strict=True)]
        balance = [task.judged(new.fitted)[1] for task, new in zip(tasks, made, strict=True)]
        target = (1 - KNEE) * min(1.0, _LONGER * _over_replicas(balance, times))
        log.append(_search(fronts, target, 0 if only_restore else max_moves, budget, seed))
        joined = Front.joined([front.real for front in fronts])
        if only_restore:
            chosen = [0] * len(joined.points)
        elif max_moves is not None:
            chosen = within(joined, max_moves)
        elif price is not None:
            chosen = paying(joined, price(starts, [new.fitted for new in made]))
        else:
            chosen = reaching(joined, target)
        point = iter(chosen)
        placements = [
            Placements(
                *(align_slots(task, rows) for rows in (front.real.placement(point), start, new.fitted)),
            )
            for task, front, start, new in zip(tasks, fronts, starts, made, strict=True)
        ]
        along = joined.along()

        def placed(number: int) -> list[Experts]:
            point = iter(along[number])
            return [front.real.placement(point) for front in fronts]

        return Migration(
            tuple(placements),
            joined.total(chosen).moves,
            tuple(map(joined.total, along)),
            budget.interrupted,
            tuple(log),
            placed,
        )


def _moves(tasks: Sequence[MigrationTask], placed: Sequence[Experts], times: Sequence[int]) -> int:
    """Moves of placements over all replicas."""
    return sum(
        count * int(task.moves(rows).sum()) for task, rows, count in zip(tasks, placed, times, strict=True)
    )


def _over_replicas(values: Sequence[Floats], times: Sequence[int]) -> float:
    """Mean of values by layer over all layers and replicas."""
    weights = np.repeat(times, [len(layers) for layers in values])
    return float(np.average(np.concatenate(values), weights=None if len(set(times)) == 1 else weights))


def _start(task: MigrationTask, fresh: Experts, seed: int) -> Experts:
    """Return the placement with the fewest moves; the fresh one where copies cannot be spread from there."""
    start = restore(task, seed=seed)
    near = task.problem.over_cap(start) > task.problem.over_cap(fresh)
    start[near] = fresh[near]
    return start


def _nearest(tasks: Sequence[MigrationTask], starts: Sequence[Experts], budget: Budget) -> list[Experts]:
    """Return starts with the fewest moves that are found in time; always where that is quick."""
    nearest = []

    def keep_on() -> bool:
        budget.spend(_LAYER_WORK)
        return budget.goes_on()

    with budget, budget.keeping():
        for task, start in zip(tasks, starts, strict=True):
            nearest.append(fewest_moves(task, start, budget, *(() if is_quick(task) else (keep_on,)))[0])
    return [*nearest, *starts[len(nearest) :]]


def _fewest(
    tasks: Sequence[MigrationTask],
    starts: Sequence[Experts],
    times: Sequence[int],
    max_moves: int,
    what: str,
    budget: Budget,
) -> tuple[list[Experts], int]:
    """Return starts within ``max_moves``, and their moves; raise where none are proven to be."""
    solved = [fewest_moves(task, start, budget) for task, start in zip(tasks, starts, strict=True)]
    least = sum(count * int(bound.sum()) for (_, bound), count in zip(solved, times, strict=True))
    nearest = [start for start, _ in solved]
    needed = _moves(tasks, nearest, times)
    if needed <= max_moves:
        return nearest, needed
    if least > max_moves:
        at_least = "at least " * (least < needed)
        raise InfeasibleError(
            f"{at_least}{least:,} moves are needed {what}, but only {max_moves:,} are allowed; allow {needed:,}."
        )
    raise NoAnswerError(
        f"{max_moves:,} moves may not be enough {what}: {needed:,} are, fewer than {least:,} are not; allow "
        f"{needed:,}."
    )


def _search(fronts: Sequence[SplitFront], target: float, limit: int | None, budget: Budget, seed: int) -> str:
    """Make one whole pass, and more until ``budget``; return what ran. Where all placements are few, they are it."""
    tried = [front.add_all() for front in fronts]
    if all(tried):
        return "all placements tried"
    passes = 0

    def say(phase: str) -> None:
        budget.tell(lambda: (_state(fronts, passes + 1, phase, target, limit),))

    say_price = [front.say_price(say) for front in fronts]

    def make_pass(keep_on: Callable[[float], bool], effort: float) -> None:
        Search(
            [front.even for front in fronts],
            [front.fresh.even for front in fronts],
            target,
            limit,
            seed + passes,
            effort,
            keep_on,
            say_price[0],
        ).run()
        for front in fronts:
            front.fit(say, keep_on)

    until = budget.search(0.0)

    def first(units: float) -> bool:
        until.spend(units)
        return not budget.interrupted  # the first pass is whole whatever the time

    def more(units: float) -> bool:
        until.spend(units)
        return until.goes_on()

    with budget, budget.keeping():
        small = sum(front.problem.layers * front.problem.gpus for front in fronts) <= _SMALL
        for _ in range(_SMALL_PASSES if small else 1):
            make_pass(first, 1.0)
            passes += 1
        took = until.done / passes
        while until.goes_on():
            make_pass(more, max(1.0, _REST * until.left() / took))
            passes += 1
    if budget.cut:
        for front in fronts:
            front.carry_over()
    text = f"simulated annealing: {passes} pass{'es' * (passes != 1)}, seed {seed}"
    text += "".join(dict.fromkeys(front.words for front in fronts))
    return text + (f"; {CUT}" if budget.cut else "")


@dataclass(frozen=True)
class State:
    """Current result of a migration.

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
    """

    search_pass: int
    phase: str
    layers: int
    layers_near: int
    balancedness: float
    moves: int
    target: float


def _state(fronts: Sequence[SplitFront], number: int, phase: str, target: float, limit: int | None) -> State:
    """Return what would be answered in pass ``number``; ``limit`` moves of one replica (None: up to the target)."""
    front = Front.joined([task_front.now for task_front in fronts])
    chosen = reaching(front, target) if limit is None else along_hulls(front, max(0, limit - front.fewest))
    total = front.total(chosen)
    return State(
        number,
        phase,
        len(chosen),
        sum(points[-1].balancedness >= target for points in front.points),
        total.balancedness,
        total.moves,
        target,
    )
