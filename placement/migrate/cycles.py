"""The search near the old placement: cycles of copies by exact assignment, under a rising price of excess load.

Each round releases one copy of each GPU (of up to :data:`WIDEST` GPUs) and gives every GPU the released copy that
suits it best: a linear assignment problem whose cost is ``price`` times what a GPU load exceeds its target, and 1
for each move. A swap of two copies, a cycle through many GPUs, and a move taken back are all one such assignment,
and an exact solver finds the best among all of them. Every second round one released copy of an expert with several
first becomes a copy of another expert. Copies that moved are released most often, so that few GPUs change twice.

For a target, excess over it is cheap at first, so that only moves are made that relieve much; then it grows dear.
Few moves come out that way: starting dear fills every gap with whatever fits. The state after each price is a
point of the front too. A layer that does not come near the fresh placement in this way starts from that one instead
and takes moves back, dear excess first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from placement.arrays import Bools, Experts, Floats, Index, Ints, count_copies
from placement.migrate.front import TaskFront
from placement.migrate.task import MigrationTask

WIDEST = 96
"""GPUs that one assignment takes together; of more, a part chosen by chance takes part in each round."""

_BARRED = 1e6  # cost of two copies of an expert on one GPU
_SHARED = 1e3  # cost of a copy above what a failure domain may hold of its expert
_EQUAL = 1e-9
_STALE = 16  # rounds without gain after which the others are left out
_HOPEFUL = 1e-3  # how likely GPUs below their target give a hot expert, besides those above it


class Cycles:
    """Placements of some layers that change round by round, each never to a higher cost.

    Parameters
    ----------
    task:
        The layers; ``start`` ``[layers, slots]`` is legal.
    target:
        Largest over mean GPU load that is wanted, ``[scenarios, layers]``.
    """

    def __init__(self, task: MigrationTask, start: Experts, target: Floats, rng: np.random.Generator) -> None:
        self.problem = problem = task.problem
        self.experts, self.gpus, self.layers = problem.experts, problem.gpus, problem.layers
        self.width = int(problem.slots_per_gpu.max())
        offset = np.arange(self.width)
        real = offset[None, :] < problem.slots_per_gpu[:, None]
        self.slot = np.minimum(problem.first_slot[:-1][:, None] + offset, problem.slots - 1)
        self.real = real
        # A slot that a GPU lacks holds expert number `experts`, which has no load.
        self.table = np.where(real, start[:, self.slot], self.experts).astype(np.int64)
        self.load = np.pad(problem.loads, ((0, 0), (0, 0), (0, 1)))
        self.unit = problem.gpus / (problem.experts * problem.speed)
        self.held = np.pad(task.held, ((0, 0), (0, 0), (0, 1)), constant_values=True)
        self.target = target
        self.rng = rng
        self.domain = problem.failure_domain
        self.shared = bool(np.bincount(self.domain).max() > 1)
        self.working = np.flatnonzero(problem.slots_per_gpu > 0)
        self.rows = np.arange(self.layers)

    @property
    def slot_expert(self) -> Experts:
        """The placements, int32 ``[layers, slots]``."""
        return self.table[:, self.real].astype(np.int32)

    def cost(self, table: Ints, price: float) -> Floats:
        """``price`` times the excess over the target, plus moves, ``[layers]``; copies near each other cost more."""
        load = self._gpu_load(table)
        excess = np.maximum(load - self.target[:, :, None], 0.0).sum(axis=(0, 2))
        total: Floats = price * excess + self._new(table).sum(axis=(1, 2))
        if self.shared:
            total += _SHARED * self._sharing(table)
        return total

    def run(
        self, rounds: int, price: float, eager: float, keep_on: Callable[[], bool] = lambda: True
    ) -> None:
        """Make ``rounds`` rounds while ``keep_on`` says yes, fewer if many in a row help in no layer.

        ``eager`` 0 releases any copy of a GPU, 1 a moved one wherever there is one.
        """
        current = self.cost(self.table, price)
        idle = 0
        for turn in range(rounds):
            if idle == _STALE or not keep_on():
                return
            trial, possible = self._trial(price, eager, exchange=turn % 2 == 0)
            cost = self.cost(trial, price)
            better = possible & (cost <= current + _EQUAL)
            idle = 0 if (cost[better] < current[better] - _EQUAL).any() else idle + 1
            self.table[better] = trial[better]
            current[better] = cost[better]

    def _trial(self, price: float, eager: float, *, exchange: bool) -> tuple[Ints, Bools]:
        """Return one trial of each layer, and whether it is legal."""
        from scipy.optimize import linear_sum_assignment

        new = self._new(self.table)
        gpus = self._some_gpus()
        chance = self.rng.random((gpus.size, self.width)) + eager * new[:, gpus]
        released = np.argmax(np.where(self.real[gpus], chance, -1.0), axis=2)
        at = (self.rows[:, None], gpus[None, :], released)
        copies = self.table[at].copy()
        if exchange:
            self._exchange(copies)
        rest = self.table.copy()
        rest[at] = self.experts
        cost = self._costs(rest, copies, gpus, price)
        possible = np.zeros(self.layers, dtype=bool)
        for row in self.rows:
            to, which = linear_sum_assignment(cost[row])
            possible[row] = cost[row][to, which].max() < _BARRED
            rest[row, gpus[to], released[row, to]] = copies[row, which]
        return rest, possible

    def _some_gpus(self) -> Ints:
        if self.working.size <= WIDEST:
            return self.working
        return np.sort(self.rng.permutation(self.working)[:WIDEST])

    def _exchange(self, copies: Ints) -> None:
        """Turn released copies of experts with several into copies of others, in place.

        Experts too heavy for their number of copies get what they lack; where none is, one copy becomes one more of
        an expert on a loaded GPU.
        """
        count = self._counts(self.table)
        spare = np.take_along_axis(count, copies, axis=1) > 1
        order = np.argsort(-(self.rng.random(copies.shape[1]) * spare), axis=1)
        lacking = self._lacking(count)
        wanted = self._hot_experts()
        for row in self.rows:
            ask = (
                np.repeat(np.arange(self.experts + 1), lacking[row])
                if lacking[row].any()
                else wanted[row : row + 1]
            )
            self._turn(copies[row], count[row].copy(), order[row, : int(spare[row].sum())], ask)

    def _turn(self, copies: Ints, count: Ints, places: Ints, ask: Ints) -> None:
        """Put the experts ``ask`` into the first of ``places`` whose own expert keeps a copy, in place."""
        left = iter(ask.tolist() if ask.size <= places.size else self.rng.permutation(ask).tolist())
        for place in places.tolist():
            if count[copies[place]] > 1:
                expert = next(left, None)
                if expert is None:
                    return
                count[copies[place]] -= 1
                copies[place] = expert

    def _lacking(self, count: Ints) -> Ints:
        """Copies that experts lack for one of them to stay within the target on its own, ``[layers, experts]``."""
        least = np.ceil(self.load * self.unit.min() / self.target[:, :, None] * (1 - _EQUAL)).max(axis=0)
        short = np.minimum(least, self.working.size) - count
        short[:, self.experts] = 0
        lacking: Ints = np.maximum(short, 0).astype(np.int64)
        return lacking

    def _hot_experts(self) -> Ints:
        """An expert of each layer from a GPU above its target: the heaviest copy there, or any, ``[layers]``."""
        load = self._gpu_load(self.table)
        over = np.maximum(load - self.target[:, :, None], 0.0).sum(axis=0) + _HOPEFUL
        over[:, ~self.real[:, 0]] = 0.0
        with np.errstate(divide="ignore"):
            hot = np.argmax(np.log(over) + self.rng.gumbel(size=self.gpus), axis=1)
        there = self.table[self.rows, hot]
        share = self._share(self.table).sum(axis=0)
        heaviest = np.argmax(np.take_along_axis(share, there, axis=1), axis=1)
        any_of = np.argmax(self.rng.random(self.width) * self.real[hot], axis=1)
        place = np.where(self.rng.random() < 0.5, heaviest, any_of)
        wanted: Ints = there[self.rows, place]
        return wanted

    def _costs(self, rest: Ints, copies: Ints, gpus: Ints, price: float) -> Floats:
        """Cost of each released copy on each GPU, ``[layers, gpus, copies]``."""
        count = self._counts(rest)
        np.add.at(count, (self.rows[:, None], copies), 1)
        share = self.load / np.maximum(count, 1)
        pick = (slice(None), self.rows[:, None, None], rest[:, gpus])
        base = share[pick].sum(axis=3)
        weight = share[:, self.rows[:, None], copies]
        unit = self.unit[gpus]
        cost = (~self.held[self.rows[:, None, None], gpus[None, :, None], copies[:, None, :]]).astype(
            np.float64
        )
        for s in range(len(share)):
            room = self.target[s][:, None] - unit * base[s]
            over = unit[:, None] * weight[s][:, None, :] - room[:, :, None]
            cost += price * np.maximum(over, 0.0, out=over)
        holds = self._holds(rest)
        cost[holds[self.rows[:, None, None], gpus[None, :, None], copies[:, None, :]]] = _BARRED
        if self.shared:
            near = self._in_domain(rest) >= self._most(count)[:, None]
            where = self.domain[gpus]
            cost += _SHARED * near[self.rows[:, None, None], where[None, :, None], copies[:, None, :]]
        return cost

    def _new(self, table: Ints) -> Bools:
        """Whether a copy is a move, ``[layers, gpus, slots of a GPU]``."""
        gpus = np.arange(self.gpus)[None, :, None]
        new: Bools = ~self.held[self.rows[:, None, None], gpus, table]
        return new

    def _counts(self, table: Ints) -> Ints:
        """Copies of each expert, ``[layers, experts + 1]``."""
        counts: Ints = count_copies(table, np.zeros(1, dtype=np.int64), 1, self.experts + 1)[:, 0]
        return counts

    def _share(self, table: Ints) -> Floats:
        share: Floats = self.load / np.maximum(self._counts(table), 1)
        return share

    def _gpu_load(self, table: Ints) -> Floats:
        """Load over speed of each GPU, over the mean load, ``[scenarios, layers, gpus]``."""
        picked = self._share(table)[:, self.rows[:, None], table.reshape(self.layers, -1)]
        load: Floats = picked.reshape(-1, *table.shape).sum(axis=3) * self.unit
        return load

    def _holds(self, table: Ints) -> Bools:
        """Whether a GPU holds an expert, ``[layers, gpus, experts + 1]``; nobody holds what a lacking slot does."""
        holds = np.zeros((self.layers, self.gpus, self.experts + 1), dtype=bool)
        holds[self.rows[:, None, None], np.arange(self.gpus)[None, :, None], table] = True
        holds[:, :, self.experts] = False
        return holds

    def _in_domain(self, table: Ints) -> Ints:
        """Copies of each expert in each failure domain, ``[layers, domains, experts + 1]``."""
        counts = count_copies(table, self.domain[:, None], self.problem.domains, self.experts + 1)
        counts[:, :, self.experts] = 0
        return counts

    def _sharing(self, table: Ints) -> Ints:
        """Copies above what their failure domain may hold of their expert, ``[layers]``."""
        most = self._most(self._counts(table))
        shared: Ints = np.maximum(self._in_domain(table) - most[:, None], 0).sum(axis=(1, 2))
        return shared

    def _most(self, count: Ints) -> Ints:
        """Most copies in one failure domain of experts with so many, ``[layers, experts + 1]``, at least 1."""
        most: Ints = np.maximum(self.problem.most_in_domain(count), 1)
        return most


class _Sweep(NamedTuple):
    """A target as a multiple of the fresh placement's largest load, (price, eagerness) by phase, rounds of each."""

    factor: float
    phases: tuple[tuple[float, float], ...]
    rounds: int


