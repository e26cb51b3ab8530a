"""Everything that a picture leaves out it counts: GPUs in boxes and in words are those of the cluster."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from typing import Any

import pytest

from topology import resolve_cluster
from topology.draw import cluster_svg

SVG = "{http://www.w3.org/2000/svg}"


def gpus_drawn(svg: str, word: str) -> int:
    """GPUs that have a box, working or not, and those that words count."""
    root = ET.fromstring(svg)  # noqa: S314 - written by ourselves
    boxes = set()
    for group in root.iter(f"{SVG}g"):
        title = group.findtext(f"{SVG}title", "")
        if group.get("data-kind") == "gpu" or title.endswith(": out of service"):
            boxes.add(group.get("data-id") or title.partition(":")[0])
    texts = [(text.text or "").replace("\u00a0", " ") for text in root.iter(f"{SVG}text")]
    number = rf"(?:[\d,]+ of )?([\d,]+) {word}s?"
    counted = [
        rf"^[\d,]+ more (?:identical|different) rows?: {number}$",
        rf"^and .*: {number}$",
        rf"more groups? of {number}, alike",
        rf"^([\d,]+) more {word}s?, .* in all$",
    ]
    if any(re.search("alike|identical", text) for text in texts):
        counted.append(f"^{number}$")  # under "x 3 alike"
    found = (next(filter(None, (re.search(one, text) for one in counted)), None) for text in texts)
    return len(boxes) + sum(int(match[1].replace(",", "")) for match in found if match is not None)


GPUS: list[dict[str, Any]] = [{"gpu": "d3.n0.g2"}, {"gpu": "d3.n0.g5"}, {"gpu": "d7.n0.g1"}]
MORE: list[dict[str, Any]] = [{"node": "d1.n0"}, {"gpu": "d9.n0.g0", "factor": 0.5}]
RACKS: list[dict[str, Any]] = [{"gpu": "d3.n2.g2"}, {"node": "d5.n17"}, {"link": ["d6.n4.g1", "d6.s5"]}]
ONE: list[dict[str, Any]] = [{"gpu": "d0.n3.g1"}, {"gpu": "d0.n14.g0"}, {"gpu": "d0.n9.g0", "factor": 0.7}]


@pytest.mark.parametrize(
    ("part", "count", "fabric", "broken"),
    [
        ("hgx-h100", 16, None, GPUS),
        ("hgx-h100", 16, {"kind": "leaf-spine", "nic": "400 Gb/s", "nodes_per_leaf": 1}, [*GPUS, *MORE]),
        ("hgx-h100", 16, {"kind": "rail", "nic": "400 Gb/s", "nodes_per_pod": 2}, [*GPUS, *MORE]),
        (
            "hgx-h100",
            16,
            {"kind": "dragonfly", "nic": "400 Gb/s", "nodes_per_router": 2, "routers_per_group": 2},
            GPUS,
        ),
        (
            "hgx-h100",
            64,
            {"kind": "fat-tree", "nic": "400 Gb/s", "nodes_per_leaf": 1, "leaves_per_pod": 2, "spines": 2},
            [*GPUS, *MORE],
        ),
        ("hgx-h100", 128, None, [*GPUS, *MORE, {"node": "d120.n0"}]),
        ("gb200-nvl72", 16, None, RACKS),
        ("rubin-576", 1, None, ONE),
        ("cm384", 2, None, ONE),
        ("tpu-v5e", 2, None, ONE),
    ],
)
def test_gpus_add_up(
    part: str, count: int, fabric: dict[str, Any] | None, broken: list[dict[str, Any]]
) -> None:
    row: dict[str, Any] = {"name": "x", "domains": [{"part": part, "count": count}], "broken": broken}
    cluster = resolve_cluster(row | ({"fabric": fabric} if fabric else {}))
    assert gpus_drawn(cluster_svg(cluster), cluster.spec.noun) == cluster.spec.gpus
