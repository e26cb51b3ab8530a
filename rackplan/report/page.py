"""One self-contained page: style, charts and the library that draws them, with nothing to load."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from rackplan.report.html import Markup, element, join

Tile = tuple[str, str]
"""A key figure and what it is."""

POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'"
)
"""A browser that knows of it loads nothing from anywhere."""


def chart(name: str, figure: dict[str, Any], *, says: str, height: int) -> Markup:
    """Return a chart of Plotly from plain data; ``says`` stands for it where it cannot be seen."""
    data = json.dumps(figure, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    return element(
        "figure",
        element("div", class_="plot", role="img", aria_label=says, style=f"height:{height}px"),
        element("script", Markup(data), type="application/json"),
        class_="chart",
        id=f"chart-{name}",
    )


def tiles(shown: Sequence[Tile]) -> Markup:
    """Return the key figures side by side."""
    return element(
        "div",
        *(
            element("div", element("b", value), element("span", words), class_="tile")
            for value, words in shown
        ),
        class_="tiles",
    )


def page(title: str, *body: Markup | None) -> str:
    """Return the whole page."""
    from plotly.offline import get_plotlyjs

    assets = files("rackplan.report")
    style = Markup(assets.joinpath("style.css").read_text(encoding="utf-8"))
    draw = Markup(assets.joinpath("draw.js").read_text(encoding="utf-8"))
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", title),
        element("style", style),
    )
    content = join(
        [
            *body,
            element(
                "noscript", element("p", "Charts need JavaScript; every figure stands in the tables too.")
            ),
            # at the end, so that text and tables are there before the library is read
            element("script", Markup(get_plotlyjs())),
            element("script", draw),
        ]
    )
    return f"<!DOCTYPE html>\n{element('html', head, element('body', content), lang='en')}\n"
