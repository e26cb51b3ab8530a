"""How far predictions are off: by chip and engine, on rows that a fit did not see.

``errors.yaml`` is written by ``python benchmarks/calibration SILICON.csv --write``; what its figures mean:
docs/trust.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Annotated, Literal, NotRequired

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass
from typing_extensions import TypedDict

from cost.calibration.correction import shipped_correction
from cost.calibration.serving import ANY_ENGINE, calibrated
from cost.calibration.tables import CHECKED, Count, Number, Text, load_table
from cost.inputs.deployment import Deployment
from cost.inputs.layout import Layout
from cost.inputs.machine import NO_RUNS, Efficiency, NearRuns
from topology.base.units import plural

PATH = Path(__file__).with_name("errors.yaml")
EACH_ENGINE = "named"
"""Rows of all engines, each predicted under its own; under ``any`` each is predicted as if it did not say."""
MIN_ROWS = 20
"""A chip with fewer has no error of its own: a share of 80 % of them would rest on three rows or fewer."""
MIN_ROWS_OF_ENGINE = 60
"""Fewer rows of an engine have no band of their own: they are of 15 configurations or fewer."""
KINDS = {"served": "served requests", "published": "published figures"}
"""What the rows of a chip are. Published ones count where nobody gave rows of served requests."""


@dataclass(frozen=True, config=CHECKED)
class ErrorFigures:
    """Errors of some rows, as fractions.

    Attributes
    ----------
    median, mean:
        Of ``|predicted - measured| / measured``.
    within_20_percent:
        Share of the rows whose error is at most 0.2.
    bias:
        Median of ``predicted / measured``, less 1.
    band:
        The least factor f with 80 % of the rows measured within ``[predicted / f, predicted * f]``; at least 1.
    """

    median: Annotated[Number, Field(ge=0)]
    mean: Annotated[Number, Field(ge=0)]
    within_20_percent: Annotated[Number, Field(ge=0, le=1)]
    bias: Annotated[Number, Field(ge=-1)]
    band: Annotated[Number, Field(ge=1)]


@dataclass(frozen=True, config=CHECKED)
class Cell:
    """Some measured rows: how far off a fit to them is, and fits that did not see their configuration, chip or model.

    ``physics`` is cross-validated too, without the correction by measured runs that all others have. ``left_out``
    (their chip) and ``model_left_out`` are None where leaving something out as a whole says nothing.
    """

    rows: Count
    in_sample: ErrorFigures
    physics: ErrorFigures
    cross_validated: ErrorFigures
    left_out: ErrorFigures | None = None
    model_left_out: ErrorFigures | None = None


@dataclass(frozen=True, config=CHECKED)
class ErrorOf(ErrorFigures):
    """The error of predictions for one chip under one engine; of configurations that a fit did not see.

    Attributes
    ----------
    chip, stand_in_for:
        The chip whose coefficients are used; the chip that nobody measured and that uses them, empty otherwise.
    engine:
        That of the rows. ``any``: all, as if they did not say theirs; :data:`EACH_ENGINE`: all, because of ``note``.
    rows, rows_of:
        Measured rows on ``chip``, and what they are, one of :data:`KINDS`.
    left_out, left_out_chip:
        Errors of a chip that a fit did not see, of any of whose rows: ``chip`` itself; where it stands in for
        another or has too few rows the chip with the widest band of those left out in turn.
    band:
        That of ``left_out`` where ``chip`` stands in or has too few rows.
    model_seen:
        Whether runs of the model are among the measured ones; if not, the errors are those of models left out.
    near:
        Measured runs near the step that the band is of; None: it is of all of ``rows``.
    own_runs:
        Runs of the user's own on the chip that the band rests on besides.
    note:
        Why rows of all engines count though one was asked for, or of decoding for prefill; empty: neither.
    """

    chip: str
    engine: str
    rows: int
    left_out: ErrorFigures | None
    left_out_chip: str = ""
    stand_in_for: str = ""
    rows_of: str = "served"
    model_seen: bool = True
    near: int | None = None
    own_runs: int = 0
    note: str = ""

    @property
    def borrowed(self) -> bool:
        """Whether the band is that of chips left out: the chip has no rows of its own, or too few."""
        return bool(self.stand_in_for) or self.left_out_chip not in ("", self.chip)


@dataclass(frozen=True, config=CHECKED)
class ChipErrors:
    """Cells of one chip by engine, and what its rows are (:data:`KINDS`)."""

    rows_of: Literal["served", "published"]
    engines: Mapping[str, Cell]

    def __post_init__(self) -> None:
        for engine in (ANY_ENGINE, EACH_ENGINE):
            if engine not in self.engines:
                raise ValueError(f"engines: {engine}: is missing.")

    @property
    def everything(self) -> Cell:
        """All rows, as if none named its engine."""
        return self.engines[ANY_ENGINE]

    def find(self, engine: str) -> tuple[str, Cell, str]:
        """Return the engine, or all where it has too few rows, their cell, and why it is not the one asked for."""
        cell = self.engines.get(engine)
        if engine == ANY_ENGINE or (cell is not None and cell.rows >= MIN_ROWS_OF_ENGINE):
            return engine, self.engines[engine], ""
        rows = 0 if cell is None else cell.rows
        note = f"since {plural(rows, 'row')} for {engine} {'is' if rows == 1 else 'are'} too few"
        return EACH_ENGINE, self.engines[EACH_ENGINE], note


@dataclass(frozen=True, config=CHECKED)
class ErrorTable:
    """Errors as a file holds them.

    Attributes
    ----------
    served:
        All rows of served requests, each under its engine.
    unrecorded:
        Those that do not say whether tokens were drafted.
    prefill_rows:
        Published figures of prefill alone.
    """

    source: Text
    folds: Annotated[Count, Field(ge=2)]
    prefill_rows: Count
    served: Cell
    unrecorded: Cell
    chips: Mapping[str, ChipErrors]

    def __post_init__(self) -> None:
        self.widest_left_out()

    def widest_left_out(self) -> str:
        """Return the chip whose rows are furthest from a fit without it, by band; of those with enough rows.

        The widest and not a middle one: every chip left out has another of its class in the fit, which a chip of
        another maker has not.

        Raises
        ------
        ValueError
            If no chip has enough rows.
        """
        bands = {
            name: chip.everything.left_out.band
            for name, chip in self.chips.items()
            if chip.everything.left_out is not None and chip.everything.rows >= MIN_ROWS
        }
        if not bands:
            raise ValueError(f"chips: none has {MIN_ROWS} rows and `left_out`.")
        return max(bands, key=lambda name: bands[name])


@cache
def error_table() -> ErrorTable:
    """Return the errors of the calibration that is shipped."""
    return load_table(ErrorTable, PATH)


def error_behind(efficiency: Efficiency, *, model_seen: bool = True, physics: bool = False) -> ErrorOf | None:
    """Return the error of predictions with calibrated coefficients; None for coefficients of other origin.

    ``model_seen``: whether runs of the model were measured; ``physics``: without the correction by measured runs.
    """
    table, chip = error_table(), efficiency.chip
    if efficiency.ideal or chip not in table.chips:
        return None
    engine, cell, note = table.chips[chip].find(efficiency.engine or ANY_ENGINE)
    cell_errors = cell.physics if physics else cell.cross_validated
    if not model_seen and cell.model_left_out is not None:
        cell_errors = replace(cell.model_left_out, band=max(cell_errors.band, cell.model_left_out.band))
    borrowed = bool(efficiency.stand_in_for) or cell.rows < MIN_ROWS
    of = table.widest_left_out() if borrowed else chip
    left_out = table.chips[of].everything.left_out if borrowed else cell.left_out
    if borrowed and left_out is not None:
        cell_errors = replace(
            cell_errors,
            band=max(cell_errors.band, left_out.band) if cell.rows >= MIN_ROWS else left_out.band,
        )
    return ErrorOf(
        **vars(cell_errors),
        chip=chip,
        engine=engine,
        rows=cell.rows,
        left_out=left_out,
        left_out_chip=of if left_out is not None else "",
        stand_in_for=efficiency.stand_in_for,
        rows_of=table.chips[chip].rows_of,
        model_seen=model_seen,
        note=note,
    )


def unrecorded_band(*, physics: bool = False) -> float:
    """Return the band of runs that do not say whether tokens were drafted."""
    cell = error_table().unrecorded
    return (cell.physics if physics else cell.cross_validated).band


def errors_in(
    deployment: Deployment, layout: Layout | None = None, near: NearRuns = NO_RUNS
) -> tuple[ErrorOf, ...]:
    """Return the errors of the chips that a layout runs on, each once; without a layout of all of the cluster.

    ``near``: what runs near the decode step say, which has the band. Empty where no coefficient is calibrated.
    """
    if layout is None:
        gpus = (domain.gpu for domain in deployment.cluster.spec.domains)
        reached = [deployment.efficiency or calibrated(gpu, deployment.engine) for gpu in gpus]
    else:
        reached = [deployment.machine(stage).efficiency for stages in layout.replicas for stage in stages]
    errors = (error_of(efficiency, deployment, near) for efficiency in dict.fromkeys(reached))
    return tuple(dict.fromkeys(error for error in errors if error is not None))


def error_of(efficiency: Efficiency, deployment: Deployment, near: NearRuns = NO_RUNS) -> ErrorOf | None:
    """Return the error of a deployment's predictions on a chip: of its model and engine, with its own runs.

    ``n`` own runs of the chip, each predicted by the others, count beside the rows that ship as ``n`` to
    :data:`MIN_ROWS`, in squares of the band's logarithm.
    """
    correction, own_runs = deployment.correction, deployment.correction.own
    model_seen = shipped_correction().has_seen(deployment.model)
    error = error_behind(efficiency, model_seen=model_seen, physics=correction.physics)
    if error is None:
        return None
    if deployment.workload.phase == "prefill":
        rows = error_table().prefill_rows
        note = f"of decoding, since prefill alone has {rows} published figures"
        error = replace(error, note="; ".join(filter(None, [error.note, note])))
    if near.band is not None:
        error = replace(error, band=near.band, near=near.runs)
    chip = efficiency.stand_in_for or efficiency.chip
    off = np.zeros(0) if own_runs is None else np.abs(own_runs.left_out[own_runs.columns["chip"] == chip])
    if not len(off):
        return error
    square = len(off) * np.quantile(off, 0.8) ** 2 + MIN_ROWS * np.log(error.band) ** 2
    return replace(error, band=float(np.exp(np.sqrt(square / (len(off) + MIN_ROWS)))), own_runs=len(off))


def widest(errors: Iterable[ErrorOf]) -> ErrorOf | None:
    """Return the error with the widest band, for steps that wait for several chips; None without any."""
    return max(errors, key=lambda error: error.band, default=None)


class CalibrationData(TypedDict):
    """Prediction errors of a chip, as fractions of the measured values.

    Attributes
    ----------
    chip, stand_in_for:
        The chip that was measured, and the one that it stands in for; null: itself.
    engine:
        Of the measured rows; ``any``: all of them.
    rows, rows_of:
        How many rows, and what they are of.
    median_abs_error, mean_abs_error, bias:
        Absolute errors, and the median signed one (below 0: most predictions are too small).
    within_20_percent:
        Share of the rows within 20 percent.
    left_out_chip, left_out_median_abs_error, left_out_within_20_percent:
        The same of a fit that did not see this chip; null where there is none.
    band:
        Factor within which four of five measured rows lie.
    model_seen:
        Whether runs of the model are among the measured ones; if not, errors are those of models left out.
    note:
        What the rows are not of; null: nothing.
    each:
        The errors of all chips where several differ: the whole is that with the widest band.
    """

    chip: str
    stand_in_for: str | None
    engine: str
    rows: int
    rows_of: str
    median_abs_error: float
    mean_abs_error: float
    within_20_percent: float
    bias: float
    left_out_chip: str | None
    left_out_median_abs_error: float | None
    left_out_within_20_percent: float | None
    band: float
    model_seen: bool
    note: str | None
    each: NotRequired[list[CalibrationData]]


def error_to_dict(errors: Iterable[ErrorOf]) -> CalibrationData | None:
    """Return the error with the widest band as JSON-able data, with all under ``each`` where chips differ."""
    listed = tuple(errors)
    widest_error = widest(listed)
    if widest_error is None:
        return None
    if len(listed) == 1:
        return _to_dict(widest_error)
    return {**_to_dict(widest_error), "each": [_to_dict(error) for error in listed]}


def _to_dict(error: ErrorOf) -> CalibrationData:
    left_out = error.left_out
    return {
        "chip": error.chip,
        "stand_in_for": error.stand_in_for or None,
        "engine": error.engine,
        "rows": error.rows,
        "rows_of": KINDS[error.rows_of],
        "median_abs_error": error.median,
        "mean_abs_error": error.mean,
        "within_20_percent": error.within_20_percent,
        "bias": error.bias,
        "left_out_chip": error.left_out_chip or None,
        "left_out_median_abs_error": left_out.median if left_out is not None else None,
        "left_out_within_20_percent": left_out.within_20_percent if left_out is not None else None,
        "band": error.band,
        "model_seen": error.model_seen,
        "note": error.note or None,
    }
