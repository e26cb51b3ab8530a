"""Hosts in a raw graph: their GPUs, switch chips, direct links and PCIe."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from networkx.utils import UnionFind

from topology.base.errors import InputError
from topology.base.reading import Fields
from topology.base.units import format_quantity
from topology.importers.found import NodeFound, Nodes
from topology.importers.parts import Parts, ask_all
from topology.spec import FabricSpec, RawLink, RawNode, RawTopology
from topology.structures.domain import DomainSpec
from topology.structures.mesh import MeshDomain
from topology.structures.switch import SwitchDomain


class Draft:
    """Nodes and links, in the order they are added."""

    def __init__(self) -> None:
        self.nodes: dict[str, RawNode] = {}
        self._links: dict[tuple[str, str], tuple[FabricSpec, int]] = {}

    def node(self, node: RawNode) -> str:
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

    def link(self, a: str, b: str, fabric: FabricSpec, count: int = 1) -> bool:
        """Add links; False where the two are joined by links of another kind or rate already."""
        pair = (a, b) if (a, b) in self._links or (b, a) not in self._links else (b, a)
        old = self._links.get(pair)
        if old is not None and _alike(old[0]) != _alike(fabric):
            return False
        self._links[pair] = (old[0] if old else fabric, count + (old[1] if old else 0))
        return True

    def topology(self) -> RawTopology:
        """Return the graph.

        Raises
        ------
        InputError
            If a rate came to more links than any two things are joined by.
        """
        for (a, b), (_, count) in self._links.items():
            if count > Fields.most:
                raise InputError(f"{a} and {b} are joined by {count:.3g} links; the most is {Fields.most:,}.")
        links = tuple(RawLink(pair, fabric, count) for pair, (fabric, count) in self._links.items())
        return RawTopology(tuple(self.nodes.values()), links)


def _alike(fabric: FabricSpec) -> tuple[str, float, float]:
    """Return what two links must share to be parallel; where a figure was read does not matter."""
    return fabric.name, fabric.link_bytes_per_s.value, fabric.latency_s.value


def gpu_id(host: str, number: int) -> str:
    """Return the id of a host's GPU."""
    return f"{host}.g{number}"


def gpu_count(node: NodeFound | None, parts: Parts) -> int:
    """Return the GPUs of a host: of its own dump, else of the parts named."""
    if node is None or (not node.gpus and not node.devices):
        return parts.gpus_per_node()
    return len(node.gpus) or node.devices


def add_domain(draft: Draft, label: str, hosts: Nodes, parts: Parts) -> None:
    """Add the GPUs of one scale-up domain and the links between them.

    ``hosts`` gives the dump of each host, None where there is none and the system of the catalog is taken.
    """
    for host, node in hosts.items():
        for number in range(gpu_count(node, parts)):
            draft.node(RawNode(gpu_id(host, number), "gpu", label, host, rail=number, gpu=parts.gpu))
    shared = {host: node for host, node in hosts.items() if _on_shared_switches(node, parts)}
    if shared:
        _add_switches(draft, label, shared, parts)
    for host, node in hosts.items():
        if host not in shared and node is not None:
            _add_own_links(draft, label, host, node, parts)
        elif host not in shared:
            _add_mesh(draft, host, parts)


def _on_shared_switches(node: NodeFound | None, parts: Parts) -> bool:
    """Whether a host's GPUs hang on switches that its dump does not tell apart (or that the catalog describes)."""
    if node is None or not node.gpus:
        return parts.need_system().switched
    return node.hidden


def _add_switches(draft: Draft, label: str, hosts: Nodes, parts: Parts) -> None:
    """Add the switch chips of a domain: the catalog's where every GPU has as many links, else one for all."""
    fabric = parts.scale_up
    counts = {host: _links_of_gpus(node, parts) for host, node in hosts.items()}
    system = parts.system
    chips = system.links_per_switch if isinstance(system, SwitchDomain) else ()
    told_apart = chips and all(count in (0, sum(chips)) for own in counts.values() for count in own)
    ids = [f"{label}.s{i}" for i in range(len(chips))] if told_apart else [f"{label}.switch"]
    names = [draft.node(RawNode(chip, "switch", label)) for chip in ids]
    for host, own in counts.items():
        for number, count in enumerate(own):
            for chip, links in zip(names, chips if told_apart else (count,), strict=True):
                if count:
                    draft.link(gpu_id(host, number), chip, fabric, links)
    if told_apart and system is not None:
        each = "/".join(str(count) for count in (chips[:1] if len(set(chips)) == 1 else chips))
        parts.take(f"{len(chips)} switch chips, {each} links of each GPU: catalog system {system.part}.")
    else:
        parts.take("Switch chips of a domain are not told apart by the files: one stands for all of them.")
    for host, node in hosts.items():
        without = [number for number, count in enumerate(counts[host]) if not count]
        if without and node is not None:
            _add_pcie(draft, host, node, parts)


