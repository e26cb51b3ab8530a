"""What kernels and engines reach on each chip, fitted to served requests; a neighbour's where nobody measured."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from cost.efficiency import COEFFICIENTS, Efficiency, is_fraction
from topology.catalog_files import gpu_names, load_gpu
from topology.errors import InputError
from topology.fields import Fields, load_yaml, nearest
from topology.figures import Evidence, Figure

if TYPE_CHECKING:
    from collections.abc import Mapping

    from topology.spec import GpuSpec

__all__ = [
    "ANY_ENGINE",
    "calibrated",
    "calibrated_chips",
    "engine_names",
    "fit_errors",
    "read_calibration",
    "require_engine",
]

PATH = Path(__file__).with_name("serving.yaml")
ANY_ENGINE = "any"
"""Where nobody says which engine runs: between those that were measured."""
_SHORT = {"tensorrt-llm": "trtllm", "trt-llm": "trtllm", "tensorrt_llm": "trtllm"}


class Calibration:
    """Coefficients by chip and engine, as a file holds them.

    Attributes
    ----------
    chips:
        For each chip that was measured its fractions, its delays under each engine, and BF16 peak and HBM rate, by
        which other chips find their neighbour.
    """

    def __init__(self, data: object) -> None:
        file = Fields(data, "calibration")
        self.source = file.text("source")
        fit = file.sub("fit")
        self.fit = {name: fit.number(name) for name in fit.names()}
        self._shared = _coefficients(file.sub("shared"))
        chips = file.sub("chips")
        self.chips = {name: _Chip(chips.sub(name)) for name in chips.names()}
        file.done()
        self._check()

    def _check(self) -> None:
        """Every chip has the same engines, and one for where nobody says which."""
        everywhere = dict.fromkeys(
            (ANY_ENGINE, *(name for chip in self.chips.values() for name in chip.engines))
        )
        for name, chip in self.chips.items():
            for engine in everywhere:
                if engine not in chip.engines:
                    raise InputError(f"calibration: chips: {name}: engine {engine} is missing.")

    @property
    def engines(self) -> tuple[str, ...]:
        """Names of the engines that were measured."""
        return tuple(name for name in next(iter(self.chips.values())).engines if name != ANY_ENGINE)

    def efficiency(self, chip: str, engine: str, *, stand_in_for: str = "") -> Efficiency:
        """Return the coefficients of a measured chip, marked as assumed where they stand in for another."""
        entry = self.chips[chip]
        kind = Evidence.ASSUMED if stand_in_for else Evidence.DERIVED
        note = f"{chip} stands in for {stand_in_for}, which nobody measured; " if stand_in_for else ""
        values = {**self._shared, **entry.fractions, **entry.engines[engine]}
        table = {}
        for name in COEFFICIENTS:
            if name not in values:
                raise InputError(f"calibration of {chip}, engine {engine}: {name} is missing.")
            unit = "s" if name.startswith("delay.") else "1"
            text = f"{values[name] * 1e6:.3g} us" if unit == "s" else f"{values[name]:.3g}"
            table[name] = Figure(values[name], unit, kind, note + self.source, text)
        return Efficiency(table, chip, engine, stand_in_for=stand_in_for)


class _Chip:
    def __init__(self, fields: Fields) -> None:
        self.bf16_flop_per_s = fields.number("bf16_flop_per_s")
        self.hbm_bytes_per_s = fields.number("hbm_bytes_per_s")
        self.fractions = _coefficients(fields.sub("fractions"))
        self.engines = _engines(fields.sub("engines"))
        fields.done()


def _engines(fields: Fields) -> dict[str, dict[str, float]]:
    found = {}
    for engine in fields.names():
        found[engine] = _coefficients(fields.sub(engine))
    return found


def _coefficients(fields: Fields) -> dict[str, float]:
    found = {name: fields.number(name) for name in fields.names()}
    for name, value in found.items():
        if name not in COEFFICIENTS:
            raise InputError(f"{fields.at(name)}: no such coefficient; {nearest(name, COEFFICIENTS)}")
        if value > 1 and is_fraction(name):
            raise InputError(f"{fields.at(name)}: {value} is no fraction of a peak.")
    return found


def read_calibration(data: object) -> Calibration:
    """Return the calibration that a file's contents hold.

    Raises
    ------
    InputError
        If something in it is missing or not known.
    """
    return Calibration(data)


@cache
def _calibration() -> Calibration:
    return read_calibration(load_yaml(PATH, "calibration"))


def calibrated_chips() -> tuple[str, ...]:
    """Names of the chips that were measured."""
    return tuple(_calibration().chips)


def fit_errors() -> Mapping[str, float]:
    """Rows that the coefficients were fitted to, and how far off the fit is: median and mean error as fractions."""
    return _calibration().fit


def engine_names() -> tuple[str, ...]:
    """Names of the engines that were measured."""
    return _calibration().engines


def calibrated(gpu: GpuSpec, engine: str = "") -> Efficiency:
    """Return what kernels reach on ``gpu``: fitted, or those of the nearest chip that was measured, marked as such.

    Nearest: smallest distance in the logarithms of BF16 peak and HBM bandwidth, for a chip of the catalog those that
    the catalog has: where a user makes them larger, the chip must not get slower by another neighbour.

    Raises
    ------
    InputError
        If the engine is not one of those measured.
    """
    name = require_engine(engine)
    same = load_gpu(gpu.name) if gpu.name in gpu_names() else gpu
    return _found(gpu.name, same.dense_flop_per_s("bf16"), same.hbm_bytes_per_s, name)


def require_engine(engine: str) -> str:
    """Return the name of a measured engine as the calibration spells it; empty means any.

    Raises
    ------
    InputError
        If it is not one of those measured.
    """
    name = _SHORT.get(engine.strip().lower(), engine.strip().lower()) or ANY_ENGINE
    if name not in (*engine_names(), ANY_ENGINE):
        raise InputError(
            f"--engine {engine}: measured are {', '.join(engine_names())}; leave it out for any."
        )
    return name


@cache
def _found(chip: str, flop_per_s: float, bytes_per_s: float, engine: str) -> Efficiency:
    chips: Mapping[str, _Chip] = _calibration().chips
    if chip in chips:
        return _calibration().efficiency(chip, engine)

    def distance(other: _Chip) -> float:
        return math.hypot(
            math.log(flop_per_s / other.bf16_flop_per_s), math.log(bytes_per_s / other.hbm_bytes_per_s)
        )

    nearest = min(chips, key=lambda name: distance(chips[name]))
    return _calibration().efficiency(nearest, engine, stand_in_for=chip)
