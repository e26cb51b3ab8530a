"""Details missing from files, taken from options and named parts, or requested in one error.

The chip settles its own links (an H100 has 18 of NVLink 4). NICs and uplinks belong to the system around it, so
they are taken from the catalog only where the user named a system, and otherwise asked for by their option.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from topology.base.errors import InputError, called, input_name
from topology.base.figures import Figure
from topology.base.schema import figure_of
from topology.base.units import format_quantity, plural
from topology.catalog import (
    cluster_names,
    fabric_names,
    find_scale_out,
    gpu_names,
    load_domain,
    load_fabric,
    load_gpu,
    stand_in_latency,
    systems_of,
)
from topology.catalog.spelled import fabric_called, find_gpu, find_system, spelled_gpus
from topology.fabrics.fabric import ScaleOutSpec
from topology.importers.found import FabricFound, NodeFound, Nodes, commonest
from topology.importers.gpu_names import GpuName
from topology.importers.options import ImportOptions, Log
from topology.spec import FabricSpec, GpuSpec
from topology.structures.domain import DomainSpec

_SCALE_OUT = ("ib", "ethernet", "roce", "efa", "scale-out")


class Questions:
    """What is missing in files, with the option to give for each: asked for in one line."""

    def __init__(self, places: Sequence[str]) -> None:
        self._place = f"{' and '.join(places)}: {'it does' if len(places) == 1 else 'they do'} not say"
        self._options: dict[str, str] = {}

    def ask(self, what: str, option: str) -> None:
        """Add something that is missing."""
        self._options[what] = option

    def refuse(self) -> None:
        """Raise the error that asks for what is missing, if anything is."""
        if self._options:
            what, options = (_and(list(words)) for words in (self._options, self._options.values()))
            raise InputError(f"{self._place} {what}: give {options}.")


@dataclass(frozen=True)
class Parts:
    """The parts of the catalog that the user named.

    ``name`` is the system, if it was one; ``system`` that, or else the only one that has so many of these GPUs to a
    node; ``design`` how the named system is usually cabled; ``inner`` and ``outer`` the fabrics named for scale-up
    links and for NICs.
    """

    gpu: GpuSpec
    name: str | None
    system: DomainSpec | None
    design: ScaleOutSpec | None
    inner: FabricSpec | None
    outer: FabricSpec | None

    @property
    def systems(self) -> tuple[DomainSpec, ...]:
        """The systems of the catalog that its GPUs can be in: the named one alone, else all that have them."""
        return (load_domain(self.name),) if self.name else systems_of(self.gpu.name)


@dataclass(frozen=True)
class Answers:
    """What files leave open: the parts, and each figure that is not in a file (None: not needed, or not given)."""

    options: ImportOptions
    parts: Parts
    per_node: int = 0
    scale_up: FabricSpec | None = None
    nic: FabricSpec | None = None
    nics_per_gpu: int = 1
    pcie: FabricSpec | None = None
    socket_link: FabricSpec | None = None
    oversubscription: float | None = None
    join_leaves: Figure | None = None
    infiniband: bool = False


def told_gpu(options: ImportOptions, names: Sequence[GpuName]) -> GpuName | None:
    """Return the name by which files tell a GPU of the catalog, where the user named none and they agree."""
    exact = [name for name in names if name.exact and len(name.gpus) == 1]
    return exact[0] if options.gpu is None and len({name.gpus for name in exact}) == 1 else None


def named_parts(
    options: ImportOptions, names: Sequence[GpuName], told: GpuName | None, questions: Questions, log: Log
) -> Parts | None:
    """Return the parts that the user named, or the files (``told``); None where that is asked for."""
    fabrics = [load_fabric(fabric_called(name)) for name in options.fabrics]
    inner = next((one for one in fabrics if one.kind not in _SCALE_OUT), None)
    outer = next((one for one in fabrics if one.kind in _SCALE_OUT), None)
    if options.gpu is None:
        among = f" ({_and([name.words for name in dict.fromkeys(names)])})" if names else ""
        questions.ask(
            "the GPU type (and so the link rates)",
            f"{input_name('gpu')} NAME{among} of `rackplan catalog`, a GPU like h100-sxm or a system like hgx-h100",
        )
        return None
    name, wanted = _named_system(options), options.gpus_per_node
    gpu = load_domain(name).gpu if name else _named_gpu(options.gpu, options.hbm)
    source = told.words if told else f"{called('gpu')} {options.gpu}"
    log.assume(f"GPU type: {gpu.name} ({source}).")
    if name is not None:
        system: DomainSpec | None = load_domain(name)
        if system is not None and wanted not in (None, system.gpus_per_node):
            raise InputError(
                f"{system.part} has {system.gpus_per_node} GPUs to a node.",
                field="gpus_per_node",
                value=wanted,
            )
        return Parts(gpu, name, system, find_scale_out(name), inner, outer)
    systems = [one for one in systems_of(gpu.name) if wanted in (None, one.gpus_per_node)]
    return Parts(gpu, None, systems[0] if len(systems) == 1 else None, None, inner, outer)


def _named_system(options: ImportOptions) -> str | None:
    """Return the catalog system that the user named, if it was one: a GPU goes by its own name first."""
    text = options.gpu
    if text is None or text in cluster_names():
        return text
    own = text in gpu_names() or options.hbm is not None
    return None if own or find_gpu(text) is not None else find_system(text)


def _named_gpu(text: str, hbm: str | None) -> GpuSpec:
    """Return the GPU that the user named; with a memory of its own only the exact name is the catalog's."""
    known = text if text in gpu_names() else find_gpu(text) if hbm is None else None
    if known is not None:
        return load_gpu(known)
    if hbm is None:
        near = spelled_gpus().near(text)
        raise InputError(
            f"{input_name('gpu')} {text}: unknown GPU '{text}'; {near} For a custom GPU give its memory "
            f"too, like {input_name('hbm')} '48 GB'."
        )
    memory = figure_of(hbm, "byte", input_name("hbm"), called("hbm"))
    return GpuSpec(name=text, title=text, vendor="user", status="user", dies=1, figures={"hbm_bytes": memory})


