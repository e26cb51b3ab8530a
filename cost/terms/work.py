"""Time of one part of a step on one GPU: the larger of computing and reading."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Work"]


@dataclass(frozen=True)
class Work:
    """Seconds that one GPU needs at its data-sheet peaks, for computing and for reading HBM.

    The two run at once, so the part takes ``max(compute_s / c, memory_s / m)``, with ``c`` and ``m`` the
    fractions of the peaks that kernels reach (the roofline of Williams, Waterman and Patterson, CACM 2009).
    """

    compute_s: float
    memory_s: float

    def seconds(self, compute_fraction: float, hbm_fraction: float) -> float:
        """Seconds at these fractions of peak."""
        return max(self.compute_s / compute_fraction, self.memory_s / hbm_fraction)

    def limit(self, compute_fraction: float, hbm_fraction: float) -> str:
        """Which of the two binds: ``compute`` or ``HBM bandwidth``."""
        compute = self.compute_s / compute_fraction >= self.memory_s / hbm_fraction
        return "compute" if compute else "HBM bandwidth"
