"""Colours that colour-blind people tell apart, and text that Plotly shows as it is."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

# Okabe and Ito, "Color Universal Design" (2008), without black and yellow: they vanish on dark and on white
BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#e69f00",
    "#56b4e9",
)
# six more of Tol, "Colour Schemes" (2021), for parts of a step alone
WINE, SAND, FOREST = "#aa4466", "#ddcc77", "#44aa99"
INDIGO, OLIVE, ROSE = "#332288", "#999933", "#ee99aa"
NEUTRAL = "#8c959f"
"""Grey that reads on white and on black."""
SYMBOLS = ("circle", "diamond", "square", "triangle-up", "cross", "x")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
_FIXED = {
    "compute": BLUE,
    "HBM bandwidth": VERMILION,
    "pipeline imbalance": ORANGE,
    "fixed overhead": NEUTRAL,
}


_TERMS = {
    "attention": BLUE,
    "experts": VERMILION,
    "dense": ORANGE,
    "head": FOREST,
    "dispatch": SKY,
    "combine": PURPLE,
    "all_reduce": GREEN,
    "pipeline_hops": WINE,
    "pipeline_bubble": SAND,
    "overhead": NEUTRAL,
    "engine": OLIVE,
    "rank_imbalance": INDIGO,
    "sparse_attention": ROSE,
}


def series(count: int) -> list[str]:
    """Return ``count`` colours; they repeat after six."""
    colours = (BLUE, ORANGE, GREEN, VERMILION, SKY, PURPLE)
    return [colours[index % len(colours)] for index in range(count)]


def by_resource(names: Iterable[str]) -> dict[str, str]:
    """Return a colour for each resource: the same ones in every report for compute and HBM."""
    fabrics = (GREEN, PURPLE, SKY)
    rest = [name for name in dict.fromkeys(names) if name not in _FIXED]
    return _FIXED | {name: fabrics[index % len(fabrics)] for index, name in enumerate(rest)}


def by_term(names: Iterable[str]) -> dict[str, str]:
    """Return a colour for each part of a step: the same in every report."""
    return {name: _TERMS.get(name, SAND) for name in names}


def ink_on(colour: str) -> str:
    """Return the colour of letters on ``colour``."""
    return "#ffffff" if colour in (BLUE, VERMILION, GREEN, WINE, INDIGO) else "#1b1f24"


def plotly_text(text: str) -> str:
    """Return a name so that Plotly shows it as it is: its labels know tags and entities."""
    return escape(text, quote=False)
