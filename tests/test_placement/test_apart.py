"""Attention apart from the experts: the step, what is sent, memory, ratios that are searched, and plans."""

from __future__ import annotations

import heapq
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

import rackplan
from cost.inputs.layout import Apart, Layout, StageSpec
from cost.memory.stages import layout_memory, replica_memory
from cost.step.apart import Sides, Turns, apart_turns
from cost.step.score import LayoutScorer
from cost.terms.work import StepCost
from placement.engines.export import export_plan
from placement.engines.registry import ENGINES
from placement.layouts.apart import price_ratios
from placement.layouts.fitting import balanced_uses
from placement.migrate.replan import ReplanOptions, replan_plan
from placement.options import PlanOptions
from placement.verify import verify_plan
from rackplan.report.plan import plan_doc
from test_placement.builders import deployed, joined, quick, reread
from topology.base.errors import InfeasibleError, InputError


def _drained_s(seconds: tuple[float, ...], visits: int, micro_batches: int) -> float:
    """Simulate micro-batches that pass each of four places in every visit; a place takes them as they come."""
    free = [0.0] * len(seconds)
    waiting = [(0.0, number, 0) for number in range(micro_batches)]
    while waiting:
        at, number, passed = heapq.heappop(waiting)
        place = passed % len(seconds)
        free[place] = max(at, free[place]) + seconds[place]
        if passed + 1 < visits * len(seconds):
            heapq.heappush(waiting, (free[place], number, passed + 1))
    return max(free)


def test_a_step_takes_as_long_as_its_micro_batches_simulated() -> None:
    rng = np.random.default_rng(0)
    for _ in range(300):
        seconds, visits, count = tuple(rng.random(4)), int(rng.integers(1, 60)), int(rng.integers(1, 5))
        passed = [StepCost({(f"part {i}", "limit"): np.asarray(visits * s)}) for i, s in enumerate(seconds)]
        turns = Turns(StepCost({("head", "limit"): np.asarray(0.5)}), tuple(passed), visits, count)  # type: ignore[arg-type]
        assert float(turns.step().total_s) == pytest.approx(_drained_s(seconds, visits, count) + 0.5 * count)


