"""What a picture says: counts of links in words; faults, red and never one of many; traffic and the bottleneck."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from helpers import link_loads
from topology import InputError, resolve_cluster
from topology.draw import Overlay, TrafficOverlay, dot_source
from topology.draw.fold import Links
from topology.draw.overlay import Usage
from topology.draw.palette import FAULT, SLOW_FILL
from topology.routes import pattern_traffic
from topology.routes.traffic import traffic_matrix

PODS: dict[str, Any] = {"domains": [{"part": "gb200-nvl72", "count": 16}]}


def source(content: dict[str, Any], broken: list[dict[str, Any]], level: str = "auto") -> str:
    return dot_source(resolve_cluster({"name": "c", **content, "broken": broken}), level=level)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ({"gpu": "d5.n3.g1"}, ["x 14 alike", "d5: 71 of 72 GPUs", ">out<", "Out of service: d5.n3.g1"]),
        ({"link": ["d5.n3.g1", "d5.s7"], "factor": 0.25}, ["x 14 alike", "d5.n3.g1: d5.s7", "at x 0.25"]),
        (
            {"link": ["f.p5.l2", "f.s3"]},
            ["x 14 alike", "f.p5.l2: f.s3", "f.s3: f.p5.l2 broken", "70 x 50 GB/s"],
        ),
    ],
)
def test_one_fault_opens_its_pod(fault: dict[str, Any], words: list[str]) -> None:
    text = source(PODS, [fault])
    for word in words:
        assert word in text
    assert FAULT in text


@pytest.mark.parametrize(
    ("part", "level"),
    [
        ("gb200-nvl72", "domain"),
        ("mi300x", "gpu"),
        ("tpu-v5p", "gpu"),
        ("cm384", "domain"),
        ("cm384", "gpu"),
        pytest.param("gb200-nvl72", "gpu", marks=pytest.mark.wide),
    ],
)
def test_throttled_gpus_are_drawn_named_and_counted(part: str, level: str) -> None:
    faults = [{"gpu": "d0.n0.g1", "factor": 0.7}, {"gpu": "d0.n0.g2", "factor": 0.5}]
    text = source({"domains": [{"part": part}]}, faults, level)
    assert ", 2 throttled" in text
    assert "Throttled: d0.n0.g1 at x 0.7, d0.n0.g2 at x 0.5" in text
    assert text.count(f'bgcolor="{SLOW_FILL}"') == 2


def overlay(name: str, pattern: str) -> TrafficOverlay:
    cluster = resolve_cluster(name)
    return TrafficOverlay(link_loads(cluster, pattern_traffic(pattern, len(cluster.gpus), 1e9)), pattern)


def loaded(name: str, pattern: str, level: str = "auto") -> str:
    return dot_source(resolve_cluster(name), level=level, traffic=overlay(name, pattern))


def test_shares_are_seconds_over_those_of_the_busiest_link() -> None:
    cluster = resolve_cluster("gb200-nvl72@144")
    shown = overlay("gb200-nvl72@144", "ring")
    usage = Usage(cluster, shown)
    # the one GPU whose neighbour is in the other domain sends its gigabyte over a link of 50 GB/s
    assert usage.share("d0.n17.g3", "f.p0.l3") == 0.0  # the hop inside the domain goes to rail 0 first
    assert usage.share("d0.n17.g0", "f.p0.l0") == pytest.approx(1e9 / 50e9 / shown.loads.transfer_s)
    every = [usage.share(a, b) for a, b in cluster.graph.edges]
    assert max(every) == 1.0
    assert usage.busiest([]) == 0.0


@pytest.mark.parametrize("name", ["hgx-h100", "gb200-nvl72@144", "mi300x", "tpu-v5p"])
@pytest.mark.parametrize("pattern", ["all-to-all", "incast"])
def test_each_picture_names_and_marks_the_bottleneck(name: str, pattern: str) -> None:
    text = loaded(name, pattern)
    ends = overlay(name, pattern).loads.bottleneck.ends
    assert f"Bottleneck (red): {ends[0]} to {ends[1]}" in text
    assert f"Traffic: {pattern}" in text
    assert "of the busiest link" in text
    assert f'color="{FAULT}", penwidth' in text or f'bgcolor="{FAULT}"' in text


@pytest.mark.parametrize("kind", ["fat-tree", "leaf-spine", "rail"])
def test_what_holds_the_bottleneck_is_drawn_open(kind: str) -> None:
    fabric = {"kind": kind, "nic": "400 Gb/s"}
    content = {"name": "c", "domains": [{"part": "hgx-h100", "count": 64}], "fabric": fabric}
    cluster = resolve_cluster(content)
    matrix = np.zeros((512, 512))
    matrix[:500, 341] = 1e9  # to a GPU in the middle of the second half
    matrix[341, 341] = 0
    loads = link_loads(cluster, traffic_matrix(matrix, 512))
    text = dot_source(cluster, traffic=TrafficOverlay(loads, "to one"))
    assert "Bottleneck (red):" in text
    assert ">341<" in text  # the number of the GPU, in its cell
    elsewhere = dot_source(cluster, level="d0", traffic=TrafficOverlay(loads, "to one"))
    assert "Bottleneck (in a part that is not drawn):" in elsewhere


def test_a_plan_and_traffic_together_are_refused() -> None:
    cluster = resolve_cluster("hgx-h100")
    both = Overlay([1.0] * 8, [""] * 8, "x")
    with pytest.raises(InputError, match="two pictures"):
        dot_source(cluster, overlay=both, traffic=overlay("hgx-h100", "ring"))


def links(*edges: tuple[int, float, float]) -> Links:
    found = Links()
    for count, rate, health in edges:
        found.add({"count": count, "link_bytes_per_s": rate, "health": health})
    return found


@pytest.mark.parametrize(
    ("edges", "text"),
    [
        ([], "no link"),
        ([(1, 50e9, 1.0)], "50 GB/s each way"),
        ([(18, 25e9, 1.0)], "18 x 25 GB/s = 450 GB/s each way"),
        ([(9, 25e9, 1.0), (9, 25e9, 1.0)], "18 x 25 GB/s = 450 GB/s each way"),
        ([(1, 50e9, 0.5)], "50 GB/s x 0.5 = 25 GB/s each way"),
        ([(17, 50e9, 1.0), (1, 50e9, 0.5)], "17 x 50 GB/s + 1 x 50 GB/s x 0.5 = 875 GB/s each way"),
        ([(2, 64e9, 1.0), (4, 128e9, 1.0)], "4 x 128 GB/s + 2 x 64 GB/s = 640 GB/s each way"),
        ([(3, float("nan"), 1.0)], "3 x unpublished rate"),
    ],
)
def test_count_times_rate(edges: list[tuple[int, float, float]], text: str) -> None:
    assert links(*edges).text() == text


def test_an_overlay_of_some_gpus_leaves_the_others_empty() -> None:
    some = Overlay([1.0, 2.0], ["a", "b"], "load", details=[["c", "d"]], tags=["S0", "S1"])
    over = some.over(["g2", "g0"], ["g0", "g1", "g2"])
    assert (over.values, over.labels, over.tags) == ([2.0, 0.0, 1.0], ["b", "", "a"], ["S1", "", "S0"])
    assert over.details == [["d", "", "c"]]
    assert Overlay(None, ["a"], "").over(["g0"], ["g0", "g1"]).tags == ()
