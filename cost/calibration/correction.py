"""What measured runs took over the physics: a smooth factor on decode steps near them, 1 where none is near.

An additive Gaussian process of ``log(measured / physics)`` of the time per output token (Rasmussen and Williams,
Gaussian Processes for Machine Learning, 2006, chapter 2): each part of the kernel (:data:`PARTS`) counts runs that
share some categories, the closer in time by physics, widths and drafts the more. Requests, lengths and bytes enter by
that time alone, so that what takes longer by physics takes longer; :mod:`cost.calibration.order` keeps the order of
chips and formats. ``correction.csv`` has the weight of each run (benchmarks/calibration/fit_correction.py).
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Annotated

import numpy as np
import pydantic
from numpy.typing import NDArray

from cost.calibration.kernels import architecture_of
from cost.calibration.serving import ANY_ENGINE, engine_version
from cost.calibration.tables import CHECKED, one_of
from cost.inputs.workload import StepShape
from cost.model import Model
from cost.quantity import Quantity
from topology.base.errors import InputError
from topology.base.reading import nearest
from topology.base.schema import validated

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
PATH = Path(__file__).with_name("correction.csv")
MAX_CORRECTION = 0.7
"""Largest logarithm of a correction: a run off by more than a factor of 2 is rather another configuration."""
MAX_RUN_ERROR = 1.5
"""Largest logarithm of a run that is learned from."""
NOISE, SWEEP = 0.1, 0.004
"""Standard deviation of a run's logarithm that no other run tells of, and variance that runs of one configuration
share: ten numbers of requests are not ten witnesses."""
NEAR_CLOSENESS = 0.5
"""Closeness from which a run is called near: the first part of the kernel over its largest value."""
FEATURES = ("time", "requests", "width", "tp", "groups", "context", "queries", "day")
"""Logarithms of seconds of the step by physics, of sequences of an attention group, of GPUs of an engine and of
tensor parallelism; whether several groups attend to their own; logarithms of mean tokens in the cache and of tokens
of a sequence in a step; days in :data:`DAYS`."""
DAYS, DAY = 90.0, FEATURES.index("day")
SWEPT_COLUMNS = [FEATURES.index(name) for name in ("time", "requests", "day")]
"""Features in which runs of one configuration differ."""
STEADY_COLUMNS = [FEATURES.index(name) for name in ("width", "tp", "groups", "queries", "day")]
"""Features besides time that the correction of steps looks at."""
MAX_SQUARE_DISTANCE = 100.0
"""Square of the distance beyond which nothing counts: smaller numbers only cost time."""
TIMES = np.arange(-9.5, 4.0, 0.1)
"""Logarithms of seconds by physics at which the correction is tabulated."""
SLOPE = 0.5
"""Least part of a relative change by physics that is kept: what takes a tenth longer takes a twentieth longer."""
DIES = {"b300-sxm": "b200-sxm", "gb300": "gb200"}
"""Chips that differ from one of their architecture in FP4 and capacity alone."""
PHASES = ("aggregated", "disaggregated")
"""Whether one pool serves both phases of a request, or one prefills and another decodes; a decode step alone is as
the latter."""


@dataclass(frozen=True)
class Part:
    """A part of the kernel: the variance it explains, what runs must share, and how closeness falls.

    ``lengths``: distance of each feature at which closeness falls to ``exp(-1/2)``; ``other``: factor where a
    category differs.
    """

    variance: float
    same: tuple[str, ...]
    lengths: Mapping[str, float]
    other: Mapping[str, float] = field(default_factory=dict)


_HALF_LENGTH = 0.85
"""Length at which the one step between 0 and 1 halves closeness."""
PARTS = (
    Part(
        0.05,
        ("model", "engine", "die"),
        {"time": 1.0, "width": 1.0, "tp": 1.0, "queries": 0.5, "groups": _HALF_LENGTH},
        {"format": 0.7, "phase": 0.4, "chip": 0.8},
    ),
    Part(
        0.03,
        ("model", "die"),
        {"time": 1.0, "width": 1.5, "queries": 0.5, "groups": _HALF_LENGTH},
        {"format": 0.3, "phase": 0.5, "chip": 0.8},
    ),
    Part(
        0.03,
        ("model", "engine", "architecture"),
        {"time": 1.0, "queries": 0.5, "day": 0.6},
        {"format": 0.5, "phase": 0.5, "die": 0.5},
    ),
)
"""Variances and lengths by cross-validation over configurations, chips and models (docs/trust.md)."""
OWN_PARTS = (
    Part(0.04, ("chip",), {}, {"engine": 0.8}),
    Part(0.04, ("model", "chip"), PARTS[0].lengths, {"engine": 0.5, "format": 0.5, "phase": 0.8}),
)
"""For a user's own runs, which are all of the user's machines: what they took counts for other models there too."""


@dataclass(frozen=True)
class Kind:
    """Categories of a run or a question; ``model`` is the number of parameters, so that names do not matter.

    ``engine``: empty where none is named.
    """

    model: float
    engine: str
    chip: str
    phase: str
    format: str

    @property
    def die(self) -> str:
        """The chip, or the one that has the same die."""
        return DIES.get(self.chip, self.chip)

    @property
    def architecture(self) -> str:
        """The architecture of the chip; empty where no kernel of it was measured."""
        return architecture_of(self.chip)


def kind_of(model: Model, chip: str, engine: str, phase: str) -> Kind:
    """Return the categories of a run or a question; the engine, of any name, is empty where none is given."""
    name, _ = engine_version(engine)
    return Kind(
        float(model.total_params),
        "" if name == ANY_ENGINE else name,
        chip,
        phase,
        model.precision[model.main_weights],
    )


def features_of(shape: StepShape, log_s: Quantity, day: Quantity) -> Array:
    """Return the features of decode steps, ``[points, features]``; ``log_s``: by physics; ``day``: ordinal."""
    columns = np.broadcast_arrays(
        np.atleast_1d(log_s),
        np.log(np.maximum(np.asarray(shape.sequences * shape.tp, np.float64), 0.25)),
        np.log(shape.gpus),
        np.log(shape.tp),
        np.asarray(shape.attention_dp) > 1,
        np.log(np.maximum(shape.context, 1.0)),
        np.log(shape.queries),
        np.asarray(day, np.float64) / DAYS,
    )
    return np.stack(columns, axis=-1).astype(np.float64)


@dataclass(frozen=True, eq=False)
class Runs:
    """Measured runs: their kinds, features ``[runs, features]``, weights ``[runs]`` and the parts of their kernel."""

    kinds: tuple[Kind, ...]
    features: Array
    weights: Array
    parts: tuple[Part, ...] = PARTS
    versions: tuple[str, ...] = ()
    noise: float = NOISE

    @cached_property
    def columns(self) -> dict[str, NDArray[np.object_]]:
        """Categories by name, ``[runs]``."""
        names = (*Kind.__annotations__, "die", "architecture")
        return {name: np.array([getattr(kind, name) for kind in self.kinds], dtype=object) for name in names}

    @cached_property
    def _known(self) -> dict[Kind, list[tuple[Indices, Array, Array]]]:
        return {}

    def alike(self, kind: Kind) -> list[tuple[Indices, Array, Array]]:
        """Return for each part the runs whose categories count for a question, and its variance times how far.

        The third is how close each is at each of :data:`TIMES`, ``[runs, times]``.
        """
        if kind not in self._known:
            self._known[kind] = [self._alike(part, kind) for part in self.parts]
        return self._known[kind]

    def _alike(self, part: Part, kind: Kind) -> tuple[Indices, Array, Array]:
        scale, skipped = np.full(len(self.kinds), part.variance), () if kind.engine else ("engine",)
        for name, factor in {**dict.fromkeys(part.same, 0.0), **part.other}.items():
            if name not in skipped:
                scale *= np.where(self.columns[name] == getattr(kind, name), 1.0, factor)
        if "engine" in part.same and not kind.engine:  # the mean over engines, as the physics is
            scale /= max(1, len({*self.columns["engine"][scale > 0]}))
        which, length = np.flatnonzero(scale), part.lengths.get("time", np.inf)
        apart = (self.features[which][:, :1] - TIMES) / length
        return which, scale[which], np.exp(-0.5 * np.minimum(apart**2, MAX_SQUARE_DISTANCE))

    def closeness(self, lengths: Mapping[str, float], features: Array, which: Indices) -> Array:
        """Return ``exp(-d^2 / 2)`` of each question and each of the runs ``which``, ``[questions, runs]``."""
        at, scales = [FEATURES.index(name) for name in lengths], np.array([*lengths.values()])
        questions, runs = features[:, at] / scales, self.features[which][:, at] / scales
        square = (questions**2).sum(1)[:, None] + (runs**2).sum(1) - 2 * questions @ runs.T
        close: Array = np.exp(-0.5 * np.clip(square, 0.0, MAX_SQUARE_DISTANCE))
        return close

    def covariance(self, kind: Kind, features: Array) -> Array:
        """Return the kernel between questions of a kind and the runs, ``[questions, runs]``."""
        kernel = np.zeros((len(features), len(self.kinds)))
        for part, (which, alike, _) in zip(self.parts, self.alike(kind), strict=True):
            kernel[:, which] += self.closeness(part.lengths, features, which) * alike
        return kernel

    def mean(self, kind: Kind, features: Array) -> Array:
        """Return the mean of the process, the logarithm of the factor, ``[questions]``."""
        logs: Array = self.covariance(kind, features) @ self.weights
        return logs

    def curve(self, kind: Kind, features: Array) -> Array:
        """Return the same at each of :data:`TIMES` in place of the questions' own, ``[questions, times]``."""
        logs = np.zeros((len(features), len(TIMES)))
        for part, (which, alike, at_times) in zip(self.parts, self.alike(kind), strict=True):
            lengths = {name: length for name, length in part.lengths.items() if name != "time"}
            weights = self.closeness(lengths, features, which) * (alike * self.weights[which])
            logs += weights @ at_times
        return logs

    @cached_property
    def _inverses(self) -> dict[float | None, tuple[Indices, Array]]:
        return {}

    def _inverse(self, model: float) -> tuple[Indices, Array]:
        """Runs that tell of each other, and the inverse of their kernel with noise: those of one model, or all."""
        alone = all("model" in part.same for part in self.parts)
        key = model if alone else None
        if key not in self._inverses:
            which = np.flatnonzero(self.columns["model"] == model) if alone else np.arange(len(self.kinds))
            matrix, of = np.zeros((len(which), len(self.kinds))), [self.kinds[i] for i in which.tolist()]
            configuration = np.round(np.delete(self.features[which], SWEPT_COLUMNS, axis=1), 3)
            _, number = np.unique(configuration, axis=0, return_inverse=True)
            code = {kind: i for i, kind in enumerate(dict.fromkeys(of))}
            codes = np.array([code[kind] for kind in of], dtype=np.int64)
            for kind, i in code.items():
                matrix[codes == i] = self.covariance(kind, self.features[which[codes == i]])
            matrix = matrix[:, which]
            swept = (codes[:, None] == codes) & (number.ravel()[:, None] == number.ravel())
            matrix += SWEEP * swept + self.noise**2 * np.eye(len(which))
            inverse: Array = np.linalg.inv(matrix).astype(np.float64)
            self._inverses[key] = np.asarray(which, dtype=np.int64), inverse
        return self._inverses[key]

    @cached_property
    def left_out(self) -> Array:
        """Logarithm by which each run is off where the others alone predict it, ``[runs]`` (section 5.4.2)."""
        off = np.zeros(len(self.kinds))
        for model in dict.fromkeys(self.columns["model"].tolist()):
            which, inverse = self._inverse(model)
            off[which] = self.weights[which] / np.diag(inverse)
        return off

    def variance(self, kind: Kind, features: Array) -> Array:
        """Return the variance of a run's logarithm about the mean of the process, ``[questions]``."""
        which, inverse = self._inverse(kind.model)
        kernel = self.covariance(kind, features)[:, which]
        prior = sum(part.variance for part in self.parts) + self.noise**2 + SWEEP
        remaining: Array = prior - np.einsum("qr,rs,qs->q", kernel, inverse, kernel, optimize=True)
        return np.maximum(remaining, self.noise**2 + SWEEP)

    def _same(self, kind: Kind) -> NDArray[np.bool_]:
        """Which runs are of the same model and chip, and engine, if named."""
        names = ("model", "chip", "engine") if kind.engine else ("model", "chip")
        same: NDArray[np.bool_] = np.all(
            [self.columns[name] == getattr(kind, name) for name in names], axis=0
        )
        return same

    def near(self, kind: Kind, features: Array) -> Indices:
        """Return how many runs of the same model and chip (and engine, if named) are near, ``[questions]``."""
        which = np.flatnonzero(self._same(kind))
        close = self.closeness(PARTS[0].lengths, features, which)
        for name, factor in PARTS[0].other.items():
            close *= np.where(self.columns[name][which] == getattr(kind, name), 1.0, factor)
        return np.asarray((close >= NEAR_CLOSENESS).sum(axis=1))

    def count(self, kind: Kind) -> float:
        """Return how many runs are of a question's model, chip, format (and engine, if named)."""
        return float((self._same(kind) & (self.columns["format"] == kind.format)).sum())

    def fitted(self, logs: Array, clip: float = MAX_RUN_ERROR) -> Runs:
        """Return the same runs with the weights that their ``logs`` of measured over predicted give, ``[runs]``.

        ``clip``: largest logarithm of a run that is learned from.
        """
        weights = np.zeros(len(self.kinds))
        for model in dict.fromkeys(self.columns["model"].tolist()):
            which, inverse = self._inverse(model)
            weights[which] = inverse @ np.clip(logs[which], -clip, clip)
        return replace(self, weights=weights)


