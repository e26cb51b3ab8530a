"""One column of the fabric picture: the leaves (or routers) of a pod, and the blocks of GPUs under them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from topology.base.units import plural
from topology.draw.blocks import Block, Column, add_rows, header_width
from topology.draw.canvas import (
    BAND_INK,
    FAULT,
    FAULT_FILL,
    NVLINK,
    NVLINK_FILL,
    QUIET,
    SMALL_POINTS,
    Sheet,
    cell,
    fitting,
    named,
    text_width,
    wrapped,
)
from topology.draw.captions import common_head, ids_text, ranges, scale_up_words
from topology.draw.overlay import percent
from topology.draw.painter import Painter
from topology.draw.parts import Pod, Switch, most_common

_MOST_CELLS = 16


def _leaf_box(
    painter: Painter, pod: Pod, inner: float, cell_width: int, rails: tuple[int, int] | None
) -> tuple[Sheet, dict[str, float]]:
    """Return the table of the leaves of a pod, and how far from its left edge each leaf is.

    ``inner`` is the width of what is below; ``rails`` the width of its row headers and how many rails it has,
    None where the leaves are not to stand in line with rails.
    """
    leaves = pod.leaves
    if not leaves:
        sheet = Sheet(inner, QUIET)
        text = "no link to the fabric"
        sheet.line(text, 14, width=round(inner) - 4, size=SMALL_POINTS, ink=FAULT)
        return sheet, {}
    title, local = _title(leaves), _local(leaves)
    names = [leaf.id for leaf in leaves]
    texts = [title, local, *painter.marks.lines(names)]
    wide = float(max(70, *(text_width(text, SMALL_POINTS) + 10 for text in texts)))
    if leaves[0].tier == "chip":
        title, rows, span, wide = f"{plural(len(leaves), 'chip')}, {ids_text(names)}", [], 1, inner
    elif rails is not None:
        wide = inner
        planes = planes_of(leaves)
        rows = [_rail_row(painter, own, cell_width, *rails, apart=len(planes) > 1) for own in planes]
        span = rails[1] + 1
    else:
        rows, span, wide = _plain_rows(painter, leaves, cell_width, max(wide, min(inner, 300)))
    sheet = Sheet(wide, NVLINK if leaves[0].tier == "chip" else QUIET)
    for part in wrapped(title, wide - 6, SMALL_POINTS) if rails else [title]:
        sheet.line(part, 14, colspan=span, size=SMALL_POINTS, width=round(wide) - 4)
    sheet.add_all(rows, 16)
    word = _word(leaves)
    left = len(leaves) - _MOST_CELLS
    if rows and left > 0 and not rails:
        sheet.line(f"and {plural(left, word)} more", 12, colspan=span, size=SMALL_POINTS)
    if local:
        pairs = painter.around(names, names)
        sheet.line(local, 13, colspan=span, size=SMALL_POINTS, **painter.look(pairs))
    sheet.add_all(painter.fault_rows(names, span, width=wide - 8), 12)
    if rails:
        return sheet, {leaf.id: cell_x(rails[0], cell_width, leaf.rail or 0) for leaf in leaves}
    each = (wide - 3) / span
    return sheet, {leaf.id: 2 + each * (i % span + 0.5) for i, leaf in enumerate(leaves)}


def cell_x(header: int, width: int, place: int) -> float:
    """Return how far from the left edge of a sheet the middle of a cell is, behind a row header."""
    return 3 + header + place * (width + 1) + width / 2


def _word(leaves: Sequence[Switch]) -> str:
    """Return what switches of the first tier are called."""
    tier = leaves[0].tier if leaves else "leaf"
    return "first-tier chip" if tier == "chip" else tier


def planes_of(leaves: Sequence[Switch]) -> list[list[Switch]]:
    """Return leaves by the plane that they are in: the first of each rail, the second of each, and so on.

    All together where rails do not have as many each. In each plane rails come in the same order.
    """
    rails = Counter(leaf.rail for leaf in leaves)
    if None in rails or len(set(rails.values())) != 1:
        return [list(leaves)]
    seen: Counter[int | None] = Counter()
    planes: list[list[Switch]] = [[] for _ in range(next(iter(rails.values())))]
    for leaf in leaves:
        planes[seen[leaf.rail]].append(leaf)
        seen[leaf.rail] += 1
    order = {leaf.rail: place for place, leaf in enumerate(planes[0])}
    return [sorted(plane, key=lambda leaf: order[leaf.rail]) for plane in planes]


def _rail_row(
    painter: Painter, leaves: list[Switch], cell_width: int, header: int, rails: int, *, apart: bool
) -> list[str]:
    """Return a cell for the leaf of each rail, red where a rail has none; before them, what planes are called."""
    by_rail = {leaf.rail: leaf for leaf in leaves}
    name = common_head([leaf.id for leaf in leaves]).partition(".")[0] if apart else ""
    cells = [cell(fitting(name, header - 4, SMALL_POINTS), width=header, size=SMALL_POINTS)]
    for rail in range(rails):
        leaf = by_rail.get(rail)
        if leaf is None:
            cells.append(cell("none", width=cell_width, height=16, ink=FAULT, size=SMALL_POINTS))
            continue
        name = _short(leaf, leaves)
        fits = text_width(name, SMALL_POINTS) <= cell_width
        cells.append(_leaf(painter, leaf, name if fits else f"l{rail}", cell_width))
    return cells


def _plain_rows(
    painter: Painter, leaves: list[Switch], cell_width: int, wide: float
) -> tuple[list[list[str]], int, float]:
    """Return rows of cells, how many cells a row has, and the width; a single leaf has no cell."""
    shown = leaves[:_MOST_CELLS] if len(leaves) > 1 else []
    names = [_short(leaf, leaves) for leaf in shown]
    size = max([cell_width, *(text_width(name, SMALL_POINTS) + 4 for name in names)])
    per_row = max(1, min(len(shown), int(max(wide, 150) // (size + 1))))
    wide = max(
        wide if len(shown) > 1 else 0.0,
        text_width(_title(leaves), SMALL_POINTS) + 10,
        per_row * (size + 1) + 3,
    )
    wide = max(
        wide,
        *(text_width(line, SMALL_POINTS) + 10 for line in ["", *painter.marks.lines(x.id for x in leaves)]),
    )
    size = (round(wide) - 3) // per_row - 1
    cells = [_leaf(painter, leaf, name, size) for leaf, name in zip(shown, names, strict=True)]
    return [cells[i : i + per_row] for i in range(0, len(cells), per_row)], per_row, wide


def _leaf(painter: Painter, leaf: Switch, name: str, width: int) -> str:
    """Return the cell of one leaf: in the colour of its rail, red where something is wrong with it."""
    words = painter.marks.of(leaf.id)
    if not words:
        return painter.rail_cell(leaf.rail, width, name, height=16)
    style = {"bgcolor": FAULT_FILL, "ink": FAULT, "border": 1, "color": FAULT, "size": SMALL_POINTS}
    return cell(name, width=width, height=16, **named("switch", leaf.id, *words), **style)


def _short(leaf: Switch, leaves: list[Switch]) -> str:
    """Return the name of a leaf without what all of them have in common."""
    head = common_head([one.id for one in leaves])
    return leaf.id.removeprefix(f"{head}.") if head else leaf.id


def _title(leaves: list[Switch]) -> str:
    """Return what the leaves are, together."""
    word = _word(leaves)
    if len(leaves) == 1:
        return f"{word} {leaves[0].id}"
    heads = [common_head([leaf.id for leaf in own]) for own in planes_of(leaves)]
    several = plural(len(leaves), word).partition(" ")[2]
    return f"{several} {' and '.join(heads)}" if all(heads) else ids_text([leaf.id for leaf in leaves])


def _local(leaves: list[Switch]) -> str:
    """Return the links of each router, or of most, to the others of its group."""
    links, which = most_common(leaf.side for leaf in leaves)
    return f"{which} to the others: {links.text().removesuffix(' each way')}" if links.count else ""


GAP = 12
_PLACEHOLDER = 158
_LONGEST_ROW = 16


@dataclass
class BlockView:
    """One block of GPUs as a table."""

    block: Block | None
    sheet: Sheet
    by_rail: bool = False
    header: int = 28
    columns: int = 0
    cell_width: int = 0

    def rail_x(self, rail: int) -> float:
        """Return how far from its left edge the column of a rail is."""
        return cell_x(self.header, self.cell_width, rail)


@dataclass
class PodView:
    """One column with its tables and their sizes; ``x`` is set when its place is known."""

    column: Column
    name: str
    head: Sheet | None
    blocks: list[BlockView]
    width: float
    leaf_at: Mapping[str, float] = field(default_factory=dict)
    x: float = 0.0

    @property
    def centre(self) -> float:
        """Where its middle is."""
        return self.x + self.width / 2

    def leaf_x(self, leaf: str) -> float:
        """Return where the middle of a leaf is."""
        wide = self.head.width if self.head is not None else 0.0
        return self.centre - wide / 2 + self.leaf_at.get(leaf, wide / 2)

    @property
    def pod(self) -> Pod:
        """The pod that is drawn, or the first of those left out."""
        return self.column.pods[0]

    @property
    def height(self) -> float:
        """Height of the highest block."""
        return max(view.sheet.height for view in self.blocks)

    @property
    def by_rail(self) -> bool:
        """Whether each leaf is one rail, and each rail one leaf in every plane."""
        rails = [leaf.rail for leaf in self.pod.leaves]
        return bool(rails) and None not in rails and len(planes_of(self.pod.leaves)[0]) == len(set(rails))


def measure(painter: Painter, column: Column, cell_width: int) -> PodView:
    """Make the tables of a column."""
    pod = column.pods[0]
    if not column.open:
        return _placeholder(painter, column)
    blocks = [_block(painter, pod, block, cell_width) for block in column.blocks]
    inner = sum(view.sheet.width + GAP for view in blocks) - GAP
    only = blocks[0] if len(blocks) == 1 and blocks[0].by_rail else None
    if only and max(leaf.rail or 0 for leaf in pod.leaves) >= only.columns:
        only = None
    rails = (only.header, only.columns) if only else None
    if not pod.leaves and painter.opened is not None:  # right under the chips of the domain
        return PodView(column, f"pod{pod.number}", None, blocks, inner)
    head, leaf_at = _leaf_box(painter, pod, inner, cell_width, rails)
    return PodView(column, f"pod{pod.number}", head, blocks, max(inner, head.width), leaf_at)


def _block(painter: Painter, pod: Pod, block: Block, cell_width: int) -> BlockView:
    """Return the grid of one block: its rails above, its scale-up band below if it is a whole domain."""
    columns = min(block.columns, _LONGEST_ROW)
    shared = painter.same_tag(i for host in block.hosts for i in host.gpus)
    header = header_width(painter, block.rows, shared)
    title = f"{block.title}, {shared}" if shared else block.title
    if block.alike:
        title = f"{title} (x {len(block.alike) + 1} alike)"
    band = _band(painter, block) if painter.opened is None else []
    texts = [
        text_width(title, 9, bold=True) + 8,
        *(text_width(line, SMALL_POINTS) + 12 for line, _, _ in band),
    ]
    wide = max(header + columns * (cell_width + 1) + 4, 130, *texts)
    header = round(wide) - columns * (cell_width + 1) - 4
    sheet = Sheet(wide, NVLINK)
    span = columns + 1
    rails = {painter.cluster.gpus[i].rail for host in block.hosts for i in host.gpus}
    cabled = {leaf.rail for leaf in pod.leaves if leaf.rail is not None}
    in_rails = len(cabled) > 1 and len(planes_of(pod.leaves)[0]) == len(cabled)
    by_rail = in_rails and max(rails, default=0) < columns <= painter.fold.rails
    if by_rail:
        cells = [
            painter.rail_cell(r, cell_width, f"r{r}", height=13)
            if r in cabled
            else cell(f"r{r}", width=cell_width, height=13, size=SMALL_POINTS, ink=FAULT, bgcolor=FAULT_FILL)
            for r in range(columns)
        ]
        sheet.add([cell("", width=header), *cells], 13)
    sheet.line(title, 15, bold=True, colspan=span, **_named_block(block))
    if block.alike:
        others = sorted(set(block.alike) - set(block.numbers))
        if others:
            sheet.line(f"and {ranges(others)}", 13, colspan=span, size=SMALL_POINTS)
    add_rows(painter, sheet, block.rows, columns, cell_width, header, shared)
    for line, fill, ink in band:
        sheet.line(line, 13, colspan=span, bgcolor=fill, size=SMALL_POINTS, ink=ink)
    return BlockView(block, sheet, by_rail, header, columns, cell_width)


def _named_block(block: Block) -> dict[str, object]:
    """Return the attributes of the title of a block that is one domain; nothing of other blocks."""
    if not block.whole or len(block.numbers) != 1:
        return {}
    number = block.numbers[0]
    racks = list(dict.fromkeys(host.rack for host in block.hosts))
    where = f"rack {racks[0]}" if len(racks) == 1 else plural(len(racks), "rack")
    gpus = sum(host.places for host in block.hosts)
    return named("domain", f"d{number}", f"domain of {plural(gpus, block.domain.gpu.noun)}, {where}")


def _band(painter: Painter, block: Block) -> list[tuple[str, str, str]]:
    """Return what joins the GPUs of a domain: lines with fill and ink, the traffic on it last."""
    wrong = {host.domain for host in block.hosts if host.id in painter.odd}
    first = next((number for number in block.numbers if number not in wrong), block.numbers[0])
    lines = [(line, NVLINK_FILL, BAND_INK) for line in scale_up_words(painter.fold, first)]
    if not block.whole:
        lines.insert(
            0, (f"part of {painter.domain_name(block.numbers[0])}, which has", NVLINK_FILL, BAND_INK)
        )
    if len(block.rows) > 1 and block.single:
        lines.insert(0, ("each row is a domain", NVLINK_FILL, BAND_INK))
    numbers = (*block.numbers, *block.alike)
    odd = painter.marks.lines(painter.fold.chip_ids(numbers), 2)
    lines += [(line, FAULT_FILL, FAULT) for line in odd]
    if painter.usage is not None:
        share = painter.usage.busiest(painter.usage.inside(numbers))
        lines.append(
            (
                f"busiest scale-up link: {percent(share)}",
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
    spread = not column.same_domain and len(domains) < len(pods)
    alike = plural(len(domains), "domain") if spread else f"{len(pods):,}"
    alike = f"{alike} more" if len(pods) == 1 else alike
    first = f"{alike} alike" if len(pods) == 1 else f"x {alike} alike"
    lines = [f"{len(pods):,} more, not all alike" if column.like is None else first]
    if column.same_domain:
        lines.append("of the same domain" if len(domains) == 1 else "of the same domains")
    else:
        lines += [*([] if spread else [plural(len(domains), "more domain")]), ranges(domains)]
    lines = [*lines, *painter.summed_up(hosts)] if hosts else [f"no {painter.noun}s below"]
    word = _word(leaves)
    above = leaves[0].id if len(leaves) == 1 else plural(len(leaves), word)
    if not hosts and len(leaves) > 1:
        above = f"{above}: {ids_text([leaf.id for leaf in leaves])}"
    wide = max(_PLACEHOLDER, *(text_width(line, 9, bold=True) + 14 for line in [above, *lines]))
    head: Sheet | None = None
    if leaves or painter.opened is None:
        head = Sheet(wide, QUIET, dashed=True)
        head.line(above, 20, width=wide - 4, size=SMALL_POINTS)
    body = Sheet(wide, NVLINK, dashed=True)
    body.line("", 6)
    body.lines(lines, 15, wide - 4)
    body.line("", 6)
    return PodView(column, f"more{pods[0].number}", head, [BlockView(None, body)], wide)
