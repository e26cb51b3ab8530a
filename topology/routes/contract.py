"""Smaller graphs for routing: GPUs that hang on one switch alike become one terminal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from topology.routes.network import Network

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

__all__ = ["Contracted", "contract"]


@dataclass(frozen=True)
class Contracted:
    """A network between classes of terminals.

    A class has an ``exit`` node that links only leave and an ``entry`` node that links only enter, so nothing
    passes through it; they are one node where terminals forward. A class of several members has one neighbour, so
    a member's own link carries all it sends or receives.

    Attributes
    ----------
    labels:
        ``[terminals]`` class of each.
    exit, entry:
        ``[classes]`` nodes.
    tail, head, weight, latency_s, tier:
        Its links.
    origin:
        ``[links given]`` which of its links stands for each link given, -1 where none does.
    sender, receiver:
        ``[links given]`` the one terminal that sends, or receives, all that the link carries; -1 elsewhere.
    """

    nodes: int
    classes: int
    labels: Ints
    exit: Ints
    entry: Ints
    tail: Ints
    head: Ints
    weight: Floats
    latency_s: Floats
    tier: Ints
    origin: Ints
    sender: Ints
    receiver: Ints

    def spread(self, load_bytes: Floats, sent: Floats, received: Floats) -> Floats:
        """Return the bytes on each link given, from those on the links here and the sums of each terminal."""
        load = np.where(self.origin >= 0, load_bytes[self.origin], 0.0) if len(self.tail) else np.zeros(0)
        load = np.where(self.sender >= 0, sent[self.sender], load)
        return np.where(self.receiver >= 0, received[self.receiver], load)


def contract(network: Network, links: Ints, terminals: Ints, *, forward: bool) -> Contracted:
    """Contract the given links of ``network`` around its ``terminals`` (GPU numbers)."""
    place = np.full(len(network.names), -1, dtype=np.int64)
    place[terminals] = np.arange(len(terminals))
    tail, head = network.tail[links], network.head[links]
    if forward:
        labels, lone = np.arange(len(terminals)), np.zeros(len(terminals), dtype=bool)
    else:
        alike = np.stack([network.latency_s[links], network.tier[links]], axis=1)
        labels, lone = _classes(place, tail, head, alike)
    classes = int(labels.max(initial=-1)) + 1
    middle = np.setdiff1d(np.union1d(tail, head), terminals)
    inner = np.full(len(network.names), -1, dtype=np.int64)
    inner[middle] = np.arange(len(middle))
    exits = len(middle) + np.arange(classes)
    entries = exits if forward else exits + classes
    from_terminal, to_terminal = place[tail] >= 0, place[head] >= 0
    new_tail = np.where(from_terminal, exits[labels[place[tail]]] if classes else -1, inner[tail])
    new_head = np.where(to_terminal, entries[labels[place[head]]] if classes else -1, inner[head])
    nodes = len(middle) + (classes if forward else 2 * classes)
    kept, origin = np.unique(new_tail * nodes + new_head, return_inverse=True)
    first = np.zeros(len(kept), dtype=np.int64)
    first[origin[::-1]] = np.arange(len(links))[::-1]
    sender = np.where(from_terminal & lone[place[tail]], place[tail], -1)
    receiver = np.where(to_terminal & lone[place[head]], place[head], -1)
    return Contracted(
        nodes=nodes,
        classes=classes,
        labels=labels,
        exit=exits,
        entry=entries,
        tail=new_tail[first],
        head=new_head[first],
        weight=network.weight[links][first],
        latency_s=network.latency_s[links][first],
        tier=network.tier[links][first],
        origin=origin,
        sender=sender,
        receiver=receiver,
    )


def _classes(place: Ints, tail: Ints, head: Ints, alike: Floats) -> tuple[Ints, NDArray[np.bool_]]:
    """Return the class of each terminal, and whether it has one neighbour, which is no terminal.

    Such terminals of one neighbour, over links with equal rows of ``alike``, are one class; every other terminal is
    its own.
    """
    terminals = int(place.max(initial=-1)) + 1
    outgoing = np.flatnonzero(place[tail] >= 0)
    who = place[tail[outgoing]]
    degree = np.bincount(who, minlength=terminals)
    neighbour = np.full(terminals, -1, dtype=np.int64)
    neighbour[who] = head[outgoing]
    like = np.zeros((terminals, alike.shape[1]))
    like[who] = alike[outgoing]
    lone = (degree == 1) & (place[neighbour] < 0)
    own = np.where(lone, -1, np.arange(terminals))
    key = np.column_stack([np.where(lone, neighbour, -1), own, like * lone[:, None]])
    _, labels = np.unique(key, axis=0, return_inverse=True)
    return labels.reshape(-1), lone
