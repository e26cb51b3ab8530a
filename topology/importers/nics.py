"""The NICs of hosts in a graph: which GPUs each serves, through which PCIe, and the leaf it is cabled to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from topology.base.errors import InputError
from topology.base.figures import Evidence, Figure
from topology.base.names import natural
from topology.base.units import format_quantity
from topology.importers.answers import Answers, inner_fabric
from topology.importers.draft import Draft
from topology.importers.found import (
    FabricFound,
    NicFound,
    NodeFound,
    PortFound,
    groups_of,
)
from topology.importers.hosts import add_switches, gpu_id, pcie_link, socket_id
from topology.importers.pcie import crossed, deal
from topology.spec import FabricSpec


@dataclass(frozen=True)
class _Cable:
    """A NIC, the leaf it is cabled to, and the GPUs that it serves (by position); ``nic`` where a dump has it."""

    name: str
    leaf: str
    link: FabricSpec
    gpus: tuple[int, ...]
    count: int = 1
    nic: NicFound | None = None

    @property
    def switches(self) -> tuple[str, ...]:
        return self.nic.switches if self.nic else ()

    @property
    def bytes_per_s(self) -> float:
        return self.count * self.link.link_bytes_per_s.value


def add_nics(draft: Draft, fabric: FabricFound, nodes: Mapping[str, NodeFound]) -> None:
    """Link the GPUs of every host to the leaves its NICs are cabled to, each NIC once.

    The NICs of one GPU are links of its own. Those that several GPUs share, or that PCIe slows down, are nodes,
    reached over the switches that stand between; so are all of a host whose GPUs reach each other over PCIe alone.

    Raises
    ------
    InputError
        If a host's cables are not those of the NICs of its dump, or nothing says which GPUs its NICs serve.
    """
    for host, ports in fabric.ports_by_host.items():
        node = nodes[host]
        cables = _cables(draft, fabric, ports, node)
        for members, group in _sharing(cables, node):
            alone = len(members) == 1 and not _slowed(node, members[0], group)
            placed = all(cable.nic for cable in group)
            if placed and node.over_pcie and not (alone and node.links):
                for cable in group:
                    root = socket_id(host, node, cable.nic.socket if cable.nic else "")
                    at = add_switches(draft, host, node, cable.switches, root, cable.link)
                    _add_nic(draft, host, cable, at)
            elif alone:
                _attach_one(draft, host, members[0], group)
            else:
                _attach(draft, host, node, members, group)


def _cables(draft: Draft, fabric: FabricFound, ports: Sequence[PortFound], node: NodeFound) -> list[_Cable]:
    """Return the cables of a host: of each port, or where its ports have no names of each NIC of its dump."""
    answers, nics, gpus = draft.answers, {nic.name: nic for nic in node.nics}, node.gpu_count
    if all(not port.nic and port.rate is None for port in ports):
        if not nics:
            count = answers.nics_per_gpu
            answers.say("assumed", f"NIC to GPU: {count} per GPU (no file gives the number).")
            return [_Cable("nic", ports[0].switch, answers.nic, (gpu,), count) for gpu in range(gpus)]
        pairs = [(nic, ports[0].switch, nic.rate) for nic in nics.values()]
    else:
        paired = _paired(answers, fabric, ports, node)
        known = [nic for nic in paired if nic is not None]
        if len(known) < len(ports) or not any(nic.near for nic in known):
            return _in_order(answers, fabric, list(zip(ports, paired, strict=True)), gpus)
        pairs = [(nic, port.switch, port.rate or nic.rate) for nic, port in zip(known, ports, strict=True)]
    pairs = [(nic, leaf, rate) for nic, leaf, rate in pairs if nic.near]
    links = [answers.nic_link(rate) for _, _, rate in pairs]
    served = deal([nic.near for nic, _, _ in pairs], [link.link_bytes_per_s.value for link in links], gpus)
    return [
        _Cable(nic.name, leaf, link, members, 1, nic)
        for (nic, leaf, _), link, members in zip(pairs, links, served, strict=True)
    ]


def _adapter(port: PortFound, names: Container[str]) -> str:
    """Return a port's NIC without the port number that several ports of one adapter get."""
    return port.nic if port.nic in names else port.nic.rsplit(".", 1)[0]


def _paired(
    answers: Answers, fabric: FabricFound, ports: Sequence[PortFound], node: NodeFound
) -> Sequence[NicFound | None]:
    """Return the NIC of each port: by name, else, where a dump has as many under other names, in order; or None."""
    nics = {nic.name: nic for nic in node.nics}
    if not nics:
        return [None] * len(ports)
    host, named = ports[0].host, [port for port in ports if port.nic]
    strange = [port for port in named if _adapter(port, nics) not in nics]
    if strange and len(strange) < len(named):
        cabled, known = f"NIC {strange[0].nic} of {host} is cabled", f"only {', '.join(sorted(nics))}"
        raise InputError(f"{strange[0].place}: {cabled}, but {node.place} lists {known}.")
    if strange and len(named) > len(nics):
        cabled = f"{host} has {len(named)} cabled NICs"
        raise InputError(f"{named[0].place}: {cabled}, but {node.place} lists {len(nics)}.")
    near = [nic for nic in nics.values() if nic.near]
    if named and not strange:
        by_port = [nics.get(_adapter(port, nics)) for port in ports]
        if missing := [nic.name for nic in near if nic not in by_port]:
            line = f"{host}: {', '.join(missing)} next to a GPU, but {fabric.place} shows no cable."
            answers.say("irregular", f"{node.place}: {line}")
        return by_port
    candidates = near if len(near) == len(ports) else list(nics.values())
    if len(candidates) != len(ports):
        return [None] * len(ports)
    answers.say("assumed", "NIC to port: in order (names differ, but the numbers match).")
    return sorted(candidates, key=lambda nic: natural(nic.name))


