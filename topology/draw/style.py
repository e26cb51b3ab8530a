"""Colours, sizes and words that all drawings share."""

from __future__ import annotations

import re
from html import escape
from math import isnan

from topology.draw.parts import Fold
from topology.figures import Evidence, weakest
from topology.spec import DomainSpec, FabricSpec, ScaleOutSpec
from topology.units import format_quantity

FONT = "DejaVu Sans"
INK = "#1a1a1a"
QUIET = "#767676"
FAULT = "#c00000"
FAULT_FILL = "#fde8e8"
NVLINK = "#4f7a00"
NVLINK_FILL = "#e3efcc"
# Okabe-Ito, its yellow darkened to show as a line on white: told apart by colour-blind readers.
RAILS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b5a300", "#4d4d4d")
_DARK_RAILS = ("#0072b2", "#d55e00", "#4d4d4d", "#009e73")
_TECHNOLOGY = {"nvlink": "NVLink", "ib": "InfiniBand"}


def safe(text: object) -> str:
    """Escape a text for an HTML-like label; characters that XML cannot hold are dropped.

    Backslashes are doubled: Graphviz would read one with an N after it as the name of the node.
    """
    printable = "".join(c for c in str(text) if c.isprintable())
    return escape(printable, quote=True).replace("\\", "\\\\")


def rail_colour(rail: int) -> str:
    """Return the colour of a rail."""
    return RAILS[rail % len(RAILS)]


def ink_on(colour: str) -> str:
    """Return the text colour to write on a rail's colour."""
    return "#ffffff" if colour in _DARK_RAILS else INK


def each_way(count: int, fabric: FabricSpec) -> str:
    """Return "18 x 25 GB/s = 450 GB/s each way" for parallel links."""
    rate = fabric.link_bytes_per_s.value
    one = rate_text(rate)
    if isnan(rate):
        return f"{count} link{'s' if count > 1 else ''} of {one}"
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
    head = f"Scale-up, per GPU: {fabric_title(domain.fabric)}"
    if domain.structure == "raw":
        return f"{head}, at least {rate_text(domain.scale_up_bytes_per_s)} each way"
    return f"{head}, {own_links(domain)}"


def own_links(domain: DomainSpec) -> str:
    """Return "18 x 25 GB/s = 450 GB/s each way" for the scale-up links of one GPU; a torus by dimension."""
    if domain.structure != "torus" or not domain.dimension_fabrics:
        return each_way(domain.links_per_gpu, domain.fabric)
    parts = [
        f"{links} x {rate_text(fabric.link_bytes_per_s.value)}"
        for links, fabric in zip(domain.links_per_dimension, domain.fabric_of_dimension, strict=True)
        if links
    ]
    return f"{' + '.join(parts)} = {rate_text(domain.scale_up_bytes_per_s)} each way"


def rate_text(bytes_per_s: float) -> str:
    """Return a rate in words, also one that nobody has published."""
    return "an unpublished rate" if isnan(bytes_per_s) else format_quantity(bytes_per_s, "byte/s")


def torus_text(domain: DomainSpec) -> str:
    """Return "torus 4 x 4 x 4", and which dimensions are not closed to rings."""
    text = f"torus {' x '.join(map(str, domain.shape))}"
    long = [wrap for size, wrap in zip(domain.shape, domain.wrap, strict=True) if size > 1]
    if all(long):
        return text
    if not any(long):
        return text.replace("torus", "grid")
    opened = [
        name
        for name, size, wrap in zip("xyzuvw", domain.shape, domain.wrap, strict=False)
        if size > 1 and not wrap
    ]
    return f"{text}, open along {', '.join(opened)}"


def scale_up_words(folded: Fold, domain: DomainSpec, number: int) -> list[str]:
    """Return what joins the GPUs of a domain, in two short lines."""
    rate = f"{rate_text(domain.scale_up_bytes_per_s)} each way per GPU"
    if domain.structure == "torus":
        return [torus_text(domain), rate]
    if domain.structure == "mesh":
        return [
            f"full mesh, {each_way(domain.links_per_neighbour, domain.fabric)} a pair".replace(
                " each way", ""
            ),
            rate,
        ]
    chips, upper = folded.chips(number), folded.chips(number, "upper")
    if domain.structure == "two-tier" or upper:
        return [f"{len(chips)} chips under {len(upper)} in {planes_text(domain)}", rate]
    if not chips:
        return ["GPUs linked directly" if domain.gpus > 1 else "one GPU", f"at least {rate}"]
    word = switch_word(domain)
    text = f"{len(chips)} {word}s" if len(chips) > 1 else f"1 {word}"
    return [text, f"at least {rate}" if domain.structure == "raw" else rate]


def planes_text(domain: DomainSpec) -> str:
    """Return how many planes a two-tier domain has."""
    planes = len(domain.links_per_switch)
    return f"{planes} plane{'s' if planes > 1 else ''}" if planes else "two tiers"


def scale_out_line(scale_out: ScaleOutSpec, domain: DomainSpec) -> str:
    """Return one line about the scale-out links of a GPU, and how much slower they are."""
    links = each_way(scale_out.nic_links_per_gpu, scale_out.fabric)
    ratio = domain.scale_up_bytes_per_s / scale_out.scale_out_bytes_per_s  # NaN compares as not above 1
    compared = f", {ratio:.3g} times slower than scale-up" if ratio > 1 else ""
    return f"Scale-out, per GPU: {fabric_title(scale_out.fabric)}, {links}{compared}"


def natural(text: str) -> list[tuple[int, int, str]]:
    """Return a key that sorts ``d10`` after ``d9``."""
    parts = re.split(r"(\d{1,18})", text)
    return [
        (0, int(part), "") if part.isdigit() and part.isascii() else (1, 0, part) for part in parts if part
    ]
