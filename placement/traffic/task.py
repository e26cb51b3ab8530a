"""One layer to be placed by its tokens, and the limits of its loads."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from placement.arrays import Floats, Ints
from placement.traffic.places import Places
from placement.traffic.reach import Reach
from placement.traffic.tokens import Tokens
from topology.base.errors import InputError

_UNLIMITED = 1e6  # slack that no load needs: sums stay finite


@dataclass(frozen=True)
class Rates:
    """What spare copies are weighed by; only the ratio counts.

    Attributes
    ----------
    imbalance_s:
        Seconds of a layer that one more mean load on the busiest GPU takes.
    crossing_s:
        Seconds that one more domain a token takes.
    """

    imbalance_s: float = 1.0
    crossing_s: float = 1.0


@dataclass(frozen=True)
class Limit:
    """The largest loads asked for, in multiples of what is even."""

    domain: float
    gpu: float

    def kept(self, found: Reach) -> bool:
        """Whether they are kept, up to rounding."""
        return found.domain_peak <= self.domain * (1 + 1e-9) and found.gpu_peak <= self.gpu * (1 + 1e-9)


@dataclass(frozen=True, eq=False)
class TrafficTask:
    """One layer to be placed.

    Attributes
    ----------
    tokens, places:
        What tokens chose, and where slots are.
    load:
        float64 ``[scenarios, experts]``; None: that of the tokens.
    slack:
        The largest load of a domain, and of a GPU, may be ``1 + slack`` times what is even; of a GPU what balance
        alone reaches where that is more. Infinite: any.
    rates:
        What spare copies are weighed by.
    own:
        What a token's own domain costs it: 0 makes crossings few, 1 domains. Without spare copies both are the same.
    nearest:
        Whether a token uses the nearest copy of an expert. If not, copies in several domains would have its tokens
        reach more of them: spare copies then lie beside the first ones.
    groups:
        Groups of consecutive experts that routing is limited by; whole groups are tried as a start. 0: none.

    Raises
    ------
    InputError
        If there are fewer slots than experts, the slack is negative, or loads are of other experts, negative or 0.
    """

    tokens: Tokens
    places: Places
    load: Floats | None = None
    slack: float = 0.05
    rates: Rates = field(default_factory=Rates)
    own: float = 0.0
    nearest: bool = True
    groups: int = 0

    def __post_init__(self) -> None:
        experts = self.tokens.experts
        if not self.slack >= 0:
            raise InputError(f"balance slack {self.slack}: expected 0 or more.")
        if self.places.slots < experts:
            raise InputError(f"{self.places.slots} slots for {experts} experts: each expert needs one.")
        if int(self.places.slots_per_gpu.max()) > experts:
            raise InputError(
                f"{self.places.slots_per_gpu.max()} slots on a GPU for {experts} experts: it would hold one twice."
            )
        if self.groups < 0 or (self.groups and experts % self.groups):
            raise InputError(f"{self.groups} groups of {experts} experts: expected a divisor, or 0 for none.")
        if self.load is not None and not _are_loads(self.load, experts):
            raise InputError(
                f"loads {list(self.load.shape)}: expected [scenarios, {experts}], finite, none negative, "
                "no row all 0."
            )

    @property
    def loads(self) -> Floats:
        """Loads ``[scenarios, experts]``, each adding up to 1."""
        load = self.tokens.load[None] if self.load is None else self.load
        whole: Floats = load / load.sum(axis=1, keepdims=True)
        return whole

    @property
    def most(self) -> float:
        """The slack, if it is infinite a number that no load needs."""
        return min(self.slack, _UNLIMITED)

    def named(self, name: Ints) -> TrafficTask:
        """Return the same with expert ``e`` called ``name[e]``; without groups, which are of names."""
        order = np.argsort(name)
        return replace(self, tokens=self.tokens.renamed(name), load=self.loads[:, order], groups=0)


def _are_loads(load: Floats, experts: int) -> bool:
    if load.ndim != 2 or load.shape[1] != experts or not np.isfinite(load).all():
        return False
    return bool((load >= 0).all() and (load.sum(axis=1) > 0).all())
