"""Every GPU linked to every other, no switch between: Infinity Fabric of eight MI300X."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from topology.base.errors import InputError
from topology.base.schema import Count, keyword_spec
from topology.spec import FabricSpec
from topology.structures.domain import DETOUR, DomainRow, DomainSpec, Way
from topology.wiring import Laying

LARGEST_MESH_GPUS = 256  # GPUs x GPUs links; nobody builds a full mesh as large


@keyword_spec
class MeshDomain(DomainSpec):
    """A full mesh of ``links_per_neighbour`` links between each two GPUs."""

    structure: Literal["mesh"] = "mesh"
    links_per_neighbour: Count = 1

    picture: ClassVar = "pairs"
    keys: ClassVar = {**DomainSpec.keys, "links_per_peer": "links_per_neighbour"}
    ways: ClassVar = ((Way.MULTIPATH, ""), DETOUR)

    def check(self) -> None:
        """Reject a mesh of too many GPUs."""
        super().check()
        if self.gpus > LARGEST_MESH_GPUS:
            raise InputError(
                f"a full mesh of {self.gpus} GPUs; at most {LARGEST_MESH_GPUS} are supported in one."
            )

    def lay(self) -> Laying:
        """Link every two GPUs."""
        laying = Laying(self.gpus)
        laying.link([self.fabric], *np.triu_indices(self.gpus, 1), self.links_per_neighbour)
        return laying

    def words(self) -> str:
        """Return that there is no switch."""
        return "full mesh without a switch"

    @property
    def scale_up_links(self) -> list[tuple[int, FabricSpec]]:
        """Scale-up links of one GPU with their fabric."""
        return [(self.links_per_neighbour * (self.gpus - 1), self.fabric)]


@keyword_spec
class MeshRow(DomainRow):
    """It as a row of a cluster YAML."""

    structure: Literal["mesh"] = "mesh"
    gpus: Count
    gpus_per_node: Count
    links_per_peer: Count = 1

    domain: ClassVar = MeshDomain
