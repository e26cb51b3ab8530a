"""Hosts in a raw graph: their GPUs, switch chips, direct links and PCIe, and the links of their NICs to leaves."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from networkx.utils import UnionFind

from topology.errors import InputError
from topology.importers.found import FabricFound, NodeFound, Nodes, PortFound, commonest
from topology.importers.parts import Parts, ask_all
from topology.spec import DomainSpec, FabricSpec, RawLink, RawNode, RawTopology


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
        """Return the graph."""
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
        return parts.need_system().structure == "switch"
    return node.hidden


def _add_switches(draft: Draft, label: str, hosts: Nodes, parts: Parts) -> None:
    """Add the switch chips of a domain: the catalog's where every GPU has as many links, else one for all."""
    fabric = parts.scale_up
    counts = {host: _links_of_gpus(node, parts) for host, node in hosts.items()}
    system = parts.system
    chips = system.links_per_switch if system is not None and system.structure == "switch" else ()
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


def _links_of_gpus(node: NodeFound | None, parts: Parts) -> list[int]:
    """Return the scale-up links of each GPU of a host."""
    if node is None or not node.gpus:
        return [parts.need_system().links_per_gpu] * gpu_count(node, parts)
    per = dict.fromkeys(node.gpus, 0)
    for a, b, count in node.links:
        per[a if a in per else b] += count
    return list(per.values())


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
    """Join the GPUs of a host over PCIe, one `host` node a socket.

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
    names = {
        socket: draft.node(RawNode(f"{host}.socket{i}", "host", node=host))
        for i, socket in enumerate(sockets)
    }
    for number, socket in enumerate(node.sockets):
        draft.link(gpu_id(host, number), names[socket], parts.pcie(figures[number]))
    if need_link:
        for a, b in combinations(sockets, 2):
            draft.link(names[a], names[b], parts.socket_link())


def _add_mesh(draft: Draft, host: str, parts: Parts) -> None:
    """Add the full mesh of a host that has no dump of its own."""
    system: DomainSpec = parts.need_system()
    count = parts.gpus_per_node()
    if system.structure != "mesh" or system.gpus != count:
        raise InputError(
            f"option `gpu` {parts.options.gpu}: {system.part} is a {system.structure} of {system.gpus} GPUs, which "
            f"hosts of an imported fabric cannot be; use it by name, like {system.part}@N."
        )
    for a, b in combinations(range(count), 2):
        draft.link(gpu_id(host, a), gpu_id(host, b), parts.scale_up, system.links_per_neighbour)


def add_nics(draft: Draft, fabric: FabricFound, nodes: Nodes, parts: Parts) -> None:
    """Link the GPUs of every host to the leaves its NICs are cabled to.

    A NIC that several GPUs share is a node of its own, reached at its own rate: the PCIe below it is taken as no
    narrower.
    """
    usual = commonest(len(ports) for ports in fabric.ports_by_host.values()) or 0
    for host, ports in fabric.ports_by_host.items():
        if host not in nodes:
            continue
        node = nodes[host]
        gpus = gpu_count(node, parts)
        if all(not port.nic and port.rate is None for port in ports):
            _whole_host(draft, host, gpus, ports[0], node, parts)
            continue
        for number, port in enumerate(ports):
            members = _members(fabric, port, number, node, gpus, usual, parts)
            rate = port.rate
            if rate is None and node is not None:
                rate = next((nic.rate for nic in node.nics if nic.name == port.nic), None)
            _connect(draft, host, port, members, parts.nic(rate))


def check_nics(fabric: FabricFound, nodes: Nodes, parts: Parts) -> None:
    """Compare the NICs of each host in the fabric with those of its dump; NICs that are not cabled are told.

    Raises
    ------
    InputError
        If a cabled NIC is not in the dump, or there are more cabled ports than NICs.
    """
    for host, every in fabric.ports_by_host.items():
        node, ports = nodes.get(host), [port for port in every if port.nic]
        if node is None or not node.nics or not ports:
            continue
        names = {nic.name for nic in node.nics}
        known = [port for port in ports if _base(port.nic, names) in names]
        if known and len(known) < len(ports):
            other = next(port for port in ports if port not in known)
            raise InputError(
                f"{other.place}: NIC {other.nic} of {host} is cabled, but {node.place} lists only "
                f"{', '.join(sorted(names))}."
            )
        if not known and len(ports) > len(node.nics):
            raise InputError(
                f"{ports[0].place}: {host} has {len(ports)} cabled NICs, but {node.place} lists {len(node.nics)}."
            )
        cabled = {_base(port.nic, names) for port in ports}
        missing = [nic.name for nic in node.nics if nic.near and nic.name not in cabled] if known else []
        if missing:
            parts.anomalies.append(
                f"{node.place}: {host}: {', '.join(missing)} beside a GPU, but {fabric.place} has no cable there."
            )


def _base(nic: str, names: set[str]) -> str:
    """Return a port's NIC without the port number that several ports of one adapter get."""
    return nic if nic in names else nic.rsplit(".", 1)[0]


