"""What measured runs took over the physics: a smooth factor on decode steps near them, 1 where none is near.

An additive Gaussian process of ``log(measured / physics)`` of the time per output token (Rasmussen and Williams,
Gaussian Processes for Machine Learning, 2006, chapter 2): each part of the kernel (:data:`PARTS`) counts runs that
share some categories, the closer in requests, widths, context and drafts the more. ``correction.csv`` has the weight
of each run (benchmarks/calibration/fit_correction.py).
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
from cost.calibration.serving import ANY_ENGINE, engine_version, require_engine
from cost.calibration.tables import CHECKED, one_of
from cost.inputs.workload import StepShape
from cost.model import Model
from cost.quantity import Quantity
from topology.base.errors import InputError, MissingFigureError
from topology.base.reading import nearest
from topology.base.schema import validated

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
PATH = Path(__file__).with_name("correction.csv")
MOST = 0.7
"""Largest logarithm of a correction: a run off by more than a factor of 2 is rather another configuration."""
CLIP = 1.5
"""Largest logarithm of a run that is learned from."""
NOISE = 0.1
"""Standard deviation of a run's logarithm that no other run tells of."""
NEAR = 0.5
"""Closeness from which a run is called near: the first part of the kernel over its largest value."""
FEATURES = ("requests", "width", "tp", "context", "queries", "day")
"""Logarithms of sequences of an attention group, of GPUs of an engine, of tensor parallelism, of mean tokens in the
cache and of tokens of a sequence in a step; days in :data:`DAYS`."""
DAYS, DAY = 90.0, FEATURES.index("day")
FAR = 100.0
"""Square of the distance beyond which nothing counts: smaller numbers only cost time."""
LEAST_REQUESTS = 0.25
GRID = np.arange(np.log(LEAST_REQUESTS), 14.0, 0.1)
"""Logarithms of requests of an attention group at which the correction is tabulated."""
MOST_TABLES = 5000
TWINS = {"b300-sxm": "b200-sxm", "gb300": "gb200"}
"""Chips that differ in FP4 and capacity alone from one of their architecture: of a model that was measured on the
latter only, its runs stand in. With all runs of B300 (GB300) left out the others are off by a median of 14 % (14 %),
with those of its twin standing in by 11 % (11 %)."""
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


PARTS = (
    Part(
        0.05,
        ("model", "engine", "chip"),
        {"requests": 2.0, "width": 1.0, "tp": 1.0, "context": 0.8, "queries": 1.0},
        {"format": 0.5, "phase": 0.4},
    ),
    Part(0.03, ("model", "chip"), {"requests": 2.0, "width": 1.5}, {"format": 0.3, "phase": 0.5}),
    Part(
        0.03,
        ("model", "engine", "architecture"),
        {"requests": 2.0, "day": 1.0},
        {"format": 0.5, "chip": 0.5},
    ),
)
"""Variances and lengths by cross-validation over configurations, chips and models (docs/trust.md)."""
WAIT_PARTS = (
    *(replace(part, variance=4 * part.variance) for part in PARTS),
    Part(0.3, ("engine", "phase"), {"requests": 1.5, "context": 0.5, "width": 1.0, "tp": 1.0}),
)
"""The same for the time to the first token, of which the simulation is further off; the last part is what it gets
wrong of an engine whatever the model."""
WAIT_NOISE, WAIT_MOST = 0.4, 2.5
"""Of that: :data:`NOISE`, and the largest logarithm that is learned from and that is said."""
TWO_POOLS_WAIT = 0.5
"""Part of it that counts of two pools: held out, all of it is further off than none, as runs do not say which prefill
workers ran and how prompts were batched."""


@dataclass(frozen=True)
class Kind:
    """Categories of a run or a question; ``model`` is the number of parameters, so that names do not matter."""

    model: float
    engine: str
    chip: str
    architecture: str
    phase: str
    format: str


@cache
def architecture(chip: str) -> str:
    """Return the architecture of a chip; empty where no kernel of it was measured."""
    try:
        return architecture_of(chip)
    except MissingFigureError:
        return ""


def kind_of(model: Model, chip: str, engine: str, phase: str) -> Kind:
    """Return the categories; the engine is empty where none is named."""
    name = require_engine(engine)
    part = "experts" if model.moe is not None else "dense"
    return Kind(
        float(model.total_params),
        "" if name == ANY_ENGINE else name,
        chip,
        architecture(chip),
        phase,
        model.precision[part],
    )


