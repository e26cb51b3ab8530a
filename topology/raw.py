"""From a raw graph to a cluster specification: which GPUs share a domain, and how fast they are joined.

Domains are those the file names. A GPU that names none is in one with every GPU that it reaches over scale-up
links alone (to GPUs and switch chips). Scale-up links of a GPU are those to GPUs and switch chips; where it has
none but shares its domain, those to PCIe switches and the host.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from weakref import WeakKeyDictionary

import numpy as np

from topology.base.errors import InputError
from topology.base.figures import UNPUBLISHED, Evidence, Figure
from topology.cluster import Gpu
from topology.fabrics.fabric import RawFabric
from topology.graph import INSIDE_KINDS, NODE_KINDS, SCALE_UP_KINDS
from topology.spec import FabricSpec, GpuSpec, RawLink, RawNode, RawTopology
from topology.structures.raw import RawDomain
from topology.wiring import Ints, Laying, Wiring, connected_parts

LISTED_GPUS = 4_096
"""GPUs of a raw graph, whose domains are never taken to be homogeneous."""


def check_raw(raw: RawTopology, where: str) -> None:
    """Check the nodes and links of a raw graph one by one.

    Raises
    ------
    InputError
        If an id is a duplicate or unknown, a link joins a node to itself or contradicts another, or a GPU has no
        type.
    """
    gpus = sum(node.kind == "gpu" for node in raw.nodes)
    if gpus > LISTED_GPUS:
        raise InputError(
            f"{where}: nodes: {gpus:,} GPUs listed one by one; at most {LISTED_GPUS:,} are supported. Clusters that "
            "`domains:` and `fabric:` describe may have more."
        )
    ids = Counter(node.id for node in raw.nodes)
    for node in raw.nodes:
        if ids[node.id] > 1:
            raise InputError(
                f"{where}: nodes: duplicate id {node.id!r} ({ids[node.id]} nodes have it); ids must differ."
            )
        if node.kind not in NODE_KINDS:
            raise InputError(
                f"{where}: node {node.id}: kind {node.kind!r} is not one of {', '.join(NODE_KINDS)}."
            )
        if node.kind == "gpu" and node.gpu is None:
            raise InputError(f"{where}: node {node.id}: needs the key `gpu`, its type, like h100-sxm.")
        if node.kind != "gpu" and node.gpu is not None:
            raise InputError(f"{where}: node {node.id}: is a {node.kind}, so it cannot have the key `gpu`.")
    if not any(node.kind == "gpu" for node in raw.nodes):
        raise InputError(f"{where}: nodes: none has the kind gpu.")
    fabrics: dict[tuple[str, str], FabricSpec] = {}
    for link in raw.links:
        _check_link(link, ids, fabrics, where)


def _check_link(
    link: RawLink, ids: Counter[str], fabrics: dict[tuple[str, str], FabricSpec], where: str
) -> None:
    """Check one link; ``fabrics`` are those before it."""
    a, b = link.between
    for end in (a, b):
        if end not in ids:
            raise InputError(f"{where}: link [{a}, {b}]: no node has the id {end!r}.")
    if a == b:
        raise InputError(f"{where}: link [{a}, {b}]: joins a node to itself.")
    earlier = fabrics.setdefault((a, b) if a < b else (b, a), link.fabric)
    if earlier is not link.fabric and earlier != link.fabric:
        raise InputError(
            f"{where}: link [{a}, {b}]: two links of different fabric or rate join these nodes ({earlier.name}, "
            f"{link.fabric.name}); merge them into one link with the total rate, or put a switch between."
        )


def laid_raw(raw: RawTopology) -> tuple[tuple[Gpu, ...], Wiring]:
    """Return the GPUs and the links of a raw graph, found once.

    GPUs are grouped by domain in order of first appearance, otherwise as written. One that names no node is in one
    with its domain; one that names no rack, in that of its node; one that names no rail has its position in its node.
    """
    if raw not in _LAID:
        gpus = _gpus(raw)
        _LAID[raw] = gpus, _lay(raw, gpus)
    return _LAID[raw]


_LAID: WeakKeyDictionary[RawTopology, tuple[tuple[Gpu, ...], Wiring]] = WeakKeyDictionary()


def _gpus(raw: RawTopology) -> tuple[Gpu, ...]:
    gpus: list[Gpu] = []
    for number, (label, members) in enumerate(_gpus_by_domain(raw)):
        rails: Counter[str] = Counter()
        for node in members:
            host = node.node or label
            rail = rails[host] if node.rail is None else node.rail
            rails[host] += 1
            gpus.append(Gpu(node.id, number, host, node.rack or host, rail))
    return tuple(gpus)


def _gpus_by_domain(raw: RawTopology) -> list[tuple[str, list[RawNode]]]:
    """Return (label, GPUs) of each domain in order of first appearance."""
    named = all(node.domain for node in raw.nodes if node.kind == "gpu")
    inferred = {} if named else _components(raw)
    groups: dict[str, list[RawNode]] = {}
    for node in raw.nodes:
        if node.kind == "gpu":
            groups.setdefault(node.domain or inferred[node.id], []).append(node)
    return list(groups.items())


def _components(raw: RawTopology) -> dict[str, str]:
    """Return a label of the scale-up component of each GPU: the domain named in it, else its first GPU."""
    members = [node for node in raw.nodes if node.kind in SCALE_UP_KINDS]
    place = {node.id: i for i, node in enumerate(members)}
    ends = [link.between for link in raw.links if place.keys() >= set(link.between)]
    tail, head = np.array([[place[a], place[b]] for a, b in ends], dtype=np.int64).reshape(-1, 2).T
    groups: dict[int, list[RawNode]] = {}
    for node, part in zip(members, connected_parts(tail, head, len(members)).tolist(), strict=True):
        groups.setdefault(part, []).append(node)
    labels = {}
    for group in groups.values():
        names = {node.domain for node in group if node.domain}
        first_gpu = next((node for node in group if node.kind == "gpu"), group[0])
        label = names.pop() if len(names) == 1 else first_gpu.id
        labels.update({node.id: label for node in group})
    return labels


def raw_domains(raw: RawTopology, wiring: Wiring, where: str) -> tuple[RawDomain, ...]:
    """Return the domains of a raw graph, ``wiring`` that which :func:`laid_raw` made of it.

    Raises
    ------
    InputError
        If the GPUs of one domain are of several types.
    """
    return tuple(_domain(label, members, raw, wiring, where) for label, members in _gpus_by_domain(raw))


def _domain(
    label: str, members: Sequence[RawNode], raw: RawTopology, wiring: Wiring, where: str
) -> RawDomain:
    """Return one domain; its rate is that of the GPU that has least."""
    kinds: dict[str, GpuSpec] = {node.gpu.name: node.gpu for node in members if node.gpu is not None}
    if len(kinds) > 1:
        raise InputError(
            f"{where}: domain {label}: has GPUs of several types ({', '.join(sorted(kinds))}); give each type its "
            "own `domain`."
        )
    gpu = next(iter(kinds.values()))
    hosts = {node.node or label for node in members}
    racks = {node.rack or node.node or label for node in members}
    numbers = [wiring.number[node.id] for node in members]
    return RawDomain(
        part="raw",
        title=f"{label}: {len(members)} {gpu.title}",
        status="user",
        gpu=gpu,
        gpus=len(members),
        gpus_per_node=max(Counter(node.node or label for node in members).values()),
        fabric=_fabric(numbers, raw, wiring),
        nodes_per_rack=-(-len(hosts) // len(racks)),
        least_bytes_per_s=float(wiring.scale_up_bytes_per_s[numbers].min()),
    )


def _fabric(gpus: Sequence[int], raw: RawTopology, wiring: Wiring) -> FabricSpec:
    """Return the fabric that most scale-up links of a domain have; of a GPU alone, that of any of its links."""
    used: Counter[int] = Counter()
    for gpu in gpus:
        links = wiring.links_at(gpu)
        ends = wiring.scale_up_ends[links]
        scale_up = np.where(wiring.a[links] == gpu, ends[:, 0], ends[:, 1])
        used.update(wiring.fabric[links[scale_up] if scale_up.any() else links].tolist())
    if not used:
        unknown = Figure(UNPUBLISHED, "byte/s", Evidence.USER, "a GPU without links")
        return FabricSpec("none", "none", unknown, Figure(UNPUBLISHED, "s", Evidence.USER, unknown.source))
    return _as_written(used, raw, wiring)


def _as_written(used: Counter[int], raw: RawTopology, wiring: Wiring) -> FabricSpec:
    """Return the commonest of some fabrics, by name and rate as the last link that has it."""
    keys: Counter[tuple[str, float]] = Counter()
    for number, count in used.items():
        fabric = wiring.fabrics[number]
        keys[fabric.name, fabric.link_bytes_per_s.value] += count
    return raw.fabrics[keys.most_common(1)[0][0]]


def raw_scale_out(raw: RawTopology, wiring: Wiring) -> RawFabric | None:
    """Return the fabric between the domains of a raw graph, None where no link leaves a domain.

    Its rate is that of the host that has least: the links of its NICs (or of its GPUs themselves) to leaves and
    routers, over its GPUs. Its oversubscription is that of the leaf that has most.
    """
    domain, part, gpu = wiring.domain, _hosts(wiring), wiring.is_kind("gpu")
    tail, head = np.concatenate([[wiring.a, wiring.b], [wiring.b, wiring.a]], axis=1)
    link = np.tile(np.arange(len(wiring.a)), 2)
    # a host's own domains are those of its GPUs
    width = int(domain.max(initial=0)) + 2
    inside = np.unique(part[gpu] * width + domain[gpu])
    out = (part[tail] >= 0) & (part[head] != part[tail]) & ~np.isin(part[tail] * width + domain[head], inside)
    parts = int(part.max(initial=-1)) + 1
    gpus = np.bincount(part[gpu], minlength=parts)
    rate = np.bincount(part[tail[out]], wiring.bytes_per_s[link[out]], parts)
    leaving = np.bincount(part[tail[out]], minlength=parts) * gpus > 0
    if not leaving.any():
        return None
    fabric = _as_written(Counter(wiring.fabric[link[out]].tolist()), raw, wiring)
    slowest = float((rate[leaving] / gpus[leaving]).min())
    return RawFabric(
        fabric=replace(fabric, link_bytes_per_s=replace(fabric.link_bytes_per_s, value=slowest)),
        oversubscription=_oversubscription(wiring, tail, head, link),
    )


def _hosts(wiring: Wiring) -> Ints:
    """Return the machine of each GPU, NIC, PCIe switch and host, by name or by links; -1 of other nodes."""
    inside = wiring.is_kind("gpu", "nic", *INSIDE_KINDS)
    hub = wiring.is_kind(*INSIDE_KINDS)
    kinds = np.unique(np.array(wiring.kinds), return_inverse=True)[1].reshape(-1)
    a, b = wiring.a, wiring.b
    joined = inside[a] & inside[b] & ((kinds[a] != kinds[b]) | (hub[a] & hub[b]))
    node_of: dict[str, int] = {}
    named = [
        (i, node_of.setdefault(name, i))
        for i, name in enumerate(wiring.node)
        if name is not None and inside[i]
    ]
    tail, head = np.array(named, dtype=np.int64).reshape(-1, 2).T
    ends = np.append(a[joined], tail), np.append(b[joined], head)
    part = connected_parts(*ends, len(inside))
    return np.where(inside, part, -1)


def _oversubscription(wiring: Wiring, tail: Ints, head: Ints, link: Ints) -> float:
    """Return downlink over uplink rate of the leaf that has most, at least 1."""
    leaf, above = wiring.is_kind("leaf"), wiring.is_kind("spine", "core", "router")
    rate, nodes = wiring.bytes_per_s[link], len(leaf)
    up, below = leaf[tail] & above[head], leaf[tail] & ~above[head] & ~leaf[head]
    ups, downs = (np.bincount(tail[chosen], rate[chosen], nodes) for chosen in (up, below))
    return float(np.max(downs[ups > 0] / ups[ups > 0], initial=1.0))


def _lay(raw: RawTopology, gpus: Sequence[Gpu]) -> Wiring:
    """Lay the GPUs, then the other nodes, then the links; several equal links between two nodes are one."""
    laying = Laying(0)
    laying.add(
        "gpu",
        [gpu.id for gpu in gpus],
        [gpu.node for gpu in gpus],
        [gpu.rack for gpu in gpus],
        domain=[gpu.domain for gpu in gpus],
        rail=[gpu.rail for gpu in gpus],
    )
    domains, devices = _domains_of(raw, gpus), [node for node in raw.nodes if node.kind != "gpu"]
    laying.add(
        [node.kind for node in devices],
        [node.id for node in devices],
        [node.node for node in devices],
        [node.rack for node in devices],
        domain=[domains.get(node.id, -1) for node in devices],
        rail=[-1 if node.rail is None else node.rail for node in devices],
    )
    number = {name: i for i, name in enumerate(laying.names)}
    a, b = (np.array([number[link.between[end]] for link in raw.links], dtype=np.int64) for end in (0, 1))
    pairs = np.minimum(a, b) * len(number) + np.maximum(a, b)
    _, first_links, pair = np.unique(pairs, return_index=True, return_inverse=True)
    counts = np.bincount(pair, [link.count for link in raw.links], len(first_links))
    order = np.argsort(first_links)
    first_links = first_links[order]
    laying.link(
        [raw.links[link].fabric for link in first_links.tolist()],
        a[first_links],
        b[first_links],
        counts[order],
    )
    return Wiring.of(laying, [None] * len(laying.names))


def _domains_of(raw: RawTopology, gpus: Sequence[Gpu]) -> dict[str, int]:
    """Return the domain number of each switch chip: of its name, else of a GPU that it is linked to."""
    of_gpu = {gpu.id: gpu.domain for gpu in gpus}
    named = {node.domain: of_gpu[node.id] for node in raw.nodes if node.kind == "gpu" and node.domain}
    switches = {node.id: node.domain for node in raw.nodes if node.kind == "switch"}
    domain_of = {chip: named[name] for chip, name in switches.items() if name in named}
    # a switch above switches has the domain of those below it, so go on until nothing is new
    above: dict[str, list[tuple[int, str]]] = {}
    new: dict[str, int] = {}
    for place, link in enumerate(raw.links):
        for chip, neighbour in (link.between, link.between[::-1]):
            if chip in switches and chip not in domain_of:
                above.setdefault(neighbour, []).append((place, chip))
                if neighbour in of_gpu or neighbour in domain_of:
                    new[chip] = of_gpu.get(neighbour, domain_of.get(neighbour, -1))
    while new:
        domain_of.update(new)
        next_up = sorted((place, chip, below) for below in new for place, chip in above.get(below, ()))
        new = {chip: domain_of[below] for _, chip, below in next_up if chip not in domain_of}
    return domain_of
