"""The leaves (or routers) of a pod as a box: a cell each, in line with the rails below where they are rails."""

from __future__ import annotations

from topology.draw.canvas import cell
from topology.draw.metrics import fitting, text_width
from topology.draw.painter import Painter
from topology.draw.parts import Pod, Switch
from topology.draw.sheet import Sheet
from topology.draw.style import FAULT, FAULT_FILL, QUIET
from topology.draw.words import common_head, ids_text, plural

_POINTS = 8
_MOST_CELLS = 16


def leaf_box(
    painter: Painter, pod: Pod, inner: float, cell_width: int, rails: tuple[int, int] | None
) -> tuple[str, float, float]:
    """Return the table of the leaves of a pod, its width and height.

    ``inner`` is the width of what stands below; ``rails`` the width of its row headers and how many rails it has,
    None where the leaves are not to stand in line with rails.
    """
    leaves = pod.leaves
    if not leaves:
        return _no_leaf(inner)
    title, local = _title(leaves), _local(leaves)
    names = [leaf.id for leaf in leaves]
    texts = [title, local, *painter.marks.lines(names)]
    wide = float(max(70, *(text_width(text, _POINTS) + 10 for text in texts)))
    if rails is not None:
        wide = inner
        rows, span = [_rail_row(painter, leaves, cell_width, *rails)], rails[1] + 1
    else:
        rows, span, wide = _plain_rows(painter, leaves, cell_width, max(wide, min(inner, 300)))
    sheet = Sheet(wide)
    title = fitting(title, wide - 6, _POINTS) if rails else title
    sheet.add([cell(title, colspan=span, height=14, size=_POINTS, port="up", width=round(wide) - 4)], 14)
    sheet.add_all(rows, 16)
    word = "router" if leaves[0].tier == "router" else "leaf"
    left = len(leaves) - _MOST_CELLS
    for text in (f"and {plural(left, word)} more" if left > 0 and not rails else "", local):
        if text:
            sheet.add([cell(text, colspan=span, size=_POINTS, height=12)], 12)
    sheet.add_all(painter.fault_rows(names, span, width=wide - 8), 12)
    sheet.add([cell("", colspan=span, height=1, port="foot")], 1)
    return sheet.html(color=QUIET), wide, sheet.height


def leaf_port(name: str) -> str:
    """Return the port of a leaf's cell: its id without what separates a port from a box."""
    return f"l {name}".replace(":", ";")


def _rail_row(painter: Painter, leaves: list[Switch], cell_width: int, header: int, rails: int) -> list[str]:
    """Return a cell for the leaf of each rail, red where a rail has none."""
    by_rail = {leaf.rail: leaf for leaf in leaves}
    cells = [cell("", width=header)]
    for rail in range(rails):
        leaf = by_rail.get(rail)
        if leaf is None:
            cells.append(cell("none", width=cell_width, height=16, ink=FAULT, size=_POINTS))
            continue
        name = _short(leaf, leaves)
        fits = text_width(name, _POINTS) <= cell_width
        cells.append(_leaf(painter, leaf, name if fits else f"l{rail}", cell_width))
    return cells


def _plain_rows(
    painter: Painter, leaves: list[Switch], cell_width: int, wide: float
) -> tuple[list[list[str]], int, float]:
    """Return rows of cells, how many cells a row has, and the width; a single leaf has no cell."""
    shown = leaves[:_MOST_CELLS] if len(leaves) > 1 else []
    names = [_short(leaf, leaves) for leaf in shown]
    size = max([cell_width, *(text_width(name, _POINTS) + 4 for name in names)])
    per_row = max(1, min(len(shown), int(max(wide, 150) // (size + 1))))
    wide = max(
        wide if len(shown) > 1 else 0.0, text_width(_title(leaves), _POINTS) + 10, per_row * (size + 1) + 3
    )
    wide = max(
        wide, *(text_width(line, _POINTS) + 10 for line in ["", *painter.marks.lines(x.id for x in leaves)])
    )
    size = (round(wide) - 3) // per_row - 1
    cells = [_leaf(painter, leaf, name, size) for leaf, name in zip(shown, names, strict=True)]
    return [cells[i : i + per_row] for i in range(0, len(cells), per_row)], per_row, wide


def _leaf(painter: Painter, leaf: Switch, name: str, width: int) -> str:
    """Return the cell of one leaf: in the colour of its rail, red where something is wrong with it."""
    port = leaf_port(leaf.id)
    words = painter.marks.of(leaf.id)
    if not words:
        return painter.rail_cell(leaf.rail, width, name, port=port, height=16)
    style = {"bgcolor": FAULT_FILL, "ink": FAULT, "border": 1, "color": FAULT, "size": _POINTS}
    tip = "; ".join([leaf.id, *words])
    return cell(name, width=width, height=16, port=port, tooltip=tip, href="#", **style)


def _no_leaf(inner: float) -> tuple[str, float, float]:
    """Return what stands in the place of leaves where there are none."""
    sheet = Sheet(inner)
    text = "no link to the fabric"
    sheet.add([cell(text, width=round(inner) - 4, port="up", size=_POINTS, height=14, ink=FAULT)], 14)
    sheet.add([cell("", height=1, port="foot")], 1)
    return sheet.html(color=QUIET), inner, sheet.height


def _short(leaf: Switch, leaves: list[Switch]) -> str:
    """Return the name of a leaf without what all of them have in common."""
    head = common_head([one.id for one in leaves])
    return leaf.id.removeprefix(f"{head}.") if head else leaf.id


def _title(leaves: list[Switch]) -> str:
    """Return what the leaves are, together."""
    word = "router" if leaves[0].tier == "router" else "leaf"
    if len(leaves) == 1:
        return f"{word} {leaves[0].id}"
    head = common_head([leaf.id for leaf in leaves])
    several = plural(len(leaves), word).partition(" ")[2]
    return f"{several} {head}" if head else ids_text([leaf.id for leaf in leaves])


def _local(leaves: list[Switch]) -> str:
    """Return the links of each router to the others of its group."""
    links = leaves[0].side
    return f"each to the others: {links.text().removesuffix(' each way')}" if links.count else ""
