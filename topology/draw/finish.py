"""From the SVG that Graphviz writes to ours: names of what is drawn, a dark look, and no more bytes than it needs."""

from __future__ import annotations

import re
from colorsys import hls_to_rgb, rgb_to_hls

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
_LEAST, _SPAN = 0.12, 0.82
"""Lightness of what is white in a light picture, and how far apart black and white are in a dark one."""


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
    red, green, blue = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    hue, light, saturation = rgb_to_hls(red, green, blue)
    parts = hls_to_rgb(hue, _LEAST + _SPAN * (1 - light), saturation)
    return "#" + "".join(f"{round(255 * part):02x}" for part in parts)
