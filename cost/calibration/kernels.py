"""Best published kernel efficiencies by architecture, and assumptions for unmeasured chips."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache, cached_property
from pathlib import Path
from typing import Annotated, Literal

import pydantic

from cost.calibration.tables import CHECKED, Share, SourcedShare, Text, load_table, one_of
from cost.inputs.machine import COEFFICIENTS, is_fraction
from topology.base.errors import InputError, MissingFigureError
from topology.base.figures import Evidence, Figure
from topology.base.schema import source_text
from topology.base.units import parse_quantity
from topology.catalog import gpu_names, load_gpu
from topology.spec import GPU_FIGURES

PATH = Path(__file__).with_name("kernels.yaml")
_PEAKS = tuple(name for name in GPU_FIGURES if name.endswith("_per_s"))
KERNEL_FRACTIONS = tuple(
    name for name in COEFFICIENTS if is_fraction(name) and not name.startswith(("links.", "experts.int4"))
)
"""Coefficients that are fractions of a chip's peak; that of INT4 weights is one of another fraction."""
Fraction = Annotated[str, one_of("fraction of a chip's peak", lambda: KERNEL_FRACTIONS)]
Gpu = Annotated[str, one_of("GPU in the catalog", gpu_names)]


@pydantic.dataclasses.dataclass(frozen=True, config=CHECKED)
class KernelRate:
    """One measurement of one kernel.

    Attributes
    ----------
    coefficient:
        One of the fractions of a chip's peaks in :data:`cost.inputs.machine.COEFFICIENTS`.
    chip:
        GPU of the catalog that it ran on.
    rate, value:
        The measured rate, and what part of the peak it is, to three decimals.
    peak:
        Name of the catalog's figure that it is divided by, ``bf16_flop_per_s`` for one.
    kernel:
        The kernel, and the engine or library that it is of.
    """

    coefficient: Fraction
    chip: Gpu
    kernel: Text
    rate: Text
    peak: Annotated[str, one_of("peak", lambda: _PEAKS)]
    value: Share
    kind: Literal["measured"]
    source: Text
    note: Text | None = None


@pydantic.dataclasses.dataclass(frozen=True, config=CHECKED)
class KernelFigures:
    """The measurements of a file.

    Attributes
    ----------
    architectures:
        Chips of the catalog by architecture.
    without:
        By architecture the coefficients that it has no units for, with the reason.
    kernels:
        All measurements.
    """

    sources: Mapping[str, Text]
    architectures: Mapping[str, tuple[Gpu, ...]]
    without: Mapping[str, Mapping[Fraction, Text]]
    kernels: tuple[KernelRate, ...]

    def fraction(self, rate: KernelRate) -> Figure:
        """Return a rate over its peak, with the kernel, its rate and the publication as source."""
        where, peak = f"{PATH.name}: {rate.kernel}", load_gpu(rate.chip).figures[rate.peak]
        value = parse_quantity(rate.rate, peak.unit, where) / peak.value
        note = f"; {rate.note}" if rate.note else ""
        origin = f"{rate.kernel} on {rate.chip}: {rate.rate} of {peak.text}{note}"
        source = f"{source_text(rate.source, self.sources, where)} ({origin})"
        return Figure(value, "1", Evidence.MEASURED, source, f"{value:.3f}")


@cache
def kernel_rates() -> KernelFigures:
    """Return the measurements that ship with rackplan."""
    return load_table(KernelFigures, PATH)


@cache
def architecture_of(chip: str) -> str:
    """Return the architecture of a GPU of the catalog; empty where no kernel of it was measured."""
    return next((name for name, chips in kernel_rates().architectures.items() if chip in chips), "")


