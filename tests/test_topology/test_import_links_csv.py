"""A CSV of links: what names say, the short form of a regular one, and refusals with their line."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from topology.base.errors import InputError
from topology.build import build_cluster
from topology.cluster import ClusterSpec
from topology.files.resolve import resolve_cluster
from topology.importers import Imported, ImportOptions, import_files

HEAD = "a,b,count,rate\n"


def read(path: Path, text: str, gpu: str = "hgx-h100", **options: str) -> Imported:
    (path / "links.csv").write_text(text)
    return import_files([str(path / "links.csv")], ImportOptions(gpu=gpu, **options))  # type: ignore[arg-type]


def links_of(spec: ClusterSpec) -> Counter[tuple[str, str, float]]:
    graph = build_cluster(spec).graph
    kind = graph.nodes
    return Counter(
        (*sorted((kind[a]["kind"], kind[b]["kind"])), round(data["bytes_per_s"]))  # type: ignore[misc]
        for a, b, data in graph.edges(data=True)
    )


@pytest.mark.parametrize("name", ["hgx-h100@64", "gb200-nvl72@144", "mi300x@16"])
def test_a_cluster_by_its_links_is_that_cluster(name: str, tmp_path: Path) -> None:
    cluster = resolve_cluster(name)
    rows = [
        f"{b},{a},{data['count']},{data['link_bytes_per_s']:.0f} B/s\n"
        for a, b, data in cluster.graph.edges(data=True)
    ]
    spec = read(tmp_path, HEAD + "".join(reversed(rows)), name.partition("@")[0]).spec
    assert spec.raw is None
    assert spec.domains == cluster.spec.domains
    assert links_of(spec) == links_of(cluster.spec)


def test_names_say_what_nodes_are(tmp_path: Path) -> None:
    text = (
        "b, rate ,a\nd0.n0.g0, 450 GB/s, d0.s0\nd0.n1.g0, 450 GB/s, d0.s0\nn0x.nic,50 GB/s,d0.n1.pcie0\n\n"
        "d0.n0.nic0,400 Gb/s,d0.n0.g0\nd0.n0.nic0,400 Gb/s,top of rack 1\nagg,100 GB/s,top of rack 1\n"
        "d0.n1.g0,64 GB/s,d0.n1.pcie0\nd0.n1.socket0,64 GB/s,d0.n1.pcie0\nroot,1 TB/s,agg\nagg,1 GB/s,n0x.nic\n"
    )
    raw = read(tmp_path, text).spec.raw
    assert raw is not None
    kinds = {node.id: node.kind for node in raw.nodes}
    assert kinds == {
        "d0.n0.g0": "gpu", "d0.n1.g0": "gpu", "d0.s0": "switch", "d0.n0.nic0": "nic", "d0.n1.pcie0": "pcie",
        "d0.n1.socket0": "host", "top of rack 1": "leaf", "n0x.nic": "leaf", "agg": "spine", "root": "core",
    }  # fmt: skip
    assert {node.domain for node in raw.nodes if node.kind in ("gpu", "switch")} == {"d0.n0"}
    assert {node.id: node.node for node in raw.nodes}["d0.n0.nic0"] == "d0.n0"


GOOD = "h0.g0,h0.s0,18,25 GB/s\nh0.g1,h0.s0,18,25 GB/s\n"


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("a,b,count,rate,colour\n" + GOOD, "line 1"),
        (HEAD + GOOD + "h0.g0,h0.g0,1,25 GB/s\n", "line 4: joins 'h0.g0' to itself"),
        (HEAD + GOOD + "h0.g1,l,1\n", "line 4"),
        (HEAD + GOOD + "h0.g1,l,1.5,25 GB/s\n", "line 4: count '1.5'"),
        (HEAD + GOOD + "h0.g1,l,1,0 GB/s\n", "line 4, column rate"),
        (HEAD + GOOD + "h0.g1,l,1,-3 GB/s\n", "line 4, column rate"),
        (HEAD + GOOD + "h0.fan1,h0.s0,1,25 GB/s\n", "'h0.fan1': unknown part"),
        (HEAD + GOOD + "h1.g0,h1.s0,18,25 GB/s\n", "not all connected"),
        (HEAD, "has no links"),
        (HEAD + GOOD + '"h0,1,25 GB/s\n', "is not CSV"),
    ],
)
def test_refused_with_the_line(text: str, where: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=where):
        read(tmp_path, text)
