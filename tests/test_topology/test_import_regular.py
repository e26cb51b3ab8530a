"""Graphs that are regular but for faults: the regular cluster, and exactly what lacks as broken."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from topology.build import build_cluster
from topology.errors import InputError
from topology.exporters.cluster_yaml import cluster_to_yaml
from topology.figures import Evidence, Figure
from topology.importers import ImportOptions, import_files
from topology.importers.assemble import Assembled
from topology.importers.graph_found import GraphFound
from topology.importers.parts import Parts
from topology.importers.regular import regular_form
from topology.importers.shapes import uneven
from topology.resolve import resolve_cluster
from topology.spec import ClusterSpec, FabricSpec, RawLink, RawNode, RawTopology, ScaleOutSpec

if TYPE_CHECKING:
    from pathlib import Path

HGX = resolve_cluster("hgx-h100@8").spec.domains[0]
NIC = FabricSpec(
    "nic",
    "link",
    Figure(50e9, "byte/s", Evidence.USER, "test", "400 Gb/s"),
    Figure(2e-6, "s", Evidence.USER, "test", "2 us"),
)
FABRICS = [
    ScaleOutSpec("rail", NIC, 1, nodes_per_pod=4, spines=2),
    ScaleOutSpec("rail", NIC, 1, nodes_per_pod=3, spines=3),
    ScaleOutSpec("leaf-spine", NIC, 1, nodes_per_pod=2, spines=4, oversubscription=2.0),
    ScaleOutSpec("rail", NIC, 2, nodes_per_pod=4, spines=2, planes=2),
    ScaleOutSpec(
        "fat-tree", NIC, 1, nodes_per_pod=4, spines=2, leaves_per_pod=2, cores=2, core_oversubscription=2.0
    ),
]


def written_out(spec: ClusterSpec) -> Assembled:
    """A cluster node by node and link by link, as an importer finds it."""
    cluster = build_cluster(spec)
    graph, hosts = cluster.graph, defaultdict[str, dict[str, None]](dict)
    nodes = []
    for name, data in graph.nodes(data=True):
        gpu = spec.domains[0].gpu if data["kind"] == "gpu" else None
        domain = None if data["domain"] is None else f"d{data['domain']}"
        nodes.append(RawNode(name, data["kind"], domain, data["node"], None, data["rail"], gpu))
        if gpu is not None:
            hosts[f"d{data['domain']}"][data["node"]] = None
    links = [
        RawLink((a, b), NIC if data["link_bytes_per_s"] == 50e9 else HGX.fabric, data["count"])
        for a, b, data in graph.edges(data=True)
    ]
    return Assembled(
        RawTopology(tuple(nodes), tuple(links)), {label: list(own) for label, own in hosts.items()}
    )


def links_of(spec: ClusterSpec) -> dict[frozenset[str], float]:
    graph = build_cluster(spec).graph
    return {frozenset((a, b)): round(data["bytes_per_s"]) for a, b, data in graph.edges(data=True)}


@pytest.mark.wide
@settings(max_examples=25, deadline=None)
@given(out=st.sampled_from(FABRICS), data=st.data())
def test_what_lacks_is_broken_and_nothing_else(out: ScaleOutSpec, data: st.DataObject) -> None:
    spec = ClusterSpec("c", (HGX,) * 12, out)
    whole = written_out(spec)
    links = list(whole.raw.links)
    parts = Parts(ImportOptions(gpu="hgx-h100"))
    found = regular_form("c", whole, parts, "test")
    assert found is not None
    assert (found[0].faults, links_of(found[0])) == ((), links_of(spec))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(links) - 1))
        if links[at].count > 1 and data.draw(st.booleans()):
            links[at] = replace(links[at], count=links[at].count - 1)
        elif "g" in links[at].between[0] and links[at].fabric is NIC:
            del links[at]
    damaged = replace(whole, raw=RawTopology(whole.raw.nodes, tuple(links)))
    graph = GraphFound.of(damaged.raw)
    assert graph is not None
    assert not uneven(graph.leaves, one_each=False)
    found = regular_form("c", damaged, parts, "test")
    assert found is not None
    wanted = {
        frozenset(link.between): round(link.count * link.fabric.link_bytes_per_s.value) for link in links
    }
    assert links_of(found[0]) == wanted
    assert found[0].domains == spec.domains


@pytest.mark.parametrize("out", [FABRICS[0], FABRICS[4]])
def test_swapped_cables_are_cabled_elsewhere_and_nothing_else(out: ScaleOutSpec, tmp_path: Path) -> None:
    spec = ClusterSpec("c", (HGX,) * 24, out)
    whole = written_out(spec)
    ends = {link.between: at for at, link in enumerate(whole.raw.links) if link.fabric is NIC}
    (a, one), (b, other) = next(
        (x, y) for x in ends for y in ends if x[0][:2] == "d1" and y[0][:2] == "d5" and x[1] != y[1]
    )
    links = list(whole.raw.links)
    links[ends[a, one]], links[ends[b, other]] = RawLink((a, other), NIC), RawLink((b, one), NIC)
    swapped = replace(whole, raw=RawTopology(whole.raw.nodes, tuple(links)))
    parts = Parts(ImportOptions(gpu="hgx-h100"))
    found = regular_form("c", swapped, parts, "test")
    assert found is not None
    wanted = {
        frozenset(link.between): round(link.count * link.fabric.link_bytes_per_s.value) for link in links
    }
    assert links_of(found[0]) == wanted
    assert {(fault.link, fault.cabled_to) for fault in found[0].faults} == {
        ((a, one), other),
        ((b, other), one),
    }
    assert f"{a} to {one}: cabled to {other} instead: [{a}, {one}] is cabled to {other}." in parts.anomalies
    path = tmp_path / "c.yaml"
    path.write_text(cluster_to_yaml(found[0]))
    assert links_of(resolve_cluster(str(path)).spec) == wanted


def test_another_link_than_the_plan_has_is_not_regular() -> None:
    spec = ClusterSpec("c", (HGX,) * 12, FABRICS[0])
    whole = written_out(spec)
    more = RawLink(("f.p0.l0", "f.p1.l0"), NIC)
    crossed = replace(whole, raw=RawTopology(whole.raw.nodes, (*whole.raw.links, more)))
    assert regular_form("c", crossed, Parts(ImportOptions(gpu="hgx-h100")), "test") is None


def test_a_host_that_lacks_keeps_the_places_of_the_others() -> None:
    spec = ClusterSpec("c", (HGX,) * 60, FABRICS[0])
    whole = written_out(spec)
    nodes = tuple(node for node in whole.raw.nodes if not node.id.startswith("d5."))
    links = tuple(link for link in whole.raw.links if not any(end.startswith("d5.") for end in link.between))
    found = regular_form(
        "c", Assembled(RawTopology(nodes, links), {}), Parts(ImportOptions(gpu="hgx-h100")), "t"
    )
    assert found is not None
    # its pod is filled up behind the others
    assert [fault.gpu for fault in found[0].faults if fault.gpu] == [f"d7.n0.g{i}" for i in range(8)]
    assert found[1][7] == "(absent)"
    assert found[1][8] == "d8.n0"


@pytest.mark.parametrize("count", [0, 16])
def test_a_gpu_with_fewer_links_among_many(tmp_path: Path, count: int) -> None:
    leaves = "".join(f"SwitchName=l{i} Nodes=n[{16 * i + 1}-{16 * i + 16}]\n" for i in range(4))
    (tmp_path / "t.conf").write_text("SwitchName=core Switches=l[0-3]\n" + leaves)

    def cell(a: int, b: int, bad: int | None) -> str:
        if a == b:
            return " X "
        return "NV18" if bad not in (a, b) else f"NV{count}" if count else "NODE"

    for name, bad in (("all.txt", None), ("n7.txt", 3)):
        rows = ["\t".join([f"GPU{a}", *(cell(a, b, bad) for b in range(8))]) for a in range(8)]
        (tmp_path / name).write_text(
            "\t" + "\t".join(f"GPU{i}" for i in range(8)) + "\n" + "\n".join(rows) + "\n"
        )
    imported = import_files(
        [str(tmp_path / name) for name in ("t.conf", "all.txt", "n7.txt")],
        ImportOptions(gpu="hgx-h100", pcie="64 GB/s"),
    )
    faults = imported.spec.faults
    if count:
        assert {round(fault.factor, 9) for fault in faults} == {round(16 / 18, 9)}
        assert {fault.link[0] for fault in faults if fault.link} == {"d6.n0.g3"}
    else:
        assert [fault.gpu for fault in faults] == ["d6.n0.g3"]
        assert any("n7.g3 has no scale-up link: d6.n0.g3 is broken" in line for line in imported.anomalies)


def of_leaves(sizes: list[int], uplinks: bool = True) -> str:
    """A Slurm tree of so many hosts on each leaf."""
    rows = [f"SwitchName=s Switches=l[0-{len(sizes) - 1}]"] * uplinks
    return "\n".join([*rows, *(f"SwitchName=l{n} Nodes=n{n}x[1-{hosts}]" for n, hosts in enumerate(sizes))])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (of_leaves([3, 4, 3]), r"80 GPUs .*unlike size \(l2: 3 hosts, l1: 4 hosts\): only .*GPUs"),
        (of_leaves([4, 1, 4, 4]), "l1: 1 host, l3: 4 hosts"),
        (of_leaves([9], uplinks=False), "72 GPUs on 1 switch without uplinks"),
    ],
)
def test_what_is_too_large_and_not_regular_is_refused_soon(text: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "topology.conf"
    path.write_text(text)
    with patch("topology.importers.assemble.LISTED_GPUS", 0), pytest.raises(InputError, match=told):
        import_files([str(path)], ImportOptions(gpu="hgx-h100", uplink="400 Gb/s"))


@pytest.mark.wide
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sizes=st.lists(st.integers(1, 3), min_size=1, max_size=5), gone=st.integers(0, 3))
def test_no_regular_cluster_is_refused_for_its_leaves(sizes: list[int], gone: int, tmp_path: Path) -> None:
    path = tmp_path / "topology.conf"
    path.write_text(of_leaves([*sizes, *[4] * 20, 4 - gone]))
    options = ImportOptions(gpu="hgx-h100", uplink="400 Gb/s")
    regular = import_files([str(path)], options).spec.raw is None
    with patch("topology.importers.assemble.LISTED_GPUS", 0):
        try:
            import_files([str(path)], options)
        except InputError:
            assert not regular
