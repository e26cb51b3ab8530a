"""What files leave open: answered by options and named parts where it is needed, or all asked for in one error.

The chip settles its own links (an H100 has 18 of NVLink 4). NICs and uplinks belong to the system around it, so
they are taken from the catalog only where the user named a system, and otherwise asked for by their option.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Literal, NamedTuple

from topology.base.errors import InputError, called, input_name, printable
from topology.base.figures import Evidence, Figure
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
from topology.importers.found import FabricFound, Found, NodeFound, commonest
from topology.importers.options import ImportOptions
from topology.spec import FabricSpec, GpuSpec
from topology.structures.domain import DomainSpec

_SCALE_OUT = ("ib", "ethernet", "roce", "efa", "scale-out")
_RATES = ("nic", "pcie", "socket_link", "join_leaves")
_ASKED = Figure(1.0, "byte/s", Evidence.ASSUMED, "asked for")
"""Stands for a rate until everything that is missing is known; no cluster is made of it."""


Kind = Literal["read", "option", "assumed", "unused", "irregular"]


class Remark(NamedTuple):
    """A line about an import.

    Its kind is how something was read, what options gave, what was assumed (the catalog's included), what of the
    files was not used, or what is irregular.
    """

    kind: Kind
    text: str


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

    def __init__(self, found: Sequence[Found], options: ImportOptions) -> None:
        self.options, self.place = options, " and ".join(one.place for one in found)
        self.several = len(found) > 1
        self.remarks: dict[Remark, None] = {}
        self._asked: dict[str, str] = {}
        self._link_rates = [one.link_rate for one in found if isinstance(one, NodeFound)]
        self.infiniband = any(isinstance(one, FabricFound) and one.infiniband for one in found)
        fabrics = [load_fabric(fabric_called(name)) for name in options.fabrics]
        self.inner = next((one for one in fabrics if one.kind not in _SCALE_OUT), None)
        self.outer = next((one for one in fabrics if one.kind in _SCALE_OUT), None)
        texts = {name: getattr(options, name) for name in _RATES}
        self._rates = {
            name: figure_of(text, "byte/s", input_name(name), called(name))
            for name, text in texts.items()
            if text is not None
        }
        for file in found:
            for line in file.readings:
                self.say("read", line)
            for line in file.anomalies:
                self.say("irregular", line)
        given = {name: getattr(options, name) for name in (*_RATES, "oversubscription", "hbm")}
        self._unused = {name: value for name, value in given.items() if value is not None}
        self._name_gpu(found)

    def say(self, kind: Kind, text: str) -> None:
        """Add a line about the import, once."""
        self.remarks[Remark(kind, printable(text))] = None

    def ask(self, what: str, option: str) -> None:
        """Add something that is missing, and what to give for it."""
        self._asked[what] = option

    def say_unused(self) -> None:
        """Say which options nothing needed."""
        for name, value in self._unused.items():
            self.say(
                "unused", f"{called(name)} {value}: nothing needs it; files or the catalog have the figures."
            )

    def refuse(self) -> None:
        """Raise the error that asks for what is missing, if anything is."""
        if self._asked:
            what, options = _and(list(self._asked)), _and(list(self._asked.values()))
            subject = "they do" if self.several else "it does"
            raise InputError(f"{self.place}: {subject} not say {what}: give {options}.")

    def _name_gpu(self, found: Sequence[Found]) -> None:
        """Take the GPU and its system from the option, else from the files; refuse files that say another GPU."""
        names = [name for one in found for name in one.gpu_names]
        exact = [name for name in names if name.exact and len(name.gpus) == 1]
        text, wanted = self.options.gpu, self.options.gpus_per_node
        told = text is None and len({name.gpus for name in exact}) == 1
        if told:
            text = exact[0].gpus[0]
            self.options = replace(self.options, gpu=text)
        self.named = text is not None
        self.gpu, self.name = self._named(text) if text is not None else (_gpu("unknown"), None)
        self.system = self.design = None
        if text is None:
            among = f" ({_and([name.words for name in dict.fromkeys(names)])})" if names else ""
            self.ask(
                "the GPU type (and so the link rates)",
                f"{input_name('gpu')} NAME{among} of `rackplan catalog`, a GPU like h100-sxm or a system like "
                "hgx-h100",
            )
            return
        if told:
            self.say("read", f"GPU type: {self.gpu.name} ({exact[0].words}).")
        else:
            self.say("option", f"GPU type: {self.gpu.name} ({called('gpu')} {text}).")
        if self.name is not None:
            self.system, self.design = load_domain(self.name), find_scale_out(self.name)
            if wanted not in (None, self.system.gpus_per_node):
                problem = f"{self.name} has {self.system.gpus_per_node} GPUs to a node."
                raise InputError(problem, field="gpus_per_node", value=wanted)
        else:
            fitting = [one for one in self.systems if wanted in (None, one.gpus_per_node)]
            self.system = fitting[0] if len(fitting) == 1 else None
        for one in found if self.gpu.name in gpu_names() else ():
            for name in one.gpu_names:
                if not name.means(self.gpu):
                    raise InputError(
                        f"{one.place}: {input_name('gpu')} {text}: the file says {name.words}, not "
                        f"{self.gpu.name}; give the actual GPU, or a custom name with {input_name('hbm')}."
                    )

    def _named(self, text: str) -> tuple[GpuSpec, str | None]:
        """Return the GPU, and the system if ``text`` names one; with a memory of its own only exact names count."""
        name, hbm = text if text in cluster_names() else None, self.options.hbm
        if name is None and text in gpu_names():
            return load_gpu(text), None
        if name is None and hbm is not None:
            del self._unused["hbm"]
            return _gpu(text, hbm_bytes=figure_of(hbm, "byte", input_name("hbm"), called("hbm"))), None
        if name is None and (known := find_gpu(text)) is not None:
            return load_gpu(known), None
        if (name := name or find_system(text)) is not None:
            return load_domain(name).gpu, name
        raise InputError(
            f"{input_name('gpu')} {text}: unknown GPU '{text}'; {spelled_gpus().near(text)} For a custom GPU give "
            f"its memory too, like {input_name('hbm')} '48 GB'."
        )

    @property
    def systems(self) -> tuple[DomainSpec, ...]:
        """The systems of the catalog that its GPUs can be in: the named one alone, else all that have them."""
        return (load_domain(self.name),) if self.name else systems_of(self.gpu.name)

    def systems_in_words(self, otherwise: str = "of the catalog") -> str:
        """Return the names of those that have its GPUs."""
        return ", ".join(one.part for one in systems_of(self.gpu.name)) or otherwise

    def _given(self, name: str, what: str) -> Figure | None:
        """Return the rate that the user gave by an option, if so."""
        if (rate := self._rates.get(name)) is not None:
            self._unused.pop(name, None)
            self.say("option", f"{what}: {rate.text} ({called(name)}).")
        return rate

    @cached_property
    def per_node(self) -> int:
        """GPUs under one host: as the user says, else those of the one system of this GPU."""
        if (count := self.options.gpus_per_node) is not None:
            self.say("option", f"{plural(count, 'GPU')} to a node ({called('gpus_per_node')}).")
            return count
        if self.system is None:
            self.ask("the number of GPUs per node", f"{input_name('gpus_per_node')} N")
            return 2
        count = self.system.gpus_per_node
        self.say("assumed", f"{plural(count, 'GPU')} to a node: catalog system {self.system.part}.")
        return count

    @cached_property
    def scale_up(self) -> FabricSpec:
        """One scale-up link: of the fabric that the user named, else the catalog's, else as a dump has it."""
        found = commonest(rate for rate in self._link_rates if rate is not None)
        fabrics = {one.fabric.name: one.fabric for one in self.systems}
        if self.inner is not None:
            self.say("option", f"Scale-up link: {_rate(self.inner)} ({called('fabric')}).")
            return self.inner
        if len(fabrics) == 1:
            (fabric,), stated = (
                fabrics.values(),
                f" ({found.source}: {found.text})" if found is not None else "",
            )
            catalog = f"that of {self.gpu.name} in the catalog{stated}"
            self.say("assumed", f"Scale-up link: {_rate(fabric)}, {catalog}.")
            return fabric
        if found is not None:
            return inner_fabric(f"scale-up {found.text}", found, scale_up=True)
        known = fabrics or [name for name in fabric_names() if load_fabric(name).kind not in _SCALE_OUT]
        if self.named:
            self.ask("the rate of a scale-up link", f"{input_name('fabric')} NAME ({', '.join(known)})")
        return inner_fabric("asked", _ASKED)

    @cached_property
    def nic(self) -> FabricSpec:
        """One NIC: as the user says, else the named system's."""
        if (rate := self._given("nic", "NIC")) is not None:
            return self.out_fabric(rate)
        if self.outer is not None:
            self.say("option", f"NIC: {_rate(self.outer)} ({called('fabric')}).")
            return self.outer
        if self.design is not None:
            self.say("assumed", f"NIC: {_rate(self.design.fabric)}, catalog system {self.name}.")
            return self.design.fabric
        options = (
            f"{input_name('nic')} RATE (like '400 Gb/s') or {input_name('fabric')} NAME (like ib-ndr400)"
        )
        self.ask("the rate of a NIC", options)
        return inner_fabric("asked", _ASKED)

    @property
    def nics_per_gpu(self) -> int:
        """NICs of one GPU where no file has any: those of the named system unless the user has other ones."""
        own = "nic" in self._rates or self.outer is not None
        return 1 if self.design is None or own else self.design.nic_links_per_gpu

    def nic_link(self, found: Figure | None) -> FabricSpec:
        """Return one NIC at the rate that a file has, else as answered."""
        if found is None:
            return self.nic
        typed = self._rates.get("nic")
        self._unused.pop("nic", None)
        if typed is not None and typed.value != found.value:
            source = found.source.partition(",")[0]
            self.say("irregular", f"{called('nic')} {typed.text}: {source} says {found.text}, which is used.")
        return self.out_fabric(found)

    def pcie(self, found: Figure | None) -> FabricSpec | None:
        """Return a PCIe link at the rate that a dump has, else at the option's, if either has one."""
        rate = self._given("pcie", "PCIe of a GPU, each way") if found is None else found
        return None if rate is None else inner_fabric("pcie", rate)

    @cached_property
    def socket_link(self) -> FabricSpec:
        """The link between two sockets of a host."""
        rate = self._given("socket_link", "Link between sockets, each way")
        if rate is None:
            self.ask("the rate between its sockets", f"{input_name('socket_link')} RATE (like '100 GB/s')")
        return inner_fabric("socket-link", rate or _ASKED)

    @cached_property
    def oversubscription(self) -> float:
        """Downlink over uplink rate of a leaf: as the user says, else the named system's."""
        if (value := self.options.oversubscription) is not None:
            self._unused.pop("oversubscription", None)
            self.say(
                "option", f"Uplinks of a leaf: its downlinks over {value:g} ({called('oversubscription')})."
            )
        elif self.design is not None:
            value = self.design.oversubscription
            self.say(
                "assumed", f"Uplinks of a leaf: its downlinks over {value:g}, catalog system {self.name}."
            )
        else:
            ask = f"{input_name('oversubscription')} R (1: as many as downlinks)"
            self.ask("the number of uplinks of a leaf", ask)
        return value or 1.0

    def join_leaves(self, tops: int) -> Figure:
        """Return the uplink of each of the ``tops`` switches that nothing joins."""
        rate = self._given(
            "join_leaves", f"Root switch over {tops} switches without uplinks, an uplink of each"
        )
        if rate is None:
            options = f"{input_name('join_leaves')} RATE (a root switch with one uplink from each)"
            others = f"{input_name('hosts')} LIST if the hosts of some have no GPUs"
            self.ask(
                f"how its {tops} separate switches are connected",
                f"the fabric's own file, {options}, or {others}",
            )
        return rate or _ASKED

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


def _gpu(name: str, **figures: Figure) -> GpuSpec:
    return GpuSpec(name=name, title=name, vendor="user", status="user", dies=1, figures=figures)


def _rate(fabric: FabricSpec) -> str:
    figure = fabric.link_bytes_per_s
    return f"{figure.text or format_quantity(figure.value, 'byte/s')} each way, {fabric.name}"


def _and(words: list[str]) -> str:
    """Join words with commas and a final `and`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
