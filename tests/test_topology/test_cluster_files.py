"""From a name, a file or plain data to a cluster: what is read, and each mistake in one line with a remedy."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from cost.inputs.machine import stage_rates
from graph_contract import validate_graph
from topology import (
    InputError,
    cluster_from_dict,
    cluster_names,
    cluster_to_dict,
    load_domain,
    resolve_cluster,
    spec_from_dict,
    spec_to_dict,
)
from topology.changes.repeat import repeated
from topology.cluster import Cluster
from topology.exporters.cluster_yaml import cluster_to_yaml
from topology.files.cluster_file import read_cluster
from topology.physical import physical_of_whole, power_share


def read(folder: Path, text: str) -> Cluster:
    path = folder / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    return resolve_cluster(str(path))


@pytest.mark.parametrize(
    ("name", "gpus"),
    [
        (name, gpus)
        for name in cluster_names()
        for gpus in (1, 2, 4)
        if not load_domain(name).whole and gpus <= load_domain(name).gpus_per_node
    ],
)
def test_a_part_of_a_host_is_a_cluster(name: str, gpus: int) -> None:
    full, cluster = load_domain(name), resolve_cluster(f"{name}@{gpus}")
    (domain,) = cluster.spec.domains
    assert (len(cluster.gpus), domain.gpus_per_node, domain.nodes) == (gpus, gpus, 1)
    ends = cluster.wiring.scale_up_bytes_per_s[[cluster.wiring.number[gpu.id] for gpu in cluster.gpus]]
    if full.structure == "nested":
        assert ends.min() == domain.scale_up_bytes_per_s
    else:
        switched = full.structure != "mesh"  # its links to the switches are all its own
        links = full.links_per_gpu if switched else full.links_per_gpu // (full.gpus - 1) * (gpus - 1)
        assert domain.links_per_gpu == links
        assert np.array_equal(ends, [domain.scale_up_bytes_per_s] * gpus, equal_nan=True)
    assert power_share(domain) == power_share(full)
    whole_w = physical_of_whole(resolve_cluster(name)).power.value
    part_w = None if whole_w is None else pytest.approx(whole_w * gpus / full.gpus)
    assert physical_of_whole(cluster).power.value == part_w
    if cluster.spec.scale_out is not None:
        hosts = repeated(cluster, 3).wiring
        out = hosts.is_kind("gpu")[hosts.a] != hosts.is_kind("gpu")[hosts.b]
        out &= hosts.domain[hosts.a] != hosts.domain[hosts.b]
        assert hosts.count[out].sum() == 3 * gpus * cluster.spec.scale_out.nic_links_per_gpu
    written = read_cluster(yaml.safe_load(cluster_to_yaml(cluster.spec)), "it", "it")
    assert cluster_from_dict(cluster_to_dict(cluster)).spec == written == cluster.spec


@pytest.mark.parametrize("value", [None, 3, True, [1], b"hgx-h100", Path("no.yaml"), {}, {1: 2}])
def test_what_is_no_cluster_is_refused(value: object) -> None:
    with pytest.raises(InputError):
        resolve_cluster(value)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("hgx-h10", "hgx-h100"),
        ("hgx-h100@٨", "hgx-h100@8"),
        ("hgx-h100@3", "are hgx-h100@2 or hgx-h100@4"),
        ("gb200-nvl72@74", "are gb200-nvl72@72 or gb200-nvl72@76"),
        ("hgx-h100@99999992", "at most"),
        ("nvl72", "did you mean gb200-nvl72 or gb300-nvl72 or vr-nvl72"),
        ("tpu-v5p@128", "tpu-v5p@4x4x8"),
        ("tpu-v6e@128", "tpu-v6e@8x16"),
        ("tpu-v5p@3x4x4", "must divide"),
        ("tpu-v6e@2x128", "16 in a dimension"),
        ("trn2-ultra@100", "multiple of 64"),
    ],
)
def test_a_name_that_cannot_be_is_refused_with_what_can(text: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        resolve_cluster(text)
    assert hint in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("hosts", "part", "row", "sizes"),
    [
        (64, "hgx-h100", "kind: rail, oversubscription: 2", {"nodes_per_pod": 32, "spines": 4}),
        # 3:1: 48 down are six hosts, 16 up; 11 leaves x 16 / 64 = 2.75, so four spines of four links a leaf
        (64, "hgx-h100", "kind: leaf-spine, oversubscription: 3", {"nodes_per_pod": 6, "spines": 4}),
        # leaves of four hosts, pods of 32 leaves under 32 spines, four pods; 4 x 32 / 64 = 2 cores above spine i
        (512, "hgx-h100", "kind: fat-tree", {"nodes_per_leaf": 4, "leaves_per_pod": 32, "cores": 2}),
        (512, "hgx-h100", "kind: fat-tree, oversubscription: [1, 3]", {"leaves_per_pod": 48, "spines": 32}),
        # p = 16 NIC links (two hosts), 32 routers, 16 global links a router: 16 + 31 + 16 = 63
        (200, "hgx-h100", "kind: dragonfly", {"nodes_per_leaf": 2, "leaves_per_pod": 32, "local_links": 1}),
    ],
)
def test_sizes_of_a_fabric_follow_from_the_ports_of_a_switch(
    hosts: int, part: str, row: str, sizes: dict[str, int]
) -> None:
    fabric = yaml.safe_load(f"{{{row}, nic: 400 Gb/s}}")
    out = resolve_cluster({"domains": [{"part": part, "count": hosts}], "fabric": fabric}).spec.scale_out
    assert {name: getattr(out, name) for name in sizes} == sizes


@settings(deadline=None, max_examples=20)
@given(
    st.sampled_from(["rail", "leaf-spine", "fat-tree", "dragonfly"]),
    st.sampled_from([1, 2, 3, 4, 7]),
    st.sampled_from([16, 36, 64, 144]),
    st.integers(2, 40),
    st.sampled_from(["hgx-h100", "mi300x", "lecture-8"]),
)
def test_every_fabric_that_is_read_joins_all(kind: str, over: int, radix: int, hosts: int, part: str) -> None:
    row: dict[str, object] = {"kind": kind, "nic": "400 Gb/s", "oversubscription": over}
    if kind != "rail":
        row["radix"] = radix
    try:
        cluster = resolve_cluster({"domains": [{"part": part, "count": hosts}], "fabric": row})
        graph = cluster.graph
    except InputError as error:
        assert "\n" not in str(error)  # noqa: PT017 - some sizes cannot be cabled, and say so
        return
    validate_graph(graph)
    kinds = nx.get_node_attributes(graph, "kind")
    fabric = graph.edge_subgraph(
        [e for e in graph.edges if {"leaf", "spine", "core", "router"} & {kinds[n] for n in e}]
    )
    assert nx.is_connected(fabric)
    assert {gpu.id for gpu in cluster.gpus} <= set(fabric)
    if kind != "rail":  # a spine there is a plane, whatever its ports
        for node in fabric:
            if kinds[node] != "gpu":
                assert sum(fabric.edges[node, o]["count"] for o in fabric[node]) <= radix


RAW = """
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


