"""Choose among placements of a layout by their predicted step, fed with what tokens choose together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cost.experts.assignment import Assignment
from cost.experts.loads import EARLIER, ExpertLoads
from cost.experts.traffic import TokenTraffic
from cost.inputs.layout import StageSpec
from cost.step.score import LayoutScorer
from cost.terms.alltoall import group_limit, vector_sizes
from placement.arrays import Experts, Ints
from placement.budget import Budget
from placement.experts.baselines import balanced_packing
from placement.experts.pack import distinct_copies
from placement.experts.placing import StageGroup, group_problem
from placement.experts.problem import make_problem
from placement.experts.result import ExpertResult, checked_result
from placement.experts.solve import solve
from placement.findings import FrontPoint, TrafficReport, TrafficRow
from placement.layout_choice import Placed, largest_batch_held
from placement.options import PlanOptions
from placement.progress import Say
from placement.scoring import placement_scorer, routed_traffic
from placement.traffic.by_step import depends, exchange_by_step, placed_stages, stage_of
from placement.traffic.grouping import Work
from placement.traffic.place import SLACKS, TrafficPlacement, front
from placement.traffic.places import Places
from placement.traffic.task import Limit, Rates, TrafficTask
from placement.traffic.tokens import Tokens
from topology.base.units import mean_of

BALANCE, TRAFFIC, ALIGNED, EXCHANGED = "balance", "traffic", "groups in domains", "exchanged"
ABOVE = "traffic, uneven"
"""Of layers where no loads within the slack were found: as near as was found."""
_BY_TRACE = (TRAFFIC, ABOVE, EXCHANGED)
_TOKENS = 20_000  # of a layer, over all traces
_WORTH = 1e-6  # of the step: by less nothing is better
_LAYER_S = (
    10.0  # of search, where nobody says: far more than its work takes, so the answer is always the same
)
_HURRIED = 0.3  # of the work, where the fast path alone is asked for
_DIGITS = 3  # of domains a token


@dataclass(frozen=True, eq=False)
class Candidate:
    """A placement of all stages, ``experts[stage]``, and what it is called."""

    name: str
    experts: tuple[Assignment | None, ...]


@dataclass(frozen=True, eq=False)
class _Judged:
    """A candidate with what scores it, and its balancedness by layer."""

    candidate: Candidate
    scorer: LayoutScorer
    balancedness: dict[int, float]

    def traffic(self, placed: Placed, loads: ExpertLoads, batch: int) -> TokenTraffic:
        deployment, layout = placed.candidate.deployment, placed.candidate.layout
        traffic = routed_traffic(deployment, layout, self.scorer, loads, batch)
        if traffic is None:
            raise AssertionError(
                "nothing is known of what tokens choose together, which is a defect of rackplan"
            )
        return traffic

    def row(self, placed: Placed, loads: ExpertLoads, batch: int) -> TrafficRow:
        traffic = self.traffic(placed, loads, batch)
        return TrafficRow(
            self.candidate.name,
            self.scorer.at(batch).step_s,
            mean_of(self.balancedness.values()),
            traffic.domains_per_token,
            traffic.nodes_per_token,
            traffic.gpus_per_token,
            dict(traffic.bytes_per_step),
        )


def knows_traffic(placed: Placed, loads: ExpertLoads | None) -> str:
    """Say what is known of which experts tokens choose together where that matters; empty where it does not.

    It matters where the experts of a layer lie in several nodes or domains. Without traces it is the model's limit on
    groups of experts, which is looked at where they lie in several domains.
    """
    deployment, layout = placed.candidate.deployment, placed.candidate.layout
    moe = deployment.model.moe
    if loads is None or moe is None or not placed.results:
        return ""
    stages = [
        stage for stage, part in zip(layout.replicas[0], placed.experts, strict=True) if part is not None
    ]
    node = deployment.numbered("node")
    if loads.routing and any(len(set(node[list(stage.gpus)].tolist())) > 1 for stage in stages):
        return ", ".join(trace.name for trace in loads.routing)
    if group_limit(moe)[0] and any(len(deployment.domain_set(stage)) > 1 for stage in stages):
        groups, chosen = group_limit(moe)
        return f"{deployment.model.name} uses experts of {chosen} of {groups} groups a token"
    return ""


def choose_by_traffic(
    placed: Placed, loads: ExpertLoads, options: PlanOptions, budget: Budget, say: Say
) -> tuple[Placed, TrafficReport | None, TokenTraffic | None]:
    """Return ``placed``, or another placement of its layout that is predicted to take less time.

    Beside it what was compared, and where its tokens go; None where nothing is known of that.

    Compared are balance alone, the rivals' placements, whole groups of experts in domains, and, of routing traces,
    the fewest domains a token within the slack. Of all the least step is taken, so that no rival is ahead. Of loads
    with tokens held out these judge, and what was found by a trace has to be faster than balance alone on the later
    half of them too: a gain that drift has used up by then is none.
    """
    known = knows_traffic(placed, loads)
    if not known:
        if not loads.routing or not placed.results:
            return placed, None, None
        plain = _judge(placed, Candidate(BALANCE, placed.experts), loads, options)
        return placed, None, plain.traffic(placed, loads, placed.score.batch)
    say("placing experts by what tokens choose together")
    candidates = [Candidate(BALANCE, placed.experts), *_rivals(placed, loads, options)]
    aligned = _aligned(placed, loads, options)
    if aligned is not None:
        candidates.append(aligned)
    slacks = sorted({*SLACKS, options.balance_slack}) if options.front else [options.balance_slack]
    by_slack: dict[str, float] = {}
    any_: Candidate | None = None
    if loads.routing:
        held, any_ = _by_traffic(placed, loads, options, slacks, budget, say)
        for slack, found in zip(slacks, held, strict=True):
            if found is not None:
                name = TRAFFIC if slack == options.balance_slack else f"{TRAFFIC}, slack {_percent(slack)}"
                by_slack[name] = slack
                candidates.append(replace(found, name=name))
        if any_ is not None:
            candidates.append(any_)
    judged = [_judge(placed, candidate, loads, options) for candidate in candidates]
    if by_slack or any_ is not None or not loads.routing or depends(placed, loads):
        starts = [one.experts for one in candidates if by_slack.get(one.name, 0.0) <= options.balance_slack]
        exchanged = exchange_by_step(placed, starts, loads, options, budget)
        if exchanged is not None:
            judged.append(_judge(placed, Candidate(EXCHANGED, exchanged), loads, options))
    # of a front, what was not asked for is shown, not taken
    able = [one for one in judged if by_slack.get(one.candidate.name, 0.0) <= options.balance_slack]
    batch = placed.score.batch
    best = _best(_lasting(able, placed, loads, options), placed, loads, batch)
    chosen = _taken(placed, best, loads, options)
    batch = chosen.score.batch
    rows = tuple(one.row(placed, loads, batch) for one in judged)
    of_slack = {by_slack[row.placement]: row for row in rows if row.placement in by_slack}
    points = tuple(_front_point(slack, of_slack.get(slack, rows[0])) for slack in slacks)
    traces = tuple(trace.name for trace in loads.routing)
    report = TrafficReport(
        f"{known}, judged by the last {1 - EARLIER:.0%} of the tokens" if traces else known,
        traces,
        best.candidate.name,
        options.balance_slack,
        rows,
        points if options.front and loads.routing else (),
    )
    return chosen, report, best.traffic(chosen, loads, batch)


def place_by_all(
    placed: Placed,
    trial: Placed,
    report: TrafficReport | None,
    loads: ExpertLoads,
    options: PlanOptions,
    budget: Budget,
    say: Say,
) -> tuple[Placed, TrafficReport | None]:
    """Return ``placed``, balance alone under all tokens, as the kind of placement that was taken on held-out ones.

    What it promises (score, balancedness) stays that of ``trial``, which did not see the tokens that judged it.
    """
    placed = replace(placed, candidate=trial.candidate, score=trial.score, balancedness=trial.balancedness)
    if report is None:
        return placed, None
    best = Candidate(BALANCE, placed.experts)
    if report.chosen in _BY_TRACE:
        (held,), any_ = _by_traffic(placed, loads, options, [options.balance_slack], budget, say)
        best = (report.chosen == ABOVE and any_) or held or any_ or best
        if report.chosen == EXCHANGED:
            starts = [placed.experts, best.experts]
            best = Candidate(
                EXCHANGED, exchange_by_step(placed, starts, loads, options, budget) or best.experts
            )
    elif report.chosen == ALIGNED:
        best = _aligned(placed, loads, options) or best
    elif report.chosen != BALANCE:
        best = next(one for one in _rivals(placed, loads, options) if one.name == report.chosen)
    return _placed_as(placed, best.experts, loads, options), report


def _lasting(
    able: Sequence[_Judged], placed: Placed, loads: ExpertLoads, options: PlanOptions
) -> list[_Judged]:
    """Leave out what was found by a trace and is not faster than balance alone on the last of the held-out tokens."""
    if loads.held_out is None:
        return list(able)
    late = replace(loads, held_out=loads.held_out.part(0.5, 1))
    batch = placed.score.batch

    def step(one: _Judged) -> float:
        return _judge(placed, one.candidate, late, options).scorer.at(batch).step_s

    least = step(able[0])
    return [
        one
        for one in able
        if not one.candidate.name.startswith(_BY_TRACE) or step(one) <= least * (1 - _WORTH)
    ]


def _best(able: Sequence[_Judged], placed: Placed, loads: ExpertLoads, batch: int) -> _Judged:
    """Return that with the least step; of those alike the one with the fewest domains a token."""
    least = min(one.scorer.at(batch).step_s for one in able)
    alike = [one for one in able if one.scorer.at(batch).step_s <= least * (1 + _WORTH)]
    if len(alike) == 1:
        return alike[0]
    rows = {id(one): one.row(placed, loads, batch) for one in alike}
    return min(alike, key=lambda one: round(rows[id(one)].domains_per_token, _DIGITS))


def _front_point(slack: float, row: TrafficRow) -> FrontPoint:
    known = None if slack == np.inf else slack
    return FrontPoint(known, row.balancedness, row.domains_per_token, row.step_s)


def _percent(slack: float) -> str:
    return "any" if slack == np.inf else f"{slack:.3g}" if slack > 1 else f"{slack * 100:.3g} %"


def _judge(placed: Placed, candidate: Candidate, loads: ExpertLoads, options: PlanOptions) -> _Judged:
    deployment, layout = placed.candidate.deployment, placed.candidate.layout
    scorer, balancedness = placement_scorer(deployment, layout, candidate.experts, loads, options.split)
    return _Judged(candidate, scorer, balancedness)


def _taken(placed: Placed, best: _Judged, loads: ExpertLoads, options: PlanOptions) -> Placed:
    """Return ``placed`` with the best placement, at the largest batch that holds its time per token."""
    if best.candidate.experts is placed.experts:
        return placed
    candidate, score, balancedness = largest_batch_held(
        placed.candidate, best.candidate.experts, loads, options.split, fair=True
    )
    found = _placed_as(placed, best.candidate.experts, loads, options)
    return replace(found, candidate=candidate, score=score, balancedness=balancedness)


def _placed_as(
    placed: Placed, experts: tuple[Assignment | None, ...], loads: ExpertLoads, options: PlanOptions
) -> Placed:
    """Return ``placed`` with other experts and their results, its score as it was."""
    if experts is placed.experts:
        return placed
    results = tuple(
        _result(group, result, experts, loads, options)
        for group, result in zip(placed.groups, placed.results, strict=True)
    )
    return replace(placed, experts=experts, results=results)


def _result(
    group: StageGroup,
    before: ExpertResult,
    experts: Sequence[Assignment | None],
    loads: ExpertLoads,
    options: PlanOptions,
) -> ExpertResult:
    """Return the placement of a group's stages as a result."""
    parts = [part for stage in group.stages if (part := experts[stage]) is not None]
    slot_expert = np.concatenate([part.slot_expert for part in parts])
    problem = group_problem(group, loads, options)
    return checked_result(
        problem,
        slot_expert,
        before.log,
        before.baselines,
        interrupted=before.interrupted,
        search=before.search,
        exact=before.exact,
    )


