"""Which NIC of a host serves which GPU, and the links from GPUs to leaves that follow."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from topology.errors import InputError
from topology.importers.draft import Draft
from topology.importers.found import FabricFound, NodeFound, PortFound
from topology.importers.inside import gpu_count, gpu_id
from topology.importers.parts import Parts
from topology.spec import FabricSpec


def add_nics(
    draft: Draft, fabric: FabricFound, nodes: Mapping[str, NodeFound | None], parts: Parts
) -> list[str]:
    """Link the GPUs of every host to the leaves its NICs are cabled to; return what was taken as it is not said.

    A NIC that several GPUs share is a node of its own, reached at its own rate: the PCIe below it is taken as no
    narrower.
    """
    by_host: dict[str, list[PortFound]] = defaultdict(list)
    for port in fabric.ports:
        by_host[port.host].append(port)
    usual = Counter(len(ports) for ports in by_host.values()).most_common(1)[0][0] if by_host else 0
    notes: dict[str, None] = {}
    for host, ports in by_host.items():
        if host not in nodes:
            continue
        node = nodes[host]
        gpus = gpu_count(node, parts)
        if all(not port.nic and port.rate is None for port in ports):
            _whole_host(draft, host, gpus, ports[:1], node, parts)
            continue
        for number, port in enumerate(ports):
            members = _members(fabric, port, number, node, gpus, usual, notes)
            _connect(draft, host, port, members, nic_of_port(port, node, parts))
    return list(notes)


def nic_of_port(port: PortFound, node: NodeFound | None, parts: Parts) -> FabricSpec:
    """Return the rate of a port: the fabric's file, else the node's, else what the user says."""
    rate = port.rate
    if rate is None and node is not None:
        rate = next((nic.rate for nic in node.nics if nic.name == port.nic), None)
    return parts.nic(rate)


def check_nics(fabric: FabricFound, nodes: Mapping[str, NodeFound | None]) -> list[str]:
    """Compare the NICs of each host in the fabric with those of its dump; return NICs that are not cabled.

    Raises
    ------
    InputError
        If a cabled NIC is not in the dump, or there are more cabled ports than NICs.
    """
    by_host: dict[str, list[PortFound]] = defaultdict(list)
    for port in fabric.ports:
        if port.nic:
            by_host[port.host].append(port)
    found: list[str] = []
    for host, ports in by_host.items():
        node = nodes.get(host)
        if node is None or not node.nics:
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
            found.append(
                f"{node.place}: {host}: {', '.join(missing)} beside a GPU, but {fabric.place} has no cable there."
            )
    return found


def _base(nic: str, names: set[str]) -> str:
    """Return a port's NIC without the port number that several ports of one adapter get."""
    return nic if nic in names else nic.rsplit(".", 1)[0]


def _whole_host(
    draft: Draft, host: str, gpus: int, ports: Sequence[PortFound], node: NodeFound | None, parts: Parts
) -> None:
    """Link every GPU of a host to its one leaf, by as many NICs as the GPU has."""
    rates = (
        [[nic.rate for nic in node.nics if number in nic.near and nic.rate] for number in range(gpus)]
        if node
        else []
    )
    for port in ports:
        for number in range(gpus):
            own = rates[number] if rates and parts.options.nic is None else []
            if own:
                for rate in own:
                    _connect(draft, host, port, [number], parts.nic(rate))
            else:
                draft.link(gpu_id(host, number), port.switch, parts.nic(), parts.nics_per_gpu())


def _members(
    fabric: FabricFound,
    port: PortFound,
    number: int,
    node: NodeFound | None,
    gpus: int,
    usual: int,
    notes: dict[str, None],
) -> list[int]:
    """Return the GPUs that a port serves."""
    if node is not None and node.nics:
        base = _base(port.nic, {nic.name for nic in node.nics})
        near = next((nic.near for nic in node.nics if nic.name == base), None)
        if near:
            notes["NIC to GPU: as the node's dump places them on PCIe."] = None
            return list(near)
    if fabric.rails and port.rail is not None:
        if fabric.rails == gpus:
            notes["NIC to GPU: rail r serves GPU r of its node (no file says; they are as many)."] = None
            return [port.rail]
        return _shared(port.rail, fabric.rails, gpus, port, notes)
    return _shared(number, max(usual, number + 1), gpus, port, notes)


def _shared(number: int, count: int, gpus: int, port: PortFound, notes: dict[str, None]) -> list[int]:
    """Spread ``count`` NICs over ``gpus`` GPUs in order."""
    if count >= gpus and count % gpus == 0:
        notes[f"NIC to GPU: {count // gpus} to each GPU, in order (no file says which)."] = None
        return [number * gpus // count]
    if gpus % count == 0:
        each = gpus // count
        notes[f"NIC to GPU: each NIC serves {each} GPUs, in order (no file says which)."] = None
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
    hub = draft.node(name, "nic", node=host)
    for member in members:
        draft.link(gpu_id(host, member), hub, nic)
    draft.link(hub, port.switch, nic)
