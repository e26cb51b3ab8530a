"""Predictions of measured points by fits that saw them, and by fits that did not: a configuration, chip or model."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from fit_serving import fit, predicted
from linearised import Data
from silicon import read_silicon

from cost.calibration.serving import calibrated_chips
from cost.resolve import resolve_model
from cost.validation.predict import group_points, predict, unpredictable
from cost.validation.read import read_measurements
from topology.base.errors import InputError
from topology.files.resolve import resolve_cluster

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable, Sequence

    from coefficients import Space
    from numpy.typing import NDArray

    from cost.validation.read import Point

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
        Whether a point is a served request of the silicon sample; the others were published.
    in_sample:
        By the coefficients as shipped.
    cross_validated:
        By a fit to the other folds of configurations.
    chip_left_out, model_left_out:
        By a fit without any row of the point's chip, of its model.
    drift:
        Median factor, less 1, between ``in_sample`` and a fit made now: above rounding, the file is another fit's.
    """

    points: Sequence[Point]
    served: NDArray[np.bool_]
    folds: int
    in_sample: dict[str, NDArray[np.float64]]
    cross_validated: dict[str, NDArray[np.float64]]
    chip_left_out: dict[str, NDArray[np.float64]]
    model_left_out: dict[str, NDArray[np.float64]]
    drift: float


def predict_held_out(
    served: Sequence[Point], published: Sequence[Point], folds: int, say: Callable[[str], None]
) -> HeldOut:
    """Fit once to everything, once without each fold, chip and model; ``say`` is told of each fit."""
    points = [*served, *published]
    is_served = np.arange(len(points)) < len(served)
    named = {NAMED: points, UNNAMED: unnamed(points)}
    in_sample = {
        kind: np.array([_value(p.value) for p in predict(named[kind], residual=False)]) for kind in named
    }
    fold_of = [str(fold + 1) for fold in folds_of(configurations(points), folds).tolist()]
    parts = {"fold": fold_of, "chip": [chip_of(p) for p in points], "model": models_of(points)}
    # leaving out a chip that no fit sees changes nothing, and models without served rows have no cell
    same = {
        "fold": set(),
        "chip": set(parts["chip"]) - set(calibrated_chips()),
        "model": set(parts["model"]) - set(parts["model"][: len(served)]),
    }
    count = 1 + sum(len(set(of) - same[what]) for what, of in parts.items())
    done = 0

    def fitted(rest: NDArray[np.bool_], label: str) -> tuple[Space, NDArray[np.float64]]:
        nonlocal done
        start = time.monotonic()
        kept = [
            [p for p, keep in zip(points, rest & mine, strict=True) if keep]
            for mine in (is_served, ~is_served)
        ]
        found = fit(Data.make(*kept))
        done += 1
        say(f"fit {done} of {count}: {label}, {time.monotonic() - start:.0f} s")
        return found

    full = fitted(np.ones(len(points), bool), "all rows")
    off = np.log(predicted(points, *full) / in_sample[NAMED])
    out = {}
    for what, of in parts.items():
        told = {kind: np.full(len(points), np.nan) for kind in named}
        for part in sorted(set(of)):
            mine = np.array([one == part for one in of])
            space, x = full if part in same[what] else fitted(~mine, f"without {what} {part}")
            for kind, those in named.items():
                told[kind][mine] = predicted([those[i] for i in np.flatnonzero(mine)], space, x)
        out[what] = told
    drift = float(np.expm1(np.median(np.abs(off[is_served]))))
    return HeldOut(points, is_served, folds, in_sample, out["fold"], out["chip"], out["model"], drift)


def _value(value: float | None) -> float:
    return np.nan if value is None else value


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
    parser.add_argument("--folds", type=int, default=5, help="of the cross-validation [5]")
    parser.add_argument("--write", action="store_true", help=writes)
    options = parser.parse_args()
    if options.folds < 2:
        parser.error(f"--folds {options.folds}: expected 2 or more.")
    try:
        served = read_silicon(options.silicon, "tpot_ms")
    except InputError as error:
        parser.error(str(error))
    published = [p for p in read_measurements(PUBLISHED) if not unpredictable(p)]
    return options, predict_held_out(served, published, options.folds, say)


def say(text: str) -> None:
    """Print beside the results."""
    print(text, file=sys.stderr)
