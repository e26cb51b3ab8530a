"""What part of rows that a correction did not see lies in the band that is printed with them, by chip.

``python benchmarks/calibration/coverage.py SILICON.csv INFERENCEX.csv...``; some ten minutes. The correction is
fitted anew without half of the configurations (the mean of some such halves), each chip, and each model.
Physics and bands are those that ship: a chip left out has the band of one that nobody measured, a model left out that
of an unmeasured model. Rows that do not say whether tokens were drafted have no correction and are left out.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from held_out import NAMED, UNNAMED, chip_of, configurations, folds_of, models_of, unnamed
from inferencex import read_inferencex
from silicon import read_silicon

from cost.calibration.correction import MOST
from cost.calibration.errors import error_behind
from cost.calibration.serving import calibrated
from cost.validation.runs import measured_runs
from topology.files.resolve import resolve_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from cost.calibration.correction import Runs
    from cost.validation.read import Point

LEAST_ROWS = 50
"""Fewer rows of a chip say nothing of a share."""
HALVES = 4
"""Times that the configurations are halved."""


def main() -> None:
    """Print the shares, a row for each chip."""
    silicon, *others = map(Path, sys.argv[1:])
    points = read_silicon(silicon, "tpot_ms")
    for path in others:
        points += read_inferencex(path, "tpot_ms")
    points = [point for point in points if not point.saturated]
    head = (
        "chip",
        "rows",
        *(f"{what}, {kind}" for what in ("half", "chip", "model") for kind in (NAMED, UNNAMED)),
    )
    for row in (head, *shares(points)):
        sys.stdout.write("  ".join(cell.rjust(12) for cell in row) + "\n")


def shares(points: list[Point]) -> Iterator[tuple[str, ...]]:
    """Yield the rows of the table: of each chip, and of all together."""
    asked = {NAMED: points, UNNAMED: unnamed(points)}
    runs = {kind: measured_runs(those) for kind, those in asked.items()}
    places = runs[NAMED][2]
    mine = [points[i] for i in places]
    chips = np.array([chip_of(point) for point in mine])
    inside: dict[tuple[str, str], list[NDArray[np.float64]]] = defaultdict(list)
    for what, of in _parts(mine):
        for kind, (those, logs, _) in runs.items():
            bands = np.array([_band(asked[kind][i], what) for i in places])
            off = np.full(len(logs), np.nan)
            for part in sorted(set(of)):
                out = np.array([one == part for one in of])
                fitted = _some(those, ~out).fitted(logs[~out])
                off[out] = _off(fitted, _some(those, out), logs[out])
            inside[what, kind].append(np.abs(off) <= np.log(bands) + 1e-9)
    for chip in (*sorted(set(chips)), "all"):
        chosen = (chips == chip) | (chip == "all")
        if chosen.sum() >= LEAST_ROWS:
            parts = (np.mean([one[chosen] for one in held]) for held in inside.values())
            yield chip, f"{chosen.sum():,}", *(f"{part:.0%}" for part in parts)


def _parts(points: list[Point]) -> Iterator[tuple[str, list[str]]]:
    """Yield what is left out in turn, and the part that each run is in."""
    names = configurations(points)
    for seed in range(HALVES):
        yield "half", [str(half) for half in folds_of(names, 2, seed=seed).tolist()]
    yield "chip", [chip_of(point) for point in points]
    yield "model", models_of(points)


def _band(point: Point, what: str) -> float:
    gpu = resolve_cluster(point.cluster).spec.domains[0].gpu
    reached = calibrated(gpu, point.engine)
    if what == "chip":
        reached = replace(reached, stand_in_for=gpu.name)
    error = error_behind(reached, point.phase, model_seen=what != "model")
    if error is None:
        raise ValueError(f"{gpu.name} has no band.")
    return error.band


def _some(runs: Runs, chosen: NDArray[np.bool_]) -> Runs:
    kinds = tuple(kind for kind, keep in zip(runs.kinds, chosen, strict=True) if keep)
    versions = tuple(one for one, keep in zip(runs.versions, chosen, strict=False) if keep)
    return replace(
        runs,
        kinds=kinds,
        features=runs.features[chosen],
        weights=runs.weights[chosen],
        versions=versions,
        _known={},
    )


def _off(fitted: Runs, asked: Runs, logs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Logarithms of measured over predicted, of runs that the correction was not fitted to."""
    off, rows = logs.copy(), defaultdict(list)
    for row, kind in enumerate(asked.kinds):
        rows[kind].append(row)
    for kind, which in rows.items():
        off[which] -= np.clip(fitted.log_factor(kind, asked.features[which]), -MOST, MOST)
    return off


if __name__ == "__main__":
    main()
