"""Structures of a scale-up domain: each is a class in a file of its own, and is registered here."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from topology.structures.mesh import MeshDomain, MeshRow
from topology.structures.nested import NestedDomain, NestedRow
from topology.structures.raw import RawDomain
from topology.structures.switch import SwitchDomain, SwitchRow
from topology.structures.torus import TorusDomain, TorusRow
from topology.structures.two_tier import TwoTierDomain, TwoTierRow

AnyDomain = Annotated[
    SwitchDomain | TwoTierDomain | MeshDomain | NestedDomain | TorusDomain | RawDomain,
    Field(discriminator="structure"),
]
"""A domain as files have it: ``structure`` says which class it is."""
AnyRow = Annotated[SwitchRow | TwoTierRow | MeshRow | NestedRow | TorusRow, Field(discriminator="structure")]
"""A domain that a cluster YAML writes out."""
