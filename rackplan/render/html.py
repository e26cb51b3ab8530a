"""Blocks as one self-contained page: style, charts and the library that draws them, with nothing to load."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from html import escape
from importlib.resources import files

from rackplan.render import pictures
from rackplan.render.text import with_flags
from rackplan.views.blocks import (
    Block,
    Chart,
    Drawing,
    Heading,
    Items,
    Lines,
    Page,
    Picture,
    Table,
    Text,
    Tiles,
)
from topology.errors import printable

POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'"
)
"""A browser that knows of it loads nothing from anywhere."""
_VOID = {"meta", "br", "col"}


class Markup(str):
    """Text that is HTML: it is not escaped again."""

    __slots__ = ()


def element(name: str, /, *children: str | None, **attributes: str) -> Markup:
    """Return an element; ``class_`` is ``class``, other underscores are hyphens, None children are left out.

    Text is escaped unless it is :class:`Markup` already; an empty attribute is left out.
    """
    said = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"'
        for key, value in attributes.items()
        if value
    )
    if name in _VOID:
        return Markup(f"<{name}{said}>")
    return Markup(f"<{name}{said}>{join(children)}</{name}>")


def join(children: Iterable[str | None]) -> Markup:
    """Return the children one after another."""
    given = [child for child in children if child is not None]
    shown = (child if isinstance(child, Markup) else escape(with_flags(printable(child))) for child in given)
    return Markup("".join(shown))


def page(blocks: Iterable[Block]) -> str:
    """Return the whole page; the first heading is its title too."""
    from plotly.offline import get_plotlyjs

    shown = list(blocks)
    title = next(block.text for block in shown if isinstance(block, Heading))
    assets = files("rackplan.render")
    style = Markup(assets.joinpath("style.css").read_text(encoding="utf-8"))
    draw = Markup(assets.joinpath("draw.js").read_text(encoding="utf-8"))
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", f"{title} - rackplan"),
        element("style", style, Markup(pictures.style())),
    )
    content = join(
        [
            *map(_block, shown),
            element(
                "noscript", element("p", "Charts need JavaScript; every figure stands in the tables too.")
            ),
            # at the end, so that text and tables are there before the library is read
            element("script", Markup(f"{pictures.script()}\nrackplanPictures.start(document);")),
            element("script", Markup(get_plotlyjs())),
            element("script", draw),
        ]
    )
    return f"<!DOCTYPE html>\n{element('html', head, element('body', content), lang='en')}\n"


def fragment(blocks: Iterable[Block]) -> str:
    """Return blocks as a piece of HTML for a notebook: tables and text, without style, charts and drawings."""
    return element("div", *(_block(one) for one in _still(blocks)))


def _still(blocks: Iterable[Block]) -> Iterator[Block]:
    """Yield blocks that need neither script nor style."""
    for one in blocks:
        if isinstance(one, Page):
            yield Page(list(_still(one.blocks)), one.fold)
        elif not isinstance(one, Chart | Drawing | Lines | Picture):
            yield one


def table(block: Table) -> Markup:
    """Return a table; figures are set to the right."""

    def row(name: str, cells: Iterable[str]) -> Markup:
        styles = (("" if place in block.words else "figure", text) for place, text in enumerate(cells))
        return element("tr", *(element(name, text, class_=style) for style, text in styles))

    drawn = element(
        "table",
        element("caption", block.title.rstrip(":")) if block.title else None,
        element("thead", row("th", block.columns)),
        element("tbody", *(row("td", cells) for cells in block.rows)),
    )
    return element("div", drawn, class_="wide")


def _block(block: Block) -> Markup | None:
    """Return a block; None for what only a terminal shows."""
    match block:
        case Heading(text, level):
            shown = element(f"h{level}", text)
        case Text(text, label, style):
            shown = element("p", f"{label}: {text.rstrip('.')}." if label else text, class_=style)
        case Items(texts) if texts:
            shown = element("ul", *(element("li", text) for text in texts))
        case Table():
            shown = table(block)
        case Chart():
            shown = _chart(block)
        case Picture():
            shown = _picture(block)
        case Tiles(tiles):
            figures = ((element("b", value), element("span", words)) for value, words in tiles)
            each = (element("div", *figure, class_="tile") for figure in figures)
            shown = element("div", *each, class_="tiles")
        case Drawing(svg):
            # inline, without the prologue that only a file of its own may have
            shown = element("div", Markup(svg[svg.index("<svg") :]), class_="drawing")
        case Page(blocks, fold):
            inner = [_block(one) for one in blocks]
            shown = element("details", element("summary", fold), *inner) if fold else join(inner)
        case _:
            return None
    return shown


def _picture(block: Picture) -> Markup:
    data = element("script", _json(block.data), type="application/json")
    said = {"class_": "picture", "id": f"picture-{block.name}", "data_kind": block.kind}
    return element("figure", data, **said, aria_label=block.says)


def _json(data: object) -> Markup:
    """Return data as a script element may hold it."""
    return Markup(json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c"))


def _chart(block: Chart) -> Markup:
    return element(
        "figure",
        element("div", class_="plot", role="img", aria_label=block.says, style=f"height:{block.height}px"),
        element("script", _json(block.figure), type="application/json"),
        class_="chart",
        id=f"chart-{block.name}",
    )
