"""Switch chips in each host under switch chips of the domain: CloudMatrix384."""

from __future__ import annotations

from dataclasses import fields
from typing import ClassVar, Literal

import numpy as np

from topology.base.schema import Count, keyword_spec
from topology.structures.domain import DomainSpec, check_even, part_sizes, spread
from topology.structures.switch import ChipDomain, ChipRow, SwitchDomain
from topology.wiring import Laying


@keyword_spec
class TwoTierDomain(ChipDomain):
    """GPUs on the chips of their host, one a plane, and those on all second-tier chips of their plane.

    CloudMatrix384 is built so: each host of 8 packages has seven first-tier chips, and each of them one link to
    each of the 16 second-tier chips of its plane (arXiv 2506.12708, section 3). A first-tier chip has as many
    uplinks as downlinks (non-blocking). A partial domain keeps all its second-tier chips, ``upper_switches`` of each
    plane.
    """

    structure: Literal["two-tier"] = "two-tier"
    upper_switches: Count

    keys: ClassVar = {**ChipDomain.keys, "upper_switches": "upper_switches"}

    def check(self) -> None:
        """Reject uplinks that do not spread evenly over the second tier."""
        super().check()
        for links in dict.fromkeys(self.links_per_switch):
            check_even(
                links * self.gpus_per_node, self.upper_switches, "a first-tier chip", "`upper_switches`"
            )

    def cut(self, gpus: int) -> DomainSpec:
        """Return it with fewer GPUs; those of a part of one host meet on its first-tier chips and need no others.

        Raises
        ------
        InputError
            As that of all structures.
        """
        if gpus >= self.gpus_per_node or gpus not in part_sizes(gpus, self.gpus_per_node):
            return super().cut(gpus)
        values = {
            member.name: getattr(self, member.name)
            for member in fields(SwitchDomain)
            if member.name != "structure"
        }
        figures = {name: figure for name, figure in self.figures.items() if name != "switch_racks"}
        return SwitchDomain(**values | {"gpus": gpus, "gpus_per_node": gpus, "figures": figures})

    def lay(self) -> Laying:
        """Link GPUs to the chips of their host, and those to the second tier."""
        laying = Laying(self.gpus)
        planes, high = np.arange(len(self.links_per_switch)), np.arange(self.upper_switches)
        upper = laying.add(
            "switch", [f"s{plane}.u{u}" for plane in planes for u in high], plane=np.repeat(planes, len(high))
        ).reshape(len(planes), len(high))
        hosts = np.arange(self.nodes)
        lower = laying.add(
            "switch",
            [f"n{host}.s{plane}" for host in hosts for plane in planes],
            [f"n{host}" for host in hosts for _ in planes],
            plane=np.tile(planes, len(hosts)),
        ).reshape(len(hosts), len(planes))
        gpus = np.arange(self.gpus)
        laying.link([self.fabric], gpus[:, None], lower[gpus // self.gpus_per_node], self.links_per_switch)
        up = [spread(links * self.gpus_per_node, len(high), hosts) for links in self.links_per_switch]
        laying.link([self.fabric], lower[..., None], upper, np.stack(up, axis=1))
        return laying

    def words(self) -> str:
        """Count the chips of both tiers."""
        planes, chips = len(self.links_per_switch), self.upper_switches
        return f"{planes} planes of {self.nodes} + {chips} switch chips in two tiers"


@keyword_spec
class TwoTierRow(ChipRow):
    """It as a row of a cluster YAML."""

    structure: Literal["two-tier"] = "two-tier"
    upper_switches: Count

    domain: ClassVar = TwoTierDomain
