"""How many units of a machine serve so many output tokens a second, and what the next smaller number of them misses.

A unit is the cluster that is named: one domain of a kind, or several domains that repeat together. What one unit
gives, and what two, four, eight... joined by their fabric give, is priced by the sweep (:mod:`cost.serving.units`);
how many are needed is arithmetic on that (:mod:`cost.serving.supply`), so that fleets larger than any cluster that
can be built have an answer too.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NoReturn

from cost.inputs.deployment import Deployment
from cost.layouts.candidates import domain_gpus
from cost.money.bill import Bill
from cost.quantity import require_number
from cost.recipe import OtherRecipe
from cost.serving.lengths import Lengths
from cost.serving.limits import LimitError, rounded_down, rounded_up
from cost.serving.supply import Served, Supply
from cost.serving.units import FleetOn, fleet_supply, layout_supply, unit_domains, with_fleets
from topology.base.errors import InfeasibleError, InputError, input_name
from topology.base.shown import Shown
from topology.build import build_cluster
from topology.changes.repeat import alike, repeated
from topology.cluster import Cluster
from topology.physical import switch_racks

MOST_TOK_S = 1e15
MOST_SPARES = 1_000_000
"""Domains kept for failures that anybody may ask for."""
_LOOSER = (1.25, 1.5, 2.0, 3.0)
"""Times the limit asked for that the size is told at, too."""


@dataclass(frozen=True, kw_only=True)
class Demand:
    """What is asked of a fleet.

    Attributes
    ----------
    tok_s:
        Output tokens per second, the mean over time.
    utilization:
        The mean over the peak: the fleet is sized for ``tok_s / utilization``.
    spares:
        Domains kept for failures, besides those that serve.
    tpot_s, ttft_s:
        Longest time per output token, and to the first one without waiting; None: no limit.
    """

    tok_s: float
    utilization: float = 1.0
    spares: int = 0
    tpot_s: float | None = None
    ttft_s: float | None = None

    def __post_init__(self) -> None:
        require_number(input_name("tok_s"), self.tok_s, above=0)
        if not (math.isfinite(self.utilization) and 0 < self.utilization <= 1):
            raise InputError(
                "expected the mean over the peak, above 0 and at most 1.",
                field="utilization",
                value=f"{self.utilization:g}",
            )
        if self.tok_s > MOST_TOK_S * self.utilization:
            raise InputError(
                f"expected a peak of at most {MOST_TOK_S:g} output tokens/s.",
                field="tok_s",
                value=f"{self.tok_s:g}",
            )
        if not 0 <= self.spares <= MOST_SPARES:
            raise InputError(
                f"expected a number of domains from 0 to {MOST_SPARES:,}.", field="spares", value=self.spares
            )
        for name, limit in (
            (input_name("tpot_ms"), self.tpot_s),
            (input_name("ttft_ms"), self.ttft_s),
        ):
            if limit is not None:
                require_number(name, limit * 1e3, above=0)

    @property
    def peak_tok_s(self) -> float:
        """Output tokens per second that the fleet must be able to give."""
        return self.tok_s / self.utilization

    @property
    def limits(self) -> list[float]:
        """Times per output token that the size is told at: the limit, then longer ones; none without a limit."""
        return [] if self.tpot_s is None else [self.tpot_s, *(self.tpot_s * times for times in _LOOSER)]


@dataclass(frozen=True)
class Level:
    """Fewer units than are needed.

    Attributes
    ----------
    units:
        Units that serve.
    tok_s:
        The most output tokens per second of them within the limits.
    tpot_s:
        Shortest time per output token at which they would be enough; None where none is.
    """

    units: int
    tok_s: float
    tpot_s: float | None


@dataclass(frozen=True, repr=False)
class Size(Shown):
    """How large a fleet is.

    Attributes
    ----------
    deployment:
        Model, workload (of decode) and the cluster that is the unit.
    demand:
        What was asked; its limits are those that were kept.
    lengths:
        Tokens of prompts and answers; None: decode alone.
    served:
        What the units that serve give.
    fewer:
        The levels below: a unit fewer, and a tenth of them fewer where that is another number.
    joined:
        The most output tokens per second of 1, 2, 4... units joined, by their number.
    unjoined:
        Why units are not joined; empty where they are.
    usual, left_out:
        The limits that are usual ones (``tpot_s``, ``ttft_s``), and those of them that nothing keeps.
    other:
        What the recipe that is not in force would bring; None where that is about the same.
    """

    deployment: Deployment
    demand: Demand
    lengths: Lengths | None
    served: Served
    fewer: tuple[Level, ...]
    joined: Mapping[int, float]
    unjoined: str = ""
    usual: frozenset[str] = frozenset()
    left_out: tuple[LimitError, ...] = ()
    other: OtherRecipe | None = None
    _bills: dict[int, Bill] = field(default_factory=dict, compare=False, repr=False)

    def brief(self) -> str:
        """Return what is served by how much of what."""
        return (
            f"{self.deployment.brief()}: {self.demand.tok_s:,.0f} output tok/s by {self.gpus:,} GPUs in "
            f"{self.domains:,} domains"
        )

    @property
    def unit(self) -> Cluster:
        """The cluster that repeats."""
        return self.deployment.cluster

    @property
    def serving_domains(self) -> int:
        """Domains that serve."""
        return self.domains - self.demand.spares

    @property
    def domains(self) -> int:
        """Domains that serve, and spares."""
        return self.domains_of(self.served.units)

    def domains_of(self, units: int) -> int:
        """Domains of so many units that serve, and spares."""
        return units * unit_domains(self.unit) + self.demand.spares

    @property
    def serving_gpus(self) -> int:
        """GPUs of the units that serve, idle ones too, without those that are broken."""
        return self.served.units * len(self.unit.gpus)

    @property
    def gpus(self) -> int:
        """GPUs of all domains."""
        return self.gpus_of(self.served.units)

    def gpus_of(self, units: int) -> int:
        """GPUs of so many units that serve, and of the spares."""
        return units * len(self.unit.gpus) + self.demand.spares * len(_spare(self.unit))

    @property
    def racks(self) -> int | None:
        """Racks of all domains, those of their switches too; None where a file does not say what stands in which."""
        places = self._places
        if places is None or self.serving_racks is None:
            return None
        domain = self.unit.gpus[[gpu.id for gpu in self.unit.gpus].index(_spare(self.unit)[0])].domain
        spare = len({rack for rack, where in places if where == domain})
        spare += switch_racks(replace(self.unit.spec, domains=self.unit.spec.domains[domain : domain + 1]))
        return self.serving_racks + self.demand.spares * spare

    @property
    def serving_racks(self) -> int | None:
        """Racks of the domains that serve; None where it is not known."""
        places = self._places
        each = len({rack for rack, _ in places or ()}) + switch_racks(self.unit.spec)
        return None if places is None else self.served.units * each

    @property
    def rack_gpus(self) -> int | None:
        """GPUs of a rack that holds some; None where that is not known or racks differ."""
        places = self._places or ()
        sizes = set(Counter(rack for rack, _ in places).values())
        return sizes.pop() if len(sizes) == 1 else None

    @cached_property
    def _places(self) -> list[tuple[str, int]] | None:
        """Rack and domain of each GPU of the unit, broken ones too; None where a file says no racks."""
        raw = self.unit.spec.raw
        if raw is not None and any(node.rack is None for node in raw.nodes if node.kind == "gpu"):
            return None
        return [(gpu.rack, gpu.domain) for gpu in build_cluster(replace(self.unit.spec, faults=())).gpus]

    @property
    def bill(self) -> Bill:
        """What all domains cost and draw, spares too."""
        return self.bill_of(self.served.units)

    def bill_of(self, units: int) -> Bill:
        """What so many units that serve and the spares cost and draw.

        Switches between units count where they have figures of their own, as many for each unit as where as many of
        them are joined as are priced together.
        """
        book, spares = self.deployment.prices, self.demand.spares
        joined = max(k for k in (1, *self.joined) if k <= units)
        if joined not in self._bills:
            self._bills[joined] = book.bill(repeated(self.unit, joined))
        unit = self._bills[joined].times(units / joined)
        return (
            Bill.together([unit, book.bill(self.unit, _spare(self.unit)).times(spares)]) if spares else unit
        )

    @property
    def tok_s_per_gpu(self) -> float:
        """Output tokens per second over the GPUs of the units that serve, idle ones too."""
        return self.served.tok_s / self.serving_gpus


def size(
    deployment: Deployment,
    demand: Demand,
    *,
    lengths: Lengths | None = None,
    redundant: int | None = None,
    imbalance: float | None = None,
    fleet: FleetOn | None = None,
    alone: bool = False,
) -> Size:
    """Return the fewest units of ``deployment.cluster`` that serve ``demand``, and what fewer of them miss.

    Parameters
    ----------
    deployment:
        The unit, the model and the workload of decode; with ``lengths`` its context plays no part.
    lengths:
        Tokens of prompts and answers: both phases, in pools that match. None: decode alone.
    redundant, imbalance:
        As :func:`cost.layouts.sweep` takes them; an imbalance of None is 1 for decode alone, the usual one for pools.
    fleet:
        Makes replicas of different shapes on units: on all of few units where they save one, and instead of layouts
        over the whole unit where its domains are not alike. None: one shape a pool.
    alone:
        Whether a unit is priced by itself only, not joined to others by their fabric.

    Raises
    ------
    InfeasibleError
        If the model does not fit, or nothing keeps the limits (:class:`cost.serving.limits.LimitError`): the message
        names the best that can be had.
    InputError
        If a mix of lengths is given and domains of the unit differ in size.
    """
    priced = (
        deployment
        if lengths is None
        else replace(deployment, workload=lengths.workloads(deployment.workload)[0])
    )
    unit = deployment.cluster
    if fleet is not None and not alike(unit.spec):
        supply = one_shape = fleet_supply(unit, fleet)
        unjoined = "each unit has a fleet of its own: its domains are not alike, or not whole"
    else:
        _require_one_size(unit, lengths)
        one_shape, unjoined = layout_supply(
            deployment, lengths, demand.limits, demand.ttft_s, redundant, imbalance, alone=alone
        )
        supply = one_shape
        if fleet is not None and not unjoined:
            supply = with_fleets(one_shape, fleet, unit, demand.peak_tok_s, demand.tpot_s)
    units = supply.fewest_units(demand.peak_tok_s, demand.tpot_s)
    if units is None:
        _refuse(deployment, demand, one_shape)
    fewer = sorted({units - 1, math.floor(0.9 * units)} - {0}, reverse=True)
    return Size(
        deployment=priced,
        demand=demand,
        lengths=lengths,
        served=supply.served(units, demand.tpot_s),
        fewer=tuple(
            Level(
                less,
                supply.rate(less, demand.tpot_s),
                None
                if demand.tpot_s is None
                else supply.shortest_tpot(demand.peak_tok_s, less, demand.tpot_s),
            )
            for less in fewer
        ),
        joined={k: one_shape.rate(k, demand.tpot_s) for k in supply.joinable},
        unjoined=unjoined,
    )


def _require_one_size(unit: Cluster, lengths: Lengths | None) -> None:
    sizes = {len(gpus) for gpus in domain_gpus(unit)}
    if lengths is not None and len(sizes) > 1:
        raise InputError(
            f"the domains of {unit.name} have {min(sizes)} to {max(sizes)} GPUs, and a mix of lengths is "
            f"served by pools over domains of one size; size each kind of domain alone, or give one "
            f"{input_name('isl')} and {input_name('osl')}.",
            field="lengths",
        )


def _refuse(deployment: Deployment, demand: Demand, supply: Supply) -> NoReturn:
    """Raise LimitError: no number of units keeps the limits, and what the best is that can be had."""
    out = f"is out of reach on any number of {deployment.cluster.name}: the fastest"
    fastest = supply.shortest_tpot(math.ulp(0.0))
    if fastest is None and supply.fastest_ttft_s is not None:
        raise LimitError(
            "ttft_s",
            f"{input_name('ttft_ms')} {(demand.ttft_s or 0.0) * 1e3:g} {out} prefill and transfer take "
            f"{rounded_up(supply.fastest_ttft_s() * 1e3)} ms; ask for at least that, or use faster GPUs.",
        )
    if fastest is None:
        raise InfeasibleError(f"{deployment.model.name} yields no token on {deployment.cluster.name}.")
    raise LimitError(
        "tpot_s",
        f"{input_name('tpot_ms')} {(demand.tpot_s or 0.0) * 1e3:g} {out} layout takes "
        f"{rounded_up(fastest * 1e3)} ms per token ({rounded_down(1 / fastest)} tok/s/user); ask for at "
        "least that, or use faster GPUs.",
    )


def _spare(unit: Cluster) -> list[str]:
    """The GPUs of a spare domain, which is as the fullest of the unit."""
    fullest = max(domain_gpus(unit), key=len)
    return [unit.gpus[gpu].id for gpu in fullest]
