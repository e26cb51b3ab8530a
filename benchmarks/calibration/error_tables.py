"""Errors of predictions as ``errors.yaml`` holds them, and as tables of docs/trust.md and of the README."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml
from held_out import NAMED, UNNAMED, chip_of, models_of

from cost.calibration.errors import MIN_ROWS, Cell, ErrorFigures
from cost.calibration.serving import calibrated_chips, engine_names
from cost.calibration.spread import SIGMAS_OF_80_PERCENT
from topology.base.schema import validated

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from held_out import HeldOut
    from numpy.typing import NDArray

    from cost.validation.read import Point

__all__ = ["blocks", "cells_of", "errors_data", "figures", "marked", "rewritten", "table_rows", "to_yaml"]

SOURCE = (
    "python benchmarks/calibration --write: served requests (silicon sample of aiconfigurator 0.12.0, calibration "
    "part; InferenceX), time per output token; figures of cost/validation/data/published.csv"
)
WIDTH = 118
FEW_ROWS = 20
"""Rows of all that count beside those of an engine on a chip."""
MARK = re.compile(r"(<!-- errors:begin (\w+) -->)(.*?)(<!-- errors:end -->)", re.DOTALL)
HEAD = (
    "rows",
    "in sample: median",
    "physics: median",
    "corrected: median",
    "mean",
    "within 20 %",
    "bias",
    "80 % within",
    "chip left out: median",
    "80 % within",
    "model left out: median",
    "80 % within",
)
PAGE = {
    "rows": 0,
    "median": 3,
    "within 20 %": 5,
    "bias": 6,
    "80 % within": 7,
    "physics: median": 2,
    "chip left out: median": 8,
    "model left out: median": 10,
}
"""Columns of the tables of pages, and which of :data:`HEAD` they are."""
README_HEAD = (
    "chip",
    "runs",
    "time per token",
    "80 % within",
    "tok/s/GPU",
    "engine open",
)
PHASES = ("aggregated", "disaggregated")
UNRECORDED = "drafts not recorded"
ENGINE_WORDS = {UNNAMED: "not named", NAMED: "each named"}


# --- from predictions to data


def figures(measured: NDArray[np.float64], told: NDArray[np.float64]) -> dict[str, float]:
    """Return the errors of predictions; the band is rounded up, so that 80 % are within it as written.

    Raises
    ------
    ValueError
        If a row has no prediction: its error is not nothing.
    """
    ratio = told / measured
    if not ratio.size or not np.isfinite(ratio).all():
        raise ValueError(f"{(~np.isfinite(ratio)).sum()} of {ratio.size} rows have no prediction.")
    size = np.abs(ratio - 1)
    factor = float(np.quantile(np.exp(np.abs(np.log(ratio))), 0.8, method="inverted_cdf"))
    return {
        "median": round(float(np.median(size)), 3),
        "mean": round(float(size.mean()), 3),
        "within_20_percent": round(float((size <= 0.2).mean()), 2),
        "bias": round(float(np.median(ratio)) - 1, 3),
        "band": math.ceil(factor * 100 - 1e-9) / 100,
    }


Cells = Mapping[str, Cell]


def cells_of(found: HeldOut) -> dict[str, Cells]:
    """Return the errors of some rows by table and name: all served ones, chips, phases, strata, models, published."""
    points, served = found.points, found.served
    chips, models = np.array([chip_of(p) for p in points]), np.array(models_of(points))
    phases, quantity = np.array([p.phase for p in points]), np.array([p.quantity for p in points])
    every, served = served, served & ~np.array([p.saturated for p in points])
    rate = quantity == "tok_s_per_gpu"
    asked = {
        "served": {kind: (served, kind) for kind in (UNNAMED, NAMED)},
        "chips": {
            chip: ((mine if (mine := served & (chips == chip)).any() else chips == chip), UNNAMED)
            for chip in calibrated_chips()
        },
        "phases": {
            f"{chip} {phase}": (served & (chips == chip) & (phases == phase), UNNAMED)
            for chip in calibrated_chips()
            for phase in PHASES
        },
        "strata": {name: (every & chosen, NAMED) for name, chosen in strata_of(points).items()},
        "models": {name: (served & (models == name), NAMED) for name in sorted(set(models[served].tolist()))},
        "published": {
            "tok/s/GPU": (~every & rate, NAMED),
            "tok/s/GPU, prefill alone": (~every & rate & (phases == "prefill"), NAMED),
            "TPOT": (~every & (quantity == "tpot_ms"), NAMED),
        },
    }
    return {
        table: {
            name: validated(Cell, _cell(found, chosen, kind), name)
            for name, (chosen, kind) in rows.items()
            if chosen.any()
        }
        for table, rows in asked.items()
    }


def _cell(found: HeldOut, chosen: NDArray[np.bool_], kind: str = NAMED) -> dict[str, Any]:
    measured = np.array([p.measured for p in found.points])
    columns = {
        "in_sample": "in_sample",
        "physics": "physics",
        "cross_validated": "cross_validated",
        "left_out": "chip_left_out",
        "model_left_out": "model_left_out",
    }
    return {"rows": int(chosen.sum())} | {
        name: figures(measured[chosen], getattr(found, column)[kind][chosen])
        for name, column in columns.items()
    }


def errors_data(found: HeldOut) -> dict[str, Any]:
    """Return the contents of ``errors.yaml``."""
    points = found.points
    chips, engines = np.array([chip_of(p) for p in points]), np.array([p.engine for p in points])
    served = found.served & ~np.array([p.saturated for p in points])
    untold = served & ~np.array([p.drafts_recorded for p in points])
    prefill = [p for p in points if p.quantity == "tok_s_per_gpu" and p.phase == "prefill"]

    def of_chip(chip: str) -> dict[str, Any]:
        mine = served & (chips == chip)
        rows_of, mine = ("served", mine) if mine.any() else ("published", chips == chip)
        named = {name: mine & (engines == name) for name in engine_names()} if rows_of == "served" else {}
        cells = {UNNAMED: _cell(found, mine, UNNAMED), NAMED: _cell(found, mine)}
        cells |= {name: _cell(found, those) for name, those in named.items() if those.any()}
        return {"rows_of": rows_of, "engines": cells}

    return {
        "source": SOURCE,
        "folds": found.folds,
        "prefill_rows": len(prefill),
        "served": _cell(found, served),
        "unrecorded": _cell(found, untold),
        "chips": {chip: of_chip(chip) for chip in calibrated_chips()},
    }


def spread_data(found: HeldOut) -> dict[str, Any]:
    """Return the contents of ``spread.yaml``: what holds four in five of the rows over what the process claims.

    Of few rows it is between their own and that of all.
    """
    points = found.points
    measured, chips = np.array([p.measured for p in points]), np.array([chip_of(p) for p in points])
    engines = np.array([p.engine for p in points])

    def wide(
        what: str, told: Mapping[str, NDArray[np.float64]], kind: str, which: NDArray[np.bool_]
    ) -> float:
        apart = np.abs(np.log(measured / told[kind])) / found.spread[what][kind]
        mine = apart[which & np.isfinite(apart)]
        return float(np.quantile(mine, 0.8)) / SIGMAS_OF_80_PERCENT if len(mine) else math.nan

    def shrunk(kind: str, which: NDArray[np.bool_]) -> float:
        rows = int((which & np.isfinite(found.spread["fold"][kind])).sum())
        own, every = (wide("fold", found.cross_validated, kind, of) for of in (which, found.served))
        return round((rows * own + FEW_ROWS * every) / (rows + FEW_ROWS), 3)

    by_engine: dict[str, dict[str, float]] = {}
    for engine in (UNNAMED, *sorted({*engines[found.served].tolist()} - {""})):
        kind = UNNAMED if engine == UNNAMED else NAMED
        mine = found.served & ((engines == engine) | (engine == UNNAMED))
        by_engine[engine] = {
            chip: shrunk(kind, mine & (chips == chip))
            for chip in sorted(set(chips[mine].tolist()))
            if (mine & (chips == chip)).sum() >= MIN_ROWS
        }
    left_out = {"chip": found.chip_left_out, "model": found.model_left_out}
    return {"source": SOURCE, "configurations": by_engine} | {
        what: round(wide(what, told, UNNAMED, found.served), 3) for what, told in left_out.items()
    }


COVERED = ("chip", "engine", "runs", "rows", "within the band", "engine open")
LEAST_COVERED = 30
"""Fewer rows say little of a share."""


def coverage(found: HeldOut, data: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return what part of held-out rows the band of ``spread.yaml`` holds, by chip, engine and date."""
    points, wide = found.points, data["configurations"]
    measured, chips = np.array([p.measured for p in points]), np.array([chip_of(p) for p in points])
    engines, fresh = np.array([p.engine for p in points]), np.array([p.date >= "2026-05" for p in points])
    inside = {}
    for kind in (NAMED, UNNAMED):
        of = [engine if kind == NAMED and engine in wide else UNNAMED for engine in engines.tolist()]
        factor = np.array(
            [wide[e].get(c, data["chip"]) for e, c in zip(of, chips.tolist(), strict=True)], dtype=np.float64
        )
        apart = np.abs(np.log(measured / found.cross_validated[kind]))
        inside[kind] = apart <= SIGMAS_OF_80_PERCENT * factor * found.spread["fold"][kind]
    rows = []
    told = found.served & np.isfinite(found.spread["fold"][NAMED])
    for chip, engine, late in sorted(set(zip(chips.tolist(), engines.tolist(), fresh.tolist(), strict=True))):
        mine = told & (chips == chip) & (engines == engine) & (fresh == late)
        if mine.sum() >= LEAST_COVERED:
            shares = (f"{inside[kind][mine].mean():.0%}" for kind in (NAMED, UNNAMED))
            rows.append((chip, engine, "since May 2026" if late else "before", f"{mine.sum():,}", *shares))
    return rows