def test_a_raw_file_by_hand(tmp_path: Path) -> None:
    cluster = read(tmp_path, RAW)
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
    rates = stage_rates(cluster, range(4), ["bf16"])
    assert (rates.up_bytes_per_s, rates.out_bytes_per_s) == (225e9, 25e9)
    data = yaml.safe_load(RAW)
    data["links"] = [{**link, "between": link["between"][::-1]} for link in data["links"][::-1]]
    assert read(tmp_path, yaml.safe_dump(data)).spec.domains == cluster.spec.domains


def test_domains_follow_from_links_where_none_is_named() -> None:
    nodes = [{"id": f"g{i}", "kind": "gpu", "gpu": "mi300x"} for i in range(5)]
    links = [{"between": ["g0", "g2"], "rate": "64 GB/s"}, {"between": ["g1", "g3"], "rate": "64 GB/s"}]
    links += [{"between": [f"g{i}", "t"], "rate": "25 GB/s" if i == 4 else "50 GB/s"} for i in range(5)]
    cluster = resolve_cluster({"nodes": [*nodes, {"id": "t", "kind": "leaf"}], "links": links})
    assert [(gpu.id, gpu.domain) for gpu in cluster.gpus] == [
        *(("g0", 0), ("g2", 0), ("g1", 1), ("g3", 1), ("g4", 2))
    ]
    assert cluster.spec.domains[2].scale_up_bytes_per_s == 0
    with pytest.raises(InputError, match="GPU g4 has no working scale-up link"):
        stage_rates(cluster, range(5), ["bf16"])
    links += [{"between": ["g4", "h"], "rate": "64 GB/s"}]  # another host, without a link out
    more = {"id": "h", "kind": "gpu", "gpu": "mi300x", "node": "far"}
    joined = resolve_cluster({"nodes": [*nodes, more, {"id": "t", "kind": "leaf"}], "links": links}).spec
    assert joined.scale_out is not None
    assert joined.scale_out.scale_out_bytes_per_s == 25e9, "of the host that has least"
    assert joined.scale_out.oversubscription == 1
    alone = resolve_cluster({"nodes": [{"id": "g", "kind": "gpu", "gpu": "h100-sxm"}]})
    assert ([gpu.id for gpu in alone.gpus], alone.graph.number_of_edges()) == (["g"], 0)


