"""Static SVG for any page width: horizontal positions are percentages, and text uses the page's colour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element, SubElement, tostring

from topology.base.errors import printable
from topology.base.units import added, format_quantity

LINE = 20
"""Height of a line of text in pixels."""
_PHONE_WIDTH, _LETTER = 320, 7.0
"""Width of a diagram on a phone and of a letter in pixels; names are inside bars only if they fit there."""
_DARK, _LIGHT = "#11161b", "#ffffff"


Look = Mapping[str, object]
"""Attributes of an element; underscores stand for hyphens."""
NO_LOOK: Look = {}


class Svg:
    """An SVG element whose children are added from top to bottom."""

    def __init__(self, height: float, name: str) -> None:
        font = "system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"
        self.root = Element("svg", {"xmlns": "http://www.w3.org/2000/svg"})
        look = {"width": "100%", "height": f"{height:g}", "font_size": 13, "font_family": font}
        self._set(self.root, look | {"fill": "currentColor"})
        self.hatch = f"url(#hatch-{name})"
        square = {"width": 7, "height": 7, "patternUnits": "userSpaceOnUse", "patternTransform": "rotate(45)"}
        pattern = self.add(self.root, "pattern", {"id": f"hatch-{name}", **square})
        self.add(pattern, "rect", {"width": 2, "height": 7, "fill": "#000000", "fill_opacity": 0.25})

    def __str__(self) -> str:
        """Return the text of the file."""
        return tostring(self.root, encoding="unicode")

    @staticmethod
    def _set(element: Element, look: Look) -> None:
        for name, value in look.items():
            element.set(name.replace("_", "-"), printable(str(value)))

    def add(self, parent: Element, tag: str, look: Look, text: str = "") -> Element:
        """Add a child and return it."""
        child = SubElement(parent, tag)
        self._set(child, look)
        child.text = printable(text) if text else None
        return child

    def group(self, lines: Sequence[str]) -> Element:
        """Add a group that shows ``lines`` where the pointer rests on it."""
        group = SubElement(self.root, "g")
        SubElement(group, "title").text = "\n".join(printable(line) for line in lines if line)
        return group

    def text(self, parent: Element, words: str, y: float, look: Look = NO_LOOK) -> None:
        """Add a line of text on the base line ``y``."""
        self.add(parent, "text", {"x": 0, "y": y, **look}, words)

    def bar(
        self,
        parent: Element,
        place: tuple[float, float],
        y: float,
        high: float,
        look: Look,
        *,
        hatched: bool = False,
    ) -> None:
        """Add a bar from a part of the whole width on, of a part of it."""
        across = {"x": percent(place[0]), "width": percent(place[1]), "y": y, "height": high}
        self._rectangle(parent, across, look, hatched=hatched)

    def swatch(self, parent: Element, words: str, y: float, look: Look, *, hatched: bool = False) -> None:
        """Add a line of a legend: a square and what it means."""
        square = {"x": 0.5, "y": y - 10.5, "width": 12, "height": 12, "rx": 2}
        self._rectangle(parent, square, look, hatched=hatched)
        self.text(parent, words, y, {"x": 20})

    def _rectangle(self, parent: Element, place: Look, look: Look, *, hatched: bool) -> None:
        self.add(parent, "rect", {**place, **look})
        if hatched:
            self.add(parent, "rect", {**place, "fill": self.hatch})


@dataclass(frozen=True)
class Part:
    """A part of a bar: name, formula and source."""

    words: str
    colour: str
    formula: str = ""
    bytes: float = 0.0
    origin: str = ""
    hatched: bool = False
    empty: bool = False


def bytes_bar(name: str, parts: Sequence[Part], of: str, sum_words: str) -> str:
    """Return one bar of ``parts`` that fill it, and a line for each below it.

    ``of`` is what they are parts of, ``sum_words`` what the sum is.
    """
    total = added(part.bytes for part in parts)
    high = 40
    drawn = Svg(high + 10 + (len(parts) + 1) * LINE, name)
    start = 0.0
    for number, part in enumerate(parts):
        share = part.bytes / total
        amount = f"{part.words}: {format_quantity(part.bytes, 'byte', 3)}, {share_text(share)}"
        group = drawn.group([f"{amount} of {of}", f"= {part.formula}" if part.formula else "", part.origin])
        look = (
            {"fill": "none", "stroke": "currentColor", "stroke_opacity": 0.5}
            if part.empty
            else {"fill": part.colour}
        )
        drawn.bar(group, (start, share), 0.5, high - 1, look, hatched=part.hatched)
        if share * _PHONE_WIDTH > len(part.words) * _LETTER + 8:
            ink = "currentColor" if part.empty else ink_on(part.colour)
            middle = {"x": percent(start + share / 2), "text_anchor": "middle", "fill": ink}
            drawn.text(group, part.words, high / 2 + 4.5, middle)
        drawn.swatch(group, amount, high + 24 + number * LINE, look, hatched=part.hatched)
        start += share
    bottom, bold = high + 24 + len(parts) * LINE, {"x": 20, "font_weight": 600}
    drawn.text(drawn.group([sum_words]), f"total: {format_quantity(total, 'byte', 3)}", bottom, bold)
    return str(drawn)


def percent(part: float) -> str:
    """Return a part of the width as an attribute."""
    return f"{100 * part:.2f}%"


def share_text(part: float) -> str:
    """Return a share as text."""
    return f"{part:.1%}" if part < 0.0995 else f"{part:.0%}"


def ink_on(colour: str) -> str:
    """Return a legible text colour on a background colour: dark above a luminance (sRGB) threshold."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4 for channel in parts
    )
    return _DARK if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.3 else _LIGHT
