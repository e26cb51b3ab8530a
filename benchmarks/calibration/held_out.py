"""Predictions of measured points by fits that saw them, and by fits that did not: a configuration, chip or model."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from coefficients import AMD, NVIDIA, efficiency
from fit_serving import fit
from inferencex import read_inferencex
from linearised import Data
from silicon import read_silicon

from cost.calibration.correction import PHYSICS, Correction, shipped_correction, without_engines
from cost.calibration.serving import calibrated
from cost.resolve import resolve_model
from cost.validation.predict import group_points, predict_serving, unpredictable
from cost.validation.read import read_measurements
from cost.validation.runs import measured_runs
from topology.base.errors import InputError
from topology.files.resolve import resolve_cluster

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable, Mapping, Sequence

    from coefficients import Space
    from numpy.typing import NDArray

    from cost.inputs.machine import Efficiency
    from cost.validation.predict import Reach
    from cost.validation.read import Point
    from topology.spec import GpuSpec

__all__ = [
    "MOST_DRIFT",
    "NAMED",
    "UNNAMED",
    "HeldOut",
    "ask_held_out",
    "chip_of",
    "configurations",
    "folds_of",
    "models_of",
    "predict_held_out",
    "say",
    "unnamed",
]

PUBLISHED_SOURCE = "published"
PUBLISHED = Path(__file__).parents[2] / "cost" / "validation" / "data" / "published.csv"
NAMED, UNNAMED = "named", "any"
"""Each row under the engine that it names; each as one is predicted that does not say its engine."""
MOST_DRIFT = 0.01
"""Coefficients are written with some digits: more than that between them and a fit made now is another fit."""


@dataclass(frozen=True)
class HeldOut:
    """Predictions of ``points``, by :data:`NAMED` and :data:`UNNAMED`, in the points' units, ``[points]``.

    Attributes
    ----------
    served:
        Whether a point is a served request; the others were published.
    in_sample:
        By the coefficients and the correction as shipped.
    physics, cross_validated:
        By a fit to the other folds of configurations, without and with a correction by their runs.
    chip_left_out, model_left_out:
        By a fit and a correction without any row of the point's chip, of its model.
    spread:
        Standard deviation of the logarithm that the correction claims, of points of ``fold``, ``chip`` and ``model``
        left out in turn; NaN where it claims none.
    drift:
        Median factor, less 1, between the shipped physics and a fit made now: above rounding, the file is another
        fit's.
    """

    points: Sequence[Point]
    served: NDArray[np.bool_]
    folds: int
    in_sample: dict[str, NDArray[np.float64]]
    physics: dict[str, NDArray[np.float64]]
    cross_validated: dict[str, NDArray[np.float64]]
    chip_left_out: dict[str, NDArray[np.float64]]
    model_left_out: dict[str, NDArray[np.float64]]
    spread: dict[str, dict[str, NDArray[np.float64]]]
    drift: float


class Fits:
    """Fits of the physics to rows of ``points``, each family of chips to its own; the same rows are fitted once.

    Rows since the silicon sample ends are corrected by and not fitted to, like engines that AMD's chips alone have.
    """

    def __init__(self, points: Sequence[Point], say: Callable[[str], None]) -> None:
        self.points, self.say = points, say
        amd = np.array([chip_of(p) in AMD.chips for p in points])
        since = np.array([p.source.startswith("inferencex_since") for p in points])
        self.rows = (~amd & ~since, amd)
        self._known: dict[bytes, tuple[Space, NDArray[np.float64]]] = {}
        self._start: dict[bool, tuple[Space, NDArray[np.float64]]] = {}  # of each family the fit to all rows

    def __call__(self, kept: NDArray[np.bool_], label: str) -> Reach:
        """Return what kernels reach by a fit to the rows ``kept``."""
        start = time.monotonic()
        first = self._fit(self.rows[0] & kept, None)
        second = self._fit(self.rows[1] & kept, first[0].tables(first[1]).shared)
        self.say(f"{label}, {time.monotonic() - start:.0f} s")

        def reach(gpu: GpuSpec, engine: str) -> Efficiency:
            space, x = second if gpu.name in AMD.chips else first
            return efficiency(space, x, gpu.name, engine)

        return reach

    def _fit(
        self, rows: NDArray[np.bool_], shared: Mapping[str, float] | None
    ) -> tuple[Space, NDArray[np.float64]]:
        key = rows.tobytes() + repr(shared).encode()
        if key not in self._known:
            mine = [self.points[i] for i in np.flatnonzero(rows)]
            served = [p for p in mine if p.source != PUBLISHED_SOURCE]
            others = [p for p in mine if p.source == PUBLISHED_SOURCE]
            data = Data.make(served, others, NVIDIA if shared is None else AMD)
            self._known[key] = fit(data, shared, start=self._start.get(shared is None))
            self._start.setdefault(shared is None, self._known[key])
        return self._known[key]


def predict_held_out(
    served: Sequence[Point], published: Sequence[Point], folds: int, say: Callable[[str], None]
) -> HeldOut:
    """Fit once to everything, once without each fold, chip and model; ``say`` is told of each fit."""
    points = [*served, *published]
    is_served = np.arange(len(points)) < len(served)
    named = {NAMED: points, UNNAMED: unnamed(points)}

    def values(of: Sequence[Point], reach: Reach, correction: Correction) -> NDArray[np.float64]:
        found = predict_serving(of, reach, correction=correction)
        return np.array([np.nan if one.value is None else one.value for one in found])

    fits = Fits(points, say)
    fold_of = [str(fold + 1) for fold in folds_of(configurations(points), folds).tolist()]
    parts = {"fold": fold_of, "chip": [chip_of(p) for p in points], "model": models_of(points)}
    full = fits(np.ones(len(points), bool), "all rows")
    off = np.log(values(points, full, PHYSICS) / values(points, calibrated, PHYSICS))
    blank = {kind: np.full(len(points), np.nan) for kind in named}
    out = {what: {kind: array.copy() for kind, array in blank.items()} for what in ("physics", *parts)}
    spread = {what: {kind: array.copy() for kind, array in blank.items()} for what in parts}
    for what, of in parts.items():
        for part in sorted(set(of)):
            mine = np.array([one == part for one in of])
            reach = fits(~mine, f"without {what} {part}")
            seen = [named[NAMED][i] for i in np.flatnonzero(~mine & is_served)]
            correction = fitted_correction(seen, reach)
            for kind, those in named.items():
                asked = [those[i] for i in np.flatnonzero(mine)]
                out[what][kind][mine] = values(asked, reach, correction)
                spread[what][kind][mine] = spreads(asked, reach, correction)
                if what == "fold":
                    out["physics"][kind][mine] = values(asked, reach, PHYSICS)
    in_sample = {kind: values(those, calibrated, shipped_correction()) for kind, those in named.items()}
    drift = float(np.expm1(np.nanmedian(np.abs(off[is_served]))))
    return HeldOut(
        points,
        is_served,
        folds,
        in_sample,
        out["physics"],
        out["fold"],
        out["chip"],
        out["model"],
        spread,
        drift,
    )


def spreads(points: Sequence[Point], reach: Reach, correction: Correction) -> NDArray[np.float64]:
    """Return the standard deviations that a correction claims for points, ``[points]``; NaN where it claims none."""
    found = np.full(len(points), np.nan)
    runs, _, places = measured_runs(points, PHYSICS, reach)
    for kind in dict.fromkeys(runs.kinds):
        rows = np.flatnonzero([each == kind for each in runs.kinds])
        variance = correction.every(kind)[0].variance(kind, runs.features[rows])
        found[np.array(places)[rows]] = np.sqrt(variance)
    return found


def fitted_correction(points: Sequence[Point], reach: Reach = calibrated) -> Correction:
    """Return the correction that served requests give, named and not, over what kernels reach."""
    (runs, logs, places), (_, unnamed_logs, same) = (
        measured_runs(those, PHYSICS, reach) for those in (points, unnamed(points))
    )
    if places != same:
        raise ValueError("runs that can be predicted with their engine alone have no correction.")
    both = without_engines(runs, np.zeros(len(logs)))
    return Correction(runs.fitted(logs), unnamed=both.fitted(unnamed_logs))


def configurations(points: Sequence[Point]) -> list[str]:
    """Return the name of each point's configuration: rows that differ in concurrency alone share one."""
    return [f"{p.model} {p.cluster} {p.engine} {p.weights} {p.pool} {p.isl} {p.osl}" for p in points]


