"""What is read of a fabric: Slurm's files and hostlists, topograph's models, `ibnetdiscover`, a table of links."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from helpers import script
from topology.build import build_cluster
from topology.cluster import Cluster, ClusterSpec
from topology.files.resolve import resolve_cluster
from topology.importers import Imported, ImportOptions, import_files
from topology.importers.found import FabricFound
from topology.importers.hostlist import compress_hosts, expand_hosts
from topology.importers.importer import parse
from topology.importers.source import Source

seeds = script("tests/properties/readers.py", "reader_seeds")


def read(text: str, name: str = "t.conf") -> FabricFound:
    fabric = parse(Source(name, text), None)
    assert isinstance(fabric, FabricFound)
    return fabric


# Slurm


TREE = """# leaf = rack
SwitchName=core Switches=spine[1-2]
switchname=spine1 switches=leaf[1-2]   # keys in any case
SwitchName=spine2 \\
  Switches=leaf[3-4] LinkSpeed=400
SwitchName=leaf1 Nodes=n[001-004]
SwitchName=leaf2 Nodes=n[005-008]
SwitchName=leaf3 Nodes=n[009-010],m[1-2]
SwitchName=leaf4 Nodes=n[013-016]
"""


def test_a_tree_in_lines_of_any_case() -> None:
    found = read(TREE)
    assert list(found.hosts) == expand_hosts("n[001-010],m[1-2],n[013-016]", "here")
    assert found.hosts["n009"] == "t.conf: line 8"
    assert found.switches == {"core": 3, "spine1": 2, "spine2": 2} | {f"leaf{i}": 1 for i in range(1, 5)}
    assert {trunk.ends for trunk in found.trunks} == {
        ("spine1", "core"), ("spine2", "core"), ("leaf1", "spine1"), ("leaf2", "spine1"), ("leaf3", "spine2"),
        ("leaf4", "spine2"),
    }  # fmt: skip
    both = read(TREE.replace("Nodes=n[005-008]", "Nodes=n[004-008]"))
    assert len(both.ports) == 16
    assert "line 7: host n004" in both.anomalies[0]
    leaves = "".join(f"SwitchName=leaf{i} %sNodes=n[{4 * i - 3}-{4 * i}]\n" for i in (1, 2))
    shown = (
        leaves % (("Level=0 LinkSpeed=1 ",) * 2) + "SwitchName=top Level=1 Nodes=n[1-8] Switches=leaf[1-2]\n"
    )
    assert read(shown) == read(leaves % ("", "") + "SwitchName=top Switches=leaf[1-2]\n")  # as of scontrol


YAML = """- topology: fast
  cluster_default: False
  tree:
    switches:
    - {switch: root, children: "leaf[1-2]"}
    - {switch: leaf1, nodes: "n[1-2]"}
    - {switch: leaf2, nodes: "n[3-4]"}
- topology: racks
  cluster_default: true
  block:
    block_sizes: [2, 4]
    blocks:
    - {block: b1, nodes: "n[1-2]"}
    - {block: b2, nodes: "n[3-4]"}
- topology: plain
  flat: true
- topology: round
  ring: {rings: [{ring: r1, nodes: "n[1-4]"}]}
"""


def of_default(name: str) -> str:
    """Return YAML with another default."""
    text = YAML.replace("  cluster_default: true\n", "").replace("  cluster_default: False\n", "")
    return text.replace(f"topology: {name}\n", f"topology: {name}\n  cluster_default: true\n")


def test_yaml_has_several_topologies() -> None:
    assert read(YAML, "t.yaml").domains == {"n1": "b1", "n2": "b1", "n3": "b2", "n4": "b2"}
    assert list(read(of_default("round"), "t.yaml").hosts) == ["n1", "n2", "n3", "n4"]
    assert read(json.dumps({"topology": yaml.safe_load(YAML)}), "t.yaml") == read(YAML, "t.yaml")
    for default in ("fast", "racks"):  # a tree beside blocks of the same hosts is kept
        fabric = read(of_default(default), "t.yaml")
        assert fabric.switches == {"root": 2, "leaf1": 1, "leaf2": 1}
        assert (fabric.domains["n3"], fabric.blocks) == ("b2", True)
        assert len(fabric.anomalies) == 2, "plain and round are left out"
    fabric = read(YAML.replace('leaf2, nodes: "n[3-4]"', 'leaf2, nodes: "n[3-5]"'), "t.yaml")
    assert not fabric.switches


@given(
    st.lists(st.tuples(st.sampled_from(["n", "gpu-"]), st.integers(0, 120), st.integers(1, 3)), unique=True)
)
def test_a_hostlist_written_is_read_back(names: list[tuple[str, int, int]]) -> None:
    hosts = list(dict.fromkeys(f"{start}{number:0{width}d}" for start, number, width in names))
    assert sorted(expand_hosts(compress_hosts(hosts), "here") if hosts else []) == sorted(hosts)
    assert expand_hosts("r[1-2]n[08-09]-ib, m7", "x") == [
        *("r1n08-ib", "r1n09-ib", "r2n08-ib", "r2n09-ib", "m7")
    ]


# topograph


MODEL = """switches:
  core: {switches: [sw1, sw2]}
  sw1: {labels: {zone: a}}
  sw2: {}
