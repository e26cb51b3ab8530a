"""Fits the correction that is learned of what the physics leaves over (cost/calibration/residual.csv and .yaml).

``python benchmarks/calibration/fit_residual.py SILICON.csv [--write]``: predicts each served row by a fit of the
physics that did not see its configuration, learns from the logarithms of measured over predicted, and prints the
errors of the time per token without and with the correction on rows that it was not learned from: other
configurations, another model, another chip, published runs. A model or chip left out is judged twice, with the
physics fitted to it and without. Rows that do not record whether tokens were drafted are neither learned from nor
corrected: their residual is mostly that.

``--write`` refuses if the correction does not pay a point across configurations, or costs more than a point where
a model or chip was left out, or if the coefficients are of another fit: run it after ``fit_serving.py --write``. The
two dozen fits of the physics take about 20 seconds of CPU each.
"""

from __future__ import annotations

import argparse
import csv
import io
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml
from held_out import (
    MOST_DRIFT,
    NAMED,
    UNNAMED,
    HeldOut,
    ask_held_out,
    chip_of,
    configurations,
    folds_of,
    models_of,
    unnamed,
)

from cost.calibration.residual import (
    COLUMNS,
    FIGURES,
    MOST,
    PATH,
    PHASES,
    Centres,
    Kind,
    Residual,
    ResidualFigures,
    closeness,
    kinds_of,
    read_residual,
)
from cost.calibration.serving import calibrated
from cost.validation.predict import group_features, group_points, group_times
from topology.base.schema import validated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from cost.validation.read import Point

    Array = NDArray[np.float64]

ROOT = Path(__file__).parents[2]
LENGTH = 0.25
"""Distance over which a run counts: of 0.2, 0.25, 0.3 and 0.4 those below 0.4 do alike across configurations, and the
longer ones worse where a model was left out."""
SPACING = 0.25
"""Least distance of two centres: every row as a centre gains 0.1 points and makes the file five times as long."""
PENALTY = 3.0
"""Ridge: 2 and 5 do alike."""
SPLITS = 5
"""How often configurations are dealt into folds anew; errors are means."""
PAYS, COSTS = 0.01, 0.01
DIGITS = 4
SOURCE = (
    "fit of benchmarks/calibration/fit_residual.py to served requests (silicon sample of aiconfigurator 0.12.0, "
    "calibration part) that record drafts: logarithm of measured over predicted time per output token, each row "
    "predicted by a fit of the physics that did not see its configuration"
)


@dataclass(frozen=True, eq=False)
class Rows:
    """Served rows: what runs, features ``[rows, features]``, ms per token, and whether drafts were recorded."""

    kinds: Sequence[Kind]
    features: Array
    measured: Array
    recorded: NDArray[np.bool_]

    @classmethod
    def of(cls, points: Sequence[Point]) -> Rows:
        """Return the rows with the features of the calibrated physics."""
        kinds: list[Kind] = [Kind("", "", "")] * len(points)
        features: dict[int, Array] = {}
        for group in group_points(points)[0]:
            reach = calibrated(group.gpu, group.engine)
            found = group_features(group, reach, group_times(group, reach))
            for position, i in enumerate(group.index.tolist()):
                kinds[i] = kinds_of(group.phase, group.engine, group.gpu.name)
                features[i] = found[position]
        return cls(
            kinds,
            np.stack([features[i] for i in range(len(points))]),
            np.array([p.measured for p in points]),
            np.array([p.drafts_recorded for p in points]),
        )

    def log_factor(self, table: Residual, chosen: NDArray[np.int64]) -> Array:
        """Logarithms of the correction of chosen rows, 0 where drafts were not recorded."""
        found = np.zeros(len(chosen))
        for kind in {self.kinds[i] for i in chosen.tolist()}:
            mine = np.array([self.kinds[i] == kind for i in chosen.tolist()])
            found[mine] = table.log_factor(kind, self.features[chosen[mine]])[0]
        return np.where(self.recorded[chosen], found, 0.0)


