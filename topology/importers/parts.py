"""What files do not say, from what the user named: GPU type, links of a node, rates. Nothing is assumed.

The chip settles its own links (an H100 has 18 of NVLink 4). NICs and uplinks belong to the system around it, so
they are taken from the catalog only where the user named a system, and otherwise asked for by their option.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from topology.catalog import (
    cluster_names,
    fabric_names,
    find_scale_out,
    gpu_names,
    load_domain,
    load_fabric,
    load_gpu,
    load_scale_out,
    systems_of,
)
from topology.errors import InputError
from topology.figures import Evidence, Figure
from topology.reading import nearest
from topology.spec import DomainSpec, FabricSpec, GpuSpec, ScaleOutSpec
from topology.units import format_quantity, parse_quantity


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
    nic, uplink, pcie, socket_link:
        Rate of one NIC, one link between switches, one PCIe slot and the link between sockets, each per direction.
    oversubscription:
        Downlink rate of a leaf over its uplink rate, where a file does not count uplinks.
    domains:
        ``leaf`` (hosts under the same leaves share a scale-up domain) or ``node`` (each host is one).
    hosts:
        Hostlist of the hosts that have GPUs, where a fabric's file has others too.
    topology:
        Which topology of a Slurm file that has several.
    """

    kind: str | None = None
    gpu: str | None = None
    gpus_per_node: int | None = None
    fabrics: tuple[str, ...] = ()
    nic: str | None = None
    uplink: str | None = None
    pcie: str | None = None
    socket_link: str | None = None
    hbm: str | None = None
    oversubscription: float | None = None
    domains: str | None = None
    hosts: str | None = None
    topology: str | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        ratio = self.oversubscription
        if ratio is not None and not (math.isfinite(ratio) and 0 < ratio <= 1000):
            raise InputError(
                f"option `oversubscription` {ratio:g}: must be above 0 and at most 1000 (1: as downlinks)."
            )
        if self.domains not in (None, "leaf", "node"):
            raise InputError(f"option `domains` {self.domains}: leaf or node.")


_SCALE_OUT = ("ib", "ethernet", "roce", "efa", "scale-out")
_STAND_IN = "hgx-h100"  # latencies that no file states, as in cluster files
_SM = {
    "90": ("h100-sxm", "h800-sxm", "h20-sxm", "h200-sxm"),
    "100": ("b200-sxm", "gb200"),
    "103": ("b300-sxm", "gb300"),
    "107": ("rubin",),
}
"""GPUs of the catalog by CUDA compute capability (NVIDIA's list; 10.7 as printed for VR200 by NCCL)."""


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
    missing: dict[str, str] = {}
    for need in needs:
        try:
            need()
        except AskError as ask:
            missing[ask.what] = ask.option
    if missing:
        raise InputError(
            f"{place}: it does not say {_and(list(missing))}: give {_and(list(missing.values()))}."
        )


