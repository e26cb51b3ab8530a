"""One domain link by link: GPUs under their switch chips, or a full mesh as GPUs in a circle."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from math import cos, isnan, log2, pi, sin

from topology.draw.canvas import FAULT, FAULT_FILL, NVLINK, NVLINK_FILL, OUTLINE, Point, cell, table
from topology.draw.captions import each_way, rate_text
from topology.draw.domain_view import draw_domain_view
from topology.draw.painter import Ends, Painter, Place
from topology.draw.parts import Host, Links, Switch
from topology.spec import DomainSpec

MOST_LINKS = 100
_GPU_WIDTH, _GPU_HEIGHT, _GAP = 84, 62, 10
_CHIP_HEIGHT, _DROP = 50, 170
_NARROWEST_CHIP, _MOST_WIDE = 66, 1140


@dataclass(frozen=True)
class _Bundle:
    """Switch chips next to each other that take equally many links, drawn as one."""

    first: int
    chips: tuple[Switch, ...]
    links: int

    @property
    def name(self) -> str:
        """The chips by number."""
        last = self.first + len(self.chips) - 1
        return f"chip {self.first}" if len(self.chips) == 1 else f"chips {self.first}-{last}"


def opened_hosts(painter: Painter, number: int) -> list[Host]:
    """Return the hosts that are drawn link by link: all, or the first of a large domain."""
    hosts = painter.fold.hosts_by_domain[number]
    places = sum(host.places for host in hosts)
    return hosts if places * len(painter.fold.chips(number)) <= MOST_LINKS else hosts[:1]


def draw_gpu_view(painter: Painter, number: int) -> None:
    """Draw one domain link by link; a link has the colour of its GPU's rail."""
    domain = painter.cluster.spec.domains[number]
    places = [place for host in opened_hosts(painter, number) for place in painter.places(host)]
    bundles = _bundles(painter, domain, number, len(places))
    room = len(places) * (_GPU_WIDTH + _GAP) // len(bundles) - _GAP
    chip_width = max(_NARROWEST_CHIP, min(170, room))
    wide = max(len(places) * (_GPU_WIDTH + _GAP), len(bundles) * (chip_width + _GAP)) - _GAP
    down = float(_CHIP_HEIGHT + _DROP)
    chip_x, gpu_x = _spread(wide, len(bundles), chip_width), _spread(wide, len(places), _GPU_WIDTH)
    for b, (bundle, x) in enumerate(zip(bundles, chip_x, strict=True)):
        html = _chip(painter, domain, bundle, chip_width, len(places))
        painter.canvas.box(f"chip{b}", (x, 0.0), (chip_width, _CHIP_HEIGHT), html)
    for g, (place, x) in enumerate(zip(places, gpu_x, strict=True)):
        html = _with_ports(painter, place, len(bundles))
        painter.canvas.box(f"gpu{g}", (x, down), (_GPU_WIDTH, _GPU_HEIGHT), html)
        for b, bundle in enumerate(bundles):
            middle = _port_middle(chip_x[b], chip_width, x, (g, len(places)), (b, len(bundles)))
            _link(painter, (f"chip{b}:g{g}:s", f"gpu{g}:s{b}:n"), place, bundle, middle)
    painter.draw_legend((0.0, down + _GPU_HEIGHT + 20))


def _port_middle(
    chip_x: float, chip_width: float, gpu_x: float, gpu: tuple[int, int], chip: tuple[int, int]
) -> Point:
    """Return a point on a link, a third of its way down: lines are further apart there than at their middles."""
    top = chip_x + chip_width * (gpu[0] + 0.5) / gpu[1]
    foot = gpu_x + _GPU_WIDTH * (chip[0] + 0.5) / chip[1]
    return top + (foot - top) * 0.75, _CHIP_HEIGHT + _DROP * 0.75