def _apart(
    deployment, ours: range, theirs: range, turns: int = 2, tp: int = 1
) -> tuple[Layout, LayoutScorer]:
    model = deployment.model
    stage = StageSpec(tuple(theirs), range(len(model.layers)))
    layout = Layout(((stage,),), tp, apart=Apart((tuple(ours),), turns))
    slots = np.full(len(theirs), -(-model.moe.experts // len(theirs)))
    return layout, LayoutScorer(deployment, layout, balanced_uses(deployment, layout, (slots,)))


@pytest.mark.parametrize(
    ("cluster", "ours", "theirs", "busiest", "fabric"),
    [
        # one domain: each of 48 reaches 24, each of 24 hears from 48
        ("gb200-nvl72", range(48), range(48, 72), 48, "up"),
        # attention on a rack, experts on the next: nothing stays inside
        ("gb200-nvl72@144", range(72), range(72, 144), 72, "out"),
        # H100 nodes: 16 GPUs of attention on two, 8 of experts on the third
        ("hgx-h100@24", range(16), range(16, 24), 16, "out"),
        # each of three nodes has four of both: 4 of 12 lie in the same one
        ("hgx-h100@24", [0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19],
         [4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23], 8, "out"),
    ],
)  # fmt: skip
def test_vectors_between_the_pools_are_those_counted_by_hand(cluster, ours, theirs, busiest, fabric) -> None:
    deployment = rackplan.make_deployment("mixtral-8x7b", cluster)
    model, machine_of = deployment.model, deployment.machine
    attention, stage = (StageSpec(tuple(gpus), range(32)) for gpus in (ours, theirs))
    sides = Sides.of(deployment, attention, stage, 1, float(len(theirs)))
    assert (sides.far if fabric == "out" else sides.near) == busiest
    turns = apart_turns(model, deployment.workload, sides, 6.0, 2)  # three tokens of a GPU at a time
    rates = machine_of(StageSpec((*ours, *theirs), range(32))).rates
    name, rate = (
        (rates.out_fabric, rates.out_bytes_per_s)
        if fabric == "out"
        else (rates.up_fabric, rates.alltoall_bytes_per_s)
    )
    chance = 2 / len(theirs)  # of a GPU to be one of the two that a token needs, experts evenly over GPUs
    moved = 3 * busiest * chance * model.hidden * 2  # bytes in BF16
    assert float(turns.passed[1].floor_s[name]) == pytest.approx(32 * moved / rate)
    assert float(turns.passed[3].floor_s[name]) == pytest.approx(32 * moved / rate)


def test_attention_gpus_hold_no_experts_and_expert_gpus_no_cache() -> None:
    deployment = rackplan.make_deployment("deepseek-v3", "gb200-nvl72", context=8192)
    _, scorer = _apart(deployment, range(40), range(40, 72))
    attention, experts = scorer.memories
    assert attention.experts == 0 < attention.kv_per_batch
    assert experts.kv_per_batch == 0 < experts.experts == experts.weights
    # what a GPU that has both holds of attention and of as many experts is no more and no less
    together = Layout(((StageSpec(tuple(range(32)), range(61)),),), 1)
    slots = [np.full(32, 8)]
    (whole,) = layout_memory(deployment, together, 0, slots)
    assert whole == replica_memory(deployment, together.replicas[0], tp=1, slots=slots)[0]
    assert attention.weights + experts.weights == pytest.approx(whole.weights)
    assert attention.kv_per_batch == pytest.approx(whole.kv_per_batch * 72 / 40)
    held = scorer.at(scorer.max_batch)  # whole sequences of each of 40 GPUs, as many as there is room for
    assert round(scorer.max_batch * 72 / 40) == int(attention.room * 72 / 40)
    assert sum(held.hbm_bytes.values()) == pytest.approx(attention.budget.capacity)


def test_parts_add_up_and_work_is_time_times_rate() -> None:
    deployment = rackplan.make_deployment("deepseek-v3", "gb200-nvl72@144", context=8192)
    for ours, theirs, turns in ((range(72), range(72, 144), 3), (range(100), range(100, 144), 2)):
        layout, scorer = _apart(deployment, ours, theirs, turns)
        score = scorer.at(60 / layout.group_gpus)
        assert sum(score.parts_s.values()) == pytest.approx(score.step_s)
        assert score.lower_step_s <= score.step_s
        assert score.tok_s_per_gpu * 144 * score.step_s == pytest.approx(60 * len(ours))


def test_a_faster_link_is_never_slower() -> None:
    slower = None
    for rate in (100, 200, 400, 800):
        spec = {"name": "two", "domains": [{"part": "hgx-h100", "count": 6}],
                "fabric": {"kind": "rail", "nic": f"{rate} Gb/s", "oversubscription": 1}}  # fmt: skip
        deployment = rackplan.make_deployment("deepseek-v3", spec, context=4096)
        score = _apart(deployment, range(24), range(24, 48), 3)[1].at(4)
        assert slower is None or score.step_s <= slower
        slower = score.step_s


@pytest.mark.parametrize(("cluster", "limit_s"), [("hgx-h100", 0.05), ("hgx-h100@16", None)])
def test_ratios_are_those_of_every_layout_scored_by_itself(cluster: str, limit_s: float | None) -> None:
    deployment = replace(rackplan.make_deployment("mixtral-8x7b", cluster), any_shape=True)
    ratios = price_ratios(deployment, PlanOptions(afd="auto"), limit_s)
    gpus, best = len(deployment.cluster.gpus), 0.0
    for count, turns, tp in product(range(1, gpus), (2, 3), (1, 2, 4, 8)):
        if count % tp:
            continue
        layout, scorer = _apart(deployment, range(count), range(count, gpus), turns, tp)
        most = round(scorer.max_batch * layout.group_gpus)
        fits = (
            scorer.at(n / layout.group_gpus) for n in range(1, most + 1, 1 + (most > 300) * (most // 300))
        )
        best = max([best, *(s.tok_s_per_gpu * gpus for s in fits if limit_s is None or s.step_s <= limit_s)])
    first = next(ratios.fitted(int(ratios.order[0]), PlanOptions())).scorer
    layout = ratios.layouts[ratios.order[0]]
    found = first.at(ratios.sequences[ratios.order[0]] / layout.group_gpus)
    assert found.tok_s_per_gpu * gpus == pytest.approx(ratios.tok_s.max(), rel=1e-6)
    assert ratios.tok_s.max() >= best * (1 - 1e-6)
    assert ratios.tok_s.max() <= ratios.most_tok_s


def test_what_cannot_run_apart_is_refused() -> None:
    for model, more in (
        ("llama-3.1-70b", {}),
        ("deepseek-v3", {"overlap": True}),
    ):
        deployment = rackplan.make_deployment(model, "hgx-h200@64", **more)
        with pytest.raises(InputError, match="attention apart from the experts"):
            price_ratios(deployment, PlanOptions(afd="auto"), None)
    deployment = rackplan.make_deployment("deepseek-v3", "hgx-h100@16")
    for ratio, why in (("8:8", "HBM capacity binds: .* a GPU of experts needs"), ("10:10", "a replica has")):
        with pytest.raises(InfeasibleError, match=why):
            price_ratios(deployment, PlanOptions(afd=ratio), None)


def test_a_plan_of_unlike_chips_names_the_gpus_of_both_pools_in_its_file() -> None:
    cluster = joined("hgx-h20@16", "hgx-h100@16")
    plan = quick(deployed("mixtral-8x7b", cluster, context=8192), "lognormal:0.5", afd="16:16")
    ours, theirs = (
        {cluster.domain_of(gpu).gpu.name for gpu in stage.gpus} for _, stage in plan.layout.pools_of(0)
    )
    assert ours != theirs
    assert verify_plan(plan) == []
    again = reread(plan)
    assert (again.layout, again.score.step_s, again.differences) == (plan.layout, plan.score.step_s, "")
    pools = plan_doc(plan).data["pools"]
    assert [(row["role"], row["gpus"], row["tok_s"] is None) for row in pools] == [
        ("attention", 16, False),
        ("experts", 16, True),
    ]
    assert replan_plan(plan, None, ReplanOptions(time_limit_s=0)).plan.failures is None
    with pytest.raises(InputError, match=r"afd-plugin"):
        export_plan(plan, ENGINES["sglang"], "plan.json")


def test_a_decode_pool_has_two_pools_where_whole_requests_are_planned() -> None:
    plan = rackplan.plan("qwen3-30b-a3b", "hgx-h100@16", isl=512, osl=2048, afd="4:4", time_limit_s=0)
    held = {name for pool in plan.pools for name, _ in pool.layout.pools_of(0)}
    assert ({pool.role for pool in plan.pools}, held) == ({"prefill", "decode"}, {"attention", "experts"})


def test_the_best_ratio_is_the_published_one() -> None:
    # vllm-project/afd-plugin, recipe/npu/CAMP2pAFDConnector/deepseek_v3_2: 192A64F and 256A64F on Ascend A3
    for dies in (256, 320):
        deployment = rackplan.make_deployment("deepseek-v3.2", f"cm384@{dies}", context=16384)
        ratios = price_ratios(deployment, PlanOptions(afd="auto"), 0.1)
        attention, experts = (stage for _, stage in ratios.layouts[ratios.order[0]].pools_of(0))
        assert (len(attention.gpus), len(experts.gpus)) == (dies - 64, 64)
