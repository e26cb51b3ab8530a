"""Exports: GraphML and JSON as networkx reads them, Slurm's YAML and topograph's model as our importers do."""

from __future__ import annotations

import json
from pathlib import Path

import networkx as nx
import pytest
import yaml

from topology import ClusterSpec, spec_from_dict, spec_to_dict
from topology.base.errors import InputError
from topology.exporters import cluster_to_yaml, topology_text, write_topology
from topology.files.resolve import resolve_cluster
from topology.importers.importer import parse
from topology.importers.source import read_source

KEYS = ("bytes_per_s", "count", "fabric")


@pytest.mark.parametrize("name", ["hgx-h100@32", "gb200-nvl72@80", "tpu-v5p@4x4x4", "rubin-ultra-nvl144"])
@pytest.mark.parametrize("suffix", ["graphml", "json"])
def test_the_file_is_the_graph(tmp_path: Path, name: str, suffix: str) -> None:
    graph, path = resolve_cluster(name).graph, tmp_path / f"g.{suffix}"
    write_topology(resolve_cluster(name), path)
    if suffix == "json":
        read = nx.node_link_graph(json.loads(path.read_text(), parse_constant=pytest.fail), edges="links")
    else:
        read = nx.read_graphml(path)
    assert {frozenset(edge) for edge in read.edges} == {frozenset(edge) for edge in graph.edges}
    for a, b, data in graph.edges(data=True):
        published = {key: data[key] for key in KEYS if data[key] == data[key]}  # what is NaN is left out
        assert {key: read.edges[a, b][key] for key in KEYS if key in read.edges[a, b]} == published
    assert dict(read.nodes(data="kind")) == dict(graph.nodes(data="kind"))


def test_an_unknown_form_or_suffix_is_refused(tmp_path: Path) -> None:
    for name, form in (("x.txt", None), ("x.yaml", None), ("x.yaml", "simai"), ("no/x.json", None)):
        with pytest.raises(InputError):
            write_topology(resolve_cluster("hgx-h100@16"), tmp_path / name, form)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "leaves"), [("hgx-h100@512", 2), ("gb200-nvl72@288", 4), ("hgx-h100@16", 1)]
)
def test_each_host_is_under_a_leaf_and_in_its_domain(tmp_path: Path, name: str, leaves: int) -> None:
    cluster = resolve_cluster(name)
    domains = {gpu.node: f"d{gpu.domain}" for gpu in cluster.gpus}
    write_topology(cluster, tmp_path / "topology.yaml", "slurm")
    tree = parse(read_source(tmp_path / "topology.yaml"), None)
    assert [port.host for port in tree.ports] == list(domains)
    assert sum(level == 1 for level in tree.switches.values()) == leaves
    assert not tree.anomalies
    write_topology(cluster, tmp_path / "m.yaml", "topograph")
    if len(set(domains.values())) < len(domains):  # domains of several hosts
        assert parse(read_source(tmp_path / "m.yaml"), None).domains == tree.domains == domains
        data = {row["topology"]: row for row in yaml.safe_load((tmp_path / "topology.yaml").read_text())}
        assert data["tree"]["cluster_default"] is True
        assert data["block"]["block"]["block_sizes"] == [18, 36, 72]


def test_one_rack_has_blocks_alone_and_one_host_nothing(tmp_path: Path) -> None:
    rows = yaml.safe_load(topology_text(resolve_cluster("gb200-nvl72"), "slurm"))
    assert [row["topology"] for row in rows] == ["block"]
    with pytest.raises(InputError, match="a single host"):
        write_topology(resolve_cluster("hgx-h100"), tmp_path / "topology.yaml", "slurm")


def through_json(spec: ClusterSpec) -> ClusterSpec:
    return spec_from_dict(json.loads(json.dumps(spec_to_dict(spec), allow_nan=False)))


