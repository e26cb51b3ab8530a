"""Placement by distance: against all placements, its limits, and distances along the routes of traffic."""

from __future__ import annotations

from itertools import product

import networkx as nx
import numpy as np
import pytest

from placement.traffic.distance import gpu_distances, place_by_distance
from topology import resolve_cluster
from topology.errors import InfeasibleError, InputError


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize(("per_gpu", "per_layer"), [(None, None), (3, 2), ([4, 1, 3], 2), (6, 3)])
def test_all_placements(whole: bool, per_gpu: int | list[int] | None, per_layer: int | None) -> None:
    rng = np.random.default_rng(7)
    loads, distance = rng.random((2, 3)) * 100, rng.random((2, 3)) * 4
    if whole:
        loads, distance = np.rint(loads), np.rint(distance)
    found = place_by_distance(loads, distance, per_gpu=per_gpu, per_layer=per_layer)
    room = np.broadcast_to(2 if per_gpu is None else per_gpu, 3)
    best = np.inf
    for place in product(range(3), repeat=6):
        gpu = np.reshape(place, (2, 3))
        held = np.stack([np.bincount(row, minlength=3) for row in gpu])
        if (held <= (per_layer or 1)).all() and (held.sum(axis=0) <= room).all():
            best = min(best, float((loads * np.take_along_axis(distance, gpu, axis=1)).sum()))
    assert found.cost == pytest.approx(best)
    assert found.status == "OPTIMAL"
    assert found.bound <= found.cost
    held = np.stack([np.bincount(row, minlength=3) for row in found.gpu])
    assert (held <= (per_layer or 1)).all()
    assert (held.sum(axis=0) <= room).all()


def test_the_heaviest_lie_nearest() -> None:
    found = place_by_distance([[5.0, 9.0, 1.0, 7.0]], [3.0, 0.0], per_gpu=2, per_layer=2)
    assert found.gpu.tolist() == [[0, 1, 0, 1]]
    assert (found.cost, found.contiguous, found.round_robin) == (18.0, 42.0, 18.0)


def test_distances_are_those_of_the_graph() -> None:
    """Two HGX hosts on rails: every route is a shortest path, and no GPU between forwards."""
    cluster = resolve_cluster("hgx-h100@16")
    hops, seconds = gpu_distances(cluster), gpu_distances(cluster, "seconds")
    graph = cluster.graph
    ids = [gpu.id for gpu in cluster.gpus]
    for a, b in ((0, 1), (0, 8), (3, 11)):
        assert hops[a, b] == nx.shortest_path_length(graph, ids[a], ids[b])
        assert seconds[a, b] == pytest.approx(nx.shortest_path_length(graph, ids[a], ids[b], "latency_s"))
    assert (hops == hops.T).all()
    assert not hops.diagonal().any()


def test_limits_and_input_that_cannot_be() -> None:
    loads = np.ones((2, 4))
    with pytest.raises(InfeasibleError, match="cannot hold 2 layers of 4 experts"):
        place_by_distance(loads, [0.0, 1.0], per_gpu=3, per_layer=2)
    with pytest.raises(InfeasibleError, match="2 a layer of 4"):
        place_by_distance(loads, [0.0, 1.0], per_gpu=8, per_layer=1)
    with pytest.raises(InputError, match="expected finite numbers from 0"):
        place_by_distance(loads, [0.0, -1.0])
    with pytest.raises(InputError, match=r"expected \[gpus\] or \[2 layers, gpus\]"):
        place_by_distance(loads, np.ones((3, 2)))
    with pytest.raises(InputError, match="`unit` 'miles'"):
        gpu_distances(resolve_cluster("hgx-h100"), "miles")  # type: ignore[arg-type]
