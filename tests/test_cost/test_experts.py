"""Copies and loads of an assignment; what tokens reach and move, as counted token by token, copy by copy."""

from __future__ import annotations

from itertools import combinations, product
from typing import Any

import numpy as np
import pytest

from cost.experts.assignment import Assignment
from cost.experts.dispatch import slot_choices, slot_shares
from cost.experts.loads import ExpertLoads, routed_loads
from cost.experts.tokens.reach import ExpertUse, Routing, balanced_use, expert_use, token_hits
from cost.experts.tokens.volumes import FAMILIES, alltoall_volumes, placed_vectors
from cost.experts.traces.routing import RoutingTrace, evenly_spaced
from topology.base.errors import InputError

NODES, DOMAINS = np.array([0, 0, 1, 2, 2]), np.array([0, 0, 0, 1, 1])
LAYERS, EXPERTS, GPUS, K = 2, 5, 5, 3
VECTORS = ("received_up", "sent_up", "received_out", "sent_out", "received")


def trace_of(choices: Any, experts: int = EXPERTS, name: str = "t") -> RoutingTrace:
    """A trace of ``choices`` [layers][tokens][k]."""
    table = np.array(choices, dtype=np.int16)
    counts = np.array([np.bincount(layer[layer >= 0], minlength=experts) for layer in table])
    return RoutingTrace(table, counts, table.shape[1], name)


def drawn(
    rng: np.random.Generator, tokens: int = 6, experts: int = EXPERTS, layers: int = LAYERS
) -> RoutingTrace:
    table = np.array([[rng.permutation(experts)[:K] for _ in range(tokens)] for _ in range(layers)])
    table[:, :, 1:][rng.random((layers, tokens, K - 1)) < 0.2] = -1  # choices that were not used
    return trace_of(table, experts)


def placed(rng: np.random.Generator, slots: int = 2) -> Assignment:
    extra = rng.integers(0, EXPERTS, (LAYERS, GPUS * slots - EXPERTS))
    rows = [rng.permutation([*range(EXPERTS), *more]) for more in extra]
    return Assignment(
        np.array(rows, dtype=np.int32), np.repeat(np.arange(GPUS), slots).astype(np.int32), EXPERTS, GPUS
    )


