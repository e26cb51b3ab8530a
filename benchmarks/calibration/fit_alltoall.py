"""Fit the all-to-all coefficients to the measured points, cross-validate, and write them back as data.

Every coefficient in ``cost/calibration/alltoall.yaml`` whose source is ``fit`` is free; the others stay as they
are. The residual is the log of predicted over measured, with a robust loss (some rows are irregular at the source).

    python benchmarks/calibration/fit_alltoall.py            # fit, errors by kernel, cross-validation
    python benchmarks/calibration/fit_alltoall.py --write    # the same, then write the coefficients
"""

from __future__ import annotations

import argparse
import copy
import math
import zlib
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml
from scipy.optimize import least_squares

from cost.calibration.alltoall import PATH, UNITS, Kernel, KernelTable
from cost.experts.tokens.volumes import Volumes
from cost.terms.alltoall_kernel import alltoall_seconds
from cost.validation.predict import Case, alltoall_case
from cost.validation.read import read_measurements
from topology.base.schema import validated
from topology.base.units import format_quantity, parse_quantity

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from numpy.typing import NDArray

    from cost.validation.read import Point

POINTS = Path(__file__).parents[2] / "cost" / "validation" / "data" / "alltoall.csv"
LARGEST_FRACTION = 0.95  # of a link's rate: more than any of the sources reports
START = {"s": 15e-6, "byte/s": 500e9, "1": 0.8}  # where the search starts: no figure of any source
START_FLOOR_S = 25e-6  # above the fixed part, else it tells nothing
START_SMALL_S = 50e-9  # peers and vectors
START_SCALE_S = 1e-9  # a vector's scales, for each GPU of the group
PULL = 0.02  # weight that keeps what no row tells at its start
HEADER = """\
# All-to-all kernels, per direction: max(floor, alpha + max(bytes / (fraction x link rate), cores)) + unpack seconds.
# Written by benchmarks/calibration/fit_alltoall.py: what has the source `fit` is fitted, the rest is carried over.
# The first kernel whose `words` all occur in a name is meant by it; `same` borrows a shared figure as weaker
# evidence. `fit` gives rows and errors of a kernel's points, `errors` those of all, seen and unseen; as fractions.
"""


@dataclass(frozen=True)
class Rows:
    """Points of one kernel and direction as arrays, so that one call predicts them all."""

    kernel: str
    leg: str
    index: NDArray[np.int64]
    volumes: Volumes
    vector_bytes: NDArray[np.float64]
    up: NDArray[np.float64]
    out: NDArray[np.float64]
    ep: NDArray[np.float64]
    scaled: NDArray[np.bool_]


def grouped(cases: Sequence[Case]) -> list[Rows]:
    """Collect points by kernel and direction."""
    where: dict[tuple[str, str], list[int]] = defaultdict(list)
    for i, case in enumerate(cases):
        where[case.use.kernel.name, case.leg].append(i)
    found = []
    for (kernel, leg), rows in where.items():
        some = [cases[i] for i in rows]
        volumes = Volumes(
            np.array([float(case.volumes.up) for case in some]),
            np.array([float(case.volumes.out) for case in some]),
            np.array([float(case.volumes.received) for case in some]),
        )
        columns = ([getattr(case, name) for case in some] for name in ("vector_bytes", "up_bytes_per_s"))
        size, up = (np.array(column, dtype=float) for column in columns)
        out = np.array([case.out_bytes_per_s for case in some])
        ep = np.array([case.ep for case in some], dtype=float)
        scaled = np.array([case.scaled for case in some])
        found.append(Rows(kernel, leg, np.array(rows), volumes, size, up, out, ep, scaled))
    return found


def predicted(kernels: Mapping[str, Kernel], rows: Sequence[Rows], count: int) -> NDArray[np.float64]:
    """Predicted seconds of all points."""
    seconds = np.empty(count)
    for row in rows:
        kernel = kernels[row.kernel]
        leg = kernel.dispatch if row.leg == "dispatch" else kernel.combine
        seconds[row.index] = alltoall_seconds(
            leg,
            row.volumes,
            vector_bytes=row.vector_bytes,
            up_bytes_per_s=row.up,
            out_bytes_per_s=row.out,
            ep=row.ep,
            scaled=row.scaled,
        )
    return seconds


def free_entries(data: dict[str, Any]) -> list[tuple[dict[str, Any], str, str]]:
    """Entries with the source ``fit``, each with its unit and its name in the kernel (none where shared)."""
    found = [(entry, entry["unit"], "") for entry in data["shared"].values() if entry["source"] == "fit"]
    for kernel in data["kernels"].values():
        for leg in ("dispatch", "combine"):
            for key, entry in kernel[leg].items():
                if isinstance(entry, dict) and entry["source"] == "fit":
                    found.append((entry, UNITS[key], key))
    return found


def starts(data: dict[str, Any]) -> NDArray[np.float64]:
    """Logarithms that the search starts at: the same for all coefficients of a kind, so that folds leak nothing."""
    values = []
    for entry, unit, key in free_entries(data):
        small = unit == "s" and parse_quantity(entry["value"], unit, "fit") < 1e-6
        own = {"floor_s": START_FLOOR_S, "scale_s": START_SCALE_S}
        values.append(own.get(key, START_SMALL_S if small else START[unit]))
    return np.log(np.array(values))


def with_values(data: dict[str, Any], logs: NDArray[np.float64], digits: int = 15) -> dict[str, Any]:
    """A copy of the coefficient file with other free coefficients."""
    changed = copy.deepcopy(data)
    for (entry, unit, _), log in zip(free_entries(changed), logs, strict=True):
        value = float(f"{math.exp(log):.{digits}g}")
        entry["value"] = value if unit == "1" else format_quantity(value, unit, digits)
    return changed


