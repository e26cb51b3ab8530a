"""Every GPU linked to every other, no switch between: Infinity Fabric of eight MI300X."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from topology.base.errors import InputError
from topology.base.reading import Fields
from topology.spec import DomainSpec
from topology.structures.structure import DETOUR, Structure, Way
from topology.wiring import Laying

LARGEST_MESH_GPUS = 256  # GPUs x GPUs links; nobody builds a full mesh as large


class Mesh(Structure):
    """A full mesh of ``links_per_neighbour`` links between each two GPUs."""

    picture = "pairs"
    ways = ((Way.MULTIPATH, ""), DETOUR)

    def check(self, domain: DomainSpec, where: str) -> None:
        """Refuse a mesh without links, or of too many GPUs."""
        if domain.links_per_neighbour < 1:
            raise InputError(
                f"{where}: a mesh needs `links_per_peer`, links between each two GPUs, of at least one."
            )
        if domain.gpus > LARGEST_MESH_GPUS:
            raise InputError(
                f"{where}: a full mesh of {domain.gpus} GPUs; at most {LARGEST_MESH_GPUS} are supported in one."
            )

    def lay(self, domain: DomainSpec) -> Laying:
        """Link every two GPUs."""
        laying = Laying(domain.gpus)
        laying.link([domain.fabric], *np.triu_indices(domain.gpus, 1), domain.links_per_neighbour)
        return laying

    def read(self, row: Fields, known: Sequence[DomainSpec]) -> dict[str, Any]:
        """Return the fields of a domain that a cluster YAML writes out."""
        return {**super().read(row, known), "links_per_neighbour": row.count("links_per_peer", 1)}

    def keys(self, domain: DomainSpec) -> dict[str, object]:
        """Return them in its keys."""
        return {**super().keys(domain), "links_per_peer": domain.links_per_neighbour}

    def brief(self, _domain: DomainSpec) -> str:
        """Say it in a few words."""
        return ", full mesh"

    def words(self, _domain: DomainSpec) -> str:
        """Say that there is no switch."""
        return "full mesh without a switch"