def strata_of(points: Sequence[Point]) -> dict[str, NDArray[np.bool_]]:
    """Return kinds of runs by name, ``[points]`` each; saturated ones are of no other kind."""
    engines, dates = np.array([p.engine for p in points]), np.array([p.date for p in points])
    split = np.array([p.phase == "disaggregated" for p in points])
    grouped = np.array([p.pool.attention_dp > 1 for p in points])
    recorded = np.array([p.drafts_recorded for p in points])
    saturated = np.array([p.saturated for p in points])
    spans = {
        "runs of 2025": ("2025", "2026"),
        "runs of January to April 2026": ("2026", "2026-05"),
        "runs since May 2026": ("2026-05", "9999"),
    }
    found = {
        "one pool for both phases": np.array([p.phase == "aggregated" for p in points]),
        "one pool, one attention group": ~split & ~grouped,
        "one pool, attention of several groups": ~split & grouped,
        "two pools": split,
        "two pools, drafts recorded": split & recorded,
        "two pools, drafts not recorded": split & ~recorded,
        "drafts recorded": recorded,
        UNRECORDED: ~recorded,
        **{f"engine {name}": engines == name for name in engine_names()},
        **{name: (first <= dates) & (dates < end) for name, (first, end) in spans.items()},
    }
    return {name: chosen & ~saturated for name, chosen in found.items()} | {
        "saturated, in no other figure": saturated
    }


