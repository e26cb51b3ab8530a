"""How wide a text is, so that it can be placed by its left edge and boxes can be made to fit."""

from __future__ import annotations

from math import ceil

# Advance widths of DejaVu Sans from the space to the tilde, in hundredths of the font size.
_WIDTHS = (
    *(32, 40, 46, 84, 64, 95, 78, 27, 39, 39, 50, 84, 32, 36, 32, 34, 64, 64, 64, 64, 64, 64, 64, 64),
    *(64, 64, 34, 34, 84, 84, 84, 53, 100, 68, 69, 70, 77, 63, 58, 77, 75, 29, 29, 66, 56, 86, 75, 79),
    *(60, 79, 69, 63, 61, 73, 68, 99, 69, 61, 69, 39, 34, 39, 84, 50, 50, 61, 63, 55, 63, 62, 35, 63),
    *(63, 28, 28, 58, 28, 97, 63, 61, 63, 63, 41, 52, 39, 63, 59, 82, 59, 59, 52, 64, 34, 64, 84),
)
_OTHER = 100  # any other character: as wide as the font is high
_BOLD = 1.16


def text_width(text: str, points: float, *, bold: bool = False) -> int:
    """Return the width of ``text`` in points, rounded up; never less than what is drawn."""
    hundredths = sum(_WIDTHS[ord(c) - 32] if 32 <= ord(c) < 127 else _OTHER for c in text)
    return ceil(hundredths / 100 * points * (_BOLD if bold else 1.0)) + 2


def fitting(text: str, width: float, points: float) -> str:
    """Return ``text``, cut with dots where it is wider than ``width`` points."""
    if text_width(text, points, bold=True) <= width:
        return text
    while text and text_width(f"{text}...", points, bold=True) > width:
        text = text[:-1]
    return f"{text}..."
