"""Attention, one kind a file: weights, cache bytes and flop of one layer."""

from __future__ import annotations

from cost.attention.grouped import BlockSparse, GroupedQuery
from cost.attention.latent import CompressedAttention, IndexedLatent, Latent
from cost.attention.linear import GatedDelta, KimiDelta, Lightning, ShortConv
from cost.attention.sparse import AsIfSparse
from cost.attention.state_space import Mamba2, NoAttention

__all__ = [
    "AsIfSparse",
    "BlockSparse",
    "CompressedAttention",
    "GatedDelta",
    "GroupedQuery",
    "IndexedLatent",
    "KimiDelta",
    "Latent",
    "Lightning",
    "Mamba2",
    "NoAttention",
    "ShortConv",
]