def features_of(
    *,
    batch: Quantity,
    tp: Quantity,
    attention_dp: Quantity,
    context: Quantity,
    queries: Quantity,
    day: Quantity,
) -> Array:
    """Return the features of decode steps, ``[points, features]``; ``batch``: sequences per GPU; ``day``: ordinal."""
    columns = np.broadcast_arrays(
        np.log(np.maximum(np.atleast_1d(np.asarray(batch * tp, np.float64)), LEAST_REQUESTS)),
        np.log(tp * attention_dp),
        np.log(tp),
        np.log(np.maximum(context, 1.0)),
        np.log(queries),
        np.asarray(day, np.float64) / DAYS,
    )
    return np.stack(columns, axis=-1)


OWN_PARTS = (
    Part(0.04, ("chip",), {}, {"engine": 0.8}),
    Part(0.04, ("model", "chip"), PARTS[0].lengths, {"engine": 0.5, "format": 0.5, "phase": 0.8}),
)
"""For a user's own runs, which are all of the user's machines: what they took counts for other models there too."""


@dataclass(frozen=True, eq=False)
class Runs:
    """Measured runs: their kinds, features ``[runs, features]``, weights ``[runs]`` and the parts of their kernel."""

    kinds: tuple[Kind, ...]
    features: Array
    weights: Array
    parts: tuple[Part, ...] = PARTS
    versions: tuple[str, ...] = ()
    noise: float = NOISE
    _known: dict[Kind, list[tuple[Indices, Array]]] = field(default_factory=dict, repr=False)

    @cached_property
    def columns(self) -> dict[str, NDArray[np.object_]]:
        """Categories by name, ``[runs]``."""
        names = Kind.__annotations__
        return {name: np.array([getattr(kind, name) for kind in self.kinds], dtype=object) for name in names}

    def alike(self, kind: Kind) -> list[tuple[Indices, Array]]:
        """Return for each part the runs whose categories count for a question, and its variance times how far."""
        if kind not in self._known:
            there = {(one.model, one.chip) for one in self.kinds}
            twin = replace(kind, chip=TWINS.get(kind.chip, kind.chip))
            stands_in = (kind.model, kind.chip) not in there and (twin.model, twin.chip) in there
            self._known[kind] = [self._alike(part, twin if stands_in else kind) for part in self.parts]
        return self._known[kind]

    def _alike(self, part: Part, kind: Kind) -> tuple[Indices, Array]:
        found, skipped = np.full(len(self.kinds), part.variance), () if kind.engine else ("engine",)
        for name in part.same:
            if name not in skipped:
                found *= self.columns[name] == getattr(kind, name)
        for name, factor in part.other.items():
            if name not in skipped:
                found *= np.where(self.columns[name] == getattr(kind, name), 1.0, factor)
        if "engine" in part.same and not kind.engine:  # the mean over engines, as the physics is
            found /= max(1, len({*self.columns["engine"][found > 0]}))
        which = np.flatnonzero(found)
        return which, found[which]

    def closeness(self, part: Part, features: Array, which: Indices) -> Array:
        """Return ``exp(-d^2 / 2)`` of each question and each of the runs ``which``, ``[questions, runs]``."""
        at = [FEATURES.index(name) for name in part.lengths]
        lengths = np.array(list(part.lengths.values()))
        mine, theirs = features[:, at] / lengths, self.features[which][:, at] / lengths
        square = (mine**2).sum(1)[:, None] + (theirs**2).sum(1) - 2 * mine @ theirs.T
        found: Array = np.exp(-0.5 * np.clip(square, 0.0, FAR))
        return found

    @cached_property
    def left_out(self) -> Array:
        """Logarithm by which each run is off where the others alone predict it, ``[runs]`` (section 5.4.2)."""
        off: Array = self.weights / np.diag(np.linalg.inv(self._matrix))
        return off

    @property
    def _matrix(self) -> Array:
        """The kernel between all runs, with their noise."""
        matrix = np.zeros((len(self.kinds), len(self.kinds)))
        for kind in dict.fromkeys(self.kinds):
            rows = np.flatnonzero([one == kind for one in self.kinds])
            matrix[rows] = self.covariance(kind, self.features[rows])
        matrix[np.diag_indices_from(matrix)] += self.noise**2
        return matrix

    def covariance(self, kind: Kind, features: Array) -> Array:
        """Return the kernel between questions of a kind and the runs, ``[questions, runs]``."""
        found = np.zeros((len(features), len(self.kinds)))
        for part, (which, alike) in zip(self.parts, self.alike(kind), strict=True):
            found[:, which] += self.closeness(part, features, which) * alike
        return found

    def log_factor(self, kind: Kind, features: Array, grid: Array | None = None) -> Array:
        """Return the mean of the process, ``[questions]``; over a ``grid`` of requests ``[questions, grid]``."""
        found = np.zeros(len(features) if grid is None else (len(features), len(grid)))
        for part, (which, alike) in zip(self.parts, self.alike(kind), strict=True):
            weights = alike * self.weights[which]
            length = part.lengths.get("requests", np.inf)
            if grid is None:
                found += self.closeness(part, features, which) @ weights
                continue
            others = replace(part, lengths={k: v for k, v in part.lengths.items() if k != "requests"})
            square = ((grid[:, None] - self.features[which, 0]) / length) ** 2
            over = np.exp(-0.5 * np.minimum(square, FAR))
            found += (self.closeness(others, features, which) * weights) @ over.T
        return found

    def near(self, kind: Kind, features: Array) -> NDArray[np.int64]:
        """Return how many runs of the same model and chip (and engine, if named) are near, ``[questions]``."""
        mine = (self.columns["model"] == kind.model) & (self.columns["chip"] == kind.chip)
        mine &= (self.columns["engine"] == kind.engine) | (not kind.engine)
        return np.asarray((self.closeness(PARTS[0], features, np.flatnonzero(mine)) >= NEAR).sum(axis=1))

    def fitted(self, logs: Array, clip: float = CLIP) -> Runs:
        """Return the same runs with the weights that their ``logs`` of measured over predicted give, ``[runs]``.

        ``clip``: largest logarithm of a run that is learned from.
        """
        weights: Array = np.linalg.solve(self._matrix, np.clip(logs, -clip, clip)).astype(np.float64)
        return replace(self, weights=weights, _known={})


