"""Choose among placements of a layout by predicted step time, using co-activation."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from cost.experts.assignment import Assignment
from cost.experts.loads import EARLIER_SHARE, ExpertLoads
from cost.experts.tokens.traffic import TokenTraffic
from cost.inputs.layout import StageSpec
from cost.step.score import LayoutScorer
from cost.terms.alltoall import group_limit
from placement.arrays import Bools, Experts, Ints
from placement.budget import Budget
from placement.experts.pack import distinct_copies
from placement.experts.placing import StageGroup, group_problem
from placement.experts.result import checked_result
from placement.layouts.choose import Placed, largest_batch_held
from placement.options import PlanOptions
from placement.plans.findings import TrafficReport, TrafficRow
from placement.progress import Say
from placement.scoring import ExpertPlacement, moe_rows, placement_scorer, routed_traffic
from placement.traffic.place import (
    SLACK,
    Places,
    domains_by_tokens,
    in_domains,
    used_domain,
    whole_groups,
)
from placement.traffic.tokens import Tokens
from topology.base.units import mean_of

BALANCE, ALIGNED, TRAFFIC = "balance", "groups in domains", "traffic"
_TOKENS = 20_000  # of a layer, over all traces
_WORTH = 1e-6  # of the step: by less nothing is better
_HURRIED = 0.3  # of the work, where the answer is only judged, or the fast path alone is wanted
_SURE = 4.0  # standard errors that make a gain no accident
_DIGITS = 3  # of domains a token


Stages = tuple[Assignment | None, ...]
"""A placement: the experts of each stage."""


@dataclass(frozen=True, eq=False)
class _Candidate:
    """A placement of all stages and its name, with what scores it, and its balancedness by layer."""

    name: str
    experts: Stages
    scorer: LayoutScorer
    balancedness: dict[int, float]

    def traffic(self, placed: Placed, loads: ExpertLoads, batch: float) -> TokenTraffic:
        deployment, layout = placed.candidate.deployment, placed.candidate.layout
        traffic = routed_traffic(deployment, layout, self.scorer, loads, batch)
        if traffic is None:
            raise AssertionError("no co-activation is known, a defect in rackplan")
        return traffic

    def slower(self, other: _Candidate, batch: float) -> bool:
        """Whether its step is longer: what only looked faster is no comparison."""
        return self.scorer.at(batch).step_s >= other.scorer.at(batch).step_s

    def row(self, placed: Placed, loads: ExpertLoads, batch: float) -> TrafficRow:
        traffic = self.traffic(placed, loads, batch)
        return TrafficRow(
            self.name,
            self.scorer.at(batch).step_s,
            mean_of(self.balancedness.values()),
            traffic.domains_per_token,
            traffic.nodes_per_token,
            traffic.gpus_per_token,
            dict(traffic.bytes_per_step),
        )


def knows_traffic(placed: Placed, loads: ExpertLoads | None) -> str:
    """Return what is known of which experts tokens choose together where that matters; empty where it does not.

    It matters where experts of a layer are in several domains: traces, else the model's limit on groups of experts.
    """
    deployment = placed.candidate.deployment
    moe = deployment.model.moe
    if loads is None or moe is None or not placed.results:
        return ""
    if not any(
        len(deployment.domain_set(stage_of(placed, index))) > 1 for index, *_ in placed_stages(placed)
    ):
        return ""
    if loads.routing:
        return ", ".join(trace.name for trace in loads.routing)
    groups, chosen = group_limit(moe)
    return (
        f"{deployment.model.name} uses experts from {chosen} of {groups} groups per token" if groups else ""
    )


def choose_by_traffic(
    placed: Placed, loads: ExpertLoads, options: PlanOptions, budget: Budget, say: Say
) -> tuple[Placed, TrafficReport | None, TokenTraffic | None]:
    """Return ``placed``, or another placement of its layout that is predicted to take less time.

    Beside it what was compared, and where its tokens go; None where nothing is known of that.

    Compared are balance alone, the rivals' placements, whole groups of experts in domains, and, of routing traces,
    few domains a token within the slack. Of all the least step is taken, so that no rival is ahead. Of loads with
    tokens held out these judge, and what was found by a trace has to be faster than balance alone on the later half
    of them too: a gain that drift has used up by then is none.
    """
    known = knows_traffic(placed, loads)
    if not known:
        if not loads.routing or not placed.results:
            return placed, None, None
        plain = _judge(placed, BALANCE, placed.experts, loads, options)
        return placed, None, plain.traffic(placed, loads, placed.score.batch)
    say("placing experts by co-activation")
    placements = [
        (BALANCE, placed.experts),
        *_rivals(placed, loads, options),
        *_aligned(placed, loads, options),
        *_by_traces(placed, loads, options, budget, say),
    ]
    judged = [_judge(placed, name, experts, loads, options) for name, experts in placements]
    able = _lasting(judged, placed, loads, options)
    best = _best(able, placed, loads, placed.score.batch)
    chosen = _taken(placed, best, loads, options)
    batch = chosen.score.batch
    traces = tuple(trace.name for trace in loads.routing)
    report = TrafficReport(
        known=f"{known}, evaluated on the last {1 - EARLIER_SHARE:.0%} of tokens" if traces else known,
        traces=traces,
        chosen=best.name,
        slack=SLACK,
        rows=tuple(
            candidate.row(placed, loads, batch)
            for candidate in judged
            if candidate in able or candidate.slower(best, batch)
        ),
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
    if report is None or report.chosen == BALANCE:
        return placed, report
    again = (
        _by_traces(placed, loads, options, budget, say)
        if report.chosen == TRAFFIC
        else chain(_aligned(placed, loads, options), _rivals(placed, loads, options))
    )
    best = next((experts for name, experts in again if name == report.chosen), placed.experts)
    return _placed_as(placed, best, loads, options), report


def placed_stages(placed: Placed) -> Iterator[tuple[int, list[int], StageGroup, Assignment]]:
    """Yield the number of each stage with experts, its rows of the loads, its group and its placement."""
    for group in placed.groups:
        for index in group.stages:
            ours = placed.experts[index]
            if ours is not None:
                rows = moe_rows(placed.candidate.deployment, stage_of(placed, index).layers)
                yield index, rows, group, ours


def stage_of(placed: Placed, index: int) -> StageSpec:
    """Return a stage of the first replica."""
    return placed.candidate.layout.replicas[0][index]


def _lasting(
    able: Sequence[_Candidate], placed: Placed, loads: ExpertLoads, options: PlanOptions
) -> list[_Candidate]:
    """Leave out what was found by a trace and the last of the held-out tokens do not confirm.

    They confirm it where it is faster than balance alone on them, and its tokens reach fewer domains by more than
    :data:`_SURE` standard errors.
    """
    if loads.held_out is None:
        return list(able)
    late = replace(loads, held_out=loads.held_out.part(0.5, 1))
    batch = placed.score.batch

    def step_s(candidate: _Candidate) -> float:
        return _judge(placed, candidate.name, candidate.experts, late, options).scorer.at(batch).step_s

    least = step_s(able[0])
    return [
        candidate
        for candidate in able
        if candidate.name != TRAFFIC
        or (step_s(candidate) <= least * (1 - _WORTH) and _reaches_fewer(placed, candidate, late.judged))
    ]


def _reaches_fewer(placed: Placed, candidate: _Candidate, judged: ExpertLoads) -> bool:
    """Whether tokens reach fewer domains than in ``placed``, by more than is chance."""
    gain, variance = 0.0, 0.0
    for index, rows, group, ours in placed_stages(placed):
        places, theirs = _places(placed, index, group), candidate.experts[index]
        for at, row in enumerate(rows):
            tokens = Tokens.of(_sample(judged, row), ours.experts)
            saved = np.zeros(len(tokens))
            for sign, part in ((1, ours), (-1, theirs)):
                if part is not None:
                    used = used_domain(_held(part.slot_expert[at], places, ours.experts))
                    for source in range(places.domains):
                        saved += sign * tokens.reach(used[:, source], places.domains) / places.domains
            gain += float(saved.mean())
            variance += float(saved.var()) / len(tokens)
    return gain > _SURE * math.sqrt(variance)


def _held(slot_expert: Experts, places: Places, experts: int) -> Bools:
    held = np.zeros((experts, places.domains), dtype=bool)
    held[slot_expert, places.slot_domain] = True
    return held


def _best(able: Sequence[_Candidate], placed: Placed, loads: ExpertLoads, batch: float) -> _Candidate:
    """Return that with the least step; of those alike the one with the fewest domains a token."""
    least = min(candidate.scorer.at(batch).step_s for candidate in able)
    alike = [candidate for candidate in able if candidate.scorer.at(batch).step_s <= least * (1 + _WORTH)]
    if len(alike) == 1:
        return alike[0]
    return min(
        alike, key=lambda candidate: round(candidate.row(placed, loads, batch).domains_per_token, _DIGITS)
    )


def _judge(
    placed: Placed, name: str, experts: Stages, loads: ExpertLoads, options: PlanOptions
) -> _Candidate:
    deployment, layout = placed.candidate.deployment, placed.candidate.layout
    scored = ExpertPlacement(deployment, layout, experts, loads, options.split)
    return _Candidate(name, experts, *placement_scorer(scored))


def _taken(placed: Placed, best: _Candidate, loads: ExpertLoads, options: PlanOptions) -> Placed:
    """Return ``placed`` with the best placement, at the largest batch that holds its time per token."""
    if best.experts is placed.experts:
        return placed
    candidate, score, balancedness = largest_batch_held(
        placed.candidate, best.experts, loads, options.split, fair=True
    )
    taken = _placed_as(placed, best.experts, loads, options)
    return replace(taken, candidate=candidate, score=score, balancedness=balancedness)


def _placed_as(placed: Placed, experts: Stages, loads: ExpertLoads, options: PlanOptions) -> Placed:
    """Return ``placed`` with other experts and their results, its score as it was."""
    if experts is placed.experts:
        return placed
    results = []
    for group, before in zip(placed.groups, placed.results, strict=True):
        parts = [part for stage in group.stages if (part := experts[stage]) is not None]
        result = checked_result(
            group_problem(group, loads, options),
            np.concatenate([part.slot_expert for part in parts]),
            before.log,
            before.baselines,
            interrupted=before.interrupted,
            search=before.search,
            exact=before.exact,
        )
        results.append(result)
    return replace(placed, experts=experts, results=tuple(results))


def _rivals(placed: Placed, loads: ExpertLoads, options: PlanOptions) -> Iterator[tuple[str, Stages]]:
    """Yield the rivals' placements, made legal: two copies of an expert on one GPU are moved apart."""
    for name in placed.results[0].baselines:
        theirs: dict[int, Assignment] = {}
        for group, result in zip(placed.groups, placed.results, strict=True):
            rival = result.baselines[name].assignment
            theirs.update(() if rival is None else group.by_stage(rival))
        stages = list(placed_stages(placed))
        if all(index in theirs for index, *_ in stages):
            slot_experts = {index: theirs[index].slot_expert for index, *_ in stages}
            yield name, _made_legal(slot_experts, placed, loads, options)