def fitted_to(points: Sequence[Point]) -> NDArray[np.int64]:
    """Rows that the fit may see: all but those whose notes say that they are not to be."""
    return np.array([i for i, point in enumerate(points) if "not fitted to" not in point.notes])


def fit(data: dict[str, Any], cases: Sequence[Case], measured_s: NDArray[np.float64]) -> dict[str, Any]:
    """Return the coefficient file with the free coefficients fitted to the points."""
    rows = grouped(cases)

    start = starts(data)
    units = [unit for _, unit, _ in free_entries(data)]

    def residuals(logs: NDArray[np.float64]) -> NDArray[np.float64]:
        kernels = validated(KernelTable, with_values(data, logs), PATH.name).kernels_by_name()
        off = np.log(predicted(kernels, rows, len(cases)) / measured_s)
        return np.concatenate([off, PULL * (logs - start)])

    top = np.array([math.log(LARGEST_FRACTION) if unit == "1" else math.inf for unit in units])
    low = start - math.log(100)
    best = least_squares(
        residuals, start, bounds=(low, np.minimum(top, start + math.log(100))), loss="soft_l1", f_scale=0.05
    )
    return with_values(data, best.x, 4)


def errors(
    data: dict[str, Any], cases: Sequence[Case], measured_s: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Signed relative error of each point."""
    kernels = validated(KernelTable, data, PATH.name).kernels_by_name()
    return predicted(kernels, grouped(cases), len(cases)) / measured_s - 1


def cross_validated(
    data: dict[str, Any],
    points: Sequence[Point],
    cases: Sequence[Case],
    fold: Callable[[Point, Case], Hashable],
) -> NDArray[np.float64]:
    """Errors of points that the fit has not seen: one fold after the other left out."""
    measured = np.array([point.measured for point in points]) * 1e-6
    folds: dict[Hashable, list[int]] = defaultdict(list)
    for i, (point, case) in enumerate(zip(points, cases, strict=True)):
        folds[fold(point, case)].append(i)
    found = np.empty(len(points))
    for held in folds.values():
        kept = np.setdiff1d(fitted_to(points), held)
        fitted = fit(data, [cases[i] for i in kept], measured[kept])
        found[held] = errors(fitted, [cases[i] for i in held], measured[held])
    return found


FOLDS: Mapping[str, Callable[[Point, Case], Hashable]] = {
    "one tenth of the rows out": lambda point, _: zlib.crc32(point.id.encode()) % 10,
    "one EP size of a kernel out": lambda point, case: (case.use.kernel.name, point.cluster, point.pool.ep),
    "one token count of a kernel out": lambda point, case: (case.use.kernel.name, point.alltoall.tokens),
    "one cluster of a source out": lambda point, _: (point.source, point.cluster),
}


def summary(signed: NDArray[np.float64]) -> str:
    """Median, mean and worst of the errors' sizes, and their mean with sign."""
    size = abs(signed)
    return (
        f"{len(size):4d} rows  median {np.median(size):6.1%}  mean {size.mean():6.1%}  worst {size.max():6.1%}"
        f"  bias {np.median(signed):+6.1%}"
    )


def sizes(signed: NDArray[np.float64]) -> dict[str, float]:
    """Median and mean size of the errors, for the coefficient file."""
    size = abs(signed)
    return {"median": round(float(np.median(size)), 4), "mean": round(float(size.mean()), 4)}


def dump(data: dict[str, Any]) -> str:
    """The coefficient file as text."""
    sources = yaml.safe_dump({"sources": data["sources"]}, sort_keys=False, width=1000)
    rest = {key: value for key, value in data.items() if key != "sources"}
    return HEADER + sources + yaml.safe_dump(rest, sort_keys=False, width=120, default_flow_style=None)


def main() -> None:
    """Fit, print errors and cross-validation, write if asked to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--points", type=Path, default=POINTS, help="points in our format")
    parser.add_argument("--write", action="store_true", help=f"write {PATH.name}")
    parser.add_argument("--rows", action="store_true", help="print every row")
    parser.add_argument("--no-folds", action="store_true", help="skip cross-validation")
    options = parser.parse_args()
    points = read_measurements(options.points)
    cases = [alltoall_case(point) for point in points]
    measured = np.array([point.measured for point in points]) * 1e-6
    data = yaml.safe_load(PATH.read_text(encoding="utf-8"))
    seen = fitted_to(points)
    fitted = fit(data, [cases[i] for i in seen], measured[seen])
    signed = errors(fitted, cases, measured)
    for name, kernel in fitted["kernels"].items():
        mine = np.array([case.use.kernel.name == name for case in cases])
        kernel.pop("fit", None)
        if mine.any():
            size = abs(signed[mine])
            kernel["fit"] = {
                "rows": int(mine.sum()),
                "median_error": round(float(np.median(size)), 3),
                "worst_error": round(float(size.max()), 3),
            }
            print(f"{name:22s}", summary(signed[mine]))
    print(f"{'all':22s}", summary(signed), f" {len(free_entries(data))} coefficients")
    if options.rows:
        for point, error, second in zip(points, signed, measured * (1 + signed), strict=True):
            print(f"{point.id:44s} {point.measured:9.1f} {second * 1e6:9.1f} {error:+7.1%}")
    known = fitted.setdefault("errors", {})
    known["fitted"] = {"rows": len(points), "coefficients": len(free_entries(fitted)), **sizes(signed)}
    if not options.no_folds:
        for name, fold in FOLDS.items():
            unseen = cross_validated(data, points, cases, fold)
            known[name] = {"rows": len(points), **sizes(unseen)}
            print(f"{name:32s}", summary(unseen))
    if options.write:
        PATH.write_text(dump(fitted), encoding="utf-8")


if __name__ == "__main__":
    main()