def learn(rows: Rows, told: Array, chosen: NDArray[np.int64]) -> Residual:
    """Learn from the chosen rows that record drafts; ``told``: what the physics says of all rows, unseen."""
    members: dict[Kind, list[int]] = defaultdict(list)
    learned = chosen[rows.recorded[chosen]]
    for i in learned.tolist():
        members[rows.kinds[i]].append(i)
    centres = {}
    for kind, index in members.items():
        features = rows.features[index]
        aim = np.clip(np.log(rows.measured[index] / told[index]), -MOST, MOST)
        at = np.round(features[spaced(features)], DIGITS)
        at = np.unique(at, axis=0)
        near, own = closeness(features, at, LENGTH), closeness(at, at, LENGTH)
        ridge = near.T @ near + PENALTY * own + 1e-9 * np.eye(len(at))
        centres[kind] = Centres(at, np.round(np.linalg.solve(ridge, near.T @ aim), DIGITS))
    return Residual(SOURCE, len(learned), LENGTH, {}, centres)


def spaced(features: Array) -> NDArray[np.int64]:
    """Return rows of which no two are nearer than :data:`SPACING`, each time the one farthest from those before."""
    found = [int(np.argmin(np.sum((features - features.mean(axis=0)) ** 2, axis=1)))]
    square = np.sum((features - features[found[0]]) ** 2, axis=1)
    while square.max() > SPACING**2:
        found.append(int(square.argmax()))
        square = np.minimum(square, np.sum((features - features[found[-1]]) ** 2, axis=1))
    return np.array(found)


def held_out_factors(rows: Rows, told: Array, parts: Sequence[str]) -> Array:
    """Corrections of all rows, each learned from the rows of other parts."""
    of = np.array(parts)
    factors = np.ones(len(of))
    for part in np.unique(of):
        out = np.flatnonzero(of == part)
        factors[out] = np.exp(rows.log_factor(learn(rows, told, np.flatnonzero(of != part)), out))
    return factors


def errors(measured: Array, told: Array) -> Array:
    """Median and mean error."""
    size = np.abs(told / measured - 1)
    return np.array([np.median(size), size.mean()])


def judged(found: HeldOut) -> tuple[Residual, dict[str, tuple[Array, Array]]]:
    """Learn from all rows, and return the errors by what was left out: of the physics, and corrected."""
    served = [p for p, mine in zip(found.points, found.served, strict=True) if mine]
    rows = Rows.of(served)
    anyone = Rows.of(unnamed(served))
    told = {name: getattr(found, name)[NAMED][: len(served)] for name in ("cross_validated", *LEFT_OUT)}
    nameless = found.cross_validated[UNNAMED][: len(served)]
    seen, m = told["cross_validated"], rows.measured
    names = configurations(served)
    across, across_any = [], []
    for split in range(1, SPLITS + 1):
        parts = [str(fold) for fold in folds_of(names, found.folds, split).tolist()]
        across.append(errors(m, seen * held_out_factors(rows, seen, parts)))
        of, factors = np.array(parts), np.ones(len(m))
        for part in np.unique(of):
            out = np.flatnonzero(of == part)
            factors[out] = np.exp(anyone.log_factor(learn(rows, seen, np.flatnonzero(of != part)), out))
        across_any.append(errors(m, nameless * factors))
    result = {
        "cross_validated": (errors(m, seen), np.mean(across, axis=0)),
        "cross_validated_any_engine": (errors(m, nameless), np.mean(across_any, axis=0)),
    }
    for name, parts in (
        ("model_left_out", models_of(served)),
        ("chip_left_out", [chip_of(p) for p in served]),
    ):
        factors = held_out_factors(rows, seen, parts)
        result[name] = errors(m, told[name]), errors(m, told[name] * factors)
        result[f"{name}_of_residual_alone"] = errors(m, seen), errors(m, seen * factors)
    table = learn(rows, seen, np.arange(len(m)))
    mine = found.in_sample[NAMED][: len(served)]
    factors = np.exp(rows.log_factor(table, np.arange(len(m))))
    others = np.array([p.phase in PHASES and p.quantity == "tpot_ms" for p in found.points]) & ~found.served
    theirs = Rows.of([p for p, mine in zip(found.points, others, strict=True) if mine])
    physics = found.cross_validated[NAMED][others]
    corrected = physics * np.exp(theirs.log_factor(table, np.arange(len(physics))))
    result["published"] = errors(theirs.measured, physics), errors(theirs.measured, corrected)
    result["in_sample"] = errors(m, mine), errors(m, mine * factors)
    return table, result