def _link(painter: Painter, ends: Ends, place: Place, bundle: _Bundle, middle: Point) -> None:
    """Draw the links of one GPU to one bundle of chips; what is not as built is red or dashed, with a word."""
    if isinstance(place, str):
        return
    gpu = painter.cluster.gpus[place]
    graph = painter.cluster.graph
    edges = [graph.get_edge_data(gpu.id, chip.id) for chip in bundle.chips]
    left = [edge for edge in edges if edge is not None]  # None: broken
    links = Links.of(left)
    word = ""
    if not left:
        word = "broken"
    elif len(left) < len(edges):
        word = f"{len(edges) - len(left)} of {len(edges)} broken"
    elif any(edge["health"] < 1 for edge in left):
        word = f"x {min(edge['health'] for edge in left):.3g}"
    rate = links.bytes_per_s
    width = 1.0 if isnan(rate) or rate <= 0 else max(0.8, min(3.0, 0.8 + 0.4 * log2(max(rate / 25e9, 1))))
    colour = FAULT if "broken" in word else painter.rail(gpu.rail)
    pairs = [(gpu.id, chip.id) for chip, edge in zip(bundle.chips, edges, strict=True) if edge is not None]
    tip = f"{gpu.id}: {links.text()}"
    painter.link(*ends, pairs or None, colour=colour, width=width, dashed=bool(word), tip=tip)
    if word:
        painter.canvas.text(f"word {ends[0]}", middle, [word], FAULT)


def _spread(wide: float, boxes: int, width: float) -> list[float]:
    """Return the left edges of ``boxes`` boxes spread evenly over ``wide``."""
    step = wide / boxes
    return [step * i + (step - width) / 2 for i in range(boxes)]


