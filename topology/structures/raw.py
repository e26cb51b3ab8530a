"""A domain of a raw graph: whatever links its file has."""

from __future__ import annotations

from topology.spec import DomainSpec
from topology.structures.structure import Structure
from topology.wiring import Laying


class Raw(Structure):
    """GPUs alone: :mod:`topology.raw` lays their links with those of the whole graph, which it checks."""

    whole = True

    def check(self, domain: DomainSpec, where: str) -> None:
        """Nothing to refuse: its graph has been checked."""

    def lay(self, domain: DomainSpec) -> Laying:
        """Lay no link."""
        return Laying(domain.gpus)

    def words(self, _domain: DomainSpec) -> str:
        """Refer to the file."""
        return "as in its file"
