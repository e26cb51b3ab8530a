"""Colours that colour-blind people tell apart, and text that Plotly shows as it is."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from cost.terms.registry import TERMS
from cost.terms.work import RESOURCES

# Okabe and Ito, "Color Universal Design" (2008), without black and yellow: they vanish on dark and on white
BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#e69f00",
    "#56b4e9",
)
# of Tol, "Colour Schemes" (2021), which parts of a step take more from (:mod:`cost.terms.registry`)
WINE, SAND, INDIGO = "#aa4466", "#ddcc77", "#332288"
NEUTRAL = "#8c959f"
"""Grey that reads on white and on black."""
SYMBOLS = ("circle", "diamond", "square", "triangle-up", "cross", "x")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")


def series(count: int) -> list[str]:
    """Return ``count`` colours; they repeat after six."""
    colours = (BLUE, ORANGE, GREEN, VERMILION, SKY, PURPLE)
    return [colours[index % len(colours)] for index in range(count)]


def by_resource(names: Iterable[str]) -> dict[str, str]:
    """Return a colour for each resource: the same ones in every report for compute and HBM."""
    fabrics = (GREEN, PURPLE, SKY)
    rest = [name for name in dict.fromkeys(names) if name not in RESOURCES]
    return RESOURCES | {name: fabrics[index % len(fabrics)] for index, name in enumerate(rest)}


def by_term(names: Iterable[str]) -> dict[str, str]:
    """Return a colour for each part of a step: the same in every report."""
    return {name: TERMS[name].colour if name in TERMS else SAND for name in names}


def ink_on(colour: str) -> str:
    """Return the colour of letters on ``colour``."""
    return "#ffffff" if colour in (BLUE, VERMILION, GREEN, WINE, INDIGO) else "#1b1f24"


def plotly_text(text: str) -> str:
    """Return a name so that Plotly shows it as it is: its labels know tags and entities."""
    return escape(text, quote=False)