def published_best(architecture: str, coefficient: str, *, chip: str = "", peak: str = "") -> Figure:
    """Return the largest fraction of a peak that a published kernel reaches.

    Parameters
    ----------
    architecture:
        One that some kernel was measured on.
    coefficient:
        A fraction of :data:`cost.inputs.machine.COEFFICIENTS`.
    chip:
        Only what was measured on this GPU of the architecture: B300 has half as much FP4 again as B200 in its data
        sheet, and reaches a tenth more.
    peak:
        Only fractions of this figure of the catalog: scores over an FP8 cache are multiplied in FP8
        (``fp8_flop_per_s``) or in BF16 (``bf16_flop_per_s``).

    Raises
    ------
    MissingFigureError
        If nobody has published one, or the architecture has no such units.
    """
    figures = kernel_rates()
    chips = figures.architectures.get(architecture, ())
    rates = [
        figures.fraction(rate)
        for rate in figures.kernels
        if rate.coefficient == coefficient
        and (rate.chip == chip if chip else rate.chip in chips)
        and peak in ("", rate.peak)
    ]
    if rates:
        return max(rates, key=lambda figure: figure.value)
    reason = figures.without.get(architecture, {}).get(coefficient)
    if reason:
        raise MissingFigureError(f"{architecture} has no {coefficient}: {reason}.")
    narrow = "".join(f" {text}" for text in (chip and f"on {chip}", peak and f"over {peak}") if text)
    raise MissingFigureError(f"{architecture}: no published rate of {coefficient}{narrow} is in the catalog.")


# Chips that nobody measured in served requests: a neighbour's fit brought down to what kernels reach on them.

WIDE, EIGHT = "attention.decode.bf16", "attention.decode.fp8"
UNMEASURED = Path(__file__).with_name("unmeasured.yaml")


@pydantic.dataclasses.dataclass(frozen=True, config=CHECKED)
class _Unmeasured:
    fractions: Mapping[Fraction, SourcedShare]
    like: Gpu | None = None
    neighbour: Gpu | None = None


@pydantic.dataclasses.dataclass(frozen=True, config=CHECKED)
class UnmeasuredChips:
    """Unmeasured chips; a chip given as ``like`` another of them comes after it."""

    sources: Mapping[str, Text]
    chips: Mapping[Gpu, _Unmeasured]

    @cached_property
    def reach(self) -> Mapping[str, Mapping[str, Figure]]:
        """Return the largest fractions of their peaks that kernels are taken to reach, by chip and coefficient.

        A published rate goes before what the file assumes, and that before what it says of the chip under ``like``.

        Raises
        ------
        InputError
            If nothing is known of a coefficient.
        """
        chips: dict[str, dict[str, Figure]] = {}
        for chip, chip_entry in self.chips.items():
            where = f"{UNMEASURED.name}: chips: {chip}"
            fractions: dict[str, Figure] = {}
            if chip_entry.like is not None:
                like = chips[chip_entry.like] if chip_entry.like in chips else _published(chip_entry.like)
                fractions = {
                    name: replace(
                        figure, kind=Evidence.ASSUMED, source=f"as {chip_entry.like}: {figure.source}"
                    )
                    for name, figure in like.items()
                }
            for name, assumed in chip_entry.fractions.items():
                fractions[name] = assumed.figure(self.sources, f"{where}: {name}")
            fractions |= _published(chip)
            if EIGHT not in fractions and WIDE in fractions:
                fractions[EIGHT] = _halved(fractions[WIDE])
            needed = [name for name in KERNEL_FRACTIONS if _has_units(chip, name)]
            if missing := [name for name in needed if name not in fractions]:
                raise InputError(f"{where}: nothing on {', '.join(missing)}.")
            chips[chip] = {name: fractions[name] for name in needed}
        return chips


def _halved(figure: Figure) -> Figure:
    """Scores over an FP8 cache multiplied in BF16, as fractions of twice the peak: safe where nobody measured."""
    source = f"scores over an FP8 cache as over one in BF16: {figure.source}"
    return Figure(figure.value / 2, "1", Evidence.ASSUMED, source, f"{figure.value / 2:g}")


