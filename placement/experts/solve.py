"""Place experts: counts, packing, pair exchanges, other counts; exactly where there are few; never behind a rival."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import numpy as np

from placement.arrays import Experts, Floats, Index, falling
from placement.budget import CUT, Budget
from placement.experts.annealing import STEPS, anneal, step_cells
from placement.experts.anti_affinity import (
    keep_second_copies,
    place_spread,
    second_copies_first,
    spread_evenly,
)
from placement.experts.baselines import Baselines
from placement.experts.bounds import lower_bound
from placement.experts.copy_exchange import exchange_drawn
from placement.experts.count_search import CountSearch, exact_fold
from placement.experts.cpsat import finish_small, improve, is_small
from placement.experts.dispatch_refinement import SLACK, cut_short, fit_to_split
from placement.experts.fast_path import NEAR, TRIED, fast_placement, step_counter
from placement.experts.local_search import swap_down
from placement.experts.pack import distinct_copies, pack
from placement.experts.problem import EQUAL, WIDE, Problem, keep_better, proven
from placement.experts.replication import replicate
from placement.experts.result import ExpertResult, checked_result
from placement.experts.scenario_search import descend, pairs
from topology.base.host import cores

Rival = Callable[[Index], Experts | None]
"""Another placement of some layers, ``[layers, slots]``; None where its policy does not apply."""

EASY_S, HARD_S = 1.0, 10.0
"""Seconds' worth of search where none are asked for: with a small gap after the fast path, and with a wide one."""

_FOLD_SHARE, _COUNT_SHARE = 0.85, 0.5  # of the time limit
_FEW = 4  # layers: they are searched several times, with other draws, every second one from greedy counts...
_DRAWS = 2  # ... so often
_STEP = 60.0  # units of work in a step, about
_COUNT_STEP, _COUNT_COST = 0.4, 1.2e-5  # units for a step of count search, and for each slot of a count tried
_ANNEAL_COST = 0.15, 3.5e-7  # units for a step of annealing, and for each number that it writes
_FEW_SLOTS = 3  # of a GPU: copy counts decide more than who lies with whom
_ROUNDS = 12  # of exchanges of copies on the fast path, at most...
_EXCHANGED = 120_000_000  # ... and pairs of slots over layers and scenarios in them: a second or two
_STEPS_A_SLOT = 12  # of annealing on the fast path
_ANNEALED = 11_000_000_000  # ... and numbers that it writes at most: some seconds


def solve(
    problem: Problem,
    budget: Budget | None = None,
    *,
    seed: int = 0,
    eplb_groups: int | None = None,
    nodes: int = 1,
    exact: bool = True,
) -> ExpertResult:
    """Place the experts of all layers of ``problem``, once for all its loads.

    What is kept small, layer by layer, is :meth:`Problem.evaluate`; ``max_load`` and ``bound`` of the result are of
    that. A ``budget`` without seconds (or none) runs the fast path alone, which looks at each layer by itself.
    Every layer is at least as balanced as in each EPLB baseline (of several loads: planned on their mean, all by
    votes), except where that one puts two copies in one failure domain and wins by it (the log names such layers),
    and where 0.0015 of the mean load are left at most. Copies are spread over failure domains as
    :func:`placement.experts.problem.most_in_domain` says. Over several loads the search minimises a smooth
    stand-in, which holds better on loads not seen, and listens to :attr:`Problem.searched`; the order of loads
    changes nothing, and equal ones are one.

    Parameters
    ----------
    seed:
        Of the search within the budget.
    eplb_groups, nodes:
        The model's expert groups and the scale-up domains, for the hierarchical baseline.
    exact:
        Whether small layers are solved by CP-SAT. Without, the fast path under one load gives the same bytes on every
        machine.

    Raises
    ------
    InfeasibleError
        If the slots cannot be filled with copies spread so.
    """
    budget = budget or Budget()
    ordered = problem.in_order()
    if ordered.equal_loads:
        ordered = replace(ordered, loads=ordered.loads[0])
    judge = ordered.by_votes
    rivals = Baselines(judge.average, eplb_groups=eplb_groups, nodes=nodes)

    def place(some: Problem, until: Budget) -> ExpertResult:
        return (_one_load if some.scenarios == 1 else _several_loads)(some, until, seed, rivals)

    small = exact and is_small(judge)
    placed = place_spread(ordered.even, place, Budget() if small else budget)
    result = placed
    if problem.split != "even":
        fitted = None
        with budget:
            fitted = fit_to_split(result, problem)
        if fitted is None:
            return cut_short(result, problem)
        result = fitted
    others: dict[str, Rival] = {name: partial(_rows_of, rivals, name) for name in rivals}
    if ordered.scenarios > 1:
        ordinary = place_spread(judge.average.even, place, Budget()).assignment.slot_expert
        others["the placement for the mean load"] = lambda rows: ordinary[rows]
    result = keep_second_copies(ordered, placed, _not_behind(ordered, result, others))
    return _exact(ordered, judge, result, budget, seed) if small else result


