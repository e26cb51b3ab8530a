"""Fits what simulated first tokens lack to measured ones: cost/calibration/first_token.yaml and ``wait`` of the runs.

``python benchmarks/calibration/fit_ttft.py SILICON.csv INFERENCEX.csv... [--write]``, after ``fit_correction.py``; a
quarter of an hour. Every run is simulated as it was measured (:mod:`cost.validation.under_load`); the seconds besides
steps are those that fit runs of few requests best in the median of absolute logarithms, by engine of one pool and of
two pools; the correction and its band are told by leaving each fifth of the configurations out in turn.
"""

from __future__ import annotations

import argparse
import csv
from collections import defaultdict
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import yaml
from inferencex import read_inferencex
from joblib import Parallel, delayed
from silicon import read_silicon

from cost.calibration.correction import (
    PATH,
    PHASES,
    SWEPT_COLUMNS,
    RunLine,
    Runs,
    lines_of,
    shipped_correction,
    shipped_lines,
)
from cost.calibration.first_token import PATH as OUT
from cost.calibration.first_token import (
    WAIT_MOST,
    WAIT_NOISE,
    WAIT_PARTS,
    first_token_calibration,
    wait_logs,
)
from cost.calibration.serving import ANY_ENGINE, engine_names
from cost.validation.predict import (
    Group,
    Settled,
    group_points,
    unpredictable,
)
from cost.validation.under_load import first_tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from cost.calibration.correction import Kind
    from cost.validation.read import Point

    Array = NDArray[np.float64]

FEW = 8.0
"""Requests per attention group up to which runs count for the seconds besides steps."""
FOLDS, HELD = 5, 0.8
ROWS = 150
"""Runs of an engine from which it has seconds of its own."""


@dataclass
class Simulated:
    """Runs with what the simulation says of them, ``[runs]`` each."""

    points: list[Point]
    runs: Runs
    seconds: Array
    """Without what no step accounts for."""
    requests: Array

    @classmethod
    def of(cls, points: Sequence[Point]) -> Simulated:
        """Simulate every point."""
        groups = [one for one in group_points(points)[0] if one.phase in PHASES]
        parts = Parallel(n_jobs=-1)(delayed(_simulated)(one) for one in groups)
        at = np.concatenate([one.index for one in groups])
        *arrays, kinds_of = zip(*parts, strict=True)
        seconds, requests, features = map(np.concatenate, arrays)
        kinds = tuple(kind for kind, group in zip(kinds_of, groups, strict=True) for _ in group.index)
        runs = Runs(kinds, features, np.zeros(len(kinds)), WAIT_PARTS, noise=WAIT_NOISE)
        return cls([points[i] for i in at.tolist()], runs, seconds, requests)

    def logs(self, fixed: dict[str, float], two_pools_s: float) -> Array:
        """Logarithms of measured over simulated."""
        besides = [
            two_pools_s if one.phase == PHASES[1] else fixed.get(one.engine, fixed[ANY_ENGINE])
            for one in self.points
        ]
        return np.log([one.measured / 1e3 for one in self.points] / (self.seconds + besides))


def _simulated(group: Group) -> tuple[Array, Array, Array, Kind]:
    settled = Settled.of(group, shipped_correction())
    seconds = first_tokens(group, settled.efficiency, settled.factor)
    besides = first_token_calibration().seconds(group.engine, group.phase)
    each = np.asarray(group.requests.concurrency) / (group.workers * np.asarray(group.pool.attention_dp))
    return seconds - besides, each, settled.features, settled.kind


def besides_steps(found: Simulated, phase: str, engine: str = "") -> float:
    """Seconds besides steps that fit the runs of few requests best."""
    few = np.array(
        [one.phase == phase and engine in ("", one.engine) and not one.in_step for one in found.points]
    )
    few &= found.requests <= FEW
    measured = np.array([one.measured for one in found.points])[few] / 1e3
    grid = np.arange(0.01, 0.5, 0.005)
    off = [np.median(np.abs(np.log(measured / (found.seconds[few] + each)))) for each in grid]
    return float(f"{grid[int(np.argmin(off))]:.3g}")


