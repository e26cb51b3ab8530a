"""SimAI's topology text, as :mod:`topology.importers.simai` reads it and SimAI's ``gen_Topo_Template.py`` writes it.

Nodes are numbered: GPUs, then NVSwitches, then the other switches. A server of it is a scale-up domain. The links
between two nodes are one line with their rate in all.
"""

from __future__ import annotations

import re
from collections import Counter

from topology.cluster import Cluster
from topology.errors import InputError
from topology.exporters.limits import decimal, refuse_kinds, refuse_unpublished

_ERROR_RATE = 0


def simai_topology(cluster: Cluster) -> str:
    """Return the topology of ``cluster`` in SimAI's text.

    Raises
    ------
    InputError
        If domains differ in size, GPUs pass on what others send, or it has what SimAI has no node for.
    """
    graph = cluster.graph
    refuse_kinds(cluster, "SimAI", ("nic", "pcie", "host"))
    refuse_unpublished(cluster, "SimAI")
    if any(domain.shape for domain in cluster.spec.domains):
        raise InputError(
            f"{cluster.name}: GPUs of a torus pass on what others send; in SimAI only switches do."
        )
    sizes = sorted(set(Counter(gpu.domain for gpu in cluster.gpus).values()))
    if len(sizes) > 1:
        raise InputError(
            f"{cluster.name}: its domains have {' and '.join(map(str, sizes))} GPUs; those of SimAI have as many."
        )
    kinds: dict[str, str] = {node: data["kind"] for node, data in graph.nodes(data=True)}
    chips = [node for node, kind in kinds.items() if kind == "switch"]
    outer = [node for kind in ("leaf", "router", "spine", "core") for node in kinds if kinds[node] == kind]
    order = [*(gpu.id for gpu in cluster.gpus), *chips, *outer]
    number = {node: place for place, node in enumerate(order)}
    model = re.sub(r"\W", "", cluster.spec.domains[0].gpu.name.split("-")[0]).upper()
    lines = [
        f"{len(order)} {sizes[0]} {len(chips)} {len(outer)} {graph.number_of_edges()} {model}",
        " ".join(str(number[node]) for node in (*chips, *outer)),
    ]
    pairs = sorted(
        (min(number[a], number[b]), max(number[a], number[b]), data) for a, b, data in graph.edges(data=True)
    )
    for a, b, data in pairs:
        rate, latency = decimal(data["bytes_per_s"] * 8 / 1e9), decimal(data["latency_s"] * 1e3)
        lines.append(f"{a} {b} {rate}Gbps {latency}ms {_ERROR_RATE}")
    return "\n".join(lines) + "\n"
