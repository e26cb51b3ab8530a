"""HTML as values: text is escaped unless it is :class:`Markup` already."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from topology.errors import printable

_VOID = {"meta", "br", "col"}


class Markup(str):
    """Text that is HTML: it is not escaped again."""

    __slots__ = ()


def element(name: str, /, *children: str | None, **attributes: str) -> Markup:
    """Return an element; ``class_`` is ``class``, other underscores are hyphens, None children are left out."""
    said = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"' for key, value in attributes.items()
    )
    if name in _VOID:
        return Markup(f"<{name}{said}>")
    return Markup(f"<{name}{said}>{join(children)}</{name}>")


def join(children: Iterable[str | None]) -> Markup:
    """Return the children one after another."""
    given = [child for child in children if child is not None]
    return Markup(
        "".join(child if isinstance(child, Markup) else escape(printable(child)) for child in given)
    )


def table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], *, words: Sequence[int] = (0,), caption: str = ""
) -> Markup:
    """Return a table: the columns numbered in ``words`` hold words, the others figures, set to the right."""

    def cell(name: str, place: int, text: str) -> Markup:
        return element(name, text) if place in words else element(name, text, class_="figure")

    head = element("tr", *(cell("th", place, text) for place, text in enumerate(columns)))
    body = [element("tr", *(cell("td", place, text) for place, text in enumerate(row))) for row in rows]
    drawn = element(
        "table",
        element("caption", caption) if caption else None,
        element("thead", head),
        element("tbody", *body),
    )
    return element("div", drawn, class_="wide")
