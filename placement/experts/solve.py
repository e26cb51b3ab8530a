"""Place experts: construct (counts, packing, swaps), improve within a budget, exactly where there are few."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from placement.arrays import Experts, Floats, Index, falling
from placement.budget import CUT, Budget, evenly
from placement.experts.anti_affinity import place_spread
from placement.experts.baselines import Baselines
from placement.experts.bounds import lower_bound
from placement.experts.counts import folds, replicate, searched_counts
from placement.experts.dispatch_refinement import SLACK, fit_to_split
from placement.experts.exact import can_finish, few_sets, finish
from placement.experts.excess import relieve
from placement.experts.fast_path import NEAR_GAP, fast_placement
from placement.experts.local_search import swap_down
from placement.experts.pack import distinct_copies, pack
from placement.experts.problem import (
    EQUAL,
    WIDE_GAP,
    Problem,
    keep_better,
    proven,
    search_state,
    second_copies_first,
)
from placement.experts.result import ExpertResult, checked_result
from placement.experts.soft_max import STEPS, anneal, descend, step_cells

EASY_S, HARD_S = 1.0, 10.0
"""Seconds' worth of search where none are asked for: with a small gap after the fast path, and with a wide one."""

_MAX_BEHIND_BASELINE = (
    0.01  # of a baseline, at most, between batches: to make one takes as long as all the rest
)
_BEFORE_PATTERNS = 0.2  # of the time limit: a good answer leaves fewer patterns of a GPU
_COUNT_SHARE = 0.85  # of the time limit: where the fold is exact, counts are all there is to find
_COUNT_COST = 0.4, 2e-5  # units for a step of count search, and for each copy in its layers
_ANNEAL_COST = 0.15, 3.5e-7  # units for a step of annealing, and for each number that it writes
_RELIEF_COST = (
    0.15,
    3.3e-6,
)  # units for a step towards a target, with the swaps that follow, and for each number
_RELIEF_STEPS = 200, 800  # towards a target at first; doubled where layers have tried all targets
_MAX_TARGET_PART = (
    0.985  # of the gap: targets lie halfway to the bound at first, and nearer, up to here, where out of reach
)
_DONE_GAP = 1e-4  # a layer is done when its largest load is within this part of its bound
_FEW_SLOTS = 3  # of a GPU: swaps to the end come before annealing
_RELIEF_PART = 0.8  # of the way from the mean load: aimed for, where copies are exchanged...
_RELIEF_START_STEPS = 40  # ... in so many steps
_STEPS_A_SLOT = 17  # of annealing on the fast path
_ANNEALED = 240_000_000  # ... and numbers that it writes at most for each layer: some seconds for 58


