"""Options for cluster details that files do not contain."""

from __future__ import annotations

import math
from dataclasses import dataclass

from topology.base.errors import InputError


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
            problem = "must be above 0 and at most 1000 (1: as downlinks)."
            raise InputError(problem, field="oversubscription", value=f"{ratio:g}")
        if self.domains not in (None, "leaf", "node"):
            raise InputError("leaf or node.", field="domains", value=self.domains)
