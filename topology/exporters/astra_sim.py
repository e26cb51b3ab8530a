"""ASTRA-sim's analytical network: one dimension for each level of a regular cluster, each with one rate and latency.

Its dimensions multiply, so a cluster can be said in it where every level has as many members everywhere: GPUs of a
domain (a switch, a full mesh, or the rings of a torus), domains under one set of leaves, sets of leaves, pods. The
rate is that of one link each way (of a switch: of an NPU), in GB/s; above leaves that are oversubscribed it is the
part that each NPU has. The latency is that of one link, in ns; ASTRA-sim counts two for a switch, and a dimension
above spines leads through twice as many.
"""

from __future__ import annotations

from dataclasses import dataclass

from topology.cluster import Cluster
from topology.errors import InputError
from topology.exporters.limits import decimal
from topology.spec import ClusterSpec, DomainSpec, ScaleOutSpec


@dataclass(frozen=True)
class _Dimension:
    """A level: its topology, members, bytes/s of a link and seconds of one."""

    topology: str
    size: int
    bytes_per_s: float
    latency_s: float


def astra_sim_network(cluster: Cluster) -> str:
    """Return ``cluster`` as the network file of ASTRA-sim's analytical backend.

    Raises
    ------
    InputError
        If it is no product of equal levels, or a rate is not published; the message says what is in the way.
    """
    spec = cluster.spec
    _refuse_irregular(spec)
    dimensions = [*_of_domain(spec), *_above(spec)]
    for one in dimensions:
        if not one.bytes_per_s > 0:
            raise InputError(f"{spec.name}: the rate of a link is not published, and ASTRA-sim wants one.")
    lines = {
        "topology": [one.topology for one in dimensions],
        "npus_count": [str(one.size) for one in dimensions],
        "bandwidth": [_float(one.bytes_per_s / 1e9) for one in dimensions],
        "latency": [_float(one.latency_s * 1e9) for one in dimensions],
    }
    units = {"bandwidth": "  # GB/s", "latency": "  # ns"}
    head = f"# {spec.name}: {spec.gpus} NPUs\n"
    return head + "".join(
        f"{key}: [ {', '.join(words)} ]{units.get(key, '')}\n" for key, words in lines.items()
    )


def _float(value: float) -> str:
    text = decimal(value)
    return text if "." in text else f"{text}.0"


def _no(spec: ClusterSpec, why: str) -> InputError:
    return InputError(f"{spec.name}: {why}; ASTRA-sim's network is a product of equal dimensions.")


def _refuse_irregular(spec: ClusterSpec) -> None:
    """Refuse what no product of dimensions can say."""
    if spec.raw is not None:
        raise _no(spec, "its nodes and links are written out one by one")
    if spec.faults:
        broken = spec.faults[0].gpu or " to ".join(spec.faults[0].link or ())
        raise _no(spec, f"{broken} is {'not as built' if spec.faults[0].factor else 'broken'}")
    if spec.part:
        raise _no(spec, "it is a part of a cluster")
    if any(domain != spec.domains[0] for domain in spec.domains):
        sizes = sorted({domain.gpus for domain in spec.domains})
        kinds = f"have {' and '.join(map(str, sizes))} GPUs" if len(sizes) > 1 else "are of different kinds"
        raise _no(spec, f"its domains {kinds}")


def _of_domain(spec: ClusterSpec) -> list[_Dimension]:
    """Return the dimensions inside a domain."""
    domain: DomainSpec = spec.domains[0]
    rate, latency = domain.fabric.link_bytes_per_s.value, domain.fabric.latency_s.value
    if domain.gpus == 1:
        return []
    if domain.links_per_switch:
        hops = 2 if domain.upper_switches else 1
        return [_Dimension("Switch", domain.gpus, domain.scale_up_bytes_per_s, hops * latency)]
    if not domain.shape:
        return [_Dimension("FullyConnected", domain.gpus, domain.links_per_neighbour * rate, latency)]
    found = []
    for size, wrap, fabric in zip(domain.shape, domain.wrap, domain.fabric_of_dimension, strict=True):
        if size > 2 and not wrap:
            raise _no(spec, f"a dimension of {size} GPUs is a line, not a ring")
        # a ring of two that wraps has two links between its two
        links = domain.links_per_neighbour * (2 if size == 2 and wrap else 1)
        if size > 1:
            found.append(
                _Dimension("Ring", size, links * fabric.link_bytes_per_s.value, fabric.latency_s.value)
            )
    return found


def _above(spec: ClusterSpec) -> list[_Dimension]:
    """Return the dimensions between domains: those on one set of leaves, sets of leaves in a pod, pods."""
    out, domains = spec.scale_out, len(spec.domains)
    if out is None or domains == 1:
        return []
    if out.kind not in ("rail", "leaf-spine", "fat-tree"):
        raise _no(spec, f"a {out.kind} fabric joins groups of routers, not of NPUs")
    found: list[_Dimension] = []
    per_level = 1
    for level, (hosts, share) in enumerate(_levels(out), 1):
        nodes = spec.domains[0].nodes
        below = hosts // nodes if hosts else domains
        if hosts and hosts % nodes and nodes % hosts:
            raise _no(spec, f"{hosts} hosts on a switch are no whole number of domains of {nodes}")
        below = min(max(below, 1), domains)
        if domains % below or below % per_level:
            raise _no(spec, f"{domains} domains do not fill switches of {below} evenly")
        if below > per_level:
            rate, latency = out.scale_out_bytes_per_s / share, out.fabric.latency_s.value
            found.append(_Dimension("Switch", below // per_level, rate, level * latency))
        per_level = below
    return found


def _levels(out: ScaleOutSpec) -> list[tuple[int, float]]:
    """Return the hosts below one switch (set) of each level, 0 for all, and what they are oversubscribed by."""
    if out.kind == "fat-tree":
        above = (0, out.oversubscription * out.core_oversubscription)
        return [(out.nodes_per_leaf, 1.0), (out.nodes_per_pod, out.oversubscription), above]
    return [(out.nodes_per_pod, 1.0), (0, out.oversubscription)]
