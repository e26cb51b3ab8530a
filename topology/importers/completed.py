"""A cluster that nothing is missing of: every node and every link, each with its rate."""

from __future__ import annotations

from dataclasses import dataclass

from topology.base.errors import InputError
from topology.base.reading import Fields
from topology.importers.answers import Answers
from topology.spec import FabricSpec


@dataclass(frozen=True)
class Node:
    """A node: its kind, scale-up domain, host and cabinet, and a GPU's position or a leaf's rail."""

    id: str
    kind: str
    domain: str | None = None
    host: str | None = None
    rack: str | None = None
    rail: int | None = None


@dataclass(frozen=True)
class Link:
    """``count`` parallel links of ``fabric`` between two nodes."""

    between: tuple[str, str]
    fabric: FabricSpec
    count: int = 1

    @property
    def bytes_per_s(self) -> float:
        """Rate of all of them, per direction."""
        return self.count * self.fabric.link_bytes_per_s.value


@dataclass(frozen=True)
class Completed:
    """Every node and link of a cluster.

    ``domains`` gives the hosts of each scale-up domain; ``switched`` is unset where no file says how domains are
    cabled to each other, which then are as the design of the named system.
    """

    name: str
    place: str
    nodes: tuple[Node, ...]
    links: tuple[Link, ...]
    domains: dict[str, list[str]]
    answers: Answers
    switched: bool
    anomalies: tuple[str, ...] = ()


class Draft:
    """Nodes and links, in the order they are added."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self._links: dict[tuple[str, str], tuple[FabricSpec, int]] = {}

    def node(self, node: Node) -> str:
        """Add a node and return its id.

        Raises
        ------
        InputError
            If the id is taken.
        """
        if node.id in self.nodes:
            raise InputError(
                f"two things are called {node.id}: a {self.nodes[node.id].kind} and a {node.kind}."
            )
        self.nodes[node.id] = node
        return node.id

    def free(self, name: str) -> str:
        """Return ``name``, with a sign behind it for each node that has it."""
        while name in self.nodes:
            name += "+"
        return name

    def link(self, a: str, b: str, fabric: FabricSpec | None, count: int = 1) -> None:
        """Add links; where the two are joined by links of another kind or rate already, those stay.

        Raises
        ------
        TypeError
            If there is no fabric: then nobody was asked for a rate that is needed.
        """
        if fabric is None:
            raise TypeError(f"{a} to {b}: no rate")
        pair = (a, b) if (a, b) in self._links or (b, a) not in self._links else (b, a)
        old, before = self._links.get(pair, (fabric, 0))
        if _same(old, fabric):
            self._links[pair] = (old, count + before)

    @property
    def links(self) -> tuple[Link, ...]:
        """The links.

        Raises
        ------
        InputError
            If a rate came to more links than any two things are joined by.
        """
        for (a, b), (_, count) in self._links.items():
            if count > Fields.most:
                raise InputError(f"{a} and {b} are joined by {count:.3g} links; the most is {Fields.most:,}.")
        return tuple(Link(pair, fabric, count) for pair, (fabric, count) in self._links.items())


def _same(a: FabricSpec, b: FabricSpec) -> bool:
    """Whether links of two fabrics are parallel; where a figure was read does not matter."""
    return (a.name, a.link_bytes_per_s.value, a.latency_s.value) == (
        b.name,
        b.link_bytes_per_s.value,
        b.latency_s.value,
    )
