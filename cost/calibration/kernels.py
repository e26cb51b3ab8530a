"""What published kernels reach at best on each architecture, and what is taken for chips that nobody measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from cost.machine import COEFFICIENTS, is_fraction
from topology.base.errors import InputError, MissingFigureError
from topology.base.figures import Evidence, Figure
from topology.base.reading import Fields, load_yaml, nearest
from topology.base.units import parse_quantity
from topology.catalog import gpu_names, load_gpu
from topology.spec import GPU_FIGURES

PATH = Path(__file__).with_name("kernels.yaml")
_PEAKS = tuple(name for name in GPU_FIGURES if name.endswith("_per_s"))
KERNEL_FRACTIONS = tuple(name for name in COEFFICIENTS if is_fraction(name) and not name.startswith("links."))
"""Coefficients that are fractions of a chip's peak."""
_ROUNDING = 0.00051
"""How far a value of three decimals may lie from its rate over its peak."""


@dataclass(frozen=True)
class KernelRate:
    """One measurement of one kernel.

    Attributes
    ----------
    coefficient:
        One of the fractions of a chip's peaks in :data:`cost.machine.COEFFICIENTS`.
    chip:
        GPU of the catalog that it ran on.
    fraction:
        The rate over the peak, with the kernel, its rate and the publication as source.
    rate:
        The measured rate in flop/s or bytes/s.
    peak:
        Name of the catalog's figure that it is divided by, ``bf16_flop_per_s`` for one.
    kernel:
        The kernel, and the engine or library that it is of.
    """

    coefficient: str
    chip: str
    fraction: Figure
    rate: Figure
    peak: str
    kernel: str


@dataclass(frozen=True)
class KernelFigures:
    """The measurements of a file.

    Attributes
    ----------
    architectures:
        Chips of the catalog by architecture.
    without:
        By architecture the coefficients that it has no units for, with the reason.
    rates:
        All measurements.
    """

    architectures: Mapping[str, tuple[str, ...]]
    without: Mapping[str, Mapping[str, str]]
    rates: tuple[KernelRate, ...]


def read_kernel_rates(data: object, where: str = "kernel rates") -> KernelFigures:
    """Return the measurements that a file's contents hold.

    Raises
    ------
    InputError
        If something is missing, not known, above its peak, or not the quotient of its rate and its peak.
    """
    file = Fields(data, where)
    texts = file.by_name("sources", Fields.text)
    chips = file.by_name("architectures", Fields.texts)
    homes = {chip: name for name, members in chips.items() for chip in members}
    without = {
        name: _reasons(fields, name, chips) for name, fields in file.by_name("without", Fields.sub).items()
    }
    rates = tuple(_rate(fields, texts, homes) for fields in file.subs("kernels"))
    file.done()
    for rate in rates:
        if rate.coefficient in without.get(homes[rate.chip], {}):
            raise InputError(
                f"{where}: {rate.chip}: {rate.coefficient} has a rate, and stands under `without`."
            )
    return KernelFigures(chips, without, rates)


