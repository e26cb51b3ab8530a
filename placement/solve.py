"""Place experts: counts, packing, pair exchanges, other counts, CP-SAT, the dispatch policy; checked at the end."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import numpy as np

from placement.annealing import STEPS, anneal, step_cells
from placement.anti_affinity import keep_second_copies, place_spread
from placement.arrays import Experts, Floats, Index, Ints, falling
from placement.baselines import Baseline, Baselines, take_where_ahead
from placement.bounds import lower_bound
from placement.copy_exchange import exchange_drawn, recount
from placement.count_search import CountSearch, exact_fold
from placement.cpsat import improve
from placement.dispatch_refinement import cut_short, fit_to_split
from placement.exhaustive import few_placements
from placement.fast_path import TRIED, Rival, fast_placement, step_counter
from placement.local_search import swap_down
from placement.pack import distinct_copies, pack
from placement.problem import WIDE, Problem, keep_better, proven
from placement.replication import replicate
from placement.result import ExpertResult, checked_result
from placement.scenario_search import descend, pairs
from placement.small_search import finish_small, is_small
from placement.budget import Budget
from topology.host import cores

EASY_S, HARD_S = 1.0, 10.0
"""Seconds' worth of search where none are asked for: with a small gap after the fast path, and with a wide one."""

_FOLD_SHARE, _COUNT_SHARE, _RECOUNT_SHARE = 0.85, 0.5, 0.15  # of the time limit
_FEW = 4  # layers: they are searched several times, with other draws, every second one from greedy counts...
_DRAWS = 2  # ... so often
CUT = "ended early: the best placement so far is kept"
_STEP = 60.0  # units of work in a step, about
_COUNT_STEP, _COUNT_COST = 0.4, 1.2e-5  # units for a step of count search, and for each slot of a count tried
_RECOUNT_COST = 1.2e-2  # units for a round of exchanges, by slots
_ANNEAL_COST = 0.15, 3.5e-7  # units for a step of annealing, and for each number that it writes
_ALIKE = 1e-3
_FAST_ROUNDS = 12  # of exchanges on the fast path of several loads, at most
_FAST_WORK = 120_000_000  # pairs of slots over layers and scenarios in them: a second or two
_ORDINARY = "the placement for the mean load"
_FEW_SLOTS = 3  # of a GPU: copy counts decide more than who lies with whom
_STEPS_A_SLOT = 12  # of annealing on the fast path
_ANNEALED = 11_000_000_000  # ... and numbers that it writes at most: some seconds


def solve(
    problem: Problem,
    budget: Budget | None = None,
    *,
    seed: int = 0,
    eplb_groups: int | None = None,
    nodes: int = 1,
) -> ExpertResult:
    """Place the experts of all layers of ``problem``, once for all its loads.

    What is kept small, layer by layer, is :meth:`Problem.evaluate`; ``max_load`` and ``bound`` of the result are of
    that. A ``budget`` without seconds (or none) runs the fast path alone; with them, the answer is a function of the
    work that the ``budget`` counts (:mod:`placement.work`). Of one load the fast path's bytes are the same on every
    machine, and those of a layer whatever other layers are there. Every layer is at least as balanced as in each EPLB
    baseline (of several loads: planned on their mean, all by votes), except where that one puts two copies in one
    failure domain and wins by it (the log names such layers), and where 0.0015 of the mean load are left at most.
    Copies are spread over failure domains as :func:`placement.problem.most_in_domain` says. Over several loads the
    search minimises a smooth stand-in, which holds better on loads not seen, and listens to :attr:`Problem.searched`;
    the order of loads changes nothing, and equal ones are one.

    Parameters
    ----------
    seed:
        Of the search within the time limit.
    eplb_groups, nodes:
        The model's expert groups and the scale-up domains, for the hierarchical baseline.

    Raises
    ------
    InfeasibleError
        If the slots cannot be filled with copies spread so.
    """
    budget = budget or Budget()
    ordered = problem.in_order()
    if ordered.equal_loads:
        ordered = replace(ordered, loads=ordered.loads[0])

    def place(some: Problem, until: Budget) -> ExpertResult:
        one = _one_load if some.scenarios == 1 else _several_loads
        return one(some, until, seed, Baselines(some.by_votes.average, eplb_groups=eplb_groups, nodes=nodes))

    found = _solved(problem, ordered, place, budget, seed)
    if ordered.scenarios == 1 or problem.objective != "worst" or budget.work.over:
        return found
    # what is good in the mean may also be better in the worst
    gentle = replace(ordered, objective="mean")
    other = _solved(replace(problem, objective="mean"), gentle, place, Budget(), seed)
    slot_expert = found.assignment.slot_expert.copy()
    if not keep_better(problem, slot_expert, np.arange(problem.layers), other.assignment.slot_expert):
        return found
    again = checked_result(problem, slot_expert, found.bound, found.log, found.baselines, interrupted=False)
    return replace(again, search=found.search)