def _legal(
    group: StageGroup,
    loads: ExpertLoads,
    options: PlanOptions,
    rows: list[int],
    slot_expert: Experts,
    otherwise: Experts,
) -> Experts:
    """Return ``[layers, slots]`` with copies moved apart; layers where that fails are as ``otherwise``."""
    problem = group_problem(replace(group, rows=(tuple(rows),)), loads, options)
    found = slot_expert.copy()
    bad = np.flatnonzero(problem.over_cap(found) > 0)
    if bad.size and not problem.can_be_apart:
        found[bad] = otherwise[bad]
    elif bad.size:
        trial, fits = distinct_copies(problem.average.rows(bad), found[bad])
        legal = fits & (problem.over_cap(trial) == 0)
        found[bad] = np.where(legal[:, None], trial, otherwise[bad])
    return found


def _rivals(placed: Placed, loads: ExpertLoads, options: PlanOptions) -> Iterator[Candidate]:
    """Yield the rivals' placements, made legal: two copies of an expert on one GPU are moved apart."""
    by_group = {id(group): result for group, result in zip(placed.groups, placed.results, strict=True)}
    for name in placed.results[0].baselines:
        if any(result.baselines[name].assignment is None for result in placed.results):
            continue
        experts: list[Assignment | None] = [None] * placed.candidate.layout.stages
        theirs = {
            (id(group), index): part
            for group in placed.groups
            if (rival := by_group[id(group)].baselines[name].assignment) is not None
            for index, part in group.by_stage(rival)
        }
        for index, rows, group, ours in placed_stages(placed):
            part = theirs[id(group), index]
            legal = _legal(group, loads, options, rows, part.slot_expert, ours.slot_expert)
            experts[index] = replace(part, slot_expert=legal.astype(np.int32))
        yield Candidate(name, tuple(experts))