@dataclass(frozen=True)
class Bound:
    """A correction for decode steps of one kind, at one day and one workload's context.

    What it says over requests is tabulated for each width (:data:`GRID`) and read off the table: it is smooth there.
    """

    correction: Correction
    kind: Kind
    day: float
    _tables: dict[tuple[float, ...], Array] = field(default_factory=dict, compare=False, repr=False)

    def near(self, shape: StepShape) -> tuple[float, int]:
        """Return the factor of one step, and how many runs are near."""
        features = self._features(shape)
        runs = sum(int(one.near(self.kind, features)[0]) for one in self.correction.every(self.kind))
        return float(self._factor(features)[0]), runs

    def applied(self, shape: StepShape) -> StepShape:
        """Return the shape with the correction of its step, for decode."""
        if not shape.decodes:
            return shape
        one = not any(isinstance(value, np.ndarray) for value in vars(shape).values())
        factor = self._factor(self._features(shape))
        return replace(shape, measured=float(factor[0]) if one else factor)

    def _features(self, shape: StepShape) -> Array:
        return features_of(
            batch=shape.sequences,
            tp=shape.tp,
            attention_dp=shape.attention_dp,
            context=shape.context,
            queries=shape.queries,
            day=self.day,
        )

    def _factor(self, features: Array) -> Array:
        """Factors, ``[shapes]``; context and drafts of all shapes are those of one workload."""
        requests, width, tp = features.T[:3]
        _, one, which = np.unique(width + 1j * tp, return_index=True, return_inverse=True)
        keys = [tuple(row) for row in features[one, 1:].tolist()]
        if len(self._tables) > MOST_TABLES:
            self._tables.clear()
        if missing := [at for at, key in zip(one.tolist(), keys, strict=True) if key not in self._tables]:
            rows = self.correction.log_factor(self.kind, features[missing], grid=GRID)
            self._tables.update(zip(map(tuple, features[missing, 1:].tolist()), rows, strict=True))
        table = np.array([self._tables[key] for key in keys])
        at = np.clip((requests - GRID[0]) / (GRID[1] - GRID[0]), 0, len(GRID) - 1.001)
        low = at.astype(np.int64)
        between = table[which, low] + (at - low) * (table[which, low + 1] - table[which, low])
        found: Array = np.exp(between)
        return found


