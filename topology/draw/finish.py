"""From the SVG that Graphviz writes to ours: names of what is drawn, a dark look, and no more bytes than it needs."""

from __future__ import annotations

import re

from topology.draw.canvas import FONT, INK, QUIET

FAMILIES = f"{FONT}, Verdana, sans-serif"
# A cell or link with a tip: Graphviz wraps it in a link, and numbers the wrapper through all drawings of the process.
_TIP = re.compile(r'<g id="a_[^"]*"><a xlink:href="([^"]*)" xlink:title="([^"]*)">(.*?)</a>', re.DOTALL)
_BOX = re.compile(r'<g id="(?:node|edge)\d+" class="(node|edge)">\s*<title>[^<]*</title>\s*')
_COMMENT = re.compile(r"<!--.*?-->\n?", re.DOTALL)
_COLOUR = re.compile(r'(fill|stroke)="(#[0-9a-f]{6}|black|white)"')
_WORDS = {"black": "#000000", "white": "#ffffff"}
_TOKENS = {"#ffffff": "--paper", INK: "--ink", QUIET: "--soft"}
"""Colours that a page around the drawing has names for."""
_LEAST, _SPAN = 0.19, 0.88
# lightness of what is white in a light picture, and how far apart black and white are in a dark one
_RGB = ((0.4122214708, 0.5363325363, 0.0514459929), (0.2119034982, 0.6806995451, 0.1073969566),
        (0.0883024619, 0.2817188376, 0.6299787005))  # fmt: skip
_LAB = ((0.2104542553, 0.7936177850, -0.0040720468), (1.9779984951, -2.4285922050, 0.4505937099),
        (0.0259040371, 0.7827717662, -0.8086757660))  # fmt: skip
_CONES = ((1.0, 0.3963377774, 0.2158037573), (1.0, -0.1055613458, -0.0638541728),
          (1.0, -0.0894841775, -1.2914855480))  # fmt: skip
_BACK = ((4.0767416621, -3.3077115913, 0.2309699292), (-1.2684380046, 2.6097574011, -0.3413193965),
         (-0.0041960863, -0.7034186147, 1.7076147010))  # fmt: skip
"""Matrices of the OKLab colour space (Ottosson 2020, https://bottosson.github.io/posts/oklab)."""

Triple = tuple[float, float, float]


def finished(svg: str) -> str:
    """Return the drawing as it is kept.

    What has a tip is a group with a ``title``; what can be named elsewhere, a GPU, node, rack, domain or switch, has
    ``data-kind`` and ``data-id`` too. Readers who asked for dark pages get dark colours: the hues stay, light and
    dark change places; paper, ink and soft ink are those of the page around it (``--paper``, ``--ink``, ``--soft``).
    """
    svg = _COMMENT.sub("", svg).replace("<title>rackplan</title>\n", "", 1)
    svg = _BOX.sub(r'<g class="\1">', _TIP.sub(_named, svg))
    svg = svg.replace(f' font-family="{FONT}"', "").replace(' xml:space="preserve" text-anchor="start"', "")
    svg = svg.replace('.00"', '"').replace(' stroke="none"', "")
    svg = svg.replace(' xmlns="', ' class="rackplan" xmlns="', 1)
    first = f'{_dark(svg)}<g id="graph0" font-family="{FAMILIES}"'
    return svg.replace('<g id="graph0"', first, 1)


def _named(found: re.Match[str]) -> str:
    """Return a group with a title for a link with a tip; its address says what it is, as ``#gpu:d0.n0.g1``."""
    kind, _, name = found[1].removeprefix("#").partition(":")
    data = f' data-kind="{kind}" data-id="{name}"' if name else ""
    return f"<g{data}><title>{found[2]}</title>{found[3].strip()}"


def _dark(svg: str) -> str:
    """Return the style that a dark screen has, a rule for each colour in use."""
    rules = []
    for what, colour in sorted(set(_COLOUR.findall(svg))):
        plain = _WORDS.get(colour, colour)
        dark, token = dark_colour(plain), _TOKENS.get(plain)
        value = f"var({token},{dark})" if token else dark
        rules.append(f'svg.rackplan [{what}="{colour}"]{{{what}:{value}}}')
    # text without a fill of its own is black
    rules.append("svg.rackplan text:not([fill]){fill:var(--ink,#e6edf3)}")
    return f"<style>@media screen and (prefers-color-scheme: dark){{{''.join(rules)}}}</style>\n"


def dark_colour(colour: str) -> str:
    """Return a colour of the same hue, as light on dark as ``colour`` (``#rrggbb``) is dark on light."""
    linear = [_linear(int(colour[at : at + 2], 16) / 255) for at in (1, 3, 5)]
    cones = [value ** (1 / 3) for value in _times(_RGB, linear)]
    light, green, blue = _times(_LAB, cones)
    back = [value**3 for value in _times(_CONES, [_LEAST + _SPAN * (1 - light), green, blue])]
    parts = [round(255 * _gamma(min(1.0, max(0.0, value)))) for value in _times(_BACK, back)]
    return "#" + "".join(f"{part:02x}" for part in parts)


def _times(matrix: tuple[Triple, Triple, Triple], vector: list[float]) -> list[float]:
    return [sum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix]


def _linear(value: float) -> float:
    return value / 12.92 if value <= 0.04045 else float(((value + 0.055) / 1.055) ** 2.4)


def _gamma(value: float) -> float:
    return value * 12.92 if value <= 0.0031308 else float(1.055 * value ** (1 / 2.4) - 0.055)
