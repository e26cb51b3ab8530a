"""Writes cost/calibration/correction.csv: the weight of each measured run in the correction of decode steps.

``python benchmarks/calibration/fit_correction.py SILICON.csv INFERENCEX.csv...``; after every fit of the physics.
What it is worth on runs that it did not see: ``python benchmarks/calibration``.
"""

from __future__ import annotations

import csv
import sys
from dataclasses import asdict, replace
from pathlib import Path

from held_out import fitted_correction
from inferencex import read_inferencex
from silicon import read_silicon

from cost.calibration.correction import PATH, RunLine, lines_of


def main() -> None:
    """Fit to the files given, and write."""
    silicon, *others = map(Path, sys.argv[1:])
    points = read_silicon(silicon, "tpot_ms")
    for path in others:
        points += read_inferencex(path, "tpot_ms")
    found = fitted_correction(points)
    lines = [
        replace(line, unnamed=weight)
        for line, weight in zip(lines_of(found.runs), found.unnamed.weights.tolist(), strict=True)
    ]
    with PATH.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, RunLine.__annotations__, lineterminator="\n")
        writer.writeheader()
        for line in lines:
            row = {name: f"{v:.5g}" if isinstance(v, float) else v for name, v in asdict(line).items()}
            writer.writerow({**row, "model": int(line.model)})
    print(f"{len(lines):,} runs")


if __name__ == "__main__":
    main()
