"""Who has copies on which GPUs, exactly: small layers whole, and a few GPUs of larger ones, with one CP-SAT model.

Each expert chooses a set of GPUs that hold its copies, its *pattern*. What it then asks of each GPU follows from the
pattern alone, under any split of tokens: ``1 / copies`` of its load (``even``), or what source ranks choose
(``source``, ``rank``). Under ``lp`` the largest load is that of some set of GPUs whose experts cannot leave it
(:mod:`cost.experts.best_split`), so that rows are sets of GPUs there. Every rule is one function, which adds its
constraint.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from cost.experts.assignment import Assignment
from cost.experts.dispatch import depends_on_placement, slot_shares
from placement.arrays import Bools, Experts, Floats, Ints
from placement.budget import Budget
from placement.cp_solver import solve_within
from placement.experts.dispatch_refinement import SLACK
from placement.experts.problem import EQUAL, Problem, proven, second_copies_first
from topology.base.host import cores

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

STEPS = 1_000_000_000  # integer steps to the mean GPU load
_MOST_GPUS, _MOST_CHOICES = 8, 450  # of a small layer, and of experts and patterns...
_MOST_NUMBERS = 20_000  # ... and loads in its model
_MOST_WAYS = 13.0  # logarithm of the ways to fill its slots
_SMALL_S = 0.05  # of CP-SAT's own seconds for a small layer

CLOSE = 1e-4  # a layer is done when its largest load is within this part of its bound
_PATIENCE = 12  # groups of GPUs without gain before a layer is given up
_FEW_S = 0.1  # of CP-SAT's own seconds for one group
_COST = 700.0  # units of work in one of those...
_FIXED_COST = 3.0  # ... and in building a model
_AT_ONCE = 4  # groups whose answers come together, whatever cores there are
_PARTNERS = 3


@dataclass(frozen=True, eq=False)
class Choices:
    """What is decided: a pattern for each expert.

    Attributes
    ----------
    patterns:
        bool ``[patterns, gpus]``.
    allowed:
        bool ``[experts, patterns]``.
    load:
        int64 ``[rows, experts, patterns]``, in steps: what is asked of a GPU (``lp``: of a set) under a scenario.
    scenario:
        ``[rows]``: whose largest load a row counts for.
    slots:
        Slots of each GPU, all of which are filled, ``[gpus]``.
    votes:
        Weight of each scenario's largest load in the objective, whole numbers.
    start:
        Pattern of each expert in the incumbent, ``[experts]``.
    least:
        Nothing is below it, or worth seeking, in steps times votes.
    second_first:
        Whether no expert may have three copies while another has one.
    homogeneous:
        Whether GPUs may change places.
    """

    patterns: Bools
    allowed: Bools
    load: Ints
    scenario: Ints
    slots: Ints
    votes: Ints
    start: Ints
    least: int = 0
    second_first: bool = False
    homogeneous: bool = False

    def peaks(self, chosen: Ints) -> Ints:
        """Return the largest load of each scenario, in steps, for the patterns ``chosen`` ``[experts]``."""
        rows = self.load[:, np.arange(chosen.size), chosen].sum(axis=1)
        peaks = np.zeros(self.votes.size, dtype=np.int64)
        np.maximum.at(peaks, self.scenario, rows)
        return peaks

    def value(self, chosen: Ints) -> int:
        """Return the objective, in steps times votes."""
        return int(self.votes @ self.peaks(chosen))


@dataclass(frozen=True, eq=False)
class ChoiceModel:
    """The model and its variables: ``chosen[expert][pattern]`` of those allowed, and the peak of each scenario."""

    model: cp_model.CpModel
    chosen: list[dict[int, cp_model.IntVar]]
    peak: list[cp_model.IntVar]


def build(choices: Choices) -> ChoiceModel:
    """Return the model with all its constraints and its objective; no hint, so that the incumbent decides no ties."""
    built = variables(choices)
    choose_one_pattern(built)
    fill_slots(built, choices)
    bound_peak_by_loads(built, choices)
    second_before_third(built, choices)
    fix_heaviest(built, choices)
    bound_objective(built, choices)
    minimize_peaks(built, choices)
    return built


def variables(choices: Choices) -> ChoiceModel:
    """Make the variables: whether each expert has each pattern, and the largest load of each scenario."""
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    chosen = [
        {
            pattern: model.new_bool_var(f"expert{expert}_as{pattern}")
            for pattern in np.flatnonzero(row).tolist()
        }
        for expert, row in enumerate(choices.allowed)
    ]
    most = int(choices.load.max(axis=2).sum(axis=1).max())
    return ChoiceModel(
        model, chosen, [model.new_int_var(0, most, f"peak{s}") for s in range(choices.votes.size)]
    )


def choose_one_pattern(built: ChoiceModel) -> None:
    """Give each expert one pattern."""
    for row in built.chosen:
        built.model.add_exactly_one(row.values())


def fill_slots(built: ChoiceModel, choices: Choices) -> None:
    """Make each GPU hold as many copies as it has slots."""
    for gpu, slots in enumerate(choices.slots.tolist()):
        here = choices.patterns[:, gpu]
        built.model.add(
            sum(var for row in built.chosen for pattern, var in row.items() if here[pattern]) == slots
        )


def bound_peak_by_loads(built: ChoiceModel, choices: Choices) -> None:
    """Keep the peak of each scenario at or above the load of each GPU (``lp``: of each set) under it."""
    from ortools.sat.python import cp_model

    every = [(expert, pattern) for expert, row in enumerate(built.chosen) for pattern in row]
    expert, pattern = (np.array(each) for each in zip(*every, strict=True))
    variable = [built.chosen[e][p] for e, p in every]
    for load, scenario in zip(choices.load[:, expert, pattern], choices.scenario.tolist(), strict=True):
        some = np.flatnonzero(load).tolist()
        total = cp_model.LinearExpr.weighted_sum([variable[i] for i in some], load[some].tolist())
        built.model.add(total <= built.peak[scenario])


def second_before_third(built: ChoiceModel, choices: Choices) -> None:
    """Let no expert have three copies while another has one."""
    if not choices.second_first:
        return
    third = built.model.new_bool_var("third_copies")
    copies = choices.patterns.sum(axis=1)
    for row in built.chosen:
        for pattern, var in row.items():
            if copies[pattern] >= 3:
                built.model.add_implication(var, third)
            elif copies[pattern] == 1:
                built.model.add_implication(var, ~third)


def fix_heaviest(built: ChoiceModel, choices: Choices) -> None:
    """Keep the first expert on the first GPUs, where those may change places."""
    if choices.homogeneous:
        for pattern, var in built.chosen[0].items():
            held = choices.patterns[pattern]
            if (np.diff(held.astype(int)) > 0).any():
                built.model.add(var == 0)


def bound_objective(built: ChoiceModel, choices: Choices) -> None:
    """Return what nothing is below, or worth seeking; and that the incumbent is known."""
    known = choices.value(choices.start)
    built.model.add_linear_constraint(_objective(built, choices), min(choices.least, known), known)


def minimize_peaks(built: ChoiceModel, choices: Choices) -> None:
    """Ask for the smallest largest loads."""
    built.model.minimize(_objective(built, choices))


def _objective(built: ChoiceModel, choices: Choices) -> cp_model.LinearExprT:
    return sum(int(vote) * peak for vote, peak in zip(choices.votes, built.peak, strict=True))


def choose(
    choices: Choices, budget: Budget, *, most_s: float, seed: int = 0
) -> tuple[Ints | None, float, float]:
    """Return patterns ``[experts]`` no worse than the incumbent's, if any, a bound, and the solver's seconds.

    The bound is in steps times votes. Without the linear relaxation: it proves 16 copies on 4 GPUs in a third of the
    time (measured), and uses whole numbers alone.
    """
    from ortools.sat.python import cp_model

    built = build(choices)
    solver, status = solve_within(built.model, budget, seed=seed, most_s=most_s, linear=0)
    if status not in {cp_model.OPTIMAL, cp_model.FEASIBLE}:
        return None, choices.least, 0.0
    chosen = np.array(
        [next(p for p, var in row.items() if solver.boolean_value(var)) for row in built.chosen]
    )
    return chosen, solver.best_objective_bound, solver.response_proto.deterministic_time


def is_small(problem: Problem) -> bool:
    """Whether a layer has few enough experts, patterns and placements for one model; quota slots have none."""
    if problem.split == "quota":
        return False
    slots = problem.slots_per_gpu[problem.slots_per_gpu > 0].tolist()
    gpus, most = len(slots), min(len(slots), problem.slots - problem.experts + 1)
    if most < 1 or gpus > _MOST_GPUS:
        return False
    choices = problem.experts * sum(math.comb(gpus, copies) for copies in range(1, most + 1))
    rows = problem.scenarios * (2**gpus if problem.split == "lp" else gpus)
    ways = sum(math.log(math.comb(problem.experts, each)) for each in slots)
    ways -= sum(math.lgamma(slots.count(each) + 1) for each in set(slots))  # GPUs change places
    return choices <= _MOST_CHOICES and choices * rows <= _MOST_NUMBERS and ways <= _MOST_WAYS


def finish_small(
    problem: Problem, slot_expert: Experts, bound: Floats, budget: Budget, *, seed: int
) -> tuple[Experts, Floats, str]:
    """Return placements ``[layers, slots]`` of a small problem, a bound ``[layers]``, and what ran in words.

    Layers that are not proven to be as good as any are solved whole. Under an LP split a placement within
    :data:`placement.experts.dispatch_refinement.SLACK` of the best stays: it bears other loads better.
    """
    found, bound = slot_expert.copy(), bound.copy()
    value = problem.evaluate(found)
    layers = np.flatnonzero(~proven(value, bound))
    if layers.size == 0:
        return found, bound, ""
    better = optimal = 0
    until = (budget if budget.seconds else Budget(None)).search(_SMALL_S * layers.size)
    for done, layer in enumerate(layers.tolist()):
        part = problem.rows(np.array([layer]))
        order = np.argsort(-part.mean[0], kind="stable")  # names of experts decide nothing
        loads = part.loads[:, :, order]
        turn = np.lexsort(loads[:, 0].T[::-1])  # nor the order of scenarios
        ranked = replace(part, loads=loads[turn], votes=None if part.votes is None else part.votes[turn])
        choices = whole_layer(ranked, np.argsort(order)[found[layer]], float(bound[layer]))
        most_s = max(_SMALL_S, until.left() / 1000 / (layers.size - done))
        chosen, least, _ = choose(replace(choices, second_first=False), until, most_s=most_s, seed=seed)
        if choices.second_first and chosen is not None and not _second_first(choices.patterns[chosen]):
            chosen = choose(choices, until, most_s=most_s, seed=seed)[0]
        scale = STEPS * int(choices.votes.sum())
        bound[layer] = max(bound[layer], least / scale)
        if chosen is not None:
            row = order[_row(choices.patterns[chosen])].astype(np.int32)
            reached = float(problem.rows(np.array([layer])).evaluate(row[None])[0])
            if reached * (1 + (SLACK if problem.split == "lp" else EQUAL)) < value[layer]:
                found[layer], value[layer], better = row, reached, better + 1
        # loads are rounded down to steps: that is all that may lie between
        rounding = problem.experts * choices.patterns.shape[1] / STEPS
        if value[layer] <= bound[layer] * (1 + EQUAL) + rounding:
            bound[layer], optimal = value[layer], optimal + 1
    words = f"CP-SAT on {layers.size} whole layers: {better} improved, {optimal} proven optimal"
    return found, bound, words


def _second_first(held: Bools) -> bool:
    """Whether no expert has three copies while another has one, of ``[experts, gpus]``."""
    return bool(second_copies_first(held.sum(axis=1)[None])[0])


def whole_layer(problem: Problem, row: Experts, bound: float) -> Choices:
    """Return what is decided in the one layer of ``problem``, from the placement ``row`` ``[slots]``."""
    used = np.flatnonzero(problem.slots_per_gpu > 0)
    most = min(used.size, problem.slots - problem.experts + 1)
    every = [sets for copies in range(1, most + 1) for sets in combinations(range(used.size), copies)]
    patterns = np.zeros((len(every), used.size), dtype=bool)
    for pattern, gpus in zip(patterns, every, strict=True):
        pattern[list(gpus)] = True
    patterns = patterns[_spread(problem, patterns, used)]
    weight = _weights(problem, patterns, used)
    relative = problem.loads[:, 0] * (problem.gpus / problem.loads[:, 0].sum(axis=1, keepdims=True))
    load = relative[:, None, :, None] * weight.transpose(2, 0, 1)  # [scenarios, rows, experts, patterns]
    held = problem.on_gpus(row[None])[0][used].T
    number = {each.tobytes(): index for index, each in enumerate(patterns)}
    start = np.array([number[each.tobytes()] for each in np.ascontiguousarray(held)])
    worst = problem.objective == "worst"
    scenario = np.repeat(np.arange(problem.scenarios) * (not worst), load.shape[1])
    votes = np.ones(1, dtype=np.int64) if worst else _whole_votes(problem)
    slots, speed = problem.slots_per_gpu[used], problem.speed[used]
    return Choices(
        patterns,
        np.ones((problem.experts, len(patterns)), dtype=bool),
        np.floor(load.reshape(-1, *load.shape[2:]) * STEPS).astype(np.int64),
        scenario,
        slots,
        votes,
        start,
        math.floor(bound * (1 - EQUAL) * STEPS * int(votes.sum())) - int(votes.sum()) * problem.slots,
        problem.spread is not None and _second_first(patterns[start]),
        homogeneous=bool(
            (slots == slots[0]).all()
            and (speed == speed[0]).all()
            and problem.each_alone
            and not depends_on_placement(problem.split)
        ),
    )


def _spread(problem: Problem, patterns: Bools, used: Ints) -> Bools:
    """Which patterns have copies spread over failure domains, ``[patterns]``."""
    domain = np.unique(problem.failure_domain[used], return_inverse=True)[1]
    there = patterns.astype(np.int64) @ (domain[:, None] == np.arange(domain.max() + 1)).astype(np.int64)
    fine: Bools = there.max(axis=1) <= problem.most_in_domain(patterns.sum(axis=1))
    return fine


def _weights(problem: Problem, patterns: Bools, used: Ints) -> Floats:
    """What an expert's load is multiplied by on each row, ``[experts, patterns, rows]``."""
    speed = problem.speed[used]
    if problem.split == "lp":
        sets = (np.arange(1, 2**used.size)[:, None] >> np.arange(used.size)) & 1
        inside = ~(patterns[:, None, :] & (sets == 0)).any(axis=2)
        weight: Floats = (inside / (sets @ speed))[None]
    elif not depends_on_placement(problem.split):
        weight = (patterns / patterns.sum(axis=1, keepdims=True) / speed)[None]
    else:
        weight = np.stack(
            [_shares(problem, patterns, used, e)[:, used] / speed for e in range(problem.experts)]
        )
    return np.broadcast_to(weight, (problem.experts, *weight.shape[1:]))