def _whole_host(
    draft: Draft, host: str, gpus: int, port: PortFound, node: NodeFound | None, parts: Parts
) -> None:
    """Link every GPU of a host to its one leaf, by as many NICs as the GPU has."""
    nics = node.nics if node is not None and parts.options.nic is None else ()
    for number in range(gpus):
        own = [nic.rate for nic in nics if number in nic.near and nic.rate]
        for rate in own:
            _connect(draft, host, port, [number], parts.nic(rate))
        if not own:
            draft.link(gpu_id(host, number), port.switch, parts.nic(), parts.nics_per_gpu())


def _members(
    fabric: FabricFound,
    port: PortFound,
    number: int,
    node: NodeFound | None,
    gpus: int,
    usual: int,
    parts: Parts,
) -> list[int]:
    """Return the GPUs that a port serves."""
    if node is not None and node.nics:
        base = _base(port.nic, {nic.name for nic in node.nics})
        near = next((nic.near for nic in node.nics if nic.name == base), None)
        if near:
            parts.note("NIC to GPU: as the node's dump places them on PCIe.")
            return list(near)
    if fabric.rails and port.rail is not None:
        if fabric.rails == gpus:
            parts.note("NIC to GPU: rail r serves GPU r of its node (no file says; they are as many).")
            return [port.rail]
        return _shared(port.rail, fabric.rails, gpus, port, parts)
    return _shared(number, max(usual, number + 1), gpus, port, parts)


def _shared(number: int, count: int, gpus: int, port: PortFound, parts: Parts) -> list[int]:
    """Spread ``count`` NICs over ``gpus`` GPUs in order."""
    if count >= gpus and count % gpus == 0:
        parts.note(f"NIC to GPU: {count // gpus} to each GPU, in order (no file says which).")
        return [number * gpus // count]
    if gpus % count == 0:
        each = gpus // count
        parts.note(f"NIC to GPU: each NIC serves {each} GPUs, in order (no file says which).")
        return list(range(number * each, (number + 1) * each))
    raise InputError(
        f"{port.place}: {port.host} has {count} NICs for {gpus} GPUs, and no file says which is whose; add the "
        "`nvidia-smi topo -m` or NCCL XML of a node."
    )


def _connect(draft: Draft, host: str, port: PortFound, members: Sequence[int], nic: FabricSpec) -> None:
    """Link the GPUs of a port to its leaf, through a NIC node where they share it."""
    if len(members) == 1 and draft.link(gpu_id(host, members[0]), port.switch, nic):
        return
    name = f"{host}.{port.nic or 'nic'}"
    while name in draft.nodes:
        name += "+"
    hub = draft.node(RawNode(name, "nic", node=host))
    for member in members:
        draft.link(gpu_id(host, member), hub, nic)
    draft.link(hub, port.switch, nic)
