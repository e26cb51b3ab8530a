"""What clusters are made of, whatever their structure: GPUs, links, faults, and graphs written out.

All rates are bytes per second **per direction**; all peaks are dense, never 2:4-sparse. Domains by structure are in
:mod:`topology.structures`, fabrics between them in :mod:`topology.fabrics`, clusters in :mod:`topology.cluster`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any

from pydantic import model_serializer

from topology.base.errors import InputError, MissingFigureError
from topology.base.figures import Figure
from topology.base.reading import shown
from topology.base.schema import (
    Count,
    CountOrZero,
    Ends,
    Spec,
    Text,
    checked,
    figures_by_name,
    plain,
    problem,
    quantity,
    spec,
    validated,
)
from topology.base.values import require_number

GPU_FIGURES: Mapping[str, str] = {
    "hbm_bytes": "byte",
    "hbm_bytes_per_s": "byte/s",
    "bf16_flop_per_s": "flop/s",
    "fp8_flop_per_s": "flop/s",
    "int8_flop_per_s": "flop/s",
    "fp4_flop_per_s": "flop/s",
    "power_w": "W",
    "usd_per_h": "USD/h",
}
LINK_FIGURES: Mapping[str, str] = {"link_bytes_per_s": "byte/s", "latency_s": "s"}
SYSTEM_FIGURES: Mapping[str, str] = {
    "node_power_w": "W",
    "rack_power_w": "W",
    "domain_power_w": "W",
    "rack_budget_w": "W",
    "node_mass_kg": "kg",
    "rack_mass_kg": "kg",
    "copper_cables_per_link": "1",
    "links_per_transceiver": "1",
    "rack_copper_cable_m": "m",
    "switch_racks": "1",
    "node_cpus": "1",
    "switch_tray_chips": "1",
}
"""Figures that a GPU, a fabric and a system can have, with their units."""
FACTOR = (
    "must be above 0 and at most 1, the remaining fraction of its rate (leave it out if the part is down)."
)
"""Requirement for the factor of a fault."""
_NOUNS = {"Google": "TPU", "AWS": "Trainium chip", "Huawei": "NPU"}


@spec
class GpuSpec(Spec):
    """One accelerator as software sees it.

    ``figures`` holds, each with its origin: ``hbm_bytes`` (capacity as the driver reports it),
    ``hbm_bytes_per_s``, ``bf16_flop_per_s``, ``fp8_flop_per_s``, ``int8_flop_per_s``, ``fp4_flop_per_s`` (dense),
    ``power_w``, ``usd_per_h``. A figure that is not there is not known. ``memory`` is what kind the ``hbm_`` figures
    are of: HBM, GDDR6; just memory where nobody says.
    """

    name: Text
    title: Text
    vendor: Text
    status: Text
    dies: Count
    figures: Annotated[Mapping[str, Figure], figures_by_name(GPU_FIGURES)]
    notes: tuple[Text, ...] = ()
    memory: Text = "memory"

    @property
    def noun(self) -> str:
        """What its vendor calls one of what the catalog counts as a GPU."""
        noun = _NOUNS.get(self.vendor, "GPU")
        return "NPU die" if noun == "NPU" and self.dies == 1 else noun

    def figure(self, key: str) -> Figure:
        """Return the figure called ``key``.

        Raises
        ------
        MissingFigureError
            If the catalog does not have it.
        """
        try:
            return self.figures[key]
        except KeyError:
            known = f"it has {', '.join(sorted(self.figures))}" if self.figures else "none is published"
            raise MissingFigureError(
                f"{self.name}: the catalog has no {key}; {known}. Give it in a cluster YAML under `gpus:`."
            ) from None

    @property
    def hbm_bytes(self) -> float:
        """HBM capacity in bytes, as the driver reports it."""
        return self.figure("hbm_bytes").value

    @property
    def hbm_bytes_per_s(self) -> float:
        """HBM bandwidth in bytes/s."""
        return self.figure("hbm_bytes_per_s").value

    def multiplies(self, dtype: str) -> bool:
        """Whether the catalog has a dense peak for ``dtype`` (``bf16``, ``fp8``, ``int8`` or ``fp4``)."""
        return f"{dtype}_flop_per_s" in self.figures

    def dense_flop_per_s(self, dtype: str) -> float:
        """Dense peak in flop/s for ``dtype`` (``bf16``, ``fp8``, ``int8`` or ``fp4``)."""
        return self.figure(f"{dtype}_flop_per_s").value


@spec
class FabricSpec(Spec):
    """A named network: the rate of one link per direction, and the latency of one hop.

    ``kind`` is the link's technology: ``nvlink``, ``ib``, ``ethernet``, ``ici``, ``xgmi``, ``ualink``...
    """

    name: Text
    kind: Text
    link_bytes_per_s: Annotated[Figure, quantity("byte/s")]
    latency_s: Annotated[Figure, quantity("s")]


@spec
class Fault(Spec):
    """A GPU that computes and reads at ``factor`` of its rates, or a link that runs at it (0: out of service).

    Exactly one of ``gpu`` (an id) and ``link`` (the ids of its two ends) is given. A link that is ``cabled_to`` a
    switch (its id) ends there in place of at its second end; its ``factor`` is 1.
    """

    gpu: Text | None = None
    link: Ends | None = None
    factor: Annotated[float, checked(require_number, 0.0)] = 0.0
    cabled_to: Text | None = None

    @classmethod
    def completed(cls, data: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return it with the factor of a link that ends elsewhere."""
        return {"factor": 1.0, **data} if "cabled_to" in data else data

    def check(self) -> None:
        """Reject neither or both of GPU and link, a factor above 1, a GPU that is cabled elsewhere."""
        if (self.gpu is None) == (self.link is None):
            raise InputError(
                "needs one of `gpu: ID`, `node: ID`, `link: [A, B]`, `nic: ID`, `switch: ID`, `leaf: ID`, "
                "`spine: ID` and `plane: N`."
            )
        if self.link is not None and self.link[0] == self.link[1]:
            raise InputError("link: the two ends must differ.")
        if self.factor > 1:
            raise InputError(f"factor: {self.factor:g} {FACTOR}")
        if self.cabled_to is not None and (self.link is None or self.factor != 1):
            raise InputError(
                "cabled_to: only for whole links; a slow link needs a second entry with its new ends."
            )


