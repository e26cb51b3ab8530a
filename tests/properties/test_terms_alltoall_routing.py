"""How many GPUs and domains hold the experts of a token: against enumeration of all choices."""

import itertools

import numpy as np
import pytest

from cost.experts.tokens.reach import Routing, hit_chance
from topology.base.errors import InputError

DEEPSEEK = Routing(256, 8, 8, 4)


def enumerated(routing, part_gpus, ep):
    """Chance to hit a part, the mean over parts, by listing every choice of groups and of experts in them."""
    per_gpu = routing.experts // ep
    groups = routing.groups or 1
    size = routing.experts // groups
    parts = [set(range(start * per_gpu, (start + part_gpus) * per_gpu)) for start in range(0, ep, part_gpus)]
    hits = []
    for chosen in itertools.combinations(range(groups), routing.topk_groups or 1):
        eligible = [expert for group in chosen for expert in range(group * size, (group + 1) * size)]
        choices = itertools.combinations(eligible, routing.top_k)
        hits.extend(np.mean([bool(part & set(experts)) for part in parts]) for experts in choices)
    return np.mean(hits)


@pytest.mark.parametrize("top_k", [1, 2, 3])
@pytest.mark.parametrize(("groups", "topk_groups"), [(0, 0), (3, 1), (3, 2), (4, 2), (4, 3), (6, 2)])
@pytest.mark.parametrize(
    ("part_gpus", "ep"), [(1, 12), (1, 6), (1, 4), (2, 12), (3, 6), (3, 12), (4, 12), (2, 4)]
)
def test_chance_against_all_choices(top_k, groups, topk_groups, part_gpus, ep):
    # parts of 1 to 6 experts against groups of 2 to 4: some inside a group, some across, some over several
    if groups and top_k > topk_groups * 12 // groups:
        return
    routing = Routing(12, top_k, groups, topk_groups)
    assert hit_chance(routing, part_gpus, ep) == pytest.approx(enumerated(routing, part_gpus, ep))


@pytest.mark.parametrize(("nodes", "distinct"), [(4, 2.93), (8, 3.63), (9, 4.49), (18, 5.78)])
def test_distinct_nodes_under_the_group_limit(nodes, distinct):
    # 9 and 18 nodes cut groups apart: a token reaches more of them than of 8
    assert nodes * hit_chance(DEEPSEEK, 8, 8 * nodes) == pytest.approx(distinct, abs=0.005)


def test_random_tokens_agree_where_experts_do_not_divide():
    # 72 GPUs of 256 experts: GPU 0 holds experts 0, 1, 2 and five ninths of expert 3 (copies share the rest)
    rng = np.random.default_rng(3)
    chosen = rng.permuted(np.tile(np.arange(256), (20_000, 1)), axis=1)[:, :8]
    edges = np.arange(73) * 256 / 72
    position = chosen + rng.random(chosen.shape)
    gpus = [len(set(row)) for row in np.searchsorted(edges, position, side="right")]
    assert 72 * hit_chance(Routing(256, 8), 1, 72) == pytest.approx(np.mean(gpus), rel=2e-3)


def test_a_perfect_router_uses_as_many_gpus_as_it_can():
    routing = Routing(256, 8, spread=True)
    assert (np.array([4, 8, 64]) * hit_chance(routing, 1, [4, 8, 64])).tolist() == [4, 8, 8]


def test_many_configurations_at_once():
    ep = np.array([[8, 16], [32, 64]])
    together = hit_chance(DEEPSEEK, 8, ep)
    assert together.shape == (2, 2)
    assert together[1, 1] == hit_chance(DEEPSEEK, 8, 64)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((8, 9), "top_k 9"),
        ((8, 0), "top_k 0"),
        ((8, 2, 4, 0), "give both"),
        ((8, 2, 4, 5), "cannot be chosen"),
        ((8, 2, 3, 2), "cannot be chosen"),
        ((8, 5, 4, 2), "cannot be chosen"),
    ],
)
def test_impossible_routing_is_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        Routing(*arguments)