_FINE = ((10, 1.0), (20, 1.0), (40, 1.0), (80, 1.0), (200, 0.9), (500, 0.7), (1500, 0.6))
_COARSE = ((10, 1.0), (40, 1.0), (160, 0.8))
DOWN = (
    _Sweep(1.006, _FINE, 40),
    _Sweep(1.02, _COARSE, 20),
    _Sweep(1.05, _COARSE, 16),
    _Sweep(1.12, _COARSE, 12),
    _Sweep(1.30, _COARSE, 12),
    _Sweep(1.70, _COARSE, 12),
)
CLOSER = _Sweep(1.003, _FINE, 60)
BACK = _Sweep(1.007, ((1500, 0.8), (300, 0.9), (80, 1.0)), 60)
_NEAR = 1.008  # times the fresh placement's objective, in the mean: near enough
_FEWEST_ROUNDS = 4
_EFFORT = 20_000
"""Assignments of :data:`placement.migrate.cycles.WIDEST` GPUs that one pass down may take: some ten seconds."""
_MOST_CELLS = 1 << 23  # of [layers, GPUs, experts] in one part


def explore(
    front: TaskFront,
    fresh: Experts,
    *,
    seed: int,
    keep_on: Callable[[], bool] = lambda: True,
    on_price: Callable[[float], None] = lambda _: None,
) -> None:
    """Add to ``front`` what one pass finds, for targets from as good as ``fresh`` to loose.

    ``fresh`` is ``[layers, slots]``; it is added too. Deterministic for a seed while ``keep_on`` says yes.
    ``on_price`` hears of each price of excess when its states are on the front.
    """
    task = front.task
    start = front.placement([0] * task.problem.layers)
    reached, now = task.problem.peaks(fresh), task.problem.peaks(start)
    if task.problem.objective == "worst":
        reached = np.broadcast_to(reached.max(axis=0), reached.shape)
    work = [(sweep, np.flatnonzero((now > reached * sweep.factor).any(axis=0))) for sweep in DOWN]
    run = _Run(front, reached, _scale(front, work), seed, keep_on, on_price)
    for sweep, layers in work:
        run.sweep(sweep, start, layers)
    run.sweep(CLOSER, start, run.far(fresh))
    far = run.far(fresh)
    front.add(np.arange(task.problem.layers), fresh)
    run.sweep(BACK, fresh, far)