def _aligned(placed: Placed, loads: ExpertLoads, options: PlanOptions) -> Iterator[tuple[str, Stages]]:
    """Yield whole groups of experts in domains, balanced inside each; nothing where they do not come out even."""
    moe = placed.candidate.deployment.model.moe
    slot_experts: dict[int, Experts] = {}
    for index, rows, group, ours in placed_stages(placed):
        places, load = _places(placed, index, group), loads.normalised[:, rows]
        parts = [whole_groups(row, moe.groups if moe else 0, places.domains) for row in load.mean(axis=0)]
        slot_experts[index] = in_domains(parts, load, places, ours.slot_expert)
    if any((slot_experts[index] != ours.slot_expert).any() for index, _, _, ours in placed_stages(placed)):
        yield ALIGNED, _made_legal(slot_experts, placed, loads, options)


def _by_traces(
    placed: Placed, loads: ExpertLoads, options: PlanOptions, budget: Budget, say: Say
) -> Iterator[tuple[str, Stages]]:
    """Yield experts in domains so that tokens reach few.

    Layers still to do at an interruption are as balance alone has them.
    """
    if not loads.routing:
        return
    moe = placed.candidate.deployment.model.moe
    hurried = (
        budget.seconds == 0 or loads.held_out is not None
    )  # what is only judged is searched anew by all tokens
    total = sum(len(part.slot_expert) for part in placed.experts if part is not None)
    done = 0
    known: dict[tuple[bytes, ...], Ints] = {}
    slot_experts: dict[int, Experts] = {}
    for index, rows, group, ours in placed_stages(placed):
        places = _places(placed, index, group)
        parts: list[Ints | None] = []
        for row in rows:
            done += 1
            say(f"placing experts by co-activation: layer {done} of {total}")
            layer: Ints | None = None
            with budget, budget.keeping():
                if not budget.cut:
                    tokens = Tokens.of(_sample(loads, row), loads.tokens.shape[2])
                    load = loads.normalised[:, row]
                    key = tuple(
                        array.tobytes()
                        for array in (tokens.choices, load, group.slots, places.domain, places.speed)
                    )
                    if key not in known:
                        known[key] = domains_by_tokens(
                            tokens,
                            places,
                            load,
                            groups=moe.groups if moe else 0,
                            seed=options.seed,
                            share=_HURRIED if hurried else 1.0,
                        )
                    layer = known[key]
            parts.append(layer)
        slot_experts[index] = in_domains(parts, loads.normalised[:, rows], places, ours.slot_expert)
    if any((slot_experts[index] != ours.slot_expert).any() for index, _, _, ours in placed_stages(placed)):
        yield TRAFFIC, _made_legal(slot_experts, placed, loads, options)


