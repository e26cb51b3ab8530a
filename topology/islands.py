"""GPUs that cannot reach each other: named, never planned over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topology.errors import InputError

if TYPE_CHECKING:
    from topology.cluster import Cluster


MOST_NAMED = 4


def refuse_islands(cluster: Cluster) -> None:
    """Build the graph and check that all its GPUs reach each other.

    Raises
    ------
    InputError
        If they do not; the message names the islands.
    """
    import networkx as nx

    gpus = {gpu.id for gpu in cluster.gpus}
    islands = [
        sorted(gpus & part) for part in nx.connected_components(cluster.graph) if not gpus.isdisjoint(part)
    ]
    if len(islands) <= 1:
        return
    islands.sort(key=lambda island: (-len(island), island))
    words = [_words(island) for island in islands[:MOST_NAMED]]
    more = f" and {len(islands) - MOST_NAMED} more" if len(islands) > MOST_NAMED else ""
    raise InputError(
        f"{cluster.name}: its GPUs are not all connected: {len(islands)} islands, {'; '.join(words)}{more}. "
        "Add the missing links, or give each island as a cluster of its own."
    )


def _words(island: list[str]) -> str:
    """Say how many GPUs are on an island, and which."""
    some = ", ".join(island[:MOST_NAMED]) + (", ..." if len(island) > MOST_NAMED else "")
    return f"{len(island)} GPU{'s' * (len(island) > 1)} ({some})"
