"""Structures of a scale-up domain: each is a class in a file of its own, and is registered here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from topology.structures.domain import DomainSpec
from topology.structures.mesh import MeshDomain
from topology.structures.raw import RawDomain
from topology.structures.switch import SwitchDomain
from topology.structures.torus import TorusDomain
from topology.structures.two_tier import TwoTierDomain

AnyDomain = Annotated[
    SwitchDomain | TwoTierDomain | MeshDomain | TorusDomain | RawDomain, Field(discriminator="structure")
]
"""A domain as files have it: ``structure`` says which class it is."""
STRUCTURES: Mapping[str, type[DomainSpec]] = {
    "switch": SwitchDomain,
    "two-tier": TwoTierDomain,
    "mesh": MeshDomain,
    "torus": TorusDomain,
}
"""Those that a cluster YAML can name."""