@dataclass(frozen=True, eq=False)
class Correction:
    """Corrections of a calibration: built-in runs, and a user's own runs on top.

    ``unnamed``: the built-in runs with their engines left out, for questions that name none; what they correct is the
    physics of such a question.
    """

    runs: Runs
    own: Runs | None = None
    unnamed: Runs | None = None

    @property
    def bare(self) -> bool:
        """Whether no run corrects anything."""
        return self.physics and self.own is None

    @property
    def physics(self) -> bool:
        """Whether the runs that ship correct nothing."""
        return not self.runs.kinds

    @cached_property
    def _models(self) -> frozenset[float]:
        return frozenset(kind.model for kind in self.runs.kinds)

    def has_seen(self, model: Model) -> bool:
        """Whether runs of the model, by its number of parameters, are among those that ship."""
        return float(model.total_params) in self._models

    def tells_of(self, model: Model) -> bool:
        """Whether any run counts for the model: of itself, or a user's own, which count for all."""
        return self.own is not None or self.has_seen(model)

    @cached_property
    def chips(self) -> frozenset[str]:
        """Chips that any run was on."""
        return frozenset(kind.chip for runs in (self.runs, self.own) if runs for kind in runs.kinds)

    def formats(self, model: Model) -> list[str]:
        """Return the formats of weights that the model ran in."""
        size, run_sets = float(model.total_params), [runs for runs in (self.runs, self.own) if runs]
        return sorted({kind.format for runs in run_sets for kind in runs.kinds if kind.model == size})

    @cached_property
    def newest(self) -> float:
        """The day of the newest run, ordinal; 0 where there is none."""
        return float(DAYS * self.runs.features[:, DAY].max(initial=0.0))

    @cached_property
    def days(self) -> dict[tuple[str, str], float]:
        """The day of the newest run by engine and its version, ordinal; of those that say their version."""
        days = (DAYS * self.runs.features[:, DAY]).tolist()
        rows = sorted(zip(days, self.runs.kinds, self.runs.versions, strict=False), key=lambda row: row[0])
        return {(kind.engine, version): day for day, kind, version in rows if version}

    def day_of(self, engine: str) -> float:
        """Return the day of the newest run of a version of an engine, ordinal; of all runs where none is given.

        ``engine`` as :func:`engine_version` reads it.

        Raises
        ------
        InputError
            If no run was of that version.
        """
        name, version = engine_version(engine)
        if version and (name, version) not in self.days:
            known = {of for engine, of in self.days if engine == name}
            raise InputError(
                f"no run was of that version; {nearest(version, known)}",
                field="engine",
                value=f"{name}=={version}",
            )
        return self.days[name, version] if version else self.newest

    def every(self, kind: Kind) -> tuple[Runs, ...]:
        """Return the runs that ship, as they count for a question, and a user's own, if any."""
        runs = self.runs if kind.engine or self.unnamed is None else self.unnamed
        return (runs,) if self.own is None else (runs, self.own)

    def corrected(self, kinds: Sequence[Kind], features: Sequence[Array]) -> Array:
        """Return the logarithm of the corrected time of steps, ``[kinds, questions]``.

        ``features`` of each kind, ``[questions, features]``, differ in time alone. What is corrected rises with the
        time by physics.
        """
        shared, which = np.unique(features[0][:, STEADY_COLUMNS], axis=0, return_inverse=True)
        rows = np.zeros((len(shared), len(FEATURES)))
        rows[:, STEADY_COLUMNS] = shared
        corrected = np.empty((len(kinds), len(features[0])))
        for place, (kind, questions) in enumerate(zip(kinds, features, strict=True)):
            logs = (1 - SLOPE) * TIMES
            logs = logs + sum(
                np.clip(runs.curve(kind, rows), -MAX_CORRECTION, MAX_CORRECTION) for runs in self.every(kind)
            )
            up, down = np.maximum.accumulate(logs, 1), np.minimum.accumulate(logs[:, ::-1], 1)[:, ::-1]
            at = (questions[:, 0] - TIMES[0]) / (TIMES[1] - TIMES[0])
            corrected[place] = read_off(SLOPE * TIMES + (up + down) / 2, which.reshape(-1), at)
        return corrected