def chances(assignment: Assignment, trace: RoutingTrace, split: str, layer: int) -> np.ndarray:
    """What each source uses of each slot, ``[sources, slots]``."""
    load = trace.counts.astype(float)
    chosen = [*slot_choices(assignment, split, load=load, nodes=NODES)][layer]  # type: ignore[arg-type]
    return np.tile(chosen, (GPUS // len(chosen), 1))


def token_by_token(
    family: str, assignment: Assignment, trace: RoutingTrace, split: str, layer: int
) -> dict[str, Any]:
    """Send each token from each GPU to each possible set of copies, with the chance of it."""
    moved: dict[str, Any] = {name: np.zeros(GPUS) for name in VECTORS}
    reach = dict.fromkeys(("gpus", "nodes", "domains"), 0.0)
    chance = chances(assignment, trace, split, layer)
    held = assignment.slot_expert[layer]
    for source, token in product(range(GPUS), trace.choices[layer]):
        slots = [np.flatnonzero((held == expert) & (chance[source] > 0)) for expert in token[token >= 0]]
        for chosen in product(*slots):
            weight = float(np.prod(chance[source, list(chosen)])) / trace.kept
            served = assignment.slot_gpu[list(chosen)].tolist()
            gpus = sorted(served) if family == "per-copy" else sorted(set(served))
            for name, place in (("gpus", np.arange(GPUS)), ("nodes", NODES), ("domains", DOMAINS)):
                reach[name] += weight * len(set(place[served].tolist())) / GPUS
            for gpu in gpus:
                moved["received"][gpu] += weight
                if gpu != source and DOMAINS[gpu] == DOMAINS[source]:
                    moved["received_up"][gpu] += weight
                    moved["sent_up"][source] += weight
                if DOMAINS[gpu] != DOMAINS[source] and family != "per-node":
                    moved["received_out"][gpu] += weight
                    moved["sent_out"][source] += weight
            if family != "per-node":
                continue
            for domain in {int(DOMAINS[gpu]) for gpu in gpus} - {int(DOMAINS[source])}:
                rails = np.flatnonzero(domain == DOMAINS)
                moved["sent_out"][source] += weight
                for forwards in rails:  # whichever is on the sender's rail
                    moved["received_out"][forwards] += weight / len(rails)
                    for gpu in gpus:
                        if DOMAINS[gpu] == domain and gpu != forwards:
                            moved["sent_up"][forwards] += weight / len(rails)
                            moved["received_up"][gpu] += weight / len(rails)
    return moved | reach


@pytest.mark.parametrize("split", ["even", "source", "lp"])
@pytest.mark.parametrize("seed", range(4))
def test_every_family_moves_what_the_tokens_need_one_by_one(split: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    assignment, trace = placed(rng), drawn(rng)
    hits = token_hits(assignment, [trace], split=split, nodes=NODES, domains=DOMAINS)
    none = np.zeros((1, LAYERS, GPUS))
    use = ExpertUse(none, none, assignment.slot_gpu, EXPERTS, K, hits=hits)
    for family in ("per-rank", "per-copy", "per-node"):
        vectors = placed_vectors(family, use, tokens=2, domain=DOMAINS)
        for layer in range(LAYERS):
            expected = token_by_token(family, assignment, trace, split, layer)
            for name in VECTORS:
                np.testing.assert_allclose(getattr(vectors, name)[0, layer], 2 * expected[name], atol=1e-12)
            for name in ("gpus", "nodes", "domains"):
                assert getattr(hits, name)[0, layer].sum(axis=-1).mean() == pytest.approx(expected[name])


@pytest.mark.parametrize("family", ["per-rank", "per-copy", "per-node"])
@pytest.mark.parametrize("k", [1, 2, 3])
def test_without_a_trace_every_choice_is_as_likely(family: str, k: int) -> None:
    """Eight experts, unequally many a GPU: what the formula moves is the mean over all tokens there can be."""
    rows, owner = np.arange(8, dtype=np.int32)[None], np.array([0, 0, 0, 1, 2, 2, 3, 4], dtype=np.int32)
    assignment = Assignment(rows, owner, 8, GPUS)
    use = expert_use(assignment, ExpertLoads(np.ones((1, 1, 8)), ("even",), synthetic=False), k)
    moved = placed_vectors(family, use, tokens=1, domain=DOMAINS)
    expected = token_by_token(family, assignment, trace_of([list(combinations(range(8), k))], 8), "even", 0)
    for name in VECTORS:
        np.testing.assert_allclose(getattr(moved, name)[0, 0], expected[name], atol=1e-12)


def test_sources_by_rank_are_the_shares_of_the_slots() -> None:
    rng = np.random.default_rng(3)
    for split in ("source", "rank", "rank-tp2", "rank-tp4") * 4:
        assignment, nodes = placed(rng, int(rng.integers(1, 5))), np.sort(rng.integers(0, 3, GPUS))
        mean = [chosen.mean(axis=0) for chosen in slot_choices(assignment, split, nodes=nodes)]
        np.testing.assert_allclose(mean, slot_shares(assignment, split, nodes=nodes), atol=1e-12)


def test_traces_count_equally_and_layers_apart() -> None:
    rng = np.random.default_rng(8)
    assignment, few, many = placed(rng), drawn(rng, 4), drawn(rng, 9)
    both = token_hits(assignment, [few, many], nodes=NODES, domains=DOMAINS)
    alone = token_hits(assignment, [many], nodes=NODES, domains=DOMAINS)
    assert (len(both.gpus), both.tokens) == (2, 13)
    np.testing.assert_array_equal(both.gpus[1], alone.gpus[0])
    row = Assignment(assignment.slot_expert[1:], assignment.slot_gpu, EXPERTS, GPUS)
    second = token_hits(row, [many.rows([1])], nodes=NODES, domains=DOMAINS)
    np.testing.assert_array_equal(second.domains[0, 0], alone.domains[0, 1])


def test_loads_carry_traces() -> None:
    rng = np.random.default_rng(1)
    traces = [drawn(rng), drawn(rng, 9)]
    loads = routed_loads(traces)
    assert (loads.tokens == [trace.counts for trace in traces]).all()
    assert loads.rows([1]).routing[1].layers == 1
    assert [trace.kept for trace in loads.sampled(7).routing] == [6, 7]
    assert (loads.sampled(7).routing[1].choices == traces[1].choices[:, evenly_spaced(9, 7)]).all()
    given_loads = ExpertLoads(np.ones((1, LAYERS, EXPERTS)), ("even",), synthetic=False)
    assert routed_loads(traces, given_loads).tokens is given_loads.tokens
    with pytest.raises(InputError, match="does not fit loads of"):
        routed_loads([drawn(rng, experts=6)], given_loads)
    with pytest.raises(InputError, match="no token chose an expert in MoE layer 1"):
        routed_loads([trace_of([[[0, 1]], [[-1, -1]]])])
    with pytest.raises(InputError, match="trace of 2 layers x 6 experts does not fit an assignment"):
        token_hits(placed(rng), [drawn(rng, experts=6)], nodes=NODES, domains=DOMAINS)


# --- formulas of even routing

V3 = Routing(256, 8)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("limit", [(0, 0), (8, 4)])
@pytest.mark.parametrize("ep", [8, 16, 64])
def test_a_balanced_placement_sends_what_even_routing_does(family, limit, ep):
    use = balanced_use(1, np.full(ep, 256 // ep), 256, 8)
    placed = placed_vectors(family, use, tokens=6, domain=np.arange(ep) // 8, limit=limit).busiest
    even = alltoall_volumes(family, Routing(256, 8, *limit), tokens=6, ep=ep, domain_gpus=8)
    for field in ("up", "out", "received"):
        assert getattr(placed, field) == pytest.approx(np.full((1, 1), getattr(even, field))), field


def test_an_assignment_by_hand() -> None:
    """Two layers, three experts, GPUs of 2, 0, 1 and 1 slots."""
    rows = np.array([[0, 1, 2, 0], [2, 1, 0, 2]], dtype=np.int32)
    assignment = Assignment(rows, np.array([0, 0, 2, 3], dtype=np.int32), experts=3, gpus=4)
    assert (assignment.layers, assignment.slots) == (2, 4)
    assert assignment.slots_per_gpu.tolist() == [2, 0, 1, 1]
    assert assignment.copies.tolist() == [[2, 1, 1], [1, 1, 2]]
    load = np.array([[6.0, 1.0, 2.0], [5.0, 3.0, 4.0]])
    assert assignment.slot_load(load).tolist() == [[3, 1, 2, 3], [2, 3, 5, 2]]
    assert assignment.gpu_load(load).tolist() == [[4, 0, 2, 3], [5, 0, 5, 2]]
    assert assignment.balancedness(load) == pytest.approx([9 / 4 / 4, 12 / 4 / 5])
    idle = Assignment(np.array([[0, 1]]), np.array([1, 1]), experts=2, gpus=4)
    assert idle.gpu_load(np.array([[2.0, 3.0]])).tolist() == [[0, 5, 0, 0]], "GPUs without slots have no load"
