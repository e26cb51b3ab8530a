"""One switched domain: hosts or racks as grids of GPU cells around the band of switch chips that joins them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from math import isnan

from topology.draw.blocks import Block, add_rows, by_shape, header_width, rack_blocks
from topology.draw.canvas import (
    BAND_INK,
    FAULT,
    NVLINK,
    NVLINK_FILL,
    OUTLINE,
    Point,
    Sheet,
    cell,
    fitting,
    table,
    text_width,
    wrapped,
)
from topology.draw.captions import UNCOUNTED, own_links, planes_text, rate_text, switch_word
from topology.draw.painter import Ends, Painter
from topology.draw.parts import Host, Links, Switch
from topology.draw.rack_view import draw_rack_view
from topology.spec import DomainSpec
from topology.units import format_quantity, plural

_CELL, _ROW = 24, 14
_GAP, _REACH = 14, 40
_BAND_HEIGHT = 74
_MOST_WIDE = 1140
_MOST_TRAYS, _MOST_GPUS = 18, 8
_LONGEST_GRID = 18


@dataclass
class _Grid:
    """A table of hosts, and the hosts whose links to the band are drawn as one."""

    name: str
    sheet: Sheet
    hosts: list[Host]


def draw_domain_view(painter: Painter, number: int) -> None:
    """Draw one domain: trays where it is one rack, racks where it is several."""
    domain = painter.cluster.spec.domains[number]
    hosts = painter.fold.hosts_by_domain[number]
    small = len(hosts) <= _MOST_TRAYS and max(host.places for host in hosts) <= _MOST_GPUS
    chips, upper = painter.fold.chips(number), painter.fold.chips(number, "upper")
    if small and chips and not upper and len(rack_blocks(painter, number)) == 1:
        draw_rack_view(painter, number)
        return
    grids = _grids(painter, number)
    wide = max(grid.sheet.width for grid in grids)
    fit = min(4, int(_MOST_WIDE // (wide + _GAP)))
    per_row = -(-len(grids) // 2) if len(grids) > fit else len(grids)
    above, below = grids[:per_row], grids[per_row:]
    band = _band_lines(painter, domain, number)
    narrowest = max(text_width(line, 11, bold=True) for line in band) + 20
    width = max(per_row * (wide + _GAP), narrowest)
    step = width / per_row  # ports stand in line with the middles of the grids
    top = max(grid.sheet.height for grid in above)
    band_at = top + _REACH
    html = _band(painter, band, per_row, width, number)
    painter.canvas.box("band", (0.0, band_at), (width, _BAND_HEIGHT), html)
    for row, side in ((above, "t"), (below, "b")):
        for column, grid in enumerate(row):
            x = step * column + (step - grid.sheet.width) / 2
            y = top - grid.sheet.height if side == "t" else band_at + _BAND_HEIGHT + _REACH
            painter.canvas.sheet(grid.name, (x, y), grid.sheet)
            here, there = ("foot:s", "n") if side == "t" else ("head:n", "s")
            middle = (x + grid.sheet.width / 2, band_at - _REACH / 2 if side == "t" else y - _REACH / 2)
            _bundle(painter, grid, number, (f"{grid.name}:{here}", f"band:{side}{column}:{there}"), middle)
    bottom = band_at + _BAND_HEIGHT + (_REACH + max((g.sheet.height for g in below), default=-_REACH))
    painter.draw_legend((0.0, bottom + 20))


def _bundle(painter: Painter, grid: _Grid, number: int, ends: Ends, middle: Point) -> None:
    """Draw the scale-up links of a grid as one line, and say once how many they are."""
    chips, links = painter.fold.chips(number), painter.fold.scale_up_links(grid.hosts)
    pairs = painter.around(painter.gpu_ids(grid.hosts), [chip.id for chip in chips])
    if upper := painter.fold.chip_ids(
        [number], "upper"
    ):  # the first tier is in the grid: these are its uplinks
        first = _first_tier(painter, grid.hosts)
        links = Links.sum(chip.up for chip in first)
        pairs = painter.around([chip.id for chip in first], upper)
    if not links.count:
        return
    width, dashed = 1.0 + min(4.0, links.count / 72), grid.sheet.dashed or links.degraded
    painter.link(*ends, pairs, colour=NVLINK, width=width, dashed=dashed)
    if not grid.sheet.dashed:
        bundled = painter.cluster.spec.domains[number].links_bundled
        painter.say(middle, links, ink=BAND_INK, total=bundled)


def _grids(painter: Painter, number: int) -> list[_Grid]:
    """Return trays, racks, or grids of hosts; those that are alike are counted where there are too many."""
    blocks = rack_blocks(painter, number)
    hosts = painter.fold.hosts_by_domain[number]
    columns = max(block.columns for block in blocks)
    header = max(header_width(painter, block.rows) for block in blocks)
    most = max(2, 2 * int(_MOST_WIDE // (header + columns * (_CELL + 1) + 4 + _GAP)))
    if len(blocks) > most or max(len(block.rows) for block in blocks) > _LONGEST_GRID:
        rows = [row for block in blocks for row in block.rows]
        size = min(_LONGEST_GRID, max(-(-len(rows) // most), 12))
        blocks = [
            replace(
                blocks[0],
                title=f"{rows[i].header} to {rows[min(i + size, len(rows)) - 1].header}",
                rows=tuple(rows[i : i + size]),
                shape=tuple(row.host.shape for row in rows[i : i + size]),
            )
            for i in range(0, len(rows), size)
        ]
    if len(blocks) <= most:
        return [_rack(painter, f"r{r}", block) for r, block in enumerate(blocks)]
    grids: list[_Grid] = []
    for same in by_shape(blocks, lambda block: block.shape):
        grids.append(_rack(painter, f"r{len(grids)}", same[0]))
        if len(same) > 1:
            hosts = [row.host for block in same[1:] for row in block.rows]
            grids.append(_note(painter, f"more{len(grids)}", f"x {len(same) - 1} alike", hosts))
    if len(grids) > most:
        left = [host for grid in grids[most - 1 :] for host in grid.hosts]
        grids = [*grids[: most - 1], _note(painter, "others", f"{len(left)} more hosts, not alike", left)]
    return grids


def _rack(painter: Painter, name: str, block: Block) -> _Grid:
    """Return the grid of one rack: a row for each host, a column for each GPU in it."""
    columns = block.columns
    cells = columns * (_CELL + 1) + 4
    width = max(header_width(painter, block.rows) + cells, text_width(block.title, 9, bold=True) + 10)
    sheet = Sheet(width, OUTLINE)
    sheet.line(block.title, 16, bold=True, colspan=columns + 1, port="head")
    rails = [painter.rail_cell(c, _CELL, f"r{c}") for c in range(columns)]
    if painter.cluster.spec.raw is None:
        sheet.add([cell("", width=width - cells), *rails], _ROW)
    add_rows(painter, sheet, block.rows, columns, _CELL, width - cells)
    hosts = [row.host for row in block.rows]
    if painter.fold.chips(block.numbers[0], "upper"):
        chips = _first_tier(painter, hosts)
        links = painter.fold.scale_up_links(hosts)
        pairs = painter.around(painter.gpu_ids(hosts), [chip.id for chip in chips])
        fill, ink = painter.colour(pairs, NVLINK_FILL), BAND_INK
        if painter.usage is not None:
            ink = painter.usage.ink(painter.usage.busiest(pairs))
        text = f"first tier, in the hosts: {plural(len(chips), 'chip')}, to their GPUs {links.text()}"
        for line in wrapped(text, width - 12, 9):
            sheet.line(line, 15, colspan=columns + 1, bgcolor=fill, ink=ink)
    sheet.line("", 1, colspan=columns + 1, port="foot")
    return _Grid(name, sheet, [row.host for row in block.rows])


def _first_tier(painter: Painter, hosts: list[Host]) -> list[Switch]:
    """Return the chips that the GPUs of some hosts are linked to."""
    graph, switches = painter.cluster.graph, painter.fold.switches
    found = dict.fromkeys(other for name in painter.gpu_ids(hosts) for other in graph[name])
    return [switches[name] for name in found if name in switches and switches[name].tier == "chip"]


def _note(painter: Painter, name: str, title: str, hosts: list[Host]) -> _Grid:
    """Return a dashed box in the place of some hosts."""
    lines = [title, f"{hosts[0].id} to {hosts[-1].id}", *painter.summed_up(hosts)]
    width = max(text_width(line, 9, bold=True) for line in lines) + 14
    sheet = Sheet(width, NVLINK, dashed=True)
    sheet.line("", 2, port="head")
    sheet.lines(lines, 15, width - 4)
    sheet.line("", 2, port="foot")
    return _Grid(name, sheet, hosts)


def _band_lines(painter: Painter, domain: DomainSpec, number: int) -> list[str]:
    """Return what joins the GPUs, and what all of them move together."""
    chips, upper = painter.fold.chips(number), painter.fold.chips(number, "upper")
    total = painter.fold.hosts_by_domain[number]
    gpus = sum(len(host.gpus) for host in total)
    rate = painter.fold.scale_up_links(total).bytes_per_s
    if upper:
        up = Links.sum(chip.up for chip in chips)
        each = f"{plural(len(chips), 'first-tier chip')}, one a plane in each host"
        first = (
            f"second tier: {plural(len(upper), 'chip')} in {planes_text(domain)}, {up.text()} to the first"
        )
        own = f"{each}; each GPU {own_links(domain)}"
        return [first, f"{own}; all {gpus} GPUs {format_quantity(rate, 'byte/s')} each way"]
    if domain.structure == "raw":
        first = f"{plural(len(chips), 'switch chip')}" if chips else "GPUs linked directly"
    elif domain.links_bundled:
        first = UNCOUNTED
    else:
        counts = Counter(domain.links_per_switch)
        first = " + ".join(
            f"{plural(count, switch_word(domain))} with {plural(each, 'link')} of every GPU"
            for each, count in counts.items()
        )
    own = own_links(domain)
    if domain.structure == "raw":
        own = f"at least {rate_text(domain.scale_up_bytes_per_s)} each way"
    if isnan(rate):
        return [first, f"each GPU {own}"]
    return [first, f"each GPU {own}; all {gpus} GPUs {format_quantity(rate, 'byte/s')} each way"]


def _band(painter: Painter, lines: list[str], columns: int, width: float, number: int) -> str:
    """Return the band of switch chips; the ports on its edges are where links land."""
    part = width / columns
    rows = [[cell("", width=round(part), height=4, port=f"t{c}") for c in range(columns)]]
    rows.append([cell(lines[0], colspan=columns, bold=True, height=22, size=11)])
    rows.append([cell(lines[1], colspan=columns, height=16)])
    faults = painter.marks.lines(painter.marks.odd_names(painter.fold.chip_ids([number])))
    if faults:
        text = fitting("; ".join(faults), width - 12, 8)
        rows.append([cell(text, colspan=columns, height=13, ink=FAULT, size=8)])
    rows.append([cell("", width=round(part), height=4, port=f"b{c}") for c in range(columns)])
    return table(rows, border=2, color=NVLINK, bgcolor=NVLINK_FILL, width=round(width))
