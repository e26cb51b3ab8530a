"""What is broken or degraded, applied to a graph as built."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from topology.errors import InputError
from topology.spec import Fault

if TYPE_CHECKING:
    import networkx as nx


def apply_faults(graph: nx.Graph[str], faults: Sequence[Fault]) -> None:
    """Take out broken GPUs and links, and lower the rate of degraded links.

    ``graph.graph["broken_gpus"]`` and ``["broken_links"]`` keep what was taken out, ``["lost_bytes_per_s"]`` what
    each GPU lost of its scale-up rate.

    Raises
    ------
    InputError
        If a link names a node that does not exist, or two nodes that no link joins.
    """
    lost: dict[str, float] = {}
    gpus = [fault.gpu for fault in faults if fault.gpu is not None and fault.factor == 0]
    links: list[tuple[str, str]] = []
    for fault in faults:
        if fault.link is None:
            continue
        a, b = fault.link
        _check_link(graph, a, b)
        data = graph.edges[a, b]
        for end in (a, b):
            rate = data["count"] * data["link_bytes_per_s"] * (1 - fault.factor)
            lost[end] = lost.get(end, 0.0) + (rate if is_scale_up(graph, a, b) else 0.0)
        if fault.factor > 0:
            data["health"] = fault.factor
            data["bytes_per_s"] = data["count"] * data["link_bytes_per_s"] * fault.factor
        else:
            links.append((a, b))
    graph.remove_edges_from(links)
    for gpu in gpus:
        for other in graph[gpu]:
            if graph.nodes[other]["kind"] == "gpu":
                lost[other] = lost.get(other, 0.0) + graph.edges[gpu, other]["bytes_per_s"]
    graph.remove_nodes_from(gpus)
    graph.graph["broken_gpus"] = tuple(gpus)
    graph.graph["broken_links"] = tuple(links)
    graph.graph["lost_bytes_per_s"] = lost


def is_scale_up(graph: nx.Graph[str], a: str, b: str) -> bool:
    """Whether a link joins GPUs and switch chips of one domain."""
    one, other = graph.nodes[a], graph.nodes[b]
    return one["domain"] is not None and one["domain"] == other["domain"]


def _check_link(graph: nx.Graph[str], a: str, b: str) -> None:
    """Refuse a link that is not there."""
    for end in (a, b):
        if end not in graph:
            raise InputError(
                f"broken: link [{a}, {b}]: no node has the id {end!r}; `rackplan draw` shows the ids."
            )
    if not graph.has_edge(a, b):
        kinds: dict[str, list[str]] = {}
        for other in graph[a]:
            kinds.setdefault(graph.nodes[other]["kind"], []).append(other)
        some = [name for names in kinds.values() for name in names[:2]]
        raise InputError(
            f"broken: link [{a}, {b}]: no link joins these two; {a} has links to {', '.join(some[:6])} and "
            f"{max(0, len(graph[a]) - len(some[:6]))} more."
        )
