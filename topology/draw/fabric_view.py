"""Several domains and the fabric between them: spine planes, leaves by rail, blocks of GPUs, downwards."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from topology.check import uplinks_of_leaf
from topology.draw.blocks import Block, choose, shorten, units_of
from topology.draw.canvas import cell, table
from topology.draw.style import INK, NVLINK, NVLINK_FILL, QUIET, each_way, switch_word
from topology.units import format_number, format_quantity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topology.draw.blocks import Unit
    from topology.draw.canvas import Canvas
    from topology.draw.painter import Painter
    from topology.spec import DomainSpec, ScaleOutSpec

__all__ = ["draw_fabric_view"]

_HEADER, _ROW = 28, 15
_GAP, _POD_GAP = 12, 26
_SPINE_HEIGHT, _LEAF_AT, _LEAF_HEIGHT, _BLOCK_AT = 40, 118, 38, 236
_MARGIN = 150
_MOST_RAIL_LINKS = 72
_PLACEHOLDER = 150
_BAND_INK = "#2f4a00"


@dataclass
class _Pod:
    """One column of the picture: blocks under one set of leaves, or in their place ``lines`` about more."""

    name: str
    x: float
    width: float
    blocks: list[tuple[Block, int]] = field(default_factory=list)
    leaves: str = ""
    lines: tuple[str, ...] = ()

    @property
    def rails(self) -> int:
        """Rails of the pod: leaves it has."""
        return max(block.columns for block, _ in self.blocks)

    @property
    def tall(self) -> int:
        """Height of its tallest block in points."""
        return max((_tall(block) for block, _ in self.blocks), default=0)


def draw_fabric_view(canvas: Canvas, painter: Painter, scale_out: ScaleOutSpec) -> None:
    """Draw all domains of the cluster and the fabric between them."""
    width = 30 if len(painter.cluster.gpus) > 9999 else 26
    units = _columns(painter, width)
    pods = [pod for unit in units for pod in unit]
    _draw_spines(canvas, scale_out, pods)
    links = sum(len(pod.blocks) * pod.rails for pod in pods if pod.blocks)
    for pod in pods:
        if pod.blocks:
            _draw_pod(canvas, painter, pod, width, bundled=links > _MOST_RAIL_LINKS)
        else:
            _draw_placeholder(canvas, pod)
    for i, pod in enumerate(pods):
        solid = scale_out.oversubscription <= 1 and pod.blocks
        canvas.link(
            f"spine:p{i}:s", f"{pod.name}:up:n", QUIET, width=2.0, style="solid" if solid else "dashed"
        )
    for unit in units:
        _draw_shared_band(canvas, unit)
    _draw_tiers(canvas, scale_out)
    legend = painter.legend()
    if legend:
        canvas.box("legend", (_MARGIN, _BLOCK_AT + max(pod.tall for pod in pods) + 44), (420, 20), legend)


def _columns(painter: Painter, cell_width: int) -> list[list[_Pod]]:
    """Choose what is open and give every pod its place; one list for each unit drawn open, or left out."""
    overlay = painter.overlay is not None
    columns: list[list[_Pod]] = []
    x = float(_MARGIN)
    for unit, more, opened in choose(units_of(painter.cluster), overlay=overlay):
        column: list[_Pod] = []
        for number in unit.pods[:opened]:
            blocks = [shorten(block, overlay=overlay) for block in unit.blocks if block.pod == number]
            wide = sum(_wide(block, cell_width) + _GAP for block, _ in blocks) - _GAP
            column.append(_Pod(f"pod{number}", x, wide, blocks))
            x += wide + _POD_GAP
        hidden = unit.pods[opened:]
        if hidden:
            column.append(_hidden_racks(unit, hidden, x))
            x += _PLACEHOLDER + _POD_GAP
        columns.append(column)
        if more:
            columns.append([_more_units(painter, more, x, same=all(u.shape == unit.shape for u in more))])
            x += _PLACEHOLDER + _POD_GAP
    return columns


def _hidden_racks(unit: Unit, hidden: Sequence[int], x: float) -> _Pod:
    """Return the placeholder for the pods of a large domain that are not drawn."""
    gpus = sum(block.gpus for block in unit.blocks if block.pod in hidden)
    domains = f"d{unit.domains[0]}"
    lines = (f"{len(hidden)} more pods of {domains}", "same domain", f"{gpus} GPUs")
    return _Pod(
        f"hidden{unit.domains[0]}", x, _PLACEHOLDER, leaves=f"leaves of {len(hidden)} more pods", lines=lines
    )


def _more_units(painter: Painter, more: Sequence[Unit], x: float, *, same: bool) -> _Pod:
    """Return the placeholder for units that are not drawn."""
    domains = [d for unit in more for d in unit.domains]
    several = len(domains) > 1
    lines = [
        f"{len(domains)} more domain{'s' if several else ''}",
        "same shape" if same else "of other shapes",
        f"d{domains[0]} to d{domains[-1]}" if several else f"d{domains[0]}",
        f"{sum(unit.gpus for unit in more)} GPUs",
    ]
    if painter.overlay is not None:
        rows = [row for unit in more for block in unit.blocks for _, row in block.rows]
        values = [painter.overlay.values[i] for row in rows for i in row]
        lines.append(f"{format_number(min(values))} to {format_number(max(values))}")
    pods = len({pod for unit in more for pod in unit.pods})
    leaves = f"leaves of {pods} more pod{'s' if pods > 1 else ''}"
    return _Pod(f"more{domains[0]}", x, _PLACEHOLDER, leaves=leaves, lines=tuple(lines))


def _wide(block: Block, cell_width: int) -> int:
    """Width of a block in points."""
    return max(_HEADER + block.columns * (cell_width + 1) + 4, 130)


def _tall(block: Block) -> int:
    """Height of a block in points."""
    return 36 + len(block.rows) * _ROW + (28 if _whole(block) else 0)


def _whole(block: Block) -> bool:
    """Whether the block holds whole domains, and so shows what joins them."""
    return block.single or block.gpus == block.domain.gpus


def _draw_spines(canvas: Canvas, scale_out: ScaleOutSpec, pods: list[_Pod]) -> None:
    """Draw the spine planes as one bar over all pods, with a port above the middle of each pod."""
    # Half a gap more at both ends: every port's cell is then centred on its pod.
    bounds = [pod.x - _POD_GAP / 2 for pod in pods] + [pods[-1].x + pods[-1].width + _POD_GAP / 2]
    ports = [
        cell("", width=round(b - a), height=3, port=f"p{i}") for i, (a, b) in enumerate(pairwise(bounds))
    ]
    planes = f"{scale_out.spines} spine plane{'s' if scale_out.spines > 1 else ''}"
    names = f"f.s0 to f.s{scale_out.spines - 1}" if scale_out.spines > 1 else "f.s0"
    title = cell(f"{planes} ({names})", bold=True, colspan=len(pods), height=_SPINE_HEIGHT - 8)
    html = table([[title], ports], border=1, color=QUIET, bgcolor="#ececec")
    canvas.box("spine", (bounds[0], 0), (bounds[-1] - bounds[0], _SPINE_HEIGHT), html)


def _draw_pod(canvas: Canvas, painter: Painter, pod: _Pod, cell_width: int, *, bundled: bool) -> None:
    """Draw the leaves and blocks of one pod, and the links of each rail."""
    alone = len(pod.blocks) == 1
    indent = [cell("", width=_HEADER)] if alone else []
    columns = pod.rails + len(indent)
    number = pod.name.removeprefix("pod")
    leaves = [painter.rail_cell(r, cell_width, f"l{r}", port=f"l{r}", height=16) for r in range(pod.rails)]
    rows = [
        [cell(f"leaves f.p{number}", colspan=columns, height=14, size=8, port="up")],
        [*indent, *leaves],
        [cell("", colspan=columns, height=1, port="foot")],
    ]
    wide = pod.width if alone else pod.rails * (cell_width + 1) + 6
    html = table(rows, border=1, color=QUIET, bgcolor="#ffffff", cellspacing=1, width=round(wide))
    canvas.box(pod.name, (pod.x + (pod.width - wide) / 2, _LEAF_AT), (wide, _LEAF_HEIGHT), html)
    x = pod.x
    for b, (block, left) in enumerate(pod.blocks):
        name, wide = f"{pod.name}.b{b}", _wide(block, cell_width)
        canvas.box(name, (x, _BLOCK_AT), (wide, _tall(block)), _block(painter, block, left, cell_width))
        x += wide + _GAP
        if bundled:
            canvas.link(f"{pod.name}:foot:s", f"{name}:head:n", QUIET, width=3.0)
            continue
        for r in range(block.columns):
            canvas.link(f"{pod.name}:l{r}:s", f"{name}:r{r}:n", painter.rail(r), width=1.5)


def _block(painter: Painter, block: Block, left: int, cell_width: int) -> str:
    """Return the grid of one block: its rails above, its scale-up band below if it is a whole domain."""
    columns = block.columns
    rails = [painter.rail_cell(r, cell_width, f"r{r}", port=f"r{r}", height=13) for r in range(columns)]
    rows = [[cell("", width=_HEADER, port="head"), *rails]]
    title = f"{len(block.rows) + left} x {block.title}" if block.single else block.title
    rows.append([cell(title, bold=True, colspan=columns + 1, height=_ROW)])
    for header, gpus in block.rows:
        rows.append([cell(header, width=_HEADER, size=8), *(painter.gpu(i, cell_width) for i in gpus)])
    if left:
        rows.append([cell(f"{left} more rows of the same shape", colspan=columns + 1, height=_ROW, size=8)])
    if _whole(block):
        rows += [
            [cell(line, colspan=columns + 1, height=13, bgcolor=NVLINK_FILL, size=8, ink=_BAND_INK)]
            for line in _band_lines(block.domain, single=block.single)
        ]
    return table(
        rows, border=1, color=NVLINK, bgcolor="#ffffff", cellspacing=1, width=_wide(block, cell_width)
    )


def _band_lines(domain: DomainSpec, *, single: bool) -> list[str]:
    """Return what joins the GPUs of a domain, in two short lines."""
    chips = f"{len(domain.links_per_switch)} {switch_word(domain)}s"
    rate = f"{format_quantity(domain.scale_up_bytes_per_s, 'byte/s')} each way per GPU"
    return [f"each row is a domain: {chips}" if single else chips, rate]


def _draw_shared_band(canvas: Canvas, unit: list[_Pod]) -> None:
    """Draw one band under the blocks of a domain that is spread over several."""
    blocks = [block for pod in unit for block, _ in pod.blocks]
    if not blocks or _whole(blocks[0]):
        return
    domain, first, last = blocks[0].domain, unit[0], unit[-1]
    text = f"one domain of {domain.gpus} GPUs: {', '.join(_band_lines(domain, single=False))}"
    wide = last.x + last.width - first.x
    html = table(
        [[cell(text, width=round(wide), height=18, bold=True, ink=_BAND_INK)]],
        border=1,
        color=NVLINK,
        bgcolor=NVLINK_FILL,
    )
    canvas.box(
        f"{first.name}.band", (first.x, _BLOCK_AT + max(pod.tall for pod in unit) + 8), (wide, 20), html
    )


def _draw_placeholder(canvas: Canvas, pod: _Pod) -> None:
    """Draw a dashed box for what is not drawn open."""
    dashed = {"border": 1, "style": "dashed", "bgcolor": "#ffffff"}
    inside = round(pod.width) - 8
    head = [[cell(pod.leaves, width=inside, height=_LEAF_HEIGHT - 4, port="up", size=8)]]
    canvas.box(pod.name, (pod.x, _LEAF_AT), (pod.width, _LEAF_HEIGHT), table(head, color=QUIET, **dashed))
    rows = [[cell("", height=8, port="head")]]
    rows += [[cell(line, bold=i == 0, width=inside, height=_ROW)] for i, line in enumerate(pod.lines)]
    body = table([*rows, [cell("", height=8)]], color=NVLINK, **dashed)
    canvas.box(f"{pod.name}.b", (pod.x, _BLOCK_AT), (pod.width, 16 + _ROW * len(pod.lines)), body)
    canvas.link(f"{pod.name}:up:s", f"{pod.name}.b:head:n", QUIET, width=2.0, style="dashed")


def _draw_tiers(canvas: Canvas, scale_out: ScaleOutSpec) -> None:
    """Write what each tier is, and the links between tiers, once, at the left."""
    up = each_way(uplinks_of_leaf(scale_out), scale_out.fabric)
    nic = each_way(scale_out.nic_links_per_gpu, scale_out.fabric)
    over = scale_out.oversubscription
    ratio = "not oversubscribed" if over <= 1 else f"oversubscribed {format_number(over)} : 1"
    texts = [
        (_SPINE_HEIGHT / 2, ["spine"], INK),
        ((_SPINE_HEIGHT + _LEAF_AT) / 2, ["each leaf, up:", *_broken(up), ratio], QUIET),
        (_LEAF_AT + _LEAF_HEIGHT / 2, ["leaf, one per rail"], INK),
        ((_LEAF_AT + _LEAF_HEIGHT + _BLOCK_AT) / 2, ["each GPU to its rail:", *_broken(nic)], QUIET),
        (_BLOCK_AT + 24, ["GPUs by domain", "and node"], INK),
    ]
    for i, (y, lines, ink) in enumerate(texts):
        canvas.text(f"tier{i}", (62, y), lines, ink)


def _broken(text: str) -> list[str]:
    """Break "a x b = c" before the sign, to fit the margin."""
    left, sign, right = text.partition(" = ")
    return [left, f"= {right}"] if sign else [left]
