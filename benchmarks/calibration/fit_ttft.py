"""Fits how load stretches the time to the first token (cost/calibration/first_token.yaml) to measured TTFT.

``python benchmarks/calibration/fit_ttft.py SILICON.csv [--folds N] [--write]``: the calibration part of the silicon
sample that aiconfigurator ships. Run it after ``fit_serving.py``: the prefill comes from the coefficients.

For each engine (one pool for both phases) and for two pools: the fixed seconds are those that make unloaded times fit
rows of few requests best in the median of absolute logarithms; quantiles 0.1, 0.5 and 0.9 of measured over unloaded
are regressed (pinball loss, a linear program) on the logarithm of the requests per attention group, straight between
knots and never falling. Where requests queue by Little's law, the two outer quantiles of measured over that.
``--folds`` fits without a part of the configurations and says how many rows of that part the intervals hold.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml
from held_out import configurations, folds_of
from scipy.optimize import linprog
from silicon import read_silicon

from cost.calibration.first_token import (
    FirstTokenCalibration,
    first_token,
)
from cost.calibration.serving import ANY_ENGINE, calibrated
from cost.validation.predict import group_points, group_times
from topology.base.schema import validated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from cost.validation.read import Point

    Array = NDArray[np.float64]

OUT = Path(__file__).parents[2] / "cost" / "calibration" / "first_token.yaml"
SOURCE = (
    "fit of benchmarks/calibration/fit_ttft.py to measured time to first token (silicon sample of aiconfigurator "
    "0.12.0, calibration part)"
)
KNOTS = (4.0, 32.0, 256.0)
FEW = 8.0
"""Requests per attention group up to which rows count for the fixed seconds."""
LEVELS = {"low": 0.1, "middle": 0.5, "high": 0.9}


@dataclass
class Rows:
    """Measured rows with what their prediction is made of, ``[rows]`` each."""

    points: list[Point]
    prefill_s: Array
    waiting_s: Array
    requests: Array

    @classmethod
    def make(cls, points: Sequence[Point]) -> Rows:
        """Return the rows of served points that have a prediction."""
        groups, _ = group_points(points)
        kept: list[Point] = []
        found: list[tuple[float, float, float]] = []
        for group in groups:
            first = group_times(group, calibrated(group.gpu, group.engine)).first_token
            if first is None:
                continue
            each = group.requests.concurrency / (group.workers * group.pool.attention_dp)
            columns = np.broadcast_arrays(first.prefill_s, first.waiting_s, each)
            kept += [points[i] for i in group.index.tolist()]
            found += list(zip(*(column.tolist() for column in columns), strict=True))
        prefill, waiting, requests = np.array(found).T
        return cls(kept, prefill, waiting, requests)

    def take(self, chosen: NDArray[np.bool_]) -> Rows:
        """Some of them."""
        points = [p for p, one in zip(self.points, chosen.tolist(), strict=True) if one]
        return Rows(points, self.prefill_s[chosen], self.waiting_s[chosen], self.requests[chosen])

    @property
    def measured_s(self) -> Array:
        """Measured seconds to the first token."""
        return np.array([p.measured for p in self.points]) / 1e3

    def of(self, phase: str, engine: str = "") -> Rows:
        """The rows of a phase, of one engine if named."""
        return self.take(np.array([p.phase == phase and engine in ("", p.engine) for p in self.points]))


def fixed_seconds(rows: Rows) -> float:
    """Seconds besides prefill that fit rows of few requests best."""
    few = rows.take(rows.requests <= FEW)
    grid = np.arange(0.01, 0.401, 0.005)
    off = [np.median(np.abs(np.log(few.measured_s / (fixed + few.prefill_s)))) for fixed in grid]
    return float(grid[int(np.argmin(off))])


def hats(requests: Array) -> Array:
    """Weights of the knots at each count of requests, ``[rows, knots]``: straight in the logarithm."""
    knots = np.log(KNOTS)
    at = np.log(np.maximum(requests, KNOTS[0]))
    right = np.clip(np.searchsorted(knots, at), 1, len(knots) - 1)
    share = (at - knots[right - 1]) / (knots[right] - knots[right - 1])  # above 1 beyond the last knot
    found = np.zeros((len(at), len(knots)))
    found[np.arange(len(at)), right] = share
    found[np.arange(len(at)), right - 1] = 1 - share
    return found


def quantile(basis: Array, target: Array, level: float) -> Array:
    """Values at the knots that minimise the pinball loss at ``level``, never falling."""
    rows, knots = basis.shape
    cost = np.concatenate([np.zeros(knots), np.full(rows, level), np.full(rows, 1 - level)])
    equal = np.hstack([basis, np.eye(rows), -np.eye(rows)])
    rising = np.zeros((knots - 1, knots + 2 * rows))
    for i in range(knots - 1):
        rising[i, i], rising[i, i + 1] = 1.0, -1.0
    bounds = [(None, None)] * knots + [(0, None)] * (2 * rows)
    found = linprog(
        cost, A_ub=rising, b_ub=np.zeros(knots - 1), A_eq=equal, b_eq=target, bounds=bounds, method="highs"
    )
    values: Array = np.asarray(found.x)[:knots]
    return values


def rounded(number: float) -> float:
    """Three digits: as many as the file keeps."""
    return float(f"{number:.3g}")


def loaded(rows: Rows) -> dict[str, Any]:
    """The entry of one engine, or of two pools."""
    fixed = rounded(fixed_seconds(rows))
    kept = rows.take(rows.waiting_s <= fixed + rows.prefill_s)
    basis = hats(kept.requests)
    target = np.log(kept.measured_s / (fixed + kept.prefill_s))
    values = np.sort([quantile(basis, target, level) for level in LEVELS.values()], axis=0)
    factors = {
        name: [rounded(v) for v in np.exp(row).tolist()] for name, row in zip(LEVELS, values, strict=True)
    }
    return {"fixed_s": fixed, **factors}


def queue(rows: Rows, fixed_s: float) -> list[float]:
    """Outer quantiles of measured over what Little's law gives, of rows that queue."""
    unloaded = fixed_s + rows.prefill_s
    queued = rows.waiting_s > unloaded
    ratio = rows.measured_s[queued] / (unloaded + rows.waiting_s)[queued]
    return [rounded(float(np.quantile(ratio, LEVELS[name]))) for name in ("low", "high")]


