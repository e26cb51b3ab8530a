"""One large domain: hosts or racks as grids of GPU cells around the band of switch chips that joins them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from topology.draw.blocks import rack_blocks
from topology.draw.canvas import cell, table
from topology.draw.style import NVLINK, NVLINK_FILL, each_way, switch_word
from topology.units import format_quantity

if TYPE_CHECKING:
    from topology.draw.blocks import Block
    from topology.draw.canvas import Canvas
    from topology.draw.painter import Painter
    from topology.spec import DomainSpec

__all__ = ["draw_domain_view"]

_CELL, _HEADER, _ROW = 24, 28, 16
_GAP, _REACH = 14, 34
_BAND_HEIGHT = 74
_MOST_RACKS = 16


def draw_domain_view(canvas: Canvas, painter: Painter) -> None:
    """Draw the first domain of the cluster: trays where it is one rack, racks where it is several."""
    domain = painter.cluster.spec.domains[0]
    racks = rack_blocks(painter.cluster)
    grids = _rack_grids(painter, racks) if len(racks) > 1 else _tray_grids(painter, domain)
    per_row = -(-len(grids) // 2) if len(grids) > 4 else len(grids)
    above, below = grids[:per_row], grids[per_row:]
    width = per_row * (grids[0][1] + _GAP)  # half a gap more on each side: ports stand in line with grids
    top = max(height for _, _, height, _, _ in above)
    band_at = top + _REACH
    canvas.box(
        "band", (-_GAP / 2, band_at), (width, _BAND_HEIGHT), _band(domain, per_row, width, bool(below))
    )
    for row, y, side in ((above, None, "t"), (below, band_at + _BAND_HEIGHT + _REACH, "b")):
        for column, (name, wide, tall, html, links) in enumerate(row):
            at = (column * (wide + _GAP), top - tall if y is None else y)
            canvas.box(name, at, (wide, tall), html)
            ends = (
                (f"{name}:foot:s", f"band:t{column}:n")
                if side == "t"
                else (f"band:b{column}:s", f"{name}:head:n")
            )
            canvas.link(*ends, NVLINK, width=1.0 + min(4.0, links / 72))
    bottom = band_at + _BAND_HEIGHT + (_REACH + max((g[2] for g in below), default=-_REACH))
    legend = painter.legend()
    if legend:
        canvas.box("legend", (0, bottom + 20), (420, 20), legend)


Grid = tuple[str, int, int, str, int]


def _tray_grids(painter: Painter, domain: DomainSpec) -> list[Grid]:
    """Return one grid for each host: its GPUs in rows of four."""
    size = domain.gpus_per_node
    columns = min(size, 4)
    grids: list[Grid] = []
    width = columns * (_CELL + 1) + 8
    for host in range(domain.gpus // size):
        numbers = list(range(host * size, (host + 1) * size))
        lines = [numbers[i : i + columns] for i in range(0, size, columns)]
        rows = [[cell(f"node {host}", bold=True, colspan=columns, height=_ROW, port="head")]]
        rows += [[painter.gpu(i, _CELL, 20) for i in line] for line in lines]
        if painter.overlay is None and size == columns:
            rows.append([painter.rail_cell(c, _CELL, f"r{c}", height=12) for c in range(columns)])
        rows.append([cell("", colspan=columns, height=2, port="foot")])
        height = 2 * _ROW + 20 * len(lines) + 8
        html = table(rows, border=1, color="#8a8a8a", bgcolor="#ffffff", cellspacing=1)
        grids.append((f"d0.n{host}", width, height, html, size * domain.links_per_gpu))
    return grids


def _rack_grids(painter: Painter, racks: list[Block]) -> list[Grid]:
    """Return one grid for each rack: a row for each host, a column for each GPU in it."""
    drawn = racks if len(racks) <= _MOST_RACKS else racks[: _MOST_RACKS - 1]
    grids = [_rack_grid(painter, f"d0.r{r}", block) for r, block in enumerate(drawn)]
    left = len(racks) - len(drawn)
    if left:
        _, wide, tall, _, links = grids[0]
        rows = [
            [cell("", height=2, port="head")],
            [cell(f"{left} more racks", width=wide - 4, bold=True)],
            [cell(f"{sum(block.gpus for block in racks[len(drawn) :])} GPUs")],
            [cell("", height=2, port="foot")],
        ]
        grids.append(("more", wide, tall, table(rows, border=1, style="dashed", height=tall), links * left))
    return grids


def _rack_grid(painter: Painter, name: str, block: Block) -> Grid:
    """Return the grid of one rack."""
    columns = block.columns
    wide = _HEADER + columns * (_CELL + 1) + 6
    tall = (len(block.rows) + 2) * (_ROW - 1) + 8
    rows = [[cell(block.title, bold=True, colspan=columns + 1, height=_ROW, port="head")]]
    rails = [painter.rail_cell(c, _CELL, f"r{c}") for c in range(columns)]
    rows.append([cell("", width=_HEADER), *rails])
    for header, gpus in block.rows:
        rows.append([cell(header, width=_HEADER, size=8), *(painter.gpu(i, _CELL) for i in gpus)])
    rows.append([cell("", colspan=columns + 1, height=1, port="foot")])
    html = table(rows, border=1, color="#8a8a8a", bgcolor="#ffffff", cellspacing=1)
    return name, wide, tall, html, block.gpus * block.domain.links_per_gpu


def _band(domain: DomainSpec, columns: int, width: int, both: bool) -> str:
    """Return the band of switch chips; the ports on its edges are where links land."""
    links = Counter(domain.links_per_switch)
    chips = " + ".join(
        f"{count} {switch_word(domain)}s with {each} link{'s' if each > 1 else ''} of every GPU"
        for each, count in links.items()
    )
    part = width // columns
    rate = format_quantity(domain.gpus * domain.scale_up_bytes_per_s, "byte/s")
    lines = [
        chips,
        f"each GPU {each_way(domain.links_per_gpu, domain.fabric)}; all {domain.gpus} GPUs {rate} each way",
    ]
    rows = [[cell("", width=part, height=4, port=f"t{c}") for c in range(columns)]]
    rows.append([cell(lines[0], colspan=columns, bold=True, height=22, size=11)])
    rows.append([cell(lines[1], colspan=columns, height=18)])
    ports = {f"b{c}": c for c in range(columns)}
    rows.append([cell("", width=part, height=4, **({"port": name} if both else {})) for name in ports])
    return table(rows, border=2, color=NVLINK, bgcolor=NVLINK_FILL, width=width)
