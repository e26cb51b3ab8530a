"""Whole plans: other loads, lost GPUs, replicas and stages; the moves replayed on the old plan give the new one."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from cost.experts.loads import ExpertLoads
from cost.inputs.deployment import Deployment
from cost.inputs.layout import Layout, StageSpec
from cost.inputs.workload import Workload
from cost.step.score import Score
from helpers import few_layers
from placement.migrate.moved import moved
from placement.migrate.replan import Replanned, ReplanOptions, replan_plan
from placement.options import PlanOptions
from placement.plan import Plan
from placement.planner import make_plan
from placement.scoring import score_placement
from placement.verify import verify_plan
from test_placement.builders import reread
from topology import Fault, build_cluster, resolve_cluster
from topology.base.errors import InfeasibleError


@pytest.fixture(autouse=True)
def _shortest(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handful of steps: the way from plan to plan is tested, not how good it is."""
    monkeypatch.setattr("placement.migrate.search._PASS", (6, 6))
    monkeypatch.setattr("placement.migrate.search._FEWEST_STEPS", 6)
    monkeypatch.setattr("placement.migrate.migration._SMALL_PASSES", 1)


QUICK = ReplanOptions(time_limit_s=0.0)


def loads(seed: int, scenarios: int = 1, layers: int = 4) -> ExpertLoads:
    tokens = np.random.default_rng(seed).lognormal(4, 0.7, (scenarios, layers, 8))
    return ExpertLoads(tokens, tuple(f"s{i}" for i in range(scenarios)), synthetic=False)


@cache
def plan_of(
    cluster: str, *, redundant: int | None = None, tp: int = 1, stages: int = 1, layers: int = 4
) -> Plan:
    deployment = Deployment(resolve_cluster(cluster), few_layers("mixtral-8x7b", layers), Workload(2048, 8))
    options = PlanOptions(redundant, time_limit_s=0.0, tp=tp, stages=stages)
    return make_plan(deployment, loads(0, layers=layers), options)


@cache
def two_replicas(redundant: int = 8, layers: int = 4) -> Plan:
    """Both halves of a cluster of 16 GPUs with the same experts."""
    one = plan_of("hgx-h100", redundant=redundant, layers=layers)
    deployment = Deployment(resolve_cluster("hgx-h100@16"), one.deployment.model, one.deployment.workload)
    held = one.layout.replicas[0][0].layers
    layout = Layout(
        tuple((StageSpec(tuple(range(first, first + 8)), held),) for first in (0, 8)), one.layout.tp
    )
    score, balancedness = score_placement(deployment, layout, one.experts, one.loads)
    return replace(
        one, deployment=deployment, layout=layout, score=score, balancedness=balancedness, failures=None
    )


def table(plan: Plan) -> dict[tuple[int, str], list[int]]:
    """The experts of each GPU in each layer, by slot."""
    found = {}
    for replica, stages in enumerate(plan.layout.replicas):
        for stage, part in zip(stages, plan.held_by(replica), strict=True):
            ids = [layer for layer in plan.deployment.model.moe_layers if layer in stage.layers]
            for row, layer in enumerate(ids):
                for local, gpu in enumerate(stage.gpus):
                    held = part.slot_expert[row, part.slot_gpu == local].tolist()
                    found[layer, plan.deployment.cluster.gpus[gpu].id] = held
    return found


def replayed(old: Plan, found: Replanned) -> dict[tuple[int, str], list[int]]:
    """Follow the steps as a runtime would; every source still has what is fetched, storage sends what none had."""
    new = found.plan
    names = [gpu.id for gpu in new.deployment.cluster.gpus]
    held = {key: list(row) for key, row in table(old).items() if key[1] in names}
    before = {(layer, expert) for (layer, _), row in held.items() for expert in row}
    late = []
    last = -1
    for step in found.steps:
        if step.layer != last:
            _install(held, names, late)
            late, last = [], step.layer
        if step.source is None:
            assert (step.layer, step.expert) not in before
        else:
            assert step.expert in held[step.layer, names[step.source]]
        (late.append(step) if step.buffer else _install(held, names, [step]))
    _install(held, names, late)
    return {key: held[key] for key in table(new)}