def _shares(problem: Problem, patterns: Bools, used: Ints, expert: int) -> Floats:
    """Share of an expert's load that each GPU takes with each pattern, ``[patterns, gpus]``."""
    held = np.zeros((len(patterns), problem.gpus), dtype=bool)
    held[:, used] = patterns
    other = problem.experts  # whoever has the other GPUs
    rows = np.where(held, expert, other).astype(np.int32)
    one = Assignment(rows, np.arange(problem.gpus, dtype=np.int32), problem.experts + 1, problem.gpus)
    shares: Floats = np.where(held, slot_shares(one, problem.split, nodes=problem.nodes), 0.0)
    return shares


def _whole_votes(problem: Problem) -> Ints:
    """Votes of the scenarios as whole numbers."""
    if problem.votes is None:
        return np.ones(problem.scenarios, dtype=np.int64)
    parts = [Fraction(vote).limit_denominator(10_000) for vote in problem.votes.tolist()]
    scale = math.lcm(*(part.denominator for part in parts))
    return np.array([int(part * scale) for part in parts], dtype=np.int64)


def _row(held: Bools) -> Experts:
    """Return the slots of a layer, ``[slots]``, for who is on which GPU with slots, ``[experts, gpus]``."""
    return np.nonzero(held.T)[1].astype(np.int32)


