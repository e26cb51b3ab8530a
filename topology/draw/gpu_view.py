"""One domain link by link: GPUs below, switch chips above, the count of links on each chip."""

from __future__ import annotations

from dataclasses import dataclass
from math import log2
from typing import TYPE_CHECKING

from topology.draw.canvas import cell, table
from topology.draw.style import NVLINK, NVLINK_FILL, each_way
from topology.units import format_quantity

if TYPE_CHECKING:
    from topology.draw.canvas import Canvas
    from topology.draw.painter import Painter
    from topology.spec import DomainSpec

__all__ = ["MOST_LINKS", "draw_gpu_view", "links_note", "opened_gpus"]

MOST_LINKS = 100
_GPU_WIDTH, _GPU_HEIGHT, _GAP = 84, 62, 10
_CHIP_HEIGHT, _DROP = 50, 170
_NARROWEST_CHIP = 66


@dataclass(frozen=True)
class _Bundle:
    """Switch chips next to each other that take equally many links, drawn as one."""

    first: int
    chips: int
    links: int

    @property
    def name(self) -> str:
        """The chips by number."""
        last = self.first + self.chips - 1
        return f"chip {self.first}" if self.chips == 1 else f"chips {self.first}-{last}"


def opened_gpus(domain: DomainSpec) -> int:
    """Return how many GPUs are drawn link by link: all, or one host of a large domain."""
    return domain.gpus if domain.gpus * len(domain.links_per_switch) <= MOST_LINKS else domain.gpus_per_node


def draw_gpu_view(canvas: Canvas, painter: Painter) -> None:
    """Draw the first domain link by link; a link has the colour of its GPU's rail."""
    domain = painter.cluster.spec.domains[0]
    shown = opened_gpus(domain)
    bundles = _bundles(domain, shown)
    chip_width = max(_NARROWEST_CHIP, min(170, shown * (_GPU_WIDTH + _GAP) // len(bundles) - _GAP))
    wide = max(shown * (_GPU_WIDTH + _GAP), len(bundles) * (chip_width + _GAP)) - _GAP
    for b, (bundle, x) in enumerate(zip(bundles, _spread(wide, len(bundles), chip_width), strict=True)):
        html = _chip(domain, bundle, chip_width, shown)
        canvas.box(f"d0.s{bundle.first}", (x, 0.0), (chip_width, _CHIP_HEIGHT), html)
        rate = bundle.chips * bundle.links * domain.fabric.link_bytes_per_s.value
        for g in range(shown):
            ends = (f"d0.s{bundle.first}:g{g}:s", f"{painter.cluster.gpus[g].id}:s{b}:n")
            canvas.link(*ends, painter.rail(g), width=max(0.8, min(3.0, 0.8 + 0.4 * log2(rate / 25e9))))
    down = float(_CHIP_HEIGHT + _DROP)
    for g, x in enumerate(_spread(wide, shown, _GPU_WIDTH)):
        html = _gpu(painter, g, len(bundles))
        canvas.box(painter.cluster.gpus[g].id, (x, down), (_GPU_WIDTH, _GPU_HEIGHT), html)
    legend = painter.legend()
    if legend:
        canvas.box("legend", (0, down + _GPU_HEIGHT + 20), (420, 20), legend)


def _spread(wide: float, boxes: int, width: float) -> list[float]:
    """Return the left edges of ``boxes`` boxes spread evenly over ``wide``."""
    step = wide / boxes
    return [step * i + (step - width) / 2 for i in range(boxes)]


def _bundles(domain: DomainSpec, gpus: int) -> list[_Bundle]:
    """Bundle equal chips that stand side by side until the links are few enough to draw."""
    links = domain.links_per_switch
    most = max(1, MOST_LINKS // gpus)
    step = -(-len(links) // most)
    bundles: list[_Bundle] = []
    for number, count in enumerate(links):
        last = bundles[-1] if bundles else None
        if last and last.links == count and last.chips < step:
            bundles[-1] = _Bundle(last.first, last.chips + 1, count)
        else:
            bundles.append(_Bundle(number, 1, count))
    return bundles


def _chip(domain: DomainSpec, bundle: _Bundle, width: int, gpus: int) -> str:
    """Return the box of one switch chip, or of some, with a port for each GPU at its foot."""
    count = bundle.links * bundle.chips
    rate = domain.fabric.link_bytes_per_s.value
    name = "NVSwitch " if domain.fabric.kind == "nvlink" else "switch "
    each = f"{count} x {format_quantity(rate, 'byte/s')}"
    rows = [
        [
            cell(
                f"{name if width > 100 else ''}{bundle.name}", bold=True, width=width, height=18, colspan=gpus
            )
        ],
        [cell(f"{each} to each GPU" if width > 120 else each, height=14, colspan=gpus)],
    ]
    if width > 120:
        rows.append([cell(f"= {format_quantity(count * rate, 'byte/s')} each way", height=14, colspan=gpus)])
    rows.append([cell("", width=width // gpus, height=3, port=f"g{g}") for g in range(gpus)])
    return table(rows, border=1, color=NVLINK, bgcolor=NVLINK_FILL)


def _gpu(painter: Painter, index: int, ports: int) -> str:
    """Return the box of one GPU: a port for each bundle of chips, its id, its overlay or links, its rail."""
    gpu = painter.cluster.gpus[index]
    domain = painter.cluster.spec.domains[gpu.domain]
    inside = _GPU_WIDTH - 2
    if painter.overlay is None:
        middle = cell(f"{domain.links_per_gpu} links", width=inside, height=16)
    else:
        middle = painter.gpu(index, inside, 18)
    places = [cell("", width=inside // ports, height=2, port=f"s{b}") for b in range(ports)]
    rows = [
        [cell(f"GPU {index}", bold=True, width=inside, height=15)],
        [cell(gpu.id, size=8, height=12)],
        [middle],
        [painter.rail_cell(gpu.rail, inside, f"rail {gpu.rail}")],
    ]
    head = f"<td>{table([places])}</td>"
    return table([[head], *rows], border=1, color="#8a8a8a", bgcolor="#ffffff")


def links_note(domain: DomainSpec) -> str:
    """Return one line that adds up the links of a GPU."""
    parts = " + ".join(str(links) for links in domain.links_per_switch)
    return f"{parts} = {each_way(domain.links_per_gpu, domain.fabric)}"