def read_off(tables: Array, rows: Indices, at: Array) -> Array:
    """Return what row ``rows`` of the tables has ``at`` a place between its columns, linear, ``[questions]``."""
    at = np.clip(at, 0, tables.shape[1] - 1.001)
    low = at.astype(np.int64)
    values: Array = tables[rows, low] + (at - low) * (tables[rows, low + 1] - tables[rows, low])
    return values


PHYSICS = Correction(Runs((), np.zeros((0, len(FEATURES))), np.zeros(0)))
"""No correction: the bare model."""


@pydantic.dataclasses.dataclass(frozen=True, config=CHECKED)
class RunLine:
    """A run as files keep it.

    Attributes
    ----------
    model, chip, phase, format:
        Parameters of the model, GPU, phase of the run, and format of the experts (or of all weights).
    engine, version:
        Empty where they are not known.
    time, requests, width, tp, groups, context, queries, day:
        As of :data:`FEATURES`.
    weight, unnamed, wait:
        That it has in the correction of decode steps, in that of questions that name no engine, and in that of the
        time to the first token.
    """

    model: float
    engine: str
    version: str
    chip: str
    phase: Annotated[str, one_of("phase", lambda: PHASES)]
    format: str
    time: float
    requests: float
    width: float
    tp: float
    groups: float
    context: float
    queries: float
    day: float
    weight: float
    unnamed: float = 0.0
    wait: float = 0.0