def improve(
    problem: Problem, slot_expert: Experts, bound: Floats, budget: Budget, *, seed: int
) -> tuple[Experts, str]:
    """Lower the largest GPU loads of ``slot_expert`` ``[layers, slots]``, never worse; also what ran, in words.

    Always the layers with the largest gap to their ``bound`` ``[layers]`` (multiples of the mean GPU load),
    a few at once: the hottest GPU, the coldest and two drawn by ``seed`` are dealt out
    again. Ends when every layer is within :data:`CLOSE` of its bound or was given up, or at ``budget``.
    """
    search = _Search(problem, slot_expert, bound, seed)
    with budget, budget.keeping(), ThreadPoolExecutor(min(_AT_ONCE, cores())) as pool:
        while budget.goes_on() and search.widest(_AT_ONCE).size:
            parts = [search.part(int(layer)) for layer in search.widest(_AT_ONCE)]
            found = list(pool.map(search.solved, parts))
            for part, (chosen, _) in zip(parts, found, strict=True):
                search.keep(part, chosen)
            budget.spend(sum(_FIXED_COST + _COST * took for _, took in found))
            budget.tell(lambda: (search.done, problem.layers, search.objective, float(bound.mean())))
    ran = (
        f"CP-SAT: groups of up to {_PARTNERS + 1} GPUs {search.tried} times, {search.gained} improvements, "
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
    choices: Choices
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

    def part(self, layer: int) -> _Part:
        """Choose GPUs of ``layer`` and describe what they hold."""
        gpus = self._choose(layer)
        first = self.problem.first_slot
        slots = tuple(np.arange(first[gpu], first[gpu + 1]) for gpu in gpus)
        experts = np.unique(np.concatenate([self.slot_expert[layer, here] for here in slots]))
        on = np.stack([np.isin(experts, self.slot_expert[layer, here]) for here in slots], axis=1)
        target = float(self.bound[layer]) * (1 + CLOSE / 2)
        choices = few_gpus(
            self.problem, gpus, on, self.share[layer, experts], self._barred(layer, gpus, experts), target
        )
        return _Part(layer, gpus, slots, experts, choices, int(self.rng.integers(2**31)))

    @staticmethod
    def solved(part: _Part) -> tuple[Ints | None, float]:
        """Return better patterns, if there are some, and the solver's seconds."""
        chosen, _, took = choose(part.choices, Budget(None).search(_FEW_S), most_s=_FEW_S, seed=part.seed)
        return chosen, took

    def keep(self, part: _Part, chosen: Ints | None) -> None:
        """Keep what makes the hottest of the GPUs cooler."""
        self.tried += 1
        if chosen is None:
            self.failures[part.layer] += 1
            return
        on = part.choices.patterns[chosen]
        load = (self.share[part.layer, part.experts, None] * on).sum(axis=0) / self.problem.speed[part.gpus]
        if load.max() >= self.gpu_load[part.layer, part.gpus].max():
            self.failures[part.layer] += 1
            return
        for column, here in enumerate(part.slots):
            self.slot_expert[part.layer, here] = part.experts[on[:, column]]
        self.gpu_load[part.layer, part.gpus] = load
        self.failures[part.layer] = 0
        self.gained += 1

    def _barred(self, layer: int, gpus: Ints, experts: Experts) -> Bools:
        """Where another GPU of the failure domain holds the expert, ``[experts, gpus]``."""
        domain, slot_gpu = self.problem.failure_domain, self.problem.slot_gpu
        outside = ~np.isin(slot_gpu, gpus)
        held = np.zeros((int(domain.max()) + 1, self.problem.experts), dtype=bool)
        held[domain[slot_gpu[outside]], self.slot_expert[layer, outside]] = True
        return held[domain[gpus][None, :], experts[:, None]]

    def _choose(self, layer: int) -> Ints:
        """Pick the hottest GPU, the coldest one, and others drawn among those that have slots."""
        load = self.gpu_load[layer]
        used = np.flatnonzero(self.problem.slots_per_gpu > 0)
        order = used[np.argsort(load[used], kind="stable")]
        if order.size <= _PARTNERS + 1:
            return order
        drawn = self.rng.choice(order[1:-1], size=_PARTNERS - 1, replace=False)
        return np.concatenate([order[-1:], order[:1], drawn])


def few_gpus(problem: Problem, gpus: Ints, on: Bools, share: Floats, barred: Bools, target: float) -> Choices:
    """Return what is decided when some ``gpus`` are dealt out again, counts as they are.

    Parameters
    ----------
    on:
        The incumbent: who has a copy on which of the GPUs, ``[experts, gpus]``.
    share:
        Load of a copy of each expert, in multiples of the mean GPU load.
    barred:
        ``[experts, gpus]``: where an expert may not come, since another GPU of the domain holds it.
    target:
        A largest load below which nothing is gained.
    """
    every = (np.arange(1, 2**gpus.size)[:, None] >> np.arange(gpus.size)) & 1
    patterns = every.astype(bool)
    domain = problem.failure_domain[gpus]
    same = (domain[:, None] == domain) & ~np.eye(gpus.size, dtype=bool)
    apart = ~(patterns[:, :, None] & patterns[:, None, :] & same).any(axis=(1, 2))
    fits = every.sum(axis=1)[None] == on.sum(axis=1)[:, None]
    clash = (barred[:, None, :] & patterns).any(axis=2)
    load = np.floor(share[:, None, None] * patterns / problem.speed[gpus] * STEPS).astype(np.int64)
    start = (on @ (1 << np.arange(gpus.size))) - 1
    return Choices(
        patterns,
        (fits & ~clash & apart) | (np.arange(len(patterns)) == start[:, None]),
        np.moveaxis(load, 2, 0),
        np.zeros(gpus.size, dtype=np.int64),
        on.sum(axis=0),
        np.ones(1, dtype=np.int64),
        start,
        math.floor(target * STEPS),
    )
