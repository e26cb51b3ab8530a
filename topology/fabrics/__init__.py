"""Fabrics between domains: each kind is a class in a file of its own, and is registered here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from topology.fabrics.dragonfly import DragonflyFabric
from topology.fabrics.fabric import CabledFabric, RawFabric
from topology.fabrics.fat_tree import FatTreeFabric
from topology.fabrics.leaf_spine import LeafSpineFabric
from topology.fabrics.rail import RailFabric

AnyFabric = Annotated[
    RailFabric | LeafSpineFabric | FatTreeFabric | DragonflyFabric | RawFabric, Field(discriminator="kind")
]
"""A fabric as files have it: ``kind`` says which class it is."""
FABRICS: Mapping[str, type[CabledFabric]] = {
    "rail": RailFabric,
    "leaf-spine": LeafSpineFabric,
    "fat-tree": FatTreeFabric,
    "dragonfly": DragonflyFabric,
}
"""Those that a cluster YAML can name."""
