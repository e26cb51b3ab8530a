"""Published ratios between generations at one speed per user, beside predicted ones: a table of docs/generations.md.

``python benchmarks/ratios.py [--write]`` prices both sides of each row of ``data/generation_ratios.csv`` as it was
published (lengths, engine, formats, drafts, one pool or two, as many GPUs) and prints the ratios; ``--write`` puts
them into the page. A minute on two cores.
"""

from __future__ import annotations

import csv
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import rackplan
from topology.base.errors import InfeasibleError

DATA = Path(__file__).parent / "data" / "generation_ratios.csv"
PAGE = Path(__file__).parents[1] / "docs" / "generations.md"
BEGIN, END = "<!-- ratios:begin -->", "<!-- ratios:end -->"
WITHIN = 1.7
"""Ratios that are further off have a reason in the file."""
POOLS = {"one": "one pool", "two": "two pools"}
HEAD = ("model", "from", "to", "prompt + answer", "tok/s/user", "published", "predicted", "off", "")


@dataclass(frozen=True)
class Ratio:
    """A row of the file with tok/s/GPU of both sides as predicted, 0 where none reaches the speed."""

    row: dict[str, str]
    before: float
    after: float

    @property
    def published(self) -> float:
        """The ratio as published."""
        return float(self.row["ratio"])

    @property
    def predicted(self) -> float:
        """The ratio as predicted; NaN where a side does not reach the speed."""
        return self.after / self.before if self.before and self.after else float("nan")

    @property
    def off(self) -> float:
        """How many times too large or too small the predicted ratio is, at least 1."""
        return float(np.exp(abs(np.log(self.predicted / self.published))))

    def cells(self) -> tuple[str, ...]:
        """The row of the table."""
        row = self.row
        sides = (
            " ".join(
                filter(None, (row[side].partition("@")[0], row[f"{side}_engine"], row[f"{side}_weights"]))
            )
            for side in ("before", "after")
        )
        lengths = f"{int(row['isl']):,} + {int(row['osl']):,}"
        speed = f"{float(row['tok_s_per_user']):g}"
        why = row["reason"] if self.off > WITHIN else ""
        times = (f"{value:.2f}" for value in (self.published, self.predicted, self.off))
        return row["model"], *sides, lengths, speed, *times, why


def ratios() -> list[Ratio]:
    """Return every row of the file with its prediction."""
    with DATA.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return [Ratio(row, *(priced(row, side) for side in ("before", "after"))) for row in rows]


def priced(row: dict[str, str], side: str) -> float:
    """Return output tok/s/GPU of one side of a row."""
    given = {name: row[f"{side}_{name}"] for name in ("engine", "weights")}
    speed = float(row["tok_s_per_user"])
    try:
        found = rackplan.sweep(
            row["model"],
            row[side],
            isl=int(row["isl"]),
            osl=int(row["osl"]),
            tok_s_user=speed,
            draft_tokens=int(row[f"{side}_drafts"]),
            **{name: value for name, value in given.items() if value},
        )
    except InfeasibleError:
        return 0.0
    bests = found.serving.bests(1 / speed)
    wanted = POOLS.get(row["pools"])
    of = bests.values() if wanted is None else [bests[wanted]] if wanted in bests else []
    return max((best.output_tok_s_per_gpu for best in of), default=0.0)


def main() -> None:
    """Print the table, and write the page if asked to."""
    found = ratios()
    lines = [HEAD, ("---",) * len(HEAD), *(ratio.cells() for ratio in found)]
    off = np.array([ratio.off for ratio in found])
    near = int((off <= WITHIN).sum())
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    told = f"{len(off)} ratios: off by {np.nanmedian(off):.2f} times in the median, {near} by at most {WITHIN} times."
    text = f"{told}\n\n{table}\n"
    sys.stdout.write(text)
    if "--write" in sys.argv[1:]:
        page = PAGE.read_text(encoding="utf-8")
        before, _, rest = page.partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n{text}{END}{rest.partition(END)[2]}", encoding="utf-8")


if __name__ == "__main__":
    main()