def _solved(
    problem: Problem, ordered: Problem, place: Callable[[Problem, Budget], ExpertResult], budget: Budget, seed: int
) -> ExpertResult:
    """Place the even split spread over failure domains, fit it to the split, and search small problems to the end."""
    judge = ordered.by_votes
    few, small = few_placements(judge), is_small(judge)
    placed = place_spread(ordered.even, place, Budget() if few else budget.part(0.5) if small else budget)
    result = placed
    if problem.split != "even":
        fitted = None
        with budget:
            fitted = fit_to_split(result, problem)
        if fitted is None:
            return cut_short(result, problem)
        result = fitted
    if (few or small) and judge is ordered:
        result = finish_small(result, ordered, budget.part(0.5), seed=seed)
    elif few or small:
        result = _judged(finish_small(_judged(result, judge), judge, budget.part(0.5), seed=seed), ordered)
    return keep_second_copies(ordered, placed, result)


def _judged(result: ExpertResult, problem: Problem) -> ExpertResult:
    """Return ``result`` as ``problem``, of the same experts and slots, judges it."""
    found = checked_result(
        problem,
        result.assignment.slot_expert,
        lower_bound(problem.without_spread()),
        result.log,
        result.baselines,
        interrupted=result.interrupted,
    )
    return replace(found, search=result.search)


def worth_searching(load: Floats, bound: Floats) -> tuple[float, str]:
    """Return how many seconds' work of search is worth it after the fast path, and why, in words.

    ``load`` and ``bound`` are ``[layers]``. Where the gap is small, pair exchanges to the end take milliseconds,
    and CP-SAT then lowers the largest load by 0.0002 at most in 10 s (measured on real loads). With two slots a GPU,
    very skewed loads or several loads it is wide, and other copy counts gain for seconds.
    """
    gap = 1 - float(np.minimum(bound, load).mean() / load.mean())
    if gap > WIDE:
        return HARD_S, f"the work of {HARD_S:g} s, since the fast path left a gap of {gap:.1%}"
    return (
        EASY_S,
        f"the work of {EASY_S:g} s, since the fast path left a gap of {gap:.2%} and more time gains next to nothing",
    )


def _one_load(problem: Problem, budget: Budget, seed: int, rivals: Baselines) -> ExpertResult:
    """Place for one load, with no two copies of an expert in a failure domain.

    The search sees experts by falling load, so that their names decide nothing, not even ties.
    """
    order = falling(problem.mean)
    ranked = replace(problem, loads=np.take_along_axis(problem.mean, order, axis=1))
    slot_expert, bound, log = fast_placement(ranked, {name: _ranked(rivals, name, order) for name in rivals})
    if proven(ranked.evaluate(slot_expert), bound).all():
        log += ("the fast placement reaches the bound in every layer: nothing is left to a solver",)
        why = "none, since the fast path reaches the bound in every layer"
    else:
        worth_s, why = worth_searching(ranked.evaluate(slot_expert), bound)
        until = budget.search(worth_s)
        if until.goes_on():
            slot_expert, ran = search(ranked, slot_expert, bound, until, seed=seed)
            log += ran
    slot_expert = np.take_along_axis(order, slot_expert.astype(np.int64), axis=1).astype(np.int32)
    found = checked_result(problem, slot_expert, bound, log, rivals, interrupted=budget.interrupted)
    return replace(found, search=why if budget.usual else "")


