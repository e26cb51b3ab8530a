"""Fabrics between domains: each kind is a class in a file of its own, and is registered here."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from topology.fabrics.dragonfly import DragonflyFabric, DragonflyRow
from topology.fabrics.fabric import RawFabric
from topology.fabrics.fat_tree import FatTreeFabric, FatTreeRow
from topology.fabrics.leaf_spine import LeafSpineFabric, LeafSpineRow
from topology.fabrics.rail import RailFabric, RailRow

AnyFabric = Annotated[
    RailFabric | LeafSpineFabric | FatTreeFabric | DragonflyFabric | RawFabric, Field(discriminator="kind")
]
"""A fabric as files have it: ``kind`` says which class it is."""
AnyRow = Annotated[RailRow | LeafSpineRow | FatTreeRow | DragonflyRow, Field(discriminator="kind")]
"""A fabric that a cluster YAML writes out."""