blocks:
- switch: sw1
  nodes: ["n[01-03]"]
  annotations: {accelerator.example/domain: d1, accelerator.example/sub-domain: x}
- switch: sw2
  nodes: [n04, "n[05-06]"]
  annotations: {accelerator.example/domain: d2}
- nodes: ["cpu[1-2]"]
"""
CAPACITY = (
    "switches:\n- {name: top, switches: [a, b]}\n- {name: a, capacity_blocks: [c1]}\n"
    "- {name: b, capacity_blocks: [c2]}\n"
    "capacity_blocks:\n- {name: c1, nvlink: nv1, nodes: [x1, x2]}\n- {name: c2, nodes: [y1]}\n"
)
INSTANCES = [
    {"id": f"n{i}", "network_layers": [f"leaf{i // 2}", "top"], "labels": {"accelerator.x.run/domain": "d"}}
    for i in range(4)
]
LABELS = [
    {
        "fabric.topograph.run/tier-1": "top",
        "fabric.topograph.run/tier-0": f"leaf{i // 2}",
        "accelerator.topograph.run/domain": "d",
        "accelerator.topograph.run/sub-domain": f"rack{i // 2}",
        "nvidia.com/gpu.product": "NVIDIA-GB200",
    }
    for i in range(4)
]
NODES = [{"metadata": {"name": f"n{i}", "labels": labels}} for i, labels in enumerate([*LABELS, {}])]
KUBERNETES = json.dumps({"kind": "List", "items": NODES})


@pytest.mark.parametrize(
    ("text", "leaves", "domains", "left_out"),
    [
        (MODEL, "sw1 sw1 sw1 sw2 sw2 sw2", {"n01": "d1", "n05": "d2"}, "2 hosts without a switch"),
        (CAPACITY, "a a b", {"x1": "nv1", "x2": "nv1"}, ""),
        (json.dumps({"instances": INSTANCES}), "leaf0 leaf0 leaf1 leaf1", {"n0": "d", "n3": "d"}, ""),
        (KUBERNETES, "leaf0 leaf0 leaf1 leaf1", {"n0": "d"}, "items[4]: no label names a switch"),
    ],
    ids=["blocks", "capacity blocks", "instances", "kubernetes"],
)
def test_topograph_names_switches_and_domains_in_four_forms(
    text: str, leaves: str, domains: dict[str, str], left_out: str
) -> None:
    fabric = read(text)
    assert [port.switch for port in fabric.ports] == leaves.split()
    assert sorted(fabric.switches.values()) == [1, 1, 2]
    assert domains.items() <= fabric.domains.items()
    assert [left_out in line for line in fabric.anomalies] == [True] * bool(left_out)
    if text == KUBERNETES:  # labels name racks and the GPU, too
        assert fabric.subdomains["n3"] == "d.rack1"
        assert [(name.words, name.gpus) for name in fabric.gpu_names] == [("NVIDIA-GB200", ("gb200",))]


# ibnetdiscover: hosts from adapters, rails from names, and what is cabled otherwise


def swap(fabric: Any, a: str, b: str) -> None:
    """Exchange the switch ends of the cables of two adapters."""
    cables = fabric.cables
    i, j = (next(n for n, cable in enumerate(cables) if cable[2] == name) for name in (a, b))
    cables[i], cables[j] = (*cables[i][:2], *cables[j][2:]), (*cables[j][:2], *cables[i][2:])


def test_swapped_adapters_are_named_and_kept(ib_rails: Any) -> None:
    fabric = ib_rails()
    swap(fabric, "p0h1r2", "p0h1r3")
    seen = read(fabric.text())
    assert len(seen.anomalies) == 2
    assert "node-01 HCA-5 (rail 2) is on leaf-0-3, a leaf of rail 3 (2 others there)" in seen.anomalies[0]
    assert {(port.nic, port.switch) for port in seen.ports if port.host == "node-01"} >= {
        ("HCA-5", "leaf-0-3"),
        ("HCA-6", "leaf-0-2"),
    }
    fabric = ib_rails()  # a host swapped into another pod stays in its own
    swap(fabric, "p0h1r2", "p1h1r2")
    seen = read(fabric.text())
    assert (seen.pods["node-01"], seen.pods["node-11"]) == ("pod0", "pod1")


def facts(fabric: FabricFound) -> Any:
    """What a fabric is, without the lines of the file that say so."""
    ports = [(p.host, p.switch, p.nic, p.rate and p.rate.value, p.rail) for p in fabric.ports]
    trunks = [(trunk.ends, trunk.count, trunk.rate and trunk.rate.value) for trunk in fabric.trunks]
    return [*fabric.hosts], fabric.switches, ports, trunks, fabric.pods, fabric.switch_rails, fabric.rails


@pytest.mark.parametrize("rate", ["4xNDR", "4xHDR", "2xHDR"])
def test_the_list_of_ports_is_the_same_fabric(rate: str) -> None:
    tree, ports = seeds.IB.decode().replace("4xNDR", rate), seeds.IB_PORTS.decode()
    assert facts(read(ports.replace("4x NDR", rate.replace("x", "x ")))) == facts(read(tree))
    gbit = {"4xNDR": 400, "4xHDR": 200, "2xHDR": 100}[rate]
    assert {port.rate.value * 8 / 1e9 for port in read(tree).ports if port.rate} == {gbit}


# A table of links


HEAD = "a,b,count,rate\n"
Link = tuple[str, str, int, float]


def take(path: Path, text: str, gpu: str = "hgx-h100") -> Imported:
    (path / "links.csv").write_text(text)
    return import_files([str(path / "links.csv")], ImportOptions(gpu=gpu))


def written(links: list[Link]) -> str:
    return HEAD + "".join(f"{b},{a},{count},{rate:.0f} B/s\n" for a, b, count, rate in links)


def links_in(cluster: Cluster) -> list[Link]:
    return [(a, b, data["count"], data["link_bytes_per_s"]) for a, b, data in cluster.graph.edges(data=True)]


def rates_in(spec: ClusterSpec) -> dict[frozenset[str], float]:
    edges = build_cluster(spec).graph.edges(data="bytes_per_s")
    return {frozenset((a, b)): round(rate) for a, b, rate in edges}


FABRICS = [
    "kind: rail, nodes_per_pod: 4, spines: 2",
    "kind: rail, nodes_per_pod: 3, spines: 3, oversubscription: 1",
    "kind: leaf-spine, nodes_per_leaf: 2, spines: 4, oversubscription: 2",
    "kind: fat-tree, nodes_per_leaf: 2, leaves_per_pod: 2, spines: 2, oversubscription: [1, 2]",
]


def hosts(count: int, fabric: str = FABRICS[0]) -> Cluster:
    out: dict[str, Any] = yaml.safe_load(f"{{{fabric}, nic: 400 Gb/s}}")
    return resolve_cluster({"domains": [{"part": "hgx-h100", "count": count}], "fabric": out})


@pytest.mark.parametrize("lacking", [0, 3])
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
    spec = take(tmp_path, written(links)).spec
    assert spec.raw is None
    assert spec.domains == whole.spec.domains
    assert bool(spec.faults) == (links != links_in(whole))
    assert rates_in(spec) == {frozenset((a, b)): round(count * rate) for a, b, count, rate in links}


def test_another_link_than_the_design_has_stays_a_graph(tmp_path: Path) -> None:
    links = links_in(hosts(12))
    assert take(tmp_path, written([*links, ("f.p0.l0", "f.p1.l0", 1, 50e9)])).spec.raw is not None
    fewer = [(a, b, 1 if a < "d2" else count, rate) for a, b, count, rate in links]
    assert take(tmp_path, written(fewer)).spec.raw is not None, "what four hosts of twelve lack is no fault"


def test_an_absent_host_keeps_the_places_of_the_others(tmp_path: Path) -> None:
    links = [link for link in links_in(hosts(60)) if not link[0].startswith("d5.")]
    imported = take(tmp_path, written(links))
    # its pod is filled up behind the others
    assert [fault.gpu for fault in imported.spec.faults if fault.gpu] == [f"d7.n0.g{i}" for i in range(8)]
    assert imported.hosts[7:9] == ("(absent)", "d8.n0")


def test_names_say_what_nodes_are(tmp_path: Path) -> None:
    text = (
        "b, rate ,a\nd0.n0.g0, 450 GB/s, d0.s0\nd0.n1.g0, 450 GB/s, d0.s0\nn0x.nic,50 GB/s,d0.n1.pcie0\n\n"
        "d0.n0.nic0,400 Gb/s,d0.n0.g0\nd0.n0.nic0,400 Gb/s,top of rack 1\nagg,100 GB/s,top of rack 1\n"
        "d0.n1.g0,64 GB/s,d0.n1.pcie0\nd0.n1.socket0,64 GB/s,d0.n1.pcie0\nroot,1 TB/s,agg\nagg,1 GB/s,n0x.nic\n"
    )
    raw = take(tmp_path, text).spec.raw
    assert raw is not None
    kinds = {node.id: node.kind for node in raw.nodes}
    assert kinds == {
        "d0.n0.g0": "gpu", "d0.n1.g0": "gpu", "d0.s0": "switch", "d0.n0.nic0": "nic", "d0.n1.pcie0": "pcie",
        "d0.n1.socket0": "host", "top of rack 1": "leaf", "n0x.nic": "leaf", "agg": "spine", "root": "core",
    }  # fmt: skip
    assert {node.domain for node in raw.nodes if node.kind in ("gpu", "switch")} == {"d0.n0"}
    assert {node.id: node.node for node in raw.nodes}["d0.n0.nic0"] == "d0.n0"
