"""The fabric of a cluster file: its NICs and its kind, which reads how its switches are cabled."""

from __future__ import annotations

from collections.abc import Sequence

from topology.base.errors import InputError
from topology.base.figures import Evidence, Figure
from topology.base.reading import Fields
from topology.base.units import parse_quantity
from topology.catalog import find_scale_out, load_domain, load_scale_out
from topology.fabrics import FABRICS, check_planes, check_scale_out
from topology.fabrics.asked import Asked
from topology.plausible import check_nic
from topology.spec import DomainSpec, FabricSpec, ScaleOutSpec

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
    if design is None or not FABRICS[design.kind].rails:
        design = load_scale_out(_REFERENCE)
    fabric = FABRICS[row.choice("kind", FABRICS)]
    asked = Asked(row, _blank(row, 1 + fabric.cores), domains, design)
    scale_out = fabric.read(asked)
    if "radix" in row and not asked.radix_used:
        row.fail("radix", f"a {fabric.kind} fabric of these sizes does not follow from it; leave it out.")
    check_nic(row, scale_out, parts)
    row.done()
    return check_scale_out(scale_out, row.where)


def _blank(row: Fields, tiers: int) -> ScaleOutSpec:
    """Return a fabric whose switches are still to come: its NICs, and how far it is oversubscribed at which tier."""
    kind, nic, planes = row.text("kind"), user_figure(row, "nic", "byte/s"), row.count("planes", 1)
    ratios: tuple[float, ...]
    if isinstance(value := row.get("oversubscription"), list):
        if len(value) != tiers:
            raise InputError(
                f"{row.at('oversubscription')}: {value!r} has {len(value)} entries; {kind} is oversubscribed at "
                f"{tiers} tier{'s' * (tiers > 1)} (fat-tree: leaves, then spines)."
            )
        ratios = row.numbers("oversubscription")
    else:
        ratios = (row.number("oversubscription", 1.0),)
    out = ScaleOutSpec(
        kind=kind,
        fabric=FabricSpec(
            f"{kind} {row.text('nic')}", "scale-out", nic, stand_in_latency(row, scale_up=False)
        ),
        nic_links_per_gpu=row.count("nics_per_gpu", planes),
        nodes_per_pod=1,
        spines=1,
        oversubscription=ratios[0],
        core_oversubscription=ratios[1] if len(ratios) > 1 else 1.0,
        planes=planes,
    )
    return check_planes(out, row.where)