def _aligned(placed: Placed, loads: ExpertLoads, options: PlanOptions) -> Candidate | None:
    """Return whole groups of experts in domains, balanced inside each; None where they do not come out even."""
    deployment = placed.candidate.deployment
    moe = deployment.model.moe
    experts = list(placed.experts)
    any_ = False
    for index, rows, group, ours in placed_stages(placed):
        stage = stage_of(placed, index)
        domain = np.unique(deployment.domains(stage), return_inverse=True)[1].reshape(-1)
        domains = int(domain.max()) + 1
        if domains == 1:
            continue
        if moe is None or moe.groups < 2 or moe.groups % domains:
            return None
        found = _in_domains(group, loads.normalised[:, rows], domain, domains, moe.groups)
        if found is None:
            return None
        any_ = True
        legal = _legal(group, loads, options, rows, found, ours.slot_expert)
        experts[index] = replace(ours, slot_expert=legal.astype(np.int32))
    return Candidate(ALIGNED, tuple(experts)) if any_ else None


def _in_domains(
    group: StageGroup, load: np.ndarray, domain: Ints, domains: int, groups: int
) -> Experts | None:
    """Return ``[layers, slots]`` with whole groups in each domain; None where domains differ or are too small."""
    members = [np.flatnonzero(domain == one) for one in range(domains)]
    slots = [group.slots[gpus] for gpus in members]
    _, layers, experts = load.shape
    each = experts // domains
    if any(not np.array_equal(part, slots[0]) for part in slots) or int(slots[0].sum()) < each:
        return None
    if int(slots[0].max()) > each:
        return None
    by_group = load.mean(axis=0).reshape(layers, groups, -1).sum(axis=2)
    order = balanced_packing(by_group, domains)  # [layers, groups], in the order of domains
    size = experts // groups
    expert = (order[:, :, None] * size + np.arange(size)).reshape(layers * domains, each)
    row = np.repeat(np.arange(layers), domains)
    inside = load[:, row[:, None], expert]
    inside = np.maximum(inside, inside.max() * 1e-12)
    solved = solve(make_problem(inside, slots[0])).assignment.slot_expert.astype(np.int64)
    placed = np.take_along_axis(expert, solved, axis=1).reshape(layers, domains, -1)
    slot_gpu = np.repeat(np.arange(len(domain)), group.slots)
    found = np.empty((layers, slot_gpu.size), dtype=np.int32)
    for one in range(domains):
        found[:, domain[slot_gpu] == one] = placed[:, one]
    return found