def fit(rows: Rows) -> dict[str, Any]:
    """Return the contents of the file, without its errors."""
    single, pools = rows.of("aggregated"), rows.of("disaggregated")
    engines = {
        name: loaded(single.of("aggregated", name)) for name in sorted({p.engine for p in single.points})
    }
    everything = loaded(single)
    two_pools = loaded(pools)
    return {
        "source": SOURCE,
        "fit": {},
        "knots": list(KNOTS),
        "engines": {ANY_ENGINE: everything, **engines},
        "two_pools": two_pools,
        "queue": {
            "aggregated": queue(single, everything["fixed_s"]),
            "disaggregated": queue(pools, two_pools["fixed_s"]),
        },
    }


def _read(data: object) -> FirstTokenCalibration:
    return validated(FirstTokenCalibration, data, OUT.name)


def held(
    rows: Rows, calibration: FirstTokenCalibration
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], Array]:
    """Whether the interval holds each row, whether it has a point value, and that value over the measured one."""
    inside, valued, ratio = [], [], []
    for i, point in enumerate(rows.points):
        found = first_token(
            rows.prefill_s[i],
            rows.waiting_s[i],
            rows.requests[i],
            engine=point.engine,
            phase=point.phase,
            calibration=calibration,
        )
        seconds = point.measured / 1e3
        inside.append(bool(found.low_s[0] <= seconds <= found.high_s[0]))
        valued.append(not found.reason(0))
        ratio.append(float(found.unloaded_s[0]) / seconds)
    return np.array(inside), np.array(valued), np.array(ratio)


def report(label: str, inside: NDArray[np.bool_], valued: NDArray[np.bool_], ratio: Array) -> None:
    """Print how many rows the intervals hold, and how far off the point values are."""
    off = np.abs(ratio[valued] - 1)
    print(
        f"{label:44s} {len(inside):5d} rows  inside {inside.mean():.3f}  with a value {valued.sum():5d}, of them "
        f"inside {inside[valued].mean():.3f}, median error {np.median(off):.3f}, "
        f"bias {np.median(ratio[valued]) - 1:+.3f}"
    )


def report_all(label: str, rows: Rows, told: tuple[NDArray[np.bool_], NDArray[np.bool_], Array]) -> None:
    """Print the report by phase, engine and requests per attention group."""
    inside, valued, ratio = told
    for phase in ("aggregated", "disaggregated"):
        of_phase = np.array([p.phase == phase for p in rows.points])
        report(f"{label}, {phase}", inside[of_phase], valued[of_phase], ratio[of_phase])
        for engine in sorted({p.engine for p in rows.points}):
            chosen = of_phase & np.array([p.engine == engine for p in rows.points])
            if (chosen & valued).any():
                report(f"  {engine}", inside[chosen], valued[chosen], ratio[chosen])
        for low, high in ((0, 8), (8, 32), (32, 128), (128, np.inf)):
            chosen = of_phase & (rows.requests >= low) & (rows.requests < high)
            print(
                f"    {low:g} to {high:g} requests a group: {chosen.sum()} rows, inside {inside[chosen].mean():.3f}"
            )


def main() -> None:
    """Fit, report, and write if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("silicon", type=Path)
    parser.add_argument("--folds", type=int, default=0)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    rows = Rows.make(read_silicon(options.silicon, "ttft_ms"))
    data = fit(rows)
    told = held(rows, _read(data))
    report_all("fitted", rows, told)
    aggregated = np.array([p.phase == "aggregated" for p in rows.points])
    data["fit"] = {
        "aggregated_rows": int(aggregated.sum()),
        "aggregated_inside": rounded(told[0][aggregated].mean()),
        "disaggregated_rows": int((~aggregated).sum()),
        "disaggregated_inside": rounded(told[0][~aggregated].mean()),
    }
    if options.folds:
        of = folds_of(configurations(rows.points), options.folds)
        parts = [np.zeros(len(of), bool), np.zeros(len(of), bool), np.zeros(len(of))]
        for k in sorted(set(of)):
            calibration = _read(fit(rows.take(of != k)))
            for whole, part in zip(parts, held(rows.take(of == k), calibration), strict=True):
                whole[of == k] = part
        report_all(f"held out, {options.folds} folds", rows, (parts[0], parts[1], parts[2]))
        data["fit"]["aggregated_inside_held_out"] = rounded(parts[0][aggregated].mean())
    if options.write:
        OUT.write_text(yaml.safe_dump(data, sort_keys=False, default_flow_style=None), encoding="utf-8")


if __name__ == "__main__":
    main()
