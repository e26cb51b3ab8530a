"""A CSV of links: what names say, the short form of a regular one, what lacks in it, and refusals with their line."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from topology.base.errors import InputError
from topology.build import build_cluster
from topology.cluster import Cluster, ClusterSpec
from topology.files.resolve import resolve_cluster
from topology.importers import Imported, ImportOptions, import_files

HEAD = "a,b,count,rate\n"
Link = tuple[str, str, int, float]


def read(path: Path, text: str, gpu: str = "hgx-h100") -> Imported:
    (path / "links.csv").write_text(text)
    return import_files([str(path / "links.csv")], ImportOptions(gpu=gpu))


def written(links: list[Link]) -> str:
    return HEAD + "".join(f"{b},{a},{count},{rate:.0f} B/s\n" for a, b, count, rate in links)


def links_in(cluster: Cluster) -> list[Link]:
    return [(a, b, data["count"], data["link_bytes_per_s"]) for a, b, data in cluster.graph.edges(data=True)]


def rates_in(spec: ClusterSpec) -> dict[frozenset[str], float]:
    edges = build_cluster(spec).graph.edges(data="bytes_per_s")
    return {frozenset((a, b)): round(rate) for a, b, rate in edges}


@pytest.mark.parametrize("name", ["gb200-nvl72@144", "mi300x@16"])
def test_a_cluster_by_its_links_is_that_cluster(name: str, tmp_path: Path) -> None:
    cluster = resolve_cluster(name)
    spec = read(tmp_path, written(links_in(cluster)[::-1]), name.partition("@")[0]).spec
    assert spec.raw is None
    assert spec.domains == cluster.spec.domains
    assert rates_in(spec) == rates_in(cluster.spec)


FABRICS = [
    "kind: rail, nodes_per_pod: 4, spines: 2",
    "kind: rail, nodes_per_pod: 3, spines: 3, oversubscription: 1",
    "kind: leaf-spine, nodes_per_leaf: 2, spines: 4, oversubscription: 2",
    "kind: fat-tree, nodes_per_leaf: 2, leaves_per_pod: 2, spines: 2, oversubscription: [1, 2]",
]


def hosts(count: int, fabric: str = FABRICS[0]) -> Cluster:
    out: dict[str, Any] = yaml.safe_load(f"{{{fabric}, nic: 400 Gb/s}}")
    return resolve_cluster({"domains": [{"part": "hgx-h100", "count": count}], "fabric": out})


@pytest.mark.parametrize("lacking", range(4))
@pytest.mark.parametrize("fabric", FABRICS)
def test_what_lacks_is_broken_and_nothing_else(fabric: str, lacking: int, tmp_path: Path) -> None:
    whole, random = hosts(12, fabric), Random(lacking)
    links = links_in(whole)
    for _ in range(lacking):
        at = random.randrange(len(links))
        a, b, count, rate = links[at]
        if count > 1:
            links[at] = a, b, count - 1, rate
        elif b.startswith("f.") and not a.startswith("f."):
            del links[at]
    found = read(tmp_path, written(links)).spec
    assert found.raw is None
    assert found.domains == whole.spec.domains
    assert bool(found.faults) == (links != links_in(whole))
    assert rates_in(found) == {frozenset((a, b)): round(count * rate) for a, b, count, rate in links}


def test_another_link_than_the_design_has_stays_a_graph(tmp_path: Path) -> None:
    links = links_in(hosts(12))
    assert read(tmp_path, written([*links, ("f.p0.l0", "f.p1.l0", 1, 50e9)])).spec.raw is not None
    fewer = [(a, b, 1 if a < "d2" else count, rate) for a, b, count, rate in links]
    assert read(tmp_path, written(fewer)).spec.raw is not None, "what four hosts of twelve lack is no fault"


def test_an_absent_host_keeps_the_places_of_the_others(tmp_path: Path) -> None:
    links = [link for link in links_in(hosts(60)) if not link[0].startswith("d5.")]
    found = read(tmp_path, written(links))
    # its pod is filled up behind the others
    assert [fault.gpu for fault in found.spec.faults if fault.gpu] == [f"d7.n0.g{i}" for i in range(8)]
    assert found.hosts[7:9] == ("(absent)", "d8.n0")


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
        (HEAD + GOOD + "h0.s0,h0.g0,1,25 GB/s\n", "line 4: duplicate link"),
        (HEAD + GOOD + "h0.g1,l,1\n", "line 4"),
        (HEAD + GOOD + "h0.g1,l,1.5,25 GB/s\n", "line 4: count '1.5'"),
        (HEAD + GOOD + "h0.g1,l,1,0 GB/s\n", "line 4, column rate"),
        (HEAD + GOOD + "h0.fan1,h0.s0,1,25 GB/s\n", "'h0.fan1': unknown part"),
        (HEAD + GOOD + "h1.g0,h1.s0,18,25 GB/s\n", "not all connected: 2 islands"),
        (HEAD, "has no links"),
        (HEAD + GOOD + '"h0,1,25 GB/s\n', "is not CSV"),
    ],
)
def test_refused_with_the_line(text: str, where: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=where):
        read(tmp_path, text)


def test_gpus_without_a_nic_beside_others_with_one_are_named(tmp_path: Path) -> None:
    nic = "h0.g0,leaf0,1,50 GB/s\n"
    imported = read(tmp_path, HEAD + GOOD + nic, "h100-sxm")
    assert any("h0.g1: no NIC of its own" in line for line in imported.anomalies)
    imported = read(tmp_path, HEAD + GOOD + nic + nic.replace("g0", "g1"), "h100-sxm")
    assert not any("NIC" in line for line in imported.anomalies)
    shared = "h0.g0,h0.pcie0,1,64 GB/s\nh0.g1,h0.pcie0,1,64 GB/s\n"
    shared += "h0.nic0,h0.pcie0,1,50 GB/s\nh0.nic0,leaf0,1,50 GB/s\n"
    imported = read(tmp_path, HEAD + GOOD + shared, "h100-sxm")
    assert not any("NIC" in line for line in imported.anomalies)
