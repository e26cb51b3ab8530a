"""What a figure of one GPU can be: outside the range a unit, a prefix or what is counted is wrong.

The ranges are wide on purpose: from a small card of some years ago to several generations ahead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from topology.base.units import format_quantity


@dataclass(frozen=True)
class Range:
    """From the least to the most that a figure called ``words`` can be, in ``unit``."""

    words: str
    unit: str
    least: float
    most: float

    def wrong(self, value: float) -> str:
        """Return what is wrong with a value, nothing where it can be."""
        if self.least <= value <= self.most:
            return ""
        off = "large" if value > self.most else "small"
        lowest, highest = (format_quantity(bound, self.unit) for bound in (self.least, self.most))
        return (
            f"{format_quantity(value, self.unit)} is too {off} for {self.words}, which is between {lowest} and "
            f"{highest}; check the unit and its prefix."
        )


_PEAKS = 5e12, 1e18
"""A T4 of 2018 has 65 TFLOP/s, Rubin Ultra some 1e17."""
RANGES: Mapping[str, Range] = {
    "hbm_bytes": Range("the memory of one GPU", "byte", 1e9, 1e13),
    "hbm_bytes_per_s": Range("the bandwidth of one GPU's memory", "byte/s", 2e10, 4e14),
    "bf16_flop_per_s": Range("the dense BF16 peak of one GPU", "flop/s", *_PEAKS),
    "fp8_flop_per_s": Range("the dense FP8 peak of one GPU", "flop/s", *_PEAKS),
    "int8_flop_per_s": Range("the dense INT8 peak of one GPU", "flop/s", *_PEAKS),
    "fp4_flop_per_s": Range("the dense FP4 peak of one GPU", "flop/s", *_PEAKS),
    "power_w": Range("the power of one GPU, even with host and cooling", "W", 20.0, 5e4),
    "usd_per_h": Range("the price of one GPU-hour", "USD/h", 0.01, 200.0),
}
LATENCIES: Mapping[str, Range] = {
    "scale-up": Range("one hop inside a scale-up domain", "s", 1e-9, 1e-4),
    "scale-out": Range("one hop", "s", 1e-9, 1e-3),
}
_MAX_CHIP_POWERS = 4.0
"""Most that a GPU with its part of host, switches and cooling draws, over the limit of its chip: 1.6 to 2 are usual
without cooling (an NVIDIA DGX H100 draws at most 10.2 kW for eight chips of 700 W)."""


def wrong_figure(key: str, value: float) -> str:
    """Return what is wrong with a figure of a GPU by its key, nothing where it can be or nothing is known of it."""
    return RANGES[key].wrong(value) if key in RANGES else ""


def wrong_peaks(values: Mapping[str, float]) -> str:
    """Return what is wrong with the peaks of a GPU beside each other: a narrower format is never slower."""
    wide, narrow = values.get("bf16_flop_per_s"), values.get("fp8_flop_per_s")
    if wide is None or narrow is None or narrow >= wide:
        return ""
    fp8, bf16 = (format_quantity(value, "flop/s") for value in (narrow, wide))
    return f"FP8 at {fp8} is slower than BF16 at {bf16}; were the two swapped?"


def wrong_power(watts: float, chip: float | None) -> str:
    """Return what is wrong with the all-in power of a GPU whose ``chip`` may draw so much."""
    if chip is not None and watts > _MAX_CHIP_POWERS * chip:
        power, limit = (format_quantity(value, "W") for value in (watts, chip))
        return (
            f"{power} is too much for one GPU whose chip draws at most {limit}; is it that of the whole host?"
        )
    return wrong_figure("power_w", watts)