def runs_of(lines: Sequence[RunLine], parts: tuple[Part, ...] = PARTS) -> Runs:
    """Return runs as a file keeps them."""
    kinds = tuple(Kind(*(getattr(line, name) for name in Kind.__annotations__)) for line in lines)
    features = np.array([[getattr(line, name) for name in FEATURES] for line in lines])
    weights = np.array([line.weight for line in lines])
    versions = tuple(line.version for line in lines)
    return Runs(kinds, features.reshape(-1, len(FEATURES)), weights, parts, versions)


def lines_of(runs: Runs) -> list[RunLine]:
    """Return the data of runs that a file stores."""
    versions = runs.versions or ("",) * len(runs.kinds)
    columns = zip(runs.kinds, versions, runs.features.tolist(), runs.weights.tolist(), strict=True)
    return [
        RunLine(**vars(kind), **dict(zip(FEATURES, features, strict=True)), version=version, weight=weight)
        for kind, version, features, weight in columns
    ]


def without_engines(runs: Runs, weights: Array) -> Runs:
    """Return runs as none says its engine, with the ``weights`` that they have so, ``[runs]``."""
    return replace(runs, kinds=tuple(replace(kind, engine="") for kind in runs.kinds), weights=weights)


@cache
def shipped_lines() -> tuple[RunLine, ...]:
    """Return the runs as the file has them."""
    with PATH.open(encoding="utf-8", newline="") as file:
        return tuple(validated(list[RunLine], [*csv.DictReader(file)], PATH.name))


@cache
def shipped_correction() -> Correction:
    """Return the correction that is shipped."""
    lines = shipped_lines()
    runs = runs_of(lines)
    return Correction(runs, unnamed=without_engines(runs, np.array([line.unnamed for line in lines])))


def correction_with(own_runs: Sequence[RunLine] = (), *, physics: bool = False) -> Correction:
    """Return the shipped correction, or none for the bare ``physics``, with a user's own runs on top."""
    shipped = PHYSICS if physics else shipped_correction()
    return replace(shipped, own=runs_of(own_runs, OWN_PARTS)) if own_runs else shipped
