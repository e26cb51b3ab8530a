"""What a cluster is made of: GPU, fabric, domain and cluster specifications.

All rates are bytes per second **per direction**; all peaks are dense, never 2:4-sparse. These classes are also the
schema of files: :mod:`topology.schema` reads and writes them by their fields and the metadata of those.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from topology.base.errors import MissingFigureError
from topology.base.figures import Figure
from topology.base.shown import Shown
from topology.base.units import added

# What files say of a field beyond its type. `structure` or `kind`: the values of that field it belongs to, where it
# must be there; `brief`: left out where it is the default; `inside`: neither read nor written; `least`: of a whole
# number; `repeated`: equal values in a row are written once, with a `count`; `table`: written as a number in it.
_BRIEF: Mapping[str, object] = {"brief": True}
_TORUS: Mapping[str, object] = {"structure": ("torus",)}
_FAT_TREE: Mapping[str, object] = {"kind": ("fat-tree",)}


_NOUNS = {"Google": "TPU", "AWS": "Trainium chip", "Huawei": "NPU die"}


@dataclass(frozen=True)
class GpuSpec:
    """One accelerator as software sees it.

    ``figures`` holds, each with its origin: ``hbm_bytes`` (capacity as the driver reports it),
    ``hbm_bytes_per_s``, ``bf16_flop_per_s``, ``fp8_flop_per_s``, ``int8_flop_per_s``, ``fp4_flop_per_s`` (dense),
    ``power_w``, ``usd_per_h``. A figure that is not there is not known.
    """

    name: str
    title: str
    vendor: str
    status: str
    dies: int
    figures: Mapping[str, Figure]
    notes: tuple[str, ...] = ()

    @property
    def noun(self) -> str:
        """What its vendor calls one of what the catalog counts as a GPU."""
        return _NOUNS.get(self.vendor, "GPU")

    def figure(self, key: str) -> Figure:
        """Return the figure called ``key``.

        Raises
        ------
        MissingFigureError
            If the catalog does not have it.
        """
        try:
            return self.figures[key]
        except KeyError:
            known = (
                f"it has {', '.join(sorted(self.figures))}"
                if self.figures
                else "no figure of it is published"
            )
            raise MissingFigureError(
                f"{self.name}: the catalog has no {key}; {known}. Give it in a cluster YAML under `gpus:`."
            ) from None

    @property
    def hbm_bytes(self) -> float:
        """HBM capacity in bytes, as the driver reports it."""
        return self.figure("hbm_bytes").value

    @property
    def hbm_bytes_per_s(self) -> float:
        """HBM bandwidth in bytes/s."""
        return self.figure("hbm_bytes_per_s").value

    def multiplies(self, dtype: str) -> bool:
        """Whether the catalog has a dense peak for ``dtype`` (``bf16``, ``fp8``, ``int8`` or ``fp4``)."""
        return f"{dtype}_flop_per_s" in self.figures

    def dense_flop_per_s(self, dtype: str) -> float:
        """Dense peak in flop/s for ``dtype`` (``bf16``, ``fp8``, ``int8`` or ``fp4``)."""
        return self.figure(f"{dtype}_flop_per_s").value


@dataclass(frozen=True)
class FabricSpec:
    """A named network: the rate of one link per direction, and the latency of one hop.

    ``kind`` is the link's technology: ``nvlink``, ``ib``, ``ethernet``, ``ici``, ``xgmi``, ``ualink``...
    """

    name: str
    kind: str
    link_bytes_per_s: Figure
    latency_s: Figure


@dataclass(frozen=True)
class DomainSpec:
    """A scale-up domain: ``gpus`` GPUs that reach each other over ``fabric``.

    Attributes
    ----------
    part:
        Catalog name of the system it is (``gb200-nvl72``).
    gpus_per_node:
        GPUs under one host.
    links_per_switch:
        For each switch chip, how many links of *each* GPU end there (H100: ``(5, 5, 4, 4)``).
    nodes_per_rack:
        Hosts in one cabinet.
    structure:
        ``switch`` (every GPU on every switch chip), ``two-tier`` (every GPU on the chips of its own host, one
        per plane, and those on ``upper_switches`` chips per plane), ``mesh`` (every GPU to every other), ``torus``
        (a grid of ``shape``, closed to a ring in each dimension with ``wrap``), ``raw`` (see :class:`RawTopology`).
    links_per_neighbour:
        In a mesh or torus, parallel links between two neighbours.
    node_shape:
        In a torus, the block of GPUs under one host (TPU v5p: ``(2, 2, 1)``).
    rack_shape:
        In a torus, the block of GPUs in one cabinet; empty where cabinets are runs of ``nodes_per_rack`` hosts.
    dimension_fabrics:
        In a torus whose dimensions differ, the fabric of each; empty where ``fabric`` is that of all.
    upper_switches:
        In a two-tier domain, second-tier chips per plane; each first-tier chip is cabled evenly to all of them.
    links_bundled:
        The number of links is not published: one of the total rate stands for all, and cables are not counted.
    copper_between_racks:
        Its links between racks are copper too: it reaches as far as they go.
    raw_bytes_per_s:
        In a raw domain, scale-up bytes/s of the GPU that has least.
    """

    part: str
    title: str
    status: str
    gpu: GpuSpec
    gpus: int
    gpus_per_node: int
    structure: str
    fabric: FabricSpec
    links_per_switch: tuple[int, ...]
    nodes_per_rack: int
    shape: tuple[int, ...] = field(default=(), metadata=_TORUS)
    wrap: tuple[bool, ...] = field(default=(), metadata=_TORUS)
    links_per_neighbour: int = field(default=0, metadata={"structure": ("mesh", "torus")})
    figures: Mapping[str, Figure] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    node_shape: tuple[int, ...] = field(default=(), metadata=_TORUS)
    dimension_fabrics: tuple[FabricSpec, ...] = field(default=(), metadata={**_TORUS, **_BRIEF})
    upper_switches: int = field(default=0, metadata={"structure": ("two-tier",)})
    rack_shape: tuple[int, ...] = field(default=(), metadata={**_TORUS, **_BRIEF})
    links_bundled: bool = field(default=False, metadata=_BRIEF)
    copper_between_racks: bool = field(default=False, metadata=_BRIEF)
    raw_bytes_per_s: float = field(default=0.0, metadata={"inside": True})

    @property
    def nodes(self) -> int:
        """Hosts of the domain."""
        return self.gpus // self.gpus_per_node

    @property
    def switched(self) -> bool:
        """Whether every GPU is on every switch chip: one that is gone takes only its own links with it."""
        return self.structure == "switch"

    @property
    def links_per_dimension(self) -> tuple[int, ...]:
        """In a torus, links of one GPU along each dimension (of an inner one, where it does not wrap)."""
        # a ring of two has one neighbour, reached both ways round: two links where it wraps
        ends = [
            0 if size == 1 else 1 if size == 2 and not wrap else 2
            for size, wrap in zip(self.shape, self.wrap, strict=True)
        ]
        return tuple(self.links_per_neighbour * end for end in ends)

    @property
    def fabric_of_dimension(self) -> tuple[FabricSpec, ...]:
        """In a torus, the fabric of each dimension."""
        return self.dimension_fabrics or (self.fabric,) * len(self.shape)

    @property
    def scale_up_links(self) -> list[tuple[int, FabricSpec]]:
        """Scale-up links of one GPU with their fabric: in a torus along each dimension, of an inner GPU."""
        if self.shape:
            return list(zip(self.links_per_dimension, self.fabric_of_dimension, strict=True))
        return [(sum(self.links_per_switch) + self.links_per_neighbour * (self.gpus - 1), self.fabric)]

    @property
    def links_per_gpu(self) -> int:
        """Scale-up links of one GPU (of an inner one, in a torus that does not wrap; not known of a raw one)."""
        return sum(count for count, _ in self.scale_up_links)

    @property
    def scale_up_bytes_per_s(self) -> float:
        """Scale-up bytes/s of one GPU, per direction: its links times the rate of each; NaN if not published.

        Of an inner GPU in a torus that does not wrap; of the GPU that has least in a raw domain.
        """
        if self.structure == "raw":
            return self.raw_bytes_per_s
        return added(links * fabric.link_bytes_per_s.value for links, fabric in self.scale_up_links)


@dataclass(frozen=True)
class ScaleOutSpec:
    """The network between domains: one NIC rate per GPU, and how its switches are cabled.

    Attributes
    ----------
    kind:
        ``rail`` (GPU i of every host on leaf i of its pod, leaves on spine planes), ``leaf-spine`` (all GPUs of a
        host on one leaf), ``fat-tree`` (leaves and spines in pods, joined by cores), ``dragonfly`` (groups of
        routers), ``raw`` (whatever a raw graph has).
    nodes_per_pod:
        Hosts that share a set of leaves: rail, one leaf per rail; leaf-spine, one leaf; fat-tree, the leaves of
        one pod; dragonfly, the routers of one group.
    spines:
        Spine planes each leaf is cabled to, evenly (fat-tree: spines in each pod; dragonfly: none).
    oversubscription:
        Downlink rate of a leaf over its uplink rate (dragonfly: of a router's GPUs over its global links).
    leaves_per_pod:
        Fat-tree: leaves in a pod; dragonfly: routers in a group; otherwise 1.
    core_oversubscription:
        Fat-tree: downlink rate of a spine over its uplink rate.
    cores:
        Fat-tree: cores that spine i of every pod shares, evenly cabled; 0 where one pod is all.
    local_links:
        Dragonfly: links between any two routers of a group.
    planes:
        Networks side by side, each with switches of its own as said above; the NICs of a GPU are dealt to them evenly
        (Spectrum-X twin-plane: two of 400 Gb/s).
    """

    kind: str
    fabric: FabricSpec
    nic_links_per_gpu: int
    nodes_per_pod: int
    spines: int = field(metadata={"least": 0})
    oversubscription: float = 1.0
    leaves_per_pod: int = field(default=1, metadata={"kind": ("fat-tree", "dragonfly")})
    core_oversubscription: float = field(default=1.0, metadata=_FAT_TREE)
    cores: int = field(default=0, metadata={**_FAT_TREE, "least": 0})
    local_links: int = field(default=0, metadata={"kind": ("dragonfly",)})
    planes: int = field(default=1, metadata=_BRIEF)

    @property
    def nics_per_plane(self) -> int:
        """NIC links of one GPU in each plane."""
        return self.nic_links_per_gpu // self.planes

    @property
    def nodes_per_leaf(self) -> int:
        """Hosts on one leaf (dragonfly: on one router)."""
        return self.nodes_per_pod // self.leaves_per_pod

    @property
    def total_oversubscription(self) -> float:
        """Rate of the NICs over the rate at the narrowest tier above them."""
        return self.oversubscription * self.core_oversubscription

    @property
    def scale_out_bytes_per_s(self) -> float:
        """Scale-out bytes/s of one GPU, per direction."""
        return self.nic_links_per_gpu * self.fabric.link_bytes_per_s.value


@dataclass(frozen=True)
class Fault:
    """A GPU that computes and reads at ``factor`` of its rates, or a link that runs at it (0: out of service).

    Exactly one of ``gpu`` (an id) and ``link`` (the ids of its two ends) is given. A link that is ``cabled_to`` a
    switch (its id) ends there in place of at its second end; its ``factor`` is 1.
    """

    gpu: str | None = field(default=None, metadata=_BRIEF)
    link: tuple[str, str] | None = field(default=None, metadata=_BRIEF)
    factor: float = 0.0
    cabled_to: str | None = field(default=None, metadata=_BRIEF)


@dataclass(frozen=True)
class RawNode:
    """A node written out one by one. ``gpu`` names its GPU type; ``domain`` the scale-up domain it is in."""

    id: str
    kind: str
    domain: str | None = field(default=None, metadata=_BRIEF)
    node: str | None = field(default=None, metadata=_BRIEF)
    rack: str | None = field(default=None, metadata=_BRIEF)
    rail: int | None = field(default=None, metadata={**_BRIEF, "least": 0})
    gpu: GpuSpec | None = field(default=None, metadata={**_BRIEF, "table": "gpus"})


@dataclass(frozen=True)
class RawLink:
    """``count`` parallel links of ``fabric`` between two nodes."""

    between: tuple[str, str]
    fabric: FabricSpec = field(metadata={"table": "fabrics"})
    count: int = 1


@dataclass(frozen=True)
class RawTopology:
    """A graph written out: whatever an importer found, or a user typed."""

    nodes: tuple[RawNode, ...]
    links: tuple[RawLink, ...] = ()

    @cached_property
    def fabrics(self) -> dict[tuple[str, float], FabricSpec]:
        """The fabrics of the links by name and rate of a link."""
        return {(link.fabric.name, link.fabric.link_bytes_per_s.value): link.fabric for link in self.links}


@dataclass(frozen=True, repr=False)
class ClusterSpec(Shown):
    """A whole cluster: its domains in order (the last may be partial) and the fabric between them.

    With ``raw`` the graph is that one, and ``domains`` only say which GPUs share a scale-up domain
    (``structure="raw"``). ``faults`` are what is broken or degraded in the graph as built.
    """

    name: str
    domains: tuple[DomainSpec, ...] = field(metadata={"repeated": True})
    scale_out: ScaleOutSpec | None
    faults: tuple[Fault, ...] = field(default=(), metadata=_BRIEF)
    raw: RawTopology | None = field(default=None, metadata=_BRIEF)

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
