"""Every GPU on every switch chip: NVLink with NVSwitch, and domains of one switch."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from topology.base.errors import InputError
from topology.base.schema import Count, keyword_spec
from topology.base.units import plural
from topology.spec import FabricSpec
from topology.structures.domain import DomainRow, DomainSpec
from topology.wiring import Laying


@keyword_spec
class ChipDomain(DomainSpec):
    """Switch chips between GPUs; ``links_per_switch``: links of *each* GPU to each chip (H100: ``(5, 5, 4, 4)``)."""

    links_per_switch: tuple[Count, ...]

    keys: ClassVar = {**DomainSpec.keys, "links_per_switch": "links_per_switch"}

    def check(self) -> None:
        """Reject GPUs without a chip."""
        super().check()
        if self.gpus > 1 and not self.links_per_switch:
            raise InputError("links_per_switch is empty, so its GPUs cannot reach each other.")

    @property
    def scale_up_links(self) -> list[tuple[int, FabricSpec]]:
        """Scale-up links of one GPU with their fabric."""
        return [(sum(self.links_per_switch), self.fabric)]


@keyword_spec
class SwitchDomain(ChipDomain):
    """Chips in one tier; a partial domain keeps all of them: an NVL72 rack with 11 of 18 trays has 18 chips still."""

    structure: Literal["switch"] = "switch"

    @property
    def switched(self) -> bool:
        """It is."""
        return True

    def lay(self) -> Laying:
        """Link every GPU to every chip."""
        laying, planes = Laying(self.gpus), np.arange(len(self.links_per_switch))
        chips = laying.add("switch", [f"s{plane}" for plane in planes], plane=planes)
        laying.link([self.fabric], np.arange(self.gpus)[:, None], chips, self.links_per_switch)
        return laying

    def words(self) -> str:
        """Count the chips: planes where no chip has as many ports."""
        if self.links_bundled:
            return "switched; the number of chips and links is not published"
        if self.fabric.kind == "pcie":
            return "PCIe, as one switch"
        planes = self.status in ("hypothetical", "blackboard")
        return plural(len(self.links_per_switch), "switch plane" if planes else "switch chip")


@keyword_spec
class ChipRow(DomainRow):
    """Chips between GPUs as a cluster YAML has them."""

    gpus: Count
    gpus_per_node: Count
    links_per_switch: tuple[Count, ...]


@keyword_spec
class SwitchRow(ChipRow):
    """Chips in one tier."""

    structure: Literal["switch"] = "switch"

    domain: ClassVar = SwitchDomain