def to_yaml(data: Mapping[str, Any]) -> str:
    """Return the text of the file: figures of some rows on one line."""
    return yaml.safe_dump(dict(data), sort_keys=False, default_flow_style=None, width=200)


# --- from data to tables


def table_rows(cells: Iterable[tuple[str, Cell]]) -> list[tuple[str, ...]]:
    """Return the cells of a table, a row each: its name, then the columns of :data:`HEAD`."""
    found = []
    for name, cell in cells:
        seen = cell.cross_validated
        found.append(
            (
                name,
                f"{cell.rows:,}",
                *(_percent(cell.in_sample.median), _percent(cell.physics.median)),
                *(_percent(seen.median), _percent(seen.mean), _share(seen), _bias(seen), _factor(seen)),
                *_left_out(cell.left_out),
                *_left_out(cell.model_left_out),
            )
        )
    return found


def _left_out(found: ErrorFigures | None) -> tuple[str, str]:
    return ("-", "-") if found is None else (_percent(found.median), _factor(found))


def _percent(value: float) -> str:
    return f"{value * 100:.1f} %"


def _share(found: ErrorFigures) -> str:
    return f"{found.within_20_percent * 100:.0f} %"


def _bias(found: ErrorFigures) -> str:
    return f"{found.bias * 100:+.1f} %"


def _factor(found: ErrorFigures) -> str:
    return f"{found.band:.2f}"


TITLES = {
    "served": "engine",
    "chips": "chip",
    "phases": "chip, phase",
    "strata": "rows of",
    "models": "model",
}
"""Tables that are printed, and the title of their first column."""