WRITTEN = {
    "tori": """
name: b
domains:
- {gpu: tpu-v5p, structure: torus, shape: [2, 2, 4], wrap: false, link: 100 GB/s, gpus_per_node: 4}
- {part: tpu-v5p, shape: [4, 4, 8]}
fabric: {kind: dragonfly, nic: 100 Gb/s, nodes_per_router: 4, routers_per_group: 4}
""",
    "a fat tree": """
name: c
domains: [{part: hgx-h100, count: 8}]
fabric: {kind: fat-tree, nic: 400 Gb/s, nics_per_gpu: 2, planes: 2, oversubscription: [2, 2], nodes_per_leaf: 2,
  leaves_per_pod: 2, spines: 4}
""",
    "groups in groups": """
name: 'on'
domains: [{gpu: h100-sxm, structure: nested, members: [4, 8], links_per_member: [2, 11], gpus_per_node: 2,
  link: 25 GB/s, rate_checked: true}]
""",
    "a GPU of one's own": """
name: e
gpus: {mine: {hbm_bytes: 40 GiB, bf16_flop_per_s: 100 TFLOP/s}}
domains:
- {gpu: mine, gpus: 8, gpus_per_node: 4, structure: switch, links_per_switch: [2, 2], link: 25 GB/s, latency: 1 us}
""",
    "prices and faults": """
name: f
prices: {h100-sxm: 2.5 USD/h}
domains: [{part: hgx-h100, count: 2}]
broken: [{gpu: d0.n0.g1}, {gpu: d0.n0.g2, factor: 0.7}, {link: [d1.n0.g2, d1.s1], factor: 0.5}]
""",
    "a raw graph with odd names": """
name: g
nodes:
- {id: 'a b', kind: gpu, gpu: h100-sxm, rack: 'yes'}
- {id: '007', kind: gpu, gpu: h100-sxm}
- {id: leaf, kind: leaf}
links:
- {between: ['a b', leaf], rate: 50 GB/s}
- {between: ['a b', '007'], count: 3, rate: 12.5 GB/s, latency: 700 ns}
broken: [{link: ['a b', '007'], factor: 0.5}]
""",
}


@pytest.mark.parametrize("text", WRITTEN.values(), ids=WRITTEN)
def test_cluster_yaml_of_what_users_write(tmp_path: Path, text: str) -> None:
    first, second = tmp_path / "a.yaml", tmp_path / "b.yaml"
    first.write_text(text)
    cluster = resolve_cluster(str(first))
    second.write_text(cluster_to_yaml(cluster.spec, ["where it is from"]))
    assert through_json(cluster.spec) == cluster.spec
    again = resolve_cluster(str(second))
    assert nx.utils.graphs_equal(again.graph, cluster.graph)
    assert again.spec.name == cluster.spec.name
    for gpu, old in zip(
        (d.gpu for d in again.spec.domains), (d.gpu for d in cluster.spec.domains), strict=True
    ):
        assert (gpu.hbm_bytes, gpu.figures.keys()) == (old.hbm_bytes, old.figures.keys())


def test_a_host_whose_gpus_are_all_broken_is_in_no_tree() -> None:
    leaf = {"id": "l", "kind": "leaf"}
    gpus = [{"id": f"h{n}g", "kind": "gpu", "gpu": "h100", "domain": "d", "node": f"h{n}"} for n in range(3)]
    nodes = [*gpus, *({"id": f"h{n}n", "kind": "nic", "node": f"h{n}"} for n in range(3)), leaf]
    ends = [pair for n in range(3) for pair in ((f"h{n}g", f"h{n}n"), (f"h{n}n", "l"))]
    links = [{"between": pair, "rate": "50 GB/s"} for pair in ends]
    cluster = resolve_cluster({"name": "x", "nodes": nodes, "links": links, "broken": [{"gpu": "h1g"}]})
    assert 'nodes: "h[0,2]"' in topology_text(cluster, "slurm")
    assert "h1" not in topology_text(cluster, "topograph")
