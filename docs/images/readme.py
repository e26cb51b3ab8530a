"""Draw the picture of the README in light and dark: ``python docs/images/readme.py`` writes both files.

Left the load of each GPU of a rack in one layer, busiest first, under three placements of the same loads; right
throughput against speed for the user on three clusters. All of it is computed here, by the library.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

import numpy as np

import rackplan
from cost.layouts import iso_interactivity
from placement.experts.baselines import eplb_global, linear
from placement.experts.problem import make_problem, spread_slots

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

FOLDER = Path(__file__).parent
MODEL, RACK = "deepseek-v3", "gb200-nvl72"
CLUSTERS = {"hgx-h200@72": "72 H200", "hgx-b200@72": "72 B200", RACK: "72 GB200"}
SPEEDS = tuple(range(10, 101, 2))
USER = 20
"""The speed at which clusters are compared: tokens a second for a user."""
WIDTH, HEIGHT = 880, 320
TOP, BOTTOM = 66, 282
LEFT = (34, 400)
RIGHT = (488, 860)
MOST = 6400.0
"""End of the scale of throughput."""


@dataclass(frozen=True)
class Colours:
    """The colours of one scheme."""

    text: str
    quiet: str
    grid: str
    series: tuple[str, str, str]


SCHEMES = {
    "light": Colours("#1f2328", "#59636e", "#d1d9e0", ("#9a6700", "#8250df", "#0969da")),
    "dark": Colours("#f0f6fc", "#9198a1", "#3d444d", ("#e3b341", "#c297ff", "#58a6ff")),
}


@dataclass(frozen=True)
class Drawn:
    """What is drawn: GPU loads over their mean with the balancedness of all layers, and tok/s/GPU at each speed."""

    loads: dict[str, tuple[NDArray[np.float64], float]]
    throughput: dict[str, list[float | None]]


def computed() -> Drawn:
    """Return what is drawn."""
    plan = rackplan.plan(MODEL, RACK, time_limit_s=0)
    placed = plan.experts[0]
    if plan.loads is None or placed is None:
        raise ValueError("the model has experts")
    tokens = np.asarray(plan.loads.tokens, float)
    slots = spread_slots(tokens.shape[2], placed.slot_gpu.max() + 1, 32)
    problem = make_problem(tokens, slots)
    ways = {
        "in order": linear(problem).assignment,
        "EPLB": eplb_global(problem).assignment,
        "rackplan": placed,
    }
    each = {}
    for name, one in ways.items():
        share = tokens[0] / one.copies
        load = np.stack(
            [
                np.bincount(one.slot_gpu, weights=row[experts])
                for row, experts in zip(share, one.slot_expert, strict=True)
            ]
        )
        each[name] = load / load.mean(axis=1, keepdims=True)
    balance = {name: 1 / load.max(axis=1) for name, load in each.items()}
    usual = int(np.argsort(balance["in order"])[len(tokens[0]) // 2])
    return Drawn(
        {name: (np.sort(load[usual])[::-1], float(balance[name].mean())) for name, load in each.items()},
        {
            cluster: list(iso_interactivity(rackplan.sweep(MODEL, cluster, phase="decode"), SPEEDS))
            for cluster in CLUSTERS
        },
    )


def words(
    x: float, y: float, said: str, fill: str, *, size: int = 14, anchor: str = "start", weight: int = 400
) -> str:
    """Return a line of text."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" font-weight="{weight}" text-anchor="{anchor}" '
        f'fill="{fill}">{escape(said)}</text>'
    )


def line(points: list[tuple[float, float]], colour: str, width: float) -> str:
    """Return a line through points."""
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}" stroke-linejoin="round"/>'


