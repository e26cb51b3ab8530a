"""A scale-up domain: what all structures have, and what each says of itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from enum import Enum
from typing import Annotated, Any, ClassVar

import numpy as np

from topology.base.errors import InputError
from topology.base.figures import Figure
from topology.base.schema import (
    Count,
    Flag,
    MaybeCount,
    Spec,
    Text,
    figures_by_name,
    keyword_spec,
    quantity,
)
from topology.base.units import added
from topology.spec import SYSTEM_FIGURES, FabricSpec, GpuSpec
from topology.wiring import Ints, Laying


class Way(Enum):
    """How bytes go from one GPU of a domain to another."""

    MULTIPATH = "all fewest-hop paths over its links, evenly"
    DIMENSION_ORDER = "dimension-ordered, in the shorter direction"
    FORWARDED = "fewest hops over its links, also through other GPUs"
    EVERYWHERE = "all fewest-hop paths over any links of the cluster"


DETOUR = (Way.FORWARDED, "some pairs have no direct route left and take the fewest hops through other GPUs")
"""The way where links of direct routes are down."""


@keyword_spec
class DomainSpec(Spec, ABC):
    """A scale-up domain: ``gpus`` GPUs that reach each other over ``fabric``.

    Each structure is a class of its own, which ``structure`` names in files: it checks, lays and describes itself.

    Attributes
    ----------
    part:
        Catalog name of the system it is (``gb200-nvl72``).
    gpus_per_node:
        GPUs under one host.
    nodes_per_rack:
        Hosts in one cabinet; None: nobody says. Those of a domain are then in one, which a host that is a domain
        shares with others.
    links_bundled:
        The number of links is not published: one of the total rate stands for all, and cables are not counted.
    copper_between_racks:
        Inter-rack scale-up links are copper, so their length limits the domain.
    """

    structure: str
    part: Text
    title: Text
    status: Text
    gpu: GpuSpec
    gpus: Count
    gpus_per_node: Count
    fabric: FabricSpec
    nodes_per_rack: Count | None = None
    figures: Annotated[Mapping[str, Figure], figures_by_name(SYSTEM_FIGURES)] = field(default_factory=dict)
    notes: tuple[Text, ...] = ()
    links_bundled: Flag = False
    copper_between_racks: Flag = False

    ways: ClassVar[Sequence[tuple[Way, str]]] = ((Way.MULTIPATH, ""),)
    """The ways of a pair, the usual one first, each with a description of the pairs that take it."""
    whole: ClassVar[bool] = False
    """A domain of it is never cut down to fewer GPUs."""
    picture: ClassVar[str] = "tiers"
    """How one domain is drawn: ``tiers`` of switches, ``pairs`` of GPUs in a circle, those of each
    ``nested`` level, or (a torus) a ``grid``."""
    keys: ClassVar[Mapping[str, str]] = {"gpus": "gpus", "gpus_per_node": "gpus_per_node"}
    """Its own fields by the keys of its :class:`DomainRow`."""

    def check(self) -> None:
        """Reject GPUs that do not fill whole hosts, or what else its structure lacks."""
        step = self.gpus_per_node
        if self.gpus % step:
            below, above = self.gpus // step * step, -(-self.gpus // step) * step
            raise InputError(
                f"{self.gpus} GPUs do not fill whole nodes of {step}; "
                f"use {f'{below} or {above}' if below else above}."
            )

    def cut(self, gpus: int) -> DomainSpec:
        """Return it with ``gpus`` GPUs: whole hosts, or those of a part of one, which keep their own links.

        Raises
        ------
        InputError
            If they are neither (:func:`part_sizes`); the nearest sizes are named.
        """
        sizes = part_sizes(gpus, self.gpus_per_node)
        if gpus not in sizes:
            raise InputError(
                f"{gpus} GPUs do not fill whole nodes of {self.gpus_per_node}, nor are they a power of two of one; "
                f"use {' or '.join(map(str, sizes))}."
            )
        return replace(self, gpus=gpus, gpus_per_node=min(gpus, self.gpus_per_node))

    @abstractmethod
    def lay(self) -> Laying:
        """Lay one domain: its switch chips, and the links of its GPUs."""

    @abstractmethod
    def words(self) -> str:
        """Return how the GPUs are joined."""

    def counted(self, key: str) -> int:
        """Return a count that the catalog gives for the domain, 0 where it gives none."""
        figure = self.figures.get(key)
        return 0 if figure is None else round(figure.value)

    @property
    def nodes(self) -> int:
        """Hosts of the domain."""
        return self.gpus // self.gpus_per_node

    @property
    def nodes_in_rack(self) -> int:
        """Hosts of the domain that share a rack, in a full one."""
        return self.nodes_per_rack or self.nodes

    @property
    def rack_of_host(self) -> list[int]:
        """The rack of each host: runs of ``nodes_in_rack``."""
        return [host // self.nodes_in_rack for host in range(self.nodes)]

    @property
    def switched(self) -> bool:
        """Whether every GPU is on every switch chip: one that is gone takes only its own links with it."""
        return False

    @property
    def fabrics(self) -> tuple[FabricSpec, ...]:
        """Its fabrics: that of all links, of a torus whose dimensions differ those of each."""
        return (self.fabric,)

    @property
    def scale_up_links(self) -> list[tuple[int, FabricSpec]]:
        """Scale-up links of one GPU with their fabric: in a torus along each dimension, of an inner GPU."""
        return [(0, self.fabric)]

    @property
    def links_per_gpu(self) -> int:
        """Scale-up links of one GPU (of an inner one, in a torus that does not wrap; not known of a raw one)."""
        return sum(count for count, _ in self.scale_up_links)

    @property
    def scale_up_bytes_per_s(self) -> float:
        """Scale-up bytes/s of one GPU, per direction: its links times the rate of each; NaN if not published.

        Of an inner GPU in a torus that does not wrap; of the GPU that has least in a raw domain.
        """
        return added(links * fabric.link_bytes_per_s.value for links, fabric in self.scale_up_links if links)


@keyword_spec
class DomainRow(Spec, ABC):
    """A domain that a cluster YAML writes out, with the keys that all structures have; each adds its own.

    Attributes
    ----------
    link:
        Rate of one link; several are those along each dimension of a torus.
    nodes_per_rack:
        Hosts in one cabinet; None: all are in one.
    count:
        Domains like it.
    rate_checked:
        Its rates are meant, however odd.
    """

    structure: str
    gpu: Text
    link: Annotated[Figure | tuple[Figure, ...], quantity("byte/s", several=True)]
    link_kind: Text = ""
    latency: Annotated[Figure | None, quantity("s")] = None
    nodes_per_rack: MaybeCount = None
    count: Count = 1
    rate_checked: Flag = False

    domain: ClassVar[type[DomainSpec]]
    """The class of its structure."""

    def check(self) -> None:
        """Reject several rates where there are no dimensions."""
        if isinstance(self.link, tuple) and "shape" not in self.domain.keys:
            raise InputError("link: needs one rate, like 50 GB/s; only a torus has one per dimension.")

    def sizes(self, _known: Sequence[DomainSpec]) -> dict[str, Any]:
        """Return the domain's own fields; ``_known`` are domains of the catalog with the same GPU."""
        return {name: getattr(self, key) for key, name in self.domain.keys.items()}


