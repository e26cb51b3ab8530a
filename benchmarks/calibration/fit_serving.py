"""Fits what kernels and engines reach (cost/calibration/serving.yaml) to measured serving.

``python benchmarks/calibration/fit_serving.py SILICON.csv --amd AMD.csv [--write]``: NVIDIA's chips are fitted to the
calibration part of the silicon sample that aiconfigurator ships and to the published points in cost/validation/data;
then AMD's to runs of InferenceX, with what all chips share as NVIDIA's fit has it. Errors by chip, engine, model and
phase, and those of rows, chips and models that a fit did not see: ``python benchmarks/calibration SILICON.csv``.

Residuals are logarithms of predicted over measured, under a soft L1 loss. Coefficients are shared by all chips of an
architecture, and bounded: see coefficients.py.
"""

from __future__ import annotations

import argparse
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml
from coefficients import AMD, Space, efficiency
from inferencex import read_inferencex
from linearised import Data, Problem
from scipy.optimize import lsq_linear
from silicon import read_silicon

from cost.validation.predict import predict_serving, unpredictable
from cost.validation.read import read_measurements

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from cost.inputs.machine import Efficiency
    from cost.validation.read import Point
    from topology.spec import GpuSpec

ROOT = Path(__file__).parents[2]
OUT = ROOT / "cost" / "calibration" / "serving.yaml"
SOURCE = (
    "fit of benchmarks/calibration/fit_serving.py to served requests (silicon sample of aiconfigurator 0.12.0, "
    "calibration part; on AMD's chips InferenceX) and published throughput"
)
ORDER_WEIGHT = 30.0
"""How firmly the order of chips is kept: what is left after a fit is cut off when curves are written."""
SCALE = 0.1
"""Where the loss of a residual turns from its square to its size."""
STEPS = 12
ROUNDS = 4
"""How often the points are linearised anew: batch and waiting follow from the coefficients."""


def fit(
    data: Data,
    shared: Mapping[str, float] | None = None,
    *,
    start: tuple[Space, NDArray[np.float64]] | None = None,
    verbose: bool = False,
) -> tuple[Space, NDArray[np.float64]]:
    """Return the coefficients that fit ``data`` best, those that all chips share with them unless given.

    ``start``: a fit to nearly the same points, from which one linearisation suffices.
    """
    space = Space.make(data.chips, data.family, shared)
    low, high = space.bounds()
    near = {} if start is None else dict(zip(start[0].names, start[1], strict=True))
    first = [near.get(name, value) for name, value in zip(space.names, space.start(), strict=True)]
    x = np.clip(first, low + 1e-6, high - 1e-6)
    for step in range(ROUNDS if start is None else 1):
        problem = Problem(data, space, x)
        drafted = problem.drafted(x, problem.values(x))
        x = _best(problem, drafted, x)
        if verbose:
            error = np.abs(np.expm1(problem.residuals(x, drafted) / data.weight))
            print(f"round {step + 1}: median {np.median(error):.3f}, mean {error.mean():.3f}")
    return space, x


