"""Adding up the parts of a step: expected seconds by part and by limit, and what each resource is busy at peak."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from cost.efficiency import Efficiency
    from cost.quantity import Quantity
    from cost.terms.work import LinkPart, Work

__all__ = ["StepCost", "smooth_max"]

SENDING = ("dispatch", "combine", "all_reduce")
"""Terms that travel over links, which two half batches hide behind computing."""


def smooth_max(first: Quantity, second: Quantity) -> Quantity:
    """``sqrt(a^2 + b^2)``: no less than either; kernels near the ridge reach neither peak."""
    return np.hypot(first, second)


@dataclass
class StepCost:
    """Seconds of a step; each value is a number, or an array over configurations.

    Attributes
    ----------
    terms_s:
        Expected seconds by part; parts follow each other, so they add up.
    limits_s:
        The same seconds by what bound them (``compute``, ``HBM bandwidth``, a fabric, ``fixed overhead``).
    floor_s:
        Seconds at data-sheet peaks that each resource is busy: no schedule is faster than the largest.
    """

    terms_s: dict[str, Quantity] = field(default_factory=dict)
    limits_s: dict[str, Quantity] = field(default_factory=dict)
    floor_s: dict[str, Quantity] = field(default_factory=dict)

    @property
    def total_s(self) -> Quantity:
        """Expected seconds."""
        return sum(self.terms_s.values(), 0.0)

    @property
    def lower_s(self) -> Quantity:
        """Seconds at peak of the busiest resource."""
        lower: Quantity = 0.0
        for seconds in self.floor_s.values():
            lower = np.maximum(lower, seconds)
        return lower

    def add(self, term: str, limit: str, seconds: Quantity) -> None:
        """Count ``seconds`` of ``term``, bound by ``limit``."""
        self.terms_s[term] = self.terms_s.get(term, 0.0) + seconds
        self.limits_s[limit] = self.limits_s.get(limit, 0.0) + seconds

    def busy(self, resource: str, seconds: Quantity) -> None:
        """Count ``seconds`` at peak on ``resource``."""
        self.floor_s[resource] = self.floor_s.get(resource, 0.0) + seconds

    def add_work(self, work: Work, efficiency: Efficiency) -> None:
        """Count computing and reading of ``work``."""
        compute_s, memory_s = work_seconds(work, efficiency)
        seconds = work.layers * smooth_max(compute_s, memory_s)
        self.split(work.term, seconds, compute_s >= memory_s)
        self.busy("compute", work.layers * work.compute_s)
        self.busy("HBM bandwidth", work.layers * work.memory_s)

    def split(self, term: str, seconds: Quantity, by_compute: ArrayLike) -> None:
        """Count ``seconds`` of ``term``, bound by computing where ``by_compute``, else by HBM."""
        computing = np.where(by_compute, seconds, 0.0)
        self.add(term, "compute", computing)
        self.add(term, "HBM bandwidth", seconds - computing)

    def add_links(self, part: LinkPart, up_fabric: str, out_fabric: str) -> None:
        """Count sending of ``part``."""
        over_out = np.asarray(part.out_s) > np.asarray(part.up_s)
        seconds = part.layers * part.expected_s
        self.add(part.term, up_fabric, np.where(over_out, 0.0, seconds))
        self.busy(up_fabric, part.layers * part.up_s)
        if np.any(np.asarray(part.out_s) > 0):
            self.add(part.term, out_fabric, np.where(over_out, seconds, 0.0))
            self.busy(out_fabric, part.layers * part.out_s)


def work_seconds(work: Work, efficiency: Efficiency) -> tuple[Quantity, Quantity]:
    """Seconds of computing and of reading in one layer, at the fractions that kernels reach.

    A slice of ``columns`` columns reaches ``columns / (columns + c)`` of its fraction: tiles of the multipliers
    stay partly empty.
    """
    kind = work.fraction.partition(".")[0]
    half = 0.0 if kind == "attention" else efficiency[f"columns.{kind}"]
    compute_s = work.compute_s * (1 + half / work.columns) / efficiency[work.fraction]
    return compute_s, work.memory_s / efficiency[work.hbm]