def _install(held: dict[tuple[int, str], list[int]], names: list[str], steps: list) -> None:
    for step in steps:
        row = held[step.layer, names[step.gpu]]
        if step.replaces is None:
            assert step.slot == len(row)
            row.append(step.expert)
        else:
            assert row[step.slot] == step.replaces
            row[step.slot] = step.expert


def check(old: Plan, found: Replanned) -> None:
    counts = Counter(step.layer for step in found.steps)
    assert verify_plan(found.plan) == []
    assert replayed(old, found) == table(found.plan)
    assert found.after == pytest.approx(np.mean(list(found.plan.balancedness.values())))
    assert found.bytes == pytest.approx(sum(found.transfer.bytes_by_distance.values()))
    assert found.plan.proof.bound <= found.plan.proof.objective
    between = moved(old, found.plan)  # counted from the two plans alone
    assert (between.moves, between.bytes) == (found.moves, pytest.approx(found.bytes))
    assert between.of_layer == {layer: counts[layer] for layer in found.expert_bytes}
    assert between.transfer.bytes_by_distance == pytest.approx(found.transfer.bytes_by_distance)


def test_other_loads_move_few_copies() -> None:
    old = plan_of("hgx-h100", redundant=16, layers=4)
    found = replan_plan(old, loads(1, layers=4), QUICK)
    check(old, found)
    assert found.before < found.after
    assert found.after >= 0.99 * found.fresh
    assert 0 < found.moves < found.fresh_moves
    assert found.bytes == found.moves * 3 * 4096 * 14336 * 2  # three matrices in BF16
    assert found.transfer.seconds > 0


