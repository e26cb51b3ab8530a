"""Small placements are finished by exchanges of two experts, each judged by the step that it makes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from cost.experts.assignment import Assignment
from cost.experts.loads import ExpertLoads
from cost.experts.traces.statistics import coactivation
from cost.inputs.layout import StageSpec
from cost.step.score import LayoutScorer
from placement.arrays import Experts, Floats, Ints
from placement.budget import Budget
from placement.experts.placing import StageGroup, group_problem
from placement.layout_choice import Placed
from placement.options import PlanOptions
from placement.scoring import layers_use, moe_rows, placement_uses

_SMALL = 200  # pairs of slots, over layers that differ: more would take seconds, and gain little
_MOST = 1500  # placements judged, over layers that differ
_SHUFFLED = 8  # starts besides the given ones, as long as work is left
_TOKENS = 4096  # of a trace that are followed
_LESS = 1e-9  # of a step, relative: what is less of a gain is none

Step = Callable[[Experts], float]


def depends(placed: Placed, loads: ExpertLoads) -> bool:
    """Whether a placement is small, and tokens choose experts together by more than twice what chance makes of it."""
    if not _small(placed, loads):
        return False
    found = [coactivation(trace).within for trace in loads.sampled(_TOKENS).routing]
    return any(one is not None and one.beyond_chance > one.by_chance for one in found)


def _small(placed: Placed, loads: ExpertLoads) -> bool:
    pairs = (part.slots**2 // 2 * _distinct(loads, rows) for _, rows, _, part in placed_stages(placed))
    return sum(pairs) <= _SMALL


def exchange_by_step(
    placed: Placed,
    starts: Sequence[Sequence[Assignment | None]],
    loads: ExpertLoads,
    options: PlanOptions,
    budget: Budget,
) -> tuple[Assignment | None, ...] | None:
    """Return a placement that no legal exchange of two experts in a layer makes faster; None where that is much work.

    Each layer begins at each of ``starts``, the first of which is balance alone, then anywhere.
    Loads of GPUs and domains stay within the balance slack, or at what balance alone has. Ctrl-C keeps what is found.
    """
    stages = list(placed_stages(placed))
    if not _small(placed, loads):
        return None
    distinct = sum(_distinct(loads, rows) for _, rows, _, _ in stages)
    few = loads.sampled(_TOKENS)
    experts = list(starts[0])
    for index, rows, group, ours in stages:
        found = ours.slot_expert.copy()
        known: dict[tuple[bytes, ...], Experts] = {}
        with budget:
            for at, row in enumerate(rows):
                begin = [there.slot_expert[at] for start in starts if (there := start[index]) is not None]
                alone = few.rows([row])
                key = (*(one.tobytes() for one in begin), *_bytes(alone))
                if key not in known:
                    step = _judge(placed, starts[0], index, alone, options, len(rows))
                    legal = _rule(placed, group, row, ours.slot_expert[at], loads, options, index)
                    known[key] = _least(begin, step, legal, ours.slot_gpu, _MOST // distinct, options.seed)
                found[at] = known[key]
        experts[index] = replace(ours, slot_expert=found)
    return tuple(experts)


def placed_stages(placed: Placed) -> Iterator[tuple[int, list[int], StageGroup, Assignment]]:
    """Yield the number of each stage with experts, its rows of the loads, its group and its placement."""
    for group in placed.groups:
        for index in group.stages:
            ours = placed.experts[index]
            if ours is not None:
                yield (
                    index,
                    moe_rows(placed.candidate.deployment, stage_of(placed, index).layers),
                    group,
                    ours,
                )


def stage_of(placed: Placed, index: int) -> StageSpec:
    """Return a stage of the first replica."""
    return placed.candidate.layout.replicas[0][index]


def _bytes(loads: ExpertLoads) -> tuple[bytes, ...]:
    return loads.tokens.tobytes(), *(trace.choices.tobytes() for trace in loads.routing)


def _distinct(loads: ExpertLoads, rows: list[int]) -> int:
    """How many layers have loads and tokens of their own."""
    if all(trace.repeated for trace in loads.routing):
        return len({loads.tokens[:, row].tobytes() for row in rows})
    return len(rows)


def _judge(
    placed: Placed,
    experts: Sequence[Assignment | None],
    index: int,
    loads: ExpertLoads,
    options: PlanOptions,
    layers: int,
) -> Step:
    """Return what tells the step if all layers of a stage were placed so."""
    deployment, layout, batch = placed.candidate.deployment, placed.candidate.layout, placed.score.batch
    ours = experts[index]
    if ours is None:
        raise AssertionError("a stage without experts is judged, which is a defect of rackplan")
    stage = stage_of(placed, index)
    others = [None if at == index else part for at, part in enumerate(experts)]
    uses = list(placement_uses(deployment, layout, others, None, options.split)[0])

    def step(slot_expert: Experts) -> float:
        one = replace(ours, slot_expert=slot_expert[None])
        use = layers_use(deployment, stage, one, loads, options.split)
        uses[index] = replace(use, repeats=layers)
        return LayoutScorer(deployment, layout, [uses] * len(layout.replicas), fair=True).at(batch).step_s

    return step


def _rule(
    placed: Placed,
    group: StageGroup,
    row: int,
    balanced: Experts,
    loads: ExpertLoads,
    options: PlanOptions,
    index: int,
) -> Callable[[Experts], bool]:
    """Return what tells whether a row of slots is legal, and its loads within the slack."""
    problem = group_problem(replace(group, rows=((row,),)), loads, options)
    domain = np.unique(placed.candidate.deployment.domains(stage_of(placed, index)), return_inverse=True)[
        1
    ].reshape(-1)
    speed: Floats = np.ones(len(group.slots)) if group.speed is None else group.speed
    share = loads.normalised[:, row] / loads.normalised[:, row].sum(axis=1, keepdims=True)
    slot_gpu = np.repeat(np.arange(len(group.slots)), group.slots)

    def peaks(slot_expert: Experts) -> Floats:
        copies = np.bincount(slot_expert, minlength=share.shape[1])
        slot = share[:, slot_expert] / copies[slot_expert]
        by_domain = np.bincount(domain, speed).astype(np.float64)
        return np.array([_peak(slot, slot_gpu, speed), _peak(slot, domain[slot_gpu], by_domain)])

    most = np.maximum(1 + options.balance_slack, peaks(balanced)) * (1 + 1e-9)

    def legal(slot_expert: Experts) -> bool:
        return bool((peaks(slot_expert) <= most).all()) and not problem.over_cap(slot_expert[None]).any()

    return legal


def _peak(slot: Floats, place: Ints, speed: Floats) -> float:
    """Largest load of a place in multiples of what is even, over scenarios."""
    load = np.stack([np.bincount(place, each, len(speed)) for each in slot])
    return float((load / (speed / speed.sum())).max())


def _least(
    begin: Sequence[Experts],
    step: Step,
    legal: Callable[[Experts], bool],
    slot_gpu: Experts,
    most: int,
    seed: int,
) -> Experts:
    """Return the row of slots with the least step that steepest exchanges reach from ``begin``, then anywhere."""
    known: dict[bytes, float] = {}
    rng = np.random.default_rng(seed)

    def of(row: Experts) -> float:
        key = row[np.lexsort((row, slot_gpu))].tobytes()
        if key not in known:
            known[key] = step(row)
        return known[key]

    best = begin[0]
    starts = sorted({row.tobytes(): row for row in begin}.values(), key=of)
    for start in (*starts, *(rng.permutation(best) for _ in range(_SHUFFLED))):
        here, known_to_be_legal = start, legal(start)
        while len(known) < most:
            nearer = [row for row in _exchanged(here, slot_gpu) if legal(row)]
            if not nearer:
                break
            least = min(nearer, key=of)
            if known_to_be_legal and not of(least) < of(here) * (1 - _LESS):
                break
            here, known_to_be_legal = least, True
        if known_to_be_legal and of(here) < of(best) * (1 - _LESS):
            best = here
    return best


def _exchanged(row: Experts, slot_gpu: Experts) -> Iterator[Experts]:
    """Yield the rows in which two experts on different GPUs changed places."""
    for one, two in zip(*np.triu_indices(len(row), 1), strict=True):
        if slot_gpu[one] != slot_gpu[two] and row[one] != row[two]:
            found = row.copy()
            found[[one, two]] = row[[two, one]]
            yield found