def folds_of(names: Sequence[str], folds: int, seed: int = 0) -> NDArray[np.int64]:
    """Return the fold of each row by the name of its configuration: those of one configuration stay together."""
    number = {name: i for i, name in enumerate(dict.fromkeys(names))}
    fold = np.random.default_rng(seed).integers(folds, size=len(number))
    return np.array([fold[number[name]] for name in names])


def chip_of(point: Point) -> str:
    """Return the chip of a point's cluster."""
    return _chip(point.cluster)


@cache
def _chip(cluster: str) -> str:
    return resolve_cluster(cluster).spec.domains[0].gpu.name


def models_of(points: Sequence[Point]) -> list[str]:
    """Return the model of each point; those of one architecture together: one would give the other away."""
    sizes = {name: resolve_model(name).total_params for name in {p.model for p in points}}
    alike = {
        size: ", ".join(sorted(name for name in sizes if sizes[name] == size)) for size in sizes.values()
    }
    return [alike[sizes[p.model]] for p in points]


def unnamed(points: Sequence[Point]) -> list[Point]:
    """Return the points without the name of their engine, the format of the cache kept as that engine has it."""
    found = [replace(point, engine="") for point in points]
    groups, _ = group_points(points)
    for group in groups:
        for i in group.index.tolist():
            found[i] = replace(found[i], kv_dtype=group.workload.kv_dtype)
    return found


def ask_held_out(parser: ArgumentParser, *, writes: str) -> tuple[Namespace, HeldOut]:
    """Read what a script was asked (the sample, ``--folds``, ``--write``), and predict; bad input ends the script."""
    parser.add_argument("silicon", type=Path, metavar="SILICON.csv")
    parser.add_argument("runs", type=Path, nargs="*", metavar="INFERENCEX.csv")
    parser.add_argument("--folds", type=int, default=5, help="of the cross-validation [5]")
    parser.add_argument("--write", action="store_true", help=writes)
    options = parser.parse_args()
    if options.folds < 2:
        parser.error(f"--folds {options.folds}: expected 2 or more.")
    try:
        served = read_silicon(options.silicon, "tpot_ms")
        for path in options.runs:
            served += read_inferencex(path, "tpot_ms")
    except InputError as error:
        parser.error(str(error))
    published = [
        replace(p, source=PUBLISHED_SOURCE) for p in read_measurements(PUBLISHED) if not unpredictable(p)
    ]
    return options, predict_held_out(served, published, options.folds, say)


def say(text: str) -> None:
    """Print beside the results."""
    print(text, file=sys.stderr)
