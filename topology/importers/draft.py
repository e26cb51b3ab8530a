"""A raw graph under construction: nodes once each, links merged where they are alike."""

from __future__ import annotations

from topology.errors import InputError
from topology.spec import FabricSpec, GpuSpec, RawLink, RawNode, RawTopology


class Draft:
    """Nodes and links, in the order they are added."""

    def __init__(self) -> None:
        self.nodes: dict[str, RawNode] = {}
        self._links: dict[tuple[str, str], tuple[FabricSpec, int]] = {}

    def node(
        self,
        name: str,
        kind: str,
        *,
        domain: str | None = None,
        node: str | None = None,
        rack: str | None = None,
        rail: int | None = None,
        gpu: GpuSpec | None = None,
    ) -> str:
        """Add a node and return its id.

        Raises
        ------
        InputError
            If the id is taken.
        """
        if name in self.nodes:
            raise InputError(f"two things are called {name}: a {self.nodes[name].kind} and a {kind}.")
        self.nodes[name] = RawNode(name, kind, domain, node, rack, rail, gpu)
        return name

    def link(self, a: str, b: str, fabric: FabricSpec, count: int = 1) -> bool:
        """Add links; False where the two are joined by links of another kind or rate already."""
        pair = (a, b) if (a, b) in self._links or (b, a) not in self._links else (b, a)
        old = self._links.get(pair)
        if old is not None and _alike(old[0]) != _alike(fabric):
            return False
        self._links[pair] = (old[0] if old else fabric, count + (old[1] if old else 0))
        return True

    def topology(self) -> RawTopology:
        """Return the graph."""
        links = tuple(RawLink(pair, fabric, count) for pair, (fabric, count) in self._links.items())
        return RawTopology(tuple(self.nodes.values()), links)


def _alike(fabric: FabricSpec) -> tuple[str, float, float]:
    """Return what two links must share to be parallel; where a figure was read does not matter."""
    return fabric.name, fabric.link_bytes_per_s.value, fabric.latency_s.value
