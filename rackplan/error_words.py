"""How far off a figure may be, as people read it: the evidence of a chip, and the band of a throughput."""

from __future__ import annotations

import math
from collections.abc import Sequence

from cost.calibration.errors import ANY_PHASE, EACH_ENGINE, KINDS, LEAST_ROWS, ErrorOf, widest
from cost.calibration.serving import ANY_ENGINE


def error_words(error: ErrorOf) -> str:
    """Return what a chip's coefficients are fitted to, how far off they are, and how far with the chip left out."""
    engine = "all engines" if error.engine in (ANY_ENGINE, EACH_ENGINE) else error.engine
    which = ", ".join(filter(None, [engine, "" if error.phase == ANY_PHASE else error.phase, error.note]))
    text = f"fitted to {KINDS[error.rows_of]} on {error.chip} ({which}; {error.rows:,} measured rows, "
    if error.rows < LEAST_ROWS:
        text += "too few for an error of their own"
    else:
        text += f"cross-validated median error {error.median:.1%}, {error.within_20_percent:.0%} within 20%"
    out = error.left_out
    if out is not None:
        chip = error.left_out_chip
        name = (
            f"a chip left out of the fit, {chip}:" if error.borrowed else f"with {chip} left out of the fit"
        )
        text += f"; {name} {out.median:.1%} and {out.within_20_percent:.0%}"
    return f"{text})"


def chip_words(error: ErrorOf) -> str:
    """Return what the coefficients of a chip rest on, and whose they are where nobody measured it."""
    text = f"what kernels reach is {error_words(error)}"
    if error.stand_in_for:
        text = f"nobody measured {error.stand_in_for}, its neighbour stands in: {text}"
    return text


def error_rows(errors: Sequence[tuple[str, ErrorOf]]) -> list[list[str]]:
    """Return a table of errors, its header first: the name of each, whose coefficients, how far off they are."""
    rows = [["how far off", "coefficients of", "rows", "median", "within 20%", "chip left out", "factor"]]
    for name, error in errors:
        few, out = error.rows < LEAST_ROWS, error.left_out
        rows.append(
            [
                name,
                f"{error.chip}, for {error.stand_in_for}" if error.stand_in_for else error.chip,
                f"{error.rows:,}",
                "-" if few else f"{error.median:.1%}",
                "-" if few else f"{error.within_20_percent:.0%}",
                "-" if out is None else f"{out.median:.1%}, {out.within_20_percent:.0%}",
                f"{error.band:.2f}",
            ]
        )
    return rows


def table_words(errors: Sequence[ErrorOf]) -> str:
    """Return what the columns of :func:`error_rows` are."""
    text = "measured rows, cross-validated; 80% of them are within the factor of the predicted tok/s/GPU"
    borrowed = next((error.left_out_chip for error in errors if error.borrowed), "")
    if borrowed:
        text += f"; where a chip has none of its own, of those of a chip left out of the fit ({borrowed}, the widest)"
    notes = (f"{error.chip}: all rows, {error.note}" for error in errors if error.note)
    return "; ".join([text, *dict.fromkeys(notes)])


def range_words(rate: float, errors: Sequence[ErrorOf]) -> str:
    """Return the band of a rate (``4,400 to 7,500``), empty where nothing was measured."""
    found = widest(errors)
    if found is None:
        return ""
    return f"{_two_digits(rate / found.band)} to {_two_digits(rate * found.band)}"


def factor_words(errors: Sequence[ErrorOf]) -> str:
    """Return what the band is: the factor, and of which rows 80 % are within it."""
    found = widest(errors)
    if found is None:
        return ""
    if found.borrowed:
        return f"80% of the rows of a chip left out of the fit are within a factor {found.band:.2f}"
    return f"80% of measured rows are within a factor {found.band:.2f}"


def band_words(rate: float, errors: Sequence[ErrorOf]) -> str:
    """Return the band of a throughput in brackets, to stand behind it; empty where nothing was measured."""
    return f" ({range_words(rate, errors)}: {factor_words(errors)})" if errors else ""


def _two_digits(value: float) -> str:
    """A number to two digits, as a band deserves; a small one as short as that makes it."""
    if value <= 0 or not math.isfinite(value):
        return f"{value:g}"
    digits = 1 - math.floor(math.log10(value))
    return f"{round(value, digits):,.{max(0, digits)}f}"
