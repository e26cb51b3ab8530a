"""Domains of several clusters side by side, to one scale: GPUs, rates inside and outside, memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from math import isfinite, isnan

from topology.base.units import format_number, format_quantity, plural
from topology.cluster import Cluster
from topology.draw import palette
from topology.draw.canvas import TEXT_POINTS, Canvas, Point, cell, in_lines, table, text_width
from topology.draw.captions import kind_title, rate_text
from topology.structures.domain import DomainSpec

_SQUARE, _SPACE, _MAX_ROWS, _LINE, _APART = 8, 2, 18, 16, 44
_LONGEST_BAR, _BAR = 170, 8


def generations_source(clusters: Sequence[Cluster]) -> str:
    """Return a picture of one domain of each kind in each cluster as DOT source.

    Squares are GPUs, as many to the inch everywhere; bars are rates of one GPU each way.
    """
    canvas = Canvas("One domain of each, to one scale")
    canvas.subtitles = [
        "A square is a GPU, green what joins a domain; bars are the rates of one GPU each way."
    ]
    domains = [(cluster, domain) for cluster in clusters for domain in dict.fromkeys(cluster.spec.domains)]
    rates = [rate for pair in domains for _, rate in _rates(*pair) if isfinite(rate)]
    scale = _LONGEST_BAR / max(rates, default=1.0)
    corners = in_lines([(_width(*pair), 1.0) for pair in domains], (_APART, 0))
    y = 0.0
    # equal places from the top are one line
    for _, run in groupby(zip(corners, domains, strict=True), key=lambda row: row[0][1]):
        line = list(run)
        tall = max(_grid_size(domain)[1] for _, (_, domain) in line)
        ends = [_draw(canvas, (x, y), tall, *pair, scale) for (x, _), pair in line]
        y = max(ends) + _LINE
    return canvas.source()


def _draw(
    canvas: Canvas, at: Point, tall: float, cluster: Cluster, domain: DomainSpec, scale: float
) -> float:
    """Draw one domain below and right of ``at``: its name, its GPUs, its rates in points by ``scale``, its use.

    What is under the GPUs begins ``tall`` points below their top. Returns where it ends.
    """
    x, y = at
    name = f"{x:.0f} {y:.0f} "
    canvas.note(f"{name}title", (x, y), _title(cluster, domain), points=TEXT_POINTS)
    y += _LINE * 2 + 6
    columns, rows = _shape(domain)
    wide = _grid_size(domain)[0] / columns
    square = cell("", width=_SQUARE, height=_SQUARE, bgcolor="#ffffff")
    for column in range(columns):
        hosts = min(rows, domain.nodes - column * rows)
        rack = table([[square] * domain.gpus_per_node] * hosts, cellspacing=_SPACE, bgcolor=palette.NVLINK)
        size = wide - _SPACE, hosts * (_SQUARE + _SPACE) + _SPACE
        canvas.box(f"{name}column{column}", (x + 2 + column * wide, y), size, rack)
    y += tall + 10
    for words, rate in _rates(cluster, domain):
        canvas.note(f"{name}{words}", (x, y), [f"{words} {rate_text(rate)} per {domain.gpu.noun}"])
        y += _LINE
        if isfinite(rate):
            colour = palette.NVLINK if words == "inside" else palette.OUTLINE
            long = max(1.0, rate * scale)
            bar = table([[cell("", width=round(long), height=_BAR, bgcolor=colour)]])
            canvas.box(f"{name}{words} bar", (x + 2, y), (long, _BAR), bar)
        y += _BAR + 6
    lines = _words(cluster, domain)
    canvas.note(f"{name}words", (x, y), lines)
    return y + _LINE * len(lines)


def _title(cluster: Cluster, domain: DomainSpec) -> list[str]:
    """Return the name of a cluster, and what a domain of it is."""
    count = cluster.spec.domains.count(domain)
    of = f"one of {count:,} domains: " if count > 1 else ""
    status = domain.status.partition(",")[0]
    unbuilt = f", {status}" if status in ("announced", "blackboard", "hypothetical") else ""
    return [cluster.name, f"{of}{kind_title(domain)}{unbuilt}"]


def _rates(cluster: Cluster, domain: DomainSpec) -> list[tuple[str, float]]:
    """Return the rates of one GPU inside a domain and outside, as far as there are any."""
    out = cluster.spec.scale_out
    inside = [("inside", domain.scale_up_bytes_per_s)] if domain.gpus > 1 else []
    return [*inside, *([("outside", out.scale_out_bytes_per_s)] if out is not None else [])]


def _words(cluster: Cluster, domain: DomainSpec) -> list[str]:
    """Return what a domain is good for: how many GPUs work as one, how much slower others are, memory."""
    noun, gpu = domain.gpu.noun, domain.gpu
    lines = [f"experts and tensors over up to {plural(domain.gpus, noun)}"]
    ratio = None if cluster.spec.scale_out is None else cluster.spec.scale_out.slower_than(domain)
    if ratio is not None and domain.gpus > 1:
        lines.append(f"outside {format_number(ratio)} times slower")
    for figure, unit, words in (
        ("hbm_bytes", "byte", f"of {gpu.memory}"),
        ("hbm_bytes_per_s", "byte/s", "from memory"),
        ("bf16_flop_per_s", "flop/s", "BF16 dense"),
    ):
        known = gpu.figures.get(figure)
        if known is not None and not isnan(known.value):
            lines.append(f"{format_quantity(domain.gpus * known.value, unit, 3)} {words}")
    return lines


def _width(cluster: Cluster, domain: DomainSpec) -> float:
    """Return the width of one domain with its words."""
    rates = (f"{words} {rate_text(rate)} per {domain.gpu.noun}" for words, rate in _rates(cluster, domain))
    texts: Iterable[str] = (*_title(cluster, domain), *rates, *_words(cluster, domain))
    return max(_grid_size(domain)[0], _LONGEST_BAR, *(text_width(text, TEXT_POINTS) for text in texts))


def _shape(domain: DomainSpec) -> tuple[int, int]:
    """Return how many columns of hosts a domain has, and how many rows: a rack a column where it is one."""
    rows = min(domain.nodes, domain.nodes_in_rack if domain.nodes_in_rack > 1 else _MAX_ROWS, _MAX_ROWS)
    if domain.nodes > rows * 8:
        rows = _MAX_ROWS
    return -(-domain.nodes // rows), rows


def _grid_size(domain: DomainSpec) -> Point:
    """Return the width and the height of the squares of a domain, with space around each column."""
    columns, rows = _shape(domain)
    pitch = _SQUARE + _SPACE
    return columns * (domain.gpus_per_node * pitch + 2 * _SPACE), rows * pitch + _SPACE
