"""The inside of hosts and scale-up domains in a raw graph: GPUs, switch chips, direct links, PCIe where needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from topology.errors import InputError
from topology.importers.draft import Draft
from topology.importers.found import NodeFound
from topology.importers.parts import Parts, ask_all
from topology.spec import DomainSpec


def gpu_id(host: str, number: int) -> str:
    """Return the id of a host's GPU."""
    return f"{host}.g{number}"


def gpu_count(node: NodeFound | None, parts: Parts) -> int:
    """Return the GPUs of a host: of its own dump, else of the parts named."""
    if node is None or (not node.gpus and not node.devices):
        return parts.gpus_per_node()
    return len(node.gpus) or node.devices


def add_domain(draft: Draft, label: str, hosts: Mapping[str, NodeFound | None], parts: Parts) -> None:
    """Add the GPUs of one scale-up domain and the links between them.

    ``hosts`` gives the dump of each host, None where there is none and the system of the catalog is taken.
    """
    for host, node in hosts.items():
        for number in range(gpu_count(node, parts)):
            draft.node(gpu_id(host, number), "gpu", domain=label, node=host, rail=number, gpu=parts.gpu)
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


def _add_switches(draft: Draft, label: str, hosts: Mapping[str, NodeFound | None], parts: Parts) -> None:
    """Add the switch chips of a domain: the catalog's where every GPU has as many links, else one for all."""
    fabric = parts.scale_up
    counts = {host: _links_of_gpus(node, parts) for host, node in hosts.items()}
    system = parts.system
    chips = system.links_per_switch if system is not None and system.structure == "switch" else ()
    total = sum(chips)
    if chips and all(count in (0, total) for own in counts.values() for count in own):
        names = [draft.node(f"{label}.s{i}", "switch", domain=label) for i in range(len(chips))]
        for host, own in counts.items():
            for number, count in enumerate(own):
                for chip, links in zip(names, chips, strict=True):
                    if count:
                        draft.link(gpu_id(host, number), chip, fabric, links)
        part = system.part if system is not None else ""
        parts.taken[
            f"{len(chips)} switch chips, {_per_chip(chips)} links of each GPU: catalog system {part}."
        ] = None
    else:
        chip = draft.node(f"{label}.switch", "switch", domain=label)
        for host, own in counts.items():
            for number, count in enumerate(own):
                if count:
                    draft.link(gpu_id(host, number), chip, fabric, count)
        parts.taken[
            "Switch chips of a domain are not told apart by the files: one stands for all of them."
        ] = None
    for host, node in hosts.items():
        without = [number for number, count in enumerate(counts[host]) if not count]
        if without and node is not None:
            _add_pcie(draft, host, node, parts)


def _per_chip(chips: Sequence[int]) -> str:
    return str(chips[0]) if len(set(chips)) == 1 else "/".join(str(count) for count in chips)


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
        names[chip] = draft.node(f"{host}.{chip}", "switch", domain=label, node=host)
    if node.links:
        for a, b, count in node.links:
            draft.link(names[a], names[b], parts.scale_up, count)
    if len(node.gpus) > 1 and _parts_of(node) > 1:
        _add_pcie(draft, host, node, parts)


def _parts_of(node: NodeFound) -> int:
    """Return into how many groups scale-up links divide the GPUs of a host."""
    group = {name: name for name in (*node.gpus, *node.chips)}
    for a, b, _ in node.links:
        old, new = group[b], group[a]
        group = {name: new if value == old else value for name, value in group.items()}
    return len({group[gpu] for gpu in node.gpus})


def _add_pcie(draft: Draft, host: str, node: NodeFound, parts: Parts) -> None:
    """Join the GPUs of a host over PCIe, one `host` node a socket.

    The link between sockets is only needed where a socket would be cut off; a GPU without NVLink reaches the
    others through those of its own socket.
    """
    sockets = list(dict.fromkeys(node.sockets))
    linked = {end for a, b, _ in node.links for end in (a, b)}
    alone = [
        socket
        for socket in sockets
        if not any(gpu in linked for gpu, own in zip(node.gpus, node.sockets, strict=True) if own == socket)
    ]
    one_fabric = bool(linked) and _parts_of(node) == 1 + sum(gpu not in linked for gpu in node.gpus)
    need_link = len(sockets) > 1 and (bool(alone) or not one_fabric)
    figures = [*node.pcie, *([None] * len(node.gpus))][: len(node.gpus)]
    needs = [lambda: [parts.pcie(figure) for figure in figures]]
    ask_all(node.place, *needs, *([parts.socket_link] if need_link else []))
    names = {socket: draft.node(f"{host}.socket{i}", "host", node=host) for i, socket in enumerate(sockets)}
    for number, socket in enumerate(node.sockets):
        draft.link(gpu_id(host, number), names[socket], parts.pcie(figures[number]))
    if need_link:
        for i, a in enumerate(sockets):
            for b in sockets[i + 1 :]:
                draft.link(names[a], names[b], parts.socket_link())


def _add_mesh(draft: Draft, host: str, parts: Parts) -> None:
    """Add the full mesh of a host that has no dump of its own."""
    system: DomainSpec = parts.need_system()
    count = parts.gpus_per_node()
    if system.structure != "mesh" or system.gpus != count:
        raise InputError(
            f"--gpu {parts.options.gpu}: {system.part} is a {system.structure} of {system.gpus} GPUs, which hosts of "
            f"an imported fabric cannot be; use it by name, like {system.part}@N."
        )
    for a in range(count):
        for b in range(a + 1, count):
            draft.link(gpu_id(host, a), gpu_id(host, b), parts.scale_up, system.links_per_neighbour)