def _ranked(rivals: Baselines, name: str, order: Ints) -> Rival:
    """Return a rival that calls experts by their place in ``order`` ``[layers, experts]``."""

    def of(layers: Index) -> Experts | None:
        assignment = rivals.of_rows(name, layers).assignment
        if assignment is None:
            return None
        rank = np.argsort(order[layers], axis=1)
        return np.take_along_axis(rank, assignment.slot_expert.astype(np.int64), axis=1).astype(np.int32)

    return of


def search(
    problem: Problem, slot_expert: Experts, bound: Floats, budget: Budget, *, seed: int
) -> tuple[Experts, tuple[str, ...]]:
    """Improve ``slot_expert`` ``[layers, slots]`` until ``budget``; no layer gets worse. Also what ran, in words.

    Pair exchanges go on to a local optimum. Layers with a wide gap to their ``bound`` ``[layers]`` are searched for
    other copy counts, on all cores, and then by single exchanges. CP-SAT has the rest of the work. How many cores
    there are decides nothing but how long it takes.
    """
    found = slot_expert.copy()

    def wide(gap: float = WIDE) -> Index:
        return np.flatnonzero(problem.evaluate(found) > bound * (1 + gap))

    def tell() -> None:
        budget.tell(lambda: _state(problem, found, bound))

    with budget, budget.stepwise():
        layers = np.flatnonzero(~proven(problem.evaluate(found), bound))
        keep_better(problem, found, layers, swap_down(problem.rows(layers), found[layers]))
        budget.mark()
        # Where the fold is exact, counts are all there is to find, and CP-SAT has little to add.
        fold = exact_fold(problem)
        share = _FOLD_SHARE if fold else _COUNT_SHARE
        _other_counts(problem, found, wide(WIDE / 10 if fold else WIDE), budget.part(share), seed, tell)
        part = budget.part(_RECOUNT_SHARE)

        def keep_on(layers: int) -> bool:
            if not part.goes_on():
                return False
            part.spend(layers * problem.slots * _RECOUNT_COST)
            tell()
            return True

        recount(problem, found, wide(), rounds=problem.slots, keep_on=keep_on)  # more than any descent needs
    better = int((problem.evaluate(found) < problem.evaluate(slot_expert)).sum())
    log = [f"swaps and other copy counts: {better} layers better"]
    if not budget.work.over:
        found, ran = improve(problem, found, bound, budget, seed=seed)
        log.append(ran)
    if budget.work.over:
        log.append(CUT)
    return found, tuple(log)


def _other_counts(
    problem: Problem, slot_expert: Experts, wide: Index, budget: Budget, seed: int, tell: Callable[[], None]
) -> None:
    """Look for other counts in the layers with a wide gap until ``budget``, in place."""
    if wide.size == 0:
        return
    few = wide.size <= _FEW
    # draws are the same in every layer: those of many can be cut into parts for as many cores as there are
    parts = [wide] * _DRAWS if few else [part for part in np.array_split(wide, cores()) if part.size]
    searches = []
    for draw, layers in enumerate(parts):
        part = problem.rows(layers)
        again = few and draw % 2 == 1
        copies = replicate(part) if again else part.assignment(slot_expert[layers]).copies
        tried = 3 * TRIED if few else TRIED
        searches.append(CountSearch(part, copies, tried=tried, seed=seed + draw if few else seed))
    rows = wide.size * (_DRAWS if few else 1) * (3 * TRIED if few else TRIED)
    each = _COUNT_STEP + _COUNT_COST * rows * problem.slots
    steps = max(1, round(_STEP / each))
    with budget, ThreadPoolExecutor(len(searches)) as pool:
        while budget.goes_on():
            done = budget.progress()
            list(pool.map(partial(CountSearch.advance, steps=steps, done=done), searches))
            budget.spend(steps * each)
            tell()
    for layers, search in zip(parts, searches, strict=True):
        part = problem.rows(layers)
        keep_better(problem, slot_expert, layers, swap_down(part, pack(part, search.found())))
    budget.mark()


def _state(problem: Problem, slot_expert: Experts, bound: Floats) -> tuple[int, int, float, float]:
    load = problem.evaluate(slot_expert)
    least = float(np.minimum(bound, load).mean())
    return int(proven(load, bound).sum()), problem.layers, float(load.mean()), least


