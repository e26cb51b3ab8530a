"""Every GPU on every switch chip: NVLink with NVSwitch, and domains of one switch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from topology.base.errors import InputError
from topology.base.reading import Fields
from topology.base.units import plural
from topology.spec import DomainSpec
from topology.structures.structure import Structure
from topology.wiring import Laying


class Switched(Structure):
    """Chips in one tier; a partial domain keeps all of them: an NVL72 rack with 11 of 18 trays has 18 chips still."""

    def check(self, domain: DomainSpec, where: str) -> None:
        """Refuse GPUs without a chip."""
        if domain.gpus > 1 and not domain.links_per_switch:
            raise InputError(f"{where}: links_per_switch is empty, so its GPUs cannot reach each other.")

    def lay(self, domain: DomainSpec) -> Laying:
        """Link every GPU to every chip."""
        laying, planes = Laying(domain.gpus), np.arange(len(domain.links_per_switch))
        chips = laying.add("switch", [f"s{plane}" for plane in planes], plane=planes)
        laying.link([domain.fabric], np.arange(domain.gpus)[:, None], chips, domain.links_per_switch)
        return laying

    def read(self, row: Fields, known: Sequence[DomainSpec]) -> dict[str, Any]:
        """Return the fields of a domain that a cluster YAML writes out."""
        return {**super().read(row, known), "links_per_switch": row.counts("links_per_switch")}

    def keys(self, domain: DomainSpec) -> dict[str, object]:
        """Return them in its keys."""
        return {**super().keys(domain), "links_per_switch": domain.links_per_switch}

    def words(self, domain: DomainSpec) -> str:
        """Count the chips: planes where no chip has as many ports."""
        if domain.links_bundled:
            return "switched; the number of chips and links is not published"
        planes = domain.status in ("hypothetical", "blackboard")
        return plural(len(domain.links_per_switch), "switch plane" if planes else "switch chip")
