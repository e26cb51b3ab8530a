"""What the sweep is made of: splits of layers, grids of batches, runs of rows; each against brute force."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost.inputs.deployment import Deployment
from cost.inputs.machine import PEAK
from cost.inputs.workload import Workload
from cost.layouts import sweep
from cost.layouts.arrays import runs_of
from cost.layouts.batches import batch_grid, batches_between, batches_of, may_be_best
from cost.layouts.candidates import candidates, domain_gpus
from cost.layouts.partition import Costs, balanced_splits, between
from cost.memory.batches import most_that_fit
from cost.memory.stages import replica_memory
from cost.resolve import resolve_model
from topology import build_cluster, resolve_cluster


def largest(layers: np.ndarray, fixed: np.ndarray, cuts: tuple[int, ...]) -> float:
    runs = pairwise((0, *cuts, layers.shape[1]))
    return max(fixed[s] + layers[s, a:b].sum() for s, (a, b) in enumerate(runs))


@given(st.integers(1, 4), st.integers(0, 4), st.integers(0, 2**31))
@settings(max_examples=20, deadline=None)
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
        found, best = tuple(r.start for r in ranges[1:]), min(seconds.values())
        assert seconds[found] == pytest.approx(best)
        alike = [cuts for cuts in every if seconds[cuts] <= best * (1 + 1e-9)]
        assert other[found] == pytest.approx(min(other[cuts] for cuts in alike))


def test_a_grid_has_all_small_numbers_and_eight_to_the_double() -> None:
    grid = batch_grid(1000)
    assert grid[:10].tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
    assert {2.0**power for power in range(10)} <= set(grid.tolist())
    assert np.max(grid[10:] / grid[9:-1]) < 1.16
    assert batch_grid(0.5).tolist() == []
    assert batch_grid(1.0).tolist() == [1]


def test_batches_are_whole_sequences_of_each_group() -> None:
    tp = np.array([1, 4, 8])
    most = most_that_fit(np.array([3.7, 2.3, 0.7]), tp)
    assert most.tolist() == [3, 2.25, 0.625]
    layout, batch = batches_of(most, tp)
    by_layout = [batch[layout == i].tolist() for i in range(3)]
    assert by_layout == [
        [1, 2, 3],
        [0.25, 0.5, 0.75, 1, 1.25, 1.5, 1.75, 2, 2.25],
        [0.125, 0.25, 0.375, 0.5, 0.625],
    ]
    assert most_that_fit(np.array([-3.0, 0.1]), np.array([1, 8])).tolist() == [0, 0]
    # 555 lies between two batches of the grid, and is the largest that fits
    assert batches_of(np.array([555.0]), np.array([1]))[1][-1] == 555


def test_batches_between_those_that_may_lie_on_the_frontier() -> None:
    # two layouts of 1 and 4 GPUs a group; the second is beaten at every batch but its least
    layout, tp = np.array([0, 0, 0, 1, 1]), np.array([1, 1, 1, 4, 4])
    batch = np.array([10.0, 14.0, 20.0, 0.25, 1.0])
    speed = np.array([5.0, 4.0, 3.0, 6.0, 2.0])
    rate = np.array([50.0, 56.0, 60.0, 1.5, 2.0])
    layouts, between = batches_between(layout, batch, tp, may_be_best(speed, rate))
    assert layouts.tolist() == [0] * 8 + [1] * 2
    assert between.tolist() == [11, 12, 13, 15, 16, 17, 18, 19, 0.5, 0.75]
    # faster than any other and with more than the second has at its largest: nothing between is needed
    speed[0] = 7.0
    able = may_be_best(speed, rate)
    assert batches_between(layout, batch, tp, able)[0].tolist() == [0] * 8
    few = batches_between(layout, batch, tp, able, limit=3)[1]
    assert few.tolist() == [11, 12, 13, 16, 17, 18]


def split(*lengths: int) -> tuple[range, ...]:
    return tuple(range(a, b) for a, b in pairwise(np.cumsum([0, *lengths]).tolist()))


def test_splits_on_the_way_from_one_to_another() -> None:
    way = [split(6, 2), split(5, 3), split(4, 4)]
    assert between([split(4, 4), split(6, 2)]) == [split(7, 1), *way], "and one with a shorter last stage"
    beyond = [split(4, 3, 2), split(4, 4, 1)]
    assert between([split(3, 3, 3)]) == [*beyond, split(3, 3, 3)]
    assert between([split(3, 3, 3), split(4, 4, 1)]) == [split(4, 4, 1), split(4, 3, 2), split(3, 3, 3)]


def test_runs_of_rows_by_hand() -> None:
    runs, values = runs_of(np.array([4, 4, 7, 7, 7, 1])), np.array([1.0, 3.0, 2.0, 9.0, 5.0, 4.0])
    assert [of(values).tolist() for of in (runs.sum, runs.max, runs.min, runs.argmax)] == [
        [4, 16, 4],
        [3, 9, 4],
        [1, 2, 4],
        [1, 3, 5],
    ]


def test_arrangements_use_each_gpu_once_and_count_identical_replicas() -> None:
    cluster = resolve_cluster("hgx-h100@24")
    found = candidates(cluster, resolve_model("mixtral-8x7b")).always
    for what in found:
        gpus = [gpu for replica in what.replicas for group in replica for gpu in group]
        assert len(gpus) == len(set(gpus)) == what.gpus_used
        assert sum(count for _, count in what.alike) == len(what.replicas)
    # groups of 4 in 3 domains as 2 replicas of 3 stages: in each one hop inside a domain, two across
    three = next(what for what in found if what.group == 4 and what.stages == 3)
    assert three.replicas[0] == ((0, 1, 2, 3), (4, 5, 6, 7), (8, 9, 10, 11))
    assert three.alike == ((0, 1), (1, 1))
    two = next(what for what in found if what.group == 4 and what.stages == 2)
    assert two.alike == ((0, 3),)
    assert len(domain_gpus(cluster)) == 3


def test_domains_with_equal_specifications_are_of_one_kind() -> None:
    spec = resolve_cluster("hgx-h100@16").spec
    one, other = spec.domains[0], resolve_cluster("hgx-h200@8").spec.domains[0]
    cluster = build_cluster(replace(spec, domains=(one, other, replace(one), replace(one, notes=("mine",)))))
    assert cluster.domain_kind == (0, 1, 0, 2)
    whole = next(
        what for what in candidates(cluster, resolve_model("mixtral-8x7b")).always if what.group == 8
    )
    assert whole.alike == ((0, 2), (1, 1), (3, 1))


@pytest.mark.usefixtures("nine_tenths")
def test_layers_are_split_by_memory_where_equal_times_do_not_fit() -> None:
    # two stages of 2 GPUs, 80,000 tokens: the head's time gives the first stage 31 layers, three of them dense, and
    # the experts of the other 30 leave no room for a cache; with 32 and 29 there is room for one
    deployment = Deployment(
        resolve_cluster("gb200-nvl72@12"), resolve_model("deepseek-v3"), Workload(context=80_000), PEAK
    )
    found = sweep(deployment)
    priced = set(found.layout[found.tp == 2].tolist())
    room = {}
    for number, what in enumerate(found.variants):
        if what.arrangement.stages == 2 and what.arrangement.group == 2:
            memory = replica_memory(deployment, what.stages(0), tp=2, slots=[256, 256])
            left = min(m.usable - m.weights - m.kv_per_batch / 2 for m in memory)
            room[tuple(len(layers) for layers in what.ranges)] = left
            assert (left > 0) == (number in priced), what.ranges
    assert room[31, 30] < 0 < room[32, 29]
    columns = (found.layout, found.tp, found.moe_tp, found.batch)
    keys = list(zip(*(column.tolist() for column in columns), strict=True))
    assert len(set(keys)) == len(keys)
    splits = [(what.number, what.ranges) for what in found.variants]
    assert len(set(splits)) == len(splits), "each split once"


def test_stages_that_are_alike_get_equally_many_layers_between_two_splits() -> None:
    def uneven(found: list[tuple[range, ...]]) -> int:
        lengths = [[len(stage) for stage in one[1:-1]] for one in found]
        return max(max(one) - min(one) for one in lengths)

    both = [split(11, 11, 11, 12, 12, 11, 11, 1), split(*[10] * 8)]
    assert uneven(between(both)) == 2
    assert uneven(between(both, [0] * 79)) == uneven(between(both, [0, 0, *[1] * 77])) == 1
    assert between(both, [0, 1] * 40) == between(both), "layers that differ"


def test_a_split_of_the_layers_that_holds_more_in_less_time_replaces_a_slower_one() -> None:
    found = sweep(Deployment(resolve_cluster("hgx-h100@16"), resolve_model("mixtral-8x7b"), Workload()))
    groups: dict[tuple[int, int, int], list[int]] = {}
    for row, variant in enumerate(found.layout):
        what = found.variants[variant].number, int(found.tp[row]), int(found.moe_tp[row])
        groups.setdefault(what, []).append(row)
    assert max(found.stages) > 1
    for rows in groups.values():
        by_batch = sorted(rows, key=lambda row: float(found.batch[row]))
        assert all(found.step_s[a] <= found.step_s[b] for a, b in pairwise(by_batch))
