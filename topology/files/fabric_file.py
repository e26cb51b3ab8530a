"""The fabric of a cluster file: its row with the sizes that it leaves out, or the one design of its parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from topology.base.errors import InputError
from topology.base.schema import validated
from topology.catalog import find_scale_out, reference_design, stand_in_latency
from topology.fabrics import AnyRow
from topology.fabrics.fabric import ScaleOutSpec
from topology.fabrics.rail import RailFabric
from topology.fabrics.row import FabricRow, Sizing
from topology.files.plausible import check_nic
from topology.spec import FabricSpec
from topology.structures.domain import DomainSpec


def shared_fabric(
    parts: Sequence[str | None], domains: Sequence[DomainSpec], where: str
) -> ScaleOutSpec | None:
    """Return the one design that all parts share (None: written out); None for one domain without a fabric.

    Raises
    ------
    InputError
        If several domains have no fabric in common.
    """
    designs = {None if part is None else find_scale_out(part) for part in parts}
    shared = designs.pop() if len(designs) == 1 else None
    if shared is None and len(domains) > 1:
        raise InputError(
            f"{where}: its domains share no default fabric, so the key `fabric` is needed, like "
            "{kind: rail, nic: 400 Gb/s, oversubscription: 1}."
        )
    return shared


def read_fabric(
    data: object, parts: Sequence[str | None], domains: Sequence[DomainSpec], where: str
) -> ScaleOutSpec:
    """Return the fabric that a file writes out at ``where`` for some domains; ``parts`` as in :func:`shared_fabric`.

    Raises
    ------
    InputError
        If it cannot be cabled.
    """
    row: FabricRow = validated(AnyRow, data, where, where)
    named = [part for part in parts if part is not None]
    design = find_scale_out(named[0]) if named else None
    if not isinstance(design, RailFabric):
        design = reference_design()
    latency = row.latency or stand_in_latency(scale_up=False)
    known: dict[str, Any] = {
        "fabric": FabricSpec(f"{row.kind} {row.nic.text}", "scale-out", row.nic, latency),
        "nic_links_per_gpu": row.nics,
        "oversubscription": row.oversubscription[0],
        "planes": row.planes,
    }
    validated(ScaleOutSpec, {"kind": row.kind, **known}, where)
    sizing = Sizing(row, where, known, domains, design.nodes_per_pod, design.spines)
    scale_out = row.sized(sizing)
    if row.radix is not None and not sizing.radix_used:
        raise InputError(
            f"{where}: radix: the sizes of a {row.kind} fabric do not depend on it; leave it out."
        )
    if not row.rate_checked:
        check_nic(scale_out, named, where)
    return scale_out
