"""Colours of drawings."""

from __future__ import annotations

INK = "#1a1a1a"
QUIET = "#767676"
OUTLINE = "#8a8a8a"
FAULT = "#c00000"
FAULT_FILL = "#fde8e8"
SLOW = "#6b3d00"
SLOW_FILL = "#ffd58a"
NVLINK = "#4f7a00"
NVLINK_FILL = "#e3efcc"
BAND_INK = "#2f4a00"
# Okabe-Ito, its yellow darkened to show as a line on white: distinct for colour-blind readers.
RAILS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b5a300", "#4d4d4d")
_DARK = ("#0072b2", "#d55e00", "#4d4d4d", "#009e73", QUIET)


def ink_on(colour: str) -> str:
    """Return the text colour to write on a rail's colour, or on the grey of no rail."""
    return "#ffffff" if colour in _DARK else INK