def solve(
    problem: Problem,
    budget: Budget | None = None,
    *,
    seed: int = 0,
    eplb_groups: int | None = None,
    nodes: int = 1,
    exact: bool = True,
    effort: float = 1.0,
) -> ExpertResult:
    """Place the experts of all layers of ``problem``, once for all its loads.

    What is kept small, layer by layer, is :meth:`Problem.evaluate`; ``max_load`` and ``bound`` of the result are of
    that. A ``budget`` without seconds (or none) runs the fast path alone, which looks at each layer by itself. Every
    layer is at least as balanced as in each EPLB baseline (of several loads: planned on their mean, all by votes),
    except where that one puts two copies in one failure domain and wins by it (the log names such layers), and where
    0.0015 of the mean load are left at most (without ``exact``: where it wins by 0.01 at most). Copies are spread
    over failure domains as :func:`placement.experts.problem.most_in_domain` says. Over several loads the search
    minimises a smooth stand-in, which holds better on loads not seen, and listens to :attr:`Problem.searched`; the
    order of loads changes nothing, and equal ones are one. Fixed copies beside quota slots are placed for an even
    split: the better they bear loads by themselves, the fewer copies are fetched.

    Parameters
    ----------
    seed:
        Of the search within the budget.
    eplb_groups, nodes:
        The model's expert groups and the scale-up domains, for the hierarchical baseline.
    exact:
        Whether small layers are solved by CP-SAT. Without, the fast path under one load gives the same bytes on every
        machine.
    effort:
        Part of the usual steps of annealing over several loads on the fast path.

    Raises
    ------
    InfeasibleError
        If the slots cannot be filled with copies spread so.
    """
    if problem.split == "quota":
        even = solve(
            problem.even, budget, seed=seed, eplb_groups=eplb_groups, nodes=nodes, exact=exact, effort=effort
        )
        return even.under(problem)
    budget = budget or Budget()
    ordered = problem.in_order()
    if ordered.scenarios > 1 and ordered.equal_loads:
        ordered = replace(ordered, loads=ordered.loads[0])
    judge = ordered.by_votes
    sets = exact and few_sets(judge)
    finishing = sets or (exact and budget.seconds != 0 and can_finish(judge))
    search = _Search(seed, effort)
    place = search.one_load if ordered.scenarios == 1 else search.several_loads
    rivals = Baselines(judge.average, eplb_groups=eplb_groups, nodes=nodes)
    first = Budget() if sets else budget.part(_BEFORE_PATTERNS) if finishing else budget
    placement = place_spread(ordered.even, place, first, search.log)
    fitted = None
    with budget:
        fitted = fit_to_split(placement, problem, search.log)
    result = partial(checked_result, problem, baselines=rivals, search=search.why)
    if fitted is None:  # interrupted
        return result(placement, log=tuple(search.log), interrupted=True)
    near = NEAR_GAP if exact else _MAX_BEHIND_BASELINE
    least = 1.0 + near if search.bound is None else np.maximum(1.0 + near, search.bound * (1 + EQUAL))
    if not (search.done and problem.split == "even"):
        value = search.load if problem.split == "even" else None
        value = ordered.evaluate(fitted) if value is None else value
        _not_behind(
            ordered, fitted, value, least, rivals, search.log, nodes, EQUAL if exact else _MAX_BEHIND_BASELINE
        )
    bound = None
    if finishing:
        value = judge.evaluate(fitted)
        bound = lower_bound(judge, value)
        worth_s, why = worth_searching(value, bound)
        if not sets:
            result = partial(result, search=why if budget.seconds is None else "")
        fitted, bound, words = finish(judge, fitted, bound, budget, worth_s=worth_s, seed=seed)
        search.log += [words] if words else []
        if judge is not ordered:
            bound = None  # by votes nothing is proven of the plain mean
    return result(fitted, log=tuple(search.log), interrupted=budget.interrupted, exact=bound)


def _not_behind(
    problem: Problem,
    slot_expert: Experts,
    value: Floats,
    least: float | Floats,
    rivals: Baselines,
    log: list[str],
    nodes: int,
    near: float,
) -> None:
    """Take a baseline's placement in the layers above ``least`` where one is ahead and legal, in place.

    Layers within ``near`` of what its counts allow are left.
    """
    slack = SLACK if problem.split == "lp" else EQUAL
    behind = np.zeros(0, dtype=np.intp)
    for name in rivals:
        same = nodes == 1 and name == "eplb_hierarchical"  # as the global one
        rows = behind if same else np.flatnonzero(value > least)
        if not same and rows.size:
            rows = rows[value[rows] > rivals.least(name, rows) * (1 + near)]
        if not rows.size:
            continue
        assignment = rivals.of_rows(name, rows).assignment
        if assignment is None:
            continue
        rival = assignment.slot_expert
        ahead = problem.rows(rows).evaluate(rival) * (1 + slack) < value[rows]
        rows, rival = rows[ahead], rival[ahead]
        if rows.size == 0:
            behind = rows
            continue
        trial, fits = rival, problem.over_cap(rival) == 0
        if problem.can_be_apart:
            trial, fits = distinct_copies(problem.average.rows(rows), rival)
        trial_load = problem.rows(rows).evaluate(trial)
        won = fits & (trial_load * (1 + slack) < value[rows])
        won[won] = problem.legal(trial[won])
        if problem.seconds_first:
            won &= second_copies_first(problem.assignment(trial).copies)
        slot_expert[rows[won]], value[rows[won]] = trial[won], trial_load[won]
        if won.any():
            log.append(f"{name} is better and used in {int(won.sum())} layers")
        behind = rows[~won]
        if behind.size:
            names = behind.tolist()
            log.append(f"{name} is ahead with two copies of an expert in one failure domain in rows {names}")


