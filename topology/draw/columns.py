"""One column of a picture of tiers as tables: the leaves (or routers) of a pod, and the blocks of GPUs under them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from topology.base.units import plural
from topology.draw import palette
from topology.draw.canvas import TEXT_POINTS, Sheet, cell, fitting, named, text_width, wrapped
from topology.draw.captions import common_head, ids_text, ranges, scale_up_words
from topology.draw.choose import Block, BlockTable, Column, header_width, row_header
from topology.draw.fold import Pod, Switch
from topology.draw.overlay import percent
from topology.draw.painter import Painter

GAP = 12
_PLACEHOLDER_WIDTH, _MAX_COLUMNS, _MAX_LEAF_CELLS = 200, 16, 32
"""Points of a column that is left out, at least; GPUs in a row; leaves that have a cell of their own."""


def measure(painter: Painter, column: Column, cell_width: int) -> None:
    """Make the tables of a column."""
    pod = column.pods[0]
    if not column.blocks:
        _leave_out(painter, column)
        return
    column.tables = [_block(painter, pod, block, cell_width) for block in column.blocks]
    column.width = sum(table.sheet.width + GAP for table in column.tables) - GAP
    if pod.leaves or painter.opened is None:  # else right under the chips of the domain
        column.head, column.leaf_x = _leaf_box(painter, pod.leaves, column, cell_width)
        column.width = max(column.width, column.head.width)


def planes_of(leaves: Sequence[Switch]) -> list[list[Switch]]:
    """Return leaves by the plane that they are in: the first of each rail, the second of each, and so on.

    None where the leaves are not of rails, or not of as many each. In each plane rails come in the same order.
    """
    rails = Counter(leaf.rail for leaf in leaves)
    if None in rails or len(set(rails.values())) != 1:
        return []
    by_rail = [[leaf for leaf in leaves if leaf.rail == rail] for rail in rails]
    return [list(plane) for plane in zip(*by_rail, strict=True)]


def _leaf_box(
    painter: Painter, leaves: Sequence[Switch], column: Column, cell_width: int
) -> tuple[Sheet, dict[str, float]]:
    """Return the table of the leaves over a column, and how far from its middle each leaf is.

    Over one block by rails each leaf is over its rail.
    """
    inner, blocks = column.width, column.tables
    if not leaves:
        sheet = Sheet(inner, palette.QUIET)
        sheet.line("no link to the fabric", 14, width=round(inner) - 4, ink=palette.FAULT)
        return sheet, {}
    names = [leaf.id for leaf in leaves]
    among = sum(leaf.side.count for leaf in leaves) // 2
    local = f"{plural(among, 'link')} among them" if among else ""
    word, title = _words(leaves)
    texts = [title, local, *painter.marks.lines(names)]
    wide = float(max(70, *(text_width(text) + 10 for text in texts)))
    planes, below, over = planes_of(leaves), blocks[0], False
    rows: list[list[str]] = []
    span = 1
    if leaves[0].tier == "chip":
        title, wide = f"{plural(len(leaves), 'chip')}, {ids_text(names)}", inner
    elif len(blocks) == 1 and below.by_rail and max(leaf.rail or 0 for leaf in leaves) < below.columns:
        rows = [_rail_row(painter, plane, below, len(planes)) for plane in planes]
        span, wide, over = below.columns + 1, inner, True
    elif len(leaves) > 1:
        shown = leaves[:_MAX_LEAF_CELLS]
        short = [_short(leaf, leaves) for leaf in shown]
        wide = max(wide, min(inner, 300))
        size = max([cell_width, *(text_width(text) + 4 for text in short)])
        span = max(1, min(len(shown), int(max(wide, 150) // (size + 1))))
        wide = max(wide, span * (size + 1) + 3)
        size = (round(wide) - 3) // span - 1
        cells = [_leaf(painter, leaf, text, size) for leaf, text in zip(shown, short, strict=True)]
        rows = [cells[i : i + span] for i in range(0, len(cells), span)]
    sheet = Sheet(wide, palette.NVLINK if leaves[0].tier == "chip" else palette.QUIET)
    for part in wrapped(title, wide - 6) if over else [title]:
        sheet.line(part, 14, colspan=span, width=round(wide) - 4)
    for row in rows:
        sheet.add(row, 16)
    if rows and not over and len(leaves) > _MAX_LEAF_CELLS:
        hidden, _, words = plural(len(leaves) - _MAX_LEAF_CELLS, word).partition(" ")
        sheet.line(f"and {hidden} more {words}", 12, colspan=span)
    if local:
        fill, ink = "#ffffff", palette.INK
        if painter.usage is not None:
            fill, ink = painter.usage.fill_ink(painter.usage.busiest(painter.around(names, names)))
        sheet.line(local, 13, colspan=span, bgcolor=fill, ink=ink)
    painter.add_faults(sheet, names, span, width=wide - 8)
    if over:
        return sheet, {leaf.id: below.rail_x(leaf.rail or 0) - wide / 2 for leaf in leaves}
    pitch = (wide - 3) / span
    return sheet, {leaf.id: 2 + pitch * (i % span + 0.5) - wide / 2 for i, leaf in enumerate(leaves)}


def _rail_row(painter: Painter, leaves: Sequence[Switch], below: BlockTable, planes: int) -> list[str]:
    """Return a cell for the leaf of each rail, red where a rail has none; before them, which plane of several."""
    by_rail = {leaf.rail: leaf for leaf in leaves}
    name = common_head([leaf.id for leaf in leaves]).partition(".")[0] if planes > 1 else ""
    cells = [cell(fitting(name, below.header - 4), width=below.header)]
    for rail in range(below.columns):
        if (leaf := by_rail.get(rail)) is None:
            cells.append(cell("none", width=below.cell_width, height=16, ink=palette.FAULT))
            continue
        name = _short(leaf, leaves)
        fits = text_width(name) <= below.cell_width
        cells.append(_leaf(painter, leaf, name if fits else f"l{rail}", below.cell_width))
    return cells


def _leaf(painter: Painter, leaf: Switch, name: str, width: int) -> str:
    """Return the cell of one leaf: in the colour of its rail, red where something is wrong with it."""
    words = painter.marks.of(leaf.id)
    if not words:
        return painter.rail_cell(leaf.rail, width, name, height=16)
    style = {"bgcolor": palette.FAULT_FILL, "ink": palette.FAULT, "border": 1, "color": palette.FAULT}
    return cell(name, width=width, height=16, **named("switch", leaf.id, *words), **style)


def _short(leaf: Switch, leaves: Sequence[Switch]) -> str:
    """Return the name of a leaf without what all of them have in common."""
    head = common_head([other.id for other in leaves])
    return leaf.id.removeprefix(f"{head}.") if head else leaf.id


def _words(leaves: Sequence[Switch]) -> tuple[str, str]:
    """Return what one switch of the first tier is called, and what all of a pod are, together."""
    tier = leaves[0].tier if leaves else "leaf"
    word = "first-tier chip" if tier == "chip" else tier
    if len(leaves) == 1:
        return word, f"{word} {leaves[0].id}"
    heads = [common_head([leaf.id for leaf in plane]) for plane in planes_of(leaves) or [list(leaves)]]
    several = plural(len(leaves), word).partition(" ")[2]
    ids = [leaf.id for leaf in leaves]
    return word, f"{several} {' and '.join(heads)}" if all(heads) else ids_text(ids) if ids else ""


def _block(painter: Painter, pod: Pod, block: Block, cell_width: int) -> BlockTable:
    """Return the grid of one block: its rails above, its scale-up band below if all domains are drawn."""
    columns = min(block.columns, _MAX_COLUMNS)
    shared = painter.same_tag(i for host in block.hosts for i in host.gpus)
    title = f"{block.title}, {shared}" if shared else block.title
    title += f" (x {block.alike} alike)" if block.others else ""
    band = _band(painter, block) if painter.opened is None else []
    texts = [text_width(title, TEXT_POINTS, bold=True) + 8, *(text_width(line) + 12 for line, _, _ in band)]
    header = header_width(painter, block.rows, shared)
    wide = max(header + columns * (cell_width + 1) + 4, 130, *texts)
    header = round(wide) - columns * (cell_width + 1) - 4
    sheet, span = Sheet(wide, palette.NVLINK), columns + 1
    rails = {painter.cluster.gpus[i].rail for host in block.hosts for i in host.gpus}
    cabled = {leaf.rail for leaf in pod.leaves if leaf.rail is not None}
    planes = planes_of(pod.leaves)
    by_rail = len(cabled) > 1 and bool(planes) and max(rails, default=0) < columns <= painter.fold.rails
    if by_rail:
        look = {"width": cell_width, "height": 13, "ink": palette.FAULT, "bgcolor": palette.FAULT_FILL}
        cells = [
            painter.rail_cell(r, cell_width, f"r{r}", height=13) if r in cabled else cell(f"r{r}", **look)
            for r in range(columns)
        ]
        sheet.add([cell("", width=header), *cells], 13)
    sheet.line(title, 15, bold=True, size=TEXT_POINTS, colspan=span, **_named_block(painter, block))
    if block.others:
        elsewhere = ranges(sorted({host.domain for host in block.others} - {*block.numbers}))
        where = elsewhere or f"more racks of {painter.domain_name(block.numbers[0])}"
        sheet.line(f"and {where}: {painter.count(block.others)}", 13, colspan=span)
    for row in block.rows:
        if row.host is None:
            sheet.line(row.header, 14, colspan=span, bold=True)
            continue
        places = painter.places(row.host)
        for start in range(0, len(places), columns):
            part = places[start : start + columns]
            naming = {} if start else painter.named_host(row.host)
            text = "" if start else row_header(painter, row, shared)
            head = cell(text, width=header, align="left", **naming)
            sheet.add([head, *(painter.gpu(place, cell_width) for place in part)], 14)
            painter.add_tags(sheet, part, [cell("", width=header, height=12)])
        names = [row.host.id, *painter.gpu_ids([row.host])]
        painter.add_faults(sheet, names, span, 2, width=wide - 8)
    for line, fill, ink in band:
        sheet.line(line, 13, colspan=span, bgcolor=fill, ink=ink)
    return BlockTable(sheet, [*block.hosts, *block.others], by_rail, header, columns, cell_width)


def _named_block(painter: Painter, block: Block) -> dict[str, object]:
    """Return the attributes of the title of a block that is one domain; nothing of other blocks."""
    if not block.whole or len(block.numbers) != 1:
        return {}
    number = block.numbers[0]
    racks = {host.rack for host in block.hosts}
    where = f"rack {block.hosts[0].rack}" if len(racks) == 1 else plural(len(racks), "rack")
    gpus = plural(sum(host.places for host in block.hosts), painter.spec.domains[number].gpu.noun)
    return named("domain", f"d{number}", f"domain of {gpus}, {where}")


def _band(painter: Painter, block: Block) -> list[tuple[str, str, str]]:
    """Return what joins the GPUs of a domain: lines with fill and ink, the traffic on it last."""
    faulty = {host.domain for host in block.hosts if host.id in painter.odd}
    sample = next((number for number in block.numbers if number not in faulty), block.numbers[0])
    texts = scale_up_words(painter.fold, sample)
    if not block.whole:
        texts.insert(0, f"part of {painter.domain_name(block.numbers[0])}, which has")
    if len(block.rows) > 1 and block.single:
        texts.insert(0, "each row is a domain")
    lines = [(text, palette.NVLINK_FILL, palette.BAND_INK) for text in texts]
    numbers = dict.fromkeys([*block.numbers, *(host.domain for host in block.others)])
    lines += [
        (text, palette.FAULT_FILL, palette.FAULT)
        for text in painter.marks.lines(painter.fold.chip_ids(numbers), 2)
    ]
    if (usage := painter.usage) is not None:
        share = usage.busiest(usage.inside(numbers))
        lines.append((f"busiest scale-up link: {percent(share)}", *usage.fill_ink(share)))
    return lines


def _leave_out(painter: Painter, column: Column) -> None:
    """Make dashed tables for what is not drawn open: how many, which, how many GPUs."""
    hosts, leaves, pods = column.hosts, column.leaves, len(column.pods)
    domains = sorted({host.domain for host in hosts})
    spread = column.more_domains and len(domains) < pods
    count = plural(len(domains), "domain") if spread else f"{pods:,}"
    same = f"x {count} alike" if pods > 1 else "1 more, identical"
    lines = [same if column.same else f"{pods:,} more, not all identical"]
    if column.more_domains:
        lines += [*([] if spread else [plural(len(domains), "more domain")]), ranges(domains)]
    else:
        lines.append("of the same domain" if len(domains) == 1 else "of the same domains")
    lines = [*lines, *painter.summed_up(hosts)] if hosts else [f"no {painter.noun}s below"]
    ids = [leaf.id for leaf in leaves]
    above = ids[0] if len(ids) == 1 else plural(len(ids), _words(leaves)[0])
    if not hosts and len(ids) > 1:
        above = f"{above}: {ids_text(ids)}"
    wide = max(
        _PLACEHOLDER_WIDTH, *(text_width(line, TEXT_POINTS, bold=True) + 14 for line in [above, *lines])
    )
    if leaves or painter.opened is None:
        column.head = Sheet(wide, palette.QUIET, dashed=True)
        column.head.line(above, 20, width=wide - 4)
    body = Sheet(wide, palette.NVLINK, dashed=True)
    body.line("", 6)
    for i, line in enumerate(lines):
        body.line(line, 15, bold=i == 0, size=TEXT_POINTS, width=wide - 4)
    ids = [*(host.id for host in hosts), *painter.gpu_ids(hosts), *ids]
    ids += [name for host in hosts for name in host.broken]
    painter.add_faults(body, [*ids, *painter.fold.chip_ids(domains)], 1, 2, width=wide - 8)
    body.line("", 6)
    column.tables, column.width = [BlockTable(body, hosts)], wide
