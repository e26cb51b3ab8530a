"""The parts of a step on one GPU: what each computes, reads and sends, in seconds at data-sheet peaks."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

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
