"""Physical limits of a cluster for people and as data: parts, links by where they run, power, weight, growth."""

from __future__ import annotations

from dataclasses import asdict
from itertools import groupby
from typing import Any

from rackplan.words import table, wrapped
from topology import format_quantity
from topology.cluster import Cluster
from topology.physical import Physical, growth, physical_limits
from topology.spec import DomainSpec

_RULE = (
    "A link inside a host is on its board, inside a rack copper, out of a rack optical (two transceivers each). "
    "Leaves, spines, cores and routers stand in racks of their own, and so do the switch chips of a domain that "
    "spans several; their power and weight are not in these figures."
)
_WORDS = {
    "switch": ("switch chip", "switch chips"),
    "leaf": ("leaf", "leaves"),
    "spine": ("spine", "spines"),
    "core": ("core", "cores"),
    "router": ("router", "routers"),
}


def physical_entry(cluster: Cluster) -> tuple[dict[str, Any], list[str]]:
    """What a cluster takes, and how that grows with the size of its first domain."""
    limits = physical_limits(cluster)
    larger = growth(cluster.spec.domains[0])
    lines = [
        f"{cluster.name}: {len(cluster.gpus)} GPUs",
        *wrapped("domains", _domains(cluster)),
        *wrapped("parts", _parts(limits)),
        *wrapped("power", _power(limits)),
        *wrapped("weight", _mass(limits)),
        "",
        *_cables(limits),
        *wrapped("rule", _RULE),
    ]
    if len(larger) > 1:
        lines += ["", *_growth(larger, cluster.spec.domains[0])]
    return {"name": cluster.name, **_data(limits), "growth": [_data(one) for one in larger]}, lines


def structure_words(domain: DomainSpec) -> str:
    """How the GPUs of a domain are joined."""
    if domain.structure == "torus":
        rings = [
            f"{size} {'ring' if wrap else 'line'}"
            for size, wrap in zip(domain.shape, domain.wrap, strict=True)
        ]
        return f"torus {' x '.join(str(size) for size in domain.shape)} ({', '.join(rings)})"
    if domain.structure == "mesh":
        return "full mesh without a switch"
    if domain.structure == "two-tier":
        hosts = domain.gpus // domain.gpus_per_node
        planes = len(domain.links_per_switch)
        return f"{planes} planes of {hosts} + {domain.upper_switches} switch chips in two tiers"
    if domain.structure == "raw":
        return "as in its file"
    if domain.links_bundled:
        return "switched; the number of chips and links is not published"
    return _many(len(domain.links_per_switch), "switch chip")


def scale_up_words(domain: DomainSpec) -> str:
    """Links of one GPU and what they carry: ``18 x 50 GB/s = 900 GB/s``."""
    if domain.links_bundled:
        rate = format_quantity(domain.scale_up_bytes_per_s, "byte/s")
        return f"{domain.fabric.name}: {rate} over links whose number is not published,"
    total = format_quantity(domain.scale_up_bytes_per_s, "byte/s")
    if domain.structure == "raw":
        return f"{domain.fabric.name}: {total} at least"
    if domain.structure == "torus":
        pairs = zip(domain.links_per_dimension, domain.fabric_of_dimension, strict=True)
    else:
        pairs = zip((domain.links_per_gpu,), (domain.fabric,), strict=True)
    links = [
        f"{sum(count for count, _ in run)} x {format_quantity(fabric.link_bytes_per_s.value, 'byte/s')}"
        for fabric, run in ((fabric, list(run)) for fabric, run in groupby(pairs, key=lambda pair: pair[1]))
    ]
    return f"{domain.fabric.name}: {' + '.join(links)} = {total}"


def _domains(cluster: Cluster) -> str:
    runs = [(domain, len(list(run))) for domain, run in groupby(cluster.spec.domains)]
    return "; ".join(
        f"{count} x {domain.gpus} {domain.title} ({structure_words(domain)})" for domain, count in runs
    )


def _parts(limits: Physical) -> str:
    switches = [_many(count, *_WORDS[kind]) for kind, count in limits.switches.items()]
    return ", ".join([f"{_many(limits.hosts, 'host')} in {_many(limits.racks, 'rack')}", *switches])


def _many(count: int, one: str, more: str = "") -> str:
    return f"{count:,} {one if count == 1 else more or one + 's'}"


def _power(limits: Physical) -> str:
    power = limits.power
    if power.watts is None or limits.rack_w is None:
        return f"not known ({power.basis})"
    total, rack = format_quantity(power.watts, "W"), format_quantity(limits.rack_w, "W")
    return f"{total} in all, {rack} a rack ({power.basis}; {power.evidence.label})"


def _mass(limits: Physical) -> str:
    mass = limits.mass
    if mass.kg is None or limits.rack_kg is None:
        return f"not published ({mass.basis})"
    total, rack = format_quantity(mass.kg, "kg"), format_quantity(limits.rack_kg, "kg")
    return f"{total} in all, {rack} a rack ({mass.basis}; {mass.evidence.label})"


def _cables(limits: Physical) -> list[str]:
    rows = [["links", "on boards", "copper", "optical", "copper a rack", "optical a rack"]]
    for one in limits.cabling:
        if not one.counted:
            rows.append([one.fabric, *["not published"] * 3, "-", "-"])
            continue
        copper = f"{one.copper:,}" + (f" ({one.copper_cables:,} cables)" if one.copper_cables else "")
        each = [f"{count / limits.racks:,.4g}" for count in (one.copper, one.optical)]
        rows.append([one.fabric, f"{one.board:,}", copper, f"{one.optical:,}", *each])
    return table(rows, 0)


def _growth(larger: list[Physical], domain: DomainSpec) -> list[str]:
    rows = [["GPUs in one domain", "racks", "copper", "optical", "optical a GPU", "power"]]
    for one in larger:
        watts = one.power.watts
        mark = "" if one.gpus <= domain.gpus else " *"
        rows.append(
            [
                f"{one.gpus}{mark}",
                f"{one.racks}",
                f"{one.copper:,}",
                f"{one.optical:,}",
                f"{one.optical / one.gpus:.3g}",
                "-" if watts is None else format_quantity(watts, "W"),
            ]
        )
    return [*table(rows, 0), "* larger than this domain: the same links of each GPU, in more racks."]


def _data(limits: Physical) -> dict[str, Any]:
    return {
        "gpus": limits.gpus,
        "hosts": limits.hosts,
        "racks": limits.racks,
        "switches": dict(limits.switches),
        "links": [asdict(one) for one in limits.cabling],
        "copper_links": limits.copper,
        "optical_links": limits.optical,
        "power_w": limits.power.watts,
        "power_basis": limits.power.basis,
        "power_kind": limits.power.evidence.label,
        "rack_power_w": limits.rack_w,
        "mass_kg": limits.mass.kg,
        "mass_basis": limits.mass.basis,
        "mass_kind": limits.mass.evidence.label,
        "rack_mass_kg": limits.rack_kg,
    }
