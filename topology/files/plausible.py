"""Detection of unit mistakes in rates: GB for Gb, both directions, all links, sparse peaks.

A rate is compared with what the catalog knows of the same GPU, or with what links of its kind have, a figure of a GPU
also with what any can have (:mod:`topology.base.plausible`). What looks like a mistaken unit is an error that says
which was probably meant; ``rate_checked: true`` beside it insists.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

from topology.base.errors import InputError
from topology.base.figures import Figure
from topology.base.plausible import LATENCIES, wrong_figure, wrong_peaks, wrong_power
from topology.base.units import format_quantity
from topology.catalog import find_scale_out, gpu_names, load_gpu, systems_of
from topology.fabrics.fabric import ScaleOutSpec
from topology.graph import SCALE_OUT_KINDS
from topology.spec import GpuSpec, RawTopology
from topology.structures.domain import DomainSpec

# Rates of one link per direction, from the slowest to the fastest generation of each kind with a margin of two:
# NVLink 1 (20 GB/s) to 6 (50), xGMI (Instinct MI50 46 to MI355X 76.8), ICI (v2 62 to v5p 100), NeuronLink, UB.
_LINK_RANGE: Mapping[str, tuple[float, float]] = {
    "nvlink": (10e9, 200e9),
    "xgmi": (20e9, 200e9),
    "ici": (25e9, 400e9),
    "neuronlink": (25e9, 400e9),
    "ub": (10e9, 200e9),
}
_ANY_LINK = (1e9, 4e12)
# 10 Gb/s Ethernet to a 1.6 Tb/s port: what NICs have.
_NIC_RANGE = (1.25e9, 200e9)
_ROUNDING_SHARE = 0.02
"""Part by which data sheets round a figure."""
_INSIST = "If it is meant, add `rate_checked: true`."


def check_links(domain: DomainSpec, where: str) -> None:
    """Check the rate of the links of a domain that its owner wrote out, at ``where``.

    Raises
    ------
    InputError
        If it is off by a unit.
    """
    for fabric in domain.fabrics:
        _check_latency(fabric.latency_s, f"{where}: latency", scale_up=True)
    links, total = domain.links_per_gpu, domain.scale_up_bytes_per_s
    known = _published(domain.gpu)
    for fabric in dict.fromkeys(domain.fabrics):
        rate = fabric.link_bytes_per_s.value
        alike = _of_kind(known, fabric.kind)
        problem = _against_catalog(rate, links, total, alike) if alike else _against_kind(rate, fabric.kind)
        _refuse(f"{where}: link", fabric.link_bytes_per_s, problem)


def check_nic(scale_out: ScaleOutSpec, parts: Sequence[str], where: str) -> None:
    """Check the rate of the NICs of a fabric, at ``where``, against those that the catalog knows for its parts.

    Raises
    ------
    InputError
        If it is off by a unit.
    """
    _check_latency(scale_out.fabric.latency_s, f"{where}: latency")
    nic = scale_out.fabric.link_bytes_per_s
    rate = nic.value
    designs = map(find_scale_out, parts)
    known = [design.fabric.link_bytes_per_s.value for design in designs if design is not None]
    low, _ = _NIC_RANGE
    problem = _too_fast_for_a_nic(rate, 7.9 * max(known, default=inf))
    if not problem and (rate < low or (known and rate <= min(known) / 7.9)):
        usual = f" (the part has {_other_unit(min(known))})" if known else ""
        problem = (
            f"{_gb(rate)} is too slow for such a NIC{usual}; {_other_unit(rate * 8)} was probably meant."
        )
    _refuse(f"{where}: nic", nic, problem)


def _too_fast_for_a_nic(rate: float, limit: float = inf) -> str:
    """Return what is wrong with the rate of a NIC that no port has, or of ``limit`` or more."""
    if rate <= _NIC_RANGE[1] and rate < limit:
        return ""
    return f"{_gb(rate)} is too fast for a NIC; NIC rates are in Gb/s, so {_other_unit(rate / 8)} was probably meant."


def check_raw_links(raw: RawTopology, where: str) -> None:
    """Check the scale-up links of the GPUs of a raw graph, and the rates of all links.

    Raises
    ------
    InputError
        If one is off by a unit.
    """
    gpus = {node.id: node.gpu for node in raw.nodes if node.gpu is not None}
    up = {node.id for node in raw.nodes if node.kind in ("gpu", "switch")}
    leaves = {node.id for node in raw.nodes if node.kind in SCALE_OUT_KINDS}
    totals: dict[str, float] = {}
    links: dict[str, int] = {}
    for link in raw.links:
        if all(end in up for end in link.between):
            for end in link.between:
                totals[end] = totals.get(end, 0.0) + link.count * link.fabric.link_bytes_per_s.value
                links[end] = links.get(end, 0) + link.count
    published = {name: _published(gpu) for name, gpu in {gpu.name: gpu for gpu in gpus.values()}.items()}
    checked: set[tuple[object, ...]] = set()
    for link in raw.links:
        rate, kind = link.fabric.link_bytes_per_s.value, link.fabric.kind
        ends = [end for end in link.between if end in gpus and published[gpus[end].name]]
        gpu_end = ends[0] if ends and all(end in up for end in link.between) else ""
        known = _of_kind(published[gpus[gpu_end].name], kind) if gpu_end else []
        # links that are alike in all that is looked at are looked at once
        of_nic = sum(end in leaves for end in link.between) == 1
        alike = (
            rate,
            kind,
            of_nic,
            link.fabric.latency_s.value,
            links.get(gpu_end),
            totals.get(gpu_end),
            *known,
        )
        if alike in checked:
            continue
        checked.add(alike)
        place = f"{where}: link {list(link.between)}"
        _check_latency(link.fabric.latency_s, f"{place}: latency", scale_up=bool(gpu_end))
        problem = _too_fast_for_a_nic(rate) if of_nic else ""
        problem = problem or (
            _against_catalog(rate, links[gpu_end], totals[gpu_end], known)
            if known
            else _against_kind(rate, kind)
        )
        _refuse(place, link.fabric.link_bytes_per_s, problem)


def check_gpu_figures(gpu: GpuSpec, figures: Mapping[str, Figure], where: str) -> None:
    """Check a user's figures, at ``where``, of a GPU that the catalog has against the catalog's.

    Raises
    ------
    InputError
        If one is off by a unit.
    """
    for key, figure in figures.items():
        if key == "power_w":
            chip = gpu.figures.get(key)
            _refuse(f"{where}: {key}", figure, wrong_power(figure.value, chip.value if chip else None))
        if key not in gpu.figures or figure.unit in ("USD/h", "W"):
            continue
        known = gpu.figures[key].value
        ratio = figure.value / known
        meant = ""
        if figure.unit == "flop/s" and _near(ratio, 2):
            meant = "twice the dense peak: the figure with 2:4 sparsity"
        elif any(_near(ratio, factor) for factor in (8, 1 / 8)):
            meant = "eight times off, bits and bytes confused"
        elif ratio > 500 or ratio < 1 / 500:
            meant = "a wrong prefix"
        published = f"the catalog has {format_quantity(known, figure.unit)} for {gpu.name}"
        _refuse(f"{where}: {key}", figure, f"{published}; this is {meant}." if meant else "")


def check_figures(figures: Mapping[str, Figure], where: str) -> None:
    """Check a user's figures, at ``where``, of any GPU against what a GPU can have.

    Raises
    ------
    InputError
        If one cannot be.
    """
    for key, figure in figures.items():
        _refuse(f"{where}: {key}", figure, wrong_figure(key, figure.value))
    if problem := wrong_peaks({key: figure.value for key, figure in figures.items()}):
        _refuse(f"{where}: fp8_flop_per_s", figures["fp8_flop_per_s"], problem)


def check_sparsity(figures: Mapping[str, Figure], where: str) -> None:
    """Check the peaks of a GPU that its owner wrote out, at ``where``, against those of one with the same memory.

    Raises
    ------
    InputError
        If one is twice the dense peak.
    """
    memory = ("hbm_bytes", "hbm_bytes_per_s")
    for gpu in map(load_gpu, gpu_names()) if figures.keys() >= set(memory) else ():
        # what is usable, or GiB for GB, is up to a tenth apart
        if not all(
            key in gpu.figures and 0.9 <= figures[key].value / gpu.figures[key].value <= 1.1 for key in memory
        ):
            continue
        for key, figure in figures.items():
            dense = gpu.figures.get(key)
            if figure.unit == "flop/s" and dense is not None and _near(figure.value, 2 * dense.value):
                problem = (
                    f"twice the dense peak of {gpu.name}, which has the same memory: is it the figure with 2:4 "
                    f"sparsity? The dense one is {format_quantity(dense.value, 'flop/s')}."
                )
                _refuse(f"{where}: {key}", figure, problem)


def _published(gpu: GpuSpec) -> list[DomainSpec]:
    """Return the domains of the catalog that have this GPU and a rate."""
    return [domain for domain in systems_of(gpu.name) if domain.scale_up_bytes_per_s > 0]


def _of_kind(domains: Sequence[DomainSpec], kind: str) -> list[DomainSpec]:
    """Return those joined by PCIe where links of ``kind`` are, else the others: cards also meet over bridges."""
    return [domain for domain in domains if (domain.fabric.kind == "pcie") == (kind == "pcie")]


def _against_catalog(rate: float, links: int, total: float, known: Sequence[DomainSpec]) -> str:
    """Return what is wrong with the links of a GPU that the catalog knows, nothing where they are plausible."""
    most_links = max(domain.links_per_gpu for domain in known)
    if any(_near(total, domain.scale_up_bytes_per_s) for domain in known):
        return ""
    if links <= most_links and any(
        _near(rate, candidate.fabric.link_bytes_per_s.value) for candidate in known
    ):
        return ""
    domain = max(known, key=lambda candidate: candidate.scale_up_bytes_per_s)
    link, best = domain.fabric.link_bytes_per_s.value, domain.scale_up_bytes_per_s
    published = (
        f"{domain.gpu.name} has {domain.links_per_gpu} links of {_gb(link)} each way, {_gb(best)} in all"
    )
    meant = _mistaken(rate, links, total, link, best)
    return f"{published}; {meant}" if meant else ""


def _mistaken(rate: float, links: int, total: float, link: float, best: float) -> str:
    """Return which unit was probably mistaken: ``links`` of ``rate`` against the catalog's ``link`` and ``best``."""
    described = f"{links} links of {_gb(rate)} are {_gb(total)}"
    for factor, meant in (
        (2, f"twice that, so both directions were probably counted; give {_gb(rate / 2)}."),
        (
            1 / 8,
            f"an eighth of that, so GB/s was probably written as Gb/s; {_gb(rate * 8)} was probably meant.",
        ),
        (8, f"eight times that, so Gb/s was probably written as GB/s; {_gb(rate / 8)} was probably meant."),
    ):
        if _near(total / best, factor) or _near(rate / link, factor):
            return f"{described}, {meant}"
    if links > 1 and (_near(rate, best) or _near(rate, 2 * best)):
        return f"{_gb(rate)} is the total rate of all links, but one link is given this rate."
    if total > 1.5 * best:
        return f"{described}, more than it can carry."
    if total < best / 6 and rate < link / 6:
        return f"{described}, far less."
    return ""


