"""What files leave open: answered by options and named parts where it is needed, or all asked for in one error.

The chip settles its own links (an H100 has 18 of NVLink 4). NICs and uplinks belong to the system around it, so
they are taken from the catalog only where the user named a system, and otherwise asked for by their option.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple, TypeVar

from topology.base.errors import InputError, called, input_name, printable
from topology.base.figures import Evidence, Figure
from topology.base.schema import figure_of
from topology.base.units import format_quantity
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
from topology.importers.found import FabricFound, Found, NodeFound, commonest
from topology.spec import FabricSpec, GpuSpec
from topology.structures.domain import DomainSpec

T = TypeVar("T", int, float, Figure, FabricSpec)
_SCALE_OUT = ("ib", "ethernet", "roce", "efa", "scale-out")
_RATES = ("nic", "pcie", "socket_link", "join_leaves")
Kind = Literal["read", "option", "assumed", "unused", "irregular"]


@dataclass(frozen=True)
class ImportOptions:
    """Options of ``rackplan import``, as typed.

    Attributes
    ----------
    kind:
        Kind of every file, where recognising it by content is not wanted.
    gpu:
        A GPU of the catalog, or a system of the catalog (which then also says what its nodes, domains and NICs
        are), or a name of the user's own together with ``hbm``.
    fabrics:
        Fabrics of the catalog: a scale-up one for links inside a domain, a scale-out one for NICs.
    nic, pcie, socket_link:
        Rate of one NIC, one PCIe slot and the link between sockets, each per direction.
    oversubscription:
        Downlink rate of a leaf over its uplink rate, where a file does not count uplinks.
    join_leaves:
        Rate of one uplink of each switch that has none to a switch over them all, where a file ends in several.
    domains:
        ``leaf`` (hosts under the same leaves share a scale-up domain) or ``node`` (each host is one).
    hosts:
        Hostlist of the hosts that have GPUs, where a fabric's file has others too.
    """

    kind: str | None = None
    gpu: str | None = None
    gpus_per_node: int | None = None
    fabrics: tuple[str, ...] = ()
    nic: str | None = None
    pcie: str | None = None
    socket_link: str | None = None
    hbm: str | None = None
    oversubscription: float | None = None
    join_leaves: str | None = None
    domains: str | None = None
    hosts: str | None = None

    def __post_init__(self) -> None:
        ratio = self.oversubscription
        if ratio is not None and not 0 < ratio <= 1000:
            problem = "must be above 0 and at most 1000 (1: as downlinks)."
            raise InputError(problem, field="oversubscription", value=f"{ratio:g}")
        if self.domains not in (None, "leaf", "node"):
            raise InputError("leaf or node.", field="domains", value=self.domains)


class Remark(NamedTuple):
    """A line about an import.

    Its kind is how something was read, what options gave, what was assumed (the catalog's included), what of the
    files was not used, or what is irregular.
    """

    kind: Kind
    text: str


def _over_pcie(domain: DomainSpec) -> bool:
    return domain.fabric.kind == "pcie"


class Answers:
    """The parts that the user named, the figures that no file has, and what is said of them.

    What neither options nor named parts answer is added to the questions, and a stand-in is returned, so that
    :meth:`refuse` asks for all of it.

    Attributes
    ----------
    gpu:
        The GPU; a stand-in where neither an option nor a file names it (``named`` is then unset).
    name, system:
        The system that the user named, if it was one, and its domain; else the domain of the only system that has
        so many of these GPUs to a node, if there is one.
    design:
        How the named system is usually cabled.
    inner, outer:
        The fabrics that the user named for scale-up links and for NICs.
    """

    def __init__(self, files: Sequence[Found], options: ImportOptions) -> None:
        self.options, self.place = options, " and ".join(file.place for file in files)
        self.several = len(files) > 1
        self.remarks: dict[Remark, None] = {}
        self._asked: dict[str, str] = {}
        nodes = [file for file in files if isinstance(file, NodeFound)]
        self._link_rate = commonest(node.link_rate for node in nodes if node.link_rate is not None)
        # bridges or a board join these GPUs: hosts of the catalog where PCIe alone does are others
        self._linked = any(node.links and node.link_kind != "pcie" for node in nodes)
        self.infiniband = any(isinstance(file, FabricFound) and file.infiniband for file in files)
        fabrics = [load_fabric(fabric_called(name)) for name in options.fabrics]
        self.inner = next((fabric for fabric in fabrics if fabric.kind not in _SCALE_OUT), None)
        self.outer = next((fabric for fabric in fabrics if fabric.kind in _SCALE_OUT), None)
        values = {name: getattr(options, name) for name in (*_RATES, "oversubscription", "hbm")}
        self._unused = {name: value for name, value in values.items() if value is not None}
        self._rates = {
            name: figure_of(value, "byte/s", input_name(name), called(name))
            for name, value in self._unused.items()
            if name in _RATES
        }
        for file in files:
            for line in file.readings:
                self.say("read", line)
            for line in file.anomalies:
                self.say("irregular", line)
        self._name_gpu(files)

    def say(self, kind: Kind, text: str) -> None:
        """Add a line about the import, once."""
        self.remarks[Remark(kind, printable(text))] = None

    def say_unused(self) -> None:
        """Say which options nothing needed."""
        for name, value in self._unused.items():
            self.say("unused", f"{called(name)} {value}: not needed: files or the catalog have such figures.")

    def ask(self, subject: str, option: str) -> None:
        """Add something that is missing, and what to give for it."""
        self._asked[subject] = option

    def refuse(self) -> None:
        """Raise the error that asks for what is missing, if anything is."""
        if self._asked:
            missing, options = _and(self._asked), _and(self._asked.values())
            subject = "they do" if self.several else "it does"
            raise InputError(f"{self.place}: {subject} not say {missing}: give {options}.")

    def _answer(
        self,
        subject: str,
        option: str,
        given: T | None,
        known: T | None = None,
        source: str = "",
        question: tuple[str, str] | None = None,
    ) -> T | None:
        """Return what an option gave, else what is ``known``, and say it of ``subject``; else ask the question."""
        if given is not None:
            self._unused.pop(option, None)
            self.say("option", f"{subject}: {_words(given)} ({called(option)}).")
            return given
        if known is not None:
            self.say("assumed", f"{subject}: {_words(known)}, {source or f'catalog system {self.name}'}.")
        elif question is not None:
            self.ask(*question)
        return known

    def _name_gpu(self, files: Sequence[Found]) -> None:
        """Take the GPU and its system from the option, else from the files; refuse files that say another GPU."""
        names = dict.fromkeys(name for file in files for name in file.gpu_names)
        exact = {name.gpus: name for name in names if name.exact and len(name.gpus) == 1}
        text, per_node = self.options.gpu, self.options.gpus_per_node
        kind: Kind = "option"
        source = f"{called('gpu')} {text}"
        if text is None and len(exact) == 1:
            (text,), kind, source = next(iter(exact)), "read", next(iter(exact.values())).words
            self.options = replace(self.options, gpu=text)
        self.named = text is not None
        self.gpu, self.name = self._named(text) if text is not None else (_gpu("unknown"), None)
        if self.name is not None and self._linked and _over_pcie(load_domain(self.name)):
            self.name = None
        self.system = self.design = None
        if text is None:
            among = f" ({_and(name.words for name in names)})" if names else ""
            example = "of `rackplan catalog`, a GPU like h100-sxm or a system like hgx-h100"
            self.ask("the GPU type (and so the link rates)", f"{input_name('gpu')} NAME{among} {example}")
            return
        self.say(kind, f"GPU type: {self.gpu.name} ({source}).")
        fitting = [domain for domain in self.systems if per_node in (None, domain.gpus_per_node)]
        self.system = fitting[0] if len(fitting) == 1 else None
        if self.name is not None:
            self.design = find_scale_out(self.name)
            if self.system is None:
                problem = f"{self.name} has {self.systems[0].gpus_per_node} GPUs to a node."
                raise InputError(problem, field="gpus_per_node", value=per_node)
        for file in files if self.gpu.name in gpu_names() else ():
            for name in file.gpu_names:
                if not name.means(self.gpu):
                    mismatch = f"the file says {name.words}, not {self.gpu.name}"
                    remedy = f"give the actual GPU, or a custom name with {input_name('hbm')}"
                    raise InputError(f"{file.place}: {input_name('gpu')} {text}: {mismatch}; {remedy}.")

    def _named(self, text: str) -> tuple[GpuSpec, str | None]:
        """Return the GPU, and the system if ``text`` names one; with a memory of its own only exact names count."""
        hbm, systems = self.options.hbm, cluster_names()
        if hbm is not None and text not in (*systems, *gpu_names()):
            del self._unused["hbm"]
            return _gpu(text, hbm_bytes=figure_of(hbm, "byte", input_name("hbm"), called("hbm"))), None
        if text not in systems and (known := find_gpu(text)) is not None:
            return load_gpu(known), None
        if (name := find_system(text)) is not None:
            return load_domain(name).gpu, name
        near, remedy = spelled_gpus().near(text), f"its memory too, like {input_name('hbm')} '48 GB'"
        raise InputError(
            f"{input_name('gpu')} {text}: unknown GPU '{text}'; {near} For a custom GPU give {remedy}."
        )

    @property
    def systems(self) -> tuple[DomainSpec, ...]:
        """The systems of the catalog that its GPUs can be in: the named one alone, else all that have them."""
        if self.name:
            return (load_domain(self.name),)
        return tuple(
            domain for domain in systems_of(self.gpu.name) if not (self._linked and _over_pcie(domain))
        )

    @property
    def system_names(self) -> str:
        """Names of those, with commas."""
        return ", ".join(domain.part for domain in self.systems)

    @cached_property
    def per_node(self) -> int:
        """GPUs under one host: as the user says, else those of the one system of this GPU."""
        given, system = self.options.gpus_per_node, self.system
        known, source = (system.gpus_per_node, f"catalog system {system.part}") if system else (None, "")
        question = "the number of GPUs per node", f"{input_name('gpus_per_node')} N"
        return self._answer("GPUs to a node", "gpus_per_node", given, known, source, question) or 2

    @cached_property
    def scale_up(self) -> FabricSpec:
        """One scale-up link: of the fabric that the user named, else the catalog's, else as a dump has it."""
        dumped = self._link_rate
        fabrics = {domain.fabric.name: domain.fabric for domain in self.systems}
        known = next(iter(fabrics.values())) if len(fabrics) == 1 else None
        stated = f" ({dumped.source}: {dumped.text})" if dumped is not None else ""
        source = f"that of {self.gpu.name} in the catalog{stated}"
        fabric = self._answer("Scale-up link", "fabric", self.inner, known, source)
        if fabric is None and dumped is not None:
            return inner_fabric(f"scale-up {dumped.text}", dumped, scale_up=True)
        if fabric is None and self.named:
            names = [name for name in fabric_names() if load_fabric(name).kind not in _SCALE_OUT]
            self.ask(
                "the rate of a scale-up link", f"{input_name('fabric')} NAME ({', '.join(fabrics or names)})"
            )
        return fabric or _UNKNOWN

    @cached_property
    def nic(self) -> FabricSpec:
        """One NIC: as the user says, else the named system's."""
        rate, known = self._rates.get("nic"), self.design.fabric if self.design is not None else None
        option, given = ("fabric", self.outer) if rate is None else ("nic", self.out_fabric(rate))
        name = f"{input_name('fabric')} NAME (like ib-ndr400)"
        question = "the rate of a NIC", f"{input_name('nic')} RATE (like '400 Gb/s') or {name}"
        return self._answer("NIC", option, given, known, question=question) or _UNKNOWN

    @property
    def nics_per_gpu(self) -> int:
        """NICs of one GPU where no file has any: those of the named system unless the user has other ones."""
        overridden = "nic" in self._rates or self.outer is not None
        return 1 if self.design is None or overridden else self.design.nic_links_per_gpu

    def nic_link(self, rate: Figure | None) -> FabricSpec:
        """Return one NIC at the rate that a file has, else as answered."""
        if rate is None:
            return self.nic
        typed = self._rates.get("nic", rate)
        if typed.value != rate.value:
            self._unused.pop("nic", None)
            source = rate.source.partition(",")[0]
            self.say("irregular", f"{called('nic')} {typed.text}: {source} says {rate.text}, which is used.")
        return self.out_fabric(rate)

    def pcie(self, dumped: Figure | None) -> FabricSpec | None:
        """Return a PCIe link at the rate that a dump has, else at the option's, if either has one."""
        rate = dumped or self._answer("PCIe of a GPU, each way", "pcie", self._rates.get("pcie"))
        return inner_fabric("pcie", rate) if rate else None

    @cached_property
    def socket_link(self) -> FabricSpec:
        """The link between two sockets of a host."""
        given, subject = self._rates.get("socket_link"), "Link between sockets, each way"
        question = "the rate between its sockets", f"{input_name('socket_link')} RATE (like '100 GB/s')"
        rate = self._answer(subject, "socket_link", given, question=question)
        return inner_fabric("socket-link", rate) if rate else _UNKNOWN

    @cached_property
    def oversubscription(self) -> float:
        """Downlink over uplink rate of a leaf: as the user says, else the named system's."""
        given, subject = self.options.oversubscription, "Uplinks of a leaf, oversubscribed by"
        known = self.design.oversubscription if self.design is not None else None
        ask = f"{input_name('oversubscription')} R (1: as many as downlinks)"
        question = "the number of uplinks of a leaf", ask
        return self._answer(subject, "oversubscription", given, known, question=question) or 1.0

    def join_leaves(self, tops: int) -> Figure:
        """Return the uplink of each of the ``tops`` switches that nothing joins."""
        subject = f"Root switch over {tops} switches without uplinks, an uplink of each"
        root = f"{input_name('join_leaves')} RATE (a root switch with one uplink from each)"
        hosts = f"{input_name('hosts')} LIST if the hosts of some have no GPUs"
        options = f"the fabric's own file, {root}, or {hosts}"
        question = f"how its {tops} separate switches are connected", options
        rate = self._answer(subject, "join_leaves", self._rates.get("join_leaves"), question=question)
        return rate or _UNKNOWN.link_bytes_per_s

    def out_fabric(self, rate: Figure) -> FabricSpec:
        """Return a scale-out link of ``rate``: of a catalog fabric where an InfiniBand file states its rate."""
        for fabric in map(load_fabric, fabric_names()) if self.infiniband else ():
            if fabric.kind == "ib" and fabric.link_bytes_per_s.value == rate.value:
                return replace(fabric, link_bytes_per_s=rate)
        speed = format_quantity(rate.value * 8, "byte/s").replace("B/s", "b/s")
        name, latency = f"{'ib' if self.infiniband else 'nic'} {speed}", stand_in_latency(scale_up=False)
        return FabricSpec(name=name, kind="link", link_bytes_per_s=rate, latency_s=latency)


def inner_fabric(name: str, rate: Figure, *, scale_up: bool = False) -> FabricSpec:
    """Return a link inside a host or domain; its latency is the stand-in for such links."""
    latency = stand_in_latency(scale_up=scale_up)
    return FabricSpec(name=name, kind="link", link_bytes_per_s=rate, latency_s=latency)


_UNKNOWN = inner_fabric("unknown", Figure(1.0, "byte/s", Evidence.ASSUMED, "asked for"))
"""Stands for a link until everything that is missing is known; no cluster is made of it."""


def _gpu(name: str, **figures: Figure) -> GpuSpec:
    return GpuSpec(name=name, title=name, vendor="user", status="user", dies=1, figures=figures)


def _words(value: object) -> str:
    """Return a figure in words, with the name of its fabric where it is of the catalog."""
    if isinstance(value, FabricSpec):
        name = f", {value.name}" * (value.kind != "link")
        return f"{_words(value.link_bytes_per_s)} each way{name}"
    if isinstance(value, Figure):
        return value.text or format_quantity(value.value, value.unit)
    return f"{value:g}"


def _and(words: Iterable[str]) -> str:
    """Join words with commas and a final `and`."""
    *leading, final = words
    return f"{', '.join(leading)} and {final}" if leading else final
