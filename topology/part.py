"""A part of a cluster: some of its GPUs, with the ids, the links and the faults that they have in the whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from topology.build import build_cluster
from topology.cluster import Cluster


def part_of(cluster: Cluster, gpus: Iterable[int], name: str = "") -> Cluster:
    """Return the cluster of some GPUs of ``cluster``, by number; the rest are there, but not ours.

    Parameters
    ----------
    name:
        Of the part; empty: that of the whole, said to be a part.

    Notes
    -----
    Its specification names whole domains and nodes where all of their GPUs that work are in the part.
    """
    chosen = sorted(set(gpus))
    inside = [cluster.gpus[gpu] for gpu in chosen]
    domains, nodes = Counter(gpu.domain for gpu in cluster.gpus), Counter(gpu.node for gpu in cluster.gpus)
    ours, hosts = Counter(gpu.domain for gpu in inside), Counter(gpu.node for gpu in inside)
    raw = cluster.spec.raw is not None
    names: dict[str, None] = {}
    for gpu in inside:
        if not raw and ours[gpu.domain] == domains[gpu.domain]:
            names[f"d{gpu.domain}"] = None
        elif not raw and hosts[gpu.node] == nodes[gpu.node]:
            names[gpu.node] = None
        else:
            names[gpu.id] = None
    spec = replace(cluster.spec, name=name or f"part of {cluster.name}", part=tuple(names))
    return build_cluster(spec)