def _bundles(painter: Painter, domain: DomainSpec, number: int, gpus: int) -> list[_Bundle]:
    """Bundle equal chips that stand side by side until the links are few enough to draw."""
    chips = painter.fold.chips(number)
    most = max(1, min(MOST_LINKS // gpus, _MOST_WIDE // (_NARROWEST_CHIP + _GAP)))
    step = -(-len(chips) // most)
    bundles: list[_Bundle] = []
    for place, (chip, count) in enumerate(zip(chips, domain.links_per_switch, strict=True)):
        last = bundles[-1] if bundles else None
        if last and last.links == count and len(last.chips) < step:
            bundles[-1] = _Bundle(last.first, (*last.chips, chip), count)
        else:
            bundles.append(_Bundle(place, (chip,), count))
    return bundles


def _chip(painter: Painter, domain: DomainSpec, bundle: _Bundle, width: int, gpus: int) -> str:
    """Return the box of one switch chip, or of some, with a port for each GPU at its foot."""
    count = bundle.links * len(bundle.chips)
    rate = domain.fabric.link_bytes_per_s.value
    name = "NVSwitch " if domain.fabric.kind == "nvlink" else "switch "
    each = f"{count} x {rate_text(rate)}"
    odd = any(painter.marks.of(chip.id) for chip in bundle.chips)
    title = f"{name if width > 100 else ''}{bundle.name}"
    if domain.links_bundled:
        title, each = "switch chips", rate_text(rate)
    rows = [[cell(title, bold=True, width=width, height=18, colspan=gpus, ink=FAULT if odd else None)]]
    rows.append([cell(f"{each} to each GPU" if width > 120 else each, height=14, colspan=gpus)])
    if width > 120:
        last = "number not published" if domain.links_bundled else f"= {rate_text(count * rate)} each way"
        rows.append([cell(last, height=14, colspan=gpus)])
    rows.append([cell("", width=width // gpus, height=3, port=f"g{g}") for g in range(gpus)])
    return table(rows, border=1, color=NVLINK, bgcolor=NVLINK_FILL)


def _with_ports(painter: Painter, place: Place, ports: int) -> str:
    """Return the box of one GPU with a port for each bundle of chips above, and its rail below."""
    inside = _GPU_WIDTH - 2
    if isinstance(place, str):
        return _broken(place, inside, (32, 28))
    rail = painter.cluster.gpus[place].rail
    ends = [cell("", width=inside // ports, height=2, port=f"s{b}") for b in range(ports)]
    rows = _gpu_rows(painter, place, inside, (15, 12))
    foot = [painter.rail_cell(rail, inside, f"rail {rail}")]
    return _box(painter, place, [[f"<td>{table([ends])}</td>"], *rows, foot])


def _broken(name: str, inside: int, heights: tuple[int, int]) -> str:
    """Return the box of a GPU that is out of service."""
    rows = [[cell(name, bold=True, width=inside, height=heights[0], ink=FAULT)]]
    rows.append([cell("out of service", ink=FAULT, height=heights[1])])
    return table(rows, border=1, color=FAULT, bgcolor=FAULT_FILL)


def _gpu_rows(painter: Painter, place: int, inside: int, heights: tuple[int, int]) -> list[list[str]]:
    """Return the rows that name a GPU: its number, its id, its overlay or links."""
    gpu = painter.cluster.gpus[place]
    title = f"GPU {place} {painter.tag([place])}".strip()
    if painter.overlay is None:
        ink = FAULT if painter.marks.of(gpu.id) else None
        links = painter.fold.gpu_links[place]
        bundled = painter.cluster.spec.domains[gpu.domain].links_bundled
        text = rate_text(links.bytes_per_s) if bundled else f"{links.count} links"
        last = cell(text, width=inside, height=16, ink=ink)
    else:
        last = painter.gpu(place, inside, 18)
    return [
        [cell(title, bold=True, width=inside, height=heights[0])],
        [cell(gpu.id, size=8, height=heights[1])],
        [last],
    ]


def _box(painter: Painter, place: int, rows: list[list[str]]) -> str:
    """Return the box of a GPU, red where something is wrong with it."""
    colour = FAULT if painter.marks.of(painter.cluster.gpus[place].id) else OUTLINE
    return table(rows, border=1, color=colour, bgcolor="#ffffff")


def links_note(domain: DomainSpec) -> str:
    """Return one line that adds up the links of a GPU."""
    parts = " + ".join(str(links) for links in domain.links_per_switch)
    return f"{parts} = {each_way(domain.links_per_gpu, domain.fabric)}"


MOST_IN_CIRCLE = 12
_MESH_WIDTH, _MESH_HEIGHT = 92, 50


def draw_mesh_view(painter: Painter, number: int) -> None:
    """Draw one domain whose GPUs are linked to each other."""
    places = [place for host in painter.fold.hosts_by_domain[number] for place in painter.places(host)]
    if len(places) > MOST_IN_CIRCLE:
        draw_domain_view(painter, number)
        return
    across, down = max(190.0, 34.0 * len(places)), max(130.0, 22.0 * len(places))
    middles = {}
    for g, place in enumerate(places):
        angle = 2 * pi * (g + 0.5) / len(places) - pi / 2
        x = across + across * sin(angle + pi / 2) + _MESH_WIDTH / 2
        y = down - down * cos(angle + pi / 2) + _MESH_HEIGHT / 2
        middles[g] = (x, y)
        corner = (x - _MESH_WIDTH / 2, y - _MESH_HEIGHT / 2)
        inside = _MESH_WIDTH - 2
        if isinstance(place, str):
            html = _broken(place, inside, (24, 24))
        else:
            html = _box(painter, place, _gpu_rows(painter, place, inside, (16, 13)))
        painter.canvas.box(f"gpu{g}", corner, (_MESH_WIDTH, _MESH_HEIGHT), html)
    for a, b in combinations(range(len(places)), 2):
        _pair(painter, (a, b), (places[a], places[b]), middles)
    painter.draw_legend((0.0, 2 * down + _MESH_HEIGHT + 20))


def _pair(
    painter: Painter, ends: tuple[int, int], places: tuple[Place, Place], middles: dict[int, Point]
) -> None:
    """Draw the links between two GPUs; what is not as built is red or dashed, with a word."""
    one, two = places
    if not isinstance(one, int) or not isinstance(two, int):
        return
    a, b = painter.cluster.gpus[one].id, painter.cluster.gpus[two].id
    edge = painter.cluster.graph.get_edge_data(a, b)
    links = Links() if edge is None else Links.of([edge])
    word = "broken" if edge is None else f"x {edge['health']:.3g}" if links.degraded else ""
    painter.link(
        f"gpu{ends[0]}",
        f"gpu{ends[1]}",
        None if edge is None else [(a, b)],
        colour=FAULT if edge is None else NVLINK,
        width=1.4,
        dashed=bool(word),
        tip=f"{a} - {b}: {links.text()}",
    )
    if word:
        (x1, y1), (x2, y2) = middles[ends[0]], middles[ends[1]]
        painter.canvas.text(
            f"word{ends[0]}.{ends[1]}", (x1 + (x2 - x1) * 0.38, y1 + (y2 - y1) * 0.38), [word], FAULT
        )
