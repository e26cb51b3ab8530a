"""Which fraction of a data-sheet peak real kernels reach, each with the source it was read from.

These are published fractions per kind of work, not a calibration: a score that uses them says so.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from topology.figures import Evidence, Figure

__all__ = ["PEAK", "PUBLISHED", "Efficiency"]


def _fraction(value: float, kind: Evidence, source: str) -> Figure:
    return Figure(value, "1", kind, source, f"{value:.2f}")


_KERNELS = "ranges read from the kernel tables of aiconfigurator 0.12.0; middle of the range"
_NO_LOSS = _fraction(1.0, Evidence.DATASHEET, "data-sheet peak")
_NO_DELAY = Figure(0.0, "s", Evidence.DATASHEET, "data-sheet peak", "0 us")


@dataclass(frozen=True)
class Efficiency:
    """Fractions of peak (``0 < f <= 1``) and fixed delays.

    ``attention``, ``gemm`` and ``experts`` derate flop/s; ``hbm`` derates HBM bandwidth; ``scale_up`` and
    ``scale_out`` derate links in all-to-alls and collectives. The delays in seconds are added once to each
    dispatch or combine, on the scale-up fabric and across the scale-out one.
    """

    hbm: Figure = _NO_LOSS
    attention: Figure = _NO_LOSS
    gemm: Figure = _NO_LOSS
    experts: Figure = _NO_LOSS
    scale_up: Figure = _NO_LOSS
    scale_out: Figure = _NO_LOSS
    dispatch_up_s: Figure = _NO_DELAY
    combine_up_s: Figure = _NO_DELAY
    dispatch_out_s: Figure = _NO_DELAY
    combine_out_s: Figure = _NO_DELAY

    def figures(self) -> dict[str, Figure]:
        """All coefficients by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


PEAK = Efficiency()
"""Every part at its data-sheet peak, no delays: the pure roofline."""

PUBLISHED = Efficiency(
    hbm=_fraction(0.8, Evidence.ASSUMED, "aiconfigurator 0.12.0 system files; TensorRT-LLM tech blog 14"),
    attention=_fraction(
        0.5, Evidence.ASSUMED, f"MLA decode, BF16, Hopper and Blackwell: {_KERNELS} 0.43-0.57"
    ),
    gemm=_fraction(0.53, Evidence.ASSUMED, f"dense GEMM, FP8 block scales: {_KERNELS} 0.48-0.58"),
    experts=_fraction(0.29, Evidence.ASSUMED, f"grouped GEMM, FP8, large batch: {_KERNELS} 0.22-0.35"),
    scale_up=_fraction(
        0.72, Evidence.ASSUMED, "NVL72 all-to-all, fit to the grid of TensorRT-LLM tech blog 18"
    ),
    scale_out=_fraction(
        0.86, Evidence.ASSUMED, "InfiniBand all-to-all, fit to DeepEP's low-latency table: 0.80-0.92"
    ),
    dispatch_up_s=Figure(
        14.5e-6, "s", Evidence.ASSUMED, "fit to the grid of TensorRT-LLM tech blog 18", "14.5 us"
    ),
    combine_up_s=Figure(
        20e-6, "s", Evidence.ASSUMED, "fit to the grid of TensorRT-LLM tech blog 18", "20 us"
    ),
    dispatch_out_s=Figure(35e-6, "s", Evidence.ASSUMED, "fit to DeepEP's low-latency table", "35 us"),
    combine_out_s=Figure(6e-6, "s", Evidence.ASSUMED, "fit to DeepEP's low-latency table", "6 us"),
)
"""What published measurements reach: an expectation that has not been calibrated on end-to-end runs yet."""
