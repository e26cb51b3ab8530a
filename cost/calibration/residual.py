"""What the roofline leaves over in served requests: a learned correction, shown apart, near what was measured alone.

Kernel ridge regression of ``log(measured / predicted)`` of the time per output token on dimensionless features of the
decode step, its centres a part of the measured runs (Rasmussen and Williams, Gaussian Processes for Machine Learning,
2006, section 8.3.2: subset of regressors). Fitted by benchmarks/calibration/fit_residual.py.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated

import numpy as np
import pydantic
from numpy.typing import NDArray
from pydantic import Field, create_model

from cost.calibration.kernels import architecture_of, architectures
from cost.calibration.serving import ANY_ENGINE, engine_names, require_engine
from cost.calibration.tables import CHECKED, Count, Positive, Share, Text, load_table, one_of
from cost.quantity import Quantity
from topology.base.errors import InputError, MissingFigureError
from topology.base.schema import validated
from topology.base.units import added

Array = NDArray[np.float64]


PATH = Path(__file__).with_name("residual.csv")
FIGURES = Path(__file__).with_name("residual.yaml")
SHARES = ("attention", "experts", "dense", "overhead", "alltoall", "all_reduce")
FEATURES = (*SHARES, "batch", "tp", "attention_dp", "hidden", "queries")
"""Shares of the step's terms, and logarithms: of sequences of an attention group, of widths, of the hidden size and
of tokens of a sequence in a step (1, and its drafts)."""
COLUMNS = ("phase", "engine", "architecture", *FEATURES, "coefficient")
PHASES = ("aggregated", "disaggregated")
"""Phases of served requests: one pool for both, or one that prefills and one that decodes."""
MOST = 0.5
"""Largest logarithm of a correction: a row off by more than a factor of 1.65 is rather another configuration."""
NEAR = 0.05
"""Closeness of the nearest measured run at which the weight reaches 0."""
_SCALES = {"batch": 1 / 3, "tp": 1 / 2, "attention_dp": 1 / 2, "hidden": 3.0, "queries": 0.6}
"""What logarithms are multiplied by, so that one length serves all features (by cross-validation; the hidden size
strongly: another model is far away)."""


@dataclass(frozen=True)
class Kind:
    """What runs must share to be near at all: phase, engine and architecture of the chip; empty: not known."""

    phase: str
    engine: str
    architecture: str


@dataclass(frozen=True, eq=False)
class Centres:
    """Measured runs of one kind: features ``[centres, features]`` and the coefficient of each ``[centres]``."""

    features: Array
    coefficients: Array


@pydantic.dataclasses.dataclass(frozen=True, config=CHECKED)
class ResidualError:
    """Errors of the time per token as fractions: by the physics alone, and corrected; each median and mean."""

    physics: tuple[Positive, Positive]
    corrected: tuple[Positive, Positive]


@pydantic.dataclasses.dataclass(frozen=True, config=CHECKED)
class ResidualFigures:
    """The file beside the centres: where they are from, how many there are, and how the correction was judged."""

    source: Text
    rows: Count
    centres: Count
    length: Share
    errors: Mapping[str, ResidualError]

    def __post_init__(self) -> None:
        for name in ("cross_validated", "model_left_out", "chip_left_out"):
            if name not in self.errors:
                raise ValueError(f"errors: {name}: it is missing.")


_Cell = Annotated[float, Field(allow_inf_nan=False)]
_Centre = create_model(  # type: ignore[call-overload]
    "_Centre",
    phase=Annotated[str, one_of("phase", lambda: PHASES)],
    engine=Annotated[str, one_of("measured engine", engine_names)],
    architecture=Annotated[str, one_of("architecture", architectures)],
    **dict.fromkeys(SHARES, Annotated[_Cell, Field(ge=0, le=1)]),
    **dict.fromkeys((*FEATURES[len(SHARES) :], "coefficient"), _Cell),
)
"""A line of the file of centres, by column."""


@dataclass(frozen=True, eq=False)
class Residual:
    """The correction: centres by kind, the length over which they count, and how it was judged.

    ``errors`` are those of rows that it was not learned from: ``cross_validated`` by configuration,
    ``model_left_out`` and ``chip_left_out``.
    """

    source: str
    rows: int
    length: float
    errors: Mapping[str, ResidualError]
    centres: Mapping[Kind, Centres]

    def log_factor(self, kind: Kind, features: Array) -> tuple[Array, Array]:
        """Return the logarithm of the correction and its weight, ``[points]`` each; 0 where no run is of the kind.

        Where nobody says the engine, both are the mean over those that were measured, as the delays are.
        """
        if not kind.engine:
            each = [
                self.log_factor(Kind(kind.phase, engine, kind.architecture), features)
                for engine in engine_names()
            ]
            return np.mean([log for log, _ in each], axis=0), np.mean([weight for _, weight in each], axis=0)
        centres = self.centres.get(kind)
        if centres is None:
            return np.zeros(len(features)), np.zeros(len(features))
        near = closeness(features, centres.features, self.length)
        weight = np.maximum(near.max(axis=1) - NEAR, 0.0) / (1 - NEAR)
        return np.clip(weight * (near * centres.coefficients).sum(axis=1), -MOST, MOST), weight


def closeness(first: Array, second: Array, length: float) -> Array:
    """Return ``exp(-d^2 / (2 length^2))`` of each pair, ``[first, second]``; features are in the last axis."""
    square = np.sum((first[:, None, :] - second[None]) ** 2, axis=-1)
    found: Array = np.exp(-square / (2 * length**2))
    return found


def step_features(
    terms_s: Mapping[str, Quantity],
    *,
    batch: Quantity,
    tp: Quantity,
    attention_dp: Quantity,
    hidden: int,
    queries: Quantity,
) -> Array:
    """Return the features of decode steps, ``[points, features]``, in the order of :data:`FEATURES`.

    Parameters
    ----------
    terms_s:
        Expected seconds by part of the step (:attr:`cost.terms.work.StepCost.terms_s`).
    batch:
        Sequences of an attention group.
    hidden:
        Hidden size of the model.
    queries:
        Tokens of a sequence in a step: 1, and 1 more for each draft.
    """
    total = added(terms_s.values())
    sent = terms_s.get("dispatch", 0.0) + terms_s.get("combine", 0.0)
    shares = [(sent if name == "alltoall" else terms_s.get(name, 0.0)) / total for name in SHARES]
    sizes = {
        "batch": np.maximum(batch, 0.1),
        "tp": tp,
        "attention_dp": attention_dp,
        "hidden": hidden,
        "queries": queries,
    }
    logs = [_SCALES[name] * np.log(size) for name, size in sizes.items()]
    columns = np.broadcast_arrays(*(np.atleast_1d(np.asarray(one, np.float64)) for one in (*shares, *logs)))
    return np.stack(columns, axis=-1)


def kinds_of(phase: str, engine: str, chip: str) -> Kind:
    """Return the kind of runs on a chip; the architecture is empty where no kernel of it was measured."""
    name = require_engine(engine)
    try:
        architecture = architecture_of(chip)
    except MissingFigureError:
        architecture = ""
    return Kind(phase, "" if name == ANY_ENGINE else name, architecture)


def residual(kind: Kind, features: Array, table: Residual | None = None) -> tuple[Array, Array]:
    """Return what measured runs took over the physics, and how near they are: factor and weight, ``[points]`` each.

    The weight is 1 at a centre and falls with the distance of the features from the nearest one, to 0 at two and a
    half lengths (:data:`NEAR`); the factor, to 1 there.

    Parameters
    ----------
    table:
        The committed one if None.
    """
    log, weight = (table or shipped_residual()).log_factor(kind, features)
    return np.exp(log), weight


@cache
def shipped_residual() -> Residual:
    """Return the correction that is shipped."""
    with PATH.open(encoding="utf-8", newline="") as file:
        return read_residual(load_table(ResidualFigures, FIGURES), csv.reader(file))


def read_residual(figures: ResidualFigures, rows: Iterable[list[str]]) -> Residual:
    """Return the correction of the figures of ``residual.yaml`` and the cells of ``residual.csv``.

    Raises
    ------
    InputError
        If something is missing, not known or no finite number; if a row is short, long or a duplicate.
    """
    head, *lines = [*rows] or [[]]
    if tuple(head) != COLUMNS:
        raise InputError(f"{PATH.name}: the first line must be {','.join(COLUMNS)}.")
    known: dict[Kind, dict[tuple[float, ...], float]] = {}
    for number, line in enumerate(lines, start=2):
        where = f"{PATH.name}: row {number}"
        if len(line) != len(COLUMNS):
            raise InputError(f"{where}: {len(line)} cells; expected {len(COLUMNS)}.")
        phase, engine, architecture, *features, coefficient = vars(
            validated(_Centre, dict(zip(COLUMNS, line, strict=True)), where)
        ).values()
        mine = known.setdefault(Kind(phase, engine, architecture), {})
        if tuple(features) in mine:
            raise InputError(f"{where}: duplicate centre.")
        mine[tuple(features)] = coefficient
    if len(lines) != figures.centres:
        raise InputError(
            f"{PATH.name}: {len(lines)} centres; {FIGURES.name} says {figures.centres}: they are of two fits."
        )
    found = {kind: Centres(np.array([*mine]), np.array([*mine.values()])) for kind, mine in known.items()}
    return Residual(figures.source, figures.rows, figures.length, figures.errors, found)
