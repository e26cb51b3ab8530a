"""The parts of a step on one GPU, in seconds at data-sheet peaks, and their sum at what kernels reach of these."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike

from cost.experts.tokens.reach import ExpertUse
from cost.inputs.deployment import Deployment
from cost.inputs.layout import StageSpec
from cost.inputs.machine import Efficiency, Machine, Rates, Unit
from cost.inputs.workload import StepShape
from cost.model import Layer, Model
from cost.quantity import Quantity, positive
from topology.base.figures import Figure
from topology.base.units import added

COMPUTE = "compute"
HBM = "HBM bandwidth"
FIXED = "fixed overhead"
"""The limit of what no resource of a chip binds."""
IMBALANCE = "pipeline imbalance"
RESOURCES = {COMPUTE: "#77aadd", HBM: "#ee8866", IMBALANCE: "#eedd88", FIXED: "#bbbbbb"}
"""What may bind a part of the step besides a fabric, and its colour in every chart: pale ones of Tol
("Colour Schemes", 2021), none of which a :class:`Term` has."""
BALANCE = 300.0
"""Flop per byte at which ``columns`` are those of the calibration: units with fewer flop are filled more
easily."""


def _nothing(parts: Parts, at: LayerStep) -> None:
    """Add nothing: the term is no part of a layer."""


@dataclass(frozen=True)
class Term:
    """A part of the step, declared once: reports, charts and the step itself read :data:`cost.terms.registry.TERMS`.

    Attributes
    ----------
    name, colour:
        As JSON names it, and as charts draw it.
    behind:
        Beginnings of the names of the coefficients behind it.
    meaning:
        What it is, in words; empty where the name says it.
    formula:
        How its seconds are composed, in one line.
    sends:
        It travels over links, which two half batches hide behind computing.
    delays:
        It is fixed seconds: these coefficients, each as often as :attr:`Parts.counts` says.
    known_delays:
        The same of seconds that are no coefficient: published or measured, and never fitted.
    of_layer:
        Adds what layers alike take, experts loaded evenly.
    of_placement:
        Counts what the experts of a placement take, instead of ``of_layer``.
    """

    name: str
    colour: str
    behind: tuple[str, ...] = ()
    meaning: str = ""
    formula: str = ""
    sends: bool = False
    delays: tuple[str, ...] = ()
    known_delays: Mapping[str, Figure] = field(default_factory=dict, hash=False)
    of_layer: Callable[[Parts, LayerStep], None] = _nothing
    of_placement: Callable[[StepCost, PlacedExperts, StepShape, Efficiency], None] | None = None


@dataclass(frozen=True, eq=False)
class LayerStep:
    """``count`` layers alike in a step."""

    model: Model
    layer: Layer
    count: Quantity
    shape: StepShape
    machine: Machine


@dataclass(frozen=True, eq=False)
class PlacedExperts:
    """The experts of a stage as they are placed; ``fair``: tokens share links between domains max-min fairly."""

    deployment: Deployment
    stage: StageSpec
    use: ExpertUse
    fair: bool = False


def filling(columns: Quantity, flop_per_s: float, hbm_bytes_per_s: float) -> Quantity:
    """Return columns as they fill a unit of :data:`BALANCE` flop per byte: what is lost is then free of its peak."""
    return columns * (BALANCE * hbm_bytes_per_s / flop_per_s)


@dataclass(frozen=True, eq=False)
class Work:
    """Computing and reading HBM for one part of ``layers`` equal layers.

    The two run at once, so no kernel is faster than ``max(compute_s, memory_s)`` (the roofline of Williams,
    Waterman and Patterson, CACM 2009). Real kernels reach a fraction of each peak
    (:class:`cost.inputs.machine.Efficiency`), found under the names kept here.

    Attributes
    ----------
    term:
        Name of the :class:`Term`.
    units:
        The multiply units at work, one after the other, with the fractions of their peaks that such kernels reach.
    hbm:
        Name of the fraction of HBM bandwidth that they reach.
    compute_s, memory_s:
        Seconds at peak of one layer on one GPU.
    layers:
        How many equal layers the part stands for.
    columns:
        Columns of the weight that one GPU multiplies with, for a unit of :data:`BALANCE` flop per byte of HBM
        (:func:`filling`): narrow slices use the multipliers badly.
    uneven:
        By what part of the mean the slowest of the ranks that wait for each other is slower, where requests are
        assigned to them at random.
    """

    term: str
    units: tuple[Unit, ...]
    hbm: str
    compute_s: Quantity
    memory_s: Quantity
    layers: Quantity = 1.0
    columns: Quantity = math.inf
    uneven: Quantity = 0.0

    @property
    def least_compute_s(self) -> Quantity:
        """Seconds at the peak of the fastest unit for each format."""
        return self.compute_s * sum(
            unit.part / max(ratio for _, ratio in unit.kernels) for unit in self.units
        )

    def seconds(self, efficiency: Efficiency) -> tuple[Quantity, Quantity]:
        """Seconds of computing and of reading in one layer, at the fractions that kernels reach.

        A slice of ``columns`` columns takes ``columns_coefficient / columns`` of its time at peak besides: tiles of
        the multipliers stay partly empty. With columns for a unit of equal flop per byte that is seconds by HBM
        alone, so that a larger peak never makes it longer.
        """
        kind = self.units[0].fraction.partition(".")[0]
        half = 0.0 if kind == "attention" else efficiency[f"columns.{kind}"]
        compute_s = self.compute_s * (efficiency.compute_times(self.units) + half / self.columns)
        return compute_s, self.memory_s * efficiency.read_times(self.units, self.hbm)


def weight_work(
    term: str,
    kind: str,
    hbm: str,
    *,
    flop: Quantity,
    read: Quantity,
    columns: Quantity,
    weights: str,
    rates: Rates,
) -> Work:
    """Work of ``flop`` with weights stored as ``weights``, of which ``read`` bytes are read.

    ``kind``: ``gemm`` or ``experts``; ``columns`` as they are, whatever the unit.
    """
    flop_per_s, hbm_bytes_per_s = rates.flop_per_s[weights], rates.hbm_bytes_per_s
    return Work(
        term,
        rates.units(kind, weights),
        hbm,
        flop / flop_per_s,
        read / hbm_bytes_per_s,
        columns=filling(columns, flop_per_s, hbm_bytes_per_s),
    )


@dataclass(frozen=True, eq=False)
class LinkPart:
    """Dispatch or combine of ``layers`` equal layers.

    Attributes
    ----------
    up_s, out_s:
        Seconds at the links' peak on the scale-up and the scale-out fabric; both work at the same time.
    expected_s:
        Seconds as the kernel was measured, fixed parts included.
    """

    term: str
    up_s: Quantity
    out_s: Quantity
    expected_s: Quantity
    layers: Quantity = 1.0


@dataclass(frozen=True, eq=False)
class AllReduce:
    """All-reduces or their halves in ``layers`` equal layers: seconds at peak on each fabric, calls, latency of one.

    ``crossing``: rounds between domains of all calls of a layer; 0 inside a domain.
    """

    up_s: Quantity
    out_s: Quantity
    calls: Quantity
    latency_s: Quantity
    layers: Quantity = 1.0
    crossing: Quantity = 0.0
    term: str = "all_reduce"


_Part = TypeVar("_Part", Work, LinkPart, AllReduce)


def _scaled(part: _Part, times: Quantity, *names: str) -> _Part:
    return replace(part, **{name: times * getattr(part, name) for name in names})


@dataclass
class Parts:
    """Everything that a step does, before it is known how well.

    Attributes
    ----------
    works, links, reduces:
        Computing and reading; dispatch and combine; all-reduces.
    counts:
        How often each fixed delay is paid, by the name of its coefficient.
    """

    works: list[Work] = field(default_factory=list)
    links: list[LinkPart] = field(default_factory=list)
    reduces: list[AllReduce] = field(default_factory=list)
    counts: dict[str, Quantity] = field(default_factory=dict)

    def count(self, delay: str, times: Quantity) -> None:
        """Pay ``delay`` so many times more."""
        self.counts[delay] = self.counts.get(delay, 0.0) + times

    def add(self, other: Parts, times: Quantity) -> None:
        """Add ``times`` of another's parts."""
        self.works += [_scaled(work, times, "compute_s", "memory_s") for work in other.works]
        self.links += [_scaled(link, times, "up_s", "out_s", "expected_s") for link in other.links]
        self.reduces += [
            _scaled(reduce, times, "up_s", "out_s", "calls", "crossing") for reduce in other.reduces
        ]
        for delay, paid in other.counts.items():
            self.count(delay, times * paid)


