"""Whole plans: other loads, lost GPUs, replicas and stages; the moves replayed on the old plan give the new one."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost.experts.loads import ExpertLoads
from cost.inputs.layout import Layout, StageSpec
from placement.experts.pack import EMPTY
from placement.experts.problem import make_problem
from placement.migrate.moved import moved
from placement.migrate.replan import Replanned, ReplanOptions, replan_plan
from placement.migrate.start import kept_copies, relabel, restore
from placement.migrate.steps import Step, in_order, transfers
from placement.migrate.task import MigrationTask
from placement.plan import Plan
from placement.scoring import score_placement
from placement.verify import verify_experts, verify_plan
from test_placement.builders import deployed, quick, reread
from topology import resolve_cluster


@pytest.fixture(autouse=True)
def _shortest(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handful of steps: the way from plan to plan is tested, not how good it is."""
    monkeypatch.setattr("placement.migrate.search._PASS", (6, 6))
    monkeypatch.setattr("placement.migrate.search._FEWEST_STEPS", 6)
    monkeypatch.setattr("placement.migrate.migration._SMALL_PASSES", 1)


QUICK = ReplanOptions(time_limit_s=0.0)


def loads(seed: int, layers: int = 4) -> ExpertLoads:
    tokens = np.random.default_rng(seed).lognormal(4, 0.7, (1, layers, 8))
    return ExpertLoads(tokens, ("made",), synthetic=False)


@cache
def plan_of(cluster: str, layers: int = 4, **asked: int) -> Plan:
    deployment = deployed("mixtral-8x7b", cluster, layers, context=2048, batch=8)
    return quick(deployment, loads(0, layers), **{"tp": 1, "stages": 1, **asked})


def doubled(plan: Plan, cluster: str) -> Plan:
    """The plan twice, side by side on a cluster of twice the GPUs."""
    deployment = replace(plan.deployment, cluster=resolve_cluster(cluster))
    gpus, (first,) = len(plan.deployment.cluster.gpus), plan.layout.replicas
    second = tuple(StageSpec(tuple(gpu + gpus for gpu in stage.gpus), stage.layers) for stage in first)
    layout = Layout((first, second), plan.layout.tp)
    score, balancedness = score_placement(deployment, layout, plan.experts, plan.loads)
    return replace(
        plan, deployment=deployment, layout=layout, score=score, balancedness=balancedness, failures=None
    )


@cache
def two_replicas(layers: int = 4) -> Plan:
    return doubled(plan_of("hgx-h100", layers, redundant=8), "hgx-h100@16")


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
    late: list[Step] = []
    last = -1

    def install(steps: list[Step]) -> None:
        for step in steps:
            row = held[step.layer, names[step.gpu]]
            if step.replaces is None:
                assert step.slot == len(row)
                row.append(step.expert)
            else:
                assert row[step.slot] == step.replaces
                row[step.slot] = step.expert

    for step in found.steps:
        if step.layer != last:
            install(late)
            late, last = [], step.layer
        if step.source is None:
            assert (step.layer, step.expert) not in before
        else:
            assert step.expert in held[step.layer, names[step.source]]
        (late.append(step) if step.buffer else install([step]))
    install(late)
    return {key: held[key] for key in table(new)}


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