def _by_traffic(
    placed: Placed,
    loads: ExpertLoads,
    options: PlanOptions,
    slacks: Sequence[float],
    budget: Budget,
    say: Say,
) -> tuple[list[Candidate | None], Candidate | None]:
    """Return the fewest domains a token, then nodes, within each of ``slacks``; None where that is balance alone.

    Beside it the same within the options' slack with layers whose loads came out above it, as near as was found; None
    without such layers. In the others those are as balance alone has them, and so are layers still to do at the end.
    """
    slacks = [*slacks, options.balance_slack]  # the last: loads above it, too
    deployment = placed.candidate.deployment
    experts = [list(placed.experts) for _ in slacks]
    known: dict[tuple[bytes, ...], list[Experts]] = {}
    moe = deployment.model.moe
    groups = moe.groups if moe is not None and moe.groups > 1 else 0
    total = sum(len(part.slot_expert) for part in placed.experts if part is not None)
    done = 0
    changed = [False] * len(slacks)
    until = budget.search(_LAYER_S * total)
    hurried = budget.fast or loads.held_out is not None  # what is only judged is searched anew by all tokens

    def goes_on(units: float) -> bool:
        if hurried:
            return not budget.interrupted
        if until.goes_on():
            until.spend(units)
        return until.goes_on()

    work = Work(_HURRIED if hurried else 1.0, goes_on)
    for index, rows, group, ours in placed_stages(placed):
        stage = stage_of(placed, index)
        node = deployment.numbered("node")[list(stage.gpus)]
        places = Places.of(group.slots, deployment.domains(stage), node, group.speed)
        found = [ours.slot_expert.copy() for _ in slacks]
        rates = _rates(placed, stage)
        for at, row in enumerate(rows):
            say(f"placing experts by what tokens choose together: layer {done + 1} of {total}")
            done += 1
            with budget, budget.keeping():
                if budget.cut:
                    break
                tokens = Tokens.of(_sample(loads, row), loads.tokens.shape[2])
                load = loads.normalised[:, row]
                key = tuple(each.tobytes() for each in (tokens.choices, load, group.slots, places.domain))
                if key not in known:
                    task = TrafficTask(
                        tokens, places, load, rates=rates, nearest=options.split == "source", groups=groups
                    )
                    balanced = ours.slot_expert[at]
                    points = front(task, slacks[:-1], seed=options.seed, work=work, balanced=balanced)
                    known[key] = [point.slot_expert if _allowed(point) else balanced for point in points]
                    known[key].append(points[slacks.index(options.balance_slack)].slot_expert)
                for each, slot_expert in zip(found, known[key], strict=True):
                    each[at] = slot_expert
        for which, each in enumerate(found):
            legal = _legal(group, loads, options, rows, each, ours.slot_expert)
            changed[which] |= bool((legal != ours.slot_expert).any())
            experts[which][index] = replace(ours, slot_expert=legal.astype(np.int32))
    found_at = [
        Candidate(TRAFFIC, tuple(each)) if differs else None
        for each, differs in zip(experts, changed, strict=True)
    ]
    held, any_ = found_at[:-1], found_at[-1]
    at = slacks.index(options.balance_slack)
    same = all(
        one is None or (two is not None and np.array_equal(one.slot_expert, two.slot_expert))
        for one, two in zip(experts[-1], experts[at], strict=True)
    )
    return held, None if same or any_ is None else replace(any_, name=ABOVE)