def _places(placed: Placed, index: int, group: StageGroup) -> Places:
    domain: Ints = placed.candidate.deployment.domains(stage_of(placed, index))
    return Places.of(group.slots, domain, group.speed)


def _sample(loads: ExpertLoads, row: int) -> Ints:
    """Return what tokens of one layer chose, equally many of each trace, ``[tokens, k]``."""
    kept = max(1, _TOKENS // len(loads.routing))
    kept = min(kept, *(trace.kept for trace in loads.routing)) if len(loads.routing) > 1 else kept
    return np.concatenate([trace.sample(kept).choices[row] for trace in loads.routing]).astype(np.int64)


def _made_legal(
    slot_experts: dict[int, Experts], placed: Placed, loads: ExpertLoads, options: PlanOptions
) -> Stages:
    """Return ``slot_experts[stage]`` made legal; layers where that fails are as balance alone has them."""
    experts = list(placed.experts)
    for index, rows, group, ours in placed_stages(placed):
        problem = group_problem(replace(group, rows=(tuple(rows),)), loads, options)
        row = slot_experts[index].copy()
        bad = np.flatnonzero(problem.over_cap(row) > 0)
        if bad.size and not problem.can_be_apart:
            row[bad] = ours.slot_expert[bad]
        elif bad.size:
            trial, fits = distinct_copies(problem.average.rows(bad), row[bad])
            fits &= problem.over_cap(trial) == 0
            row[bad] = np.where(fits[:, None], trial, ours.slot_expert[bad])
        experts[index] = replace(ours, slot_expert=row.astype(np.int32))
    return tuple(experts)
