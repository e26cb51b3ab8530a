"""Large-neighbourhood search with CP-SAT: a few GPUs of one layer are dealt out again, for the smallest largest load.

In the model one variable says whether an expert has a copy on a GPU, so that no GPU can hold two copies of one
expert. A GPU's load counts over its speed. Every other rule is one function, which adds its constraint to the
model. The search around it (:func:`improve`) takes always the layers with the largest gap: the hottest GPU and a
few others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from placement.arrays import Bools, Experts, Floats, Ints
from placement.problem import Problem
from placement.budget import Budget
from topology.host import cores
from topology.units import added

if TYPE_CHECKING:
    from ortools.sat.python import cp_model


# The largest load may rise this far above the incumbent: a tighter domain loses the hint (solver rule).
_HEADROOM = 1.03


@dataclass(frozen=True, eq=False)
class SubPacking:
    """The copies on a few GPUs of one layer.

    Attributes
    ----------
    on:
        bool ``[experts, gpus]``: the incumbent, which experts have a copy on which of the GPUs.
    load:
        int64 ``[experts]``, in steps: the load of one copy; ``[experts, gpus]`` where GPUs differ in speed.
    target:
        A largest load, in steps, below which nothing is gained.
    domain:
        int64 ``[gpus]``: failure domains, each of which holds an expert once at most; None: each GPU its own.
    barred:
        bool ``[experts, gpus]``: where an expert may not come, since another GPU of the domain holds it.
    """

    on: Bools
    load: Ints
    target: int = 0
    domain: Ints | None = None
    barred: Bools | None = None

    @property
    def gpu_loads(self) -> Ints:
        """Load of a copy on each of the GPUs, int64 ``[experts, gpus]``, in steps."""
        loads = self.load if self.load.ndim == 2 else self.load[:, None]
        return np.broadcast_to(loads, self.on.shape)

    def peak_of(self, on: Bools) -> int:
        """Return the largest load of a packing ``[experts, gpus]``, in steps."""
        return int((self.gpu_loads * on).sum(axis=0).max())

    @property
    def alike(self) -> bool:
        """Whether the GPUs may change places."""
        return (
            self.load.ndim == 1
            and self.domain is None
            and self.barred is None
            and bool(self.slots.min() == self.slots.max())
        )

    @property
    def copies(self) -> Ints:
        """Copies of each expert on these GPUs."""
        copies: Ints = self.on.sum(axis=1)
        return copies

    @property
    def slots(self) -> Ints:
        """Slots of each GPU; all are full."""
        slots: Ints = self.on.sum(axis=0)
        return slots

    @property
    def peak(self) -> int:
        """The incumbent's largest load, in steps."""
        return self.peak_of(self.on)

    @property
    def floor(self) -> int:
        """No packing is below the mean (as if all were as fast as the fastest), and none need be below the target."""
        least = self.gpu_loads.min(axis=1)
        mean = math.ceil(int(least @ self.copies) / self.slots.size)
        return min(max(mean, int(least.max()), self.target), self.peak)


@dataclass(frozen=True, eq=False)
class SubModel:
    """The model and its variables: ``x[expert][gpu]`` and ``peak``."""

    model: cp_model.CpModel
    x: list[list[cp_model.IntVar]]
    peak: cp_model.IntVar


def build(sub: SubPacking) -> SubModel:
    """Return the model of ``sub`` with all its constraints, its objective and the incumbent as a hint."""
    built = variables(sub)
    place_every_copy(built, sub)
    fill_slots(built, sub)
    keep_apart(built, sub)
    bound_peak_by_loads(built, sub)
    fix_heaviest(built, sub)
    hint_incumbent(built, sub)
    minimize_peak(built)
    return built


def variables(sub: SubPacking) -> SubModel:
    """Make the variables: whether each expert sits on each GPU, and the largest load."""
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    experts, gpus = sub.on.shape
    x = [[model.new_bool_var(f"expert{e}_on_gpu{g}") for g in range(gpus)] for e in range(experts)]
    return SubModel(model, x, model.new_int_var(sub.floor, math.ceil(sub.peak * _HEADROOM), "peak"))


def place_every_copy(built: SubModel, sub: SubPacking) -> None:
    """Make each expert keep its number of copies on these GPUs."""
    for row, copies in zip(built.x, sub.copies, strict=True):
        built.model.add(sum(row) == int(copies))


def fill_slots(built: SubModel, sub: SubPacking) -> None:
    """Make each GPU keep its number of copies."""
    for gpu, slots in enumerate(sub.slots):
        built.model.add(sum(row[gpu] for row in built.x) == int(slots))


def keep_apart(built: SubModel, sub: SubPacking) -> None:
    """Let a failure domain hold each expert once at most, copies on GPUs outside the model included."""
    if sub.barred is not None:
        for expert, gpu in np.argwhere(sub.barred):
            built.model.add(built.x[expert][gpu] == 0)
    if sub.domain is not None:
        for domain in np.unique(sub.domain):
            gpus = np.flatnonzero(sub.domain == domain)
            if gpus.size > 1:
                for row in built.x:
                    built.model.add_at_most_one(row[gpu] for gpu in gpus)


