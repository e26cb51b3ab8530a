"""The pictures of the documentation, drawn by the code that they show: ``python docs/images/make.py [NAME...]``.

Without names all of them are drawn, in this folder; ``benchmarks/readme_picture.py`` draws that of the README. A test
says which are not what the code draws today.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from math import log10
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from placement.plan import Plan

FOLDER = Path(__file__).parent
FONT = "DejaVu Sans, Verdana, sans-serif"
INK, SOFT, RULE, PAPER = "ink", "soft", "rule", "paper"
_NEUTRAL = {
    INK: ("#1b1f24", "#e6edf3"),
    SOFT: ("#57606a", "#9ea7b3"),
    RULE: ("#d0d7de", "#3d444d"),
    PAPER: ("#fff", "#0d1117"),
}
"""Colours of what is no series, in light and in dark."""
STYLE = (
    "".join(f".{name}{{fill:{light}}}.{name}-line{{stroke:{light}}}" for name, (light, _) in _NEUTRAL.items())
    + "@media(prefers-color-scheme:dark){"
    + "".join(f".{name}{{fill:{dark}}}.{name}-line{{stroke:{dark}}}" for name, (_, dark) in _NEUTRAL.items())
    + "}"
)
WIDTH = 760


@dataclass
class Canvas:
    """An SVG of a given height, made of boxes, lines and words."""

    height: float
    title: str

    def __post_init__(self) -> None:
        self.parts: list[str] = []

    def box(self, x: float, y: float, width: float, height: float, colour: str) -> None:
        """Draw a filled box."""
        self.parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" {_paint(colour)}/>'
        )

    def line(self, points: Iterable[tuple[float, float]], colour: str, width: float = 1) -> None:
        """Draw a line through points."""
        way = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.parts.append(f'<polyline points="{way}" fill="none" {_stroke(colour)} stroke-width="{width}"/>')

    def dot(self, x: float, y: float, colour: str) -> None:
        """Draw a dot."""
        self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" {_paint(colour)}/>')

    def words(
        self, x: float, y: float, text: str, colour: str = INK, anchor: str = "start", size: int = 13
    ) -> None:
        """Write a line of words."""
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" {_paint(colour)} text-anchor="{anchor}" '
            f'font-size="{size}">{escape(text)}</text>'
        )

    def svg(self) -> str:
        """Return the file."""
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self.height:.0f}" width="{WIDTH}" '
            f'height="{self.height:.0f}" font-family="{FONT}" role="img"><title>{escape(self.title)}</title>'
            f'<style>{STYLE}</style><rect width="100%" height="100%" {_paint(PAPER)}/>\n'
            + "\n".join(self.parts)
            + "\n</svg>\n"
        )


def _paint(colour: str) -> str:
    return f'class="{colour}"' if colour in _NEUTRAL else f'fill="{colour}"'


def _stroke(colour: str) -> str:
    return f'class="{colour}-line"' if colour in _NEUTRAL else f'stroke="{colour}"'


@cache
def planned(cluster: str) -> Plan:
    """Return a plan of DeepSeek-V3 with 32 redundant copies, as the tutorial and the README ask for it."""
    import rackplan

    return rackplan.plan("deepseek-v3", cluster, phase="decode", redundant=32, time_limit_s=0)


TUTORIAL = "hgx-h200@32"


def drawn(cluster: object) -> str:
    """Return what ``rackplan draw`` makes of a cluster, a plan or several clusters."""
    import rackplan

    with TemporaryDirectory() as folder:
        return rackplan.draw(cluster, Path(folder) / "drawing.svg").read_text(encoding="utf-8")  # type: ignore[arg-type]


def step_of_tutorial() -> str:
    """Return the step of the tutorial's plan, part after part, with the same at peaks beneath."""
    from placement.analysis.peaks import at_peaks
    from rackplan.report.colours import by_term

    plan = planned(TUTORIAL)
    terms, peaks = plan.score.terms_s, at_peaks(plan).terms_s
    names = sorted(terms, key=lambda name: -terms[name])
    colours = by_term(names)
    left, right, row = 130, 90, 26
    wide = (WIDTH - left - right) / plan.score.step_s
    chart = Canvas(row * len(names) + 74, "The step by part, in milliseconds")
    chart.words(8, 16, "a step, part after part", size=14)
    chart.words(WIDTH - 8, 16, f"{plan.score.step_s * 1e3:.1f} ms", anchor="end", size=14)
    start, top = 0.0, 30.0
    for name in names:
        seconds, peak = terms[name], peaks.get(name, 0.0)
        chart.words(left - 8, top + 16, name.replace("_", " "), anchor="end")
        chart.box(left + start * wide, top + 2, seconds * wide, 14, colours[name])
        chart.box(left + start * wide, top + 17, peak * wide, 4, SOFT)
        chart.words(left + (start + seconds) * wide + 6, top + 14, f"{seconds * 1e3:.1f} ms", SOFT, size=12)
        start, top = start + seconds, top + row
    chart.line([(left, 28), (left, top)], RULE)
    chart.box(left, top + 16, 24, 4, SOFT)
    chart.words(left + 30, top + 23, "the same at data-sheet peaks, without delays", SOFT, size=12)
    return chart.svg()


