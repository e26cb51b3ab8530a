"""What is laid over a picture: faults, red with a word and never one of many; traffic, and the bottleneck."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from helpers import link_loads
from topology import InputError, resolve_cluster
from topology.draw import Overlay, TrafficOverlay, dot_source
from topology.draw.overlay import Usage
from topology.draw.palette import FAULT, SLOW_FILL
from topology.routes import pattern_traffic
from topology.routes.traffic import traffic_matrix

PODS: dict[str, Any] = {"domains": [{"part": "gb200-nvl72", "count": 16}]}


def source(folder: Path, content: dict[str, Any], broken: list[dict[str, Any]], level: str = "auto") -> str:
    path = folder / "c.yaml"
    path.write_text(
        yaml.safe_dump({"name": "c", **content, **({"broken": broken} if broken else {})}), encoding="utf-8"
    )
    return dot_source(resolve_cluster(str(path)), level=level)


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
def test_one_fault_opens_its_pod(fault: dict[str, Any], words: list[str], tmp_path: Path) -> None:
    text = source(tmp_path, PODS, [fault])
    for word in words:
        assert word in text
    assert FAULT in text


@pytest.mark.parametrize("part", ["gb200-nvl72", "mi300x", "tpu-v5p", "cm384"])
@pytest.mark.parametrize("level", ["domain", "gpu"])
def test_throttled_gpus_are_drawn_named_and_counted(part: str, level: str, tmp_path: Path) -> None:
    faults = [{"gpu": "d0.n0.g1", "factor": 0.7}, {"gpu": "d0.n0.g2", "factor": 0.5}]
    text = source(tmp_path, {"domains": [{"part": part}]}, faults, level)
    assert ", 2 throttled" in text
    assert "Throttled: d0.n0.g1 at x 0.7, d0.n0.g2 at x 0.5" in text
    assert "throttled, works at reduced rates: 2 " in text
    assert text.count(f'bgcolor="{SLOW_FILL}"') == 2 + 1  # and the legend


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
def test_what_holds_the_bottleneck_is_drawn_open(kind: str, tmp_path: Path) -> None:
    fabric = {"kind": kind, "nic": "400 Gb/s"}
    content = {"name": "c", "domains": [{"part": "hgx-h100", "count": 64}], "fabric": fabric}
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    cluster = resolve_cluster(str(tmp_path / "c.yaml"))
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
