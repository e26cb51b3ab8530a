"""Switch chips in each host under switch chips of the domain: CloudMatrix384."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from topology.base.errors import InputError
from topology.base.reading import Fields
from topology.spec import DomainSpec
from topology.structures.structure import check_even, spread
from topology.structures.switched import Switched
from topology.wiring import Laying


class TwoTier(Switched):
    """GPUs on the chips of their host, one a plane, and those on all second-tier chips of their plane.

    CloudMatrix384 is built so: each host of 8 packages has seven first-tier chips, and each of them one link to
    each of the 16 second-tier chips of its plane (arXiv 2506.12708, section 3). A first-tier chip has as many
    uplinks as downlinks (non-blocking). A partial domain keeps all its second-tier chips.
    """

    def check(self, domain: DomainSpec, where: str) -> None:
        """Refuse a domain without a second tier, or uplinks that do not spread evenly over it."""
        super().check(domain, where)
        if domain.upper_switches < 1:
            raise InputError(
                f"{where}: a two-tier domain needs `upper_switches`, chips of the second tier per plane."
            )
        for links in dict.fromkeys(domain.links_per_switch):
            uplinks = links * domain.gpus_per_node
            check_even(uplinks, domain.upper_switches, "a first-tier chip", "`upper_switches`", where)

    def lay(self, domain: DomainSpec) -> Laying:
        """Link GPUs to the chips of their host, and those to the second tier."""
        laying = Laying(domain.gpus)
        planes, high = np.arange(len(domain.links_per_switch)), np.arange(domain.upper_switches)
        upper = laying.add(
            "switch", [f"s{plane}.u{u}" for plane in planes for u in high], plane=np.repeat(planes, len(high))
        ).reshape(len(planes), len(high))
        hosts = np.arange(domain.nodes)
        lower = laying.add(
            "switch",
            [f"n{host}.s{plane}" for host in hosts for plane in planes],
            [f"n{host}" for host in hosts for _ in planes],
            plane=np.tile(planes, len(hosts)),
        ).reshape(len(hosts), len(planes))
        gpus = np.arange(domain.gpus)
        laying.link(
            [domain.fabric], gpus[:, None], lower[gpus // domain.gpus_per_node], domain.links_per_switch
        )
        up = [spread(links * domain.gpus_per_node, len(high), hosts) for links in domain.links_per_switch]
        laying.link([domain.fabric], lower[..., None], upper, np.stack(up, axis=1))
        return laying

    def read(self, row: Fields, known: Sequence[DomainSpec]) -> dict[str, Any]:
        """Return the fields of a domain that a cluster YAML writes out."""
        return {**super().read(row, known), "upper_switches": row.count("upper_switches")}

    def keys(self, domain: DomainSpec) -> dict[str, object]:
        """Return them in its keys."""
        return {**super().keys(domain), "upper_switches": domain.upper_switches}

    def brief(self, _domain: DomainSpec) -> str:
        """Say it in a few words."""
        return ", two tiers of switches"

    def words(self, domain: DomainSpec) -> str:
        """Count the chips of both tiers."""
        planes, chips = len(domain.links_per_switch), domain.upper_switches
        return f"{planes} planes of {domain.nodes} + {chips} switch chips in two tiers"