def _best(problem: Problem, drafted: NDArray[np.bool_], x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Minimise the residuals under a soft L1 loss and what deviating from the start costs, from ``x`` on.

    Gauss-Newton steps with bounds; each residual weighs as the loss says where the last step ended.
    """
    space = problem.space
    start, firm, (low, high) = space.start(), space.prior_weight(), space.bounds()

    def residuals(y: NDArray[np.float64]) -> NDArray[np.float64]:
        order = ORDER_WEIGHT * space.against(y)
        return np.concatenate([problem.residuals(y, drafted), firm * (y - start), order])

    def loss(off: NDArray[np.float64]) -> float:
        return float(np.sum(SCALE**2 * (np.sqrt(1 + (off / SCALE) ** 2) - 1)))

    off, damping = residuals(x), 1e-3
    for _ in range(STEPS):
        slopes = np.vstack(
            [problem.slopes(x, drafted), np.diag(firm), ORDER_WEIGHT * _order_slopes(space, x)]
        )
        weight = 1 / np.sqrt(1 + (off / SCALE) ** 2)
        hessian = slopes.T @ (weight[:, None] * slopes)
        down = slopes.T @ (weight * off)
        while damping < 1e3:
            root = np.linalg.cholesky(hessian + damping * np.diag(np.diag(hessian) + 1e-6))
            aim = np.linalg.solve(root, -down)
            step = lsq_linear(root.T, aim, (low - x - 1e-12, high - x + 1e-12), method="bvls").x
            after = residuals(np.clip(x + step, low, high))
            if loss(after) < loss(off):
                break
            damping *= 10
        else:
            break
        better = loss(off) - loss(after)
        x, off, damping = np.clip(x + step, low, high), after, damping / 5
        if better < 1e-4 * loss(off):
            break
    return x


def _order_slopes(space: Space, x: NDArray[np.float64]) -> NDArray[np.float64]:
    at, step = space.against(x), 1e-6
    return np.stack([(space.against(x + step * unit) - at) / step for unit in np.eye(len(x))], axis=1)


def predicted(points: Sequence[Point], space: Space, x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Predictions of ``points``, which may be on chips that were not fitted."""

    def reach(gpu: GpuSpec, engine: str) -> Efficiency:
        return efficiency(space, x, gpu.name, engine)

    return np.array([p.value if p.value is not None else np.nan for p in predict_serving(points, reach)])


def write(families: Sequence[Mapping[str, Any]], shared: Mapping[str, float]) -> None:
    """Write the calibration file."""
    rounded = {name: _rounded(value) for name, value in shared.items()}
    data = {"source": SOURCE, "shared": rounded, "families": list(families)}
    OUT.write_text(yaml.safe_dump(data, sort_keys=False), encoding="utf-8")


def _family(data: Data, space: Space, x: NDArray[np.float64], served: Sequence[Point]) -> dict[str, Any]:
    """Print a fit's coefficients and its errors over ``served``, and return the family as the file has it."""
    for name, value in zip(space.names, np.exp(x), strict=True):
        print("   ", ".".join(name), f"{value:.3g}", end=";")
    error = np.abs(predicted(served, space, x) / np.array([p.measured for p in served]) - 1)
    median, mean = float(np.nanmedian(error)), float(np.nanmean(error))
    print(f"\n{len(served)} rows of served requests: median {median:.3f}, mean {mean:.3f}")

    def pairs(curves: Mapping[str, Sequence[tuple[float, float]]]) -> dict[str, list[list[float]]]:
        return {name: [[peak, _rounded(value)] for peak, value in points] for name, points in curves.items()}

    tables = space.tables(x)
    found = {"rows": float(len(data.points)), "median_abs_error": median, "mean_abs_error": mean}
    return {
        "fit": {name: _rounded(value) for name, value in found.items()},
        "chips": data.chips,
        "curves": {name: _not_falling(points) for name, points in pairs(tables.curves).items()},
        "delays": {engine: pairs(delays) for engine, delays in tables.delays.items()},
    }


def _rounded(number: float) -> float:
    return float(f"{number:.7g}")


def _not_falling(points: list[list[float]]) -> list[list[float]]:
    """Raise rounded fractions by the last digit where a rate would fall."""
    for (low, before), point in pairwise(points):
        while point[0] * point[1] < low * before:
            point[1] = float(f"{point[1] + 1e-7:.7f}")
    return points


def main() -> None:
    """Fit, print how well in sample, and write if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("silicon", type=Path)
    parser.add_argument("--amd", type=Path, required=True, help="runs of InferenceX on AMD's chips")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    silicon, runs = read_silicon(options.silicon, "tpot_ms"), read_inferencex(options.amd, "tpot_ms")
    published = [
        p
        for p in read_measurements(ROOT / "cost" / "validation" / "data" / "published.csv")
        if not unpredictable(p)
    ]
    data = Data.make(silicon, published)
    space, x = fit(data, verbose=True)
    families, shared = [_family(data, space, x, silicon)], space.tables(x).shared
    data = Data.make(runs, family=AMD)
    families.append(_family(data, *fit(data, shared, verbose=True), runs))
    if options.write:
        write(families, shared)


if __name__ == "__main__":
    main()
