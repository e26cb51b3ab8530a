"""Grids: a torus plane by plane, and one rack as an elevation of trays."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import product

from topology.base.units import plural, span
from topology.draw import palette
from topology.draw.canvas import TEXT_POINTS, Sheet, cell, in_lines, named, table, text_width
from topology.draw.captions import UNCOUNTED, broken_lines, own_links, rate_text
from topology.draw.fold import Host, Links, Switch
from topology.draw.painter import Ends, Painter, Place, gpus_as_built
from topology.structures.torus import TorusDomain, torus_places

_CELL, _BRIDGE, _STUB, _GAP = 26, 8, 6, 78
_MAX_DETAIL_WIDTH = 560
"""Points of a row of cells with the long texts of an overlay."""
_MAX_PLANES, _MAX_CELLS = 8, 576
_MAX_SIDE, _SHOWN_SIDE = 16, 8
"""GPUs in a row or column of a plane that are all drawn; of a longer one the first few."""
_AXES = "xyzuvw"
Coordinate = tuple[int, ...]


@dataclass
class _Plane:
    """One plane: the places that share their last coordinates; or ``left_out`` planes, up to the one there."""

    coordinate: Coordinate
    sheet: Sheet
    left_out: bool = False


def draw_torus(painter: Painter, number: int) -> list[str]:
    """Draw one torus domain, a grid for each plane of its first two dimensions; return lines that explain it.

    Links to the next plane are drawn between grids, round at the ends and over breaks of a row too.
    """
    grid = _Torus(painter, number)
    planes = grid.planes()
    margin = float(_GAP if len(planes) > 1 else 0)
    corners = in_lines([(plane.sheet.width, plane.sheet.height) for plane in planes], (_GAP, 30), margin)
    for i, (plane, (x, y)) in enumerate(zip(planes, corners, strict=True)):
        painter.canvas.sheet(f"plane{i}", (x, y + (grid.middle - 11 if plane.left_out else 0)), plane.sheet)
    places = {plane.coordinate: i for i, plane in enumerate(planes) if not plane.left_out}
    for i, plane in enumerate(planes):
        links, pairs, following = grid.to_next(plane.coordinate)
        target = places.get(following, i + 1)
        if not links.count or target >= len(planes):
            continue
        right, top = corners[i][0] + plane.sheet.width, corners[i][1]
        painter.label((right - 2, top + grid.middle - 24), links, f"plane {i}")
        left, target_top = corners[target]
        y, to_y = top + grid.middle, target_top + grid.middle
        begin, end = (f"plane{i}", (right, y)), (f"plane{target}", (left, to_y))
        halves = [(begin, end)]
        if target != i + 1 or target_top != top:
            painter.canvas.text(f"to{i}", (right + 52, y), [f"to {_words(following)}"], palette.BAND_INK)
            painter.canvas.text(
                f"from{i}", (left - 52, to_y), [f"to {_words(plane.coordinate)}"], palette.BAND_INK
            )
            halves = [(begin, (f"to{i}", (right + 26, y))), (end, (f"from{i}", (left - 26, to_y)))]
        for half in halves:
            painter.link(half, pairs, colour=palette.NVLINK, width=3.0, dashed=links.degraded, links=links)
    bottom = max(y + plane.sheet.height for plane, (_, y) in zip(planes, corners, strict=True))
    painter.draw_legend((0.0, bottom + 20))
    return grid.notes()


def _words(coordinate: Coordinate) -> str:
    """Return "z = 3"."""
    return ", ".join(f"{_AXES[2 + i]} = {at}" for i, at in enumerate(coordinate))


class _Torus:
    """The places of a torus and the GPUs on them."""

    def __init__(self, painter: Painter, number: int) -> None:
        self.painter = painter
        domain = painter.spec.domains[number]
        assert isinstance(domain, TorusDomain)  # noqa: S101 - its picture is a grid
        self.domain, self.shape = domain, domain.shape
        places = map(tuple, torus_places(domain).T.tolist())
        self.ids: dict[Coordinate, str] = dict(zip(places, gpus_as_built(domain, number), strict=True))
        self.rows, self.columns = (*self.shape, 1)[:2]
        self.shown = [n if n <= _MAX_SIDE else _SHOWN_SIDE for n in (self.rows, self.columns)]
        self.cell = painter.detail_width(_CELL, min(self.columns, _MAX_SIDE), _MAX_DETAIL_WIDTH)
        # where links to other planes end: at the middle of a row
        self.middle = 2 + 16 + _STUB + 1 + (19 + _STUB + 1) * (self.shown[0] // 2) + 9
        self.coordinates = list(product(*(range(size) for size in self.shape[2:])))
        self.members: dict[Coordinate, list[str]] = {coordinate: [] for coordinate in self.coordinates}
        for at, name in self.ids.items():
            self.members[at[2:]].append(name)

    def planes(self) -> list[_Plane]:
        """Return the planes to draw: all, or the first of each look, and what is left out between them."""
        cells = min(self.rows, _MAX_SIDE) * min(self.columns, _MAX_SIDE)
        if len(self.coordinates) <= _MAX_PLANES and cells * len(self.coordinates) <= _MAX_CELLS:
            return [self._plane(coordinate) for coordinate in self.coordinates]
        looks = {coordinate: self._look(coordinate) for coordinate in self.coordinates}
        usage = self.painter.usage
        ends = set(usage.bottleneck) if usage is not None else set()
        firsts = {look: coordinate for coordinate, look in reversed(looks.items())}
        chosen = [coordinate for coordinate in self.coordinates if ends & {*self.members[coordinate]}]
        chosen = [*chosen, *sorted(firsts.values(), key=self.coordinates.index)][:_MAX_PLANES]
        drawn = {looks[coordinate] for coordinate in chosen}
        planes: list[_Plane] = []
        hidden: list[Coordinate] = []
        for coordinate in [*self.coordinates, None]:
            if coordinate is not None and coordinate not in chosen:
                hidden.append(coordinate)
                continue
            if hidden:
                planes.append(self._left_out(hidden, same={looks[skipped] for skipped in hidden} <= drawn))
            hidden = []
            planes += [self._plane(coordinate)] if coordinate is not None else []
        return planes

    def notes(self) -> list[str]:
        """Return a line about what the bars mean, and the dimensions."""
        round_ends = "; links at the edges of a grid wrap around" if any(self.domain.wrap[:2]) else ""
        sides = zip(_AXES, self.shape, self.domain.wrap, strict=False)
        parts = [f"{name}: {'ring' if wrap else 'line'} of {size}" for name, size, wrap in sides if size > 1]
        return [f"Bars are links{round_ends}; {', '.join(parts)}"]

    def _look(self, coordinate: Coordinate) -> Hashable:
        """Return what planes that may be drawn as one have in common: nothing wrong, links of the same colours."""
        names, usage = self.members[coordinate], self.painter.usage
        if any(self.painter.marks.of(name) for name in names):
            return coordinate
        return usage.colours(names) if usage is not None else None

    def to_next(self, coordinate: Coordinate) -> tuple[Links, list[Ends], Coordinate]:
        """Return the links from a plane to the next one along the third dimension, their ends, and that plane."""
        links = Links()
        pairs: list[Ends] = []
        if not coordinate or (self.shape[2] == 2 and coordinate[0] == 1):  # a ring of two has one bundle
            return links, pairs, ()
        following = ((coordinate[0] + 1) % self.shape[2], *coordinate[1:])
        graph = self.painter.cluster.graph
        for row, column in product(range(self.rows), range(self.columns)):
            pair = self.ids[row, column, *coordinate], self.ids[row, column, *following]
            if graph.has_edge(*pair):
                links.add(graph.edges[pair])
                pairs.append(pair)
        return links, pairs, following

    def _left_out(self, coordinates: list[Coordinate], *, same: bool) -> _Plane:
        """Return the placeholder for planes that look like one that is drawn, or not all of them."""
        which = span([_words(coordinates[0]), _words(coordinates[-1])])
        count = plural(len(coordinates), "plane")
        gpus = plural(len(coordinates) * self.rows * self.columns, self.domain.gpu.noun)
        lines = (f"x {count} alike" if same else f"{count} more, not all identical", which, gpus)
        wide = max(text_width(text, TEXT_POINTS, bold=True) for text in lines) + 10
        sheet = Sheet(wide + 4, palette.NVLINK, dashed=True)
        for i, text in enumerate(lines):
            sheet.line(text, 16 if i else 18, bold=i == 0, size=TEXT_POINTS, width=wide)
        self.painter.add_faults(
            sheet, [name for coordinate in coordinates for name in self.members[coordinate]], 1, 2, width=wide
        )
        return _Plane(coordinates[-1], sheet, left_out=True)

    def _plane(self, coordinate: Coordinate) -> _Plane:
        """Return one plane: a row for each place along x, a column for each along y, bars for links."""
        rows, columns = self.shown
        numbers = self.painter.fold.number
        place: dict[str, Place] = {name: numbers.get(name, name) for name in self.members[coordinate]}
        shown = [
            place[self.ids[self._at(row, column, coordinate)]]
            for row in range(rows)
            for column in range(columns)
        ]
        title = f"{_words(coordinate) or 'x down, y across'} {self.painter.tag(shown)}".strip()
        across = 2 * columns + 1
        sheet = Sheet(columns * (self.cell + _BRIDGE + 2) - _BRIDGE + 2 * _STUB + 4, palette.OUTLINE)
        sheet.line(title, 15, bold=True, size=TEXT_POINTS, colspan=across)
        sheet.add(self._down_row(-1, coordinate), _STUB)
        for row in range(rows):
            cells = [
                self._bar(self._at(row, -1, coordinate), self._at(row, 0, coordinate), 1, _STUB, 3, edge=True)
            ]
            for column in range(columns):
                at, is_last = self._at(row, column, coordinate), column == columns - 1
                cells.append(self.painter.gpu(place[self.ids[at]], self.cell, 18))
                following, wide = self._at(row, column + 1, coordinate), _STUB if is_last else _BRIDGE
                cells.append(self._bar(at, following, 1, wide, 3, edge=is_last and columns == self.columns))
            sheet.add(cells, 18)
            sheet.add(self._down_row(row, coordinate), _STUB)
        if rows < self.rows or columns < self.columns:
            hidden = plural(self.rows * self.columns - len(shown), f"more {self.domain.gpu.noun}")
            sheet.line(f"{hidden}, {self.rows} x {self.columns} in all", 14, colspan=across)
        self.painter.add_faults(sheet, self.members[coordinate], across, 4)
        return _Plane(coordinate, sheet)

    def _at(self, row: int, column: int, coordinate: Coordinate) -> Coordinate:
        """Return a place of the torus."""
        return (row % self.rows, column % self.columns, *coordinate)[: len(self.shape)]

    def _down_row(self, row: int, coordinate: Coordinate) -> list[str]:
        """Return the links from one row to the next."""
        cells = [cell("", width=_STUB, height=_STUB)]
        for column in range(self.shown[1]):
            a, b = self._at(row, column, coordinate), self._at(row + 1, column, coordinate)
            bar = self._bar(a, b, 0, 3, _STUB, edge=row in (-1, self.rows - 1))
            cells += [bar, cell("", width=_BRIDGE, height=_STUB)]
        return cells

    def _bar(
        self, a: Coordinate, b: Coordinate, dimension: int, width: int, height: int, *, edge: bool
    ) -> str:
        """Return a short bar for the link between two places, red if it is broken, nothing if there is none."""
        tail, head = self.ids[a], self.ids[b]
        absent = not {tail, head} <= self.painter.fold.number.keys()
        if absent or dimension >= len(self.shape) or a == b or (edge and not self.domain.wrap[dimension]):
            return cell("", width=width, height=height)
        data = self.painter.cluster.graph.get_edge_data(tail, head)
        broken = data is None or data["health"] < 1
        colour = palette.FAULT if broken else self.painter.colour([(tail, head)], palette.NVLINK)
        bar = table([["<td></td>"]], fixedsize="true", width=width, height=height, bgcolor=colour)
        return f'<td tooltip="{tail} - {head}" href="#">{bar}</td>'


_GPU, _CPU, _NIC, _NICS, _ROW = 30, 32, 36, 60, 18
_SPACE, _REACH, _BAND = 3, 30, 20
_MAX_TRAYS, _MAX_TRAY_GPUS, _WIDE_ROW = 18, 16, 8
_MAX_TRAY_DETAIL_WIDTH = 700
_CHIPS_IN_ROW = 6


def one_rack(painter: Painter, number: int) -> bool:
    """Whether a domain is one rack whose chips all hosts share, with trays that fit one column."""
    hosts, fold = painter.fold.hosts_by_domain[number], painter.fold
    small = len(hosts) <= _MAX_TRAYS and max(host.places for host in hosts) <= _MAX_TRAY_GPUS
    one_column = len({host.rack for host in hosts}) in (1, len(hosts))
    return small and one_column and bool(fold.chips(number)) and not fold.chips(number, "upper")


def draw_rack(painter: Painter, number: int) -> None:
    """Draw the one rack of a domain; node trays above and below the switch trays, as they are built."""
    hosts = painter.fold.hosts_by_domain[number]
    rack = _Rack(painter, number)
    trays = [rack.node_tray(host) for host in hosts]
    half = len(hosts) * 10 // 18  # as in an NVL72
    trays[half:half] = rack.switch_trays()
    painter.canvas.box("columns", (0.0, 0.0), (rack.width, _ROW), rack.header())
    y = top = float(_ROW + _SPACE)
    x = rack.width + _REACH
    for name, sheet, links, pairs in trays:
        painter.canvas.sheet(name, (0.0, y), sheet)
        if links.count:
            width, middle = 1.0 + min(3.0, links.count / 72), y + sheet.height / 2
            line = ((name, (rack.width - 2, middle)), ("band", (x + 2, middle)))
            painter.link(line, pairs, colour=palette.NVLINK, width=width, dashed=links.degraded, links=links)
        y += sheet.height + _SPACE
    identity = (
        ("rack", hosts[0].rack) if len({host.rack for host in hosts}) == 1 else ("domain", f"d{number}")
    )
    attributes = named(*identity, f"{identity[0]} of {plural(len(rack.gpus), painter.noun)}")
    size = (_BAND, y - top + _SPACE)
    band = [[cell("", width=size[0], height=round(size[1]), **attributes)]]
    html = table(band, border=1, color=palette.NVLINK, bgcolor=palette.NVLINK_FILL)
    painter.canvas.box("band", (x, top - _SPACE), size, html)
    words = ["scale-up,", f"each {painter.noun}:", *broken_lines(own_links(rack.domain))]
    painter.canvas.note("words", (x + _BAND + 12, (top + y) / 2), words, palette.BAND_INK, TEXT_POINTS)
    painter.draw_legend((0.0, y + 14))


Tray = tuple[str, Sheet, Links, list[Ends]]


class _Rack:
    """The trays of one rack, and what joins them."""

    def __init__(self, painter: Painter, number: int) -> None:
        self.painter, self.domain = painter, painter.spec.domains[number]
        self.chips, self.hosts = painter.fold.chips(number), painter.fold.hosts_by_domain[number]
        self.gpus = painter.gpu_ids(self.hosts)
        self.columns = max(host.places for host in self.hosts)
        self.cpus = self.domain.counted("node_cpus")
        self.head = max(text_width(self._title(h), bold=True) + 8 for h in self.hosts)
        self.short = self.columns > _WIDE_ROW
        self.cell = painter.detail_width(_GPU - 6 * self.short, self.columns, _MAX_TRAY_DETAIL_WIDTH)
        out, raw = painter.spec.scale_out, painter.fold.raw
        has_nics = painter.plain and (not raw or self.columns <= painter.fold.rails)  # else GPUs share NICs
        self.nics = out.nic_links_per_gpu if out is not None and has_nics else 0
        self.nic = (_NICS if self.nics > 1 else self.cell if self.short else _NIC) if self.nics else 0
        self.rate = f", {rate_text(out.fabric.link_bytes_per_s.value)} each" if out and not raw else ""
        self.width = self.head + self.cpus * (_CPU + 1) + self.columns * (self.cell + 1) + 4
        self.width += self.columns * (self.nic + 1) if self.nics else 0

    def _title(self, host: Host) -> str:
        """Return what a node tray is called."""
        name = host.id if self.painter.fold.raw else host.id.rpartition(".")[2].replace("n", "node ", 1)
        return f"{name} {self.painter.same_tag(self.painter.places(host))}".strip()

    def header(self) -> str:
        """Return the names of the columns."""
        columns = [
            (self.head, "host" if self.painter.fold.raw else "node"),
            (self.cpus * (_CPU + 1), "CPUs"),
            (self.columns * (self.cell + 1), f"{self.painter.noun}s"),
            (self.columns * self.nic, f"NICs by rail{self.rate}"),
        ]
        look = {"height": _ROW - 2, "ink": palette.QUIET}
        return table([[cell(text, width=wide, **look) for wide, text in columns if wide]], width=self.width)

    def node_tray(self, host: Host) -> Tray:
        """Return the tray of one host."""
        painter, places = self.painter, self.painter.places(host)
        spare = self.columns - len(places)
        sheet = Sheet(self.width, palette.OUTLINE)
        small = {"height": _ROW}
        head = painter.named_host(host)
        cells = [cell(self._title(host), width=self.head, bold=True, align="left", **small, **head)]
        cells += [cell("CPU", width=_CPU, bgcolor="#e4e4e4", **small) for _ in range(self.cpus)]
        cells += [painter.gpu(place, self.cell, _ROW) for place in places]
        cells += [cell("", width=self.cell) for _ in range(spare)]
        if self.nics:
            cells += [self._nic(rail, place) for rail, place in enumerate(places)]
            cells += [cell("", width=self.nic) for _ in range(spare)]
        sheet.add(cells, _ROW)
        padding = [cell("", height=12), *([cell("", colspan=self.cpus)] if self.cpus else [])]
        painter.add_tags(sheet, places, padding)
        across = 1 + self.cpus + self.columns + (self.columns if self.nics else 0)
        names = painter.gpu_ids([host])
        painter.add_faults(sheet, [host.id, *names], across, width=self.width - 8)
        pairs = painter.around(names, [chip.id for chip in self.chips])
        return f"tray {host.id}".replace(":", ";"), sheet, painter.fold.scale_up_links([host]), pairs

    def _nic(self, rail: int, place: Place) -> str:
        """Return the cell of the NICs of one GPU; those of a broken one are there, and nothing uses them."""
        rail = self.painter.cluster.gpus[place].rail if isinstance(place, int) else rail
        text = self.painter.nic(rail).removeprefix("NIC " if self.short else "")
        if isinstance(place, int):
            return self.painter.rail_cell(rail, self.nic, text, height=_ROW)
        return cell(text, width=self.nic, height=_ROW, bgcolor="#ececec", ink=palette.QUIET)

    def switch_trays(self) -> list[Tray]:
        """Return the trays of switch chips; one box of all of them where a tray holds an unknown number."""
        per_tray = self.domain.counted("switch_tray_chips") or len(self.chips)
        trays = [self.chips[i : i + per_tray] for i in range(0, len(self.chips), per_tray)]
        return [self._switch_tray(i, tray) for i, tray in enumerate(trays)]

    def _switch_tray(self, number: int, chips: Sequence[Switch]) -> Tray:
        """Return one tray of switch chips."""
        title = f"switch tray {number}" if self.domain.counted("switch_tray_chips") else "switches"
        sheet = Sheet(self.width, palette.NVLINK)
        small = {"height": _ROW}
        names = [chip.id for chip in chips]
        if self.domain.links_bundled:
            look = {"bgcolor": palette.NVLINK_FILL, "ink": palette.BAND_INK}
            sheet.line(UNCOUNTED, _ROW, width=self.width - 4, **look)
        else:
            head = max(self.head, text_width(title, bold=True) + 4)
            row = min(len(chips), _CHIPS_IN_ROW)
            wide = int((self.width - head - 4) // row) - 1
            for start in range(0, len(chips), row):
                cells = [cell("" if start else title, width=head, bold=True, align="left", **small)]
                cells += [self._chip(chip, wide) for chip in chips[start : start + row]]
                sheet.add(cells, _ROW)
            self.painter.add_faults(sheet, names, row + 1, width=self.width - 8)
        links = Links.sum(chip.down for chip in chips)
        return f"switches {number}", sheet, links, self.painter.around(names, self.gpus)

    def _chip(self, chip: Switch, wide: int) -> str:
        """Return the cell of one switch chip."""
        words = self.painter.marks.of(chip.id)
        fill, ink = (palette.FAULT_FILL, palette.FAULT) if words else (palette.NVLINK_FILL, palette.BAND_INK)
        short = chip.id.rpartition(".")[2]
        text = f"{'NVSwitch' if self.domain.fabric.kind == 'nvlink' else 'switch'} {short}"
        text = text if text_width(text) <= wide else short
        look = {"width": wide, "height": _ROW}
        return cell(text, bgcolor=fill, ink=ink, **look, **named("switch", chip.id, *words))