@spec
class RawNode(Spec):
    """A node written out one by one. ``gpu`` is its GPU type; ``domain`` the scale-up domain it is in."""

    id: Text
    kind: Text
    domain: Text | None = None
    node: Text | None = None
    rack: Text | None = None
    rail: CountOrZero | None = None
    gpu: GpuSpec | None = None


@spec
class RawLink(Spec):
    """``count`` parallel links of ``fabric`` between two nodes."""

    between: Ends
    fabric: FabricSpec
    count: Count = 1


def _looked_up(rows: Any, key: str, part: str, table: Sequence[object]) -> list[Mapping[str, Any]]:
    """Return rows with what a number in them stands for in its place."""
    if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
        raise problem(f"{key}: must be a list of mappings.")
    filled = []
    for place, row in enumerate(rows):
        number = row.get(part)
        if number is not None and (type(number) is not int or not 0 <= number < len(table)):
            raise problem(f"{key}[{place}]: {part}: {shown(number)} must be a number below {len(table)}.")
        filled.append(row if number is None else {**row, part: table[number]})
    return filled


@spec
class RawTopology(Spec):
    """A graph written out: whatever an importer found, or a user typed.

    As plain data, types of GPUs and fabrics that many share are in lists of their own, and nodes and links have their
    numbers.
    """

    nodes: tuple[RawNode, ...]
    links: tuple[RawLink, ...] = ()

    @classmethod
    def completed(cls, data: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return it with GPU types and fabrics in place of their numbers."""
        data = dict(data)
        gpus = validated(tuple[GpuSpec, ...], data.pop("gpus", ()), "gpus")
        fabrics = validated(tuple[FabricSpec, ...], data.pop("fabrics", ()), "fabrics")
        data["nodes"] = _looked_up(data.get("nodes", []), "nodes", "gpu", gpus)
        return {**data, "links": _looked_up(data.get("links", []), "links", "fabric", fabrics)}

    @model_serializer(mode="plain")
    def _plain(self) -> dict[str, Any]:
        gpus = list(dict.fromkeys(node.gpu for node in self.nodes if node.gpu is not None))
        fabrics = list(dict.fromkeys(link.fabric for link in self.links))
        of_gpu, of_fabric = ({part: i for i, part in enumerate(table)} for table in (gpus, fabrics))
        keys = ("id", "kind", "domain", "node", "rack", "rail")
        nodes = [
            {key: value for key in keys if (value := getattr(node, key)) is not None} for node in self.nodes
        ]
        for row, node in zip(nodes, self.nodes, strict=True):
            if node.gpu is not None:
                row["gpu"] = of_gpu[node.gpu]
        links = [
            {"between": list(link.between), "fabric": of_fabric[link.fabric], "count": link.count}
            for link in self.links
        ]
        return {"gpus": plain(gpus, list[GpuSpec]), "fabrics": plain(fabrics, list[FabricSpec])} | {
            "nodes": nodes,
            "links": links,
        }

    @cached_property
    def fabrics(self) -> dict[tuple[str, float], FabricSpec]:
        """The fabrics of the links by name and rate of a link."""
        return {(link.fabric.name, link.fabric.link_bytes_per_s.value): link.fabric for link in self.links}