def links_of_gpus(node: NodeFound) -> dict[str, int]:
    """Return the scale-up links of each GPU of a dump."""
    per = dict.fromkeys(node.gpus, 0)
    for a, b, count in node.links:
        for end in per.keys() & {a, b}:
            per[end] += count
    return per


def _links_of_gpus(node: NodeFound | None, parts: Parts) -> list[int]:
    """Return the scale-up links of each GPU of a host."""
    if node is None or not node.gpus:
        return [parts.need_system().links_per_gpu] * gpu_count(node, parts)
    return list(links_of_gpus(node).values())


def _add_own_links(draft: Draft, label: str, host: str, node: NodeFound, parts: Parts) -> None:
    """Add the links that a host's dump tells one by one."""
    names = {gpu: gpu_id(host, number) for number, gpu in enumerate(node.gpus)}
    for chip in node.chips:
        names[chip] = draft.node(RawNode(f"{host}.{chip}", "switch", label, host))
    for a, b, count in node.links:
        draft.link(names[a], names[b], parts.scale_up, count)
    if len(node.gpus) > 1 and _parts_of(node) > 1:
        _add_pcie(draft, host, node, parts)


def _parts_of(node: NodeFound) -> int:
    """Return into how many groups scale-up links divide the GPUs of a host."""
    joined: UnionFind[str] = UnionFind()
    for a, b, _ in node.links:
        joined.union(a, b)
    return len({joined[gpu] for gpu in node.gpus})


def _add_pcie(draft: Draft, host: str, node: NodeFound, parts: Parts) -> None:
    """Join the GPUs of a host over PCIe: their switches, and one `host` node a socket.

    The link between sockets is only needed where a socket would be cut off; a GPU without NVLink reaches the
    others through those of its own socket.
    """
    sockets = list(dict.fromkeys(node.sockets))
    linked = {end for a, b, _ in node.links for end in (a, b)}
    joined = {socket for gpu, socket in zip(node.gpus, node.sockets, strict=True) if gpu in linked}
    one_fabric = bool(linked) and _parts_of(node) == 1 + sum(gpu not in linked for gpu in node.gpus)
    need_link = len(sockets) > 1 and (len(joined) < len(sockets) or not one_fabric)
    figures = [*node.pcie, *([None] * len(node.gpus))][: len(node.gpus)]
    rates = [lambda: [parts.pcie(figure) for figure in figures]]
    ask_all(node.place, *rates, *([parts.socket_link] if need_link else []))
    for socket in sockets:
        draft.node(RawNode(socket_id(host, node, socket), "host", node=host))
    chains = node.switches or ((),) * len(node.gpus)
    for number, (chain, figure) in enumerate(zip(chains, figures, strict=True)):
        link = parts.pcie(figure)
        at = add_switches(draft, host, node, chain, socket_id(host, node, node.sockets[number]), link, parts)
        draft.link(gpu_id(host, number), at, link)
    if need_link:
        for a, b in combinations(sockets, 2):
            draft.link(socket_id(host, node, a), socket_id(host, node, b), parts.socket_link())


def socket_id(host: str, node: NodeFound, socket: str) -> str:
    """Return the id of the node that stands for a socket of a host, the first where it has no GPUs."""
    sockets = list(dict.fromkeys(node.sockets))
    return f"{host}.socket{sockets.index(socket) if socket in sockets else 0}"


def add_switches(
    draft: Draft,
    host: str,
    node: NodeFound,
    chain: Sequence[str],
    root: str,
    unsaid: FabricSpec,
    parts: Parts,
) -> str:
    """Add the PCIe switches of ``chain``, from ``root`` (an id, or empty) down, and return the id of the last.

    Where no file gives the rate of a switch's uplink it is the option's, else ``unsaid``.
    """
    for name in chain:
        own = f"{host}.{name}"
        if own not in draft.nodes:
            draft.node(RawNode(own, "pcie", node=host))
            if root:
                found = node.uplinks.get(name)
                link = parts.pcie(found) if found or parts.options.pcie else unsaid
                draft.link(own, root, link)
                if not found:
                    rate = format_quantity(link.link_bytes_per_s.value, "byte/s")
                    parts.take(f"Uplink of {name}, {node.place}: {rate}; no file says its rate.")
        root = own
    return root


def _add_mesh(draft: Draft, host: str, parts: Parts) -> None:
    """Add the full mesh of a host that has no dump of its own."""
    system: DomainSpec = parts.need_system()
    count = parts.gpus_per_node()
    if not isinstance(system, MeshDomain) or system.gpus != count:
        raise InputError(
            f"option `gpu` {parts.options.gpu}: {system.part} is a {system.structure} of {system.gpus} GPUs, which "
            f"hosts of an imported fabric cannot be; use it by name, like {system.part}@N."
        )
    for a, b in combinations(range(count), 2):
        draft.link(gpu_id(host, a), gpu_id(host, b), parts.scale_up, system.links_per_neighbour)