PODS = "domains: [{part: hgx-h100, count: 4}]\nfabric: {kind: rail, nic: 400 Gb/s, nodes_per_pod: 2}\n"
HOST = "domains: [{part: hgx-h100}]\n"
OWN_HOST = "gpu: h100-sxm, gpus: 8, gpus_per_node: 8, structure: switch, links_per_switch: [5], link: 25 GB/s"
TORUS = "gpu: tpu-v5p, structure: torus, shape: [4, 4, 4]"
MISTAKES = [
    ("", "mapping"),
    ("domains: [{part: hgx-h10}]", "hgx-h100"),
    ("domains: [{part: gb200-nvl72, gpus: 10}]", "8 or 12"),
    (f"domains: [{{{OWN_HOST.replace('25 GB/s', '25')}}}]", "has no unit"),
    (f"domains: [{{{OWN_HOST.replace('h100-sxm', 'h100-sxn')}}}]", "h100-sxm"),
    (f"domains: [{{{OWN_HOST}, count: 2}}]", "fabric"),
    (HOST + "prices: {h100-sxm: 2 USD/h, H100 SXM: 3 USD/h}", "prices: H100 SXM: h100-sxm has two prices"),
    (HOST + "color: red", "unknown key `color`"),
    ("nodes: [{id: s, kind: switch}]", "none has the kind gpu"),
    # tori
    ("domains: [{part: tpu-v5p, gpus: 32}]", "a shape, not a count"),
    (f"domains: [{{{TORUS.replace('tpu-v5p', 'gb200')}, wrap: true, link: 50 GB/s}}]", "gpus_per_node"),
    (f"domains: [{{{TORUS}, wrap: yes please, link: 100 GB/s}}]", "true, false"),
    (f"domains: [{{{TORUS}, wrap: true, link: [100 GB/s]}}]", "1 link rates for 3"),
    # fabrics
    *(
        (f"domains: [{{part: hgx-h100, count: 256}}]\nfabric: {{nic: 400 Gb/s, {row}}}", words)
        for row, words in [
            ("kind: leaf-spine, radix: 8", "cannot combine 8 links"),
            ("kind: leaf-spine, nodes_per_leaf: 2, spines: 2, radix: 8", "do not depend on it"),
            ("kind: leaf-spine, radix: 16", "use `kind: fat-tree`"),
            ("kind: rail, oversubscription: [1, 4]", "has 2 entries"),
            ("kind: fat-tree, spines: 5", "evenly over 5"),
            ("kind: leaf-spine, nodes_per_leaf: 1, spines: 2, oversubscription: 3", "2.66667 uplinks"),
            ("kind: dragonfly, nodes_per_router: 1, routers_per_group: 9999", "check the sizes of leaves"),
            ("kind: rail, nodes_per_pod: 18, spines: 9, oversubscription: 6", "too few for one to each of 9"),
            ("kind: rail, planes: 2, nics_per_gpu: 3", "do not divide evenly over 2 planes"),
        ]
    ),
    # graphs
    *(
        (RAW.replace(old, new), words)
        for old, new, words in [
            ("[a0, sa]", "[a0, sx]", "no node has the id 'sx'"),
            ("kind: switch}", "kind: swich}", "'swich' is not one of gpu"),
            ("{id: a1, kind: gpu, gpu: h100-sxm", "{id: a1, kind: gpu", "needs the key `gpu`"),
            ("[na, leaf], rate: 400 Gb/s", "[na, leaf]", "needs its `rate`"),
            ("[sb, b1], count: 8, fabric: nvlink4", "[sb, b1], fabric: nvlink5", "different fabric or rate"),
            ("count: 9, rate: 25 GB/s", "rate: 25 Gb/s", "an eighth of that"),
            ("[na, leaf], rate: 400 Gb/s", "[na, leaf], rate: 400 GB/s", "400 Gb/s was probably meant"),
        ]
    ),
    # faults
    *(
        (f"{PODS}broken: {rows}", words)
        for rows, words in [
            ("[{gpu: d9.n0.g0}]", "no GPU has the id 'd9.n0.g0'"),
            ("[{gpu: d0.n0.g0}, {gpu: d0.n0.g0}]", "duplicate GPU"),
            ("[{link: [d0.n0.g0, d0.s9]}]", "no node has the id 'd0.s9'"),
            ("[{link: [d0.n0.g0, d0.s0], factor: 1.5}]", "at most 1"),
            ("[{link: [d0.n0.g0, d1.s0]}]", "no link"),
            ("[{switch: d0.s0}, {switch: d0.s0, factor: 0.5}]", "duplicate switch d0.s0"),
            ("[{switch: d0.s1, leaf: f.p0.l0}]", "an entry names one part"),
            ("[{nic: d9.n0.g0}]", "no NIC, and no GPU with a NIC, has the id 'd9.n0.g0'"),
            ("[{leaf: f.s0}]", "no leaf has the id 'f.s0'"),
            ("[{plane: 7}]", "no plane '7'; planes between domains: 0, 1"),
            ("[{node: d0.n18}]", "there is no d0.n18"),
            ("[{node: d0.n0, factor: 0.5}]", "can only be down entirely"),
            ("[{link: [d0.n0.g0, f.p0.l0], cabled_to: f.p9.l0}]", "no leaf has the id 'f.p9.l0'"),
            ("[{link: [d0.n0.g0, f.p0.l0], cabled_to: f.p0.l1, factor: 0.5}]", "a second entry"),
            ("[{gpu: d0.n0.g0, cabled_to: f.p0.l1}]", "only for whole links"),
            ("[{link: [f.p0.l0, f.s0], cabled_to: f.s1}]", "this would duplicate an existing link"),
        ]
    ),
]