def smooth_max(a: Quantity, b: Quantity) -> Quantity:
    """``sqrt(a^2 + b^2)``: no less than either; kernels near the ridge reach neither peak."""
    norm: Quantity = np.hypot(a, b)
    return norm


def kernel_seconds(compute_s: Quantity, memory_s: Quantity, efficiency: Efficiency) -> Quantity:
    """Seconds of a kernel that computes and reads at once: the larger at peaks, else :func:`smooth_max`."""
    return np.maximum(compute_s, memory_s) if efficiency.ideal else smooth_max(compute_s, memory_s)


Seconds = TypeVar("Seconds", float, Quantity)
_Key = TypeVar("_Key")


def totals(parts_s: Mapping[tuple[str, str], Seconds], place: int) -> dict[str, Seconds]:
    """Seconds by part (``place`` 0) or by what bound them (1)."""
    sums: dict[str, Seconds] = {}
    for names, seconds in parts_s.items():
        sums[names[place]] = sums.get(names[place], 0.0) + seconds
    return sums


@dataclass
class StepCost:
    """Seconds of a step; each value is a number, or an array over configurations.

    Attributes
    ----------
    parts_s:
        Expected seconds by part and by what bound them (``compute``, ``HBM bandwidth``, a fabric, ``fixed
        overhead``); parts follow each other, so they add up.
    floor_s:
        Seconds at data-sheet peaks that each resource is busy: no schedule is faster than the largest.
    bounds:
        Whether what bounds each part, and the floor, are found: it takes as long again, and a search needs neither.
    """

    parts_s: dict[tuple[str, str], Quantity] = field(default_factory=dict)
    floor_s: dict[str, Quantity] = field(default_factory=dict)
    bounds: bool = True

    @property
    def terms_s(self) -> dict[str, Quantity]:
        """Expected seconds by part."""
        return totals(self.parts_s, 0)

    @property
    def limits_s(self) -> dict[str, Quantity]:
        """Expected seconds by what bound them."""
        return totals(self.parts_s, 1)

    @property
    def total_s(self) -> Quantity:
        """Expected seconds."""
        return added(self.parts_s.values())

    @property
    def lower_s(self) -> Quantity:
        """Seconds at peak of the busiest resource."""
        lower: Quantity = 0.0
        for seconds in self.floor_s.values():
            lower = np.maximum(lower, seconds)
        return lower

    def times(self, factor: Quantity) -> StepCost:
        """Return the cost with all expected seconds times ``factor``."""
        if isinstance(factor, float) and factor == 1.0:
            return self
        parts_s = {names: factor * seconds for names, seconds in self.parts_s.items()}
        return StepCost(parts_s, self.floor_s)

    def with_more(
        self, base: StepCost, full: StepCost, share: Quantity, factor: Quantity, decodes: ArrayLike
    ) -> StepCost:
        """Return this cost and ``share`` of what ``full`` has more than ``base``, but for experts ``factor`` times.

        Where nothing ``decodes`` it is ``full``.
        """

        def joined(
            alone: Mapping[_Key, Quantity],
            lower: Mapping[_Key, Quantity],
            upper: Mapping[_Key, Quantity],
            times: Callable[[_Key], Quantity],
        ) -> dict[_Key, Quantity]:
            keys = dict.fromkeys((*alone, *lower, *upper))
            return {
                key: np.where(
                    decodes,
                    alone.get(key, 0.0) + times(key) * (upper.get(key, 0.0) - lower.get(key, 0.0)),
                    upper.get(key, 0.0),
                )
                for key in keys
            }

        parts_s = joined(
            self.parts_s,
            base.parts_s,
            full.parts_s,
            lambda key: share * (1.0 if key[0] == "experts" else factor),
        )
        floor_s = joined(self.floor_s, base.floor_s, full.floor_s, lambda _: share)
        return StepCost(parts_s, floor_s)

    def add(self, term: str, limit: str, seconds: Quantity) -> None:
        """Count ``seconds`` of ``term``, bound by ``limit``."""
        self.parts_s[term, limit] = self.parts_s.get((term, limit), 0.0) + seconds

    def busy(self, resource: str, seconds: Quantity) -> None:
        """Count ``seconds`` at peak on ``resource``."""
        self.floor_s[resource] = self.floor_s.get(resource, 0.0) + seconds

    def add_work(self, work: Work, efficiency: Efficiency) -> None:
        """Count computing and reading of ``work``."""
        compute_s, memory_s = work.seconds(efficiency)
        seconds = work.layers * kernel_seconds(compute_s, memory_s, efficiency)
        self.split(work.term, seconds, compute_s >= memory_s)
        if positive(work.uneven):
            waited = efficiency["ranks.uneven"] * work.uneven * seconds
            self.split("rank_imbalance", waited, compute_s >= memory_s)
        if self.bounds:
            self.busy(COMPUTE, work.layers * work.least_compute_s)
            self.busy(HBM, work.layers * work.memory_s)

    def split(self, term: str, seconds: Quantity, by_compute: ArrayLike) -> None:
        """Count ``seconds`` of ``term``, bound by computing where ``by_compute``, else by HBM."""
        if not self.bounds:
            self.add(term, FIXED, seconds)
            return
        computing = np.where(by_compute, seconds, 0.0)
        self.add(term, COMPUTE, computing)
        self.add(term, HBM, seconds - computing)

    def add_links(self, part: LinkPart, rates: Rates) -> None:
        """Count a dispatch or combine."""
        self._sent(
            part.term, part.layers * part.up_s, part.layers * part.out_s, part.layers * part.expected_s, rates
        )

    def add_reduce(self, part: AllReduce, efficiency: Efficiency, rates: Rates) -> None:
        """Count all-reduces: bytes at the rate that they reach, then what each call costs."""
        up_s, out_s = part.layers * part.up_s, part.layers * part.out_s
        seconds = (up_s + out_s) / efficiency["links.all_reduce"]
        if not efficiency.ideal:
            calls = part.layers * part.calls
            seconds = seconds + calls * (efficiency["delay.all_reduce"] + part.latency_s)
            seconds = seconds + part.layers * part.crossing * efficiency["delay.all_reduce_out"]
        self._sent(part.term, up_s, out_s, seconds, rates)

    def add_spread(self, part: LinkPart, weight: float, rates: Rates) -> None:
        """Count dispatch or combine of every layer in every scenario, seconds ``[scenarios, layers]``."""
        up, out, seconds = (np.asarray(value) for value in (part.up_s, part.out_s, part.expected_s))
        over_out = out > up
        self.add(part.term, rates.up_fabric, float(seconds[~over_out].sum()) * weight)
        self.busy(rates.up_fabric, float(up.sum()) * weight)
        if out.any():
            self.add(part.term, rates.out_fabric, float(seconds[over_out].sum()) * weight)
            self.busy(rates.out_fabric, float(out.sum()) * weight)

    def _sent(self, term: str, up_s: Quantity, out_s: Quantity, seconds: Quantity, rates: Rates) -> None:
        if not self.bounds:
            self.add(term, FIXED, seconds)
            return
        over_out = np.asarray(out_s) > np.asarray(up_s)
        self.add(term, rates.up_fabric, np.where(over_out, 0.0, seconds))
        self.busy(rates.up_fabric, up_s)
        if positive(out_s):
            self.add(term, rates.out_fabric, np.where(over_out, seconds, 0.0))
            self.busy(rates.out_fabric, out_s)
