"""From the specification of a cluster to the cluster: its GPUs, its graph, and what is broken in it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from topology.cluster import Cluster, Gpu
from topology.errors import InputError
from topology.fabrics import FABRICS, check_fabric
from topology.raw import add_raw, check_raw, raw_domains, raw_gpus, raw_scale_out
from topology.spec import ClusterSpec, DomainSpec, Fault, RawTopology
from topology.structures import STRUCTURES, torus_coordinates

if TYPE_CHECKING:
    import networkx as nx

LARGEST_CLUSTER_GPUS = 1_000_000
_MOST_NAMED = 4


def build_cluster(spec: ClusterSpec) -> Cluster:
    """Return the cluster of a specification, without the GPUs that are broken; the graph on first use.

    Raises
    ------
    InputError
        If what is broken does not exist, or nothing is left.
    """
    gpus = _gpu_table(spec)
    known = {gpu.id for gpu in gpus} if spec.faults else set()
    broken: set[str] = set()
    for fault in spec.faults:
        if fault.gpu is not None:
            if fault.gpu not in known:
                raise InputError(
                    f"broken: no GPU has the id {fault.gpu!r}; ids go from {gpus[0].id} to {gpus[-1].id}."
                )
            if fault.gpu in broken:
                raise InputError(f"broken: duplicate GPU {fault.gpu}.")
            broken.add(fault.gpu)
    broken -= spec.slow_gpus.keys()
    left = tuple(gpu for gpu in gpus if gpu.id not in broken) if broken else gpus
    if broken and not left:
        raise InputError(f"broken: all {len(gpus)} GPUs are broken; nothing is left to plan for.")
    if spec.part:
        left = _only(left, spec.part)
    cluster = Cluster(spec, left, partial(build_graph, spec, gpus))
    if any(fault.link for fault in spec.faults):
        _refuse_islands(cluster)
    return cluster


def _only(gpus: Sequence[Gpu], part: Sequence[str]) -> tuple[Gpu, ...]:
    """Return the GPUs that lie in a domain or node, or are a GPU, of ``part``.

    Raises
    ------
    InputError
        If one of them has no GPU that works.
    """
    names = {name: (gpu.id, gpu.node, gpu.id.partition(".")[0]) for name, gpu in ((g.id, g) for g in gpus)}
    known = {name for one in names.values() for name in one}
    strange = next((name for name in part if name not in known), None)
    if strange is not None:
        raise InputError(f"part: no GPU that works is, or lies in, {strange!r}.")
    chosen = set(part)
    return tuple(gpu for gpu in gpus if chosen.intersection(names[gpu.id]))


def check_cluster(spec: ClusterSpec, where: str) -> ClusterSpec:
    """Return ``spec`` if it is a cluster that can be built.

    Raises
    ------
    InputError
        If it has no domains, too many GPUs, several domains with no fabric between them, or a fabric that its hosts
        do not fit.
    """
    if not spec.domains:
        raise InputError(f"{where}: has no domains.")
    if spec.gpus > LARGEST_CLUSTER_GPUS:
        raise InputError(f"{where}: {spec.gpus} GPUs; at most {LARGEST_CLUSTER_GPUS} are supported.")
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
        type, or the GPUs are not connected.
    """
    import networkx as nx

    check_raw(raw, where)
    graph: nx.Graph[str] = nx.Graph()
    add_raw(graph, raw, raw_gpus(raw))
    domains = raw_domains(raw, graph, where)
    scale_out = raw_scale_out(graph, raw) if len(domains) > 1 else None
    if len(domains) > 1 and scale_out is None:
        raise InputError(
            f"{where}: its GPUs are not all connected: {len(domains)} domains and no link that leaves one; add links "
            "to leaves, or between GPUs or switch chips of one domain."
        )
    spec = ClusterSpec(name, domains, scale_out, tuple(faults), raw)
    _refuse_islands(build_cluster(check_cluster(spec, where)))
    return spec


def _gpu_table(spec: ClusterSpec) -> tuple[Gpu, ...]:
    """Return all GPUs of a specification in order, broken ones too."""
    if spec.raw is not None:
        return raw_gpus(spec.raw)
    gpus: list[Gpu] = []
    for d, domain in enumerate(spec.domains):
        for n, rack in enumerate(_racks(domain)):
            node = f"d{d}.n{n}"
            gpus += [Gpu(f"{node}.g{g}", d, node, f"d{d}.r{rack}", g) for g in range(domain.gpus_per_node)]
    return tuple(gpus)