def answer(
    options: ImportOptions,
    parts: Parts | None,
    nodes: Nodes,
    fabric: FabricFound | None,
    tops: int,
    questions: Questions,
    log: Log,
) -> Answers | None:
    """Return what hosts and their fabric leave open; None where parts were not named.

    ``tops`` are the switches that nothing joins. What is missing is added to the questions.
    """
    asking = _Asking(options, parts, questions, log)
    dumps = [node for node in nodes.values() if node is not None]
    over_pcie = [node for node in dumps if node.over_pcie]
    infiniband = fabric is not None and fabric.infiniband
    per_node = 0 if len(dumps) == len(nodes) else asking.per_node()
    nic = pcie = socket_link = ratio = join = None
    if fabric is not None and _needs_nic(fabric, nodes, parts):
        nic = asking.nic(infiniband=infiniband)
    if fabric is not None and any(trunk.count is None for trunk in fabric.trunks):
        ratio = asking.oversubscription()
    if tops:
        join = asking.rate(
            "join_leaves", f"Root switch over {tops} switches without uplinks, an uplink of each"
        )
    if join is None and tops:
        questions.ask(
            f"how its {tops} separate switches are connected",
            f"the fabric's own file, or {input_name('join_leaves')} RATE (a root switch with one uplink from each)",
        )
    if options.pcie is not None:
        pcie = inner_fabric("pcie", figure_of(options.pcie, "byte/s", input_name("pcie"), called("pcie")))
    elif any(len(node.pcie) < len(node.gpus) or None in node.pcie for node in over_pcie):
        why = (
            ", the way between GPUs whose links are disabled" if any(node.down for node in over_pcie) else ""
        )
        questions.ask(f"the PCIe rate of a GPU{why}", f"{input_name('pcie')} RATE (like '64 GB/s')")
    if any(node.between_sockets for node in over_pcie):
        rate = asking.rate("socket_link", "Link between sockets", " each way")
        socket_link = None if rate is None else inner_fabric("socket-link", rate)
        if rate is None:
            questions.ask(
                "the rate between its sockets", f"{input_name('socket_link')} RATE (like '100 GB/s')"
            )
    if parts is None:
        return None
    if parts.system is None and any(node is None or not node.gpus for node in nodes.values()):
        several = ", ".join(one.part for one in systems_of(parts.gpu.name))
        other = "a node's `nvidia-smi topo -m` or NCCL XML too"
        questions.ask(
            "how the GPUs of a node are connected",
            f"{input_name('gpu')} SYSTEM ({several})" if several else other,
        )
    linked = any(node is None or node.link_kind != "pcie" or not node.gpus for node in nodes.values())
    plain = parts.design is not None and options.nic is None and parts.outer is None
    return Answers(
        options=options,
        parts=parts,
        per_node=per_node,
        scale_up=asking.scale_up(parts, dumps) if linked else None,
        nic=nic,
        nics_per_gpu=parts.design.nic_links_per_gpu if parts.design is not None and plain else 1,
        pcie=pcie,
        socket_link=socket_link,
        oversubscription=ratio,
        join_leaves=join,
        infiniband=infiniband,
    )