def _exact(problem: Problem, judge: Problem, result: ExpertResult, budget: Budget, seed: int) -> ExpertResult:
    """Solve small layers that are not proven yet; ``judge`` is ``problem`` with each kind of load once, by votes."""
    bound = result.bound if judge is problem else lower_bound(judge.without_spread())
    own = seed if budget.seconds else 0
    slot_expert, bound, words = finish_small(judge, result.assignment.slot_expert, bound, budget, seed=own)
    found = checked_result(
        problem,
        slot_expert,
        bound if judge is problem else result.bound,  # by votes nothing is proven of the plain mean
        (*result.log, words) if words else result.log,
        result.baselines,
        interrupted=result.interrupted or budget.interrupted,
    )
    return replace(found, search=result.search)


def _rows_of(rivals: Baselines, name: str, rows: Index) -> Experts | None:
    assignment = rivals.of_rows(name, rows).assignment
    return None if assignment is None else assignment.slot_expert


def _not_behind(problem: Problem, result: ExpertResult, rivals: Mapping[str, Rival]) -> ExpertResult:
    """Return ``result`` with a rival's placement in the layers where one is ahead and legal."""
    slack = SLACK if problem.split == "lp" else EQUAL
    value, slot_expert, log = result.max_load.copy(), result.assignment.slot_expert.copy(), list(result.log)
    apart = distinct_copies if problem.can_be_apart else spread_evenly
    for name, placed in rivals.items():
        rows = np.flatnonzero(value > 1.0 + NEAR)
        rival = placed(rows) if rows.size else None
        if rival is None:
            continue
        ahead = problem.rows(rows).evaluate(rival) * (1 + slack) < value[rows]
        rows, rival = rows[ahead], rival[ahead]
        if rows.size == 0:
            continue
        trial, fits = apart(problem.average.rows(rows), rival)
        trial_load = problem.rows(rows).evaluate(trial)
        won = fits & (trial_load * (1 + slack) < value[rows])
        won[won] = problem.legal(trial[won])
        if problem.spread is not None:
            won &= second_copies_first(problem.assignment(trial).copies)
        slot_expert[rows[won]], value[rows[won]] = trial[won], trial_load[won]
        if won.any():
            log.append(f"{name} is better and taken in {int(won.sum())} layers")
        if not won.all():
            names = rows[~won].tolist()
            log.append(f"{name} is ahead with two copies of an expert in one failure domain in rows {names}")
    if len(log) == len(result.log):
        return result
    found = checked_result(
        problem, slot_expert, result.bound, tuple(log), result.baselines, interrupted=result.interrupted
    )
    return replace(found, search=result.search)


