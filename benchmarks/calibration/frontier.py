"""How far off chosen layouts are: errors of measured frontiers by chip, and the table of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from cost.calibration.correction import shipped_correction
from cost.validation.frontier import errors_of_frontiers, frontiers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cost.validation.read import Point

PATH = Path(__file__).parents[2] / "cost" / "calibration" / "frontier.yaml"
HEAD = (
    "chip",
    "frontiers",
    "points",
    "same requests: median",
    "within 20 %",
    "bias",
    "same speed: median",
    "of layouts that ran",
    "engine not named",
)


def measure(points: Sequence[Point]) -> dict[str, Any]:
    """Return the contents of ``frontier.yaml``; some ten minutes of CPU for all runs."""
    found, left_out = frontiers(points, shipped_correction())
    unnamed = errors_of_frontiers(frontiers(points, shipped_correction(), engines=False)[0])
    names = ("median_abs_error", "mean_abs_error", "within_20_percent", "bias")
    chips = {
        chip: {"frontiers": sum(chip in (one.chip, "all") for one in found), "points": both["at_load"].rows}
        | {
            at: {name: round(getattr(one, name), 3) for name in names}
            for at, one in (*both.items(), ("unnamed_at_speed", unnamed[chip]["at_speed"]))
        }
        for chip, both in errors_of_frontiers(found).items()
    }
    return {"runs": sum(one.runs for one in found), "left_out": left_out, "chips": chips}


def blocks(data: Mapping[str, Any]) -> dict[str, str]:
    """Return the table of the pages, by what the file holds."""
    rows = [HEAD, ("---",) * len(HEAD)]
    for chip, one in data["chips"].items():
        load = one["at_load"]
        speeds = (one[at]["median_abs_error"] for at in ("at_speed", "of_run", "unnamed_at_speed"))
        errors = (load["median_abs_error"], load["within_20_percent"], load["bias"], *speeds)
        forms = (".1f", ".0f", "+.1f", ".1f", ".1f", ".1f")
        cells = (f"{x * 100:{form}} %" for x, form in zip(errors, forms, strict=True))
        rows.append((chip, f"{one['frontiers']:,}", f"{one['points']:,}", *cells))
    return {"frontier": "\n" + "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"}
