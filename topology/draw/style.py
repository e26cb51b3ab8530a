"""Colours, sizes and words that all drawings share."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from topology.figures import Evidence, weakest
from topology.units import format_quantity

if TYPE_CHECKING:
    from topology.spec import DomainSpec, FabricSpec, ScaleOutSpec

__all__ = [
    "FONT",
    "INK",
    "NVLINK",
    "NVLINK_FILL",
    "QUIET",
    "RAILS",
    "each_way",
    "fabric_title",
    "gpu_line",
    "ink_on",
    "is_projected",
    "rail_colour",
    "safe",
    "scale_out_line",
    "scale_up_line",
    "switch_word",
]

FONT = "DejaVu Sans"
INK = "#1a1a1a"
QUIET = "#767676"
NVLINK = "#4f7a00"
NVLINK_FILL = "#e3efcc"
# Okabe-Ito, its yellow darkened to show as a line on white: told apart by colour-blind readers.
RAILS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b5a300", "#4d4d4d")
_DARK_RAILS = ("#0072b2", "#d55e00", "#4d4d4d", "#009e73")
_TECHNOLOGY = {"nvlink": "NVLink", "ib": "InfiniBand"}


def safe(text: object) -> str:
    """Escape a text for an HTML-like label; characters that XML cannot hold are dropped."""
    printable = "".join(c for c in str(text) if c.isprintable())
    return escape(printable, quote=True)


def rail_colour(rail: int) -> str:
    """Return the colour of a rail."""
    return RAILS[rail % len(RAILS)]


def ink_on(colour: str) -> str:
    """Return the text colour to write on a rail's colour."""
    return "#ffffff" if colour in _DARK_RAILS else INK


def each_way(count: int, fabric: FabricSpec) -> str:
    """Return "18 x 25 GB/s = 450 GB/s each way" for parallel links."""
    rate = fabric.link_bytes_per_s.value
    one = format_quantity(rate, "byte/s")
    if count == 1:
        return f"{one} each way"
    return f"{count} x {one} = {format_quantity(count * rate, 'byte/s')} each way"


def fabric_title(fabric: FabricSpec) -> str:
    """Return the technology and the name of a fabric."""
    technology = _TECHNOLOGY.get(fabric.kind)
    return f"{technology} ({fabric.name})" if technology else fabric.name


def is_projected(domain: DomainSpec) -> bool:
    """Whether the domain rests on projected figures."""
    kinds = [figure.kind for figure in domain.gpu.figures.values()]
    return weakest([*kinds, domain.fabric.link_bytes_per_s.kind]) is Evidence.PROJECTED


def switch_word(domain: DomainSpec) -> str:
    """Return what to call the switches: chips where they exist, planes in a domain only thought of."""
    return "switch plane" if domain.status in ("hypothetical", "blackboard") else "switch chip"


def gpu_line(domain: DomainSpec) -> str:
    """Return one line about the GPU."""
    figures = domain.gpu.figures
    parts = [f"{domain.gpu.title}:"]
    if "hbm_bytes" in figures and "hbm_bytes_per_s" in figures:
        size = format_quantity(figures["hbm_bytes"].value, "byte", 3)
        parts.append(f"{size} HBM at {format_quantity(figures['hbm_bytes_per_s'].value, 'byte/s')},")
    if "bf16_flop_per_s" in figures:
        parts.append(f"{format_quantity(figures['bf16_flop_per_s'].value, 'flop/s')} BF16 dense")
    return " ".join(parts).rstrip(",:")


def scale_up_line(domain: DomainSpec) -> str:
    """Return one line about the scale-up links of a GPU."""
    return (
        f"Scale-up, per GPU: {fabric_title(domain.fabric)}, {each_way(domain.links_per_gpu, domain.fabric)}"
    )


def scale_out_line(scale_out: ScaleOutSpec, domain: DomainSpec) -> str:
    """Return one line about the scale-out links of a GPU, and how much slower they are."""
    links = each_way(scale_out.nic_links_per_gpu, scale_out.fabric)
    ratio = domain.scale_up_bytes_per_s / scale_out.scale_out_bytes_per_s
    compared = f", {ratio:.3g} times slower than scale-up" if ratio > 1 else ""
    return f"Scale-out, per GPU: {fabric_title(scale_out.fabric)}, {links}{compared}"