@dataclass(frozen=True, eq=False)
class _Run:
    """What all sweeps of a pass share; ``reached`` ``[scenarios, layers]`` are the peaks of the fresh placement."""

    front: TaskFront
    reached: Floats
    scale: float
    seed: int
    keep_on: Callable[[], bool]
    on_price: Callable[[float], None]

    def sweep(self, sweep: _Sweep, start: Experts, layers: Index) -> None:
        """Go through the phases of ``sweep`` from ``start`` in some layers; add the state after each."""
        problem = self.front.task.problem
        rounds = max(_FEWEST_ROUNDS, round(sweep.rounds * self.scale))
        size = max(1, _MOST_CELLS // (problem.gpus * (problem.experts + 1)))
        for first in range(0, layers.size, size):
            part = layers[first : first + size]
            if not self.keep_on():
                return
            cycles = Cycles(
                self.front.task.rows(part),
                start[part],
                self.reached[:, part] * sweep.factor,
                np.random.default_rng(self.seed),
            )
            for price, eager in sweep.phases:
                cycles.run(rounds, price, eager, self.keep_on)
                self.front.add(part, cycles.slot_expert)
                self.on_price(price)

    def far(self, fresh: Experts) -> Index:
        """The layers that are not near the fresh placement; none where all are near it in the mean."""
        best = np.array([points[-1].value for points in self.front.points])
        ratio = best / self.front.task.problem.evaluate(fresh)
        return np.flatnonzero(ratio > (_NEAR if ratio.mean() > _NEAR else np.inf))


def _scale(front: TaskFront, work: list[tuple[_Sweep, Index]]) -> float:
    """By how much to multiply rounds: more for GPUs that do not all fit one assignment, fewer for many layers."""
    gpus = front.task.problem.gpus
    parts = max(1.0, gpus / WIDEST)
    each = min(1.0, gpus / WIDEST) ** 1.5  # seconds of an assignment grow about like this
    wanted = parts * each * sum(sweep.rounds * len(sweep.phases) * layers.size for sweep, layers in work)
    return float(parts * min(1.0, _EFFORT / max(wanted, 1.0)))
