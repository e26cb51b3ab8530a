"""The fabric of a cluster file: its NICs and its kind, which reads how its switches are cabled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from topology.base.errors import InputError
from topology.base.figures import Evidence, Figure
from topology.base.reading import Fields
from topology.base.schema import validated
from topology.base.units import parse_quantity
from topology.catalog import find_scale_out, load_domain, load_scale_out
from topology.fabrics import FABRICS
from topology.fabrics.asked import Asked
from topology.fabrics.fabric import ScaleOutSpec
from topology.fabrics.rail import RailFabric
from topology.files.plausible import check_nic
from topology.spec import FabricSpec
from topology.structures.domain import DomainSpec

_REFERENCE = (
    "hgx-h100"  # pods and spines of inline domains follow this design; its latencies say that they stand in
)


def user_figure(
    fields: Fields, key: str, unit: str, *, source: str | None = None, default: Figure | None = None
) -> Figure:
    """Return one figure that the file's owner vouches for, or the default where there is one and the key is not."""
    if default is not None and key not in fields:
        return default
    text = fields.text(key) if isinstance(fields.get(key), str) else fields.need(key)
    return given_figure(text, unit, fields.at(key), source or fields.where)


def given_figure(text: object, unit: str, where: str, source: str | None = None) -> Figure:
    """Return the figure that a user wrote at ``where``, in the file or option ``source`` (else ``where``)."""
    return Figure(parse_quantity(text, unit, where), unit, Evidence.USER, source or where, str(text))


def stand_in_latency(fields: Fields | None = None, *, scale_up: bool) -> Figure:
    """Return the latency of a hop: the file's, or the catalog's stand-in (which says that it is one)."""
    usual = (load_domain(_REFERENCE) if scale_up else load_scale_out(_REFERENCE)).fabric.latency_s
    return usual if fields is None else user_figure(fields, "latency", "s", default=usual)


def read_fabric(
    fields: Fields, parts: Sequence[object], domains: Sequence[DomainSpec]
) -> ScaleOutSpec | None:
    """Return the fabric between domains: the file's, else the one design that all parts share.

    Raises
    ------
    InputError
        If several domains have no fabric in common, or the file's cannot be cabled.
    """
    named = [part for part in parts if isinstance(part, str)]
    designs = {find_scale_out(part) for part in named}
    if "fabric" not in fields:
        shared = next(iter(designs)) if len(designs) == 1 and len(named) == len(parts) else None
        if shared is None and len(domains) > 1:
            raise InputError(
                f"{fields.where}: its domains have no fabric in common, so it needs the key `fabric`, "
                "like {kind: rail, nic: 400 Gb/s, oversubscription: 1}."
            )
        return shared
    row = fields.sub("fabric")
    design = find_scale_out(named[0]) if named else None
    if not isinstance(design, RailFabric):
        design = load_scale_out(_REFERENCE)
    assert isinstance(design, RailFabric)  # noqa: S101 - as the catalog has it
    kind = row.choice("kind", FABRICS)
    fabric = FABRICS[kind]
    nic, planes = user_figure(row, "nic", "byte/s"), row.count("planes", 1)
    nics = row.count("nics_per_gpu", planes)
    ratios = _oversubscription(row, kind, fabric.tiers)
    link = FabricSpec(f"{kind} {row.text('nic')}", "scale-out", nic, stand_in_latency(row, scale_up=False))
    known: dict[str, Any] = {
        "fabric": link,
        "nic_links_per_gpu": nics,
        "oversubscription": ratios[0],
        "planes": planes,
    }
    validated(ScaleOutSpec, {"kind": kind, **known}, row.where)
    asked = Asked(row, known, nics // planes, nic.value, ratios, domains, design.nodes_per_pod, design.spines)
    scale_out = fabric.read(asked)
    if "radix" in row and not asked.radix_used:
        row.fail("radix", f"a {kind} fabric of these sizes does not follow from it; leave it out.")
    check_nic(row, scale_out, parts)
    row.done()
    return scale_out


def _oversubscription(row: Fields, kind: str, tiers: int) -> tuple[float, ...]:
    """Return how far a fabric is oversubscribed: at its leaves, and at the tiers above that are given."""
    if not isinstance(value := row.get("oversubscription"), list):
        return (row.number("oversubscription", 1.0),)
    if len(value) != tiers:
        raise InputError(
            f"{row.at('oversubscription')}: {value!r} has {len(value)} entries; {kind} is oversubscribed at "
            f"{tiers} tier{'s' * (tiers > 1)} (fat-tree: leaves, then spines)."
        )
    return row.numbers("oversubscription")