def worth_searching(load: Floats, bound: Floats) -> tuple[float, str]:
    """Return how many seconds' work of search is worth it after the fast path, and why, in words.

    ``load`` and ``bound`` are ``[layers]``. Where the gap is small, pair exchanges to the end take milliseconds.
    With two slots a GPU, very skewed loads or several loads it is wide, and the search gains for seconds.
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
    slot_expert, bound, log = fast_placement(ranked)
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


def search(
    problem: Problem, slot_expert: Experts, bound: Floats, budget: Budget, *, seed: int
) -> tuple[Experts, tuple[str, ...]]:
    """Improve ``slot_expert`` ``[layers, slots]`` within ``budget``; no layer gets worse. Also what ran, in words.

    Pair exchanges go on to a local optimum. Layers with a wide gap to their ``bound`` ``[layers]`` are searched for
    other copy counts, on all cores. With a time limit CP-SAT has the rest of it. How many cores there are decides
    nothing but how long it takes.
    """
    found = slot_expert.copy()

    def wide(gap: float) -> Index:
        return np.flatnonzero(problem.evaluate(found) > bound * (1 + gap))

    with budget, budget.keeping():
        layers = np.flatnonzero(~proven(problem.evaluate(found), bound))
        keep_better(problem, found, layers, swap_down(problem.rows(layers), found[layers]))
        # Where the fold is exact, counts are all there is to find, and CP-SAT has little to add.
        fold = exact_fold(problem)
        share = (_FOLD_SHARE if fold else _COUNT_SHARE) if budget.seconds else 1.0
        tell = partial(budget.tell, lambda: _state(problem, found, bound))
        _other_counts(problem, found, wide(WIDE / 10 if fold else WIDE), budget.part(share), seed, tell)
    better = int((problem.evaluate(found) < problem.evaluate(slot_expert)).sum())
    log = [f"swaps and other copy counts: {better} layers better"]
    if budget.seconds:
        found, ran = improve(problem, found, bound, budget, seed=seed)
        log.append(ran)
    if budget.cut:
        log.append(CUT)
    return found, tuple(log)


def _other_counts(
    problem: Problem, slot_expert: Experts, wide: Index, budget: Budget, seed: int, tell: Callable[[], None]
) -> None:
    """Look for other counts in the layers with a wide gap within ``budget``, in place."""
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


def _state(problem: Problem, slot_expert: Experts, bound: Floats) -> tuple[int, int, float, float]:
    load = problem.evaluate(slot_expert)
    least = float(np.minimum(bound, load).mean())
    return int(proven(load, bound).sum()), problem.layers, float(load.mean()), least


def _several_loads(problem: Problem, budget: Budget, seed: int, rivals: Baselines) -> ExpertResult:
    """Place for several loads at once, with no two copies of an expert in a failure domain."""
    bound = lower_bound(problem)
    slot_expert = _annealed(problem.by_votes, problem.searched)
    groups = problem.groups
    heard = (
        f"{problem.scenarios} scenarios in {groups} group{'s' * (groups != 1)} of alike ones, one vote each"
    )
    log = [f"{heard}: copies by each expert's highest load, annealing over swaps"]
    worth_s, why = worth_searching(problem.evaluate(slot_expert), bound)
    until = budget.search(worth_s)
    if until.goes_on():
        log.append(_anneal_on(problem, slot_expert, bound, until, seed))
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
        work = pairs(searched) * searched.scenarios * searched.layers
        rounds = min(_ROUNDS, _EXCHANGED // work)
        exchange_drawn(searched, slot_expert, np.random.default_rng(0), rounds=rounds)
    cells = step_cells(searched)
    steps = min(_STEPS_A_SLOT * searched.slots, _ANNEALED // cells) if cells else 0
    anneal(searched, slot_expert, spent=step_counter(steps // STEPS))
    return slot_expert


def _anneal_on(problem: Problem, slot_expert: Experts, bound: Floats, budget: Budget, seed: int) -> str:
    """Anneal in place within ``budget``; return what ran."""
    cost, first = STEPS * (_ANNEAL_COST[0] + _ANNEAL_COST[1] * step_cells(problem.searched)), True

    def spent() -> float:
        nonlocal first
        if not first:
            budget.spend(cost)
        first = False
        return budget.progress()

    better = 0
    with budget, budget.keeping():
        better = anneal(
            problem.searched,
            slot_expert,
            spent=spent,
            seed=seed,
            on_round=lambda: budget.tell(lambda: _state(problem, slot_expert, bound)),
        )
    text = f"annealing over swaps: {better} layers better, seed {seed}"
    return text + (f"; {CUT}" if budget.cut else "")
