"""Layer to layer: costs against counting, placements and bounds against all placements, names that change nothing."""

from __future__ import annotations

import json
import runpy
import sys
from itertools import permutations, product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost.traces.transitions import Transitions, count_transitions, read_transitions
from placement.traffic import layer_exact
from placement.traffic.layer_affinity import crossings, even_slots, place_layers
from placement.traffic.layer_bound import crossing_bound, partition_bound
from placement.traffic.layer_search import LayerSearch, weighted_cost
from placement.traffic.relabel import flow_cost, gpu_flows, relabel
from placement.traffic.tiers import Tiers
from topology.errors import InputError

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "affinity.py"
DATA = Path(__file__).parents[3] / "shared" / "data" / "layer_affinity"


def some(seed: int, hops: int = 2, experts: int = 4) -> Transitions:
    rng = np.random.default_rng(seed)
    return Transitions.of(
        rng.integers(0, 20, (hops, experts, experts)) * (rng.random((hops, experts, experts)) < 0.6) + 1
    )


def least(transitions: Transitions, slots: np.ndarray, tiers: Tiers) -> float:
    """The least cost of all placements, each with all others."""
    fills = sorted(set(permutations(np.repeat(np.arange(slots.size), slots).tolist())))
    one_hop = [
        {(a, b): float((hop * tiers.price[np.ix_(a, b)]).sum()) for a in fills for b in fills}
        for hop in transitions.weights
    ]
    return min(
        sum(costs[a, b] for costs, a, b in zip(one_hop, place, place[1:], strict=False))
        for place in product(fills, repeat=transitions.layers)
    )


NODES = Tiers.of(4, 1.0, [([0, 0, 1, 1], 3.5)])


@pytest.mark.parametrize(
    ("slots", "tiers"),
    [([2, 2], Tiers.of(2)), ([1, 3], Tiers.of(2, 2.0)), ([1, 1, 1, 1], Tiers.of(4)), ([1] * 4, NODES)],
)
def test_all_placements(slots: list[int], tiers: Tiers) -> None:
    transitions, counts = some(len(slots)), np.array(slots)
    found = place_layers(transitions, counts, tiers)
    expected = least(transitions, counts, tiers)
    assert found.cost * transitions.tokens == pytest.approx(expected)
    assert (found.status, found.gap) == ("OPTIMAL", 0.0)
    assert crossings(transitions, found.gpu, tiers) == pytest.approx(found.cost)
    assert all((np.bincount(row, minlength=counts.size) == counts).all() for row in found.gpu)
    assert crossing_bound(transitions.weights, counts, tiers, 0.05) <= expected + 1e-6


@pytest.mark.parametrize("tiers", [Tiers.of(4), NODES])
def test_search_finds_what_is_proven(tiers: Tiers) -> None:
    """Eight experts on four GPUs have 2,520 ways a layer: all are tried, and the search finds the best one."""
    transitions, slots = some(3, 3, 8), np.full(4, 2)
    exact = layer_exact.exact_layers(transitions.weights, slots, tiers)
    assert exact is not None
    best = weighted_cost(transitions.weights, exact, tiers)
    search = LayerSearch(transitions, slots, tiers)
    assert search.cost(search.search(0.1)) == pytest.approx(best)
    bound = crossing_bound(transitions.weights, slots, tiers, 0.1)
    assert 0.8 * best <= bound <= best


def test_search_is_the_same_each_time_and_beats_sweeps() -> None:
    transitions, slots = some(5, 4, 24), even_slots(24, 5)
    first, second = (place_layers(transitions, slots, seed=1, search_s=0.1, bound_s=0.03) for _ in range(2))
    assert (first.gpu == second.gpu).all()
    assert first.bound <= first.cost <= first.swept <= first.contiguous
    assert all((np.bincount(row, minlength=5) == slots).all() for row in first.gpu)


@given(seed=st.integers(0, 10**6), experts=st.sampled_from([4, 6, 8]), gpus=st.sampled_from([2, 3, 4]))
@settings(max_examples=10, deadline=None)
def test_no_placement_is_below_the_bound(seed: int, experts: int, gpus: int) -> None:
    rng = np.random.default_rng(seed)
    slots = even_slots(experts, gpus)
    weights = rng.random((3, experts, experts)) ** rng.integers(1, 9)
    tiers = Tiers.of(gpus)
    bound = crossing_bound(weights, slots, tiers, 0.02)
    hidden = np.stack([rng.permutation(np.repeat(np.arange(gpus), slots)) for _ in range(4)])
    # a placement that all tokens fit, hidden
    planted = weights * (hidden[:-1, :, None] == hidden[1:, None, :])
    assert crossing_bound(planted, slots, tiers, 0.02) <= 1e-6
    search = LayerSearch(Transitions.of(weights), slots, tiers)
    assert bound <= search.cost(search.sweep(search.random())) + 1e-9


