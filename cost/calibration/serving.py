"""What kernels and engines reach on each chip: curves over its data-sheet figures, fitted to served requests."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic.dataclasses import dataclass

from cost.calibration.kernels import brought_down, derate, neighbour, with_own_prefill
from cost.calibration.tables import CHECKED, Number, Positive, Text, load_table, one_of
from cost.inputs.machine import COEFFICIENTS, Efficiency, is_fraction
from topology.base.errors import InputError, MissingFigureError, input_name
from topology.base.figures import Evidence, Figure
from topology.catalog import gpu_names, load_gpu
from topology.spec import GpuSpec


def fraction_at(points: Sequence[tuple[float, float]], peak: float) -> float:
    """Return the fraction of ``peak`` that kernels reach.

    Parameters
    ----------
    points:
        ``(peak, fraction)`` of measured chips, peaks rising.

    Notes
    -----
    The rate ``peak * fraction`` is interpolated, linear in the logarithms of both; outside, the fraction of the
    nearest chip holds. Rates of ``points`` that do not fall give a rate that does not fall.
    """
    return math.exp(_between([(p, math.log(p * f)) for p, f in points], peak)) / min(
        max(peak, points[0][0]), points[-1][0]
    )


def value_at(points: Sequence[tuple[float, float]], figure: float) -> float:
    """Return a value interpolated between ``(figure, value)`` of measured chips, linear in both logarithms."""
    return math.exp(_between([(x, math.log(y)) for x, y in points], figure))


def _between(points: Sequence[tuple[float, float]], at: float) -> float:
    """Interpolate over the logarithm of the first coordinate; constant outside."""
    if at <= points[0][0]:
        return points[0][1]
    for (low, low_value), (high, high_value) in pairwise(points):
        if at <= high:
            share = math.log(at / low) / math.log(high / low)
            return low_value + share * (high_value - low_value)
    return points[-1][1]


Points = Sequence[tuple[Positive, Positive]]


PATH = Path(__file__).with_name("serving.yaml")
ANY_ENGINE = "any"
"""Default engine: a blend of the measured ones."""
MAX_DRAFTS = 3
"""Drafted tokens of a step that a number of accepted ones was measured for."""
_SHORT_NAMES = {"tensorrt-llm": "trtllm", "trt-llm": "trtllm", "tensorrt_llm": "trtllm"}
_UNITS = ("bf16", "fp8", "fp4")


def peak_of(gpu: GpuSpec, coefficient: str) -> float:
    """Return the data-sheet figure that a fraction derates: HBM bytes/s, or dense flop/s of its format.

    Raises
    ------
    MissingFigureError
        If the chip has no such figure.
    """
    if coefficient.startswith("hbm."):
        return gpu.hbm_bytes_per_s
    unit = coefficient.rpartition(".")[2]
    if unit == "fp8" and not gpu.multiplies("fp8") and gpu.multiplies("int8"):
        unit = "int8"  # derated as FP8 is
    return gpu.dense_flop_per_s(unit if unit in (*_UNITS, "int8") else "bf16")


def _ordered(points: Points, *, rates: bool) -> Points:
    if not points or any(right[0] <= left[0] for left, right in pairwise(points)):
        raise ValueError("expected pairs [figure, value], figures rising.")
    if rates and (highest := max(value for _, value in points)) > 1:
        raise ValueError(f"{highest} is not a fraction of a peak.")
    order = [x * y for x, y in points] if rates else [-y for _, y in points]
    if any(right < left for left, right in pairwise(order)):
        raise ValueError("a higher figure would give a slower kernel.")
    return points


Coefficient = Annotated[str, one_of("coefficient", lambda: COEFFICIENTS)]
Curve = Annotated[Points, AfterValidator(lambda points: _ordered(points, rates=True))]
"""Points ``(peak, fraction)``; rates ``peak * fraction`` never fall."""
Delay = Annotated[Points, AfterValidator(lambda points: _ordered(points, rates=False))]
"""Points ``(BF16 flop/s, value)``; values never rise."""


@dataclasses.dataclass(frozen=True)
class Tables:
    """Coefficients before they are read off for a chip.

    Attributes
    ----------
    curves:
        Of each fraction, points ``(peak, fraction)``; rates ``peak * fraction`` never fall.
    delays:
        By engine, of each delay or share, points ``(BF16 flop/s, value)`` that never rise.
    shared:
        What is the same on every chip, where there is no curve of it.
    """

    curves: Mapping[str, Points]
    delays: Mapping[str, Mapping[str, Points]]
    shared: Mapping[str, float]

    def of(self, gpu: GpuSpec, engine: str) -> dict[str, float]:
        """Return every coefficient of a chip under an engine; of units that it lacks, the first one measured."""
        bf16 = gpu.dense_flop_per_s("bf16")
        table = dict(self.shared)
        for name, points in self.curves.items():
            try:
                peak = peak_of(gpu, name)
            except MissingFigureError:
                peak = points[0][0]
            table[name] = fraction_at(points, peak)
        for name, points in self.delays[engine].items():
            table[name] = value_at(points, bf16)
        return table


@dataclass(frozen=True, config=CHECKED)
class Family:
    """Measured chips that share curves, and how far off their fit is; ``any`` engine is the mean of its engines."""

    fit: Mapping[str, Number]
    chips: Annotated[tuple[Text, ...], Field(min_length=1)]
    curves: Mapping[Coefficient, Curve]
    delays: Mapping[str, Mapping[Coefficient, Delay]]

    def __post_init__(self) -> None:
        if ANY_ENGINE not in self.delays:
            raise ValueError(f"delays: {ANY_ENGINE} is missing.")


@dataclass(frozen=True, config=CHECKED)
class Calibration:
    """The calibration file: families of measured chips, and coefficients shared by all chips.

    The chips of the first family stand in for those that nobody measured.
    """

    source: Text
    shared: Mapping[Coefficient, Positive]
    families: Annotated[tuple[Family, ...], Field(min_length=1)]

    def __post_init__(self) -> None:
        for name, value in self.shared.items():
            if value > 1 and is_fraction(name):
                raise ValueError(f"shared: {name}: {value} is not a fraction of a peak.")
        for family in self.families:
            for engine, delays in family.delays.items():
                for name in COEFFICIENTS:
                    if name not in {**family.curves, **delays, **self.shared}:
                        raise ValueError(f"{family.chips[0]}: engine {engine}: {name} is missing.")

    @property
    def chips(self) -> tuple[str, ...]:
        """Names of the chips that were measured."""
        return tuple(name for family in self.families for name in family.chips)

    @property
    def engines(self) -> tuple[str, ...]:
        """Names of the engines that were measured."""
        names = dict.fromkeys(name for family in self.families for name in family.delays)
        return tuple(name for name in names if name != ANY_ENGINE)

    def efficiency(self, gpu: GpuSpec, engine: str) -> Efficiency:
        """Return the coefficients of a chip, marked as assumed if it was not measured.

        An engine that nobody measured on chips of its family is any of those that somebody did.
        """
        chip = self.nearest(gpu)
        family = next(family for family in self.families if chip in family.chips)
        tables = Tables(family.curves, family.delays, self.shared)
        engine = engine if engine in family.delays else ANY_ENGINE
        stand_in_for = "" if chip == gpu.name else gpu.name
        kind = Evidence.ASSUMED if stand_in_for else Evidence.DERIVED
        note = f"{chip} stands in for {stand_in_for}, which has no measurements; " if stand_in_for else ""
        values = tables.of(gpu, engine)
        if stand_in_for and derate(gpu.name):
            # fractions of the neighbour at its own peaks, so that rates keep the order of what kernels reach
            same = tables.of(load_gpu(chip), engine)
            values |= {name: same[name] for name in family.curves}
        table = {}
        for name in COEFFICIENTS:
            unit = "s" if name.startswith("delay.") else "1"
            in_units = values[name] >= 1000
            text = f"{values[name]:,.0f}" if in_units else f"{values[name]:.3g}"
            text = f"{values[name] * 1e6:.3g} us" if unit == "s" else text
            table[name] = Figure(values[name], unit, kind, note + self.source, text)
        if stand_in_for:
            table = dict(brought_down(table, chip, stand_in_for) or table)
        return Efficiency(with_own_prefill(table, gpu.name), chip, engine, stand_in_for=stand_in_for)

    def nearest(self, gpu: GpuSpec) -> str:
        """Return the chip itself where it was measured, the one that ``unmeasured.yaml`` names, or the nearest.

        Nearest of the first family, in logarithms of flop/s and HBM rate: chips of one family keep their order. A
        chip of the catalog keeps its neighbour whatever figures a user gives it.
        """
        if gpu.name in self.chips:
            return gpu.name
        if (named := neighbour(gpu.name)) in self.chips:
            return named
        same = load_gpu(gpu.name) if gpu.name in gpu_names() else gpu

        def distance(name: str) -> float:
            candidate = load_gpu(name)
            return math.hypot(
                math.log(same.dense_flop_per_s("bf16") / candidate.dense_flop_per_s("bf16")),
                math.log(same.hbm_bytes_per_s / candidate.hbm_bytes_per_s),
            )

        return min(self.families[0].chips, key=distance)


@cache
def _calibration() -> Calibration:
    return load_table(Calibration, PATH)


def calibrated_chips() -> tuple[str, ...]:
    """Names of the chips that were measured."""
    return _calibration().chips


def family_of(chip: str) -> tuple[str, ...]:
    """Names of the chips that share curves with a measured one."""
    return next(family.chips for family in _calibration().families if chip in family.chips)


def engine_names() -> tuple[str, ...]:
    """Names of the engines that were measured."""
    return _calibration().engines


def accept_length(draft_tokens: int) -> float:
    """Tokens that a step yields with that many drafted, as fitted to served requests (1 without).

    Raises
    ------
    MissingFigureError
        If nobody measured so many.
    """
    if draft_tokens < 1:
        return 1.0  # a number below 0 is refused by the workload
    if draft_tokens > MAX_DRAFTS:
        raise MissingFigureError(
            f"acceptance is only known for 1 to {MAX_DRAFTS} drafts; give {input_name('accept_length')}.",
            field="draft_tokens",
            value=draft_tokens,
        )
    return _calibration().shared[f"accept.{draft_tokens}"]


def calibrated(gpu: GpuSpec, engine: str = "") -> Efficiency:
    """Return kernel efficiencies on ``gpu`` from the curves, marked as assumed if it was not measured.

    Raises
    ------
    InputError
        If the engine is not one of those measured.
    """
    name = require_engine(engine)
    key = (gpu.name, name, *sorted((figure, value.value) for figure, value in gpu.figures.items()))
    if key not in _EFFICIENCIES:
        _EFFICIENCIES[key] = _calibration().efficiency(gpu, name)
    return _EFFICIENCIES[key]


_EFFICIENCIES: dict[tuple[object, ...], Efficiency] = {}
"""Coefficients by chip, engine and figures of the chip, read off once for each."""


def engine_version(engine: str) -> tuple[str, str]:
    """Return the name and the version of ``sglang==0.5.9``; each is empty where it is not given."""
    name, _, version = engine.strip().lower().partition("==")
    return _SHORT_NAMES.get(name.strip(), name.strip()), version.strip()


def require_engine(engine: str) -> str:
    """Return the name of a measured engine as the calibration spells it, without its version; empty means any.

    Raises
    ------
    InputError
        If it is not one of those measured.
    """
    name = engine_version(engine)[0] or ANY_ENGINE
    if name not in (*engine_names(), ANY_ENGINE):
        raise InputError(
            f"measured engines are {', '.join(engine_names())}; leave it out for any.",
            field="engine",
            value=engine,
        )
    return name
