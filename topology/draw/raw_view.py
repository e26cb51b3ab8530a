"""Nodes and links as they are, in rows by kind: a host in full, or a small cluster written out node by node."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any

from topology.cluster import Cluster
from topology.draw.canvas import (
    FAULT,
    FAULT_FILL,
    NVLINK,
    NVLINK_FILL,
    OUTLINE,
    QUIET,
    Point,
    cell,
    table,
    text_width,
)
from topology.draw.painter import Ends, Painter
from topology.draw.parts import Links, natural
from topology.units import format_quantity

MOST_NODES, MOST_EDGES = 60, 100
_ROWS = (
    ("core",),
    ("spine",),
    ("leaf", "router"),
    ("nic", "host"),
    ("pcie",),
    ("gpu",),
    ("switch",),
    ("upper",),
)
_HEIGHT, _DROP, _GAP = 44, 84, 10
_NARROWEST, _MOST_WIDE = 64, 1140
_WORDS = {
    "nic": "NIC",
    "pcie": "PCIe switch",
    "host": "host",
    "switch": "switch chip",
    "upper": "switch chip",
}


def fits(cluster: Cluster, names: Sequence[str]) -> bool:
    """Whether ``names`` and the links among them can be drawn one by one."""
    part = cluster.graph.subgraph(names)
    return len(names) <= MOST_NODES and _drawn_edges(part) <= MOST_EDGES


def nodes_of_host(painter: Painter, number: int) -> tuple[list[str], str]:
    """Return the first host of a domain with its parts, the chips and leaves next to it, and what that is in words.

    Of a host with many links, some GPUs and their links alone.
    """
    graph = painter.cluster.graph
    host = painter.fold.hosts_by_domain[number][0]
    inside = sorted((name for name, owner in painter.fold.owner.items() if owner is host), key=natural)
    gpus = [name for name in inside if name in painter.fold.number]
    shown = list(gpus)
    while True:
        parts = [name for name in inside if name in shown or name not in painter.fold.number]
        near = {other for name in parts for other in graph[name] if other in painter.fold.switches}
        names = [*parts, *sorted(near, key=natural)]
        if len(shown) <= 1 or fits(painter.cluster, names):
            break
        shown.pop()
    which = (
        f"host {host.id}"
        if len(shown) == len(gpus)
        else f"{len(shown)} of {len(gpus)} GPUs of host {host.id}"
    )
    return names, f"Drawn here: {which} and the switches next to it"


def draw_raw_view(painter: Painter, names: Sequence[str]) -> None:
    """Draw ``names`` and all links among them, kinds from top to bottom."""
    canvas, part = painter.canvas, painter.cluster.graph.subgraph(names)
    rows = _rows(painter, names)
    widest = max(_row_width(painter, row) for row in rows)
    y, where = 0.0, {}
    for row in rows:
        size = _row_width(painter, row)
        x = (widest - size) / 2
        for name in row:
            wide = _width(painter, name)
            canvas.box(_box_name(name), (x, y), (wide, _HEIGHT), _box(painter, name, wide))
            where[name] = (x + wide / 2, y + _HEIGHT / 2)
            x += wide + _GAP
        y += _HEIGHT + _DROP
    said: set[tuple[str, ...]] = set()
    broken = [ends for ends in painter.marks.broken_links if ends[0] in where and ends[1] in where]
    # the view of a part lists its links in an order of its own
    ends = [tuple(sorted(link, key=natural)) for link in part.edges]
    for a, b in sorted(ends, key=lambda link: (natural(link[0]), natural(link[1]))):
        if not _is_peer(part, a, b):
            _link(painter, (a, b), part.edges[a, b], where, said)
    for a, b in broken:
        canvas.link(_box_name(a), _box_name(b), FAULT, width=1.0, style="dashed")
        canvas.text(f"broken {a} {b}", _middle(where[a], where[b]), ["broken"], FAULT)
    painter.draw_legend((0.0, y - _DROP + 20))


def _box_name(name: str) -> str:
    """Return the name of a node's box: its id without the sign that separates ports."""
    return f"node {name}".replace(":", ";")


def _is_peer(graph: Any, a: str, b: str) -> bool:
    """Whether a link joins two GPUs: those stand in one row, so their links are counted in their boxes."""
    return bool(graph.nodes[a]["kind"] == graph.nodes[b]["kind"] == "gpu")


def _drawn_edges(graph: Any) -> int:
    """Count the links that are drawn as lines."""
    return sum(not _is_peer(graph, a, b) for a, b in graph.edges)


