"""A cluster as built: typed tables of GPUs, and the graph of its links."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from topology.errors import InputError
from topology.spec import ClusterSpec, DomainSpec

if TYPE_CHECKING:
    import networkx as nx


@dataclass(frozen=True)
class Gpu:
    """One GPU of a cluster; ids are ``d0.n3.g1`` (GPU), ``d0.n3`` (node), ``d0.r0`` (rack of a domain).

    In a raw graph the ids are those of its file.
    """

    id: str
    domain: int
    node: str
    rack: str
    rail: int


@dataclass(frozen=True)
class Cluster:
    """A cluster as a graph with true links.

    ``gpus`` are those that work, ordered by domain, then node, then position in the node; an index into it names
    a GPU everywhere in the code. ``graph`` is built on first use: costs that need only rates never pay for it.
    """

    spec: ClusterSpec
    gpus: tuple[Gpu, ...]

    @property
    def name(self) -> str:
        """The name it was asked for by (``gb200-nvl72@288``)."""
        return self.spec.name

    @cached_property
    def graph(self) -> nx.Graph[str]:
        """The graph of GPUs and switches; attributes are those of :mod:`topology.graph`."""
        from topology.builders import build_graph

        return build_graph(self)

    @cached_property
    def gpus_as_cabled(self) -> tuple[Gpu, ...]:
        """All GPUs, those that are broken too."""
        return gpu_table(self.spec) if self.spec.faults else self.gpus

    def domain_of(self, gpu: int) -> DomainSpec:
        """Return the specification of the domain that GPU number ``gpu`` is in."""
        return self.spec.domains[self.gpus[gpu].domain]

    def scale_up_bytes_per_s(self, gpu: int) -> float:
        """Return scale-up bytes/s per direction of GPU number ``gpu``: its domain's, less what is broken."""
        if self.spec.raw is not None:
            from topology.raw import scale_up_of

            return scale_up_of(self.graph, self.gpus[gpu].id)
        whole = self.domain_of(gpu).scale_up_bytes_per_s
        if not self.spec.reshaped:
            return whole
        lost: dict[str, float] = self.graph.graph["lost_bytes_per_s"]
        return whole - lost.get(self.gpus[gpu].id, 0.0)


def gpu_table(spec: ClusterSpec) -> tuple[Gpu, ...]:
    """Return all GPUs of a specification in order, broken ones too."""
    if spec.raw is not None:
        from topology.raw import raw_gpus

        return raw_gpus(spec.raw)
    gpus: list[Gpu] = []
    for d, domain in enumerate(spec.domains):
        racks = _racks(domain)
        for n in range(domain.gpus // domain.gpus_per_node):
            node = f"d{d}.n{n}"
            rack = f"d{d}.r{racks[n]}"
            gpus += [Gpu(f"{node}.g{g}", d, node, rack, g) for g in range(domain.gpus_per_node)]
    return tuple(gpus)


def _racks(domain: DomainSpec) -> list[int]:
    """Return the rack of each host of a domain: runs of hosts, or in a torus with ``rack_shape``, blocks."""
    hosts = range(domain.gpus // domain.gpus_per_node)
    if not domain.rack_shape:
        return [host // domain.nodes_per_rack for host in hosts]
    from topology.builders.torus import torus_coordinates

    places = torus_coordinates(domain)[:: domain.gpus_per_node]
    blocks = [
        tuple(at // step for at, step in zip(place, domain.rack_shape, strict=True)) for place in places
    ]
    numbers = {block: number for number, block in enumerate(sorted(set(blocks)))}
    return [numbers[block] for block in blocks]


def build_cluster(spec: ClusterSpec) -> Cluster:
    """Return the cluster of a specification, without the GPUs that are broken; the graph on first use.

    Raises
    ------
    InputError
        If what is broken does not exist, or nothing is left.
    """
    gpus = gpu_table(spec)
    if not spec.faults:
        return Cluster(spec, gpus)
    known = {gpu.id: gpu for gpu in gpus}
    named: set[str] = set()
    for fault in spec.faults:
        if fault.gpu is not None:
            if fault.gpu not in known:
                raise InputError(f"broken: no GPU has the id {fault.gpu!r}; {_some_ids(gpus)}")
            if fault.gpu in named:
                raise InputError(f"broken: GPU {fault.gpu} is there twice.")
            named.add(fault.gpu)
    left = tuple(gpu for gpu in gpus if gpu.id not in named - spec.slow_gpus.keys())
    if not left:
        raise InputError(f"broken: all {len(gpus)} GPUs are broken; nothing is left to plan for.")
    cluster = Cluster(spec, left)
    if any(fault.link for fault in spec.faults):
        from topology.islands import refuse_islands

        refuse_islands(cluster)
    return cluster


def _some_ids(gpus: tuple[Gpu, ...]) -> str:
    """Say how ids look here."""
    return f"ids go from {gpus[0].id} to {gpus[-1].id}."