def _has_units(chip: str, name: str) -> bool:
    """Whether the catalog has the peak that a coefficient is a fraction of."""
    peak = f"{name.rpartition('.')[2]}_flop_per_s"
    return peak not in GPU_FIGURES or peak in load_gpu(chip).figures


def _published(chip: str) -> dict[str, Figure]:
    """The largest fractions published for the chip itself; scores over the BF16 peak, as coefficients count them."""
    return {name: best for name in KERNEL_FRACTIONS if (best := _best(chip, name, own_chip=True))}


def _best(chip: str, name: str, *, own_chip: bool) -> Figure | None:
    """The largest published fraction of the chip, or of its whole architecture."""
    peak = "bf16_flop_per_s" if name == PREFILL else ""
    try:
        return published_best(architecture_of(chip), name, chip=chip if own_chip else "", peak=peak)
    except MissingFigureError:
        return None


PREFILL = "attention.prefill"
TWIN = {"gb300": "gb200"}
"""A chip without served rows of prefill, and the one with its peaks whose curve it takes: Blackwell Ultra has twice
the exponentials, which bind attention of prompts."""


def with_own_prefill(fitted: Mapping[str, Figure], chip: str) -> Mapping[str, Figure]:
    """Return coefficients in which attention of prompts is as much faster than the twin's as kernels alone are."""
    if chip not in TWIN:
        return fitted
    peak = "bf16_flop_per_s"
    best, base = (
        published_best(architecture_of(name), PREFILL, chip=name, peak=peak) for name in (chip, TWIN[chip])
    )
    fitted_rate, ratio = fitted[PREFILL], best.value / base.value
    factor = f"{TWIN[chip]} times {best.text} over {base.text}, what kernels reach there"
    source = f"{fitted_rate.text} of {factor}: {fitted_rate.source}"
    value = min(fitted_rate.value * ratio, best.value)
    return {**fitted, PREFILL: Figure(value, "1", fitted_rate.kind, source, f"{value:.3g}")}


@cache
def unmeasured() -> UnmeasuredChips:
    """Return the assumptions for unmeasured chips."""
    return load_table(UnmeasuredChips, UNMEASURED)


def neighbour(chip: str) -> str:
    """Return the measured chip whose coefficients an unmeasured one takes, where the nearest is of another kind."""
    file = unmeasured()
    return file.chips[chip].neighbour or "" if chip in file.chips else ""


def derate(chip: str) -> Mapping[str, Figure] | None:
    """Return the largest fractions of its peaks that kernels of an unmeasured chip reach, or nothing of another chip.

    They are what kernels reach at best, published or assumed, not what engines reach: see :func:`brought_down`.
    """
    return unmeasured().reach.get(chip)


def brought_down(fitted: Mapping[str, Figure], stand_in: str, chip: str) -> Mapping[str, Figure] | None:
    """Return a measured chip's coefficients adapted to an unmeasured one, or nothing if nothing is known about it.

    A fraction is multiplied by what kernels reach on ``chip`` over what they reach on ``stand_in``, and is never
    above the former: engines are taken to lose as much of what kernels reach. All else stays as it is.

    Parameters
    ----------
    fitted:
        Coefficients of ``stand_in``.
    stand_in:
        The measured chip whose coefficients they are.
    chip:
        The chip that takes them.
    """
    reach = derate(chip)
    if reach is None:
        return None
    table = dict(fitted)
    for name, limit in reach.items():
        if name not in fitted:
            continue
        base = _best(stand_in, name, own_chip=True) or _best(stand_in, name, own_chip=False)
        value = fitted[name].value * (limit.value / base.value if base else 1)
        ratio = f"{limit.text} over {base.text}" if base else f"1, at most {limit.text}"
        origin = f"{fitted[name].text} of {stand_in} times {ratio}, what kernels reach on {chip} and there"
        value = min(value, limit.value)
        table[name] = Figure(
            value, "1", Evidence.ASSUMED, f"{origin}; {chip}: {limit.source}", f"{value:.3g}"
        )
    return table
