"""One rack as an elevation: node trays with CPUs, GPUs and NICs, switch trays between them, cables at the side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from topology.base.units import plural
from topology.draw.canvas import (
    BAND_INK,
    FAULT,
    FAULT_FILL,
    NVLINK,
    NVLINK_FILL,
    OUTLINE,
    QUIET,
    SMALL_POINTS,
    Sheet,
    cell,
    named,
    table,
    text_width,
)
from topology.draw.captions import UNCOUNTED, broken_lines, own_links, rate_text
from topology.draw.painter import Painter, Place
from topology.draw.parts import Host, Links, Switch

_CELL, _CPU, _ROW, _GAP, _REACH = 30, 32, 18, 3, 70
_BAND = 20
_MOST_TRAYS, _MOST_GPUS = 18, 8
_MOST_DETAIL = 700
_CHIPS_IN_ROW = 6
_MOST_KINDS = 3


def one_rack(painter: Painter, number: int) -> bool:
    """Whether a domain is one rack whose chips all hosts share, with trays that fit one column."""
    hosts, fold = painter.fold.hosts_by_domain[number], painter.fold
    small = len(hosts) <= _MOST_TRAYS and max(host.places for host in hosts) <= _MOST_GPUS
    racks = {host.rack for host in hosts}
    whole = len(racks) in (1, len(hosts))
    return small and whole and bool(fold.chips(number)) and not fold.chips(number, "upper")


def draw_rack_view(painter: Painter, number: int) -> None:
    """Draw the one rack of a domain; node trays above and below the switch trays, as they are built."""
    hosts = painter.fold.hosts_by_domain[number]
    columns = max(host.places for host in hosts)
    rack = _Rack(painter, number, columns)
    chips = rack.switch_trays()
    half = (len(hosts) + 2) // 2 if len(hosts) > 1 else 0
    trays = [rack.tray(host) for host in hosts]
    trays = [*trays[:half], *chips, *trays[half:]]
    painter.canvas.box("columns", (0.0, 0.0), (rack.width, _ROW), rack.header())
    y = top = float(_ROW + _GAP)
    x = rack.width + _REACH
    for name, sheet, links in trays:
        painter.canvas.sheet(name, (0.0, y), sheet)
        if links.count:
            width, middle = 1.0 + min(3.0, links.count / 72), y + sheet.height / 2
            line = ((name, (rack.width - 2, middle)), ("band", (x + 2, middle)))
            pairs = rack.pairs(name)
            painter.link(line, pairs, colour=NVLINK, width=width, dashed=links.degraded, links=links)
        y += sheet.height + _GAP
    size = (_BAND, y - top + _GAP)
    racks = {host.rack for host in hosts}
    what = ("rack", hosts[0].rack) if len(racks) == 1 else ("domain", f"d{number}")
    whole = named(*what, f"{what[0]} of {plural(len(painter.gpu_ids(hosts)), painter.noun)}")
    band = [[cell("", width=size[0], height=round(size[1]), **whole)]]
    html = table(band, border=1, color=NVLINK, bgcolor=NVLINK_FILL)
    painter.canvas.box("band", (x, top - _GAP), size, html)
    painter.canvas.note("words", (x + _BAND + 12, top), rack.words(), BAND_INK)
    painter.draw_legend((0.0, y + 14))


Tray = tuple[str, Sheet, Links]


class _Rack:
    """The trays of one rack, and what joins them."""

    def __init__(self, painter: Painter, number: int, columns: int) -> None:
        self.painter, self.number, self.columns = painter, number, columns
        self.domain = painter.cluster.spec.domains[number]
        self.chips = painter.fold.chips(number)
        self.hosts = painter.fold.hosts_by_domain[number]
        self.cpus = self._figure("node_cpus")
        self.members: dict[str, list[str]] = {}
        titles = [self._title(host) for host in self.hosts]
        self.head = max(text_width(title, SMALL_POINTS, bold=True) + 8 for title in titles)
        self.cell = painter.detail_width(_CELL, columns, _MOST_DETAIL)
        scale_out = painter.cluster.spec.scale_out
        own = not painter.fold.raw or columns <= painter.fold.rails  # else GPUs share NICs
        self.nics = scale_out.nic_links_per_gpu if scale_out is not None and painter.plain and own else 0
        self.nic = 0 if not self.nics else _CPU if self.nics == 1 else 54
        known = scale_out is not None and not painter.fold.raw
        self.rate = (
            f", {rate_text(scale_out.fabric.link_bytes_per_s.value)} each" if scale_out and known else ""
        )
        self.width = self.head + self.cpus * (_CPU + 1) + columns * (self.cell + 1) + 4
        self.width += columns * (self.nic + 1) if self.nics else 0

    def _figure(self, name: str) -> int:
        """Return a count that the catalog gives for the domain, 0 where it gives none."""
        figure = self.domain.figures.get(name)
        return 0 if figure is None else int(figure.value)

    def _title(self, host: Host) -> str:
        """Return what a node tray is called."""
        ours = self.painter.cluster.spec.raw is None
        name = host.id.rpartition(".")[2].replace("n", "node ", 1) if ours else host.id
        return f"{name} {self.painter.same_tag(self.painter.places(host))}".strip()

    def header(self) -> str:
        """Return what stands in which column."""
        groups = [
            (self.head, "node" if self.painter.cluster.spec.raw is None else "host"),
            (self.cpus * (_CPU + 1), "CPUs"),
            (self.columns * (self.cell + 1), f"{self.painter.noun}s"),
            (self.columns * self.nic, f"NICs by rail{self.rate}"),
        ]
        row = [cell(text, width=wide, height=_ROW - 2, size=8, ink=QUIET) for wide, text in groups if wide]
        return table([row], width=self.width)

    def tray(self, host: Host) -> Tray:
        """Return the tray of one host."""
        painter = self.painter
        places: list[Place] = painter.places(host)
        name = f"tray {host.id}".replace(":", ";")
        self.members[name] = painter.gpu_ids([host])
        sheet = Sheet(self.width, OUTLINE)
        look = {"width": self.head, "height": _ROW, "size": 8, "bold": True, "align": "left"}
        cells = [cell(self._title(host), **look, **painter.named_host(host))]
        cells += [cell("CPU", width=_CPU, height=_ROW, size=8, bgcolor="#e4e4e4") for _ in range(self.cpus)]
        cells += [painter.gpu(place, self.cell, _ROW) for place in places]
        cells += [cell("", width=self.cell) for _ in range(self.columns - len(places))]
        for rail, place in enumerate(places) if self.nics else ():
            if isinstance(place, int):
                cells.append(self._nic(painter.cluster.gpus[place].rail))
            else:  # its NICs are there, and nothing uses them
                cells.append(self._nic(rail, bgcolor="#ececec", ink=QUIET))
        cells += [cell("", width=self.nic) for _ in range(self.columns - len(places)) if self.nics]
        sheet.add(cells, _ROW)
        if tags := painter.tag_row(places):
            sheet.add([cell("", height=12), *([cell("", colspan=self.cpus)] if self.cpus else []), *tags], 12)
        span = 1 + self.cpus + self.columns + (self.columns if self.nics else 0)
        sheet.add_all(painter.fault_rows(painter.names(host), span, width=self.width - 8), 12)
        return name, sheet, painter.fold.scale_up_links([host])

    def _nic(self, rail: int, **look: str) -> str:
        """Return the cell of the NICs of one GPU."""
        text = f"NIC {rail}" if self.nics == 1 else f"{self.nics} x NIC {rail}"
        if look:
            return cell(text, width=self.nic, height=_ROW, size=SMALL_POINTS, **look)
        return self.painter.rail_cell(rail, self.nic, text, height=_ROW)

    def switch_trays(self) -> list[Tray]:
        """Return the trays of switch chips; one box of all of them where nobody says how many a tray holds."""
        each = self._figure("switch_tray_chips")
        if not self.chips:
            return []
        trays = [self.chips[i : i + each] for i in range(0, len(self.chips), each)] if each else [self.chips]
        return [
            self._switch_tray(i, tray, f"switch tray {i}" if each else "switches")
            for i, tray in enumerate(trays)
        ]

    def _switch_tray(self, number: int, chips: Sequence[Switch], title: str) -> Tray:
        """Return one tray of switch chips."""
        name = f"switches {number}"
        self.members[name] = [chip.id for chip in chips]
        sheet = Sheet(self.width, NVLINK)
        if self.domain.links_bundled:
            sheet.line(UNCOUNTED, _ROW, size=8, bgcolor=NVLINK_FILL, ink=BAND_INK, width=self.width - 4)
            return name, sheet, Links.sum(chip.down for chip in chips)
        head = max(self.head, text_width(title, 8, bold=True) + 4)
        row = min(len(chips), _CHIPS_IN_ROW)
        wide = int((self.width - head - 4) // row) - 1
        for start in range(0, len(chips), row):
            cells = [cell("" if start else title, width=head, height=_ROW, size=8, bold=True, align="left")]
            cells += [self._chip(chip, wide) for chip in chips[start : start + row]]
            sheet.add(cells, _ROW)
        faults = self.painter.fault_rows([chip.id for chip in chips], row + 1, width=self.width - 8)
        sheet.add_all(faults, 12)
        return name, sheet, Links.sum(chip.down for chip in chips)

    def _chip(self, chip: Switch, wide: int) -> str:
        """Return the cell of one switch chip."""
        words = self.painter.marks.of(chip.id)
        fill, ink = (FAULT_FILL, FAULT) if words else (NVLINK_FILL, BAND_INK)
        text = (
            f"{'NVSwitch' if self.domain.fabric.kind == 'nvlink' else 'switch'} {chip.id.rpartition('.')[2]}"
        )
        text = text if text_width(text, SMALL_POINTS) <= wide else chip.id.rpartition(".")[2]
        return cell(
            text, width=wide, height=_ROW, size=8, bgcolor=fill, ink=ink, **named("switch", chip.id, *words)
        )

    def pairs(self, name: str) -> list[tuple[str, str]]:
        """Return the scale-up links of a tray, where traffic asks for them."""
        others = (
            self.painter.gpu_ids(self.hosts) if name.startswith("switches") else [c.id for c in self.chips]
        )
        return self.painter.around(self.members[name], others)

    def words(self) -> list[str]:
        """Say what the cables at the side are."""
        noun = self.domain.gpu.noun
        gpus = plural(len(self.painter.gpu_ids(self.hosts)), noun)
        if self.domain.links_bundled:
            return [f"Scale-up links of {gpus}:", f"each {noun} {own_links(self.domain)}"]
        total = self.painter.fold.scale_up_links(self.hosts)
        words = [f"Scale-up: {plural(total.count, 'link')} of {gpus}"]
        nodes = [links for host in self.hosts if (links := self.painter.fold.scale_up_links([host])).count]
        for of, word in ((nodes, "node tray"), ([chip.down for chip in self.chips], "switch chip")):
            kinds = Counter(links.text() for links in of)
            for text, count in kinds.most_common(_MOST_KINDS):
                each = f"each of {plural(count, word)}:" if count > 1 else f"one {word}:"
                words += ["", each, *broken_lines(text)]
        return words
