"""A cluster: its specification, and as built a typed table of GPUs and its links (:mod:`topology.build` makes it)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import GetPydanticSchema
from pydantic_core import core_schema

from topology.base.errors import InputError
from topology.base.reading import nearest, shown
from topology.base.schema import Spec, Text, plain, problem, spec, union
from topology.base.shown import Shown
from topology.base.units import plural
from topology.fabrics import AnyFabric
from topology.fabrics.fabric import ScaleOutSpec
from topology.spec import Fault, RawTopology
from topology.structures import AnyDomain
from topology.structures.domain import DomainSpec

if TYPE_CHECKING:
    import networkx as nx

    from topology.wiring import Wiring


def _domains(rows: Any, validate: Callable[[Any], Any]) -> Any:
    """Return the domains of rows, each of which has as many as its ``count`` says."""
    if isinstance(rows, tuple) and all(isinstance(row, DomainSpec) for row in rows):
        return rows
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise problem("must be a list of mappings.")
    counts = [row.get("count", 1) for row in rows]
    for place, count in enumerate(counts):
        if type(count) is not int or not 1 <= count <= _MAX_DOMAINS:
            raise problem(
                f"[{place}]: count: {shown(count)} must be a whole number from 1 to {_MAX_DOMAINS}."
            )
    domains = validate([{key: row[key] for key in row if key != "count"} for row in rows])
    return tuple(domain for domain, count in zip(domains, counts, strict=True) for _ in range(count))


def _rows(domains: Sequence[DomainSpec]) -> list[dict[str, Any]]:
    """Return domains as :func:`_domains` reads them."""
    return [{"count": len(list(run)), **plain(domain)} for domain, run in groupby(domains)]


_MAX_DOMAINS = 1_000_000
Domains = Annotated[
    tuple[DomainSpec, ...],
    GetPydanticSchema(
        lambda _source, handler: core_schema.no_info_wrap_validator_function(
            _domains,
            handler(tuple[AnyDomain, ...]),
            serialization=core_schema.plain_serializer_function_ser_schema(_rows),
        )
    ),
]
"""Domains in order; as plain data, equal ones in a row are written once, with their ``count``."""


@spec
class ClusterSpec(Spec, Shown):
    """A whole cluster: its domains in order (the last may be partial) and the fabric between them.

    With ``raw`` the graph is that one, and ``domains`` only say which GPUs share a scale-up domain
    (:class:`topology.structures.raw.RawDomain`). ``faults`` are what is broken or degraded in the graph as built.
    """

    name: Text
    domains: Domains
    scale_out: Annotated[ScaleOutSpec | None, union(AnyFabric | None)] = None
    faults: tuple[Fault, ...] = ()
    raw: RawTopology | None = None

    def brief(self) -> str:
        """Return its name and domains."""
        return f"{self.name}, domains: {len(self.domains):,}"

    @cached_property
    def slow_gpus(self) -> dict[str, float]:
        """GPUs that work at a part of their rates, by id."""
        return {
            fault.gpu: fault.factor for fault in self.faults if fault.gpu is not None and fault.factor > 0
        }

    @cached_property
    def noun(self) -> str:
        """What one of its GPUs is called: its vendor's word, "accelerator" where they differ."""
        nouns = {domain.gpu.noun for domain in self.domains}
        return nouns.pop() if len(nouns) == 1 else "accelerator"

    @cached_property
    def switched(self) -> bool:
        """Whether all domains are."""
        return all(domain.switched for domain in self.domains)

    @cached_property
    def reshaped(self) -> bool:
        """Whether links are not as built: some are down or degraded, or a GPU is gone that others send through."""
        return any(fault.gpu is None or (fault.factor == 0 and not self.switched) for fault in self.faults)

    @property
    def gpus(self) -> int:
        """GPUs of the cluster including failed ones (``len(cluster.gpus)`` counts those that work)."""
        return sum(domain.gpus for domain in self.domains)


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


