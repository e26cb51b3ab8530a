"""Content of a tier drawing: columns of GPU blocks, with equal ones drawn once and counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from topology.base.units import plural
from topology.draw.canvas import Sheet, text_width
from topology.draw.captions import kind_title
from topology.draw.fold import Group, Host, Pod, Shape, Switch
from topology.draw.painter import Painter

_OPEN_PODS, _OPEN_GPUS = 4, 576
_OVERLAY_PODS, _OVERLAY_GPUS = 18, 1152
"""Pods and GPUs up to which a cluster is drawn in full: without an overlay, and with one, whose values all differ."""
_MAX_ROWS, _KEPT_ROWS = 18, 6
"""Hosts of a block, as many as an NVL72 has; of a longer one, rows of identical hosts that stay."""
_MAX_SHAPES, _MAX_GROUPS, _MAX_BLOCKS = 8, 3, 3
_MIN_HEADER_WIDTH = 28
_CELL_WIDTH, _LINE_WIDTH = 27, 990
"""Points of a GPU with the gap beside it, and of a line of blocks."""


@dataclass(frozen=True)
class Row:
    """One host of a block; without a host, words about those left out."""

    header: str
    host: Host | None = None


@dataclass(frozen=True)
class Block:
    """A grid of GPUs: rows are hosts. ``single`` means that each row is a domain of its own.

    ``hosts`` are all of them, ``rows`` those that are drawn. ``others`` are the hosts of blocks of the pod with the
    same shape, ``alike`` with this one; ``whole`` means that its domains are whole.
    """

    title: str
    rows: tuple[Row, ...]
    hosts: tuple[Host, ...]
    single: bool = False
    whole: bool = False
    alike: int = 1
    others: tuple[Host, ...] = ()

    @property
    def numbers(self) -> tuple[int, ...]:
        """Its domains."""
        return tuple(dict.fromkeys(host.domain for host in self.hosts))

    @property
    def shape(self) -> Shape:
        """The shapes of its hosts."""
        return tuple(host.shape for host in self.hosts)

    @property
    def columns(self) -> int:
        """GPUs in the longest row."""
        return max(host.places for host in self.hosts)


@dataclass
class BlockTable:
    """The table of a block of GPUs, or of what is left out, with the ``hosts`` that it stands for."""

    sheet: Sheet
    hosts: Sequence[Host]
    by_rail: bool = False
    header: int = 0
    columns: int = 0
    cell_width: int = 0

    def rail_x(self, rail: int) -> float:
        """Return how far from its left edge the middle of the column of a rail is."""
        return 3 + self.header + rail * (self.cell_width + 1) + self.cell_width / 2


@dataclass
class Column:
    """One column of the picture: a pod drawn open, or pods left out, all the same as one that is drawn or not.

    Its tables and their sizes are known once it is measured: ``head`` is that of the leaves, ``leaf_x`` how far from
    its middle each leaf is, ``x`` its left edge.
    """

    pods: list[Pod]
    blocks: list[Block] = field(default_factory=list)
    same: bool = False
    more_domains: bool = True
    head: Sheet | None = None
    tables: list[BlockTable] = field(default_factory=list)
    width: float = 0.0
    leaf_x: Mapping[str, float] = field(default_factory=dict)
    x: float = 0.0

    @property
    def name(self) -> str:
        """Name of its box of leaves."""
        return f"{'pod' if self.blocks else 'more'}{self.pods[0].number}"

    @property
    def centre(self) -> float:
        """Where its middle is."""
        return self.x + self.width / 2

    @property
    def height(self) -> float:
        """Height of the highest block."""
        return max(table.sheet.height for table in self.tables)

    @property
    def hosts(self) -> list[Host]:
        """Hosts of its pods."""
        return [host for pod in self.pods for host in pod.hosts]

    @property
    def leaves(self) -> list[Switch]:
        """Switches of the first tier of its pods."""
        return [leaf for pod in self.pods for leaf in pod.leaves]


@dataclass
class Section:
    """Columns under the same spines; ``others`` are groups that are not drawn, the same as this one or ``differ``."""

    group: Group
    columns: list[Column]
    others: list[Group] = field(default_factory=list)
    differ: bool = False


def fabric_sections(painter: Painter) -> list[Section]:
    """Choose what of all domains is drawn open: everything where it fits, else the first of each shape."""
    groups = painter.fold.groups
    pods, gpus = sum(len(group.pods) for group in groups), len(painter.cluster.gpus)
    colours = painter.overlay is not None
    open_limits = (_OVERLAY_PODS, _OVERLAY_GPUS) if colours else (_OPEN_PODS, _OPEN_GPUS)
    if pods <= open_limits[0] and gpus <= open_limits[1]:
        return [
            Section(group, [_column(painter, pod, every_row=colours) for pod in group.pods])
            for group in groups
        ]
    kinds, unlike = painter.same(
        groups, lambda group: (group.shape, *_parts(group.pods, group.spines)), _MAX_GROUPS
    )
    limit = max(2, _MAX_SHAPES // len(kinds))
    sections = [
        Section(leader, _columns(painter, leader.pods, limit), followers) for leader, *followers in kinds
    ]
    if unlike:
        column = Column([pod for group in unlike for pod in group.pods])
        sections.append(Section(unlike[0], [column], unlike[1:], differ=True))
    return sections


def _columns(painter: Painter, pods: Sequence[Pod], limit: int) -> list[Column]:
    """Return the columns of one group: the first pod of each shape open, the others counted."""
    columns: list[Column] = []
    kinds, unlike = painter.same(pods, lambda pod: (pod.shape, *_parts([pod])), limit)
    for leader, *followers in kinds:
        columns.append(_column(painter, leader))
        inside = [pod for pod in followers if not {*leader.domains}.isdisjoint(pod.domains)]
        beyond = [pod for pod in followers if pod not in inside]
        columns += _left_out(inside, same=True, more_domains=False)
        columns += _left_out(beyond, same=True)
    return [*columns, *_left_out(unlike)]


def _parts(pods: Sequence[Pod], spines: Sequence[Switch] = ()) -> tuple[list[Host], list[Switch]]:
    """Return the hosts of some pods, and the switches over them."""
    column = Column(list(pods))
    return column.hosts, [*column.leaves, *spines]


def _column(painter: Painter, pod: Pod, *, every_row: bool = False) -> Column:
    """Return a pod drawn open; of many blocks the first of each shape, with the numbers of those like it."""
    blocks = _blocks(painter, pod, every_row=every_row)
    if len(blocks) > _MAX_BLOCKS:
        shapes = painter.fold.domain_shapes

        def kind(block: Block) -> Shape:
            return (block.single, block.shape, () if block.single else shapes[block.numbers[0]])

        kinds, _ = painter.same(blocks, lambda block: (kind(block), block.hosts, ()))
        blocks = [
            replace(
                leader,
                alike=1 + len(followers),
                others=tuple(host for block in followers for host in block.hosts),
            )
            for leader, *followers in kinds
        ]
    return Column([pod], blocks)


def _blocks(painter: Painter, pod: Pod, *, every_row: bool) -> list[Block]:
    """Return the blocks of a pod: one for each rack of a domain, or one for a row of domains of one host."""
    spec, by_domain = painter.spec, painter.fold.hosts_by_domain
    blocks: list[Block] = []

    def kind(number: int) -> object:
        domain, alone = spec.domains[number], len(by_domain[number]) == 1
        # every other domain is a run of its own
        return (domain.part, domain.gpu.name, domain.structure, kind_title(domain)) if alone else number

    for _, run in groupby(pod.hosts, key=lambda host: kind(host.domain)):
        hosts = list(run)
        number = hosts[0].domain
        if len(by_domain[number]) == 1:
            names = [painter.domain_name(host.domain) for host in hosts]
            title = f"{len(hosts)} x " * (len(hosts) > 1) + kind_title(spec.domains[number])
            rows = _rows(painter, names, hosts, every_row=every_row)
            blocks.append(Block(title, rows, tuple(hosts), single=True, whole=True))
            continue
        racks, complete = _racks(hosts), len(hosts) == len(by_domain[number])
        several = not complete or 1 < len(racks) <= _MAX_BLOCKS
        racks = [hosts] if len(racks) > _MAX_BLOCKS else racks
        complete = complete and len(racks) == 1
        blocks += [
            _block(painter, rack, several=several, every_row=every_row, whole=complete) for rack in racks
        ]
    return blocks


def domain_section(painter: Painter, number: int) -> Section:
    """Return one domain as columns under its switch chips: racks, or runs of hosts; too many are counted."""
    hosts = painter.fold.hosts_by_domain[number]
    racks = _racks(hosts)
    blocks = [_block(painter, rack, several=len(racks) > 1, every_row=True) for rack in racks]
    wide = max(header_width(painter, block.rows) for block in blocks)
    limit = max(2, 2 * (_LINE_WIDTH // (wide + max(block.columns for block in blocks) * _CELL_WIDTH)))
    if len(blocks) > limit or max(len(block.rows) for block in blocks) > _MAX_ROWS:
        rows = [row for block in blocks for row in block.rows]
        size = min(_MAX_ROWS, max(-(-len(rows) // limit), 12))
        like, blocks = blocks[0], []
        for i in range(0, len(rows), size):
            run = tuple(rows[i : i + size])
            inside = tuple(row.host for row in run if row.host is not None)
            title = f"{run[0].header} to {run[-1].header}"
            blocks.append(replace(like, title=title, rows=run, hosts=inside))
    chips, upper = painter.fold.chips(number), painter.fold.chips(number, "upper")
    columns = [Column([_part(painter, i, block, bool(upper))], [block]) for i, block in enumerate(blocks)]
    if len(blocks) > limit:
        kinds, unlike = painter.same(
            columns, lambda column: (column.blocks[0].shape, column.hosts, column.leaves), max(1, limit // 2)
        )
        columns = []
        for leader, *followers in kinds:
            alike = [column.pods[0] for column in followers]
            columns += [leader, *_left_out(alike, same=True, more_domains=False)]
        columns += _left_out([column.pods[0] for column in unlike], more_domains=False)
    return Section(Group([Pod(number, hosts, [])], upper or chips), columns)


def _left_out(pods: list[Pod], *, same: bool = False, more_domains: bool = True) -> list[Column]:
    """Return pods, if there are any, as a column that is not drawn open."""
    return [Column(pods, same=same, more_domains=more_domains)] if pods else []


def _part(painter: Painter, place: int, block: Block, two_tiers: bool) -> Pod:
    """Return the hosts of a block of one domain; where it has two tiers of chips, with those of the first."""
    if not two_tiers:
        return Pod(place, list(block.hosts), [])
    chips = (chip for host in block.hosts for chip in painter.fold.cabled[host.id] if chip.tier == "chip")
    return Pod(place, list(block.hosts), list({chip.id: chip for chip in chips}.values()))


def _racks(hosts: list[Host]) -> list[list[Host]]:
    """Return hosts by rack; all together where every rack holds one host."""
    racks = [list(rack) for _, rack in groupby(hosts, key=lambda host: host.rack)]
    return [hosts] if all(len(rack) == 1 for rack in racks) else racks


def _block(
    painter: Painter, hosts: list[Host], *, several: bool, every_row: bool, whole: bool = False
) -> Block:
    """Return the block of some hosts of one domain, which names their rack if it has ``several``."""
    number = hosts[0].domain
    place = painter.domain_name(number)
    if several and hosts[0].rack:
        place = f"{place} {hosts[0].rack.rpartition('.')[2].replace('r', 'rack ', 1)}"
    # the last part of an id of ours, else the id
    names = [h.id.rpartition(".")[2] if h.id.startswith(f"d{number}.") else h.id for h in hosts]
    title = f"{place}: {painter.count(hosts, painter.spec.domains[number].gpu.noun)}"
    return Block(title, _rows(painter, names, hosts, every_row=every_row), tuple(hosts), whole=whole)


def _rows(
    painter: Painter, names: Sequence[str], hosts: Sequence[Host], *, every_row: bool
) -> tuple[Row, ...]:
    """Return a row for each host, else a readable number: the first few and those unlike the others stay."""
    rows = tuple(map(Row, names, hosts))
    if every_row or len(rows) <= _MAX_ROWS:
        return rows
    same = [n for n, host in enumerate(hosts) if host.id not in painter.odd and not painter.holds([host])]
    usual = [shape for shape, _ in Counter(hosts[n].shape for n in same).most_common(1)]
    same = [n for n in same if hosts[n].shape in usual]
    odd = sorted({*range(len(hosts))} - {*same})
    summary = [
        Row(f"{plural(len(hidden), f'more {word} row')}: {painter.count([hosts[n] for n in hidden])}")
        for hidden, word in ((same[_KEPT_ROWS:], "identical"), (odd[_MAX_ROWS:], "different"))
        if hidden
    ]
    return (*(rows[n] for n in sorted([*same[:_KEPT_ROWS], *odd[:_MAX_ROWS]])), *summary)


def header_width(painter: Painter, rows: Sequence[Row], shared: str = "") -> int:
    """Return the width of the row headers; ``shared`` is the tag that the block has as a whole."""
    texts = [row_header(painter, row, shared) for row in rows if row.host is not None]
    return max([_MIN_HEADER_WIDTH, *(text_width(text) + 4 for text in texts)])


def row_header(painter: Painter, row: Row, shared: str) -> str:
    """Return the header of a row: the host or domain, and its tag if the block does not have that one as a whole."""
    tag = painter.same_tag(painter.places(row.host)) if row.host is not None else ""
    return row.header if tag == shared or row.host is None else f"{row.header} {tag}".rstrip()
