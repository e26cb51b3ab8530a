"""What the sweep is made of: splits of layers, batches, arrangements, stages and frontiers, each by brute force."""

from __future__ import annotations

import math
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost.inputs.deployment import Deployment
from cost.inputs.machine import PEAK
from cost.inputs.workload import Workload
from cost.layouts import sweep
from cost.layouts.candidates import _candidates, candidates, domain_gpus
from cost.layouts.front import pareto
from cost.layouts.partition import Costs, balanced_splits
from cost.memory.stages import replica_memory
from cost.resolve import resolve_model
from topology import resolve_cluster
from topology.changes.overrides import overrides


def largest(layers: np.ndarray, fixed: np.ndarray, cuts: tuple[int, ...]) -> float:
    runs = pairwise((0, *cuts, layers.shape[1]))
    return max(fixed[s] + layers[s, a:b].sum() for s, (a, b) in enumerate(runs))


@given(st.integers(1, 4), st.integers(0, 4), st.integers(0, 2**31))
def test_splits_of_pipelines_side_by_side_are_the_best_there_are(stages: int, more: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    count, row_of = stages + more, [min(stage, 2) for stage in range(stages)]
    # of few distinct times, so that many splits are equally fast
    time = Costs(rng.integers(1, 4, (max(row_of) + 1, 3, count)) / 4, rng.random((max(row_of) + 1, 3)))
    then = Costs(rng.random(time.layers.shape), rng.random(time.fixed.shape))
    every = list(combinations(range(1, count), stages - 1))
    splits = balanced_splits(time, then, row_of)
    for pipeline, ranges in enumerate(splits):
        assert [r.start for r in ranges] + [ranges[-1].stop] == [0, *(r.stop for r in ranges)]
        assert all(len(r) for r in ranges)
        seconds, other = (
            {cuts: largest(of.layers[row_of, pipeline], of.fixed[row_of, pipeline], cuts) for cuts in every}
            for of in (time, then)
        )
        result, best = tuple(r.start for r in ranges[1:]), min(seconds.values())
        assert seconds[result] == pytest.approx(best)
        alike = [cuts for cuts in every if seconds[cuts] <= best * (1 + 1e-9)]
        assert other[result] == pytest.approx(min(other[cuts] for cuts in alike))


def test_arrangements_use_each_gpu_once_and_count_identical_replicas() -> None:
    cluster = resolve_cluster("hgx-h100@24")
    result = candidates(cluster, resolve_model("mixtral-8x7b")).always
    for what in result:
        gpus = [gpu for replica in what.replicas for group in replica for gpu in group]
        assert len(gpus) == len(set(gpus)) == what.gpus_used
        assert sum(count for _, count in what.alike) == len(what.replicas)
    # groups of 4 in 3 domains as 2 replicas of 3 stages: in each one hop inside a domain, two across
    three = next(what for what in result if what.group == 4 and what.stages == 3)
    assert three.replicas[0] == ((0, 1, 2, 3), (4, 5, 6, 7), (8, 9, 10, 11))
    assert three.alike == ((0, 1), (1, 1))
    two = next(what for what in result if what.group == 4 and what.stages == 2)
    assert two.alike == ((0, 3),)
    assert len(domain_gpus(cluster)) == 3


@pytest.mark.usefixtures("nine_tenths")
def test_layers_are_split_by_memory_where_equal_times_do_not_fit() -> None:
    # two stages of 2 GPUs, 80,000 tokens: the head's time gives the first stage 31 layers, three of them dense, and
    # the experts of the other 30 leave no room for a cache; with 32 and 29 there is room for one
    deployment = Deployment(
        resolve_cluster("gb200-nvl72@12"), resolve_model("deepseek-v3"), Workload(context=80_000), PEAK
    )
    result = sweep(deployment)
    priced = set(result.layout[result.tp == 2].tolist())
    room = {}
    for number, what in enumerate(result.variants):
        if what.arrangement.stages == 2 and what.arrangement.group == 2:
            memory = replica_memory(deployment, what.stages(0), tp=2, slots=[256, 256])
            left = min(m.usable - m.weights - m.kv_per_batch / 2 for m in memory)
            room[tuple(len(layers) for layers in what.ranges)] = left
            assert (left > 0) == (number in priced), what.ranges
    assert room[31, 30] < 0 < room[32, 29]
    splits = [(what.number, what.ranges) for what in result.variants]
    assert len(set(splits)) == len(splits), "each split once"


def test_nothing_that_is_kept_changes_an_answer() -> None:
    """Sweeps of the same figures are equal to the byte, whatever was priced before."""

    def priced(cluster: str, factor: str) -> list[bytes]:
        (where,) = overrides([resolve_cluster(cluster)], [f"gpu.hbm_bytes_per_s={factor}"])
        result = sweep(Deployment(where, resolve_model("deepseek-v2-lite"), Workload()))
        return [np.asarray(values).tobytes() for values in result.columns().values()]

    _candidates.cache_clear()
    first = priced("hgx-h100@16", "2x")
    others = [priced("hgx-h200@16", "2x"), priced("hgx-h100@16", "0.5x"), priced("hgx-h100@24", "2x")]
    assert priced("hgx-h100@16", "2x") == first
    assert first not in others


SLOW = -1


@pytest.mark.parametrize("sizes", [(4,), (4, 4), (2, 2, 2, SLOW)])
@pytest.mark.parametrize(
    "asked", [{}, {"draft_tokens": 2, "accept_length": 1.5}, {"overlap": True}, {"phase": "prefill"}]
)
def test_a_sweep_prices_its_rows_as_single_layouts_are_scored(toy, sizes, asked):
    domains = (toy.domain(2, chip=toy.gpu(hbm_rate=5e11)) if size == SLOW else size for size in sizes)
    where = toy.deployment(toy.cluster(*domains), batch=0, efficiency=toy.fitted(), **asked)
    swept = sweep(where, cut_experts=False, chunk_tokens=None)
    for row in range(0, len(swept), max(1, len(swept) // 40)):
        layout = swept.layout_of(row)
        groups = [stage.gpus for stages in layout.replicas for stage in stages]
        if any(
            len({where.cluster.domain_of(gpu).gpu.hbm_bytes_per_s for gpu in gpus}) > 1 for gpus in groups
        ):
            continue  # the sweep knows the slowest GPU of a group, the score each
        score = toy.scorer(where, layout).at(float(swept.batch[row]))
        assert swept.max_batch[row] == score.max_batch, swept.label(row)
        for name in ("step_s", "lower_step_s", "tok_s_per_user", "tok_s_per_gpu", "tok_s_per_gpu_used"):
            assert getattr(swept, name)[row] == pytest.approx(getattr(score, name), rel=1e-9), swept.label(
                row
            )


COORDINATE = st.one_of(
    st.integers(-3, 3).map(float), st.sampled_from([math.nan, math.inf, -math.inf, 0.5]), st.floats(-5, 5)
)


def brute(points: list[tuple[float, float]]) -> list[int]:
    """Every point against every other, by the definition."""

    def beaten(i: int) -> bool:
        (x, y), others = points[i], [(j, *point) for j, point in enumerate(points) if j != i]
        better = (u >= x and v >= y and (u > x or v > y or j < i) for j, u, v in others)
        return math.isnan(x) or math.isnan(y) or any(better)

    return sorted((i for i in range(len(points)) if not beaten(i)), key=lambda i: points[i][0])


@given(st.lists(st.tuples(COORDINATE, COORDINATE), max_size=12))
@settings(max_examples=60)
def test_as_brute_force(points: list[tuple[float, float]]) -> None:
    x, y = [p[0] for p in points], [p[1] for p in points]
    assert pareto(x, y).tolist() == brute(points)


GROUPED = st.tuples(st.integers(0, 3), st.integers(0, 4), st.sampled_from([0.1, 0.2, 0.3, 7e9]))


@given(st.lists(GROUPED, min_size=1, max_size=30))
@settings(max_examples=60)
def test_groups_do_not_beat_each_other(points: list[tuple[int, int, float]]) -> None:
    group, x, y = map(np.array, zip(*points, strict=True))
    alone: list[int] = []
    for number in range(4):
        rows = np.flatnonzero(group == number)
        alone += rows[pareto(x[rows], y[rows])].tolist()
    assert pareto(x, y, group).tolist() == alone
