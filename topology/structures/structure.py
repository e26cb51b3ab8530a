"""What each structure of a scale-up domain says of itself: the protocol, and what several of them share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import Enum
from typing import Any

import numpy as np

from topology.base.errors import InputError
from topology.base.reading import Fields
from topology.spec import DomainSpec
from topology.wiring import Ints, Laying


class Way(Enum):
    """How bytes go from one GPU of a domain to another."""

    MULTIPATH = "all fewest-hop paths over its links, evenly"
    DIMENSION_ORDER = "along one dimension of a grid after the other, the shorter way round"
    FORWARDED = "fewest hops over its links, through other GPUs too"
    EVERYWHERE = "all fewest-hop paths over any links of the cluster"


class Structure(ABC):
    """One way to join the GPUs of a domain: checked, laid, routed and told in one place."""

    ways: Sequence[tuple[Way, str]] = ((Way.MULTIPATH, ""),)
    """The ways of a pair, the usual one first, each with what is said of pairs that take it."""

    whole = False
    """A domain of it is never cut down to fewer GPUs."""

    picture = "tiers"
    """How one domain is drawn: ``tiers`` of switches, ``pairs`` of GPUs in a circle, or a ``grid`` of GPUs."""

    @abstractmethod
    def check(self, domain: DomainSpec, where: str) -> None:
        """Refuse a domain that lacks what it needs; ``where`` is its place for the message."""

    @abstractmethod
    def lay(self, domain: DomainSpec) -> Laying:
        """Lay one domain: its switch chips, and the links of its GPUs."""

    def read(self, row: Fields, _known: Sequence[DomainSpec]) -> dict[str, Any]:
        """Return the fields of a domain that a cluster YAML writes out, but for its GPU and the rate of its links.

        ``_known`` are the catalog's systems of the same GPU.
        """
        return {
            "gpus": row.count("gpus"),
            "gpus_per_node": row.count("gpus_per_node"),
            "links_per_switch": (),
        }

    def keys(self, domain: DomainSpec) -> dict[str, object]:
        """Return the same in the keys of a cluster YAML, as :meth:`read` reads them."""
        return {"gpus": domain.gpus, "gpus_per_node": domain.gpus_per_node}

    def brief(self, _domain: DomainSpec) -> str:
        """Say it in a few words behind a comma; nothing of the usual, switch chips in one tier."""
        return ""

    @abstractmethod
    def words(self, domain: DomainSpec) -> str:
        """Say how the GPUs are joined."""


DETOUR = (Way.FORWARDED, "some pairs have no direct route left and take fewest hops through other GPUs")
"""The way where links of direct routes are down."""


def spread(links: int, switches: int, turns: Ints) -> Ints:
    """Spread ``links`` over ``switches`` as evenly as whole links allow, ``[turns, switches]``.

    The number of a turn moves the odd links round.
    """
    each, odd = divmod(links, switches)
    return each + ((np.arange(switches) - turns[:, None] * odd) % switches < odd)


def check_even(uplinks: int, above: int, what: str, others: str, where: str) -> None:
    """Refuse uplinks that do not spread evenly: some switches would then share no switch above them.

    Raises
    ------
    InputError
        If ``above`` does not divide ``uplinks``.
    """
    if uplinks % above:
        raise InputError(
            f"{where}: {uplinks} uplinks of {what} do not spread evenly over {above} {others}; use a "
            f"divisor of {uplinks}."
        )
