"""Structures of a scale-up domain: each checks, lays and describes itself in one file, and is registered here."""

from __future__ import annotations

from topology.base.errors import InputError
from topology.spec import DomainSpec
from topology.structures.mesh import Mesh
from topology.structures.raw import Raw
from topology.structures.structure import Structure
from topology.structures.switched import Switched
from topology.structures.torus import Torus
from topology.structures.two_tier import TwoTier

STRUCTURES: dict[str, Structure] = {
    "switch": Switched(),
    "two-tier": TwoTier(),
    "mesh": Mesh(),
    "torus": Torus(),
}
"""Those that a cluster YAML can name."""
_ALL = {**STRUCTURES, "raw": Raw()}


def structure_of(domain: DomainSpec) -> Structure:
    """Return the structure of a domain that has been checked."""
    return _ALL[domain.structure]


def check_domain(domain: DomainSpec, where: str) -> DomainSpec:
    """Return ``domain`` if it can be built.

    Raises
    ------
    InputError
        If its structure is not known or lacks what it needs, or its GPUs do not fill whole nodes.
    """
    if domain.structure not in _ALL:
        raise InputError(
            f"{where}: structure {domain.structure!r} is not known; {', '.join(STRUCTURES)} are."
        )
    step = domain.gpus_per_node
    if domain.structure in STRUCTURES and domain.gpus % step:
        below, above = domain.gpus // step * step, -(-domain.gpus // step) * step
        raise InputError(
            f"{where}: {domain.gpus} GPUs do not fill whole nodes of {step}; "
            f"use {f'{below} or {above}' if below else above}."
        )
    structure_of(domain).check(domain, where)
    return domain