def _reasons(fields: Fields, name: str, chips: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    if name not in chips:
        raise InputError(f"{fields.where}: no such architecture; {nearest(name, chips)}")
    return {_fraction(key, fields.at(key)): fields.text(key) for key in fields.names()}


def _fraction(name: str, where: str) -> str:
    """Return the name of a coefficient that is a fraction of a chip's peak."""
    if name not in KERNEL_FRACTIONS:
        raise InputError(
            f"{where}: {name!r} is no fraction of a chip's peak; {nearest(name, KERNEL_FRACTIONS)}"
        )
    return name


def _rate(fields: Fields, sources: Mapping[str, str], homes: Mapping[str, str]) -> KernelRate:
    coefficient = _fraction(fields.text("coefficient"), fields.at("coefficient"))
    chip, peak, kernel = fields.text("chip"), fields.text("peak"), fields.text("kernel")
    source, text = fields.source(sources), fields.text("rate")
    if chip not in homes:
        fields.fail("chip", f"{chip!r} is in no architecture; {nearest(chip, homes)}")
    if peak not in _PEAKS or (peak == "hbm_bytes_per_s") != coefficient.startswith("hbm."):
        fields.fail("peak", f"{peak!r} is no peak that {coefficient} is a fraction of.")
    gpu, unit = load_gpu(chip), GPU_FIGURES[peak]
    if peak not in gpu.figures:
        fields.fail("peak", f"the catalog has no {peak} of {chip}.")
    most = gpu.figures[peak]
    rate = parse_quantity(text, unit, fields.at("rate"))
    value, kind = fields.number("value"), fields.evidence()
    if kind is not Evidence.MEASURED:
        fields.fail("kind", f"a kernel's rate is measured, not {kind.label}.")
    if value > 1 or abs(value - rate / most.value) > _ROUNDING:
        fields.fail("value", f"{value} is not {text} over {most.text} of {chip}: {rate / most.value:.3f}.")
    note = f"; {fields.text('note')}" if "note" in fields else ""
    fields.done()
    origin = f"{source} ({kernel} on {chip}: {text} of {most.text}{note})"
    return KernelRate(
        coefficient,
        chip,
        Figure(rate / most.value, "1", kind, origin, f"{value:.3f}"),
        Figure(rate, unit, kind, source, text),
        peak,
        kernel,
    )


@cache
def kernel_rates() -> KernelFigures:
    """Return the measurements that ship with rackplan."""
    return read_kernel_rates(load_yaml(PATH, "kernel rates"))


def architectures() -> tuple[str, ...]:
    """Names of the architectures that some kernel was measured on."""
    return tuple(kernel_rates().architectures)


def architecture_of(chip: str) -> str:
    """Return the architecture of a GPU of the catalog.

    Raises
    ------
    MissingFigureError
        If no kernel of its architecture was measured.
    """
    for name, chips in kernel_rates().architectures.items():
        if chip in chips:
            return name
    raise MissingFigureError(f"{chip}: no published rate of a kernel on its architecture is in the catalog.")


def published_best(architecture: str, coefficient: str, *, chip: str = "", peak: str = "") -> Figure:
    """Return the largest fraction of a peak that a published kernel reaches.

    Parameters
    ----------
    architecture:
        One of :func:`architectures`.
    coefficient:
        A fraction of :data:`cost.machine.COEFFICIENTS`.
    chip:
        Only what was measured on this GPU of the architecture: B300 has half as much FP4 again as B200 in its data
        sheet, and reaches a tenth more.
    peak:
        Only fractions of this figure of the catalog: scores over an FP8 cache are multiplied in FP8
        (``fp8_flop_per_s``) or in BF16 (``bf16_flop_per_s``).

    Raises
    ------
    InputError
        If the architecture, or the coefficient, is not known.
    MissingFigureError
        If nobody has published one, or the architecture has no such units.
    """
    figures = kernel_rates()
    if architecture not in figures.architectures:
        raise InputError(f"architecture {architecture!r}: {nearest(architecture, figures.architectures)}")
    _fraction(coefficient, "published rates")
    chips = figures.architectures[architecture]
    found = [
        rate.fraction
        for rate in figures.rates
        if rate.coefficient == coefficient
        and (rate.chip == chip if chip else rate.chip in chips)
        and peak in ("", rate.peak)
    ]
    if found:
        return max(found, key=lambda figure: figure.value)
    reason = figures.without.get(architecture, {}).get(coefficient)
    if reason:
        raise MissingFigureError(f"{architecture} has no {coefficient}: {reason}.")
    narrow = "".join(f" {text}" for text in (chip and f"on {chip}", peak and f"over {peak}") if text)
    raise MissingFigureError(f"{architecture}: no published rate of {coefficient}{narrow} is in the catalog.")


# Chips that nobody measured in served requests: a neighbour's fit brought down to what kernels reach on them.

WIDE, EIGHT = "attention.decode.bf16", "attention.decode.fp8"
UNMEASURED = Path(__file__).with_name("unmeasured.yaml")


def read_unmeasured(data: object, where: str = "unmeasured chips") -> Mapping[str, Mapping[str, Figure]]:
    """Return the largest fractions of their peaks that kernels are taken to reach, by chip and coefficient.

    A published rate goes before what the file assumes, and that before what it says of the chip under ``like``.

    Raises
    ------
    InputError
        If something is missing, not known, above 1, or said although a rate was published.
    """
    file = Fields(data, where)
    texts, table = file.by_name("sources", Fields.text), file.by_name("chips", Fields.sub)
    file.done()
    chips: dict[str, dict[str, Figure]] = {}
    for chip, fields in table.items():
        if chip not in gpu_names():
            raise InputError(f"{fields.where}: no such GPU in the catalog; {nearest(chip, gpu_names())}")
        given = fields.sub("fractions")
        found = {name: _assumed_fraction(given.sub(name), name, chip, texts) for name in given.names()}
        alike: Mapping[str, Figure] = {}
        if "like" in fields:
            other = fields.text("like")
            if other not in chips:
                fields.fail("like", f"{other!r} doesn't stand above {chip}.")
            alike = {name: _as_of(other, figure) for name, figure in chips[other].items()}
        if "neighbour" in fields and (other := fields.text("neighbour")) not in gpu_names():
            fields.fail("neighbour", f"no such GPU in the catalog; {nearest(other, gpu_names())}")
        fields.done()
        chips[chip] = {**alike, **found, **_published(chip)}
        if EIGHT not in chips[chip] and WIDE in chips[chip]:
            chips[chip][EIGHT] = _halved(chips[chip][WIDE])
        missing = [name for name in KERNEL_FRACTIONS if _has_units(chip, name) and name not in chips[chip]]
        if missing:
            raise InputError(f"{fields.where}: nothing on {', '.join(missing)}.")
        chips[chip] = {name: chips[chip][name] for name in KERNEL_FRACTIONS if _has_units(chip, name)}
    return chips


def _halved(figure: Figure) -> Figure:
    """Scores over an FP8 cache multiplied in BF16, as fractions of twice the peak: safe where nobody measured."""
    source = f"scores over an FP8 cache as over one in BF16: {figure.source}"
    return Figure(figure.value / 2, "1", Evidence.ASSUMED, source, f"{figure.value / 2:g}")


def _assumed_fraction(fields: Fields, name: str, chip: str, sources: Mapping[str, str]) -> Figure:
    if name not in KERNEL_FRACTIONS:
        raise InputError(f"{fields.where}: no fraction of a chip's peak; {nearest(name, KERNEL_FRACTIONS)}")
    if name in _published(chip):
        raise InputError(f"{fields.where}: a rate was published, which goes before what is assumed.")
    value, kind, source = fields.number("value", most=1), fields.evidence(), fields.source(sources)
    if kind is not Evidence.ASSUMED:
        fields.fail("kind", f"without a rate it is assumed, not {kind.label}.")
    note = f"; {fields.text('note')}" if "note" in fields else ""
    fields.done()
    return Figure(value, "1", kind, f"{source}{note}", f"{value:g}")


def _as_of(chip: str, figure: Figure) -> Figure:
    return Figure(figure.value, "1", Evidence.ASSUMED, f"as {chip}: {figure.source}", figure.text)


def _has_units(chip: str, name: str) -> bool:
    """Whether the catalog has the peak that a coefficient is a fraction of."""
    peak = f"{name.rpartition('.')[2]}_flop_per_s"
    return peak not in GPU_FIGURES or peak in load_gpu(chip).figures


def _published(chip: str) -> dict[str, Figure]:
    """The largest fractions published for the chip itself; scores over the BF16 peak, as coefficients count them."""
    return {name: best for name in KERNEL_FRACTIONS if (best := _best(chip, name, own=True))}


def _best(chip: str, name: str, *, own: bool) -> Figure | None:
    """The largest published fraction of the chip, or of its whole architecture."""
    peak = "bf16_flop_per_s" if name == "attention.prefill" else ""
    try:
        return published_best(architecture_of(chip), name, chip=chip if own else "", peak=peak)
    except MissingFigureError:
        return None


@cache
def _shipped() -> Mapping[str, Mapping[str, Figure]]:
    return read_unmeasured(load_yaml(UNMEASURED, "unmeasured chips"))


@cache
def neighbour(chip: str) -> str:
    """Return the measured chip whose coefficients an unmeasured one takes, where the nearest is of another kind."""
    chips = Fields(load_yaml(UNMEASURED, "unmeasured chips"), "unmeasured chips").sub("chips")
    return chips.sub(chip).text("neighbour", "") if chip in chips else ""


def unmeasured_chips() -> tuple[str, ...]:
    """Names of the chips that nobody measured in served requests, and of whose kernels something is known."""
    return tuple(_shipped())


def derate(chip: str) -> Mapping[str, Figure] | None:
    """Return the largest fractions of its peaks that kernels of an unmeasured chip reach, or nothing of another chip.

    They are what kernels reach at best, published or assumed, not what engines reach: see :func:`brought_down`.
    """
    return _shipped().get(chip)


def brought_down(fitted: Mapping[str, Figure], stand_in: str, chip: str) -> Mapping[str, Figure] | None:
    """Return a measured chip's coefficients for one that nobody measured, or nothing where nothing is known of it.

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
    for name, most in reach.items():
        if name not in fitted:
            continue
        base = _best(stand_in, name, own=True) or _best(stand_in, name, own=False)
        value = fitted[name].value * (most.value / base.value if base else 1)
        ratio = f"{most.text} over {base.text}" if base else f"1, at most {most.text}"
        origin = f"{fitted[name].text} of {stand_in} times {ratio}, what kernels reach on {chip} and there"
        value = min(value, most.value)
        table[name] = Figure(value, "1", Evidence.ASSUMED, f"{origin}; {chip}: {most.source}", f"{value:.3g}")
    return table
