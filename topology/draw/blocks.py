"""What a picture of several domains shows: pods of blocks of GPUs, those that are alike drawn once with a count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TypeVar

from topology.base.units import plural
from topology.draw.canvas import SMALL_POINTS, Sheet, text_width
from topology.draw.captions import kind_title
from topology.draw.painter import Painter
from topology.draw.parts import Group, Host, Pod, Shape, Switch
from topology.structures.domain import DomainSpec

_OPEN_PODS, _OPEN_GPUS = 4, 576
_OVERLAY_PODS, _OVERLAY_GPUS = 18, 1152
_LONGEST_BLOCK, _KEPT_ROWS = 18, 6
_MOST_SHAPES, _MOST_GROUPS = 8, 3
_MOST_BLOCKS = 3
_LEAST_HEADER = 28
_CELL, _ROOM = 27, 990

Thing = TypeVar("Thing")


@dataclass(frozen=True)
class Row:
    """One host of a block, or (``more`` > 0) hosts left out: all alike, and like one that is drawn."""

    header: str
    host: Host
    more: int = 0


@dataclass(frozen=True)
class Block:
    """A grid of GPUs: rows are hosts. ``single`` says that each row is a domain of its own.

    ``alike`` more blocks of the pod have the same shape; ``whole`` says that the domains are whole in it.
    """

    title: str
    domain: DomainSpec
    numbers: tuple[int, ...]
    single: bool
    whole: bool
    rows: tuple[Row, ...]
    shape: Shape
    alike: tuple[int, ...] = ()

    @property
    def hosts(self) -> list[Host]:
        """Hosts that are drawn."""
        return [row.host for row in self.rows if not row.more]

    @property
    def columns(self) -> int:
        """GPUs in the longest row."""
        return max(host.places for host in self.hosts)


@dataclass
class Column:
    """One column of the picture: a pod drawn open, or in its place what is left out and why it may be."""

    pods: list[Pod]
    blocks: list[Block] = field(default_factory=list)
    like: Pod | None = None
    same_domain: bool = False

    @property
    def open(self) -> bool:
        """Whether the pod is drawn open."""
        return bool(self.blocks)


@dataclass
class Section:
    """Columns under the same spines; ``alike`` are the groups that are not drawn.

    They look like this one, or (``differ``) none of them is drawn and each is different.
    """

    group: Group
    columns: list[Column]
    alike: list[Group] = field(default_factory=list)
    differ: bool = False


def choose(painter: Painter) -> list[Section]:
    """Choose what is drawn open: everything where it fits, else the first of each shape."""
    groups = painter.fold.groups
    pods = sum(len(group.pods) for group in groups)
    most = (_OPEN_PODS, _OPEN_GPUS) if painter.overlay is None else (_OVERLAY_PODS, _OVERLAY_GPUS)
    if pods <= most[0] and len(painter.cluster.gpus) <= most[1]:
        return [Section(group, [_column(painter, pod, full=True) for pod in group.pods]) for group in groups]
    shapes = by_look(painter, groups, lambda group: (group.shape, *_parts(group.pods, group.spines)))
    kept = _kept(shapes, _MOST_GROUPS, lambda group: painter.holds(*_parts(group.pods, group.spines)))
    each = max(2, _MOST_SHAPES // len(kept))
    sections = [Section(same[0], _columns(painter, same[0], each), same[1:]) for same in kept]
    others = [group for same in shapes if same not in kept for group in same]
    if others:
        column = Column([pod for group in others for pod in group.pods])
        sections.append(Section(others[0], [column], others[1:], differ=True))
    return sections


def _kept(shapes: list[list[Thing]], most: int, first: Callable[[Thing], bool]) -> list[list[Thing]]:
    """Return the shapes to draw, in order: all if they are few, else the commonest one and ``first`` others."""
    if len(shapes) <= most + 1:
        return shapes
    usual = max(shapes, key=len)
    others = sorted((same for same in shapes if same is not usual), key=lambda same: not first(same[0]))
    others = others[: most - 1]
    return [same for same in shapes if same is usual or same in others]


def _columns(painter: Painter, group: Group, most: int) -> list[Column]:
    """Return the columns of one group: the first unit of each shape open, the others counted."""
    columns: list[Column] = []
    shapes = by_look(painter, _units(group), lambda unit: (tuple(pod.shape for pod in unit), *_parts(unit)))
    kept = _kept(shapes, most, lambda unit: painter.holds(*_parts(unit)))
    for same in kept:
        columns += _unit_columns(painter, same[0])
        left = [pod for unit in same[1:] for pod in unit]
        if left:
            columns.append(Column(left, like=same[0][0]))
    others = [pod for same in shapes if same not in kept for unit in same for pod in unit]
    if others:
        columns.append(Column(others))
    return columns


def _parts(pods: Sequence[Pod], spines: Sequence[Switch] = ()) -> tuple[list[Host], list[Switch]]:
    """Return the hosts of some pods, and the switches over them."""
    leaves = [leaf for pod in pods for leaf in pod.leaves]
    return [host for pod in pods for host in pod.hosts], [*leaves, *spines]


def _unit_columns(painter: Painter, unit: Sequence[Pod]) -> list[Column]:
    """Return the columns of pods that share a domain, or of one pod: the first of each shape open."""
    columns: list[Column] = []
    for same in by_look(painter, unit, lambda pod: (pod.shape, *_parts([pod]))):
        columns.append(_column(painter, same[0]))
        if len(same) > 1:
            columns.append(Column(same[1:], like=same[0], same_domain=True))
    return columns


def _column(painter: Painter, pod: Pod, *, full: bool = False) -> Column:
    """Return a pod drawn open; ``full``: every GPU, if colours mean something."""
    blocks = blocks_of(painter, pod, every_row=full and painter.overlay is not None)
    return Column([pod], _fewer(painter, blocks) if len(blocks) > _MOST_BLOCKS else blocks)


def _fewer(painter: Painter, blocks: list[Block]) -> list[Block]:
    """Return the first block of each shape, with the numbers of those like it."""
    same = by_look(painter, blocks, lambda block: ((block.shape, block.single), block.hosts, ()))
    return [
        replace(first, alike=tuple(number for block in rest for number in block.numbers))
        for first, *rest in same
    ]


def blocks_of(painter: Painter, pod: Pod, *, every_row: bool = False) -> list[Block]:
    """Return the blocks of a pod: one for each rack of a domain, or one for a row of domains of one host."""
    spec, parts = painter.cluster.spec, painter.fold.hosts_by_domain
    blocks: list[Block] = []
    singles: list[Host] = []
    for number, hosts in groupby(pod.hosts, key=lambda host: host.domain):
        members = list(hosts)
        if len(parts[number]) == 1:
            if singles and _kind(spec.domains[singles[0].domain]) != _kind(spec.domains[number]):
                blocks.append(_single_block(painter, singles, every_row=every_row))
                singles = []
            singles += members
            continue
        whole = len(members) == len(parts[number])
        blocks += _domain_blocks(painter, members, whole=whole, every_row=every_row)
    if singles:
        blocks.append(_single_block(painter, singles, every_row=every_row))
    return blocks


def domain_section(painter: Painter, number: int) -> Section:
    """Return one domain as columns under its switch chips: racks, or runs of hosts; too many are counted."""
    racks, hosts = _racks(painter.fold.hosts_by_domain[number]), painter.fold.hosts_by_domain[number]
    blocks = [
        _domain_block(painter, rack, several=len(racks) > 1, whole=False, every_row=True) for rack in racks
    ]
    columns = max(block.columns for block in blocks)
    wide = max(header_width(painter, block.rows) for block in blocks) + columns * _CELL
    most = max(2, 2 * (_ROOM // wide))
    if len(blocks) > most or max(len(block.rows) for block in blocks) > _LONGEST_BLOCK:
        rows = [row for block in blocks for row in block.rows]
        size = min(_LONGEST_BLOCK, max(-(-len(rows) // most), 12))
        parts = [tuple(rows[i : i + size]) for i in range(0, len(rows), size)]
        blocks = [
            replace(
                blocks[0],
                title=f"{part[0].header} to {part[-1].header}",
                rows=part,
                shape=tuple(row.host.shape for row in part),
            )
            for part in parts
        ]
    pods = [_part(painter, number, i, block) for i, block in enumerate(blocks)]
    drawn = [Column([pod], [block]) for pod, block in zip(pods, blocks, strict=True)]
    if len(blocks) > most:
        drawn = []
        shapes = by_look(
            painter,
            list(zip(pods, blocks, strict=True)),
            lambda both: (both[1].shape, both[0].hosts, both[0].leaves),
        )
        kept = _kept(shapes, max(1, most // 2), lambda both: painter.holds(both[0].hosts, both[0].leaves))
        for first, *rest in kept:
            drawn.append(Column([first[0]], [first[1]]))
            if rest:
                drawn.append(Column([pod for pod, _ in rest], like=first[0], same_domain=True))
        if left := [pod for same in shapes if same not in kept for pod, _ in same]:
            drawn.append(Column(left, same_domain=True))
    chips, upper = painter.fold.chips(number), painter.fold.chips(number, "upper")
    return Section(Group([Pod(number, hosts, [])], upper or chips), drawn)


def _part(painter: Painter, number: int, place: int, block: Block) -> Pod:
    """Return the hosts of a block of one domain; where it has two tiers of chips, with those of the first."""
    hosts = block.hosts
    if not painter.fold.chips(number, "upper"):
        return Pod(place, hosts, [])
    found = (switch for host in hosts for switch in painter.fold.cabled[host.id] if switch.tier == "chip")
    return Pod(place, hosts, list({switch.id: switch for switch in found}.values()))


def _racks(hosts: list[Host]) -> list[list[Host]]:
    """Return hosts by rack; all together where every rack holds one host."""
    racks = [list(rack) for _, rack in groupby(hosts, key=lambda host: host.rack)]
    return [hosts] if all(len(rack) == 1 for rack in racks) else racks


def _domain_blocks(painter: Painter, hosts: list[Host], *, whole: bool, every_row: bool) -> list[Block]:
    """Return the blocks of those hosts of a domain that are in one pod."""
    racks = _racks(hosts)
    several = not whole or 1 < len(racks) <= _MOST_BLOCKS
    if len(racks) > _MOST_BLOCKS:
        racks = [hosts]
    whole = whole and len(racks) == 1
    return [_domain_block(painter, rack, several=several, whole=whole, every_row=every_row) for rack in racks]


def _domain_block(
    painter: Painter, hosts: list[Host], *, several: bool, whole: bool, every_row: bool
) -> Block:
    """Return the block of some hosts of one domain."""
    number = hosts[0].domain
    place = painter.domain_name(number)
    if several and hosts[0].rack:
        place = f"{place} {hosts[0].rack.rpartition('.')[2].replace('r', 'rack ', 1)}"
    # the last part of an id of ours, else the id
    names = [h.id.rpartition(".")[2] if h.id.startswith(f"d{number}.") else h.id for h in hosts]
    domain = painter.cluster.spec.domains[number]
    title = f"{place}: {plural(sum(len(host.gpus) for host in hosts), domain.gpu.noun)}"
    shape = (painter.fold.domain_shapes[number], tuple(host.shape for host in hosts))
    rows = _rows(painter, names, hosts, every_row=every_row)
    return Block(title, domain, (number,), False, whole, rows, shape)


def _single_block(painter: Painter, hosts: list[Host], *, every_row: bool) -> Block:
    """Return the block of domains of one host each."""
    domain = painter.cluster.spec.domains[hosts[0].domain]
    numbers = tuple(host.domain for host in hosts)
    names = [painter.domain_name(number) for number in numbers]
    rows = _rows(painter, names, hosts, every_row=every_row)
    shape = tuple(host.shape for host in hosts)
    title = kind_title(domain) if len(hosts) == 1 else f"{len(hosts)} x {kind_title(domain)}"
    return Block(title, domain, numbers, True, True, rows, shape)


def _rows(
    painter: Painter, names: Sequence[str], hosts: Sequence[Host], *, every_row: bool
) -> tuple[Row, ...]:
    """Return a row for each host, else a readable number: the first few and those unlike the others stay."""
    rows = tuple(map(Row, names, hosts))
    if every_row or len(rows) <= _LONGEST_BLOCK:
        return rows
    sound = [row for row in rows if row.host.id not in painter.odd and not painter.holds([row.host])]
    usual = [shape for shape, _ in Counter(row.host.shape for row in sound).most_common(1)]
    alike = [row for row in sound if row.host.shape in usual]
    same = {row.host.id for row in alike}
    odd = [row for row in rows if row.host.id not in same]
    kept = [*alike[:_KEPT_ROWS], *odd[:_LONGEST_BLOCK]]
    kept.sort(key=rows.index)
    left, unlike = len(alike) - _KEPT_ROWS, len(odd) - _LONGEST_BLOCK
    last = [Row(f"x {left} more rows alike", alike[0].host, left)] if left > 0 else []
    if unlike > 0:
        last.append(Row(f"{unlike} more rows that differ", odd[0].host, unlike))
    return (*kept, *last)


def header_width(painter: Painter, rows: Sequence[Row], shared: str = "") -> int:
    """Return the width of the row headers; ``shared`` is the tag that the block has as a whole."""
    texts = [_row_header(painter, row, shared) for row in rows if not row.more]
    return max([_LEAST_HEADER, *(text_width(text, SMALL_POINTS) + 4 for text in texts)])


def _row_header(painter: Painter, row: Row, shared: str) -> str:
    """Return the header of a row: the host or domain, and its tag if the block does not have that one as a whole."""
    tag = painter.same_tag(painter.places(row.host))
    return row.header if tag == shared else f"{row.header} {tag}".rstrip()


def add_rows(
    painter: Painter,
    sheet: Sheet,
    rows: Sequence[Row],
    columns: int,
    cell_width: int,
    header: int,
    shared: str = "",
) -> None:
    """Add a row for each host, with its header, its GPUs and what is wrong with them."""
    for row in rows:
        if row.more:
            sheet.line(row.header, 14, colspan=columns + 1, size=SMALL_POINTS, bold=True)
            continue
        text = _row_header(painter, row, shared)
        places = painter.places(row.host)
        painter.host_rows(sheet, places, columns, cell_width, header=(text, header), host=row.host)
        faults = painter.fault_rows(painter.names(row.host), columns + 1, 2, width=sheet.width - 8)
        sheet.add_all(faults, 12)


def _kind(domain: DomainSpec) -> tuple[object, ...]:
    """Return what domains in one block have in common."""
    return (domain.part, domain.gpu.name, domain.structure, kind_title(domain))


def _units(group: Group) -> list[tuple[Pod, ...]]:
    """Return pods that share a domain together, each other pod alone."""
    units: list[list[Pod]] = []
    last: set[int] = set()
    for pod in group.pods:
        if units and last & set(pod.domains):
            units[-1].append(pod)
        else:
            units.append([pod])
        last = set(pod.domains)
    return [tuple(unit) for unit in units]


def by_look(
    painter: Painter,
    things: Sequence[Thing],
    parts: Callable[[Thing], tuple[Shape, Sequence[Host], Sequence[Switch]]],
) -> list[list[Thing]]:
    """Return things that look alike together, in order of the first of each.

    ``parts`` gives the shape, the hosts and the switches of each. One that holds the bottleneck comes before those
    like it, so that it is the one that is drawn.
    """
    found: dict[Hashable, list[Thing]] = {}
    for thing in things:
        shape, hosts, switches = parts(thing)
        found.setdefault((shape, painter.looks(hosts, switches)), []).append(thing)
    return [sorted(same, key=lambda thing: not painter.holds(*parts(thing)[1:])) for same in found.values()]
