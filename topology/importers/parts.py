"""What files do not say, from what the user named: GPU type, links of a node, rates. Nothing is assumed.

The chip settles its own links (an H100 has 18 of NVLink 4). NICs and uplinks belong to the system around it, so
they are taken from the catalog only where the user named a system, and otherwise asked for by their option.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from topology.base.errors import InputError
from topology.base.figures import Figure
from topology.base.reading import nearest
from topology.base.units import format_quantity, plural
from topology.catalog import (
    cluster_names,
    fabric_names,
    find_scale_out,
    gpu_names,
    load_domain,
    load_fabric,
    load_gpu,
    systems_of,
)
from topology.catalog.spelled import fabric_called, find_gpu, find_system, spelled_gpus
from topology.fabric_file import given_figure, stand_in_latency
from topology.fabrics.fabric import ScaleOutSpec
from topology.spec import FabricSpec, GpuSpec
from topology.structures.domain import DomainSpec
from topology.structures.mesh import MeshDomain
from topology.structures.torus import TorusDomain


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
        if ratio is not None and not (math.isfinite(ratio) and 0 < ratio <= 1000):
            raise InputError(
                f"option `oversubscription` {ratio:g}: must be above 0 and at most 1000 (1: as downlinks)."
            )
        if self.domains not in (None, "leaf", "node"):
            raise InputError(f"option `domains` {self.domains}: leaf or node.")


_SCALE_OUT = ("ib", "ethernet", "roce", "efa", "scale-out")
_SM = {
    "80": ("a100-sxm", "a100-sxm-40gb"),
    "90": ("h100-sxm", "h800-sxm", "h20-sxm", "h200-sxm"),
    "100": ("b200-sxm", "gb200"),
    "103": ("b300-sxm", "gb300"),
    "107": ("rubin",),
    "gfx942": ("mi300x", "mi325x"),
    "gfx950": ("mi355x",),
}
"""GPUs by CUDA compute capability (NVIDIA's list; 10.7 as NCCL prints it of VR200), or AMD's target (LLVM's list)."""
_VENDORS = {"nvlink": "NVIDIA", "xgmi": "AMD"}
_LINK_WORDS = {"nvlink": "NVLink", "xgmi": "xGMI"}
_RATE_MARGIN = 0.25
"""Part by which the rate of a GPU's links may differ from the catalog's: what files call usable is somewhat less."""


class AskError(InputError):
    """Something that a file does not say and no option has given: ``what`` and the ``option`` to give."""

    def __init__(self, what: str, option: str) -> None:
        super().__init__(f"{what}: give {option}")
        self.what = what
        self.option = option


def ask_all(place: str, *needs: Callable[[], object]) -> None:
    """Evaluate ``needs``; ask for everything that is missing in one line.

    Raises
    ------
    InputError
        If any is missing.
    """
    options: dict[str, str] = {}
    for need in needs:
        try:
            need()
        except AskError as ask:
            options[ask.what] = ask.option
    if options:
        raise missing(place, options)


def missing(place: str, options: Mapping[str, str]) -> InputError:
    """Return the error that asks for what is missing, each with the option to give."""
    return InputError(f"{place}: it does not say {_and(list(options))}: give {_and(list(options.values()))}.")


class Parts:
    """Named parts of the catalog and rates of the user, and the report of what was made of them and the files.

    ``taken`` has a line for each part or rate that was used or assumed where files are silent, ``anomalies`` for what
    is unlike its siblings. What neither files nor the user say is asked for: an :class:`AskError` names it, and the
    option to give.
    """

    def __init__(self, options: ImportOptions, sm: str = "", *, infiniband: bool = False) -> None:
        self.options = options
        self.sm = sm
        self.infiniband = infiniband
        self.taken: dict[str, None] = {}
        self.anomalies: list[str] = []
        fabrics = {name: load_fabric(name) for name in map(fabric_called, options.fabrics)}
        self._outer = next((name for name, one in fabrics.items() if one.kind in _SCALE_OUT), None)
        self._inner = next((name for name, one in fabrics.items() if one.kind not in _SCALE_OUT), None)

    def take(self, line: str) -> None:
        """Note what was taken that no file says."""
        self.taken[line] = None

    def _given(self, name: str, what: str, suffix: str = "") -> Figure | None:
        """Return the rate that the user gave by an option, if so."""
        text, option = getattr(self.options, name), f"option `{name}`"
        if text is None:
            return None
        self.take(f"{what}: {text}{suffix} ({option}).")
        return given_figure(text, "byte/s", option)

    @cached_property
    def named_system(self) -> str | None:
        """The catalog system that the user named, if it was one: a GPU goes by its own name first."""
        text = self.options.gpu
        if text is None or text in cluster_names():
            return text
        own = text in gpu_names() or self.options.hbm is not None
        return None if own or find_gpu(text) is not None else find_system(text)

    @cached_property
    def gpu(self) -> GpuSpec:
        """The GPU type."""
        name, hbm = self.options.gpu, self.options.hbm
        if name is None:
            among = f" ({self._sm_words()})" if self.sm else ""
            raise AskError(
                "what its GPUs are (and so how fast their links)",
                f"option `gpu` NAME{among} of `rackplan catalog`, a GPU like h100-sxm or a system like hgx-h100",
            )
        if self.named_system is not None:
            gpu = load_domain(self.named_system).gpu
        elif (known := self._catalog_gpu(name)) is not None:
            gpu = load_gpu(known)
        elif hbm is not None:
            memory = given_figure(hbm, "byte", "option `hbm`")
            gpu = GpuSpec(name, name, "user", "user", 1, {"hbm_bytes": memory})
        else:
            raise InputError(
                f'option `gpu` {name}: unknown GPU "{name}"; {_near(name)} '
                "For one of your own give its memory too, like option `hbm` '48 GB'."
            )
        own = [sm for sm, names in _SM.items() if gpu.name in names]
        makers = ("AMD" if self.sm.startswith("gfx") else "NVIDIA", "none")
        other = self.sm not in own if own else gpu.vendor not in makers
        if self.sm and gpu.name in gpu_names() and other:
            raise InputError(
                f"option `gpu` {name}: the file says {self._sm_words()}, not {gpu.name}"
                f"{f' ({own[0]})' if own else ''}; give what it is, or a name of your own with option `hbm`."
            )
        self.take(f"GPU type: {gpu.name} (option `gpu` {name}).")
        return gpu

    def _sm_words(self) -> str:
        """Return what the files say of the architecture, with the GPUs of the catalog that have it."""
        known = [name for name in _SM.get(self.sm, ()) if name in gpu_names()]
        what = self.sm if self.sm.startswith("gfx") else f"compute capability {self.sm}"
        return f"{what} ({' or '.join(known) or 'no GPU of the catalog'})"

    def check_links(
        self,
        place: str,
        links: Sequence[int],
        *,
        kind: str = "",
        to_peers: bool = False,
        bytes_per_s: float = 0.0,
    ) -> None:
        """Refuse a file whose GPUs have other scale-up links than those that the user named.

        Parameters
        ----------
        place:
            The file.
        links:
            Links of each GPU of one host, 0 where it has none: one GPU may lack some, but not most of them.
        kind:
            ``nvlink`` or ``xgmi``, which one vendor's GPUs have.
        to_peers:
            Whether they go to the other GPUs of the host, not to switches.
        bytes_per_s:
            Rate of all links of a GPU, per direction, where the file has it; then their number is not compared.

        Raises
        ------
        InputError
            If the catalog has another number of links for the GPU, or another rate.
        """
        vendor = _VENDORS.get(kind, self.gpu.vendor)
        if any(links) and self.gpu.vendor not in (vendor, "user", "none"):
            raise InputError(
                f"{place}: its GPUs have {_LINK_WORDS[kind]}, but {self.gpu.name} is {self.gpu.vendor}'s (option "
                f"`gpu` {self.options.gpu}); give what they are, or a name of your own with option `hbm` and option "
                "`fabric`."
            )
        known = [load_domain(self.named_system)] if self.named_system else list(systems_of(self.gpu.name))
        known = [one for one in known if not isinstance(one, TorusDomain) and one.scale_up_bytes_per_s > 0]
        count = max(set(links) - {0}, key=list(links).count, default=0)
        if not known or not count:
            return
        if bytes_per_s:
            rates = [one.scale_up_bytes_per_s for one in known]
            if any(abs(bytes_per_s / rate - 1) <= _RATE_MARGIN for rate in rates):
                return
            has, own = f"{_speed(bytes_per_s)} of scale-up links", f"{_speed(rates[0])}"
        else:
            meshed = [one for one in known if isinstance(one, MeshDomain)]
            wanted = [one.links_per_neighbour * (len(links) - 1) if to_peers else 0 for one in meshed]
            wanted += [
                one.links_per_gpu for one in known if one.structure != "mesh" and not one.links_bundled
            ]
            if count in wanted or not wanted:
                return
            has, own = f"{count} scale-up links", f"{wanted[0]}"
        raise InputError(
            f"{place}: its GPUs have {has}, but {self.gpu.name} has {own} (option `gpu` {self.options.gpu}); give "
            "what they are, or a name of your own with option `hbm` and option `fabric`."
        )

    def _catalog_gpu(self, name: str) -> str | None:
        """Return the GPU of the catalog that the user means; with a memory of its own only the exact name is one."""
        if name in gpu_names() or self.options.hbm is not None:
            return name if name in gpu_names() else None
        return find_gpu(name)

    @cached_property
    def system(self) -> DomainSpec | None:
        """The catalog system that has these GPUs, so many to a node: the one named, else the only one."""
        wanted = self.options.gpus_per_node
        if self.named_system is not None:
            system = load_domain(self.named_system)
            if wanted not in (None, system.gpus_per_node):
                raise InputError(
                    f"option `gpus_per_node` {wanted}: {system.part} has {system.gpus_per_node} GPUs to a node."
                )
            return system
        systems = [one for one in systems_of(self.gpu.name) if wanted in (None, one.gpus_per_node)]
        return systems[0] if len(systems) == 1 else None

    def need_system(self) -> DomainSpec:
        """Return the system, which the GPU alone may not settle."""
        if self.system is not None:
            return self.system
        several = ", ".join(one.part for one in systems_of(self.gpu.name))
        option = (
            f"option `gpu` SYSTEM ({several})" if several else "a node's `nvidia-smi topo -m` or NCCL XML too"
        )
        raise AskError("how GPUs of a node are joined", option)

    def gpus_per_node(self) -> int:
        """Return the GPUs under one host: as the user says, else those of the one system of this GPU."""
        count = self.options.gpus_per_node
        if count is not None:
            self.take(f"{plural(count, 'GPU')} to a node (option `gpus_per_node`).")
            return count
        if self.options.gpu is not None and self.system is not None:
            self.take(
                f"{plural(self.system.gpus_per_node, 'GPU')} to a node: catalog system {self.system.part}."
            )
            return self.system.gpus_per_node
        raise AskError("how many GPUs a node has", "option `gpus_per_node` N")

    @cached_property
    def scale_up(self) -> FabricSpec:
        """One scale-up link."""
        if self._inner is not None:
            fabric = load_fabric(self._inner)
            self.take(f"Scale-up link: {_rate(fabric)} each way, {self._inner} (option `fabric`).")
            return fabric
        systems = [self.need_system()] if self.named_system is not None else systems_of(self.gpu.name)
        fabrics = {one.fabric.name: one.fabric for one in systems}
        if len(fabrics) != 1:
            known = [name for name in fabric_names() if load_fabric(name).kind not in _SCALE_OUT]
            raise AskError(
                "the rate of a scale-up link", f"option `fabric` NAME ({', '.join(fabrics or known)})"
            )
        ((name, fabric),) = fabrics.items()
        self.take(f"Scale-up link: {_rate(fabric)} each way, {name}, that of {self.gpu.name} in the catalog.")
        return fabric

    def nic(self, found: Figure | None = None) -> FabricSpec:
        """Return one NIC: ``found`` in a file, else as the user says, else the named system's."""
        rate = found or self._given("nic", "NIC")
        option = None if found is None else self.options.nic
        if found and option and given_figure(option, "byte/s", "option `nic`").value != found.value:
            line = (
                f"option `nic` {option}: {found.source.partition(',')[0]} says {found.text}, which is taken."
            )
            self.anomalies += [line] * (line not in self.anomalies)
        if rate is not None:
            return self.out_fabric(rate)
        if self._outer is not None:
            fabric = load_fabric(self._outer)
            self.take(f"NIC: {_rate(fabric)}, {self._outer} (option `fabric`).")
            return fabric
        if self.design is not None:
            fabric = self.design.fabric
            self.take(f"NIC: {_rate(fabric)}, {fabric.name}, catalog system {self.named_system}.")
            return fabric
        raise AskError(
            "the rate of a NIC",
            "option `nic` RATE (like '400 Gb/s') or option `fabric` NAME (like ib-ndr400)",
        )

    @cached_property
    def design(self) -> ScaleOutSpec | None:
        """How the system that the user named is usually cabled; None where no system was named."""
        return None if self.named_system is None else find_scale_out(self.named_system)

    def nics_per_gpu(self) -> int:
        """Return NIC links of a GPU: the named system's, else one."""
        plain = self.options.nic is None and self._outer is None
        return self.design.nic_links_per_gpu if self.design is not None and plain else 1

    def oversubscription(self) -> float:
        """Return downlink over uplink rate of a leaf: as the user says, else the named system's."""
        value, source = self.options.oversubscription, " (option `oversubscription`)"
        if value is None and self.design is not None:
            value, source = self.design.oversubscription, f", catalog system {self.named_system}"
        if value is None:
            raise AskError(
                "how many uplinks a leaf has", "option `oversubscription` R (1: as many as downlinks)"
            )
        self.take(f"Uplinks of a leaf: its downlinks over {value:g}{source}.")
        return value

    def join_leaves(self, count: int) -> Figure:
        """Return the rate of the uplink of each of ``count`` switches to one over them all."""
        if rate := self._given(
            "join_leaves", f"Root switch over {count} switches without uplinks, an uplink of each"
        ):
            return rate
        raise AskError(
            f"how its {count} separate switches are joined",
            "the fabric's own file, or option `join_leaves` RATE (a switch over them all, one uplink of it each)",
        )

    def pcie(self, found: Figure | None = None) -> FabricSpec:
        """Return one PCIe link of a GPU: ``found`` in a file, else as the user says."""
        if rate := found or self._given("pcie", "PCIe of a GPU", " each way"):
            return self.inner_fabric("pcie", rate)
        raise AskError("the PCIe rate of a GPU", "option `pcie` RATE (like '64 GB/s')")

    def socket_link(self) -> FabricSpec:
        """Return the link between two sockets."""
        if rate := self._given("socket_link", "Link between sockets", " each way"):
            return self.inner_fabric("socket-link", rate)
        raise AskError("the rate between its sockets", "option `socket_link` RATE (like '100 GB/s')")

    def out_fabric(self, rate: Figure) -> FabricSpec:
        """Return a scale-out link of ``rate``: of a catalog fabric where an InfiniBand file states its rate."""
        if self.infiniband:
            for name in fabric_names():
                fabric = load_fabric(name)
                if fabric.kind == "ib" and fabric.link_bytes_per_s.value == rate.value:
                    return FabricSpec(name, fabric.kind, rate, fabric.latency_s)
        speed = format_quantity(rate.value * 8, "byte/s").replace("B/s", "b/s")
        name = f"{'ib' if self.infiniband else 'nic'} {speed}"
        return FabricSpec(name, "link", rate, stand_in_latency(scale_up=False))

    def inner_fabric(self, name: str, rate: Figure, *, scale_up: bool = False) -> FabricSpec:
        """Return a link inside a host or domain; its latency is the stand-in for such links."""
        return FabricSpec(name, "link", rate, stand_in_latency(scale_up=scale_up))


def _rate(fabric: FabricSpec) -> str:
    figure = fabric.link_bytes_per_s
    return figure.text or format_quantity(figure.value, "byte/s")


def _speed(bytes_per_s: float) -> str:
    return f"{format_quantity(bytes_per_s, 'byte/s')} each way"


def _and(words: list[str]) -> str:
    """Join words with commas and a final `and`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _near(name: str) -> str:
    return spelled_gpus().near(name) or nearest(name, (*gpu_names(), *cluster_names()))