def test_runs_of_layers_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where all layers at once are too many nodes, the bounds of runs of them add up, and stay below the cost."""
    transitions, slots = some(8, 5, 8), np.full(4, 2)
    whole = partition_bound(transitions.weights, slots, 0.05)
    monkeypatch.setattr("placement.traffic.layer_bound.MOST_NODES", 24)
    parts = partition_bound(transitions.weights, slots, 0.05)
    assert 0 < parts <= whole * 1.001


def test_what_experts_choose_together_is_counted_by_pairs() -> None:
    choices = np.array([[[0, 1], [2, -1], [-1, -1]], [[3, 0], [3, 1], [0, 1]]])
    found = count_transitions(choices, 4)
    expected = np.zeros((1, 4, 4))
    expected[0, :2, [0, 3]] = 0.5
    expected[0, 2, [1, 3]] = 1.0
    assert (found.weights == expected).all()
    assert found.tokens == 3


@given(seed=st.integers(0, 10**6), unlike=st.booleans())
@settings(max_examples=20, deadline=None)
def test_new_names_change_no_load_and_are_the_best(seed: int, unlike: bool) -> None:
    """Against every way to rename four GPUs in two nodes; what lies together still does."""
    rng = np.random.default_rng(seed)
    kinds = [0, 0, 0, 1] if unlike else None
    flows = rng.random((2, 4, 4)) ** 3
    names = relabel(flows, NODES, kinds)
    assert (names[0] == np.arange(4)).all()
    # nodes stay whole, GPUs change places with equals
    alike = [
        p
        for p in permutations(range(4))
        if p[0] // 2 == p[1] // 2 and p[2] // 2 == p[3] // 2 and (not unlike or p[3] == 3)
    ]
    assert all(tuple(row) in alike for row in names)
    best = sum(min((hop * NODES.price[:, list(p)]).sum() for p in alike) for hop in flows)
    assert flow_cost(flows, NODES, names) == pytest.approx(best)
    assert flow_cost(flows, NODES, names) <= flow_cost(flows, NODES) + 1e-12


def test_no_dependence_keeps_all_names() -> None:
    assert (relabel(np.ones((3, 8, 8)), Tiers.even(8, [(4, 2.0)])) == np.arange(8)).all()


def test_copies_share_flows() -> None:
    transitions = Transitions.of([[[4.0, 0.0], [0.0, 2.0]]])
    flows = gpu_flows(transitions, np.array([[0, 1, 0], [1, 0, 1]]), np.array([0, 0, 1]), 2)
    # expert 0: 2 tokens from each GPU to GPU 0; expert 1: from GPU 0, a half to each
    assert flows.tolist() == [[[3.0, 1.0], [2.0, 0.0]]]
    with pytest.raises(InputError, match="expert 1 has no slot in layer 1"):
        gpu_flows(transitions, np.array([[0, 1, 0], [0, 0, 0]]), np.array([0, 0, 1]), 2)


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        (np.ones((2, 3)), r"expected \[hops, experts, experts\]"),
        (-np.ones((1, 2, 2)), "hop 0, expert 0 to expert 0: -1"),
        (np.full((1, 2, 2), np.nan), "nan"),
        (np.zeros((1, 2, 2)), "no token goes"),
        (np.full((1, 2, 2), 1e308), "too large to add up"),
        ([["a"]], "not an array of numbers"),
    ],
)
def test_transitions_that_are_none(weights: object, words: str) -> None:
    with pytest.raises(InputError, match=words):
        Transitions.of(weights)  # type: ignore[arg-type]


def test_a_file_with_bytes_before_it_is_read_like_one_without(tmp_path: Path) -> None:
    """As zip files may be; NumPy takes such a file for a pickle."""
    path = tmp_path / "t.npz"
    np.savez(path, transitions=np.ones((1, 4, 4)), tokens=9.0)
    path.write_bytes(b"x" + path.read_bytes())
    assert read_transitions(path).tokens == 9.0


def test_arguments_that_do_not_fit() -> None:
    transitions = some(0)
    with pytest.raises(InputError, match="5 slots over 2 GPUs for 4 experts"):
        place_layers(transitions, [2, 3])
    with pytest.raises(InputError, match="`gpus` 5: expected 1 to 4"):
        even_slots(4, 5)
    with pytest.raises(InputError, match="two groups of the next tier"):
        Tiers.of(4, 1.0, [([0, 0, 1, 1], 2.0), ([0, 1, 1, 1], 3.0)])
    with pytest.raises(InputError, match="never fall"):
        Tiers.even(4, [(2, 0.5)])
    with pytest.raises(InputError, match=r"on GPUs 0\.\.3"):
        crossings(transitions, np.tile(np.arange(4), (3, 1)), Tiers.of(2))


def run(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr(sys, "argv", ["affinity.py", *map(str, arguments)])
    try:
        runpy.run_path(str(BENCHMARK), run_name="__main__")
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


def test_the_benchmark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    transitions = some(1, 2, 6)
    file = tmp_path / "six.npz"
    np.savez(file, transitions=transitions.weights.astype(np.int32), tokens=np.int64(transitions.tokens))
    assert run(monkeypatch, file, "--gpus", 4, "--json") == 0
    data = json.loads(capsys.readouterr().out)
    assert data["cost"] == pytest.approx(crossings(transitions, data["gpu"]))
    assert (data["bound"], data["status"], data["experts_per_gpu"]) == (data["cost"], "OPTIMAL", [1, 2])
    assert run(monkeypatch, file, "--gpus", 4) == 0
    assert "1 or 2 of a layer on each (they do not divide evenly)" in capsys.readouterr().out
    assert run(monkeypatch, file, "--gpus", 7) == 2
    assert "`gpus` 7: expected 1 to 6" in capsys.readouterr().err
    assert run(monkeypatch, tmp_path / "none.npz", "--gpus", 2) == 2
    np.savez(tmp_path / "loads.npz", loads=np.ones(3))
    with pytest.raises(InputError, match="has no array 'transitions', only loads"):
        read_transitions(tmp_path / "loads.npz")
    np.save(tmp_path / "alone.npy", transitions.weights)
    assert read_transitions(tmp_path / "alone.npy").tokens == transitions.tokens


@pytest.mark.skipif(not DATA.exists(), reason="no reference data")
def test_eight_published_experts_on_eight_gpus() -> None:
    found = place_layers(read_transitions(DATA / "8.npz"), np.ones(8, dtype=int))
    assert (round(found.cost, 4), found.status) == (2.1285, "OPTIMAL")
