"""Quota slots: what one batch fills against every way to fill them, and what more slots, links and names change."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import combinations_with_replacement, pairwise, product

import numpy as np
import pytest

from cost.experts.assignment import Assignment
from cost.experts.best_split import lp_level
from cost.experts.loads import ExpertLoads
from cost.experts.quota import TOLERANCE, FilledQuota, fill_quota
from cost.experts.tokens.reach import expert_use, limited_hits, token_hits
from cost.experts.traces.routing import RoutingTrace
from cost.inputs.deployment import Deployment
from cost.inputs.workload import Workload
from cost.resolve import resolve_model
from placement.experts.bounds import lower_bound
from placement.experts.problem import Problem, make_problem
from placement.experts.solve import solve
from placement.options import PlanOptions
from placement.planner import make_plan
from placement.scoring import on_cluster
from placement.verify import verify_experts
from test_placement.builders import loads_for
from tiny_cases import tiny_problem
from topology import resolve_cluster
from topology.base.errors import InfeasibleError
from topology.changes.overrides import overrides

MOST_FILLS = 4000


def level(filled: FilledQuota, problem: Problem) -> float:
    load = filled.assignment.gpu_load(problem.loads[0], filled.shares) / problem.speed
    return float(load.max())


def ways_to_fill(problem: Problem, fixed: Assignment, place: np.ndarray) -> Assignment | None:
    """Every filling of the quota slots as a layer of its own; None where there are too many."""
    own = [set(fixed.slot_expert[0, fixed.slot_gpu == gpu].tolist()) for gpu in range(problem.gpus)]
    choices = []
    for gpu, held in enumerate(own):
        near = set().union(*(other for other, at in zip(own, place, strict=True) if at == place[gpu]))
        spare = problem.quota_slots if held else 0
        choices.append([*combinations_with_replacement(sorted(near), spare)])
    if np.prod([len(filling) for filling in choices]) > MOST_FILLS:
        return None
    gpus = [gpu for gpu, held in enumerate(own) if held for _ in range(problem.quota_slots)]
    rows = np.array(
        [[expert for filling in fill for expert in filling] for fill in product(*choices)], dtype=np.int32
    )
    slot_gpu = np.concatenate((fixed.slot_gpu, gpus)).astype(np.int32)
    order = np.argsort(slot_gpu, kind="stable")
    whole = np.concatenate((np.tile(fixed.slot_expert, (len(rows), 1)), rows), axis=1)
    return Assignment(whole[:, order], slot_gpu[order], fixed.experts, fixed.gpus)


@cache
def cases() -> list[tuple[Problem, Assignment, np.ndarray, float]]:
    """Tiny problems with unequal slots, speeds, failure domains, one load each; the least level of all fillings."""
    tiny = []
    for seed in range(400):
        rng, problem = np.random.default_rng(seed), tiny_problem(seed)
        quota = int(rng.integers(1, 3))
        problem = replace(problem, loads=problem.loads[:1], split="quota", quota_slots=quota, nodes=None)
        place = rng.integers(0, 2, problem.gpus) if seed % 3 == 0 else np.zeros(problem.gpus, dtype=np.int64)
        try:
            fixed = solve(replace(problem, nodes=place)).assignment
        except InfeasibleError:
            continue
        every = ways_to_fill(problem, fixed, place)
        if every is not None:
            rows = np.tile(problem.loads[0], (every.layers, 1))
            tiny.append((problem, fixed, place, float(lp_level(every, rows, problem.speed).min())))
    return tiny


def test_no_filling_is_impossible_and_few_are_better() -> None:
    excess = []
    for problem, fixed, place, least in cases():
        filled = fill_quota(fixed, problem.loads[0], problem.quota_slots, problem.speed, place)
        reached = level(filled, problem)
        assert reached >= least * (1 - 1e-9)
        assert reached <= lp_level(fixed, problem.loads[0], problem.speed)[0] * (1 + 1e-9)
        excess.append(reached / least - 1)
    assert len(excess) > 150
    assert np.mean(np.array(excess) <= 2 * TOLERANCE) > 0.8
    assert np.mean(excess) < 0.025


def test_bounds_hold_and_placements_are_legal() -> None:
    for problem, fixed, place, least in cases():
        where = replace(problem, nodes=place)
        assert verify_experts(fixed, where) == []
        scale = problem.gpus / problem.loads[0].sum()
        assert lower_bound(where)[0] <= least * scale * (1 + 1e-9)
        assert where.evaluate(fixed)[0] >= lower_bound(where)[0] * (1 - 1e-9)


def test_what_is_filled_can_be_fetched() -> None:
    """Loads add up; a copy has a fixed one in its domain; the busiest GPU sends or receives no less than any gets."""
    for problem, fixed, place, _ in cases():
        load = problem.loads[0]
        filled = fill_quota(fixed, load, problem.quota_slots, problem.speed, place)
        slots = filled.assignment
        per_expert = np.bincount(slots.slot_expert[0], filled.shares[0], fixed.experts)
        assert per_expert == pytest.approx(np.ones(fixed.experts))
        assert (filled.shares >= 0).all()
        held = [set(fixed.slot_expert[0, fixed.slot_gpu == gpu].tolist()) for gpu in range(problem.gpus)]
        received = np.zeros(problem.gpus, dtype=np.int64)
        for expert, gpu, share in zip(slots.slot_expert[0], slots.slot_gpu, filled.shares[0], strict=True):
            if share > 0 and expert not in held[gpu]:
                received[gpu] += 1
                assert any(expert in held[other] for other in np.flatnonzero(place == place[gpu]))
        assert received.max() <= min(problem.quota_slots, filled.busiest[0] + 1e-9)


def many(gpus: int, slots: int, seed: int) -> Problem:
    rng = np.random.default_rng(seed)
    speed = rng.uniform(0.8, 1.2, gpus) if seed % 2 else None
    tokens = rng.lognormal(0, 1, (2, 3, 32))
    return make_problem(tokens, np.full(gpus, slots), speed, split="quota", quota_slots=1)


@pytest.mark.parametrize("seed", range(4))
def test_more_slots_never_hurt_and_names_change_nothing(seed: int) -> None:
    problem = many(8, 5, seed)
    fixed = solve(problem).assignment
    peaks = [replace(problem, quota_slots=many).peaks(fixed) for many in (0, 1, 2, 3)]
    for less, more in pairwise(peaks):
        assert (more <= less * (1 + 1e-12)).all()
    best = np.stack([lp_level(fixed, load, problem.speed) for load in problem.loads])
    assert peaks[0] == pytest.approx(best * problem.gpus / problem.loads.sum(axis=2), rel=1e-6)
    turn = np.random.default_rng(seed).permutation(problem.gpus)
    rows = fixed.slot_expert.reshape(3, problem.gpus, -1)[:, turn].reshape(3, -1)
    renamed = replace(problem, gpu_speed=None if problem.gpu_speed is None else problem.gpu_speed[turn])
    assert renamed.peaks(rows) == pytest.approx(peaks[1], rel=1e-9)


def test_tokens_go_where_slots_were_filled_for_their_load() -> None:
    """Of traces, by the load of each; with limited groups, by the load of each scenario."""
    problem = many(8, 5, 0)
    fixed = solve(problem).assignment
    rng = np.random.default_rng(0)
    choices = np.argsort(rng.gumbel(size=(3, 500, 32)) + np.log(problem.loads[0])[:, None], axis=2)[:, :, -4:]
    counts = np.stack([np.bincount(layer.ravel(), minlength=32) for layer in choices])
    place = np.arange(8) // 4
    trace = RoutingTrace(choices.astype(np.int16), counts, 500, "trace")
    hits = token_hits(fixed, [trace], split="quota", nodes=place, domains=place, quota=1)
    filled = fill_quota(fixed, counts.astype(float), 1, place=place)
    served = filled.assignment.gpu_load(counts.astype(float), filled.shares) / 500
    assert hits.pairs[0, :, 0] == pytest.approx(served)
    assert (hits.gpus <= hits.pairs + 1e-9).all()
    loads = ExpertLoads(problem.loads, ("a", "b"), synthetic=False)
    policy, limit = {"split": "quota", "nodes": place, "quota": 1}, {"nodes": place, "domains": place}
    both = expert_use(fixed, loads, 4, **policy)
    hit = limited_hits(both.filled.assignment, both.slot_share, problem.loads, 4, (8, 4), **limit)
    for scenario, load in enumerate(problem.loads):
        use = expert_use(fixed, replace(loads, tokens=load[None], names=("a",)), 4, **policy)
        assert use.share[0] == pytest.approx(both.share[scenario])
        alone = limited_hits(use.filled.assignment, use.slot_share, load[None], 4, (8, 4), **limit)
        assert alone.gpus[0] == pytest.approx(hit.gpus[scenario])


def test_wider_links_never_hurt() -> None:
    """The fetch takes time by the links, memory for one expert a slot, and neither without slots."""
    model = resolve_model("qwen3-30b-a3b")
    deployment = Deployment(
        resolve_cluster("gb200-nvl72@8"), model, Workload(phase="prefill", batch=2, quota_slots=1)
    )
    options = PlanOptions(time_limit_s=0, ep=8, tp=1, stages=1, split="quota")
    plan = make_plan(deployment, loads_for(model, "zipf:1"), options)
    steps = [
        on_cluster(plan, cluster).score
        for factor in ("0.5x", "1x", "2x")
        for cluster in overrides([deployment.cluster], [f"scale-up.link_bytes_per_s={factor}"])
    ]
    for slower, faster in pairwise(steps):
        assert slower.terms_s["fetch"] > faster.terms_s["fetch"]
        assert slower.step_s > faster.step_s
    # by 79 % of the rate of the links: whole experts in BF16, in every layer alike
    moved_s = steps[0].terms_s["fetch"] - steps[1].terms_s["fetch"]
    assert moved_s == pytest.approx(2 * (steps[1].terms_s["fetch"] - steps[2].terms_s["fetch"]))
    copies = moved_s * 0.79 * 900e9 / (len(model.moe_layers) * model.moe.expert_params * 2)
    assert 1 - 1e-9 <= copies <= 8 + 1e-9
    assert copies == pytest.approx(round(copies))
    without = replace(deployment, workload=replace(deployment.workload, quota_slots=0))
    even = make_plan(without, plan.loads, replace(options, split="even"))
    assert "fetch" not in even.score.terms_s
    more = plan.score.hbm_bytes["buffers"] - even.score.hbm_bytes["buffers"]
    assert more == pytest.approx(model.moe.expert_params * 2)
    assert plan.baselines["even_split"].balancedness == pytest.approx(even.balancedness)
