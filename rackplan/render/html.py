"""Render blocks as a self-contained page with style, charts and the chart library."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from html import escape
from itertools import groupby
from types import UnionType

from rackplan.render.text import with_flags
from rackplan.report import assets
from rackplan.report.doc import Picture
from rackplan.views.blocks import (
    Beside,
    Block,
    Chart,
    Details,
    Drawing,
    Heading,
    Items,
    Lines,
    Page,
    Table,
    Text,
    Tiles,
)
from topology.base.errors import printable

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
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"'
        for key, value in attributes.items()
        if value
    )
    if name in _VOID:
        return Markup(f"<{name}{given}>")
    return Markup(f"<{name}{given}>{join(children)}</{name}>")


def join(children: Iterable[str | None]) -> Markup:
    """Return the children one after another."""
    given = [child for child in children if child is not None]
    shown = (child if isinstance(child, Markup) else escape(with_flags(printable(child))) for child in given)
    return Markup("".join(shown))


def page(blocks: Iterable[Block]) -> str:
    """Return the whole page; the first heading is also its title.

    Each heading of level 2 begins a section, which the list of contents at the top leads to.
    """
    shown = list(_made(blocks))
    title = next(block.text for block in shown if isinstance(block, Heading))
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", f"{title} - rackplan"),
        element("style", _asset("style.css"), Markup(assets.style())),
    )
    first, sections = _sections(shown)
    top = element("header", *_elements(first), _contents([heading.text for heading, _ in sections]))
    drawn = element("script", Markup(assets.script())) if _has(shown, Picture | Drawing) else None
    packed = element(
        "script", Markup(b64encode(assets.plotly()).decode()), id="plotly", type="application/gzip"
    )
    content = join(
        [
            element("main", top, *(_section(number, *one) for number, one in enumerate(sections))),
            element("noscript", element("p", "Charts need JavaScript; all figures are also in the tables.")),
            # at the end, so that text and tables are there before the library is read
            drawn,
            packed if _has(shown, Chart | Beside) else None,
            element("script", _asset("draw.js")),
        ]
    )
    return f"<!DOCTYPE html>\n{element('html', head, element('body', content), lang='en')}\n"


def _asset(name: str) -> Markup:
    return Markup(assets.text(name))


_LONG = 24
"""Characters of a text that a phone would else break after each word."""


def _made(blocks: Iterable[Block]) -> Iterator[Block]:
    """Yield the blocks with those that only a page shows among them, folded ones as a list."""
    for one in blocks:
        if isinstance(one, Details):
            yield from _made(one.blocks)
        elif isinstance(one, Text) and one.style == "terminal":
            continue
        elif not isinstance(one, Page):
            yield one
        elif one.fold:
            yield Page(list(_made(one.blocks)), one.fold)
        else:
            yield from _made(one.blocks)


def _has(blocks: Iterable[Block], kinds: type[Block] | UnionType) -> bool:
    return any(
        isinstance(one, kinds) or (isinstance(one, Page) and _has(one.blocks, kinds)) for one in blocks
    )


def _sections(blocks: Iterable[Block]) -> tuple[list[Block], list[tuple[Heading, list[Block]]]]:
    """Return the blocks before the first heading of level 2, then heading and blocks of each section after it."""
    first: list[Block] = []
    found: list[tuple[Heading, list[Block]]] = []
    for one in blocks:
        if isinstance(one, Heading) and one.level == 2:
            found.append((one, []))
        else:
            (found[-1][1] if found else first).append(one)
    return first, found


def _section(number: int, title: Heading, blocks: Iterable[Block]) -> Markup:
    heading = element("summary", element("h2", title.text, id=f"s{number}-title"))
    unfolded = "" if title.folded else "open"
    body = element("details", heading, *_elements(blocks), open=unfolded, class_="section")
    return element("section", body, id=f"s{number}", aria_labelledby=f"s{number}-title")


def _contents(titles: Sequence[str]) -> Markup | None:
    if len(titles) < 2:
        return None
    links = (element("li", element("a", title, href=f"#s{number}")) for number, title in enumerate(titles))
    return element("nav", element("ul", *links), aria_label="Contents")


_NOTEBOOK = """
.rackplan { max-width: 60em; line-height: 1.4; } .rackplan h4, .rackplan h5 { margin: .8em 0 .3em; }
.rackplan p { margin: .2em 0; } .rackplan .wide { overflow-x: auto; } .rackplan summary { cursor: pointer; }
.rackplan caption { text-align: left; } .rackplan th, .rackplan td { text-align: left; padding: 0 .8em 0 0; }
.rackplan .figure { text-align: right; font-variant-numeric: tabular-nums; }
"""


def fragment(blocks: Iterable[Block], drawing: str = "") -> str:
    """Return the terminal blocks as an HTML fragment for notebooks.

    What is below the second heading is folded away, and so is a drawing.
    """
    shown = [
        replace(one, level=min(one.level + 3, 6)) if isinstance(one, Heading) else one
        for one in blocks
        if isinstance(one, Heading | Text | Items | Table)
    ]
    heads = [place for place, one in enumerate(shown) if isinstance(one, Heading)]
    cut = heads[1] if len(heads) > 1 else len(shown)
    parts = list(_elements(shown[:cut]))
    if drawing:
        parts.append(element("details", element("summary", "Drawing"), _block(Drawing(drawing))))
    if shown[cut:]:
        parts.append(element("details", element("summary", "More"), *_elements(shown[cut:])))
    return element("div", element("style", Markup(_NOTEBOOK)), *parts, class_="rackplan")


def table(block: Table) -> Markup:
    """Return a table; figures are set to the right."""
    styles = dict.fromkeys(block.words, "")
    styles |= {at: "long" for at in styles if any(len(cells[at]) > _LONG for cells in block.rows)}

    def row(name: str, cells: Iterable[str]) -> Markup:
        shown = (element(name, text, class_=styles.get(place, "figure")) for place, text in enumerate(cells))
        return element("tr", *shown)

    drawn = element(
        "table",
        element("caption", element("span", block.title.rstrip(":"))) if block.title else None,
        element("thead", row("th", block.columns)),
        element("tbody", *(row("td", cells) for cells in block.rows)),
    )
    return element("div", drawn, class_="wide")


def _elements(blocks: Iterable[Block]) -> Iterator[Markup | None]:
    """Yield the blocks as elements, labelled paragraphs in a row as one table of labels and values."""
    shown = (one for one in blocks if not isinstance(one, Lines))
    for labelled, group in groupby(shown, lambda one: isinstance(one, Text) and one.label is not None):
        if labelled:
            yield _facts([one for one in group if isinstance(one, Text)])
        else:
            yield from map(_block, group)


def _facts(texts: Sequence[Text]) -> Markup:
    rows: list[tuple[str, list[str]]] = []
    for one in texts:
        if one.label or not rows:
            rows.append((one.label or "", []))
        rows[-1][1].append(one.text)
    cells = ((label, (element("div", value) for value in values)) for label, values in rows)
    drawn = (element("tr", element("th", label), element("td", *values)) for label, values in cells)
    styles = " ".join(dict.fromkeys(["facts", *(one.style for one in texts if one.style)]))
    return element("div", element("table", element("tbody", *drawn), class_=styles), class_="wide")


def _block(block: Block) -> Markup | None:
    """Return a block; None for what only a terminal shows."""
    match block:
        case Heading(text, level):
            shown = element(f"h{level}", text)
        case Text(text, _, "command"):
            shown = element("pre", element("code", text), tabindex="0", aria_label="Command")
        case Text(text, _, style):
            shown = element("p", text, class_=style)
        case Items(texts) if texts:
            shown = element("ul", *(element("li", text) for text in texts))
        case Table():
            shown = _folded(block.fold, [table(block)])
        case Chart() | Beside():
            shown = _chart(block)
        case Picture(name, says, data=data) if data:
            script = element("script", _json(data), type="application/json")
            shown = element("figure", script, class_="picture", id=f"picture-{name}", aria_label=says)
        case Picture(name, says):
            shown = element(
                "figure",
                Markup(block.drawn),
                class_="diagram",
                id=f"picture-{name}",
                role="figure",
                aria_label=says,
            )
        case Tiles(tiles):
            figures = ((element("b", value), element("span", words)) for value, words in tiles)
            each = (element("div", *figure, class_="tile") for figure in figures)
            shown = element("div", *each, class_="tiles")
        case Drawing(svg):
            # inline, without the prologue that only a file of its own may have
            shown = element("div", Markup(svg[svg.index("<svg") :]), class_="drawing")
        case Page():
            shown = _folded(block.fold, _elements(block.blocks))
        case _:
            return None
    return shown


def _folded(fold: str, inner: Iterable[Markup | None]) -> Markup:
    """Return what is within, hidden behind the words of ``fold`` where there are any."""
    return element("details", element("summary", fold), *inner) if fold else join(inner)


def _json(data: object) -> Markup:
    """Return data as a script element may hold it."""
    return Markup(json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c"))


def _chart(block: Chart | Beside) -> Markup:
    if isinstance(block, Beside):
        return element("div", *map(_chart, block.charts), class_="beside")
    return element(
        "figure",
        element("div", class_="plot", style=f"height:{block.height}px"),
        element("script", _json(block.figure.to_plotly_json()), type="application/json"),
        class_="chart",
        id=f"chart-{block.name}",
        role="figure",
        aria_label=block.says,
    )
