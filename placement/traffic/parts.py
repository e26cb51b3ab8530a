"""What a search is asked: experts into parts (domains or nodes) of given sizes, with limits of their loads."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from placement.arrays import Bools, Floats, Ints
from placement.traffic.tokens import Tokens


@dataclass(frozen=True, eq=False)
class Parts:
    """Experts to be spread over parts so that a token's experts lie in few.

    Attributes
    ----------
    tokens:
        What is counted.
    size:
        int64 ``[parts]``: experts that each part takes, exactly; they add up to the experts.
    load:
        float64 ``[scenarios, experts]``: each scenario adds up to the choices of ``tokens``.
    limit:
        float64 ``[parts]``: the load that a part should not exceed, in any scenario.
    within, part_of:
        int64 ``[experts]`` and ``[parts]``: an expert of ``within`` d may only lie in a part of ``part_of`` d (nodes
        of its domain); all 0 where it may lie anywhere.
    """

    tokens: Tokens
    size: Ints
    load: Floats
    limit: Floats
    within: Ints
    part_of: Ints

    @staticmethod
    def free(tokens: Tokens, size: Ints, load: Floats, limit: Floats) -> Parts:
        """Return the task in which every expert may lie in any part; ``load`` is scaled to the tokens'."""
        scaled = load * (tokens.load.sum() / load.sum(axis=1, keepdims=True))
        within, part_of = np.zeros(tokens.experts, dtype=np.int64), np.zeros(size.size, dtype=np.int64)
        return Parts(tokens, size, scaled, limit * tokens.load.sum(), within, part_of)

    def of_tokens(self, tokens: Tokens) -> Parts:
        """Return the same task counted on other tokens; loads and limits are scaled to them."""
        scale = tokens.load.sum() / self.tokens.load.sum()
        return replace(self, tokens=tokens, load=self.load * scale, limit=self.limit * scale)

    @property
    def parts(self) -> int:
        """Number of parts."""
        return int(self.size.size)

    @property
    def allowed(self) -> Bools:
        """Which parts an expert may lie in, ``[experts, parts]``."""
        fits: Bools = self.within[:, None] == self.part_of[None, :]
        return fits

    def in_order(self) -> Ints:
        """Return experts in order into parts in order, ``[experts]``: what linear placement does."""
        part = np.empty(self.tokens.experts, dtype=np.int64)
        for group in np.unique(self.within):
            mine = np.flatnonzero(self.part_of == group)
            part[self.within == group] = np.repeat(mine, self.size[mine])
        return part

    def part_load(self, part: Ints) -> Floats:
        """Load of each part, ``[scenarios, parts]``."""
        return np.stack([np.bincount(part, weights=row, minlength=self.parts) for row in self.load])

    def excess(self, part: Ints) -> float:
        """Load above the limits, in tokens' choices, over all parts and scenarios."""
        return float(np.maximum(self.part_load(part) - self.limit, 0.0).sum())

    def reached(self, part: Ints) -> int:
        """Parts reached, over all tokens."""
        return parts_reached(self.tokens, part, self.parts)


def parts_reached(tokens: Tokens, part: Ints, parts: int) -> int:
    """Return how many parts the tokens reach, all added up; ``part`` ``[experts]``."""
    return int(reach_of_tokens(tokens, part, parts).sum())


def reach_of_tokens(tokens: Tokens, part: Ints, parts: int) -> Ints:
    """Return how many parts each token reaches, ``[tokens]``."""
    reached = np.zeros(len(tokens), dtype=np.int64)
    for word in bits_of_parts(part, parts):
        reached += np.bitwise_count(np.bitwise_or.reduce(word[tokens.choices], axis=1))
    return reached


def bits_of_parts(part: Ints, parts: int) -> NDArray[np.uint64]:
    """Return the bit of each expert's part and none for no choice, ``[words, experts + 1]``: 64 parts a word."""
    words = -(-parts // 64)
    bits = np.zeros((words, part.size + 1), dtype=np.uint64)
    bits[part // 64, np.arange(part.size)] = np.uint64(1) << (part % 64).astype(np.uint64)
    return bits
