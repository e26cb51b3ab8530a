"""Hosts in a graph: their GPUs, switch chips, direct links and PCIe."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from topology.base.errors import InputError, called
from topology.base.figures import Figure
from topology.base.units import format_quantity
from topology.importers.answers import inner_fabric
from topology.importers.completed import Draft
from topology.importers.found import NodeFound, Nodes
from topology.spec import FabricSpec
from topology.structures.mesh import MeshDomain
from topology.structures.switch import SwitchDomain


def gpu_id(host: str, number: int) -> str:
    """Return the id of a host's GPU."""
    return f"{host}.g{number}"


def socket_id(host: str, node: NodeFound, socket: str) -> str:
    """Return the id of the node that represents a socket of a host."""
    return f"{host}.socket{node.socket_number(socket)}"


def add_domain(draft: Draft, label: str, hosts: Nodes) -> None:
    """Add the GPUs of one scale-up domain and the links between them.

    ``hosts`` gives the dump of each host, None where there is none and the system of the catalog is taken.
    """
    counts = {
        host: draft.answers.per_node if node is None else node.gpu_count for host, node in hosts.items()
    }
    for host, count in counts.items():
        for number in range(count):
            draft.node(gpu_id(host, number), "gpu", label, host, rail=number)
    system, links_of_hosts = draft.answers.parts.system, dict[str, list[int]]()
    for host, node in hosts.items():
        if node is not None and node.gpus:
            if node.hidden:
                links_of_hosts[host] = list(node.links_of_gpus.values())
            else:
                _add_own_links(draft, label, host, node)
        elif system is not None and system.switched:
            links_of_hosts[host] = [system.links_per_gpu] * counts[host]
        else:
            _add_mesh(draft, host, counts[host])
    if links_of_hosts:
        _add_chips(draft, label, links_of_hosts)
    for host, node in hosts.items():
        if node is not None and node.over_pcie:
            _add_pcie(draft, host, node)


def _add_chips(draft: Draft, label: str, hosts: dict[str, list[int]]) -> None:
    """Add the switch chips of a domain: the catalog's where every GPU has as many links, else one for all."""
    system, fabric = draft.answers.parts.system, draft.answers.scale_up
    chips = system.links_per_switch if isinstance(system, SwitchDomain) else ()
    by_chip = chips and all(count in (0, sum(chips)) for own in hosts.values() for count in own)
    names = [f"{label}.s{i}" for i in range(len(chips))] if by_chip else [f"{label}.switch"]
    for name in names:
        draft.node(name, "switch", label)
    for host, own in hosts.items():
        for number, count in enumerate(own):
            for chip, links in zip(names, chips if by_chip else (count,), strict=True):
                if count:
                    draft.link(gpu_id(host, number), chip, fabric, links)
    if by_chip and system is not None:
        each = "/".join(str(count) for count in (chips[:1] if len(set(chips)) == 1 else chips))
        draft.log.assume(
            f"{len(chips)} switch chips, {each} links of each GPU: catalog system {system.part}."
        )
    else:
        draft.log.assume(
            "The files do not distinguish the switch chips of a domain, so one represents all of them."
        )


def _add_own_links(draft: Draft, label: str, host: str, node: NodeFound) -> None:
    """Add the links that a host's dump has one by one."""
    names = {gpu: gpu_id(host, number) for number, gpu in enumerate(node.gpus)}
    for chip in node.chips:
        names[chip] = draft.node(f"{host}.{chip}", "switch", label, host)
    for a, b, count in node.links:
        draft.link(names[a], names[b], draft.answers.scale_up, count)


def _add_mesh(draft: Draft, host: str, count: int) -> None:
    """Add the full mesh of a host that has no dump of its own."""
    system, name = draft.answers.parts.system, draft.answers.options.gpu
    if not isinstance(system, MeshDomain) or system.gpus != count:
        what = (
            f"{system.part} is a {system.structure} of {system.gpus} GPUs" if system else "it has no system"
        )
        raise InputError(
            f"{what}, which hosts of an imported fabric cannot have; use it by name, like "
            f"{system.part if system else name}@N.",
            field="gpu",
            value=name,
        )
    for a, b in combinations(range(count), 2):
        draft.link(gpu_id(host, a), gpu_id(host, b), draft.answers.scale_up, system.links_per_neighbour)


def _add_pcie(draft: Draft, host: str, node: NodeFound) -> None:
    """Join the GPUs of a host over PCIe: their switches, and one `host` node a socket."""
    sockets = list(dict.fromkeys(node.sockets))
    for socket in sockets:
        draft.node(socket_id(host, node, socket), "host", host=host)
    chains = node.switches or ((),) * len(node.gpus)
    for number, (chain, socket) in enumerate(zip(chains, node.sockets, strict=True)):
        link = pcie_link(draft, node, number)
        at = add_switches(draft, host, node, chain, socket_id(host, node, socket), link)
        draft.link(gpu_id(host, number), at, link)
    if node.between_sockets:
        for a, b in combinations(sockets, 2):
            draft.link(socket_id(host, node, a), socket_id(host, node, b), draft.answers.socket_link)


def pcie_link(draft: Draft, node: NodeFound | None, gpu: int) -> FabricSpec | None:
    """Return the PCIe link of a GPU: the dump's, else the option's, if either has it."""
    found = node.pcie[gpu] if node is not None and gpu < len(node.pcie) else None
    return _pcie(draft, found)


def _pcie(draft: Draft, found: Figure | None) -> FabricSpec | None:
    if found is not None:
        return inner_fabric("pcie", found)
    if draft.answers.pcie is not None:
        draft.log.assume(f"PCIe of a GPU: {draft.answers.options.pcie} each way ({called('pcie')}).")
    return draft.answers.pcie


def add_switches(
    draft: Draft, host: str, node: NodeFound, chain: Sequence[str], root: str, below: FabricSpec | None
) -> str:
    """Add the PCIe switches of ``chain``, from ``root`` (an id, or empty) down, and return the id of the last.

    Where no file gives the rate of a switch's uplink it is the option's, else that of ``below``.
    """
    for name in chain:
        own = f"{host}.{name}"
        if own not in draft.nodes:
            draft.node(own, "pcie", host=host)
            if root:
                found = node.uplinks.get(name)
                link = _pcie(draft, found) or below
                draft.link(own, root, link)
                if found is None and link is not None:
                    rate = format_quantity(link.link_bytes_per_s.value, "byte/s")
                    draft.log.assume(f"Uplink of {name}, {node.place}: {rate}; no file gives its rate.")
        root = own
    return root
