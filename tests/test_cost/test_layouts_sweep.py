"""The sweep against the scorer of single layouts, and what must hold of any sweep."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from cost.experts.tokens.reach import balanced_use
from cost.inputs.deployment import Deployment
from cost.inputs.workload import Workload
from cost.layouts import Sweep, best_at, iso_interactivity, sweep
from cost.resolve import resolve_model
from cost.step.score import LayoutScorer
from topology import (
    Fault,
    InputError,
    build_cluster,
    load_domain,
    load_scale_out,
    resolve_cluster,
)
from topology.cluster import ClusterSpec
from toys import even_slots

pytestmark = pytest.mark.wide

WORKLOAD = Workload()


def scorer_of(found: Sweep, index: int, redundant: int | None) -> LayoutScorer:
    """The scorer of one layout of a sweep, its experts balanced."""
    where, layout = found.deployment, found.layout_of(index)
    moe = where.model.moe
    uses = []
    for stages in layout.replicas:
        row = []
        for stage in stages:
            gpus = len(stage.gpus)
            count = sum(layer in stage.layers for layer in where.model.moe_layers)
            if moe is None or not count:
                row.append(None)
                continue
            slots = moe.experts + (-moe.experts % gpus if redundant is None else redundant)
            row.append(balanced_use(count, even_slots(slots, gpus), moe.experts, moe.top_k))
        uses.append(row)
    return LayoutScorer(where, layout, uses)


def positive(terms: Mapping[str, float]) -> dict[str, float]:
    return {name: seconds for name, seconds in terms.items() if seconds > 0}


def mixes_chips(found: Sweep, index: int) -> bool:
    """Whether a stage of the layout spans GPUs of several kinds."""
    cluster = found.deployment.cluster
    return any(
        len({cluster.domain_of(gpu).gpu.name for gpu in stage.gpus}) > 1
        for stages in found.layout_of(index).replicas
        for stage in stages
    )


def check_against_scorer(found: Sweep, redundant: int | None = None, *, most: int = 20) -> int:
    """Compare about ``most`` layouts at their smallest and their largest batch; return how many were."""
    whole = found.moe_tp == 1
    keys = found.layout * 1000 + found.tp
    layouts = np.unique(keys[whole])
    step = max(1, len(layouts) // most)
    for key in layouts[::step]:
        rows = np.flatnonzero(whole & (keys == key))
        scorer = scorer_of(found, int(rows[0]), redundant)
        for index in {int(rows[0]), int(rows[len(rows) // 2]), int(rows[-1])}:
            score = scorer.at(float(found.batch[index]))
            close = pytest.approx
            assert found.max_batch[index] == score.max_batch, found.label(index)
            if mixes_chips(found, index):  # the sweep knows the slowest GPU of a group, the scorer each
                assert found.step_s[index] == close(score.step_s, rel=0.25), found.label(index)
                continue
            assert found.step_s[index] == close(score.step_s, rel=1e-9), found.label(index)
            assert found.lower_step_s[index] == close(score.lower_step_s, rel=1e-9), found.label(index)
            assert found.tok_s_per_user[index] == close(score.tok_s_per_user, rel=1e-9)
            assert found.tok_s_per_gpu[index] == close(score.tok_s_per_gpu, rel=1e-9)
            assert found.tok_s_per_gpu_used[index] == close(score.tok_s_per_gpu_used, rel=1e-9)
            terms = positive({name: float(value[index]) for name, value in found.terms_s.items()})
            # replicas of several kinds and stages may tie: then the parts of any of them may be shown
            what = found.variants[found.layout[index]].arrangement
            ties = what.stages > 1 and len(what.alike) > 1
            if ties:
                assert sum(terms.values()) == close(score.step_s, rel=1e-9)
            else:
                assert found.bound(index) == score.bound_by
                assert terms == close(positive(score.terms_s), rel=1e-9, abs=1e-15)
    return len(layouts[::step])


@cache
def swept(model: str, cluster: str, workload: Workload = WORKLOAD, **options: Any) -> Sweep:
    return sweep(Deployment(resolve_cluster(cluster), resolve_model(model), workload), **options)


@pytest.mark.parametrize(
    ("model", "cluster", "workload", "redundant"),
    [
        ("deepseek-v3", "gb200-nvl72", Workload(), None),
        ("deepseek-v2-lite", "gb200-nvl72@16", Workload(draft_tokens=1, accept_length=1.5), 21),
        ("mixtral-8x7b", "hgx-h100@24", Workload(overlap=True), None),
        ("qwen3-235b-a22b", "tpu-v5p@2x2x4", Workload(context=30_000, kv_dtype="fp8"), None),
        ("gpt-oss-120b", "mi300x@16", Workload(context=100_000), 5),
        ("llama-3.1-8b", "hgx-h100", Workload(phase="prefill", context=100), None),
        ("deepseek-v3", "gb200-nvl72", Workload(context=4096, phase="prefill", prefix_hit=0.6), None),
    ],
)
def test_as_the_scorer_says(model: str, cluster: str, workload: Workload, redundant: int | None) -> None:
    found = swept(model, cluster, workload, redundant=redundant, chunk_tokens=None)
    assert check_against_scorer(found, redundant) >= 3
    assert len(found) > 50


def test_domains_of_several_chips_and_sizes_as_the_scorer_says() -> None:
    # 8 H100 and 4 of a GB200 rack's GPUs: replicas of two kinds, and stages of unequal size and speed
    small = replace(load_domain("gb200-nvl72"), gpus=4)
    mixed = build_cluster(ClusterSpec("mixed", (load_domain("hgx-h100"), small), load_scale_out("hgx-h100")))
    found = sweep(Deployment(mixed, resolve_model("mixtral-8x7b"), Workload(), any_shape=True))
    assert check_against_scorer(found) >= 10
    uneven = found.gpus == 12
    assert {1, 2} <= set(found.stages[uneven].tolist())


def test_replicas_with_slow_links_as_the_scorer_says() -> None:
    faults = tuple(Fault(link=("d1.n0.g3", f"d1.s{chip}"), factor=0.4) for chip in range(4))
    faulty = build_cluster(replace(resolve_cluster("hgx-h100@16").spec, faults=faults))
    found = sweep(Deployment(faulty, resolve_model("mixtral-8x7b"), WORKLOAD))
    assert check_against_scorer(found) >= 3
    assert found.step_s.max() > 0


def test_nothing_fits_and_how_much_is_missing() -> None:
    found = swept("deepseek-v3", "hgx-h100")
    assert len(found) == 0
    assert len(found.frontier()) == 0
    # 671 GB over 8 GPUs are 84 GB of weights each, and 0.9 of 85.9 GB are usable
    assert 5e9 < found.shortage_bytes < 20e9
    assert iso_interactivity(found, [1.0]) == [None]
    assert swept("deepseek-v3", "gb200-nvl72").shortage_bytes == 0


@pytest.mark.parametrize("cluster", ["hgx-h100@16", "gb200-nvl72@24"])
def test_at_a_speed_every_layout_has_its_largest_batch(cluster: str) -> None:
    where = Deployment(resolve_cluster(cluster), resolve_model("mixtral-8x7b"), Workload(context=512))
    target = 37.0
    found = sweep(where, cut_experts=False, speeds=(target,))
    keys, whole = found.layout * 1000 + found.tp, (found.batch >= 1) & (found.stages == 1)
    seen = 0
    for key in np.unique(keys[whole]):
        rows = np.flatnonzero((keys == key) & whole)
        scorer = scorer_of(found, int(rows[0]), None)
        fast = rows[found.tok_s_per_user[rows] >= target]
        if not len(fast):
            assert scorer.at(1).tok_s_per_user < target
            continue
        largest = int(found.batch[fast].max())
        assert scorer.at(largest).tok_s_per_user >= target
        assert largest == scorer.max_batch or scorer.at(largest + 1).tok_s_per_user < target
        seen += 1
    assert seen
    alone = sweep(where, cut_experts=False)
    assert iso_interactivity(alone, [target]) == pytest.approx(iso_interactivity(found, [target]), rel=1e-12)


def test_a_gpu_never_holds_two_copies_of_an_expert() -> None:
    # 8 experts: up to 8 copies a GPU, so 40 more do not fit on 4 GPUs or fewer
    found = swept("mixtral-8x7b", "hgx-h100@24", redundant=40)
    assert set(found.ep.tolist()) == {8, 16, 24}
    with pytest.raises(InputError, match="`redundant` 200"):
        swept("mixtral-8x7b", "hgx-h100@24", redundant=200)


def test_prefill_takes_a_chunk_and_at_least_one_prompt() -> None:
    # 8 prompts of 1,024 tokens fill a chunk of 8,192; of 20,000 tokens one is more than a chunk
    found = swept("deepseek-v3", "gb200-nvl72", Workload(context=1024, phase="prefill"))
    prompts = found.batch * found.tp
    assert prompts.max() == 8
    assert (prompts == 8).any()
    assert (found.max_batch * found.tp).max() == 8
    long = swept("deepseek-v3", "gb200-nvl72", Workload(context=20_000, phase="prefill"))
    assert set((long.batch * long.tp).tolist()) == {1.0}
    # cached tokens take no room in a chunk
    half = swept("deepseek-v3", "gb200-nvl72", Workload(context=1024, phase="prefill", prefix_hit=0.5))
    assert (half.batch * half.tp).max() == 16
    free = swept("deepseek-v3", "gb200-nvl72", Workload(context=1024, phase="prefill"), chunk_tokens=None)
    assert free.batch.max() > 100
    decode = swept("deepseek-v3", "gb200-nvl72")
    assert decode.batch.max() == decode.max_batch.max()


def test_imbalance_of_wide_groups() -> None:
    for phase, usual in (("decode", 1.25), ("prefill", 1.35)):
        even, served, stated = (
            swept("deepseek-v3", "gb200-nvl72", Workload(phase=phase), imbalance=x)
            for x in (1.0, None, usual)
        )
        # nobody states it: loads of wide groups as usual, and unequal use, which leaves experts unread
        rows, others = shared_rows(even, served)
        wide = even.ep[rows] >= 16
        assert 0 < wide.sum() < len(wide)
        assert (served.step_s[others][~wide] <= even.step_s[rows][~wide]).all()
        rows, others = shared_rows(stated, served)
        assert (served.step_s[others] <= stated.step_s[rows]).all()
        # where every expert is read anyway, the load alone counts
        tokens = stated.batch[rows] * (1 if phase == "decode" else 4096) * stated.gpus[rows]
        many = (stated.ep[rows] >= 16) & (tokens >= 16_384) & (stated.moe_tp[rows] == 1)
        assert many.any()
        assert served.step_s[others][many] == pytest.approx(stated.step_s[rows][many], rel=0.01)
        rows, others = shared_rows(even, stated)
        assert (stated.step_s[others] >= even.step_s[rows]).all()
        wide = even.ep[rows] >= 16
        assert (stated.step_s[others][wide] > even.step_s[rows][wide]).all()
    for wrong in (0.5, math.inf, math.nan):
        with pytest.raises(InputError, match=f"`imbalance` {re.escape(f'{wrong:g}')}"):
            swept("mixtral-8x7b", "hgx-h100", imbalance=wrong)


def shared_rows(one: Sweep, other: Sweep) -> tuple[list[int], list[int]]:
    """The configurations that both sweeps priced: the same layout at the same batch."""
    keys = []
    for found in (one, other):
        stages = [(variant.arrangement.replicas, variant.ranges) for variant in found.variants]
        columns = (column.tolist() for column in (found.tp, found.moe_tp, found.batch))
        rows = zip((stages[layout] for layout in found.layout), *columns, strict=True)
        keys.append({key: row for row, key in enumerate(rows)})
    both = [key for key in keys[0] if key in keys[1]]
    return [keys[0][key] for key in both], [keys[1][key] for key in both]


def test_every_batch_near_the_frontier_by_pricing_all() -> None:
    found = swept("mixtral-8x22b", "hgx-h200@16")
    best = {}
    for index in range(len(found)):
        key = int(found.layout[index]), int(found.tp[index]), int(found.moe_tp[index])
        best[key] = index
    edge = found.frontier()
    priced = {(found.label(i), float(found.batch[i])) for i in range(len(found))}
    for target in np.linspace(10, 60, 6):
        index = best_at(found, target)
        assert index is not None
        assert index in edge or found.tok_s_per_gpu[index] == found.tok_s_per_gpu[edge].max()
        if found.batch[index] < found.max_batch[index]:  # one more sequence is too slow, and was tried
            more = found.batch[index] + 1 / found.tp[index]
            assert (found.label(index), more) in priced
    for key, last in best.items():
        if key[2] > 1:
            continue
        scorer = scorer_of(found, last, None)
        for batch in range(1, int(found.max_batch[last]) + 1, 37):
            score = scorer.at(batch)
            row = best_at(found, score.tok_s_per_user * (1 - 1e-9))
            assert row is not None
            assert found.tok_s_per_gpu[row] >= score.tok_s_per_gpu * (1 - 1e-9), (key, batch)