def balance(drawn: Drawn, colours: Colours) -> Iterator[str]:
    """Yield the left panel: a step line of GPU loads for each placement."""
    x0, x1 = LEFT
    top = 2.4
    yield words(x0, 22, "What goes where", colours.text, size=16, weight=600)
    yield words(x0, 43, "load of each of 72 GPUs in a layer, over the mean", colours.quiet)
    gpus = len(next(iter(drawn.loads.values()))[0])
    up = (BOTTOM - TOP) / top

    for level in (0, 1, 2):
        yield line([(x0, BOTTOM - level * up), (x1, BOTTOM - level * up)], colours.grid, 1)
        yield words(x0 - 8, BOTTOM - level * up + 5, f"{level}", colours.quiet, size=13, anchor="end")
    for (name, (load, mean)), colour, at in zip(
        drawn.loads.items(), colours.series, (2.2, 1.9, 1.6), strict=True
    ):
        wide = (x1 - x0) / gpus
        points = [(x0 + (i + k) * wide, BOTTOM - value * up) for i, value in enumerate(load) for k in (0, 1)]
        yield line(points, colour, 2.5)
        y = BOTTOM - at * up
        yield line([(x1 - 218, y - 5), (x1 - 198, y - 5)], colour, 2.5)
        yield words(x1 - 190, y, f"{name}: balancedness {mean:.3f}", colours.text)
    yield words(x0, BOTTOM + 24, "busiest GPU first: all others wait for it", colours.quiet, size=13)


def speed(drawn: Drawn, colours: Colours) -> Iterator[str]:
    """Yield the right panel: throughput against speed for the user, a line a cluster."""
    x0, x1 = RIGHT
    yield words(x0 - 46, 22, "What it serves", colours.text, size=16, weight=600)
    yield words(x0 - 46, 43, "output tokens/s of a GPU, by tokens/s of each user", colours.quiet)

    def at(speed_: float, rate: float) -> tuple[float, float]:
        right = (speed_ - SPEEDS[0]) / (SPEEDS[-1] - SPEEDS[0])
        return x0 + right * (x1 - x0), BOTTOM - rate / MOST * (BOTTOM - TOP)

    for rate in (0, 2000, 4000, 6000):
        yield line([at(SPEEDS[0], rate), at(SPEEDS[-1], rate)], colours.grid, 1)
        yield words(x0 - 8, at(10, rate)[1] + 5, f"{rate:,}", colours.quiet, size=13, anchor="end")
    for user in (20, 40, 60, 80, 100):
        yield words(at(user, 0)[0], BOTTOM + 24, f"{user}", colours.quiet, size=13, anchor="middle")
    ordered = sorted(zip(drawn.throughput.items(), colours.series, strict=True), reverse=True, key=_rate)
    for ((cluster, rates), colour), y in zip(ordered, (92, 116, 140), strict=True):
        yield line([at(s, r) for s, r in zip(SPEEDS, rates, strict=True) if r is not None], colour, 2.5)
        x, rate = at(USER, 0)[0], rates[SPEEDS.index(USER)] or 0.0
        yield f'<circle cx="{x:.1f}" cy="{at(USER, rate)[1]:.1f}" r="4" fill="{colour}"/>'
        yield line([(x1 - 204, y - 5), (x1 - 184, y - 5)], colour, 2.5)
        yield words(x1 - 176, y, f"{CLUSTERS[cluster]}: {rate:,.0f} at {USER}", colours.text)


def _rate(one: tuple[tuple[str, list[float | None]], str]) -> float:
    return one[0][1][SPEEDS.index(USER)] or 0.0


def svg(drawn: Drawn, colours: Colours) -> str:
    """Return the picture in one scheme of colours."""
    parts = "\n".join([*balance(drawn, colours), *speed(drawn, colours)])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'font-family="-apple-system, Segoe UI, Helvetica, Arial, sans-serif">\n{parts}\n</svg>\n'
    )


def pictures() -> dict[str, str]:
    """Return both files, by name."""
    drawn = computed()
    return {f"readme-{name}.svg": svg(drawn, colours) for name, colours in SCHEMES.items()}


if __name__ == "__main__":
    for name, content in pictures().items():
        (FOLDER / name).write_text(content, encoding="utf-8")