def _racks(domain: DomainSpec) -> list[int]:
    """Return the rack of each host of a domain: runs of hosts, or in a torus with ``rack_shape``, blocks."""
    if not domain.rack_shape:
        return [host // domain.nodes_per_rack for host in range(domain.nodes)]
    places = torus_coordinates(domain)[:: domain.gpus_per_node]
    blocks = [
        tuple(at // step for at, step in zip(place, domain.rack_shape, strict=True)) for place in places
    ]
    numbers = {block: number for number, block in enumerate(sorted(set(blocks)))}
    return [numbers[block] for block in blocks]


def build_graph(spec: ClusterSpec, gpus: Sequence[Gpu]) -> nx.Graph[str]:
    """Return the graph of a cluster: domains, the fabric between them, less what is broken.

    ``gpus`` are all GPUs, failed ones too. Attributes are those of :mod:`topology.graph`. A single domain has no
    scale-out fabric in its graph: nothing would cross it.

    Raises
    ------
    InputError
        If a fault names what does not exist, or the fabric cannot be cabled.
    """
    import networkx as nx

    graph: nx.Graph[str] = nx.Graph(name=spec.name, broken_gpus=(), broken_links=())
    if spec.raw is not None:
        add_raw(graph, spec.raw, gpus)
    else:
        first = 0
        for number, domain in enumerate(spec.domains):
            STRUCTURES[domain.structure].add(graph, number, domain, gpus[first : first + domain.gpus])
            first += domain.gpus
        if spec.scale_out is not None and len(spec.domains) > 1:
            FABRICS[spec.scale_out.kind].add(graph, spec, spec.scale_out, gpus)
    if spec.faults:
        _apply_faults(graph, spec.faults)
    return graph


def _apply_faults(graph: nx.Graph[str], faults: Sequence[Fault]) -> None:
    """Take out broken GPUs and links, and lower the rate of degraded links.

    ``graph.graph["broken_gpus"]`` and ``["broken_links"]`` keep what was taken out, ``["lost_bytes_per_s"]`` what
    each GPU lost of its scale-up rate.
    """
    lost: dict[str, float] = {}
    gpus = [fault.gpu for fault in faults if fault.gpu is not None and fault.factor == 0]
    links: list[tuple[str, str]] = []
    for fault in faults:
        if fault.link is None:
            continue
        a, b = fault.link
        _check_fault(graph, a, b)
        data = graph.edges[a, b]
        rate = data["count"] * data["link_bytes_per_s"]
        one, other = graph.nodes[a]["domain"], graph.nodes[b]["domain"]
        for end in (a, b) if one is not None and one == other else ():
            lost[end] = lost.get(end, 0.0) + rate * (1 - fault.factor)
        if fault.factor > 0:
            data.update(health=fault.factor, bytes_per_s=rate * fault.factor)
        else:
            links.append((a, b))
    graph.remove_edges_from(links)
    for gpu in gpus:
        for other in graph[gpu]:
            if graph.nodes[other]["kind"] == "gpu":
                lost[other] = lost.get(other, 0.0) + graph.edges[gpu, other]["bytes_per_s"]
    graph.remove_nodes_from(gpus)
    graph.graph.update(broken_gpus=tuple(gpus), broken_links=tuple(links), lost_bytes_per_s=lost)


def _check_fault(graph: nx.Graph[str], a: str, b: str) -> None:
    """Refuse a link that is not there."""
    for end in (a, b):
        if end not in graph:
            raise InputError(
                f"broken: link [{a}, {b}]: no node has the id {end!r}; `rackplan draw` shows the ids."
            )
    if not graph.has_edge(a, b):
        kinds: dict[str, list[str]] = {}
        for other in graph[a]:
            kinds.setdefault(graph.nodes[other]["kind"], []).append(other)
        some = [name for names in kinds.values() for name in names[:2]][:6]
        raise InputError(
            f"broken: link [{a}, {b}]: no link joins these two; {a} has links to {', '.join(some)} and "
            f"{len(graph[a]) - len(some)} more."
        )


def _refuse_islands(cluster: Cluster) -> None:
    """Build the graph and refuse GPUs that cannot reach each other: named, never planned over."""
    import networkx as nx

    gpus = {gpu.id for gpu in cluster.gpus}
    parts = (gpus & part for part in nx.connected_components(cluster.graph))
    islands = sorted((sorted(part) for part in parts if part), key=lambda part: (-len(part), part))
    if len(islands) <= 1:
        return
    words = []
    for island in islands[:_MOST_NAMED]:
        some = ", ".join(island[:_MOST_NAMED]) + (", ..." if len(island) > _MOST_NAMED else "")
        words.append(f"{len(island)} GPU{'s' * (len(island) > 1)} ({some})")
    more = f" and {len(islands) - _MOST_NAMED} more" if len(islands) > _MOST_NAMED else ""
    raise InputError(
        f"{cluster.name}: its GPUs are not all connected: {len(islands)} islands, {'; '.join(words)}{more}. "
        "Add the missing links, or give each island as a cluster of its own."
    )
