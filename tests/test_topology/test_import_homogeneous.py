"""Homogeneous graphs: the short form is the same graph, and exactly what lacks in it is broken."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topology.base.errors import InputError
from topology.base.figures import Evidence, Figure
from topology.build import build_cluster
from topology.cluster import ClusterSpec
from topology.exporters import cluster_to_yaml
from topology.fabrics.fabric import CabledFabric
from topology.fabrics.fat_tree import FatTreeFabric
from topology.fabrics.leaf_spine import LeafSpineFabric
from topology.fabrics.rail import RailFabric
from topology.files.resolve import resolve_cluster
from topology.importers import ImportOptions, import_files
from topology.importers.answers import Answers, Questions, named_parts
from topology.importers.build import build
from topology.importers.completed import Completed
from topology.importers.options import Log
from topology.spec import FabricSpec, RawLink, RawNode, RawTopology

HGX = resolve_cluster("hgx-h100@8").spec.domains[0]
NVL = resolve_cluster("gb200-nvl72").spec.domains[0]
NIC = FabricSpec(
    "nic",
    "link",
    Figure(50e9, "byte/s", Evidence.USER, "test", "400 Gb/s"),
    Figure(2e-6, "s", Evidence.USER, "test", "2 us"),
)
FABRICS = [
    RailFabric(fabric=NIC, nodes_per_pod=4, spines=2),
    RailFabric(fabric=NIC, nodes_per_pod=3, spines=3),
    LeafSpineFabric(fabric=NIC, nodes_per_pod=2, spines=4, oversubscription=2.0),
    FatTreeFabric(
        fabric=NIC, nodes_per_pod=4, spines=2, leaves_per_pod=2, cores=2, core_oversubscription=2.0
    ),
]


def written_out(spec: ClusterSpec, gpu: str = "hgx-h100") -> Completed:
    """A cluster node by node and link by link, as an importer finds it."""
    graph, unit = build_cluster(spec).graph, spec.domains[0]
    nodes, domains = [], defaultdict[str, dict[str, None]](dict)
    for name, data in graph.nodes(data=True):
        domain = None if data["domain"] is None else f"d{data['domain']}"
        own = unit.gpu if data["kind"] == "gpu" else None
        nodes.append(RawNode(name, data["kind"], domain, data["node"], None, data["rail"], own))
        if data["kind"] == "gpu":
            domains[str(domain)][data["node"]] = None
    links = [
        RawLink((a, b), NIC if data["fabric"] == NIC.name else unit.fabric, data["count"])
        for a, b, data in graph.edges(data=True)
    ]
    options = ImportOptions(gpu=gpu)
    parts = named_parts(options, [], Questions(["test"]), Log())
    assert parts is not None
    named = {label: list(hosts) for label, hosts in domains.items()}
    raw = RawTopology(tuple(nodes), tuple(links))
    return Completed("c", "test", raw, named, Answers(options, parts), switched=True)


def with_links(whole: Completed, links: list[RawLink]) -> Completed:
    return replace(whole, raw=replace(whole.raw, links=tuple(links)))


def links_of(spec: ClusterSpec) -> dict[frozenset[str], float]:
    graph = build_cluster(spec).graph
    return {frozenset((a, b)): round(data["bytes_per_s"]) for a, b, data in graph.edges(data=True)}


def short(completed: Completed) -> ClusterSpec | None:
    spec = build(completed).spec
    return spec if spec.raw is None else None


@pytest.mark.parametrize("out", FABRICS)
@settings(max_examples=4, deadline=None)
@given(data=st.data())
def test_what_lacks_is_broken_and_nothing_else(out: CabledFabric, data: st.DataObject) -> None:
    spec = ClusterSpec("c", (HGX,) * 12, out)
    whole = written_out(spec)
    found = short(whole)
    assert found is not None
    assert (found.faults, links_of(found)) == ((), links_of(spec))
    links = list(whole.raw.links)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(links) - 1))
        if links[at].count > 1 and data.draw(st.booleans()):
            links[at] = replace(links[at], count=links[at].count - 1)
        elif "g" in links[at].between[0] and links[at].fabric is NIC:
            del links[at]
    found = short(with_links(whole, links))
    assert found is not None
    assert found.domains == spec.domains
    assert links_of(found) == {
        frozenset(link.between): round(link.count * link.fabric.link_bytes_per_s.value) for link in links
    }


def test_another_link_than_the_design_has_stays_a_graph() -> None:
    whole = written_out(ClusterSpec("c", (HGX,) * 12, FABRICS[0]))
    more = RawLink(("f.p0.l0", "f.p1.l0"), NIC)
    assert short(with_links(whole, [*whole.raw.links, more])) is None
    half = [replace(link, count=1) if link.between[0] < "d6" else link for link in whole.raw.links]
    assert short(with_links(whole, half)) is None, "half of the links are no few faults"


def test_an_absent_host_keeps_the_places_of_the_others() -> None:
    whole = written_out(ClusterSpec("c", (HGX,) * 60, FABRICS[0]))
    nodes = tuple(node for node in whole.raw.nodes if not node.id.startswith("d5."))
    links = tuple(link for link in whole.raw.links if not any(end.startswith("d5.") for end in link.between))
    found = build(replace(whole, raw=RawTopology(nodes, links)))
    # its pod is filled up behind the others
    assert [fault.gpu for fault in found.spec.faults if fault.gpu] == [f"d7.n0.g{i}" for i in range(8)]
    assert found.hosts[7:9] == ("(absent)", "d8.n0")


def test_domains_of_several_hosts() -> None:
    spec = ClusterSpec("c", (NVL,) * 3, RailFabric(fabric=NIC, nodes_per_pod=18, spines=9))
    found = short(written_out(spec, "gb200-nvl72"))
    assert found is not None
    assert (found.faults, links_of(found), found.domains) == ((), links_of(spec), spec.domains)


def tree(leaves: int, hosts: int, pods: int = 0) -> str:
    each = leaves // (pods or 1)
    rows = [f"SwitchName=core Switches={f's[0-{pods - 1}]' if pods else f'l[0-{leaves - 1}]'}"]
    rows += [f"SwitchName=s{p} Switches=l[{p * each}-{p * each + each - 1}]" for p in range(pods)]
    return "\n".join(
        [*rows, *(f"SwitchName=l{i} Nodes=n[{hosts * i + 1}-{hosts * i + hosts}]" for i in range(leaves))]
    )


def blocks(hosts: int) -> str:
    return "\n".join(f"BlockName=b{i} Nodes=n[{18 * i + 1}-{18 * i + hosts}]" for i in range(4))


NVL_MODEL = "switches: {core: {switches: [s1, s2]}, s1: {}, s2: {}}\nblocks:\n" + "".join(
    f"- {{switch: s{1 + i // 2}, nodes: ['n[{18 * i + 1}-{18 * i + 18}]'], nvlink: d{i}}}\n" for i in range(4)
)


@pytest.mark.parametrize(
    ("file", "text", "gpu", "body"),
    [
        (
            "t.conf",
            tree(8, 8),
            "hgx-h100",
            "domains:\n  - {part: hgx-h100, count: 64}\nfabric: {kind: leaf-spine,",
        ),
        ("t.conf", tree(16, 4, 4), "hgx-h100", "  - {part: hgx-h100, count: 64}\nfabric: {kind: fat-tree,"),
        ("t.conf", blocks(18), "gb200-nvl72", "  - {part: gb200-nvl72, count: 4}\n"),
        ("t.conf", blocks(17), "gb200-nvl72", "  - {part: gb200-nvl72, gpus: 68, count: 4}\n"),
        ("m.yaml", NVL_MODEL, "gb200-nvl72", "  - {part: gb200-nvl72, count: 4}\nfabric: {kind: leaf-spine,"),
    ],
)
def test_regular_files_give_a_few_lines(file: str, text: str, gpu: str, body: str, tmp_path: Path) -> None:
    (tmp_path / file).write_text(text)
    imported = import_files([str(tmp_path / file)], ImportOptions(gpu=gpu))
    written = cluster_to_yaml(imported.spec)
    assert body in written
    assert len(written.splitlines()) <= 4
    (tmp_path / "c.yaml").write_text(written)
    assert links_of(resolve_cluster(str(tmp_path / "c.yaml")).spec) == links_of(imported.spec)


def test_what_is_too_large_to_be_listed_is_refused(tmp_path: Path) -> None:
    uneven = tree(40, 16).replace("Nodes=n[1-16]", "Nodes=n[1-3]").replace("n[33-48]", "n[33-35]")
    (tmp_path / "t.conf").write_text(uneven)
    with pytest.raises(InputError, match="listed one by one"):
        import_files([str(tmp_path / "t.conf")], ImportOptions(gpu="hgx-h100"))