def _allowed(point: TrafficPlacement) -> bool:
    """Whether loads are under the limit, or no higher than balance alone has them."""
    most = Limit(max(point.limit.domain, point.balanced.domain_peak), point.limit.gpu)
    return most.kept(point.reach)


def _sample(loads: ExpertLoads, row: int) -> Ints:
    """Return what tokens of one layer chose, equally many of each trace, ``[tokens, k]``."""
    each = max(1, _TOKENS // len(loads.routing))
    each = min(each, *(trace.kept for trace in loads.routing)) if len(loads.routing) > 1 else each
    return np.concatenate([trace.sample(each).choices[row] for trace in loads.routing]).astype(np.int64)


def _rates(placed: Placed, stage: StageSpec) -> Rates:
    """What a domain more and a mean load more cost in a layer, in seconds, at the rates of the links and the HBM."""
    deployment = placed.candidate.deployment
    machine = deployment.machine(stage)
    workload = deployment.workload
    tokens = max(1, placed.score.batch) * workload.tokens_per_pass
    vectors = sum(vector_sizes(deployment.model, machine))
    out = machine.rates.out_bytes_per_s or machine.rates.alltoall_bytes_per_s
    layers = max(1, len(deployment.model.moe_layers))
    busy = sum(placed.score.terms_s.get(term, 0.0) for term in ("experts", "dispatch", "combine"))
    return Rates(imbalance_s=busy / layers, crossing_s=tokens * vectors / out)
