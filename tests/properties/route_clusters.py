"""Small clusters of every structure and fabric."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import TYPE_CHECKING

from helpers import domain_like, fabric_like
from topology import build_cluster, load_domain, load_scale_out, resolve_cluster
from topology.base.figures import Evidence, Figure
from topology.build import raw_cluster_spec
from topology.cluster import ClusterSpec
from topology.spec import FabricSpec, Fault, RawLink, RawNode, RawTopology
from topology.structures.domain import DomainSpec

if TYPE_CHECKING:
    from topology import Cluster


def fabric(name: str, rate: float, latency_s: float) -> FabricSpec:
    """a fabric of the benchmark."""
    figures = [
        Figure(value, unit, Evidence.USER, "benchmark")
        for value, unit in ((rate, "byte/s"), (latency_s, "s"))
    ]
    return FabricSpec(name, "link", *figures)


UP, OUT = fabric("up", 100e9, 0.5e-6), fabric("out", 50e9, 2e-6)


def domain(structure: str, gpus: int, per_node: int = 4, **rest: object) -> DomainSpec:
    """a domain of H100s in some structure."""
    base = load_domain("hgx-h100")
    known = {"nodes_per_rack": 1, "part": "custom", "fabric": UP, **rest}
    return domain_like(base, structure, gpus=gpus, gpus_per_node=per_node, **known)


def torus_domain(*shape: int, wrap: bool = True) -> DomainSpec:
    node = tuple(2 if size % 2 == 0 and k < 2 else 1 for k, size in enumerate(shape))
    sizes = {"shape": shape, "wrap": (wrap,) * len(shape), "links_per_neighbour": 1, "node_shape": node}
    return domain("torus", math.prod(shape), math.prod(node), **sizes)


def torus(*shape: int, wrap: bool = True) -> Cluster:
    return build_cluster(ClusterSpec("torus", (torus_domain(*shape, wrap=wrap),), None))


def tori_behind_leaves(*shape: int, domains: int) -> Cluster:
    """Tori whose chips have a NIC each, on leaves with a quarter of the uplinks."""
    spec = torus_domain(*shape)
    sizes = {"nodes_per_pod": spec.nodes, "spines": 2, "oversubscription": 4.0}
    out = fabric_like(load_scale_out("hgx-h100"), "leaf-spine", **sizes)
    return build_cluster(ClusterSpec("tori", (spec,) * domains, out))


def mesh(gpus: int) -> Cluster:
    """one full mesh."""
    return build_cluster(ClusterSpec("mesh", (domain("mesh", gpus, gpus, links_per_neighbour=1),), None))


def nested(members: tuple[int, ...], links: tuple[int, ...], gpus: int = 0, per_node: int = 2) -> Cluster:
    """one domain of groups in groups, or a part of it."""
    every = math.prod(members)
    spec = domain("nested", gpus or every, per_node, members=members, links_per_member=links)
    return build_cluster(ClusterSpec("nested", (spec,), None))


def fabric_of(kind: str, domains: int, **rest: object) -> Cluster:
    """HGX H100 hosts under a fabric."""
    spec = fabric_like(load_scale_out("hgx-h100"), kind, **rest)
    return build_cluster(ClusterSpec(kind, (load_domain("hgx-h100"),) * domains, spec))


def faulty(whole: Cluster, *links: tuple[str, str, float], gpu: str = "") -> Cluster:
    """A cluster with links that are slower by a factor, or gone (0.0), and without a GPU."""
    faults = [Fault(link=(a, b), factor=factor) for a, b, factor in links]
    faults += [Fault(gpu=gpu)] if gpu else []
    return build_cluster(replace(whole.spec, faults=tuple(faults)))


def random_raw(seed: int, gpus: int = 12, switches: int = 9) -> Cluster:
    """GPUs on a random connected graph of switches with unequal links."""
    rng = random.Random(seed)
    h100 = load_domain("hgx-h100").gpu
    nodes = [RawNode(f"g{i}", "gpu", f"d{i // 2}", f"h{i // 2}", gpu=h100) for i in range(gpus)]
    nodes += [RawNode(f"s{i}", "leaf") for i in range(switches)]
    ends = {(f"s{rng.randrange(i)}", f"s{i}") for i in range(1, switches)}
    while len(ends) < min(2 * switches, switches * (switches - 1) // 2):
        a, b = sorted(rng.sample(range(switches), 2))
        ends.add((f"s{a}", f"s{b}"))
    ends |= {(f"g{i}", f"s{s}") for i in range(gpus) for s in rng.sample(range(switches), 1 + i % 2)}
    kinds = [fabric("slow", 25e9, 1e-6), fabric("fast", 50e9, 2e-6)]
    links = tuple(RawLink(pair, rng.choice(kinds), rng.randint(1, 3)) for pair in sorted(ends))
    links += tuple(RawLink((f"g{i}", f"g{i + 1}"), UP, 2) for i in range(0, gpus, 2))
    return build_cluster(raw_cluster_spec(f"raw-{seed}", RawTopology(tuple(nodes), links)))


def shared_nics(hosts: int, nics: int) -> Cluster:
    """hosts of four GPUs, two of them on a PCIe switch with some NICs, each NIC on a leaf of its own."""
    h100 = load_domain("hgx-h100").gpu
    nodes = [RawNode(f"s{j}", "spine") for j in range(2)]
    nodes += [RawNode(f"l{pod}.{k}", "leaf") for pod in range(-(-hosts // 2)) for k in range(2 * nics)]
    links = [RawLink((node.id, f"s{j}"), OUT, 1) for node in nodes[2:] for j in range(2)]
    for host in range(hosts):
        nodes += [RawNode(f"h{host}g{i}", "gpu", f"d{host}", f"h{host}", gpu=h100) for i in range(4)]
        links += [RawLink((f"h{host}g{i}", f"h{host}g{j}"), UP, 1) for i in range(4) for j in range(i)]
        for k in range(2):
            nodes.append(RawNode(f"h{host}p{k}", "pcie", node=f"h{host}"))
            links += [RawLink((f"h{host}g{2 * k + i}", f"h{host}p{k}"), UP) for i in range(2)]
            for nic in range(k * nics, (k + 1) * nics):
                nodes.append(RawNode(f"h{host}n{nic}", "nic", node=f"h{host}"))
                links += [RawLink((f"h{host}p{k}", f"h{host}n{nic}"), UP)]
                links += [RawLink((f"h{host}n{nic}", f"l{host // 2}.{nic}"), OUT)]
    return build_cluster(raw_cluster_spec("shared", RawTopology(tuple(nodes), tuple(links))))


def two_tier() -> Cluster:
    """two domains of three planes, each with chips in the hosts and above them, on one leaf a host."""
    spec = domain("two-tier", 12, 4, links_per_switch=(1, 2, 1), upper_switches=2)
    out = fabric_like(load_scale_out("hgx-h100"), "leaf-spine", nodes_per_pod=1, spines=2)
    return build_cluster(ClusterSpec("two-tier", (spec, spec), out))


def random_planes(seed: int) -> Cluster:
    """GPUs with NICs in two or three planes; some lack one, some have a second link in one."""
    rng = random.Random(seed)
    h100 = load_domain("hgx-h100").gpu
    planes = range(rng.choice([2, 3]))
    nodes = [RawNode(f"g{i}", "gpu", f"d{i // 2}", f"h{i // 2}", gpu=h100) for i in range(12)]
    nodes += [RawNode(f"l{p}.{leaf}", "leaf") for p in planes for leaf in range(3)]
    nodes += [RawNode(f"s{p}.{spine}", "spine") for p in planes for spine in range(2)]
    nics = [(f"g{i}", f"l{p}.{i // 4}") for i in range(12) for p in planes if not p or rng.random() < 0.9]
    links = [RawLink(ends, OUT, 1 + (rng.random() < 0.1)) for ends in nics]
    cables = [(f"l{p}.{leaf}", f"s{p}.{spine}") for p in planes for leaf in range(3) for spine in range(2)]
    links += [RawLink(ends, OUT) for ends in cables if rng.random() < 0.97]
    links += [RawLink((f"g{i}", f"g{i + 1}"), UP, 2) for i in range(0, 12, 2)]
    return build_cluster(raw_cluster_spec("planes", RawTopology(tuple(nodes), tuple(links))))


CLUSTERS = {
    "fat-tree": lambda: fabric_of(
        "fat-tree", 6, nodes_per_pod=4, leaves_per_pod=2, spines=2, cores=2, core_oversubscription=2.0
    ),
    "dragonfly": lambda: fabric_of("dragonfly", 12, nodes_per_pod=4, leaves_per_pod=2, local_links=4),
    "gb200-nvl72": lambda: resolve_cluster("gb200-nvl72"),
    "hgx-h100@32, rails, pods of 2": lambda: fabric_of("rail", 4, nodes_per_pod=2, spines=2),
    "the same, with faults": lambda: faulty(
        fabric_of("rail", 4, nodes_per_pod=2, spines=2),
        ("d0.n0.g0", "d0.s1", 0.4),
        ("d2.n0.g5", "d2.s0", 0.0),
        ("f.p0.l2", "f.s1", 0.0),
        gpu="d1.n0.g3",
    ),
    "rails, NICs and uplinks lost or slow": lambda: faulty(
        fabric_of("rail", 6, nodes_per_pod=3, spines=2),
        ("d0.n0.g2", "f.p0.l2", 0.0),
        ("d1.n0.g4", "f.p0.l4", 0.5),
        ("f.p1.l1", "f.s0", 0.0),
        ("f.p1.l6", "f.s1", 0.25),
    ),
    "leaf-spine 4:1": lambda: fabric_of("leaf-spine", 4, nodes_per_pod=1, spines=2, oversubscription=4.0),
    "leaf-spine, 3 spines": lambda: fabric_of("leaf-spine", 6, nodes_per_pod=2, spines=3),
    "grid 4x4x4": lambda: torus(4, 4, 4, wrap=False),
    "tori 2x4 behind 4:1": lambda: tori_behind_leaves(2, 4, domains=4),
    "tori 4x4 behind 4:1": lambda: tori_behind_leaves(4, 4, domains=3),
    "full mesh of 8": lambda: mesh(8),
    "nested 4 x 4": lambda: nested((4, 4), (3, 12)),
    "part of a nested domain": lambda: nested((2, 4, 3), (1, 4, 4), gpus=16),
    "nested with faults": lambda: faulty(
        nested((4, 3), (2, 4)),
        ("d0.n0.g0", "d0.n0.g1", 0.0),
        ("d0.n0.g0", "d0.n3.g0", 0.0),
        ("d0.n2.g0", "d0.n2.g1", 0.5),
        gpu="d0.n5.g1",
    ),
    "two-tier domains": two_tier,
    "hosts that share NICs": lambda: shared_nics(4, 1),
    "planes with faults": lambda: random_planes(1),
    "random raw graph 1": lambda: random_raw(1),
    "random raw graph 2": lambda: random_raw(2),
}
