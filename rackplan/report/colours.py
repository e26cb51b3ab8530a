"""Colours of charts and pictures, which colour-blind people tell apart."""

from __future__ import annotations

from collections.abc import Iterable

from cost.terms.registry import TERMS
from cost.terms.work import RESOURCES

# Okabe and Ito, "Color Universal Design" (2008), without black and yellow: they vanish on dark and on white
BLUE, VERMILION, GREEN, PURPLE = "#0072b2", "#d55e00", "#009e73", "#cc79a7"
ORANGE, SKY = "#e69f00", "#56b4e9"
NEUTRAL = "#8c959f"
"""Grey that is legible on white and on black."""
SAND = "#ddcc77"
"""Colour of a step part without a declared one."""
INK = "#1b1f24"
_FABRICS = ("#bbcc33", "#b39ddb", "#80cbc4")


def series(count: int) -> list[str]:
    """Return ``count`` colours; they repeat after six."""
    colours = (BLUE, ORANGE, GREEN, VERMILION, SKY, PURPLE)
    return [colours[index % len(colours)] for index in range(count)]


def by_resource(names: Iterable[str]) -> dict[str, str]:
    """Return a colour for each resource, none of which a part of a step has."""
    fabrics = [name for name in dict.fromkeys(names) if name not in RESOURCES]
    return RESOURCES | {name: _FABRICS[index % len(_FABRICS)] for index, name in enumerate(fabrics)}


def by_term(names: Iterable[str]) -> dict[str, str]:
    """Return a colour for each part of a step: the same in every report."""
    return {name: TERMS[name].colour if name in TERMS else SAND for name in names}