class Parts:
    """Named parts of the catalog and rates of the user, with a line for each that was used (``taken``)."""

    def __init__(self, options: ImportOptions, sm: str = "", *, infiniband: bool = False) -> None:
        self.options = options
        self.sm = sm
        self.infiniband = infiniband
        self.taken: dict[str, None] = {}
        for name in options.fabrics:
            load_fabric(name)

    def _take(self, line: str) -> None:
        self.taken[line] = None

    @cached_property
    def named_system(self) -> str | None:
        """The catalog system that the user named, if it was one."""
        return self.options.gpu if self.options.gpu in cluster_names() else None

    @cached_property
    def gpu(self) -> GpuSpec:
        """The GPU type."""
        name = self.options.gpu
        if name is None:
            among = f" (sm {self.sm}: {' or '.join(_SM[self.sm])})" if self.sm in _SM else ""
            raise AskError(
                "what its GPUs are (and so how fast their links)",
                f"option `gpu` NAME{among} of `rackplan catalog`, a GPU like h100-sxm or a system like hgx-h100",
            )
        if self.named_system is not None:
            gpu = load_domain(name).gpu
        elif name in gpu_names():
            gpu = load_gpu(name)
        elif self.options.hbm is not None:
            gpu = self._own_gpu(name, self.options.hbm)
        else:
            raise InputError(
                f'option `gpu` {name}: unknown GPU "{name}"; {nearest(name, (*gpu_names(), *cluster_names()))} '
                "For one of your own give its memory too, like option `hbm` '48 GB'."
            )
        fits = _SM.get(self.sm)
        if fits and gpu.name in {one for names in _SM.values() for one in names} and gpu.name not in fits:
            raise InputError(
                f"option `gpu` {name}: the file says compute capability {self.sm}: {' or '.join(fits)}, not "
                f"{gpu.name}."
            )
        self._take(f"GPU type: {gpu.name} (option `gpu` {name}).")
        return gpu

    def _own_gpu(self, name: str, memory: str) -> GpuSpec:
        """Return a GPU that the catalog does not have."""
        value = parse_quantity(memory, "byte", "option `hbm`")
        return GpuSpec(
            name,
            name,
            "user",
            "user",
            1,
            {"hbm_bytes": Figure(value, "byte", Evidence.USER, "option `hbm`", memory)},
        )

    @cached_property
    def system(self) -> DomainSpec | None:
        """The catalog system that has these GPUs, so many to a node: the one named, else the only one."""
        if self.named_system is not None:
            system = load_domain(self.named_system)
            wanted = self.options.gpus_per_node
            if wanted is not None and wanted != system.gpus_per_node:
                raise InputError(
                    f"option `gpus_per_node` {wanted}: {system.part} has {system.gpus_per_node} GPUs to a node."
                )
            return system
        systems = [
            one
            for one in systems_of(self.gpu.name)
            if self.options.gpus_per_node in (None, one.gpus_per_node)
        ]
        return systems[0] if len(systems) == 1 else None

    def need_system(self) -> DomainSpec:
        """Return the system.

        Raises
        ------
        AskError
            If the GPU alone does not settle it.
        """
        system = self.system
        if system is None:
            several = [one.part for one in systems_of(self.gpu.name)]
            raise AskError(
                "how GPUs of a node are joined",
                f"option `gpu` SYSTEM ({', '.join(several)})"
                if several
                else "a node's `nvidia-smi topo -m` or NCCL XML too",
            )
        return system

    def gpus_per_node(self) -> int:
        """Return the GPUs under one host.

        Raises
        ------
        AskError
            If neither the user nor the one system of this GPU says.
        """
        if self.options.gpus_per_node is not None:
            self._take(f"{self.options.gpus_per_node} GPUs to a node (option `gpus_per_node`).")
            return self.options.gpus_per_node
        if self.options.gpu is not None and self.system is not None:
            self._take(f"{self.system.gpus_per_node} GPUs to a node: catalog system {self.system.part}.")
            return self.system.gpus_per_node
        raise AskError("how many GPUs a node has", "option `gpus_per_node` N")

    @cached_property
    def scale_up(self) -> FabricSpec:
        """One scale-up link."""
        for name in self.options.fabrics:
            fabric = load_fabric(name)
            if fabric.kind not in _SCALE_OUT:
                self._take(f"Scale-up link: {_rate(fabric)} each way, {name} (option `fabric`).")
                return fabric
        fabrics = {one.fabric.name: one.fabric for one in systems_of(self.gpu.name)}
        if self.named_system is not None:
            fabrics = {self.need_system().fabric.name: self.need_system().fabric}
        if len(fabrics) != 1:
            known = [n for n in fabric_names() if load_fabric(n).kind not in _SCALE_OUT]
            raise AskError(
                "the rate of a scale-up link", f"option `fabric` NAME ({', '.join(fabrics or known)})"
            )
        fabric = next(iter(fabrics.values()))
        self._take(
            f"Scale-up link: {_rate(fabric)} each way, {fabric.name}, that of {self.gpu.name} in the catalog."
        )
        return fabric

    def nic(self, found: Figure | None = None) -> FabricSpec:
        """Return one NIC: ``found`` in a file, else the option, else a named fabric, else the named system's.

        Raises
        ------
        AskError
            If none of them says.
        """
        if found is not None:
            return self.out_fabric(found)
        if self.options.nic is not None:
            self._take(f"NIC: {self.options.nic} (option `nic`).")
            return self.out_fabric(self._figure(self.options.nic, "option `nic`"))
        for name in self.options.fabrics:
            fabric = load_fabric(name)
            if fabric.kind in _SCALE_OUT:
                self._take(f"NIC: {_rate(fabric)}, {name} (option `fabric`).")
                return fabric
        design = self.design
        if design is not None:
            self._take(
                f"NIC: {_rate(design.fabric)}, {design.fabric.name}, catalog system {self.named_system}."
            )
            return design.fabric
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
        plain = self.options.nic is None and not any(
            load_fabric(n).kind in _SCALE_OUT for n in self.options.fabrics
        )
        return self.design.nic_links_per_gpu if self.design is not None and plain else 1

    def oversubscription(self) -> float:
        """Return downlink over uplink rate of a leaf.

        Raises
        ------
        AskError
            If neither the user nor a named system says.
        """
        if self.options.oversubscription is not None:
            self._take(
                f"Uplinks of a leaf: its downlinks over {self.options.oversubscription:g} "
                "(option `oversubscription`)."
            )
            return self.options.oversubscription
        if self.design is not None:
            value = self.design.oversubscription
            self._take(
                f"Uplinks of a leaf: its downlinks over {value:g}, catalog system {self.named_system}."
            )
            return value
        raise AskError("how many uplinks a leaf has", "option `oversubscription` R (1: as many as downlinks)")

    def uplink(self) -> FabricSpec:
        """Return one link between switches.

        Raises
        ------
        AskError
            If the user does not say.
        """
        if self.options.uplink is None:
            raise AskError("the rate of a link between switches", "option `uplink` RATE")
        self._take(f"Link between switches: {self.options.uplink} (option `uplink`).")
        return self.out_fabric(self._figure(self.options.uplink, "option `uplink`"))

    def pcie(self, found: Figure | None = None) -> FabricSpec:
        """Return one PCIe link of a GPU.

        Raises
        ------
        AskError
            If neither the file nor the user says.
        """
        if found is not None:
            return self.inner_fabric("pcie", found)
        if self.options.pcie is None:
            raise AskError("the PCIe rate of a GPU", "option `pcie` RATE (like '64 GB/s')")
        self._take(f"PCIe of a GPU: {self.options.pcie} each way (option `pcie`).")
        return self.inner_fabric("pcie", self._figure(self.options.pcie, "option `pcie`"))

    def socket_link(self) -> FabricSpec:
        """Return the link between two sockets.

        Raises
        ------
        AskError
            If the user does not say.
        """
        if self.options.socket_link is None:
            raise AskError("the rate between its sockets", "option `socket_link` RATE (like '100 GB/s')")
        self._take(f"Link between sockets: {self.options.socket_link} each way (option `socket_link`).")
        return self.inner_fabric(
            "socket-link", self._figure(self.options.socket_link, "option `socket_link`")
        )

    def unused(self) -> list[str]:
        """Return rates and counts that the user gave and nothing needed, as options."""
        given = {
            "option `nic`": self.options.nic,
            "option `uplink`": self.options.uplink,
            "option `pcie`": self.options.pcie,
            "option `socket_link`": self.options.socket_link,
            "option `oversubscription`": self.options.oversubscription,
        }
        return [
            name
            for name, value in given.items()
            if value is not None and f"({name})" not in " ".join(self.taken)
        ]

    def out_fabric(self, rate: Figure) -> FabricSpec:
        """Return a scale-out link of ``rate``: of a catalog fabric where an InfiniBand file states its rate."""
        if self.infiniband:
            for name in fabric_names():
                fabric = load_fabric(name)
                if fabric.kind == "ib" and fabric.link_bytes_per_s.value == rate.value:
                    return FabricSpec(name, fabric.kind, rate, fabric.latency_s)
        latency = load_scale_out(_STAND_IN).fabric.latency_s
        speed = format_quantity(rate.value * 8, "byte/s").replace("B/s", "b/s")
        return FabricSpec(f"{'ib' if self.infiniband else 'nic'} {speed}", "link", rate, latency)

    def inner_fabric(self, name: str, rate: Figure, *, scale_up: bool = False) -> FabricSpec:
        """Return a link inside a host or domain; its latency is the stand-in for such links."""
        stand_in = load_domain(_STAND_IN) if scale_up else load_scale_out(_STAND_IN)
        return FabricSpec(name, "link", rate, stand_in.fabric.latency_s)

    def _figure(self, text: str, option: str) -> Figure:
        return Figure(parse_quantity(text, "byte/s", option), "byte/s", Evidence.USER, option, text)


def _rate(fabric: FabricSpec) -> str:
    figure = fabric.link_bytes_per_s
    return figure.text or format_quantity(figure.value, "byte/s")


def _and(words: list[str]) -> str:
    """Join words with commas and a final `and`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