def _several_loads(problem: Problem, budget: Budget, seed: int, rivals: Baselines) -> ExpertResult:
    """Place for several loads at once, with no two copies of an expert in a failure domain."""
    judge, searched = problem.by_votes, problem.searched
    ordinary = _one_load(judge.average, Budget(), 0, rivals)
    bound = lower_bound(problem)
    if searched is problem:
        slot_expert = fast_over_scenarios(problem)
        log = [
            f"{problem.scenarios} scenarios at once: copies by each expert's highest load, best swaps, other counts"
        ]
    else:
        slot_expert = _annealed(judge, searched)
        log = [f"{_heard_words(problem)}: copies by each expert's highest load, annealing over swaps"]
    worth_s, why = worth_searching(problem.evaluate(slot_expert), bound)
    until = budget.search(worth_s)
    if until.goes_on():
        log.append(_anneal_on(problem, slot_expert, bound, until, seed))
    others = {**rivals, _ORDINARY: Baseline(ordinary.assignment)}
    for name, layers in take_where_ahead(judge, slot_expert, others, distinct_copies, descend):
        log.append(f"{name} is better over the scenarios and taken in {layers} layers")
    found = checked_result(problem, slot_expert, bound, tuple(log), rivals, interrupted=budget.interrupted)
    return replace(found, search=why if budget.usual else "")


def _annealed(judge: Problem, searched: Problem) -> Experts:
    """Copies by each expert's highest load in any scenario given, largest first, annealing; ``[layers, slots]``.

    Not by loads that nobody gave: they would take copies from where they are needed. With few slots a GPU,
    or GPUs of unlike speed, counts decide, and exchanges of copies come first. Deterministic.
    """
    slot_expert = pack(judge.average, replicate(judge.highest))
    if int(judge.slots_per_gpu.max()) <= _FEW_SLOTS or not judge.equal_speeds:
        slot_expert = descend(searched, slot_expert)
        exchange_drawn(searched, slot_expert, np.random.default_rng(0), rounds=_rounds(searched))
    cells = step_cells(searched)
    steps = min(_STEPS_A_SLOT * searched.slots, _ANNEALED // cells) if cells else 0
    anneal(searched, slot_expert, spent=step_counter(steps // STEPS))
    return slot_expert


def _rounds(problem: Problem) -> int:
    """Return the rounds of exchanges that the fast path affords."""
    return min(_FAST_ROUNDS, _FAST_WORK // (pairs(problem) * problem.scenarios * problem.layers))


def _heard_words(problem: Problem) -> str:
    groups = problem.groups
    return (
        f"{problem.scenarios} scenarios in {groups} group{'s' * (groups != 1)} of alike ones, one vote each"
    )


def fast_over_scenarios(problem: Problem) -> Experts:
    """Copies by each expert's highest load in any scenario, largest first, best swaps, some exchanges of copies.

    Copies by the mean load leave an expert that is hot in one scenario with too few there. For the worst
    scenario the mean is also made small first, and that is taken where the worst is alike: where one scenario holds
    the worst up, the others stay good.
    Returns ``[layers, slots]``; deterministic.
    """
    packed = pack(problem.average, replicate(problem.highest))
    slot_expert = descend(problem, packed)
    if problem.objective == "worst":
        gentle = descend(problem, descend(replace(problem, objective="mean"), packed))
        alike = problem.evaluate(gentle) <= problem.evaluate(slot_expert) * (1 + _ALIKE)
        slot_expert = np.where(alike[:, None], gentle, slot_expert)
    exchange_drawn(problem, slot_expert, np.random.default_rng(0), rounds=_rounds(problem))
    return slot_expert


def _anneal_on(problem: Problem, slot_expert: Experts, bound: Floats, budget: Budget, seed: int) -> str:
    """Anneal in place until ``budget``; return what ran."""
    cost, first = STEPS * (_ANNEAL_COST[0] + _ANNEAL_COST[1] * step_cells(problem.searched)), True

    def spent() -> float:
        nonlocal first
        if not first:
            budget.spend(cost)
        first = False
        return budget.progress()

    better = 0
    with budget, budget.stepwise():
        better = anneal(
            problem.searched,
            slot_expert,
            spent=spent,
            seed=seed,
            on_round=lambda: budget.tell(lambda: _state(problem, slot_expert, bound)),
        )
    text = f"annealing over swaps: {better} layers better, seed {seed}"
    return text + (f"; {CUT}" if budget.work.over else "")
