"""Chips that nobody measured in served requests: what kernels reach on them, a neighbour's fit brought down to it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from cost.calibration.kernels import KERNEL_FRACTIONS, architecture_of, published_best
from topology.catalog import GPU_FIGURES, gpu_names, load_gpu
from topology.errors import InputError, MissingFigureError
from topology.figures import Evidence, Figure
from topology.reading import Fields, load_yaml, nearest

WIDE, EIGHT = "attention.decode.bf16", "attention.decode.fp8"
PATH = Path(__file__).with_name("unmeasured.yaml")


def read_unmeasured(data: object, where: str = "unmeasured chips") -> Mapping[str, Mapping[str, Figure]]:
    """Return the largest fractions of their peaks that kernels are taken to reach, by chip and coefficient.

    A published rate goes before what the file assumes, and that before what it says of the chip under ``like``.

    Raises
    ------
    InputError
        If something is missing, not known, above 1, or said although a rate was published.
    """
    file = Fields(data, where)
    sources = file.sub("sources")
    texts = {key: sources.text(key) for key in sources.names()}
    table = file.sub("chips")
    file.done()
    chips: dict[str, dict[str, Figure]] = {}
    for chip in table.names():
        fields = table.sub(chip)
        if chip not in gpu_names():
            raise InputError(f"{fields.where}: no such GPU in the catalog; {nearest(chip, gpu_names())}")
        given = fields.sub("fractions")
        found = {name: _fraction(given.sub(name), name, chip, texts) for name in given.names()}
        alike: Mapping[str, Figure] = {}
        if "like" in fields:
            other = fields.text("like")
            if other not in chips:
                raise InputError(f"{fields.at('like')}: {other!r} doesn't stand above {chip}.")
            alike = {name: _as_of(other, figure) for name, figure in chips[other].items()}
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


def _fraction(fields: Fields, name: str, chip: str, sources: Mapping[str, str]) -> Figure:
    if name not in KERNEL_FRACTIONS:
        raise InputError(f"{fields.where}: no fraction of a chip's peak; {nearest(name, KERNEL_FRACTIONS)}")
    if name in _published(chip):
        raise InputError(f"{fields.where}: a rate was published, which goes before what is assumed.")
    value, kind, source = fields.number("value"), fields.evidence(), fields.text("source")
    if kind is not Evidence.ASSUMED:
        raise InputError(f"{fields.at('kind')}: without a rate it is assumed, not {kind.label}.")
    if not 0 < value <= 1:
        raise InputError(f"{fields.at('value')}: {value} is no fraction.")
    if source not in sources:
        raise InputError(f"{fields.at('source')}: {source!r} is not among the file's sources.")
    note = f"; {fields.text('note')}" if "note" in fields else ""
    fields.done()
    return Figure(value, "1", kind, f"{sources[source]}{note}", f"{value:g}")


def _as_of(chip: str, figure: Figure) -> Figure:
    return Figure(figure.value, "1", Evidence.ASSUMED, f"as {chip}: {figure.source}", figure.text)


def _has_units(chip: str, name: str) -> bool:
    """Whether the catalog has the peak that a coefficient is a fraction of."""
    peak = f"{name.rpartition('.')[2]}_flop_per_s"
    return peak not in GPU_FIGURES or peak in load_gpu(chip).figures


def _published(chip: str) -> dict[str, Figure]:
    """The largest fractions published for the chip itself; scores over the BF16 peak, as coefficients count them."""
    found = {}
    for name in KERNEL_FRACTIONS:
        best = _best(chip, name, own=True)
        if best:
            found[name] = best
    return found


def _best(chip: str, name: str, *, own: bool) -> Figure | None:
    """The largest published fraction of the chip, or of its whole architecture."""
    peak = "bf16_flop_per_s" if name == "attention.prefill" else ""
    try:
        return published_best(architecture_of(chip), name, chip=chip if own else "", peak=peak)
    except MissingFigureError:
        return None


@cache
def _shipped() -> Mapping[str, Mapping[str, Figure]]:
    return read_unmeasured(load_yaml(PATH, "unmeasured chips"))


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