def sections(cells: Mapping[str, Cells]) -> dict[str, tuple[str, list[tuple[str, ...]]]]:
    """Return every table: by name the title of its first column, and its rows."""
    return {
        table: (
            title,
            table_rows((ENGINE_WORDS.get(name, name), cell) for name, cell in cells[table].items()),
        )
        for table, title in TITLES.items()
    }


def blocks(cells: Mapping[str, Cells], edges: Mapping[str, Any]) -> dict[str, str]:
    """Return what stands between each pair of marks, by the name of the pair; ``edges`` is ``frontier.yaml``."""
    found = {
        name: _markdown((title, *PAGE), [(row[0], *(row[1 + i] for i in PAGE.values())) for row in rows])
        for name, (title, rows) in sections(cells).items()
    }
    return found | {
        "rows": f"{cells['served'][NAMED].rows:,}",
        "trust": _trust(cells),
        "readme": _markdown(README_HEAD, _readme(cells, edges)),
    }


def _served(cells: Mapping[str, Cells]) -> dict[str, Cell]:
    """Return all rows of each chip with enough served runs for an error of its own, the engine not named."""
    return {name: cell for name, cell in cells["chips"].items() if cell.rows >= MIN_ROWS}


def _readme(cells: Mapping[str, Cells], edges: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return the rows of :data:`README_HEAD`: chips with served runs, the engine not named; then all together."""
    found = []
    for chip, cell in {**_served(cells), "all": cells["served"][UNNAMED]}.items():
        given = (_percent(cell.cross_validated.median), _factor(cell.cross_validated))
        chosen = (edges["chips"][chip][at]["median_abs_error"] for at in ("at_speed", "unnamed_at_speed"))
        found.append((chip, f"{cell.rows:,}", *given, *map(_percent, chosen)))
    return found


def _markdown(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _trust(cells: Mapping[str, Cells]) -> str:
    named, unnamed = cells["served"][NAMED], cells["served"][UNNAMED]
    seen, out = named.cross_validated, unnamed.left_out
    chips = _served(cells)
    best, worst = (pick(chips, key=lambda c: chips[c].cross_validated.median) for pick in (min, max))
    published = cells["published"]["tok/s/GPU"]
    if out is None:
        raise ValueError("served rows have no figures of chips left out.")
    of_best, of_worst = (_percent(chips[chip].cross_validated.median) for chip in (best, worst))
    untold = _unrecorded(cells["strata"])
    text = (
        f"Over {named.rows:,} served runs the median error of time per token is {_percent(named.in_sample.median)} "
        f"in sample. On configurations held out of the fit it is {_percent(seen.median)} with the engine known (mean "
        f"{_percent(seen.mean)}, {_share(seen)} within 20 %) and {_percent(unnamed.cross_validated.median)} without, "
        f"from {of_best} on {best} to {of_worst} on {worst}; on a chip held out of the fit {_percent(out.median)}. "
        f"Over {published.rows} published throughputs it is {_percent(published.in_sample.median)} in sample and "
        f"{_percent(published.cross_validated.median)} cross-validated. {untold}Every summary prints the "
        "band that holds 80 % of runs like it: narrow beside measured ones, wide far from all and on a chip that "
        "nobody measured."
    )
    unbroken = text.replace(" %", "\u00a0%")
    return "\n" + textwrap.fill(unbroken, WIDTH, break_on_hyphens=False).replace("\u00a0", " ") + "\n"


def _unrecorded(strata: Cells) -> str:
    """Return what rows cost that do not say whether tokens were drafted; nothing where all say so."""
    told, untold = (strata.get(name) for name in ("drafts recorded", UNRECORDED))
    if told is None or untold is None:
        return ""
    return (
        f"Where drafting was not recorded ({untold.rows:,} of the rows) the median error is "
        f"{_percent(untold.cross_validated.median)}, elsewhere {_percent(told.cross_validated.median)}. "
    )


def marked(text: str) -> dict[str, str]:
    """Return what stands between the marks of a page, by name."""
    return {name: inside for _, name, inside, _ in MARK.findall(text)}


def rewritten(text: str, new: Mapping[str, str]) -> str:
    """Return a page with new contents between its marks.

    Raises
    ------
    KeyError
        If a mark has a name that is not in ``new``.
    """
    return MARK.sub(lambda found: f"{found[1]}{new[found[2]]}{found[4]}", text)