@pytest.mark.parametrize(("text", "words"), MISTAKES)
def test_mistakes_in_a_file_get_one_line(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        _ = read(tmp_path, text).wiring
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


# Units that are off


H100 = "gpu: h100-sxm, gpus: 8, gpus_per_node: 8, structure: switch, links_per_switch: [5, 5, 4, 4]"
OWN = "gpus: {x1: {hbm_bytes: 10 GB, hbm_bytes_per_s: 1 TB/s, bf16_flop_per_s: 10 TFLOP/s%s}}\n"
ROW = "gpu: x1, gpus: 4, gpus_per_node: 4, structure: switch, links_per_switch: [2], link_kind: nvlink"
RACKS = "domains: [{part: gb200-nvl72, count: 2}]\nfabric: {kind: rail, nic: %s{}}"
KNOWN = "domains: [{part: hgx-h100}]\ngpus: {h100-sxm: {%s{}}}"
WHOLE = OWN % ", fp8_flop_per_s: 20 TFLOP/s{}" + "domains: [{" + ROW + ", link: 50 GB/s}]"
ALIKE = WHOLE.replace("10 GB", "80 GB").replace("1 TB/s", "3.35 TB/s")


def domain_row(row: str) -> str:
    return f"domains: [{{{row}{{}}}}]"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (domain_row(f"{H100}, link: 25 Gb/s"), "25 GB/s was probably meant"),
        (domain_row(f"{H100}, link: 50 GB/s"), "so both directions were probably counted; give 25 GB/s"),
        (domain_row(f"{H100}, link: 200 GB/s"), "so Gb/s was probably written as GB/s; 25 GB/s"),
        (domain_row(f"{H100}, link: 450 GB/s"), "the total rate of all links"),
        (domain_row(f"{H100}, link: 1 GB/s"), "far less"),
        (domain_row(f"{H100}, link: 60 GB/s"), "more than it can carry"),
        (domain_row(f"{H100.replace('[5, 5, 4, 4]', '[9, 9, 9, 9]')}, link: 25 GB/s"), "both directions"),
        (domain_row(f"{TORUS}, wrap: true, link: 100 Gb/s"), "100 GB/s was probably meant"),
        (domain_row(f"{H100}, link: 25 GB/s, latency: 0.5 ms"), "one hop inside a scale-up domain"),
        (OWN % "" + domain_row(f"{ROW}, link: 25 Gb/s"), "too slow for one nvlink link"),
        (OWN % "" + domain_row(f"{ROW}, link: 900 GB/s"), "ONE direction"),
        (RACKS % "400 GB/s", "400 Gb/s was probably meant"),
        (RACKS % "1 Gb/s", "8 Gb/s was probably meant"),
        (KNOWN % "bf16_flop_per_s: 1979 TFLOP/s", "with 2:4 sparsity"),
        (KNOWN % "hbm_bytes_per_s: 3.35 Tb/s", "bits and bytes"),
        (KNOWN % "power_w: 10.2 kW", "is it that of the whole host?"),
        (KNOWN % "usd_per_h: 2500 USD/h", "too large for the price of one GPU-hour"),
        (WHOLE.replace("10 GB", "80 TB"), "too large for the memory of one GPU"),
        (WHOLE.replace("1 TB/s", "3.35 GB/s"), "too small for the bandwidth of one GPU's memory"),
        (WHOLE.replace("20 TFLOP/s", "9 TFLOP/s"), "slower than BF16 at 10 Tflop/s; were the two swapped?"),
        (ALIKE.replace("10 T", "1979 T").replace("20 T", "3958 T"), "twice the dense peak of h100-sxm"),
    ],
)
def test_what_is_off_by_a_unit_is_refused_unless_one_insists(tmp_path: Path, text: str, words: str) -> None:
    before, after = text.rsplit("{}", 1)
    with pytest.raises(InputError) as caught:
        read(tmp_path, before + after)
    assert words in str(caught.value)
    assert "rate_checked: true" in str(caught.value)
    assert "\n" not in str(caught.value)
    read(tmp_path, f"{before}, rate_checked: true{after}")


