"""Every error of the calibration in one command, and the figures of the documentation with it.

``python benchmarks/calibration SILICON.csv [--folds N] [--write]`` fits anew without each fold of configurations,
without each chip and without each model, and prints the errors of what was left out beside those in sample: by chip,
engine, phase and model. ``--write`` measures frontiers too, writes ``errors.yaml`` and ``frontier.yaml`` of
``cost/calibration`` and rewrites the marked figures in docs/trust.md and README.md. A fit takes
about 20 seconds of CPU, and there are some two dozen. The coefficients themselves are written by
``fit_serving.py --write``, before this.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import error_tables
import frontier
from held_out import MOST_DRIFT, ask_held_out, say
from inferencex import read_inferencex
from silicon import read_silicon

from cost.calibration import errors, spread
from topology.base.schema import validated

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "docs" / "trust.md", ROOT / "README.md")


def main() -> None:
    """Fit, print, and write if asked to."""
    parser = argparse.ArgumentParser(
        prog="python benchmarks/calibration",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    options, found = ask_held_out(parser, writes="errors.yaml, frontier.yaml, docs/trust.md and README.md")
    data = error_tables.errors_data(found)
    validated(errors.ErrorTable, data, errors.PATH.name)
    cells = error_tables.cells_of(found)
    for title, rows in error_tables.sections(cells).values():
        _print((title, *error_tables.HEAD), rows)
    spreads = error_tables.spread_data(found)
    _print(error_tables.COVERED, error_tables.coverage(found, spreads), words=3)
    if found.drift > MOST_DRIFT:
        message = f"cost/calibration/serving.yaml is another fit: predictions are {found.drift:.1%} off in the median"
        if options.write:
            sys.exit(
                f"{message}; write it first: python benchmarks/calibration/fit_serving.py SILICON.csv --write"
            )
        say(message)
    if options.write:
        spread.PATH.write_text(error_tables.to_yaml(spreads), encoding="utf-8")
        runs = [point for name in ("tpot_ms", "ttft_ms") for point in read_silicon(options.silicon, name)]
        for path in options.runs:
            runs += [point for name in ("tpot_ms", "tok_s_per_gpu") for point in read_inferencex(path, name)]
        edges = frontier.measure(runs)
        blocks = error_tables.blocks(cells, edges) | frontier.blocks(edges)
        files = {errors.PATH: error_tables.to_yaml(data), frontier.PATH: error_tables.to_yaml(edges)}
        _write(files, blocks)


def _write(files: dict[Path, str], blocks: dict[str, str]) -> None:
    """Write the files and the pages; all texts are made before the first is written."""
    texts = {page: error_tables.rewritten(page.read_text(encoding="utf-8"), blocks) for page in PAGES}
    for path, new in {**files, **texts}.items():
        path.write_text(new, encoding="utf-8")
        say(f"written: {path.relative_to(ROOT)}")


def _print(head: tuple[str, ...], rows: list[tuple[str, ...]], words: int = 0) -> None:
    """Print a table, the titles of its columns in two lines where they have a colon.

    ``words``: columns of words at the left; 0: those before :data:`error_tables.HEAD`.
    """
    above = tuple(f"{first}:" if rest else "" for first, _, rest in (title.partition(": ") for title in head))
    below = tuple(title.partition(": ")[2] or title for title in head)
    lines = [above, below, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    words = words or len(head) - len(error_tables.HEAD)
    for line in lines:
        cells = [
            c.ljust(w) if i < words else c.rjust(w) for i, (c, w) in enumerate(zip(line, widths, strict=True))
        ]
        sys.stdout.write("  ".join(cells).rstrip() + "\n")
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