def worth_searching(load: Floats, bound: Floats) -> tuple[float, str]:
    """Return the worthwhile search work in seconds after the fast path, with the reason in words.

    ``load`` and ``bound`` are ``[layers]``. Where the gap is small, pair exchanges to the end take milliseconds.
    With two slots a GPU or very skewed loads it is wide, and the search gains for seconds.
    """
    gap = 1 - float(np.minimum(bound, load).mean() / load.mean())
    if gap > WIDE_GAP:
        return HARD_S, f"{HARD_S:g} s, since the gap was still {gap:.1%} after the fast path"
    return EASY_S, f"{EASY_S:g} s, since the gap was only {gap:.2%} after the fast path"


class _Search:
    """Construction and search with no two copies of an expert in a failure domain; what ran, and why so long."""

    def __init__(self, seed: int, effort: float) -> None:
        self.seed, self.effort = seed, effort
        self.log: list[str] = []
        self.why = ""
        self.bound: Floats | None = None  # for one load, under an even split
        self.load: Floats | None = None  # of the placement then, where copies need not be spread
        self.done = False  # whether nothing can be better under an even split

    def one_load(self, problem: Problem, budget: Budget) -> Experts:
        """Place for one load.

        The search sees experts by falling load, so that their names decide nothing, not even ties.
        """
        order = falling(problem.mean)
        first = np.arange(problem.layers)[:, None] * problem.experts
        ranked = replace(problem, loads=problem.mean.take(order + first))
        slot_expert, load, bound, ran = fast_placement(ranked)
        self.bound = bound if problem.each_alone else None
        self.load = load if problem.spread is None else None
        self.log += ran
        if proven(load, bound).all():
            self.done = problem.each_alone
            self.log.append("the fast placement reaches the bound in every layer")
            self.why = (
                "none, since the fast path reaches the bound in every layer" if budget.seconds is None else ""
            )
        else:
            worth_s, why = worth_searching(load, bound)
            self.why = why if budget.seconds is None else ""
            until = budget.search(worth_s)
            if until.goes_on():
                self.load = None
                slot_expert, ran = search(ranked, slot_expert, bound, until, seed=self.seed)
                self.log += ran
        return order.take(slot_expert + first).astype(np.int32)

    def several_loads(self, problem: Problem, budget: Budget) -> Experts:
        """Place for several loads at once.

        Copies by each expert's highest load in any scenario given, largest first, annealing. Not by loads that nobody
        gave: they would take copies from where they are needed.
        """
        judge, searched = problem.by_votes, problem.searched
        slot_expert = pack(judge.average, replicate(judge.highest))
        if int(judge.slots_per_gpu.max()) <= _FEW_SLOTS or not judge.equal_speeds:
            slot_expert = descend(searched, slot_expert)
            if judge.slots > judge.experts:
                level = searched.peaks(slot_expert)
                target = 1 + _RELIEF_PART * (level - 1)
                relieved = relieve(searched, slot_expert, target, steps=_RELIEF_START_STEPS)
                keep_better(searched, slot_expert, np.arange(judge.layers), descend(searched, relieved))
        cells = step_cells(searched)
        steps = min(_STEPS_A_SLOT * searched.slots, _ANNEALED * searched.layers // cells) if cells else 0
        anneal(searched, slot_expert, rounds=evenly(round(self.effort * steps) // STEPS))
        groups = problem.groups
        heard = f"{problem.scenarios} scenarios in {groups} group{'s' * (groups != 1)} of alike ones, one vote each"
        self.log.append(f"{heard}: copies by each expert's highest load, annealing over swaps")
        if budget.seconds is None:
            # eight times the steps bring .002 to .005 on loads left out at four slots a GPU, nothing at nine
            self.why = "none, since more annealing hardly helps on loads that were not given"
        elif budget.seconds:
            bound = lower_bound(problem)
            self.log.append(_anneal_on(problem, slot_expert, bound, budget.search(0.0), self.seed))
        return slot_expert


def search(
    problem: Problem, slot_expert: Experts, bound: Floats, budget: Budget, *, seed: int
) -> tuple[Experts, tuple[str, ...]]:
    """Improve ``slot_expert`` ``[layers, slots]`` within ``budget``; no layer gets worse. Also what ran, in words.

    Pair exchanges go on to a local optimum. Where counts alone decide, those of layers with a gap to their ``bound``
    ``[layers]`` are searched. With a time limit annealing has the rest of it.
    """
    improved = slot_expert.copy()
    tell = partial(budget.tell, lambda: search_state(problem.evaluate(improved), bound))
    with budget, budget.keeping():
        layers = np.flatnonzero(~proven(problem.evaluate(improved), bound))
        keep_better(problem, improved, layers, swap_down(problem.rows(layers), improved[layers]))
        wide = np.flatnonzero(problem.evaluate(improved) > bound * (1 + WIDE_GAP / 10))
        if folds(problem) and wide.size:
            _search_counts(
                problem, improved, wide, budget.part(_COUNT_SHARE if budget.seconds else 1.0), seed, tell
            )
        if budget.seconds:
            _relieve_on(problem, improved, bound, budget, seed, tell)
    better = int((problem.evaluate(improved) < problem.evaluate(slot_expert)).sum())
    words = "swaps, other copy counts and annealing" if budget.seconds else "swaps and other copy counts"
    return improved, (f"{words}: {better} layers improved", *[CUT] * budget.cut)


def _search_counts(
    problem: Problem, slot_expert: Experts, wide: Index, budget: Budget, seed: int, tell: Callable[[], None]
) -> None:
    """Look for other counts in the ``wide`` layers within ``budget``, in place."""
    part = problem.rows(wide)
    rounds = budget.rounds(_COUNT_COST[0] + _COUNT_COST[1] * wide.size * problem.slots, tell)
    counts = searched_counts(part, part.assignment(slot_expert[wide]).copies, rounds=rounds, seed=seed)
    keep_better(problem, slot_expert, wide, swap_down(part, pack(part, counts)))


def _relieve_on(
    problem: Problem,
    slot_expert: Experts,
    bound: Floats,
    budget: Budget,
    seed: int,
    tell: Callable[[], None],
) -> None:
    """Anneal towards loads between ``bound`` ``[layers]`` and the answer within ``budget``, in place."""
    aim, round_steps = np.full(problem.layers, 0.5), _RELIEF_STEPS[0]
    while budget.goes_on():
        tell()
        value = problem.evaluate(slot_expert)
        far = value > bound * (1 + _DONE_GAP)
        rows = np.flatnonzero(far & (aim < _MAX_TARGET_PART))
        if rows.size == 0:
            if not far.any() or round_steps == _RELIEF_STEPS[1]:
                return
            aim[:], round_steps = 0.5, 2 * round_steps
            continue
        part = problem.rows(rows)
        cost = _RELIEF_COST[0] + _RELIEF_COST[1] * step_cells(part)
        steps = min(round_steps, math.ceil(budget.left() / cost))
        target = bound[rows] + aim[rows] * (value[rows] - bound[rows])
        trial = relieve(
            part, slot_expert[rows], target, steps=steps, seed=seed, stop=lambda: not budget.goes_on()
        )
        trial = swap_down(part, trial)
        better = part.apart(trial) & (part.evaluate(trial) < value[rows])
        slot_expert[rows[better]] = trial[better]
        aim[rows] = np.where(better, 0.5, (1 + aim[rows]) / 2)
        budget.spend(cost * steps)
        seed += 1


def _anneal_on(problem: Problem, slot_expert: Experts, bound: Floats, budget: Budget, seed: int) -> str:
    """Anneal in place within ``budget``; return what ran."""
    cost = STEPS * (_ANNEAL_COST[0] + _ANNEAL_COST[1] * step_cells(problem.searched))
    rounds = budget.rounds(
        cost, lambda: budget.tell(lambda: search_state(problem.evaluate(slot_expert), bound))
    )
    better = 0
    with budget, budget.keeping():
        better = anneal(problem.searched, slot_expert, rounds=rounds, seed=seed)
    text = f"annealing over swaps: {better} layers improved by log-sum-exp, seed {seed}"
    return text + (f"; {CUT}" if budget.cut else "")