# Plain data


@pytest.mark.parametrize(
    ("name", "path", "value", "words"),
    [
        ("gb200-nvl72@144", "name", "", "cluster"),
        ("gb200-nvl72@144", "domains.0.count", 0, "cluster"),
        ("gb200-nvl72@144", "domains.0.structure", "lattice", "cluster"),
        ("gb200-nvl72@144", "domains.0.gpu.figures.hbm_bytes.value", float("nan"), "cluster"),
        ("gb200-nvl72@144", "scale_out", None, "cluster"),
        ("hgx-h100@16", "faults", [{}], "faults[0]"),
        ("hgx-h100@16", "faults", [{"link": ["d0.n0.g0"]}], "faults[0]"),
        ("hgx-h100@16", "faults", [{"gpu": "d0.n0.g1", "factor": float("nan")}], "faults[0]"),
        ("hgx-h100@16", "domains.0.structure", "raw", "under `raw`"),
        ("hgx-h100@16", "scale_out.kind", "raw", "under `raw`"),
        ("hgx-h100@16", "domains.0.links_per_swich", [1], "unknown key `links_per_swich`"),
        ("tpu-v5p", "domains.0.wrap", [True, 1, True], ""),
        ("tpu-v5p", "domains.0.wrap", [True], "wrap has 1 entries"),
        ("tpu-v5p", "domains.0.node_shape", [2, 2], ""),
        ("tpu-v5p", "domains.0.shape", [4, 4, 5], "80 places"),
        ("mi300x", "domains.0.links_per_neighbour", 0, "links_per_neighbour"),
    ],
)
def test_data_that_cannot_be_is_refused(name: str, path: str, value: object, words: str) -> None:
    data: Any = copy.deepcopy(spec_to_dict(resolve_cluster(name).spec))
    assert spec_from_dict(data) == resolve_cluster(name).spec
    place = data
    *keys, last = path.split(".")
    for key in keys:
        place = place[int(key) if key.isdigit() else key]
    place[last] = value
    with pytest.raises(InputError) as caught:
        spec_from_dict(data, "plan.json: cluster")
    assert words in str(caught.value)
    assert str(caught.value).startswith("plan.json")


def test_what_is_equal_is_one_key() -> None:
    domain = resolve_cluster("hgx-h100").spec.domains[0]
    same = replace(domain, notes=domain.notes)
    assert same is not domain
    assert (same, hash(same)) == (domain, hash(domain))
    assert pickle.loads(pickle.dumps(domain)) == domain  # noqa: S301 - our own
    with pytest.raises(InputError, match="SwitchDomain: 9 GPUs do not fill whole nodes of 8"):
        replace(domain, gpus=9)
