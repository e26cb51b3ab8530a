"""The NICs of hosts in a graph: which GPUs each serves, through which PCIe, and the leaf it is cabled to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

from networkx.utils import UnionFind

from topology.base.errors import InputError, called, input_name
from topology.base.figures import Evidence, Figure
from topology.base.names import natural
from topology.base.units import format_quantity, parse_quantity
from topology.importers.answers import inner_fabric, out_fabric
from topology.importers.completed import Draft
from topology.importers.found import FabricFound, NicFound, NodeFound, Nodes, PortFound, commonest
from topology.importers.hosts import add_switches, gpu_id, pcie_link, socket_id
from topology.importers.options import Log
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


def add_nics(draft: Draft, fabric: FabricFound, nodes: Nodes) -> None:
    """Link the GPUs of every host to the leaves its NICs are cabled to, each NIC once.

    The NICs of one GPU are links of its own. Those that several GPUs share, or that PCIe slows down, are nodes,
    reached over the switches that stand between; so are all of a host whose GPUs reach each other over PCIe alone.
    """
    usual = commonest(len(ports) for ports in fabric.ports_by_host.values()) or 0
    for host, ports in fabric.ports_by_host.items():
        if host not in nodes:
            continue
        node = nodes[host]
        cables = _cables(draft, fabric, ports, node, usual)
        for members, own in _sharing(cables, node):
            alone = len(members) == 1 and not _slowed(node, members[0], own)
            placed = node is not None and all(cable.nic for cable in own)
            if node is not None and placed and node.over_pcie and not (alone and node.links):
                for cable in own:
                    root = socket_id(host, node, cable.nic.socket if cable.nic else "")
                    at = add_switches(draft, host, node, cable.switches, root, cable.link)
                    _add_nic(draft, host, cable, at)
            elif alone:
                _attach_one(draft, gpu_id(host, members[0]), host, own)
            else:
                _attach(draft, host, node, members, own)


def _cables(
    draft: Draft, fabric: FabricFound, ports: Sequence[PortFound], node: NodeFound | None, usual: int
) -> list[_Cable]:
    """Return the cables of a host: of each port, or where its ports have no names of each NIC of its dump."""
    nics = {nic.name: nic for nic in node.nics} if node is not None else {}
    gpus = node.gpu_count if node is not None else draft.answers.per_node
    if all(not port.nic and port.rate is None for port in ports):
        leaf, near = ports[0].switch, [nic for nic in nics.values() if nic.near]
        if not nics and draft.answers.nic is not None:
            count = draft.answers.nics_per_gpu
            draft.log.assume(f"NIC to GPU: {count} per GPU (no file gives the number).")
            return [_Cable("nic", leaf, draft.answers.nic, (gpu,), count) for gpu in range(gpus)]
        pairs = [(nic, leaf, nic.rate) for nic in near]
    else:
        known = _paired(draft, ports, nics)
        if not any(nic.near for nic in known):
            return _unplaced(draft, fabric, ports, nics, gpus, usual)
        pairs = [
            (nic, port.switch, port.rate or nic.rate)
            for nic, port in zip(known, ports, strict=True)
            if nic.near
        ]
    links = [_nic_link(draft, rate) for _, _, rate in pairs]
    served = deal([nic.near for nic, _, _ in pairs], [link.link_bytes_per_s.value for link in links], gpus)
    return [
        _Cable(nic.name, leaf, link, members, 1, nic)
        for (nic, leaf, _), link, members in zip(pairs, links, served, strict=True)
    ]


def _nic_link(draft: Draft, found: Figure | None) -> FabricSpec:
    """Return one NIC: ``found`` in a file, else as answered."""
    option, nic = draft.answers.options.nic, draft.answers.nic
    if found is None and nic is not None:
        return nic
    if found is None:
        raise InputError(f"the rate of a NIC: give {input_name('nic')} RATE (like '400 Gb/s').")
    if option is not None and parse_quantity(option, "byte/s", input_name("nic")) != found.value:
        line = f"{called('nic')} {option}: {found.source.partition(',')[0]} says {found.text}, which is used."
        draft.log.anomalies += [line] * (line not in draft.log.anomalies)
    return out_fabric(found, infiniband=draft.answers.infiniband)


def _paired(draft: Draft, ports: Sequence[PortFound], nics: Mapping[str, NicFound]) -> list[NicFound]:
    """Return the NIC of each port: by name, else, where a dump has as many under other names, in order; or none."""
    named = [nics.get(_base(port.nic, nics)) for port in ports]
    if all(named):
        return [nic for nic in named if nic is not None]
    near = [nic for nic in nics.values() if nic.near]
    some = near if len(near) == len(ports) else list(nics.values())
    if any(named) or len(some) != len(ports):
        return []
    draft.log.assume("NIC to port: in order (names differ, but the numbers match).")
    return sorted(some, key=lambda nic: natural(nic.name))


def _unplaced(
    draft: Draft,
    fabric: FabricFound,
    ports: Sequence[PortFound],
    nics: Mapping[str, NicFound],
    gpus: int,
    usual: int,
) -> list[_Cable]:
    """Return the cables of ports whose NICs no dump places: by rail, else in order; those it places, as it does."""
    cables = []
    for number, port in enumerate(ports):
        nic = nics.get(_base(port.nic, nics))
        if nic is not None and nic.near:
            members: Sequence[int] = nic.near
        elif fabric.rails == gpus and port.rail is not None:
            draft.log.assume(
                "NIC to GPU: rail r serves GPU r of its node (no file says so, but the numbers match)."
            )
            members = [port.rail]
        elif fabric.rails and port.rail is not None:
            members = _in_order(draft, port.rail, fabric.rails, gpus, port)
        else:
            members = _in_order(draft, number, max(usual, number + 1), gpus, port)
        link = _nic_link(draft, port.rate or (nic.rate if nic else None))
        cables.append(_Cable(port.nic or "nic", port.switch, link, tuple(members)))
    return cables


def _in_order(draft: Draft, number: int, count: int, gpus: int, port: PortFound) -> list[int]:
    """Return the GPUs of NIC ``number`` of ``count``, in order."""
    if count >= gpus and count % gpus == 0:
        draft.log.assume(f"NIC to GPU: {count // gpus} per GPU, in order (assumed).")
        return [number * gpus // count]
    if gpus % count == 0:
        each = gpus // count
        draft.log.assume(f"NIC to GPU: each NIC is shared by {each} GPUs, in order (assumed).")
        return list(range(number * each, (number + 1) * each))
    raise InputError(
        f"{port.place}: {port.host} has {count} NICs for {gpus} GPUs, and no file says how they are paired; add the "
        "`nvidia-smi topo -m` or NCCL XML of a node."
    )


def _sharing(cables: Sequence[_Cable], node: NodeFound | None) -> list[tuple[list[int], list[_Cable]]]:
    """Return the sets of GPUs that share NICs, or uplinks of PCIe switches on the way to them, with their NICs."""
    joined: UnionFind[str] = UnionFind()
    above = node.switches if node is not None else ()
    for number, cable in enumerate(cables):
        name = f"nic {number}"
        for gpu in cable.gpus:
            own = crossed(above[gpu], cable.switches) if above else ()
            joined.union(name, f"gpu {gpu}", *(f"up {switch}" for switch in own))
        if above:
            joined.union(name, *(f"up {one}" for one in crossed(cable.switches, above[cable.gpus[0]])))
    groups: dict[str, tuple[set[int], list[_Cable]]] = {}
    for number, cable in enumerate(cables):
        members, own_cables = groups.setdefault(joined[f"nic {number}"], (set(), []))
        members.update(cable.gpus)
        own_cables.append(cable)
    return [(sorted(members), own) for members, own in groups.values()]


def _attach_one(draft: Draft, own: str, host: str, cables: Sequence[_Cable]) -> None:
    """Link a GPU to the leaves of its own NICs; those of different rates to one leaf are nodes."""
    links = {(cable.leaf, cable.link.name, cable.link.link_bytes_per_s.value) for cable in cables}
    plain = len({leaf for leaf, _, _ in links}) == len(links)
    for cable in cables:
        if plain:
            draft.link(own, cable.leaf, cable.link, cable.count)
        else:
            _add_nic(draft, host, cable, own)


def _attach(
    draft: Draft, host: str, node: NodeFound | None, gpus: Sequence[int], cables: Sequence[_Cable]
) -> None:
    """Link some GPUs to the leaves of the NICs that they alone share, over the PCIe between them."""
    total = sum(cable.bytes_per_s for cable in cables)
    text = format_quantity(total, "byte/s", 12)
    default = inner_fabric(
        "pcie", Figure(total, "byte/s", Evidence.DERIVED, "at least as fast as its NICs", text)
    )
    placed = all(cable.nic for cable in cables)
    of_gpus = [node.switches[gpu] if node and node.switches and placed else () for gpu in gpus]
    chains = [*of_gpus, *(cable.switches for cable in cables)]
    depth = 0
    while all(len(chain) > depth and chain[depth] == chains[0][depth] for chain in chains):
        depth += 1
    root = ""
    if not depth:
        known = any(cable.nic for cable in cables)
        name = f"{host}.{'root' if known else 'pcie'}"
        number = next(k for k in range(len(draft.nodes) + 1) if f"{name}{k}" not in draft.nodes)
        root = draft.node(f"{name}{number}", "host" if known else "pcie", host=host)

    def below(chain: Sequence[str]) -> str:
        some = chain[max(0, depth - 1) :]
        return root if node is None else add_switches(draft, host, node, some, root, default)

    for chain, gpu in zip(of_gpus, gpus, strict=True):
        link = pcie_link(draft, node, gpu) or default
        draft.link(gpu_id(host, gpu), below(chain), link)
    for cable in cables:
        _add_nic(draft, host, cable, below(cable.switches))
    if len(gpus) > 1 and not (node and node.pcie):
        draft.log.assume("PCIe between GPUs and shared NICs: assumed to be at least as fast as the NICs.")


def _slowed(node: NodeFound | None, gpu: int, cables: Sequence[_Cable]) -> bool:
    """Whether the PCIe of a GPU alone with its NICs is slower than they are."""
    if node is None:
        return False
    own = node.pcie[gpu] if gpu < len(node.pcie) else None
    if own is not None and own.value < sum(cable.bytes_per_s for cable in cables):
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


def check_nics(fabric: FabricFound, nodes: Nodes, log: Log) -> None:
    """Compare the NICs of each host in the fabric with those of its dump; those that are not cabled are reported."""
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
            log.anomalies.append(
                f"{node.place}: {host}: {', '.join(missing)} next to a GPU, but {fabric.place} shows no cable."
            )


def _base(nic: str, names: Container[str]) -> str:
    """Return a port's NIC without the port number that several ports of one adapter get."""
    return nic if nic in names else nic.rsplit(".", 1)[0]