def _rows(painter: Painter, names: Sequence[str]) -> list[list[str]]:
    """Return the nodes of each row, in order."""
    kinds: dict[str, list[str]] = defaultdict(list)
    for name in names:
        switch = painter.fold.switches.get(name)
        kind = painter.cluster.graph.nodes[name]["kind"]
        if switch is not None:
            kind = {"chip": "switch"}.get(switch.tier, switch.tier)
        kinds[kind].append(name)
    rows = [[n for kind in row for n in sorted(kinds[kind], key=natural)] for row in _ROWS]
    return [part for row in rows if row for part in _wrapped(painter, row)]


def _wrapped(painter: Painter, row: list[str]) -> list[list[str]]:
    """Break a row that is too wide into rows of about equal length."""
    lines = ceil(_row_width(painter, row) / _MOST_WIDE)
    size = ceil(len(row) / lines)
    return [row[i : i + size] for i in range(0, len(row), size)]


def _width(painter: Painter, name: str) -> int:
    """Return the width of a node's box."""
    return max(_NARROWEST, *(text_width(line, 8, bold=True) + 10 for line in _lines(painter, name)))


def _row_width(painter: Painter, row: Sequence[str]) -> float:
    """Return the width of a row of boxes."""
    return sum(_width(painter, name) + _GAP for name in row) - _GAP


def _lines(painter: Painter, name: str) -> list[str]:
    """Return the lines in the box of a node: its name, its kind, its links to siblings."""
    graph = painter.cluster.graph
    data = graph.nodes[name]
    kind = data["kind"]
    second = _WORDS.get(kind, kind)
    words = painter.marks.of(name)[:1]
    if kind == "gpu":
        peers = [other for other in graph[name] if graph.nodes[other]["kind"] == "gpu"]
        number = painter.fold.number.get(name)  # none of one that a part of the cluster leaves out
        second = "GPU of another" if number is None else f"GPU {number}"
        if peers:
            links = Links.of(graph[name][other] for other in peers)
            return [name, f"{second}, {len(peers)} peers", links.text().partition(" = ")[0], *words]
    if kind == "switch" and painter.fold.switches[name].up.count:
        return [name, f"{painter.fold.switches[name].up.count} links up", *words]
    rail = f", rail {data['rail']}" if data.get("rail") is not None and kind in ("leaf", "nic", "gpu") else ""
    return [name, second + rail, *words]


def _box(painter: Painter, name: str, width: int) -> str:
    """Return the box of one node."""
    lines = _lines(painter, name)
    words = painter.marks.of(name)
    kind = painter.cluster.graph.nodes[name]["kind"]
    colours = {"switch": (NVLINK_FILL, NVLINK), "gpu": ("#ffffff", OUTLINE)}
    fill, line = (FAULT_FILL, FAULT) if words else colours.get(kind, ("#ececec", QUIET))
    tall = _HEIGHT // len(lines)
    inks = [FAULT if text in words[:1] else None for text in lines]
    rows = [
        [cell(text, bold=i == 0, size=8, height=tall, width=width - 4, ink=ink)]
        for i, (text, ink) in enumerate(zip(lines, inks, strict=True))
    ]
    if kind == "gpu" and painter.overlay is not None and name in painter.fold.number:
        rows = [*rows[:1], [painter.gpu(painter.fold.number[name], width - 4, 18)]]
    return table(rows, border=1, color=line, bgcolor=fill)


def _link(
    painter: Painter,
    ends: Ends,
    edge: Mapping[str, Any],
    where: Mapping[str, Point],
    said: set[tuple[str, ...]],
) -> None:
    """Draw one link; count x rate is written once for each kind of link, the factor on each degraded one."""
    a, b = ends
    links = Links.of([edge])
    graph = painter.cluster.graph
    rail = next((graph.nodes[n]["rail"] for n in ends if graph.nodes[n].get("rail") is not None), None)
    colour = NVLINK if "switch" in (graph.nodes[a]["kind"], graph.nodes[b]["kind"]) else painter.rail(rail)
    tip = f"{a} - {b}: {links.text()}"
    boxes = (_box_name(a), _box_name(b))
    painter.link(*boxes, [ends], colour=colour, width=1.4, dashed=links.degraded, tip=tip)
    key = (*sorted((graph.nodes[a]["kind"], graph.nodes[b]["kind"])), links.text())
    middle = _middle(where[a], where[b])
    if links.degraded:
        painter.canvas.text(f"slow {a} {b}", middle, [f"x {edge['health']:.3g}"], FAULT)
    elif key not in said:
        said.add(key)
        rate = format_quantity(edge["bytes_per_s"], "byte/s")
        text = links.text().partition(" = ")[0].removesuffix(" each way") if edge["count"] > 1 else rate
        painter.canvas.text(f"said {len(said)}", middle, [text], QUIET)


def _middle(a: Point, b: Point) -> Point:
    """Return the middle of a line."""
    return (a[0] + b[0]) / 2, (a[1] + b[1]) / 2
