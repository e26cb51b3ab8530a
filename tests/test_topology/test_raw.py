"""Raw graphs: domains, rates and order as the file has them, and what cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from cost.inputs.machine import stage_rates
from graph_contract import validate_graph
from topology import (
    InputError,
    load_fabric,
    load_gpu,
    resolve_cluster,
)
from topology.cluster import Cluster

H100 = load_gpu("h100-sxm")
NVLINK, NDR = load_fabric("nvlink4"), load_fabric("ib-ndr400")

FILE = """
name: two hosts
nodes:
  - {id: b0, kind: gpu, gpu: h100-sxm, domain: B, node: hostb, rack: r2}
  - {id: a0, kind: gpu, gpu: h100-sxm, domain: A, node: hosta, rack: r1, rail: 1}
  - {id: b1, kind: gpu, gpu: h100-sxm, domain: B, node: hostb, rack: r2}
  - {id: a1, kind: gpu, gpu: h100-sxm, domain: A, node: hosta, rack: r1, rail: 0}
  - {id: sa, kind: switch}
  - {id: sb, kind: switch, domain: B}
  - {id: na, kind: nic, node: hosta}
  - {id: leaf, kind: leaf}
links:
  - {between: [a0, sa], count: 18, fabric: nvlink4}
  - {between: [a1, sa], count: 9, rate: 25 GB/s, latency: 0.3 us, fabric: mine}
  - {between: [b0, sb], count: 18, fabric: nvlink4}
  - {between: [b1, sb], count: 10, fabric: nvlink4}
  - {between: [sb, b1], count: 8, fabric: nvlink4}
  - {between: [a0, na], rate: 64 GB/s}
  - {between: [na, leaf], rate: 400 Gb/s}
  - {between: [b0, leaf], fabric: ib-ndr400}
  - {between: [b1, leaf], fabric: ib-ndr400}
"""


def read(folder: Path, text: str) -> Cluster:
    path = folder / "mine.yaml"
    path.write_text(text)
    return resolve_cluster(str(path))


def test_a_raw_file_by_hand(tmp_path: Path) -> None:
    cluster = read(tmp_path, FILE)
    validate_graph(cluster.graph)
    assert cluster.name == "two hosts"
    assert [(g.id, g.domain, g.node, g.rack, g.rail) for g in cluster.gpus] == [
        ("b0", 0, "hostb", "r2", 0),
        ("b1", 0, "hostb", "r2", 1),
        ("a0", 1, "hosta", "r1", 1),
        ("a1", 1, "hosta", "r1", 0),
    ]
    b, a = cluster.spec.domains
    assert (b.structure, b.gpus, b.gpus_per_node) == ("raw", 2, 2)
    # two rows between b1 and sb are one bundle of 18; a1 has nine links, and the least counts
    assert cluster.graph.edges["b1", "sb"]["count"] == 18
    assert (b.scale_up_bytes_per_s, a.scale_up_bytes_per_s) == (450e9, 225e9)
    assert [cluster.graph.nodes[chip]["domain"] for chip in ("sa", "sb", "leaf")] == [1, 0, None]
    assert cluster.graph.edges["a1", "sa"]["latency_s"] == pytest.approx(0.3e-6)
    # host A has one NIC of 50 GB/s for two GPUs, host B one for each
    assert cluster.spec.scale_out is not None
    assert cluster.spec.scale_out.scale_out_bytes_per_s == 25e9
    rates = stage_rates(cluster, range(4), ["bf16"])
    assert (rates.up_bytes_per_s, rates.out_bytes_per_s) == (225e9, 25e9)


def test_the_order_of_links_and_of_their_ends_changes_nothing(tmp_path: Path) -> None:
    data = yaml.safe_load(FILE)
    data["links"] = [{**link, "between": link["between"][::-1]} for link in data["links"][::-1]]
    assert read(tmp_path, yaml.safe_dump(data)).spec.domains == read(tmp_path, FILE).spec.domains


def test_domains_follow_from_links_where_none_is_named(tmp_path: Path) -> None:
    nodes = [{"id": f"g{i}", "kind": "gpu", "gpu": "mi300x"} for i in range(5)]
    links = [{"between": ["g0", "g2"], "rate": "64 GB/s"}, {"between": ["g1", "g3"], "rate": "64 GB/s"}]
    links += [{"between": [f"g{i}", "t"], "rate": "50 GB/s"} for i in range(5)]
    cluster = read(tmp_path, yaml.safe_dump({"nodes": [*nodes, {"id": "t", "kind": "leaf"}], "links": links}))
    assert [(gpu.id, gpu.domain) for gpu in cluster.gpus] == [
        ("g0", 0),
        ("g2", 0),
        ("g1", 1),
        ("g3", 1),
        ("g4", 2),
    ]


def test_a_gpu_without_scale_up_links_is_kept_and_refused_when_scored(tmp_path: Path) -> None:
    text = FILE.replace(
        "  - {between: [a1, sa], count: 9, rate: 25 GB/s, latency: 0.3 us, fabric: mine}\n", ""
    )
    cluster = read(tmp_path, text + "  - {between: [a1, leaf], fabric: ib-ndr400}\n")
    assert cluster.spec.domains[1].scale_up_bytes_per_s == 0
    with pytest.raises(InputError, match="GPU a1 has no working scale-up link"):
        stage_rates(cluster, range(4), ["bf16"])


def test_one_gpu_needs_no_links(tmp_path: Path) -> None:
    cluster = read(tmp_path, "nodes: [{id: g, kind: gpu, gpu: h100-sxm}]")
    assert [gpu.id for gpu in cluster.gpus] == ["g"]
    assert cluster.graph.number_of_edges() == 0


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("[a0, sa]", "[a0, sx]", "no node has the id 'sx'"),
        ("[a0, sa]", "[a0]", "two ends"),
        ("kind: switch}", "kind: swich}", "'swich' is not one of gpu"),
        ("{id: a1, kind: gpu, gpu: h100-sxm", "{id: a1, kind: gpu", "needs the key `gpu`"),
        ("[na, leaf], rate: 400 Gb/s", "[na, leaf]", "needs its `rate`"),
        ("[na, leaf], rate: 400 Gb/s", "[na, leaf], rate: 400", "has no unit"),
        (
            "[sb, b1], count: 8, fabric: nvlink4",
            "[sb, b1], count: 8, fabric: nvlink5",
            "different fabric or rate",
        ),
        ("count: 9, rate: 25 GB/s", "count: 9, rate: 25 Gb/s", "an eighth of that"),
        ("rail: 1", "rail: -1", "whole number"),
    ],
)
def test_mistakes_get_one_line(tmp_path: Path, old: str, new: str, words: str) -> None:
    assert old in FILE
    with pytest.raises(InputError) as caught:
        read(tmp_path, FILE.replace(old, new))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "mine.yaml" in str(caught.value) or "two hosts" in str(caught.value)


def test_no_gpu_and_no_nodes(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="none has the kind gpu"):
        read(tmp_path, "nodes: [{id: s, kind: switch}]")
    with pytest.raises(InputError, match="nodes"):
        read(tmp_path, "links: []")
