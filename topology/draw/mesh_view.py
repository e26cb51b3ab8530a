"""One full-mesh domain: GPUs in a circle, a line for each pair; many GPUs as a grid with one line of words."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from math import cos, pi, sin
from typing import Any

from topology.draw.canvas import Canvas, cell, table
from topology.draw.domain_view import draw_domain_view
from topology.draw.links import Links
from topology.draw.painter import Painter, Place
from topology.draw.style import FAULT, FAULT_FILL, NVLINK

MOST_IN_CIRCLE = 12
_WIDTH, _HEIGHT = 92, 50


def draw_mesh_view(canvas: Canvas, painter: Painter, number: int) -> None:
    """Draw one domain whose GPUs are linked to each other."""
    places = [place for host in painter.fold.hosts_by_domain[number] for place in painter.places(host)]
    if len(places) > MOST_IN_CIRCLE:
        draw_domain_view(canvas, painter, number)
        return
    across, down = max(190.0, 34.0 * len(places)), max(130.0, 22.0 * len(places))
    middles = {}
    for g, place in enumerate(places):
        angle = 2 * pi * (g + 0.5) / len(places) - pi / 2
        middle = (
            across + across * sin(angle + pi / 2) + _WIDTH / 2,
            down - down * cos(angle + pi / 2) + _HEIGHT / 2,
        )
        middles[g] = middle
        corner = (middle[0] - _WIDTH / 2, middle[1] - _HEIGHT / 2)
        canvas.box(f"gpu{g}", corner, (_WIDTH, _HEIGHT), _gpu(painter, place))
    for a, b in combinations(range(len(places)), 2):
        _pair(canvas, painter, (a, b), (places[a], places[b]), middles)
    painter.draw_legend(canvas, (0.0, 2 * down + _HEIGHT + 20))


def _pair(
    canvas: Canvas,
    painter: Painter,
    ends: tuple[int, int],
    places: tuple[Place, Place],
    middles: dict[int, tuple[float, float]],
) -> None:
    """Draw the links between two GPUs; what is not as built is red or dashed, with a word."""
    one, two = places
    if not isinstance(one, int) or not isinstance(two, int):
        return
    a, b = painter.cluster.gpus[one].id, painter.cluster.gpus[two].id
    edge: Mapping[str, Any] | None = painter.cluster.graph.get_edge_data(a, b)
    colour, width, word = NVLINK, 1.4, ""
    links = Links()
    if edge is None:
        colour, word = FAULT, "broken"
    else:
        links.add(edge)
        word = f"x {edge['health']:.3g}" if edge["health"] < 1 else ""
        if painter.usage is not None:
            share = painter.usage.share(a, b)
            colour, width = painter.usage.colour(share), painter.usage.width(share)
            if painter.usage.holds_bottleneck([(a, b)]):
                colour = FAULT
    style = "dashed" if word else "solid"
    canvas.link(
        f"gpu{ends[0]}", f"gpu{ends[1]}", colour, width=width, style=style, tip=f"{a} - {b}: {links.text()}"
    )
    if word:
        (x1, y1), (x2, y2) = middles[ends[0]], middles[ends[1]]
        canvas.text(f"word{ends[0]}.{ends[1]}", (x1 + (x2 - x1) * 0.38, y1 + (y2 - y1) * 0.38), [word], FAULT)


def _gpu(painter: Painter, place: Place) -> str:
    """Return the box of one GPU."""
    inside = _WIDTH - 2
    if isinstance(place, str):
        rows = [[cell(place, bold=True, width=inside, height=24, ink=FAULT)]]
        rows.append([cell("out of service", ink=FAULT, height=24)])
        return table(rows, border=1, color=FAULT, bgcolor=FAULT_FILL)
    gpu = painter.cluster.gpus[place]
    words = painter.marks.of(gpu.id)
    if painter.overlay is None:
        last = cell(
            f"{painter.fold.gpu_links[place].count} links",
            width=inside,
            height=16,
            ink=FAULT if words else None,
        )
    else:
        last = painter.gpu(place, inside, 18)
    rows = [
        [cell(f"GPU {place} {painter.tag([place])}".strip(), bold=True, width=inside, height=16)],
        [cell(gpu.id, size=8, height=13)],
        [last],
    ]
    return table(rows, border=1, color=FAULT if words else "#8a8a8a", bgcolor="#ffffff")