def held_out(runs: Runs, logs: Array) -> Array:
    """Logarithms that runs of other configurations say."""
    keys = {key: i for i, key in enumerate(dict.fromkeys(_keys(runs)))}
    folds = np.random.default_rng(0).integers(0, FOLDS, len(keys))[[keys[key] for key in _keys(runs)]]
    found = np.zeros(len(logs))
    for fold in range(FOLDS):
        seen = folds != fold
        kinds = tuple(kind for kind, one in zip(runs.kinds, seen.tolist(), strict=True) if one)
        fitted = replace(
            runs, kinds=kinds, features=runs.features[seen], weights=np.zeros(seen.sum())
        ).fitted(logs[seen], WAIT_MOST)
        for kind in dict.fromkeys(runs.kinds):
            rows = np.flatnonzero(~seen & np.array([one == kind for one in runs.kinds]))
            found[rows] = wait_logs(fitted, kind, runs.features[rows])
    return found


def _keys(runs: Runs) -> list[tuple[object, ...]]:
    """Configurations: all but requests and days."""
    rest = np.round(np.delete(runs.features, SWEPT_COLUMNS, axis=1), 3).tolist()
    return [(kind, *row) for kind, row in zip(runs.kinds, rest, strict=True)]


def main() -> None:
    """Fit, report, and write if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    silicon, *others = options.files
    points = read_silicon(silicon, "ttft_ms")
    for path in others:
        points += read_inferencex(path, "ttft_ms")
    points = [
        one
        for one in points
        if one.measured > 0 and one.drafts_recorded and not one.saturated and not unpredictable(one)
    ]
    found = Simulated.of(points)
    engines = {one.engine for one in found.points}
    counts = {name: sum(one.engine == name for one in found.points) for name in engine_names()}
    fixed = {ANY_ENGINE: besides_steps(found, PHASES[0])}
    fixed |= {name: besides_steps(found, PHASES[0], name) for name, rows in counts.items() if rows >= ROWS}
    two_pools_s = besides_steps(found, PHASES[1])
    logs = found.logs(fixed, two_pools_s)
    said = held_out(found.runs, logs)
    band, fit = {}, {"rows": len(logs)}
    for phase in PHASES:
        of = np.array([one.phase == phase for one in found.points])
        left = np.abs(logs - said)[of]
        band[phase] = float(f"{np.exp(np.quantile(left, HELD)):.3g}")
        for name, off in (("held_out", said - logs), ("simulation", -logs)):
            fit[f"{phase}_{name}"] = float(f"{np.median(np.abs(np.exp(off[of]) - 1)):.3g}")
        for engine in sorted(engines):
            those = of & np.array([one.engine == engine for one in found.points])
            if those.any():
                off = np.median(np.abs(np.exp((said - logs)[those]) - 1))
                print(f"{phase:14} {engine or 'none':8} {those.sum():5} rows, held out {off:.3f}")
    data = {
        "source": first_token_calibration().source,
        "fit": fit,
        "fixed_s": fixed,
        "two_pools_s": two_pools_s,
        "band": band,
    }
    print(yaml.safe_dump(data, sort_keys=False))
    if options.write:
        OUT.write_text(yaml.safe_dump(data, sort_keys=False, width=110), encoding="utf-8")
        _write_waits(found.runs.fitted(logs, WAIT_MOST))


def _write_waits(runs: Runs) -> None:
    """Write the weights beside those of the same runs in the correction of decode steps."""
    waits: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for line in lines_of(runs):
        waits[_key(_row(line))].append(line.weight)
    rows = [_row(line) for line in shipped_lines()]
    for row in rows:
        own = waits[_key(row)]
        row["wait"] = f"{own.pop() if own else 0.0:.5g}"
    print(f"{sum(map(len, waits.values()))} runs have no line")
    with PATH.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, RunLine.__annotations__, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _row(line: RunLine) -> dict[str, str]:
    row = {name: f"{v:.5g}" if isinstance(v, float) else v for name, v in asdict(line).items()}
    return {**row, "model": str(int(line.model))}


def _key(row: dict[str, str]) -> tuple[str, ...]:
    return tuple(value for name, value in row.items() if name not in ("weight", "unnamed", "wait", "version"))


if __name__ == "__main__":
    main()