@pytest.mark.parametrize("most", [0, 17])
def test_budgets_in_moves_and_bytes(most: int) -> None:
    old = plan_of("hgx-h100", redundant=16)
    expert = 3 * 4096 * 14336 * 2
    in_moves = replan_plan(old, loads(1), replace(QUICK, max_moves=most))
    in_bytes = replan_plan(old, loads(1), replace(QUICK, max_bytes=most * expert + expert // 2))
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
    assert found.transfer.bytes_by_distance["storage"] == found.bytes


def test_a_horizon_chooses_between_restoring_and_a_fresh_plan() -> None:
    """The longer the placement serves, the more moves pay."""
    old = plan_of("hgx-h100", redundant=8)
    lost = replace(QUICK, lost=("d0.n0.g5",))
    short, _, long = again = [
        replan_plan(old, None, replace(lost, horizon_s=seconds)) for seconds in (0.0, 1e-3, 1e9)
    ]
    assert again == sorted(again, key=lambda replanned: (replanned.moves, replanned.after))
    assert short.moves == short.needed < long.moves
    assert long.after > long.restored


def test_slots_are_added_where_experts_would_not_fit() -> None:
    old = plan_of("hgx-h100", redundant=0)
    found = replan_plan(old, None, replace(QUICK, lost=("d0.n0.g0", "d0.n0.g7")))
    check(old, found)
    assert sorted(found.plan.experts[0].slots_per_gpu.tolist()) == [1, 1, 1, 1, 2, 2]


def test_lost_nics_move_nothing_and_make_the_step_longer() -> None:
    old = plan_of("hgx-h100@16", redundant=8)
    lost = (*(f"d0.n0.g{g}.nic" for g in range(6)), "d0.n0.g6->f.p0.l6")
    found = replan_plan(old, None, replace(QUICK, lost=lost))
    assert (found.moves, found.lost_gpus, len(found.faults)) == (0, 0, 7)
    assert found.plan.score.step_s > old.score.step_s
    assert found.plan.score.lower_step_s >= old.score.lower_step_s
    assert verify_plan(found.plan) == []


def sizes(plan: Plan) -> list[int]:
    return [sum(len(stage.gpus) for stage in stages) for stages in plan.layout.replicas]


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
    starts = [new.deployment.cluster.gpus[stages[0].gpus[0]].id for stages in new.layout.replicas]
    assert (sizes(new), starts) == (left, first)
    # tokens of all replicas, each at its own step; the slowest is the step that is told
    layouts = [Layout((stages,), new.layout.tp) for stages in new.layout.replicas]
    alone = [
        score_placement(new.deployment, layout, new.held_by(replica), new.loads)[0]
        for replica, layout in enumerate(layouts)
    ]
    given = len(new.deployment.cluster.gpus)
    assert new.score.tok_s_per_gpu == pytest.approx(sum(one.tok_s_per_gpu for one in alone))
    assert new.score.step_s == pytest.approx(max(one.step_s for one in alone))
    assert new.score.tok_s_per_gpu * given < old.score.tok_s_per_gpu * 16
    assert new.score.tok_s_per_gpu * given > 0.8 * old.score.tok_s_per_gpu * sum(left)
    again = reread(new)
    assert (again.score, again.balancedness) == (new.score, new.balancedness)
    assert table(again) == table(new)


def test_a_replica_that_cannot_go_on_is_idle_and_says_why() -> None:
    old = two_replicas(layers=32)
    lost = tuple(f"d1.n0.g{gpu}" for gpu in range(7))
    found = replan_plan(old, None, replace(QUICK, lost=lost))
    check(old, found)
    assert sizes(found.plan) == [8]
    assert any("replica 1 (from d1.n0.g0) is idle: HBM capacity" in note for note in found.plan.notes)


@pytest.mark.parametrize(("lost", "left"), [("d1.n0.g3", [16, 14]), ("d3.n0", [16])])
def test_replicas_of_stages_and_tensor_parallel_groups(lost: str, left: list[int]) -> None:
    """The pair that lost a GPU leaves its stage; a stage that is lost ends its replica."""
    old = doubled(plan_of("hgx-h100@16", redundant=8, tp=2, stages=2), "hgx-h100@32")
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


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 10_000), gpus=st.integers(2, 5), each=st.integers(2, 4), empty=st.booleans())
def test_every_expert_is_back_after_one_move_each(seed: int, gpus: int, each: int, empty: bool) -> None:
    rng = np.random.default_rng(seed)
    experts = int(rng.integers(each, gpus * each + 1))
    loads = rng.random((2, experts)) + 0.01
    old = np.array(
        [np.concatenate([rng.permutation(experts)[:each] for _ in range(gpus)]) for _ in range(2)],
        dtype=np.int32,
    )
    if empty:
        old[:, rng.integers(gpus * each)] = EMPTY
    task = MigrationTask(make_problem(loads, np.full(gpus, each)), old)
    restored = restore(task)
    assert verify_experts(task.problem.assignment(restored), task.problem) == []
    lost = (~task.held.any(axis=1)).sum(axis=1)
    vacant = (old == EMPTY).sum(axis=1)
    assert (task.moves(restored) == np.maximum(lost, vacant)).all()