def _in_order(
    answers: Answers,
    fabric: FabricFound,
    ports: Sequence[tuple[PortFound, NicFound | None]],
    gpus: int,
) -> list[_Cable]:
    """Return the cables of ports whose NICs no dump places: by rail, else in order; those it places, as it does."""
    cables = []
    for number, (port, nic) in enumerate(ports):
        at, count = number, max(fabric.usual_ports, number + 1)
        if fabric.rails and port.rail is not None:
            at, count = port.rail, fabric.rails
        members = nic.near if nic is not None else ()
        if not members and count % gpus and gpus % count:
            problem = f"{count} NICs to a host for {gpus} GPUs, and no file says how they are paired"
            remedy = "add the `nvidia-smi topo -m` or NCCL XML of a node"
            raise InputError(f"{port.place}: {port.host}: {problem}; {remedy}.")
        if not members:
            share = f"{count // gpus} per GPU" if count >= gpus else f"one for {gpus // count} GPUs"
            answers.say("assumed", f"NIC to GPU: {share}, in order (no file says so, but the numbers match).")
            start, end = at * gpus // count, (at + 1) * gpus // count
            members = tuple(range(start, max(start + 1, end)))
        link = answers.nic_link(port.rate or (nic.rate if nic is not None else None))
        cables.append(_Cable(port.nic or "nic", port.switch, link, members))
    return cables


def _sharing(cables: Sequence[_Cable], node: NodeFound) -> list[tuple[list[int], list[_Cable]]]:
    """Return the sets of GPUs that share NICs, or uplinks of PCIe switches on the way to them, with their NICs."""
    above = node.switches
    by_name = {f"nic {number}": cable for number, cable in enumerate(cables)}
    joins = []
    for name, cable in by_name.items():
        passed = [switch for gpu in cable.gpus if above for switch in crossed(above[gpu], cable.switches)]
        passed += crossed(cable.switches, above[cable.gpus[0]]) if above else ()
        joins.append([name, *(f"gpu {gpu}" for gpu in cable.gpus), *(f"up {switch}" for switch in passed)])
    groups = [[by_name[name] for name in group] for group in groups_of(by_name, joins)]
    return [(sorted({gpu for cable in members for gpu in cable.gpus}), members) for members in groups]


def _attach_one(draft: Draft, host: str, gpu: int, cables: Sequence[_Cable]) -> None:
    """Link a GPU to the leaves of its own NICs; those of different rates to one leaf are nodes."""
    links = {(cable.leaf, cable.link.name, cable.link.link_bytes_per_s.value) for cable in cables}
    for cable in cables:
        if len({leaf for leaf, _, _ in links}) == len(links):
            draft.link(gpu_id(host, gpu), cable.leaf, cable.link, cable.count)
        else:
            _add_nic(draft, host, cable, gpu_id(host, gpu))


def _attach(draft: Draft, host: str, node: NodeFound, gpus: Sequence[int], cables: Sequence[_Cable]) -> None:
    """Link some GPUs to the leaves of the NICs that they alone share, over the PCIe between them."""
    total = sum(cable.bytes_per_s for cable in cables)
    text = format_quantity(total, "byte/s", 12)
    figure = Figure(total, "byte/s", Evidence.DERIVED, "at least as fast as its NICs", text)
    default = inner_fabric("pcie", figure)
    placed = all(cable.nic for cable in cables)
    of_gpus = [node.switches[gpu] if node.switches and placed else () for gpu in gpus]
    levels = zip(*of_gpus, *(cable.switches for cable in cables), strict=False)
    depth = len(list(takewhile(lambda switches: len(set(switches)) == 1, levels)))
    root = ""
    if not depth:
        known = any(cable.nic for cable in cables)
        name = f"{host}.{'root' if known else 'pcie'}"
        number = next(k for k in range(len(draft.nodes) + 1) if f"{name}{k}" not in draft.nodes)
        root = draft.node(f"{name}{number}", "host" if known else "pcie", host=host)

    def below(chain: Sequence[str]) -> str:
        return add_switches(draft, host, node, chain[max(0, depth - 1) :], root, default)

    for chain, gpu in zip(of_gpus, gpus, strict=True):
        link = pcie_link(draft, node, gpu) or default
        draft.link(gpu_id(host, gpu), below(chain), link)
    for cable in cables:
        _add_nic(draft, host, cable, below(cable.switches))
    if len(gpus) > 1 and not node.pcie:
        line = "PCIe between GPUs and shared NICs: at least as fast as the NICs."
        draft.answers.say("assumed", line)


def _slowed(node: NodeFound, gpu: int, cables: Sequence[_Cable]) -> bool:
    """Whether the PCIe of a GPU alone with its NICs is slower than they are."""
    pcie_rate = node.pcie[gpu] if gpu < len(node.pcie) else None
    if pcie_rate is not None and pcie_rate.value < sum(cable.bytes_per_s for cable in cables):
        return True
    through: dict[str, float] = defaultdict(float)
    for cable in cables:
        chain = node.switches[gpu] if node.switches else ()
        for switch in (*crossed(chain, cable.switches), *crossed(cable.switches, chain)):
            through[switch] += cable.bytes_per_s
    return any(
        switch in node.uplinks and node.uplinks[switch].value < rate for switch, rate in through.items()
    )


def _add_nic(draft: Draft, host: str, cable: _Cable, at: str) -> None:
    """Add a NIC below ``at``, and its cable."""
    name = draft.node(draft.free(f"{host}.{cable.name}"), "nic", host=host)
    draft.link(name, cable.leaf, cable.link, cable.count)
    draft.link(at, name, cable.link, cable.count)
