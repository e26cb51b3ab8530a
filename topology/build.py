"""Build a cluster from its specification: GPUs, links and faults."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby

import numpy as np

from topology.base.errors import InfeasibleError, InputError
from topology.cluster import Cluster, ClusterSpec, ClusterView, Gpu
from topology.graph import SCALE_OUT_KINDS
from topology.raw import check_raw, laid_raw, raw_domains, raw_scale_out
from topology.scale_out import check_fabric, lay_fabric
from topology.spec import Fault, RawTopology
from topology.wiring import Ints, Laying, Wiring, connected_parts

_MAX_NAMED = 4  # in a message


MAX_GPUS = 131_072
"""Of a cluster, however it is described: its links alone take 0.8 GB."""


def build_cluster(spec: ClusterSpec) -> Cluster:
    """Return the cluster of a specification, without the GPUs that are broken; its links on first use.

    Raises
    ------
    InputError
        If what is broken does not exist, or nothing is left.
    InfeasibleError
        If broken links cut GPUs off from the others.
    """
    gpus = _gpu_table(spec)
    broken = _broken_gpus(spec.faults, [gpu.id for gpu in gpus] if spec.faults else [])
    broken -= spec.slow_gpus.keys()
    working = tuple(gpu for gpu in gpus if gpu.id not in broken) if broken else gpus
    if broken and not working:
        raise InputError(f"broken: all {len(gpus)} GPUs are broken, so none remain to plan for.")
    cluster = Cluster(spec, working, partial(lay_cluster, spec, gpus))
    if any(fault.link for fault in spec.faults):
        _refuse_cut_off(cluster)
    return cluster


def _broken_gpus(faults: Sequence[Fault], gpus: Sequence[str]) -> set[str]:
    """Return the GPUs that faults name, of all there are, each once."""
    known, broken = set(gpus), set[str]()
    for fault in faults:
        if fault.gpu is not None:
            if fault.gpu not in known:
                raise InputError(
                    f"broken: no GPU has the id {fault.gpu!r}; ids range from {gpus[0]} to {gpus[-1]}."
                )
            if fault.gpu in broken:
                raise InputError(f"broken: duplicate GPU {fault.gpu}.")
            broken.add(fault.gpu)
    return broken


def rebuilt(cluster: Cluster, spec: ClusterSpec) -> Cluster:
    """Return the cluster of ``spec``, a change of that of ``cluster``; of a view, the view of the same GPUs.

    Raises
    ------
    InputError, InfeasibleError
        As :func:`build_cluster`.
    """
    changed = build_cluster(spec)
    return ClusterView(changed, cluster.ids, cluster.name) if isinstance(cluster, ClusterView) else changed


def check_cluster(spec: ClusterSpec, where: str, limit: int = MAX_GPUS) -> ClusterSpec:
    """Return ``spec`` if it is a cluster that can be built.

    Raises
    ------
    InputError
        If it has no domains, too many GPUs, several domains with no fabric between them, or a fabric that its hosts
        do not fit.
    """
    if not spec.domains:
        raise InputError(f"{where}: has no domains.")
    if spec.gpus > limit:
        raise InputError(f"{where}: {spec.gpus:,} GPUs; at most {limit:,} are supported.")
    if len(spec.domains) > 1 and spec.scale_out is None:
        raise InputError(f"{where}: has {len(spec.domains)} domains but no `fabric` between them.")
    check_fabric(spec, f"{where}: fabric")
    return spec


def raw_cluster_spec(
    name: str, raw: RawTopology, faults: Sequence[Fault] = (), where: str = "cluster"
) -> ClusterSpec:
    """Return the specification of a raw graph, checked.

    Raises
    ------
    InputError
        If an id is a duplicate or unknown, a link joins a node to itself or contradicts another, a GPU has no
        type, there are too many GPUs, or they are not connected.
    InfeasibleError
        If what is broken cuts GPUs off from the others.
    """
    check_raw(raw, where)
    gpus = [node.id for node in raw.nodes if node.kind == "gpu"]
    _broken_gpus(faults, gpus)
    gone = {fault.gpu for fault in faults if fault.factor == 0}
    nodes, links = [node.id for node in raw.nodes], [link.between for link in raw.links]
    refuse_islands(name, [gpu for gpu in gpus if gpu not in gone], nodes, links)
    wiring = laid_raw(raw)[1]
    domains = raw_domains(raw, wiring, where)
    scale_out = raw_scale_out(raw, wiring) if len(domains) > 1 else None
    if len(domains) > 1 and scale_out is None:
        raise InputError(
            f"{where}: its GPUs are not all connected: {len(domains)} domains without links between them; add links "
            "to leaves, or between GPUs or switch chips of one domain."
        )
    spec = check_cluster(ClusterSpec(name, domains, scale_out, tuple(faults), raw), where)
    if faults:
        _refuse_cut_off(build_cluster(spec))
    return spec


def _gpu_table(spec: ClusterSpec) -> tuple[Gpu, ...]:
    """Return all GPUs of a specification in order, broken ones too."""
    if spec.raw is not None:
        return laid_raw(spec.raw)[0]
    gpus: list[Gpu] = []
    for d, domain in enumerate(spec.domains):
        for n, rack in enumerate(domain.rack_of_host):
            node = f"d{d}.n{n}"
            gpus += [Gpu(f"{node}.g{g}", d, node, f"d{d}.r{rack}", g) for g in range(domain.gpus_per_node)]
    return tuple(gpus)


def lay_cluster(spec: ClusterSpec, gpus: Sequence[Gpu]) -> Wiring:
    """Return the links of a cluster: domains, the fabric between them, less what is broken.

    ``gpus`` are all GPUs, failed ones too. A single domain has no scale-out fabric: nothing would cross it.

    Raises
    ------
    InputError
        If a fault names what does not exist, or the fabric cannot be cabled.
    """
    if spec.raw is not None:
        wiring = laid_raw(spec.raw)[1]
    else:
        target, places, start = Laying(0), [], 0
        coordinates: list[tuple[int, ...] | None] = []
        for domain, run in groupby(spec.domains):
            laying, copies = domain.lay(), len(list(run))
            members = gpus[start : start + copies * domain.gpus]
            places.append(_repeat(target, laying, members))
            coordinates += [*laying.coordinates, *[None] * len(laying.names)] * copies
            start += len(members)
        if (fabric := lay_fabric(spec)) is not None:
            rail, plane, pod = (fabric.numbered(key) for key in ("rail", "plane", "pod"))
            added = target.add(fabric.kinds, fabric.names, rail=rail, plane=plane, pod=pod)
            target.links_of(fabric, np.concatenate([*places, added]))
            coordinates += [None] * len(added)
        wiring = Wiring.of(target, coordinates)
    return _with_faults(wiring, spec.faults) if spec.faults else wiring


def _repeat(target: Laying, laying: Laying, gpus: Sequence[Gpu]) -> Ints:
    """Add equal domains of some GPUs one after the other, laid as ``laying``; return the nodes of the GPUs."""
    size, chips = laying.gpus, len(laying.names)
    copies, base = len(gpus) // size, len(target.names)
    names: list[str] = []
    hosts: list[str | None] = []
    racks: list[str | None] = []
    for start in range(0, len(gpus), size):
        members = gpus[start : start + size]
        prefix = f"d{members[0].domain}."
        names += [gpu.id for gpu in members]
        names += [prefix + name for name in laying.names]
        hosts += [gpu.node for gpu in members]
        hosts += [name if name is None else prefix + name for name in laying.node]
        racks += [gpu.rack for gpu in members]
        racks += laying.rack
    rails = [gpu.rail for gpu in gpus[:size]]
    target.add(
        (["gpu"] * size + laying.kinds) * copies,
        names,
        hosts,
        racks,
        domain=np.repeat(np.arange(copies) + gpus[0].domain, size + chips),
        rail=np.tile([*rails, *laying.numbered("rail")], copies),
        plane=np.tile([*[-1] * size, *laying.numbered("plane")], copies),
    )
    places = base + np.arange(len(names)).reshape(copies, size + chips)
    target.links_of(laying, places)
    return places[:, :size].reshape(-1)


def _with_faults(wiring: Wiring, faults: Sequence[Fault]) -> Wiring:
    """Return the wiring without broken GPUs and links, and with the rate that degraded links have.

    It keeps what was taken out, and what each GPU lost of its scale-up rate.
    """
    moved = [fault for fault in faults if fault.cabled_to is not None]
    if moved:
        wiring = _recabled(wiring, moved)
    cut = [
        (fault.link, fault.factor) for fault in faults if fault.link is not None and fault.cabled_to is None
    ]
    links = _links_between(wiring, [ends for ends, _ in cut])
    lost: dict[str, float] = {}
    health, rates = wiring.health.copy(), wiring.bytes_per_s
    for ((a, b), factor), link in zip(cut, links, strict=True):
        rate = float(rates[link])
        domain_a, domain_b = (int(wiring.domain[wiring.number[end]]) for end in (a, b))
        for end in (a, b) if domain_a >= 0 and domain_a == domain_b else ():
            lost[end] = lost.get(end, 0.0) + rate * (1 - factor)
        if factor > 0:
            health[link] = factor
    down = [ends for ends, factor in cut if factor == 0]
    out = [link for (_, factor), link in zip(cut, links, strict=True) if factor == 0]
    none = np.zeros(len(wiring.names), dtype=bool)
    wiring = replace(wiring, health=health).without(none, np.array(out, dtype=np.int64))
    gpus = [fault.gpu for fault in faults if fault.gpu is not None and fault.factor == 0]
    gone = none.copy()
    gone[[wiring.number[gpu] for gpu in gpus]] = True
    is_gpu, rates = wiring.is_kind("gpu"), wiring.bytes_per_s
    for gpu in gpus:
        node = wiring.number[gpu]
        for link, neighbour in zip(wiring.links_at(node), wiring.others(node), strict=True):
            if is_gpu[neighbour]:
                name = wiring.names[neighbour]
                lost[name] = lost.get(name, 0.0) + float(rates[link])
    working = wiring.without(gone, np.zeros(0, dtype=np.int64))
    return replace(working, broken_gpus=tuple(gpus), broken_links=tuple(down), lost_bytes_per_s=lost)


def _recabled(wiring: Wiring, faults: Sequence[Fault]) -> Wiring:
    """Return the wiring with links that end at another switch than they should."""
    ends = [fault.link for fault in faults if fault.link is not None]
    a, b = wiring.a.copy(), wiring.b.copy()
    for fault, (stays, leaves), link in zip(faults, ends, _links_between(wiring, ends), strict=True):
        to, where = fault.cabled_to or "", f"broken: link [{stays}, {leaves}]: cabled_to"
        old, new = wiring.number[leaves], wiring.number.get(to)
        if new is None or wiring.kinds[new] != wiring.kinds[old] or wiring.kinds[old] not in SCALE_OUT_KINDS:
            kind = wiring.kinds[old] if wiring.kinds[old] in SCALE_OUT_KINDS else "switch between domains"
            raise InputError(f"{where}: no {kind} has the id {to!r}; `rackplan draw` shows the ids.")
        (a if wiring.a[link] == old else b)[link] = new
    pairs = np.minimum(a, b) * len(wiring.names) + np.maximum(a, b)
    double = np.bincount(np.unique(pairs, return_inverse=True)[1])
    if (double > 1).any() or (a == b).any():
        names = ", ".join(fault.cabled_to or "" for fault in faults)
        raise InputError(f"broken: cabled_to {names}: this would duplicate an existing link.")
    return replace(wiring, a=a, b=b)


def _links_between(wiring: Wiring, pairs: Sequence[tuple[str, str]]) -> list[int]:
    """Return the number of the link between each two nodes; refuse one that is not there."""
    for a, b in pairs:
        for end in (a, b):
            if end not in wiring.number:
                raise InputError(
                    f"broken: link [{a}, {b}]: no node has the id {end!r}; `rackplan draw` shows the ids."
                )
    numbers: list[int] = wiring.find(pairs).tolist()
    if -1 in numbers:
        a, b = pairs[numbers.index(-1)]
        kinds: dict[str, list[str]] = {}
        neighbours = wiring.others(wiring.number[a]).tolist()
        for neighbour in neighbours:
            kinds.setdefault(wiring.kinds[neighbour], []).append(wiring.names[neighbour])
        examples = [name for names in kinds.values() for name in names[:2]][:6]
        raise InputError(
            f"broken: link [{a}, {b}]: no link connects these two; {a} has links to {', '.join(examples)} and "
            f"{len(neighbours) - len(examples)} more."
        )
    return numbers


def _refuse_cut_off(cluster: Cluster) -> None:
    """Reject GPUs that what is broken cuts off from the others: named, never planned over."""
    wiring = cluster.wiring
    part = connected_parts(wiring.a, wiring.b, len(wiring.names))
    gpus = [gpu.id for gpu in cluster.gpus]
    islands = _islands(gpus, part[[wiring.number[gpu] for gpu in gpus]])
    if islands:
        raise InfeasibleError(
            f"{cluster.name}: the faults disconnect GPUs from the others: {islands}. Mark the disconnected "
            "GPUs as broken or lost too, or describe each part as a separate cluster."
        )


def refuse_islands(
    name: str, gpus: Sequence[str], nodes: Sequence[str], links: Sequence[tuple[str, str]]
) -> None:
    """Reject GPUs of a graph that no chain of links joins, before anything is made of it.

    Raises
    ------
    InputError
        If there are two or more islands of GPUs; the largest are named.
    """
    number = {node: i for i, node in enumerate(nodes)}
    a, b = (np.array([number[link[end]] for link in links], dtype=np.int64) for end in (0, 1))
    part = connected_parts(a, b, len(number))
    if islands := _islands(gpus, part[[number[gpu] for gpu in gpus]]):
        raise InputError(
            f"{name}: its GPUs are not all connected: {islands}. Add the missing links, or describe each "
            "part as a separate cluster."
        )


def _islands(gpus: Sequence[str], part: Ints) -> str:
    """Return the islands of GPUs in words, the largest first; nothing where they are one."""
    parts: dict[int, list[str]] = {}
    for gpu, number in zip(gpus, part.tolist(), strict=True):
        parts.setdefault(number, []).append(gpu)
    if len(parts) <= 1:
        return ""
    islands = sorted(
        (sorted(members) for members in parts.values()), key=lambda island: (-len(island), island)
    )
    words = []
    for island in islands[:_MAX_NAMED]:
        listed = ", ".join(island[:_MAX_NAMED]) + (", ..." if len(island) > _MAX_NAMED else "")
        words.append(f"{len(island)} GPU{'s' * (len(island) > 1)} ({listed})")
    suffix = f" and {len(islands) - _MAX_NAMED} more" if len(islands) > _MAX_NAMED else ""
    return f"{len(islands)} islands, {'; '.join(words)}{suffix}"
