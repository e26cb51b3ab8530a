"""Attention, one kind a file: weights, cache bytes and flop of one layer."""

from __future__ import annotations

from cost.attention.blocks import BlockSparse
from cost.attention.compressed import CompressedAttention
from cost.attention.grouped import GroupedQuery
from cost.attention.latent import IndexedLatent, Latent
from cost.attention.linear import GatedDelta, KimiDelta
from cost.attention.sparse import AsIfSparse

__all__ = [
    "AsIfSparse",
    "BlockSparse",
    "CompressedAttention",
    "GatedDelta",
    "GroupedQuery",
    "IndexedLatent",
    "KimiDelta",
    "Latent",
]
