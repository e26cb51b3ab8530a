"""A domain of a graph that is written out link by link."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from topology.base.errors import InputError
from topology.base.schema import keyword_spec, problem
from topology.structures.domain import DomainSpec, Way
from topology.wiring import Laying


@keyword_spec
class RawDomain(DomainSpec):
    """Whatever links its file has, which are laid with those of the whole graph; hosts may have unequal GPUs.

    ``least_bytes_per_s`` are scale-up bytes/s of the GPU that has least; they follow from the graph.
    """

    structure: Literal["raw"] = "raw"
    least_bytes_per_s: float

    whole: ClassVar = True
    ways: ClassVar = (
        (Way.MULTIPATH, ""),
        (Way.EVERYWHERE, "some pairs within a domain have no scale-up route and use links outside it"),
        (Way.FORWARDED, "some pairs have routes only through other GPUs, which forward their traffic"),
    )

    @classmethod
    def completed(cls, _data: Mapping[str, Any]) -> Mapping[str, Any]:
        """Reject plain data."""
        raise problem("structure: a raw domain needs its graph under `raw`.")

    def check(self) -> None:
        """Nothing to refuse: its graph has been checked."""

    def lay(self) -> Laying:
        """Reject to lay it alone.

        Raises
        ------
        InputError
            Always: the links are those of the graph.
        """
        raise InputError(f"{self.title}: links are as in its graph.")

    def words(self) -> str:
        """Refer to the file."""
        return "as in its file"

    @property
    def scale_up_bytes_per_s(self) -> float:
        """Scale-up bytes/s of the GPU that has least."""
        return self.least_bytes_per_s