@dataclass(frozen=True, repr=False)
class Cluster(Shown):
    """A cluster with true links.

    ``gpus`` are those that work, ordered by domain, then node, then position in the node; an index into it names
    a GPU everywhere in the code. ``wiring`` comes from ``lay`` on first use, and ``graph`` from it: costs that need
    only rates never pay for them.
    """

    spec: ClusterSpec
    gpus: tuple[Gpu, ...]
    lay: Callable[[], Wiring] = field(compare=False, repr=False)

    def brief(self) -> str:
        """Return its name, GPUs and domains."""
        domains = len(self.spec.domains)
        return f"{self.name}: {plural(len(self.gpus), 'GPU')} in {plural(domains, 'domain')}"

    @property
    def name(self) -> str:
        """The name it was asked for by (``gb200-nvl72@288``)."""
        return self.spec.name

    @property
    def whole(self) -> Cluster:
        """The cluster that this is a view of; itself where it is no view."""
        return self

    @cached_property
    def domain_kind(self) -> tuple[int, ...]:
        """``[domains]`` the number of each domain's kind: equal specifications have the same, from 0 in order."""
        kinds: dict[DomainSpec, int] = {}
        return tuple(kinds.setdefault(domain, len(kinds)) for domain in self.spec.domains)

    @cached_property
    def wiring(self) -> Wiring:
        """Nodes and links as arrays."""
        return self.lay()

    @cached_property
    def graph(self) -> nx.Graph[str]:
        """The same as a graph, for who walks node by node; attributes are those of :mod:`topology.graph`."""
        return self.wiring.graph(self.name)

    def domain_of(self, gpu: int) -> DomainSpec:
        """Return the specification of the domain that GPU number ``gpu`` is in."""
        return self.spec.domains[self.gpus[gpu].domain]

    def scale_up_bytes_per_s(self, gpu: int) -> float:
        """Return scale-up bytes/s per direction of GPU number ``gpu``: its domain's, less what is broken."""
        if self.spec.raw is not None:
            return float(self.wiring.scale_up_bytes_per_s[self.wiring.number[self.gpus[gpu].id]])
        rate = self.domain_of(gpu).scale_up_bytes_per_s
        if not self.spec.reshaped:
            return rate
        return rate - self.wiring.lost_bytes_per_s.get(self.gpus[gpu].id, 0.0)


class ClusterView(Cluster):
    """Some GPUs of a cluster: ids, links and faults are those of the whole, whose other GPUs are not ours.

    ``spec`` and ``wiring`` are the whole's; only ``gpus`` are fewer, those of the view that work.

    Parameters
    ----------
    cluster:
        The whole, or a view of it.
    gpus:
        Ids of its GPUs; one that is broken comes back where the fault does not (:func:`topology.build.rebuilt`).
    name:
        Of the view; empty: that of the whole, said to be a part.

    Raises
    ------
    InputError
        If the cluster has no such GPU, or none of them works.
    """

    def __init__(self, cluster: Cluster, gpus: Iterable[str], name: str = "") -> None:
        parent, ids = cluster.whole, tuple(dict.fromkeys(gpus))
        working = {gpu.id for gpu in cluster.gpus}
        known = working | {fault.gpu for fault in parent.spec.faults if fault.gpu is not None}
        strange = next((identity for identity in ids if identity not in known), None)
        if strange is not None:
            raise InputError(
                f"view of {cluster.name}: no GPU has the id {strange!r}; {nearest(strange, known)}"
            )
        chosen = working.intersection(ids)
        if not chosen:
            raise InputError(f"view of {cluster.name}: none of its {len(ids)} GPUs is working.")
        super().__init__(parent.spec, tuple(gpu for gpu in parent.gpus if gpu.id in chosen), parent.lay)
        for key, value in (("_whole", parent), ("_name", name or f"part of {parent.name}"), ("ids", ids)):
            object.__setattr__(self, key, value)

    _whole: Cluster
    _name: str
    ids: tuple[str, ...]
    """GPUs of the view, broken ones too."""

    @property
    def name(self) -> str:
        """Its own name."""
        return self._name

    @property
    def whole(self) -> Cluster:
        """The cluster that this is a view of."""
        return self._whole

    @property
    def wiring(self) -> Wiring:
        """Nodes and links of the whole, as arrays."""
        return self._whole.wiring
