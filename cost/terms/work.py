"""The parts of a step on one GPU, in seconds at data-sheet peaks, and their sum at what kernels reach of these."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from cost.efficiency import Efficiency
from cost.machine import Rates
from cost.quantity import Quantity

BALANCE = 300.0
"""Flop per byte at which ``columns`` are those of the calibration: units with fewer flop are filled more
easily."""


def filling(columns: Quantity, flop_per_s: float, hbm_bytes_per_s: float) -> Quantity:
    """Return columns as they fill a unit of :data:`BALANCE` flop per byte: what is lost is then free of its peak."""
    return columns * (BALANCE * hbm_bytes_per_s / flop_per_s)


@dataclass(frozen=True, eq=False)
class Work:
    """Computing and reading HBM for one part of ``layers`` equal layers.

    The two run at once, so no kernel is faster than ``max(compute_s, memory_s)`` (the roofline of Williams,
    Waterman and Patterson, CACM 2009). Real kernels reach a fraction of each peak
    (:class:`cost.efficiency.Efficiency`), found under the names kept here.

    Attributes
    ----------
    term:
        The part of the step that reports name: ``attention``, ``experts``, ``dense``, ``head``.
    fraction, hbm:
        Names of the fraction of flop/s and of HBM bandwidth that such kernels reach.
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
    wider:
        Other fractions that it may reach, each of the peak of a wider unit, with that peak over the one behind
        ``compute_s``.
    """

    term: str
    fraction: str
    hbm: str
    compute_s: Quantity
    memory_s: Quantity
    layers: Quantity = 1.0
    columns: Quantity = math.inf
    uneven: Quantity = 0.0
    wider: tuple[tuple[str, float], ...] = ()

    @property
    def least_compute_s(self) -> Quantity:
        """Seconds at the peak of its fastest unit."""
        return (
            self.compute_s / max(1.0, *(ratio for _, ratio in self.wider)) if self.wider else self.compute_s
        )


@dataclass(frozen=True, eq=False)
class LinkPart:
    """Dispatch or combine of ``layers`` equal layers.

    Attributes
    ----------
    term:
        ``dispatch`` or ``combine``.
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
    """All-reduces of ``layers`` equal layers: seconds at peak on each fabric, calls, latency of one.

    ``crossing``: rounds between domains of all calls of a layer; 0 inside a domain.
    """

    up_s: Quantity
    out_s: Quantity
    calls: Quantity
    latency_s: Quantity
    layers: Quantity = 1.0
    crossing: Quantity = 0.0


@dataclass
class Parts:
    """Everything that a step does, before it is known how well.

    Attributes
    ----------
    works, links, reduces:
        Computing and reading; dispatch and combine; all-reduces.
    layers, latent_layers, index_layers, compress_layers, moe_layers, steps:
        How often the fixed delays of a layer, of one with latent attention, with an index, with compressed entries,
        of a MoE layer and of a step are paid.
    requests:
        Sequences that one GPU's group schedules and samples in a step.
    """

    works: list[Work] = field(default_factory=list)
    links: list[LinkPart] = field(default_factory=list)
    reduces: list[AllReduce] = field(default_factory=list)
    layers: Quantity = 0.0
    latent_layers: Quantity = 0.0
    index_layers: Quantity = 0.0
    compress_layers: Quantity = 0.0
    moe_layers: Quantity = 0.0
    steps: Quantity = 0.0
    requests: Quantity = 0.0


SENDING = ("dispatch", "combine", "all_reduce")
"""Terms that travel over links, which two half batches hide behind computing."""
FIXED = "fixed overhead"
"""The limit of what no resource of a chip binds."""


def smooth_max(first: Quantity, second: Quantity) -> Quantity:
    """``sqrt(a^2 + b^2)``: no less than either; kernels near the ridge reach neither peak."""
    return np.hypot(first, second)