@pytest.mark.parametrize("most", [0, 17])
def test_budgets_in_moves_and_bytes(most: int) -> None:
    old = plan_of("hgx-h100", redundant=16, layers=4)
    expert = 3 * 4096 * 14336 * 2
    in_moves = replan_plan(old, loads(1, layers=4), replace(QUICK, max_moves=most))
    in_bytes = replan_plan(old, loads(1, layers=4), replace(QUICK, max_bytes=most * expert + expert // 2))
    check(old, in_moves)
    assert in_moves.moves <= most
    assert table(in_moves.plan) == table(in_bytes.plan)


def test_a_lost_gpu_is_made_up_for_with_the_fewest_moves() -> None:
    old = plan_of("hgx-h100", redundant=8)
    found = replan_plan(old, None, replace(QUICK, lost=("d0.n0.g5",)))
    check(old, found)
    held = table(old)
    left = {(layer, expert) for (layer, gpu), row in held.items() if gpu != "d0.n0.g5" for expert in row}
    gone = 4 * 8 - len(left)
    assert found.moves == found.needed == gone
    assert found.lost_copies == 8
    assert [gpu.id for gpu in found.plan.deployment.cluster.gpus if gpu.id == "d0.n0.g5"] == []
    assert found.transfer.bytes_by_distance["storage"] == found.bytes


def test_a_horizon_chooses_between_restoring_and_a_fresh_plan() -> None:
    """The longer the placement serves, the more moves pay."""
    old = plan_of("hgx-h100", redundant=8)
    found = [
        replan_plan(old, None, replace(QUICK, lost=("d0.n0.g5",), horizon_s=seconds))
        for seconds in (0.0, 1e-3, 1e9)
    ]
    assert [each.moves for each in found] == sorted(each.moves for each in found)
    assert [each.after for each in found] == sorted(each.after for each in found)
    assert found[0].moves == found[0].needed < found[-1].moves
    assert found[-1].after > found[-1].restored


def test_slots_are_added_where_experts_would_not_fit() -> None:
    old = plan_of("hgx-h100", redundant=0)
    found = replan_plan(old, None, replace(QUICK, lost=("d0.n0.g0", "d0.n0.g7")))
    check(old, found)
    part = found.plan.experts[0]
    assert sorted(part.slots_per_gpu.tolist()) == [1, 1, 1, 1, 2, 2]


def test_lost_nics_move_nothing_and_make_the_step_longer() -> None:
    old = plan_of("hgx-h100@16", redundant=8, layers=4)
    lost = (*(f"d0.n0.g{g}.nic" for g in range(6)), "d0.n0.g6->f.p0.l6")
    found = replan_plan(old, None, replace(QUICK, lost=lost))
    assert (found.moves, found.lost_gpus, len(found.faults)) == (0, 0, 7)
    assert found.plan.score.step_s > old.score.step_s
    assert found.plan.score.lower_step_s >= old.score.lower_step_s
    assert verify_plan(found.plan) == []


@pytest.mark.wide
def test_a_cluster_described_anew_is_what_is_lost_by_name() -> None:
    old = plan_of("hgx-h100@16", redundant=8, layers=4)
    faults = (Fault(gpu="d0.n0.g3"), Fault(link=("d1.n0.g0", "f.p0.l0"), factor=0.5))
    now = build_cluster(replace(old.deployment.cluster.spec, name="now", faults=faults))
    found = replan_plan(old, None, QUICK, cluster=now)
    named = replan_plan(old, None, replace(QUICK, lost=("d0.n0.g3",)))
    assert (found.moves, found.lost_copies) == (named.moves, named.lost_copies)
    assert found.plan.deployment.cluster.name == "now"
    again = replan_plan(found.plan, None, QUICK, cluster=old.deployment.cluster)
    assert any("idle: 1 GPU that the plan did not use" in note for note in again.plan.notes)


def sizes(plan: Plan) -> list[int]:
    return [sum(len(stage.gpus) for stage in stages) for stages in plan.layout.replicas]


def firsts(plan: Plan) -> list[str]:
    return [plan.deployment.cluster.gpus[stages[0].gpus[0]].id for stages in plan.layout.replicas]


@pytest.mark.parametrize(
    ("lost", "left", "first"),
    [
        (("d0.n0.g2",), [8, 7], ["d1.n0.g0", "d0.n0.g0"]),  # whole ones come first
        (("d0.n0.g1", "d0.n0.g2", "d1.n0.g5"), [7, 6], ["d1.n0.g0", "d0.n0.g0"]),
        (("d0",), [8], ["d1.n0.g0"]),
    ],
)
def test_each_replica_goes_on_with_what_is_left_of_it(
    lost: tuple[str, ...], left: list[int], first: list[str]
) -> None:
    old = two_replicas()
    found = replan_plan(old, None, replace(QUICK, lost=lost))
    check(old, found)
    new = found.plan
    assert (sizes(new), firsts(new)) == (left, first)
    # tokens of all replicas, each at its own step; the slowest is the step that is told
    alone = [_alone(new, replica) for replica in range(len(left))]
    given = len(new.deployment.cluster.gpus)
    assert new.score.tok_s_per_gpu == pytest.approx(sum(one.tok_s_per_gpu for one in alone))
    assert new.score.step_s == pytest.approx(max(one.step_s for one in alone))
    assert new.score.tok_s_per_gpu * given < old.score.tok_s_per_gpu * 16
    assert new.score.tok_s_per_gpu * given > 0.8 * old.score.tok_s_per_gpu * sum(left)
    again = reread(new)
    assert (again.score, again.balancedness) == (new.score, new.balancedness)
    assert table(again) == table(new)


def _alone(plan: Plan, replica: int) -> Score:
    layout = Layout((plan.layout.replicas[replica],), plan.layout.tp)
    return score_placement(plan.deployment, layout, plan.held_by(replica), plan.loads)[0]


def test_a_loss_after_a_loss() -> None:
    once = replan_plan(two_replicas(), None, replace(QUICK, lost=("d1.n0.g2",))).plan
    twice = replan_plan(once, None, replace(QUICK, lost=("d1.n0.g3",)))
    check(once, twice)
    assert sizes(twice.plan) == [8, 6]
    other = replan_plan(once, loads(1), replace(QUICK, max_moves=40))
    check(once, other)
    assert sizes(other.plan) == [8, 7]
    assert other.moves <= 40


def test_a_budget_below_what_restoring_takes_is_infeasible() -> None:
    with pytest.raises(InfeasibleError, match="moves are needed"):
        replan_plan(plan_of("hgx-h100", redundant=0), None, replace(QUICK, lost=("d0.n0.g0",), max_moves=3))


def test_one_replica_too_small_for_its_weights_is_infeasible() -> None:
    lost = tuple(f"d0.n0.g{gpu}" for gpu in range(7))
    with pytest.raises(InfeasibleError, match="HBM capacity"):
        replan_plan(plan_of("hgx-h100", redundant=0, layers=32), None, replace(QUICK, lost=lost))


def test_a_replica_that_cannot_go_on_is_idle_and_says_why() -> None:
    old = two_replicas(layers=32)
    lost = tuple(f"d1.n0.g{gpu}" for gpu in range(7))
    found = replan_plan(old, None, replace(QUICK, lost=lost))
    check(old, found)
    assert sizes(found.plan) == [8]
    assert any("replica 1 (from d1.n0.g0) is idle: HBM capacity" in note for note in found.plan.notes)


def test_replicas_move_identically_within_one_budget() -> None:
    old = two_replicas()
    found = replan_plan(old, loads(1), replace(QUICK, max_moves=31))
    check(old, found)
    assert 0 < found.moves <= 30
    assert found.moves % 2 == 0


@pytest.mark.parametrize(("lost", "left"), [("d1.n0.g3", [16, 14]), ("d3.n0", [16])])
def test_replicas_of_stages_and_tensor_parallel_groups(lost: str, left: list[int]) -> None:
    """The pair that lost a GPU leaves its stage; a stage that is lost ends its replica."""
    one = plan_of("hgx-h100@16", redundant=8, tp=2, stages=2)
    deployment = Deployment(resolve_cluster("hgx-h100@32"), one.deployment.model, one.deployment.workload)
    stages = one.layout.replicas[0]
    second = tuple(StageSpec(tuple(gpu + 16 for gpu in stage.gpus), stage.layers) for stage in stages)
    old = replace(one, deployment=deployment, layout=Layout((stages, second), 2), failures=None)
    found = replan_plan(old, None, replace(QUICK, lost=(lost,)))
    check(old, found)
    assert sizes(found.plan) == left
    assert any("idle: 1 GPU" in note for note in found.plan.notes) == (lost == "d1.n0.g3")
    assert any("is idle: no GPU remains of the 8" in note for note in found.plan.notes) == (lost == "d3.n0")


def test_the_first_point_that_keeps_the_limit_is_known() -> None:
    old, new = plan_of("hgx-h100", redundant=8), loads(1)
    free = replan_plan(replace(old, limit_s=None), new, QUICK)
    slow, fast = (free.plan.baselines[name].score for name in ("old plan", "fresh plan"))
    assert free.meets is None
    within = (slow.tpot_s + fast.tpot_s) / 2
    for limit_s, first in ((2 * slow.tpot_s, free.front[0]), (fast.tpot_s / 2, None)):
        assert replan_plan(replace(old, limit_s=limit_s), new, QUICK).meets == first
    meets = replan_plan(replace(old, limit_s=within), new, QUICK).meets
    assert meets in free.front[1:]
    enough = replan_plan(replace(old, limit_s=within), new, replace(QUICK, max_moves=meets.moves))
    assert enough.plan.over_limit is None