@pytest.mark.parametrize(
    ("slots", "speed", "spread"),
    [
        ([2, 2, 2, 2], [1.0, 2.0, 1.0, 2.0], None),
        ([2, 2, 2, 2, 2, 2], None, [0, 0, 1, 1, 2, 2]),
        ([2, 3, 3, 2, 2, 3], None, [0, 0, 1, 1, 1, 1]),
        ([2, 0, 2, 3], None, None),
    ],
)
def test_as_good_as_the_best_permutation(
    slots: list[int], speed: list[float] | None, spread: list[int] | None
) -> None:
    """Of all that keep kinds of GPUs and whole domains together."""
    rng = np.random.default_rng(1)
    pace, together = (None if given is None else np.array(given) for given in (speed, spread))
    problem = make_problem(np.ones((6, 7)), slots, pace, together)
    domain, gpus = problem.failure_domain, np.arange(problem.gpus)
    kinds = [*zip(slots, problem.speed.tolist(), strict=True)]
    orders = [np.array(order) for order in permutations(gpus) if [kinds[gpu] for gpu in order] == kinds]
    if np.bincount(domain).max() > 1:
        orders = [to for to in orders if len({*zip(domain, domain[to], strict=True)}) == domain.max() + 1]
    old, target = (
        np.array([np.concatenate([rng.permutation(7)[:held] for held in slots]) for _ in range(6)], np.int32)
        for _ in range(2)
    )
    task = MigrationTask(problem, old)
    relabelled, kept = relabel(task, target), kept_copies(task, target)
    for layer in range(6):
        most = max(int(kept[layer][gpus, to].sum()) for to in orders)
        assert int(task.moves(relabelled)[layer]) == problem.slots - most
        held = (rows[layer][problem.slot_gpu == gpu] for rows in (target, relabelled) for gpu in gpus)
        sets = [tuple(sorted(row)) for row in held]
        assert sorted(sets[: len(gpus)]) == sorted(sets[len(gpus) :])


def test_a_chain_needs_no_buffer_and_an_exchange_needs_one() -> None:
    chain = [Step(0, 0, 0, 1, 0, 1), Step(0, 1, 0, 2, 1, 2)]
    for steps in (chain, chain[::-1]):
        ordered = in_order(steps)
        assert [step.gpu for step in ordered] == [0, 1]
        assert not any(step.buffer for step in ordered)
    swap = in_order([Step(0, 0, 0, 1, 0, 1), Step(0, 1, 0, 0, 1, 0)])
    assert [step.buffer for step in swap] == [True, False]


def test_seconds_are_bytes_over_the_busiest_link() -> None:
    cluster, sizes = resolve_cluster("hgx-h100@16"), {0: 45e9, 1: 45e9}
    near = transfers(cluster, [Step(0, 0, 0, 9, None, 1)], sizes)
    assert near.seconds == pytest.approx(45e9 / 450e9, rel=1e-3)  # NVLink 4: 450 GB/s per direction
    assert near.bytes_by_distance == {"node": 45e9, "domain": 0.0, "rack": 0.0, "across": 0.0, "storage": 0.0}
    both = transfers(cluster, [Step(0, 0, 0, 9, None, 1), Step(1, 0, 0, 9, None, 2)], sizes)
    assert both.seconds == pytest.approx(2 * 45e9 / 450e9, rel=1e-3)  # both arrive at one GPU
    far = transfers(cluster, [Step(0, 0, 0, 9, None, 8)], sizes)
    assert far.seconds == pytest.approx(45e9 / 50e9, rel=1e-2)  # 400 Gb/s