def kernel_seconds(compute_s: Quantity, memory_s: Quantity, efficiency: Efficiency) -> Quantity:
    """Seconds of a kernel that computes and reads at once: the larger at peaks, else :func:`smooth_max`."""
    return np.maximum(compute_s, memory_s) if efficiency.ideal else smooth_max(compute_s, memory_s)


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
    """

    parts_s: dict[tuple[str, str], Quantity] = field(default_factory=dict)
    floor_s: dict[str, Quantity] = field(default_factory=dict)

    @property
    def terms_s(self) -> dict[str, Quantity]:
        """Expected seconds by part."""
        return self._by(0)

    @property
    def limits_s(self) -> dict[str, Quantity]:
        """Expected seconds by what bound them."""
        return self._by(1)

    def _by(self, place: int) -> dict[str, Quantity]:
        found: dict[str, Quantity] = {}
        for names, seconds in self.parts_s.items():
            found[names[place]] = found.get(names[place], 0.0) + seconds
        return found

    @property
    def total_s(self) -> Quantity:
        """Expected seconds."""
        return sum(self.parts_s.values(), 0.0)

    @property
    def lower_s(self) -> Quantity:
        """Seconds at peak of the busiest resource."""
        lower: Quantity = 0.0
        for seconds in self.floor_s.values():
            lower = np.maximum(lower, seconds)
        return lower

    def add(self, term: str, limit: str, seconds: Quantity) -> None:
        """Count ``seconds`` of ``term``, bound by ``limit``."""
        self.parts_s[term, limit] = self.parts_s.get((term, limit), 0.0) + seconds

    def busy(self, resource: str, seconds: Quantity) -> None:
        """Count ``seconds`` at peak on ``resource``."""
        self.floor_s[resource] = self.floor_s.get(resource, 0.0) + seconds

    def add_work(self, work: Work, efficiency: Efficiency) -> None:
        """Count computing and reading of ``work``."""
        compute_s, memory_s = work_seconds(work, efficiency)
        seconds = work.layers * kernel_seconds(compute_s, memory_s, efficiency)
        self.split(work.term, seconds, compute_s >= memory_s)
        if np.any(np.asarray(work.uneven) > 0):
            waited = efficiency["ranks.uneven"] * work.uneven * seconds
            self.split("rank_imbalance", waited, compute_s >= memory_s)
        self.busy("compute", work.layers * work.least_compute_s)
        self.busy("HBM bandwidth", work.layers * work.memory_s)

    def split(self, term: str, seconds: Quantity, by_compute: ArrayLike) -> None:
        """Count ``seconds`` of ``term``, bound by computing where ``by_compute``, else by HBM."""
        computing = np.where(by_compute, seconds, 0.0)
        self.add(term, "compute", computing)
        self.add(term, "HBM bandwidth", seconds - computing)

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
        self._sent("all_reduce", up_s, out_s, seconds, rates)

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
        over_out = np.asarray(out_s) > np.asarray(up_s)
        self.add(term, rates.up_fabric, np.where(over_out, 0.0, seconds))
        self.busy(rates.up_fabric, up_s)
        if np.any(np.asarray(out_s) > 0):
            self.add(term, rates.out_fabric, np.where(over_out, seconds, 0.0))
            self.busy(rates.out_fabric, out_s)


def work_seconds(work: Work, efficiency: Efficiency) -> tuple[Quantity, Quantity]:
    """Seconds of computing and of reading in one layer, at the fractions that kernels reach.

    A slice of ``columns`` columns takes ``columns_coefficient / columns`` of its time at peak besides: tiles of the
    multipliers stay partly empty. With columns for a unit of equal flop per byte that is seconds by HBM alone, so
    that a larger peak never makes it longer.
    """
    kind = work.fraction.partition(".")[0]
    half = 0.0 if kind == "attention" else efficiency[f"columns.{kind}"]
    fraction = reached(efficiency, work.fraction, work.wider)
    compute_s = work.compute_s * (1 / fraction + half / work.columns)
    return compute_s, work.memory_s / efficiency[work.hbm]


def reached(efficiency: Efficiency, fraction: str, wider: tuple[tuple[str, float], ...]) -> float:
    """Part of a unit's peak that kernels reach, or what those of a wider unit reach over the same peak, if more.

    ``wider``: names of those fractions, each with the wider unit's peak over the unit's. A chip whose FP4 kernels are
    slow may always run the FP8 ones: another unit never makes it slower.
    """
    return max(efficiency[fraction], *(efficiency[name] * ratio for name, ratio in wider), 0.0)


def priced(parts: Parts, efficiency: Efficiency, rates: Rates) -> StepCost:
    """Return the seconds of ``parts`` where kernels reach what ``efficiency`` says."""
    cost = StepCost()
    for work in parts.works:
        cost.add_work(work, efficiency)
    cost.add("engine", FIXED, efficiency["engine.share"] * cost.total_s)
    for link in parts.links:
        cost.add_links(link, rates)
    for reduce in parts.reduces:
        cost.add_reduce(reduce, efficiency, rates)
    fixed = parts.layers * efficiency["delay.layer"] + parts.moe_layers * efficiency["delay.moe_layer"]
    fixed = fixed + parts.latent_layers * efficiency["delay.latent_layer"]
    fixed = fixed + parts.steps * efficiency["delay.step"] + parts.requests * efficiency["delay.sequence"]
    cost.add("overhead", FIXED, fixed)
    sparse = parts.index_layers * efficiency["delay.index_layer"]
    sparse = sparse + parts.compress_layers * efficiency["delay.compress_layer"]
    if np.any(np.asarray(sparse) > 0):
        cost.add("sparse_attention", FIXED, sparse)
    return cost
