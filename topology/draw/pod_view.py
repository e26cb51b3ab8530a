"""One column of the fabric picture: the leaves of a pod and the blocks of GPUs under them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from topology.draw.canvas import cell
from topology.draw.links import Links
from topology.draw.metrics import fitting, text_width
from topology.draw.sheet import Sheet
from topology.draw.style import FAULT, FAULT_FILL, NVLINK, NVLINK_FILL, QUIET, scale_up_words
from topology.draw.words import common_head, ids_text, plural, ranges

if TYPE_CHECKING:
    from topology.draw.blocks import Block, Column, Row
    from topology.draw.fold import Host, Pod, Switch
    from topology.draw.painter import Painter

__all__ = ["BAND_INK", "PodView", "block_links", "measure"]

BAND_INK = "#2f4a00"
GAP = 12
_PLACEHOLDER = 158
_MOST_LEAF_CELLS = 16
_LEAF_TEXT = 8
_LONGEST_ROW = 16


@dataclass
class BlockView:
    """One block of GPUs as a table."""

    block: Block | None
    html: str
    width: float
    height: float
    by_rail: bool = False
    header: int = 28


@dataclass
class PodView:
    """One column with its tables and their sizes; ``x`` is set when its place is known."""

    column: Column
    name: str
    leaves: str
    leaf_width: float
    leaf_height: float
    blocks: list[BlockView]
    width: float
    x: float = 0.0

    @property
    def pod(self) -> Pod:
        """The pod that is drawn, or the first of those left out."""
        return self.column.pods[0]

    @property
    def height(self) -> float:
        """Height of the highest block."""
        return max(view.height for view in self.blocks)

    @property
    def by_rail(self) -> bool:
        """Whether each leaf is one rail, and each rail one leaf."""
        rails = [leaf.rail for leaf in self.pod.leaves]
        return bool(rails) and None not in rails and len(set(rails)) == len(rails)


def measure(painter: Painter, column: Column, cell_width: int) -> PodView:
    """Make the tables of a column."""
    pod = column.pods[0]
    if not column.open:
        return _placeholder(painter, column)
    blocks = [_block(painter, pod, block, cell_width) for block in column.blocks]
    inner = sum(view.width + GAP for view in blocks) - GAP
    header = blocks[0].header if len(blocks) == 1 else None
    leaves, wide, tall = _leaves(painter, pod, inner, cell_width, header)
    return PodView(column, f"pod{pod.number}", leaves, wide, tall, blocks, max(inner, wide))


def block_links(pod: Pod, block: Block) -> Links:
    """Return the links from the hosts of a block (and those alike) to the leaves."""
    domains = {*block.numbers, *block.alike}
    racks = None if block.whole or block.alike else {host.rack for host in block.hosts}
    hosts = [h for h in pod.hosts if h.domain in domains and (racks is None or h.rack in racks)]
    return Links.sum(links for host in hosts for links in host.up.values())


def _leaves(
    painter: Painter, pod: Pod, inner: float, cell_width: int, header: int | None
) -> tuple[str, float, float]:
    """Return the table of the leaves of a pod, its width and height; ``header`` is that of the one block below."""
    leaves = pod.leaves
    if not leaves:
        return _no_leaf(inner)
    names, title = _leaf_names(leaves)
    rails = [leaf.rail for leaf in leaves]
    several = len(leaves) > 1
    aligned = header is not None and several and None not in rails and len(set(rails)) == len(rails)
    shown = leaves[:_MOST_LEAF_CELLS] if several else []
    local = (
        f"each to the others: {leaves[0].side.text().removesuffix(' each way')}"
        if leaves[0].side.count
        else ""
    )
    faults = painter.marks.lines([leaf.id for leaf in leaves])
    wide = float(max(70, *(text_width(text, _LEAF_TEXT) + 10 for text in (title, local, *faults))))
    if aligned:
        size, per_row, indent = cell_width, len(shown), [cell("", width=header)]
        if max(text_width(name, _LEAF_TEXT) for name in names) > cell_width - 2:
            names = [f"l{rail}" for rail in rails]
        title, wide = fitting(title, inner - 8, _LEAF_TEXT), inner
    else:
        size = max(cell_width, *(text_width(name, _LEAF_TEXT) + 4 for name in ["", *names[: len(shown)]]))
        per_row = max(1, min(len(shown), int(max(inner, 150) // (size + 1))))
        wide = max(wide, per_row * (size + 1) + 3)
        size, indent = (round(wide) - 3) // per_row - 1, []
    sheet = Sheet(wide)
    span = per_row + len(indent)
    sheet.add([cell(title, colspan=span, height=14, size=_LEAF_TEXT, port="up", width=round(wide) - 4)], 14)
    for start in range(0, len(shown), per_row):
        part = shown[start : start + per_row]
        cells = [_leaf(painter, leaf, names[start + i], size, f"l{start + i}") for i, leaf in enumerate(part)]
        sheet.add([*indent, *cells], 16)
    word = "router" if leaves[0].tier == "router" else "leaf"
    more = f"and {plural(len(leaves) - len(shown), word)} more" if len(leaves) > len(shown) > 0 else ""
    for text in (more, local):
        if text:
            sheet.add([cell(text, colspan=span, size=_LEAF_TEXT, height=12)], 12)
    for line in painter.fault_rows([leaf.id for leaf in leaves], span, width=wide - 8):
        sheet.add(line, 12)
    sheet.add([cell("", colspan=span, height=1, port="foot")], 1)
    return sheet.html(color=QUIET), wide, sheet.height


def _no_leaf(inner: float) -> tuple[str, float, float]:
    """Return what stands in the place of leaves where there are none."""
    sheet = Sheet(inner)
    text = "no link to the fabric"
    sheet.add([cell(text, width=round(inner) - 4, port="up", size=_LEAF_TEXT, height=14, ink=FAULT)], 14)
    sheet.add([cell("", height=1, port="foot")], 1)
    return sheet.html(color=QUIET), inner, sheet.height


def _leaf_names(leaves: list[Switch]) -> tuple[list[str], str]:
    """Return a short name for each leaf, and a title for all."""
    word = "router" if leaves[0].tier == "router" else "leaf"
    if len(leaves) == 1:
        return [leaves[0].id], f"{word} {leaves[0].id}"
    head = common_head([leaf.id for leaf in leaves])
    names = [leaf.id.removeprefix(f"{head}.") if head else leaf.id for leaf in leaves]
    title = f"{plural(len(leaves), word).partition(' ')[2]} {head}" if head else ids_text(names)
    return names, title


def _leaf(painter: Painter, leaf: Switch, name: str, width: int, port: str) -> str:
    """Return the cell of one leaf: in the colour of its rail, red where something is wrong with it."""
    if painter.marks.of(leaf.id):
        tip = "; ".join([leaf.id, *painter.marks.of(leaf.id)])
        return cell(
            name,
            width=width,
            height=16,
            bgcolor=FAULT_FILL,
            ink=FAULT,
            border=1,
            color=FAULT,
            size=_LEAF_TEXT,
            port=port,
            tooltip=tip,
            href="#",
        )
    return painter.rail_cell(leaf.rail, width, name, port=port, height=16)


def _header(painter: Painter, rows: list[Row], shared: str) -> int:
    """Return the width of the row headers."""
    texts = [_row_header(painter, row, shared) for row in rows if not row.more]
    return max([28, *(text_width(text, _LEAF_TEXT) + 4 for text in texts)])


def _row_header(painter: Painter, row: Row, shared: str) -> str:
    """Return the header of a row: the host or domain, and its tag if the block does not have that one as a whole."""
    tag = painter.same_tag(painter.places(row.host))
    return row.header if tag == shared else f"{row.header} {tag}".rstrip()


def _block(painter: Painter, pod: Pod, block: Block, cell_width: int) -> BlockView:
    """Return the grid of one block: its rails above, its scale-up band below if it is a whole domain."""
    columns = min(block.columns, _LONGEST_ROW)
    shared = painter.same_tag(i for host in block.hosts for i in host.gpus)
    header = _header(painter, list(block.rows), shared)
    title = f"{block.title}, {shared}" if shared else block.title
    if block.alike:
        title = f"{title} (x {len(block.alike) + 1} alike)"
    band = _band(painter, block) if block.whole else []
    texts = [text_width(title, 9, bold=True) + 8, *(text_width(line, _LEAF_TEXT) + 12 for line, _, _ in band)]
    wide = max(header + columns * (cell_width + 1) + 4, 130, *texts)
    header = round(wide) - columns * (cell_width + 1) - 4
    sheet = Sheet(wide)
    span = columns + 1
    rails = {painter.cluster.gpus[i].rail for host in block.hosts for i in host.gpus}
    by_rail = len(pod.leaves) > 1 and {leaf.rail for leaf in pod.leaves} >= rails and len(rails) <= columns
    if by_rail:
        cells = [painter.rail_cell(r, cell_width, f"r{r}", port=f"r{r}", height=13) for r in range(columns)]
        sheet.add([cell("", width=header, port="head"), *cells], 13)
    else:
        sheet.add([cell("", colspan=span, height=2, port="head", width=round(wide) - 6)], 2)
    sheet.add([cell(title, bold=True, colspan=span, height=15)], 15)
    if block.alike:
        others = sorted(set(block.alike) - set(block.numbers))
        if others:
            sheet.add([cell(f"and {ranges(others)}", colspan=span, height=13, size=_LEAF_TEXT)], 13)
    for row in block.rows:
        if row.more:
            sheet.add([cell(row.header, colspan=span, height=14, size=_LEAF_TEXT, bold=True)], 14)
            continue
        places = painter.places(row.host)
        for start in range(0, len(places), columns):
            text = _row_header(painter, row, shared) if start == 0 else ""
            part = [painter.gpu(place, cell_width) for place in places[start : start + columns]]
            sheet.add([cell(text, width=header, size=_LEAF_TEXT, align="left"), *part], 14)
            tags = painter.tag_row(places[start : start + columns])
            if tags:
                sheet.add([cell("", width=header, height=12), *tags], 12)
        sheet.add_all(painter.fault_rows(_host_names(painter, row.host), span, most=2), 12)
    for line, fill, ink in band:
        sheet.add([cell(line, colspan=span, height=13, bgcolor=fill, size=_LEAF_TEXT, ink=ink)], 13)
    return BlockView(block, sheet.html(color=NVLINK), wide, sheet.height, by_rail, header)


def _host_names(painter: Painter, host: Host) -> list[str]:
    """Return the ids of a host and its working GPUs (broken ones say so themselves)."""
    return [host.id, *(painter.cluster.gpus[i].id for i in host.gpus)]


def _band(painter: Painter, block: Block) -> list[tuple[str, str, str]]:
    """Return what joins the GPUs of a domain: lines with fill and ink, the traffic on it last."""
    lines = [
        (line, NVLINK_FILL, BAND_INK) for line in scale_up_words(painter.fold, block.domain, block.numbers[0])
    ]
    if block.single:
        lines.insert(0, ("each row is a domain", NVLINK_FILL, BAND_INK))
    numbers = (*block.numbers, *block.alike)
    chips = [
        chip.id
        for number in numbers
        for tier in ("chip", "upper")
        for chip in painter.fold.chips(number, tier)
    ]
    odd = painter.marks.lines(chips, 2)
    lines += [(line, FAULT_FILL, FAULT) for line in odd]
    if painter.usage is not None:
        share = painter.usage.busiest(painter.usage.inside(numbers))
        lines.append(
            (
                f"busiest scale-up link: {share * 100:.0f} %",
                painter.usage.colour(share),
                painter.usage.ink(share),
            )
        )
    return lines


def _placeholder(painter: Painter, column: Column) -> PodView:
    """Return dashed tables for what is not drawn open: how many, which, how many GPUs."""
    pods = column.pods
    hosts = [host for pod in pods for host in pod.hosts]
    leaves = [leaf for pod in pods for leaf in pod.leaves]
    domains = sorted({host.domain for host in hosts})
    gpus = sum(len(host.gpus) for host in hosts)
    spread = not column.same_domain and len(domains) < len(pods)
    alike = plural(len(domains), "domain") if spread else f"{len(pods):,}"
    alike = f"{alike} more" if len(pods) == 1 else alike
    first = f"{alike} alike" if len(pods) == 1 else f"x {alike} alike"
    lines = [f"{len(pods):,} more, not all alike" if column.like is None else first]
    if column.same_domain:
        lines.append("of the same domain" if len(domains) == 1 else "of the same domains")
    else:
        lines += [f"{plural(len(domains), 'more domain')}", ranges(domains)]
    lines.append(plural(gpus, "GPU"))
    numbers = [i for host in hosts for i in host.gpus]
    lines += [text for text in (painter.range_text(numbers), painter.tag(numbers)) if text]
    word = "router" if leaves and leaves[0].tier == "router" else "leaf"
    above = leaves[0].id if len(leaves) == 1 else plural(len(leaves), word)
    wide = max(_PLACEHOLDER, *(text_width(line, 9, bold=True) + 14 for line in lines))
    head = Sheet(wide)
    head.add([cell(above, width=wide - 4, height=20, port="up", size=_LEAF_TEXT)], 20)
    head.add([cell("", height=1, port="foot")], 1)
    body = Sheet(wide)
    body.add([cell("", height=6, port="head")], 6)
    for i, line in enumerate(lines):
        body.add([cell(line, bold=i == 0, width=wide - 4, height=15)], 15)
    body.add([cell("", height=6)], 6)
    name = f"more{pods[0].number}"
    view = BlockView(None, body.html(color=NVLINK, style="dashed"), wide, body.height)
    return PodView(column, name, head.html(color=QUIET, style="dashed"), wide, head.height, [view], wide)