@dataclass(frozen=True, eq=False)
class Correction:
    """Corrections of a calibration: built-in runs, and a user's own runs on top.

    ``unnamed``: the built-in runs with their engines left out, for questions that name none; what they correct is the
    physics of such a question.
    """

    runs: Runs
    own: Runs | None = None
    unnamed: Runs | None = None
    _bounds: dict[tuple[Kind, float], Bound] = field(default_factory=dict, repr=False)

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

    @cached_property
    def newest(self) -> float:
        """The day of the newest run, ordinal; 0 where there is none."""
        return float(DAYS * self.runs.features[:, DAY].max(initial=0.0))

    @cached_property
    def days(self) -> dict[tuple[str, str], float]:
        """The day of the newest run by engine and its version, ordinal; of those that say their version."""
        found: dict[tuple[str, str], float] = {}
        for kind, version, day in zip(
            self.runs.kinds, self.runs.versions, (DAYS * self.runs.features[:, DAY]).tolist(), strict=False
        ):
            if version:
                found[kind.engine, version] = max(day, found.get((kind.engine, version), 0.0))
        return found

    def day_of(self, engine: str, version: str) -> float:
        """Return the day of the newest run of a version of an engine, ordinal; of all runs where none is given.

        Raises
        ------
        InputError
            If no run was of that version.
        """
        key = require_engine(engine), version
        if version and key not in self.days:
            known = {of for name, of in self.days if name == key[0]}
            raise InputError(
                f"no run was of that version; {nearest(version, known)}",
                field="engine",
                value=f"{engine}=={version}",
            )
        return self.days[key] if version else self.newest

    def bound(self, model: Model, chip: str, engine: str, *, phase: str = "decode") -> Bound:
        """Return it for steps of a model on a chip that decode, alone or in one pool for ``both`` phases.

        ``engine`` as :func:`engine_version` reads it.
        """
        key = kind_of(model, chip, engine, PHASES[phase != "both"]), self.day_of(*engine_version(engine))
        return self._bounds.setdefault(key, Bound(self, *key))

    def every(self, kind: Kind) -> tuple[Runs, ...]:
        """Return the runs that ship, as they count for a question, and a user's own, if any."""
        runs = self.runs if kind.engine or self.unnamed is None else self.unnamed
        return (runs,) if self.own is None else (runs, self.own)

    def log_factor(self, kind: Kind, features: Array, grid: Array | None = None) -> Array:
        """Return the logarithm of :meth:`factor`; over a ``grid`` of requests ``[questions, grid]``."""
        parts = [np.clip(one.log_factor(kind, features, grid), -MOST, MOST) for one in self.every(kind)]
        found: Array = np.sum(parts, axis=0)
        return found

    def factor(self, kind: Kind, features: Array) -> Array:
        """Return the correction of a decode step over the physics, ``[questions]``."""
        found: Array = np.exp(self.log_factor(kind, features))
        return found


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
    requests, width, tp, context, queries:
        Logarithms of sequences of an attention group, of GPUs of an engine, of tensor parallelism, of mean tokens in
        the cache, and of tokens of a sequence in a step.
    day:
        Of the run, in 90 days.
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
    requests: float
    width: float
    tp: float
    context: float
    queries: float
    day: float
    weight: float
    unnamed: float = 0.0
    wait: float = 0.0


def runs_of(lines: Sequence[RunLine], parts: tuple[Part, ...] = PARTS) -> Runs:
    """Return runs as a file keeps them."""
    kinds = tuple(
        Kind(one.model, one.engine, one.chip, architecture(one.chip), one.phase, one.format) for one in lines
    )
    features = np.array([[getattr(one, name) for name in FEATURES] for one in lines]).reshape(
        -1, len(FEATURES)
    )
    weights = np.array([one.weight for one in lines])
    return Runs(kinds, features, weights, parts, tuple(one.version for one in lines))


def lines_of(runs: Runs) -> list[RunLine]:
    """Return the data of runs that a file stores."""
    versions = runs.versions or ("",) * len(runs.kinds)
    return [
        RunLine(
            **{name: value for name, value in vars(kind).items() if name != "architecture"},
            **dict(zip(FEATURES, features, strict=True)),
            version=version,
            weight=weight,
        )
        for kind, version, features, weight in zip(
            runs.kinds, versions, runs.features.tolist(), runs.weights.tolist(), strict=True
        )
    ]


def without_engines(runs: Runs, weights: Array) -> Runs:
    """Return runs as none says its engine, with the ``weights`` that they have so, ``[runs]``."""
    kinds = tuple(replace(kind, engine="") for kind in runs.kinds)
    return replace(runs, kinds=kinds, weights=weights, _known={})


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
    return Correction(runs, unnamed=without_engines(runs, np.array([one.unnamed for one in lines])))


@cache
def shipped_waits() -> Runs:
    """Return the same runs for what their first tokens took over the simulation (:data:`WAIT_PARTS`)."""
    lines = shipped_lines()
    runs = runs_of(lines, WAIT_PARTS)
    return replace(runs, weights=np.array([one.wait for one in lines]), noise=WAIT_NOISE, _known={})


def wait_factor(kind: Kind, features: Array) -> Array:
    """Return the correction of times to first token over the simulation, ``[questions]``."""
    found: Array = np.exp(wait_logs(shipped_waits(), kind, features))
    return found


def wait_logs(waits: Runs, kind: Kind, features: Array) -> Array:
    """Return its logarithms as the runs ``waits`` give them, ``[questions]``."""
    part = TWO_POOLS_WAIT if kind.phase == PHASES[1] else 1.0
    found: Array = part * np.clip(waits.log_factor(kind, features), -WAIT_MOST, WAIT_MOST)
    return found


def correction_with(own: Sequence[RunLine] = (), *, physics: bool = False) -> Correction:
    """Return the shipped correction, or none for the bare ``physics``, with a user's own runs on top."""
    if not own:
        return PHYSICS if physics else shipped_correction()
    return replace(PHYSICS if physics else shipped_correction(), own=runs_of(own, OWN_PARTS), _bounds={})
