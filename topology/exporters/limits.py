"""What formats of other tools have no word for, refused by name; and numbers as they write them."""

from __future__ import annotations

import math
from collections.abc import Collection
from decimal import Decimal

from topology.cluster import Cluster
from topology.errors import InputError


def refuse_kinds(cluster: Cluster, tool: str, kinds: Collection[str]) -> None:
    """Refuse a cluster that has nodes of these kinds.

    Raises
    ------
    InputError
        With the name of the first.
    """
    for node, data in cluster.graph.nodes(data=True):
        if data["kind"] in kinds:
            raise InputError(f"{cluster.name}: {node} is a {data['kind']}, which {tool} has no node for.")


def refuse_unpublished(cluster: Cluster, tool: str) -> None:
    """Refuse a cluster with a link whose rate nobody has published.

    Raises
    ------
    InputError
        With the names of its ends.
    """
    for a, b, data in cluster.graph.edges(data=True):
        if math.isnan(data["bytes_per_s"]):
            raise InputError(
                f"{cluster.name}: the rate of {a} to {b} ({data['fabric']}) is not published, and {tool} wants one."
            )


def decimal(value: float) -> str:
    """Return a number without an exponent, with as many digits as tell it from others."""
    text = format(Decimal(f"{value:.12g}"), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text