def part_sizes(gpus: int, node: int) -> tuple[int, ...]:
    """Return the sizes of a part of a domain nearest to ``gpus`` GPUs, below and above; itself alone where it is one.

    A part is whole nodes of ``node`` GPUs, or a power of two of one node.
    """
    step = node if gpus >= node else 1 << (gpus.bit_length() - 1)
    below = gpus // step * step
    return (below,) if below == gpus else (below, min(below + step, node) if gpus < node else below + step)


def spread(links: int | Ints, switches: int, turns: Ints) -> Ints:
    """Spread ``links``, of all turns or of each, over ``switches`` as evenly as whole links allow.

    Returns ``[turns, switches]``; the number of a turn moves the odd links round.
    """
    base, odd = np.divmod(np.reshape(links, (-1, 1)), switches)
    spread_out: Ints = base + ((np.arange(switches) - turns[:, None] * odd) % switches < odd)
    return spread_out


def check_even(uplinks: int, above: int, noun: str, above_noun: str, at: str = "") -> None:
    """Reject uplinks that do not spread evenly: some switches would then share no switch above them.

    Raises
    ------
    InputError
        If ``above`` does not divide ``uplinks``; ``at`` goes before the message.
    """
    if uplinks % above:
        raise InputError(
            f"{at}{uplinks} uplinks of {noun} do not divide evenly over {above} {above_noun}; use a divisor of "
            f"{uplinks}."
        )
