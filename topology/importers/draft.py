"""A cluster as it is put together: nodes and links in the order they are added, each with its rate."""

from __future__ import annotations

from dataclasses import dataclass, field

from topology.base.errors import InputError
from topology.base.values import MAX_COUNT
from topology.importers.answers import Answers
from topology.spec import FabricSpec, RawLink, RawNode, RawTopology


@dataclass
class Draft:
    """Nodes by id, and the fabric and count of the links between each two, with the answers that rates come from."""

    answers: Answers
    nodes: dict[str, RawNode] = field(default_factory=dict)
    links: dict[tuple[str, str], tuple[FabricSpec, int]] = field(default_factory=dict)

    def node(
        self,
        name: str,
        kind: str,
        domain: str | None = None,
        host: str | None = None,
        rail: int | None = None,
    ) -> str:
        """Add a node and return its id, which no other may have."""
        if name in self.nodes:
            raise InputError(f"two parts are named {name}: a {self.nodes[name].kind} and a {kind}.")
        gpu = self.answers.gpu if kind == "gpu" else None
        self.nodes[name] = RawNode(id=name, kind=kind, domain=domain, node=host, rail=rail, gpu=gpu)
        return name

    def free(self, name: str) -> str:
        """Return ``name``, with a sign behind it for each node that has it."""
        while name in self.nodes:
            name += "+"
        return name

    def link(self, a: str, b: str, fabric: FabricSpec, count: int = 1) -> None:
        """Add links of a fabric; where links of another rate join the two already, those stay."""
        pair = (a, b) if (a, b) in self.links or (b, a) not in self.links else (b, a)
        old, earlier = self.links.get(pair, (fabric, 0))
        if (old.name, *rate_of(old)) == (fabric.name, *rate_of(fabric)):
            self.links[pair] = (old, count + earlier)

    @property
    def domains(self) -> dict[str, dict[str, list[RawNode]]]:
        """The GPUs of each host of each domain, in order."""
        domains: dict[str, dict[str, list[RawNode]]] = {}
        for node in self.nodes.values():
            if node.kind == "gpu":
                domains.setdefault(node.domain or "", {}).setdefault(node.node or "", []).append(node)
        return domains

    @property
    def raw(self) -> RawTopology:
        """The graph; rejected if a rate implies more links between two parts than supported."""
        for (a, b), (_, count) in self.links.items():
            if count > MAX_COUNT:
                limit = f"the maximum is {MAX_COUNT:,}"
                raise InputError(f"{a} and {b} are connected by {count:.3g} links; {limit}.")
        links = (RawLink(between=pair, fabric=fabric, count=n) for pair, (fabric, n) in self.links.items())
        return RawTopology(nodes=tuple(self.nodes.values()), links=tuple(links))


def rate_of(fabric: FabricSpec) -> tuple[float, float]:
    """Return bytes/s and latency of a link; links of equal ones are of the same fabric."""
    return fabric.link_bytes_per_s.value, fabric.latency_s.value


def bytes_per_s(link: RawLink) -> float:
    """Return the rate of parallel links together, per direction."""
    return link.count * link.fabric.link_bytes_per_s.value