@dataclass(frozen=True)
class _Asking:
    """One figure after another: the user's, that of a named part, or a question."""

    options: ImportOptions
    parts: Parts | None
    questions: Questions
    log: Log

    def rate(self, name: str, what: str, suffix: str = "") -> Figure | None:
        """Return the rate that the user gave by an option, if so."""
        text = getattr(self.options, name)
        if text is None:
            return None
        self.log.assume(f"{what}: {text}{suffix} (option `{name}`).")
        return figure_of(text, "byte/s", input_name(name), f"option `{name}`")

    def per_node(self) -> int:
        """Return the GPUs under one host: as the user says, else those of the one system of this GPU."""
        count, source = self.options.gpus_per_node, f" ({called('gpus_per_node')})"
        if count is None and self.parts is not None and (system := self.parts.system) is not None:
            count, source = system.gpus_per_node, f": catalog system {system.part}"
        if count is None:
            self.questions.ask("the number of GPUs per node", f"{input_name('gpus_per_node')} N")
            return 0
        self.log.assume(f"{plural(count, 'GPU')} to a node{source}.")
        return count

    def scale_up(self, parts: Parts, dumps: Sequence[NodeFound]) -> FabricSpec | None:
        """Return one scale-up link: of the fabric that the user named, else the catalog's, else as a dump has it."""
        found = commonest(node.link_rate for node in dumps if node.link_rate is not None)
        fabrics = {one.fabric.name: one.fabric for one in parts.systems}
        if parts.inner is not None:
            fabric, source = parts.inner, f" ({called('fabric')})"
        elif len(fabrics) == 1:
            stated = f" ({found.source}: {found.text})" if found is not None else ""
            (fabric,), source = fabrics.values(), f", that of {parts.gpu.name} in the catalog{stated}"
        elif found is not None:
            return inner_fabric(f"scale-up {found.text}", found, scale_up=True)
        else:
            known = fabrics or [name for name in fabric_names() if load_fabric(name).kind not in _SCALE_OUT]
            self.questions.ask(
                "the rate of a scale-up link", f"{input_name('fabric')} NAME ({', '.join(known)})"
            )
            return None
        self.log.assume(f"Scale-up link: {_rate(fabric)} each way, {fabric.name}{source}.")
        return fabric

    def nic(self, *, infiniband: bool) -> FabricSpec | None:
        """Return one NIC: as the user says, else the named system's."""
        if (rate := self.rate("nic", "NIC")) is not None:
            return out_fabric(rate, infiniband=infiniband)
        fabric, source, parts = None, "", self.parts
        if parts is not None and parts.outer is not None:
            fabric, source = parts.outer, f" ({called('fabric')})"
        elif parts is not None and parts.design is not None:
            fabric, source = parts.design.fabric, f", catalog system {parts.name}"
        if fabric is None:
            options = (
                f"{input_name('nic')} RATE (like '400 Gb/s') or {input_name('fabric')} NAME (like ib-ndr400)"
            )
            self.questions.ask("the rate of a NIC", options)
        else:
            self.log.assume(f"NIC: {_rate(fabric)}, {fabric.name}{source}.")
        return fabric

    def oversubscription(self) -> float | None:
        """Return downlink over uplink rate of a leaf: as the user says, else the named system's."""
        value, source = self.options.oversubscription, f" ({called('oversubscription')})"
        if value is None and self.parts is not None and self.parts.design is not None:
            value, source = self.parts.design.oversubscription, f", catalog system {self.parts.name}"
        if value is None:
            ask = f"{input_name('oversubscription')} R (1: as many as downlinks)"
            self.questions.ask("the number of uplinks of a leaf", ask)
        else:
            self.log.assume(f"Uplinks of a leaf: its downlinks over {value:g}{source}.")
        return value


def _needs_nic(fabric: FabricFound, nodes: Nodes, parts: Parts | None) -> bool:
    """Whether neither the fabric nor a host's dump has the rate of some NIC."""
    for host, ports in fabric.ports_by_host.items():
        if host in nodes and any(port.rate is None for port in ports):
            node = nodes[host]
            near = [nic for nic in node.nics if nic.near] if node is not None else []
            if not near or any(nic.rate is None for nic in near):
                return True
    return not fabric.switches and parts is not None and parts.design is not None


def out_fabric(rate: Figure, *, infiniband: bool = False) -> FabricSpec:
    """Return a scale-out link of ``rate``: of a catalog fabric where an InfiniBand file states its rate."""
    if infiniband:
        for fabric in map(load_fabric, fabric_names()):
            if fabric.kind == "ib" and fabric.link_bytes_per_s.value == rate.value:
                return replace(fabric, link_bytes_per_s=rate)
    speed = format_quantity(rate.value * 8, "byte/s").replace("B/s", "b/s")
    name = f"{'ib' if infiniband else 'nic'} {speed}"
    return FabricSpec(
        name=name, kind="link", link_bytes_per_s=rate, latency_s=stand_in_latency(scale_up=False)
    )


def inner_fabric(name: str, rate: Figure, *, scale_up: bool = False) -> FabricSpec:
    """Return a link inside a host or domain; its latency is the stand-in for such links."""
    latency = stand_in_latency(scale_up=scale_up)
    return FabricSpec(name=name, kind="link", link_bytes_per_s=rate, latency_s=latency)


def _rate(fabric: FabricSpec) -> str:
    figure = fabric.link_bytes_per_s
    return figure.text or format_quantity(figure.value, "byte/s")


def _and(words: list[str]) -> str:
    """Join words with commas and a final `and`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