def bound_peak_by_loads(built: SubModel, sub: SubPacking) -> None:
    """Keep the peak at or above the load of each GPU."""
    loads = sub.gpu_loads
    for gpu in range(sub.slots.size):
        built.model.add(
            built.peak >= sum(int(w) * row[gpu] for w, row in zip(loads[:, gpu], built.x, strict=True))
        )


def fix_heaviest(built: SubModel, sub: SubPacking) -> None:
    """Keep the heaviest expert where it is, among GPUs that are interchangeable."""
    if sub.alike:
        heaviest = int(np.argmax(sub.load))
        for variable, here in zip(built.x[heaviest], sub.on[heaviest], strict=True):
            built.model.add(variable == int(here))


def minimize_peak(built: SubModel) -> None:
    """Ask for the smallest largest load."""
    built.model.minimize(built.peak)


def hint_incumbent(built: SubModel, sub: SubPacking) -> None:
    """Start from the incumbent: a complete hint, the peak too."""
    for row, on in zip(built.x, sub.on, strict=True):
        for variable, here in zip(row, on, strict=True):
            built.model.add_hint(variable, bool(here))
    built.model.add_hint(built.peak, sub.peak)


def repack(sub: SubPacking, *, limit: float, seed: int) -> tuple[Bools | None, float]:
    """Return a packing with a smaller largest load than the incumbent, ``[experts, gpus]``, or None; and the work.

    Work and its ``limit`` are CP-SAT's own seconds: counted in steps, so that answers do not depend on the machine.

    One worker without the linear relaxation: it proves 16 copies on 4 GPUs in a third of the time that it or
    two workers take with it (measured); cores are better spent on several layers at once.
    """
    from ortools.sat.python import cp_model

    built = build(sub)
    solver = cp_model.CpSolver()
    solver.parameters.max_deterministic_time = limit
    solver.parameters.num_workers = 1
    solver.parameters.linearization_level = 0
    solver.parameters.random_seed = seed
    # Python's own handler then raises KeyboardInterrupt after the solve; CP-SAT's would swallow it.
    solver.parameters.catch_sigint_signal = False
    status = solver.solve(built.model)
    work = solver.deterministic_time
    if status not in {cp_model.OPTIMAL, cp_model.FEASIBLE}:
        return None, work
    on = np.array([[solver.boolean_value(variable) for variable in row] for row in built.x])
    return (on if sub.peak_of(on) < sub.peak else None), work


CLOSE = 1e-4  # a layer is done when its largest load is within this part of its bound
STEPS = 1_000_000  # integer steps to the mean GPU load
_PATIENCE = 12  # sub-packings without gain before a layer is given up
_SUB_LIMIT = 0.1  # of CP-SAT's own seconds for one sub-packing
_COST = 700.0  # units of work in one of those...
_FIXED_COST = 3.0  # ... and in building a model
_AT_ONCE = 4  # sub-packings whose answers come together, whatever cores there are
_PARTNERS = 3


def improve(
    problem: Problem, slot_expert: Experts, bound: Floats, budget: Budget, *, seed: int
) -> tuple[Experts, str]:
    """Lower the largest GPU loads of ``slot_expert`` ``[layers, slots]``, never worse; also what ran, in words.

    Always the layers with the largest gap to their ``bound`` ``[layers]`` (multiples of the mean GPU load),
    a few at once: the hottest GPU, the coldest and two drawn by ``seed`` are dealt out
    again. Ends when every layer is within :data:`CLOSE` of its bound or was given up, or at ``budget``; the incumbent
    stands in all cases.
    """
    search = _Search(problem, slot_expert, bound, seed)
    with budget, budget.stepwise(), ThreadPoolExecutor(min(_AT_ONCE, cores())) as pool:
        if budget.goes_on() and search.widest(1).size:
            from ortools.sat.python import cp_model  # noqa: F401 - loaded before the first step's speed is measured

            budget.mark()
        while budget.goes_on() and search.widest(_AT_ONCE).size:
            budget.spend(search.try_layers(search.widest(_AT_ONCE), pool))
            budget.tell(lambda: (search.done, problem.layers, search.objective, float(bound.mean())))
    ran = (
        f"CP-SAT: {search.tried} sub-packings of up to {_PARTNERS + 1} GPUs, {search.gained} of them better, "
        f"seed {seed}; {search.done} of {problem.layers} layers within {CLOSE:g} of their bound"
    )
    return search.slot_expert, ran


@dataclass(frozen=True, eq=False)
class _Part:
    """The GPUs of one layer that are dealt out again: their slots, and the experts in them."""

    layer: int
    gpus: Ints
    slots: tuple[Ints, ...]
    experts: Experts
    sub: SubPacking
    seed: int