LEFT_OUT = ("model_left_out", "chip_left_out")


def against(result: dict[str, tuple[Array, Array]]) -> list[str]:
    """Return what speaks against shipping the correction; nothing where it holds its conditions."""
    off, on = result["cross_validated"]
    found = []
    if (off - on < PAYS).any():
        found.append(f"it does not pay {PAYS:.0%} across configurations, median and mean")
    for name, (off, on) in result.items():
        if "left_out" in name and (on - off > COSTS).any():
            found.append(f"it costs more than {COSTS:.0%}: {name}")
    return found


def texts(table: Residual, result: dict[str, tuple[Array, Array]]) -> tuple[str, str]:
    """Return the contents of the two files."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    count = 0
    for kind in sorted(table.centres, key=str):
        centres = table.centres[kind]
        for features, coefficient in zip(centres.features, centres.coefficients, strict=True):
            cells = [f"{value:.{DIGITS}g}" if value else "0" for value in (*features, coefficient)]
            writer.writerow([kind.phase, kind.engine, kind.architecture, *cells])
            count += 1
    data: dict[str, Any] = {
        "source": table.source,
        "rows": table.rows,
        "centres": count,
        "length": table.length,
        "errors": {
            name: {
                "physics": [round(float(value), 4) for value in off],
                "corrected": [round(float(value), 4) for value in on],
            }
            for name, (off, on) in result.items()
        },
    }
    return out.getvalue(), yaml.safe_dump(data, sort_keys=False, default_flow_style=None, width=200)


def main() -> None:
    """Fit the physics without each part, learn, print, and write if asked to and if it pays."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options, found = ask_held_out(parser, writes="residual.csv and residual.yaml")
    table, result = judged(found)
    print(f"{'':36}  physics: median, mean   corrected: median, mean")
    for name, (off, on) in result.items():
        print(
            f"{name.replace('_', ' '):36}  {off[0]:8.2%} {off[1]:8.2%}        {on[0]:8.2%} {on[1]:8.2%}"
            f"   ({on[0] - off[0]:+.2%}, {on[1] - off[1]:+.2%})"
        )
    cells, figures = texts(table, result)
    written = validated(ResidualFigures, yaml.safe_load(figures), FIGURES.name)
    read_residual(written, csv.reader(io.StringIO(cells)))
    print(f"{cells.count(chr(10)) - 1} centres, {len(cells.encode()):,} bytes")
    reasons = against(result)
    if found.drift > MOST_DRIFT:
        reasons.append(
            f"serving.yaml is another fit: predictions are {found.drift:.1%} off in the median; write it first: "
            "python benchmarks/calibration/fit_serving.py SILICON.csv --write"
        )
    if reasons:
        sys.exit("not to be written: " + "; ".join(reasons))
    if options.write:
        PATH.write_text(cells, encoding="utf-8")
        FIGURES.write_text(figures, encoding="utf-8")
        print(f"written: {PATH.relative_to(ROOT)}, {FIGURES.relative_to(ROOT)}", file=sys.stderr)


if __name__ == "__main__":
    main()