def _against_kind(rate: float, kind: str) -> str:
    """Return what is wrong with the rate of one link for its kind."""
    low, high = _LINK_RANGE.get(kind, _ANY_LINK)
    if rate < low:
        return (
            f"{_gb(rate)} is too slow for one {kind} link; {_gb(rate * 8)} was probably meant (GB is not Gb)."
        )
    if rate > high:
        return f"{_gb(rate)} is too fast for one {kind} link; give the rate of ONE link in ONE direction."
    return ""


def _check_latency(latency: Figure, where: str, *, scale_up: bool = False) -> None:
    """Reject a latency of one hop that no network has."""
    _refuse(where, latency, LATENCIES["scale-up" if scale_up else "scale-out"].wrong(latency.value))


def _refuse(where: str, figure: Figure, problem: str) -> None:
    """Reject a figure with what is wrong with it, if anything is."""
    if problem:
        raise InputError(f'{where}: "{figure.text}": {problem}', hint=_INSIST)


def _near(value: float, target: float) -> bool:
    """Whether two numbers are the same but for rounding in a data sheet."""
    return abs(value - target) <= _ROUNDING_SHARE * abs(target)


def _gb(rate: float) -> str:
    """Write a rate in bytes/s."""
    return format_quantity(rate, "byte/s")


def _other_unit(rate: float) -> str:
    """Write a rate in Gb/s, as NICs are sold."""
    return f"{rate * 8 / 1e9:g} Gb/s"