class _Search:
    """The incumbent, its loads, and how often each layer has refused to improve."""

    def __init__(self, problem: Problem, slot_expert: Experts, bound: Floats, seed: int) -> None:
        self.problem = problem
        self.slot_expert = slot_expert.copy()
        self.bound = bound
        self.rng = np.random.default_rng(seed)
        # Loads in multiples of the mean GPU load, like the bound; counts stay as they are.
        start = problem.assignment(slot_expert)
        scale = problem.gpus / problem.mean.sum(axis=1, keepdims=True)
        self.share = problem.mean * scale / start.copies
        self.gpu_load = start.gpu_load(problem.mean) * scale / problem.speed
        self.alike = problem.equal_speeds
        self.spread = not problem.each_alone
        self.failures = np.zeros(problem.layers, dtype=np.int64)
        self.tried = self.gained = 0

    @property
    def objective(self) -> float:
        """Mean over layers of the largest GPU load."""
        return float(self.gpu_load.max(axis=1).mean())

    @property
    def done(self) -> int:
        """Layers within :data:`CLOSE` of their bound."""
        return int((self.gpu_load.max(axis=1) <= self.bound * (1 + CLOSE)).sum())

    def widest(self, most: int) -> Ints:
        """Return up to ``most`` layers with the largest gaps that are neither done nor given up."""
        gap = self.gpu_load.max(axis=1) / self.bound - 1
        gap[self.failures >= _PATIENCE] = 0.0
        order: Ints = np.argsort(-gap, kind="stable")[:most]
        rest: Ints = order[gap[order] > CLOSE]
        return rest

    def try_layers(self, layers: Sequence[int] | Ints, pool: ThreadPoolExecutor) -> float:
        """Deal out a few GPUs of each layer again; keep what makes the hottest of them cooler; return the work."""
        parts = [self.part(int(layer)) for layer in layers]
        found = list(pool.map(lambda part: repack(part.sub, limit=_SUB_LIMIT, seed=part.seed), parts))
        for part, (on, _) in zip(parts, found, strict=True):
            self._keep(part, on)
        return added(_FIXED_COST + _COST * work for _, work in found)

    def part(self, layer: int) -> _Part:
        """Choose GPUs of ``layer`` and describe what they hold."""
        gpus = self._choose(layer)
        first = self.problem.first_slot
        slots = tuple(np.arange(first[gpu], first[gpu + 1]) for gpu in gpus)
        experts = np.unique(np.concatenate([self.slot_expert[layer, here] for here in slots]))
        on = np.stack([np.isin(experts, self.slot_expert[layer, here]) for here in slots], axis=1)
        share = self.share[layer, experts]
        load = share if self.alike else share[:, None] / self.problem.speed[gpus]
        sub = SubPacking(
            on,
            np.rint(load * STEPS).astype(np.int64),
            int(self.bound[layer] * (1 + CLOSE / 2) * STEPS),
            self.problem.failure_domain[gpus] if self.spread else None,
            self._barred(layer, gpus, experts) if self.spread else None,
        )
        return _Part(layer, gpus, slots, experts, sub, int(self.rng.integers(2**31)))

    def _barred(self, layer: int, gpus: Ints, experts: Experts) -> Bools:
        """Where another GPU of the failure domain holds the expert, ``[experts, gpus]``."""
        domain, slot_gpu = self.problem.failure_domain, self.problem.slot_gpu
        outside = ~np.isin(slot_gpu, gpus)
        held = np.zeros((int(domain.max()) + 1, self.problem.experts), dtype=bool)
        held[domain[slot_gpu[outside]], self.slot_expert[layer, outside]] = True
        return held[domain[gpus][None, :], experts[:, None]]

    def _keep(self, part: _Part, on: Bools | None) -> None:
        self.tried += 1
        load = None
        if on is not None:
            load = (self.share[part.layer, part.experts, None] * on).sum(axis=0) / self.problem.speed[
                part.gpus
            ]
        if on is None or load is None or load.max() >= self.gpu_load[part.layer, part.gpus].max():
            self.failures[part.layer] += 1
            return
        row = self.slot_expert[part.layer].copy()
        for column, here in enumerate(part.slots):
            row[here] = part.experts[on[:, column]]
        self.slot_expert[part.layer] = row  # in one step: Ctrl-C never sees half a layer
        self.gpu_load[part.layer, part.gpus] = load
        self.failures[part.layer] = 0
        self.gained += 1

    def _choose(self, layer: int) -> Ints:
        """Pick the hottest GPU, the coldest one, and others drawn among those that have slots."""
        load = self.gpu_load[layer]
        used = np.flatnonzero(self.problem.slots_per_gpu > 0)
        order = used[np.argsort(load[used], kind="stable")]
        if order.size <= _PARTNERS + 1:
            return order
        drawn = self.rng.choice(order[1:-1], size=_PARTNERS - 1, replace=False)
        return np.concatenate([order[-1:], order[:1], drawn])