def frontier_of_tutorial() -> str:
    """Return throughput against speed per user of the clusters that the tutorial compares."""
    import numpy as np

    import rackplan
    from cost.layouts.front import pareto
    from rackplan.report.colours import series

    lines: dict[str, list[tuple[float, float]]] = {}
    for name in ("hgx-h200@72", "hgx-b200@72", "gb200-nvl72"):
        found = rackplan.sweep("deepseek-v3", name, phase="decode")
        rows = pareto(found.tok_s_per_user, found.tok_s_per_gpu)
        order = rows[np.argsort(found.tok_s_per_user[rows])]
        lines[name] = [(float(found.tok_s_per_user[i]), float(found.tok_s_per_gpu[i])) for i in order]
    return curves(
        lines,
        series(len(lines)),
        x=("output tok/s/user", (10, 20, 50, 100, 200)),
        y=("output tok/s/GPU", (10, 100, 1000, 10000)),
    )


def curves(
    lines: Mapping[str, Sequence[tuple[float, float]]],
    colours: Sequence[str],
    *,
    x: tuple[str, tuple[int, ...]],
    y: tuple[str, tuple[int, ...]],
) -> str:
    """Return curves over logarithmic axes, each with a title and the values that are marked on it."""
    (x_title, x_marks), (y_title, y_marks) = x, y
    chart = Canvas(380, f"{y_title} against {x_title}")
    left, right, top, bottom = 70, WIDTH - 20, 20, 320

    def at(point: tuple[float, float]) -> tuple[float, float]:
        across = log10(point[0] / x_marks[0]) / log10(x_marks[-1] / x_marks[0])
        up = log10(point[1] / y_marks[0]) / log10(y_marks[-1] / y_marks[0])
        return left + across * (right - left), bottom - up * (bottom - top)

    for mark in y_marks:
        height = at((x_marks[0], mark))[1]
        chart.line([(left, height), (right, height)], RULE)
        chart.words(left - 8, height + 4, f"{mark:,}", SOFT, "end", 12)
    for mark in x_marks:
        across = at((mark, y_marks[0]))[0]
        chart.line([(across, top), (across, bottom)], RULE)
        chart.words(across, bottom + 18, f"{mark:,}", SOFT, "middle", 12)
    chart.words(left, 12, y_title, SOFT, size=12)
    chart.words(right, bottom + 36, x_title, SOFT, "end", 12)
    for number, ((name, points), colour) in enumerate(zip(lines.items(), colours, strict=True)):
        inside = [
            one
            for one in points
            if x_marks[0] <= one[0] <= x_marks[-1] and y_marks[0] <= one[1] <= y_marks[-1]
        ]
        chart.line(map(at, inside), colour, 2.5)
        chart.box(left + 170 * number, bottom + 44, 22, 4, colour)
        chart.words(left + 28 + 170 * number, bottom + 50, name)
    return chart.svg()


PICTURES: Mapping[str, Callable[[], str]] = {
    "plan-gb200-nvl72.svg": lambda: drawn(planned("gb200-nvl72")),
    "tutorial-topology.svg": lambda: drawn(planned(TUTORIAL)),
    "tutorial-step.svg": step_of_tutorial,
    "tutorial-frontier.svg": frontier_of_tutorial,
    "generations.svg": lambda: drawn(["hgx-h100", "gb200-nvl72", "rubin-576"]),
}
"""What draws each picture."""


def main() -> None:
    """Draw the pictures named on the command line, or all."""
    for name in sys.argv[1:] or PICTURES:
        (FOLDER / name).write_text(PICTURES[name](), encoding="utf-8")


if __name__ == "__main__":
    main()
