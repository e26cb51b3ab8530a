"""The choices of tokens in one layer, as arrays that searches count with, and the parts that they reach."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from placement.arrays import Bools, Floats, Index, Ints
from topology.base.errors import InputError
from topology.base.npy import whole_numbers

if TYPE_CHECKING:
    from scipy.sparse import csr_array

MOST_EXPERTS = 4096
"""Of a layer: tables of every two experts are kept whole."""

NONE = -1
"""A choice that is none: a token with fewer experts than others."""


@dataclass(frozen=True, eq=False)
class Tokens:
    """Experts that each token chose in one layer.

    Attributes
    ----------
    choices:
        int32 ``[tokens, k]``; a token's experts are different and sorted. ``experts`` itself, one past the last,
        fills the row of a token with fewer than ``k``.
    experts:
        Logical experts of the layer.
    """

    choices: NDArray[np.int32]
    experts: int

    @staticmethod
    def of(choices: ArrayLike, experts: int) -> Tokens:
        """Check ``choices`` ``[tokens, k]`` and return them; -1 is no choice, a repeated one counts once.

        Raises
        ------
        InputError
            If they are not whole numbers below ``experts`` in two dimensions, or there is none.
        """
        raw = np.asarray(choices)
        if raw.ndim != 2 or not np.issubdtype(raw.dtype, np.integer):
            raise InputError(
                f"choices of tokens: expected whole numbers [tokens, k] of one layer, got {raw.dtype} "
                f"{list(raw.shape)}."
            )
        if not 1 <= experts <= MOST_EXPERTS:
            raise InputError(f"{experts} experts in a layer: expected 1 to {MOST_EXPERTS}.")
        wrong = raw[(raw < NONE) | (raw >= experts)]
        if wrong.size:
            raise InputError(
                f"choices of tokens: expert {wrong[0]} is not one of the {experts} (0 to {experts - 1})."
            )
        raw = whole_numbers(raw)
        rows = np.sort(np.where(raw < 0, experts, raw), axis=1).astype(np.int32)
        rows[:, 1:][rows[:, 1:] == rows[:, :-1]] = experts
        rows = np.sort(rows, axis=1)
        rows = rows[(rows < experts).any(axis=1)]
        if rows.size == 0:
            raise InputError("choices of tokens: no token chose an expert.")
        width = int((rows < experts).sum(axis=1).max())
        return Tokens(np.ascontiguousarray(rows[:, :width]), experts)

    def __len__(self) -> int:
        return len(self.choices)

    @property
    def k(self) -> int:
        """Most experts of a token."""
        return int(self.choices.shape[1])

    @cached_property
    def chosen(self) -> Bools:
        """Which entries of :attr:`choices` are choices, ``[tokens, k]``."""
        some: Bools = self.choices < self.experts
        return some

    @cached_property
    def load(self) -> Floats:
        """Tokens of each expert, ``[experts]``."""
        count: Floats = np.bincount(self.choices[self.chosen], minlength=self.experts).astype(np.float64)
        return count

    @cached_property
    def table(self) -> csr_array:
        """1 where a token chose an expert, sparse ``[tokens, experts]``."""
        from scipy.sparse import csr_array

        ends = np.concatenate(([0], np.cumsum(self.chosen.sum(axis=1))))
        flat = self.choices[self.chosen]
        return csr_array((np.ones(flat.size), flat, ends), shape=(len(self), self.experts))

    @cached_property
    def by_expert(self) -> csr_array:
        """The same by expert, sparse ``[experts, tokens]``."""
        return self.table.T.tocsr()

    @cached_property
    def together(self) -> Floats:
        """Tokens that chose both of two experts, ``[experts, experts]``; of one, its load."""
        both: Floats = (self.by_expert @ self.table).toarray()
        return both

    def rows(self, which: Index | slice) -> Tokens:
        """Return some of the tokens."""
        return Tokens(self.choices[which], self.experts)

    def sample(self, most: int) -> Tokens:
        """Return ``most`` tokens at equal distances, or all where there are no more."""
        return self if len(self) <= most else self.rows(np.arange(most) * len(self) // most)

    def reach(self, part: Ints, parts: int) -> Ints:
        """Return how many parts each token reaches, ``[tokens]``, with expert e in ``part[e]``."""
        reached = np.zeros(len(self), dtype=np.int64)
        for first in range(0, parts, 64):  # 64 parts a word
            bit = np.zeros(self.experts + 1, dtype=np.uint64)  # none for no choice
            mine = np.flatnonzero((part >= first) & (part < first + 64))
            bit[mine] = np.uint64(1) << (part[mine] - first).astype(np.uint64)
            reached += np.bitwise_count(np.bitwise_or.reduce(bit[self.choices], axis=1))
        return reached


@dataclass(frozen=True, eq=False)
class Partition:
    """Experts to be spread over parts (domains) of given sizes so that a token's experts are in few.

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
    """

    tokens: Tokens
    size: Ints
    load: Floats
    limit: Floats

    @staticmethod
    def of(tokens: Tokens, size: Ints, load: Floats, limit: Floats) -> Partition:
        """Return the task with ``load`` scaled to the tokens', ``limit`` ``[parts]`` being shares of the whole."""
        whole = tokens.load.sum()
        return Partition(tokens, size, load * (whole / load.sum(axis=1, keepdims=True)), limit * whole)

    def sampled(self, most: int) -> Partition:
        """Return the same task counted on ``most`` of the tokens."""
        return Partition.of(
            self.tokens.sample(most), self.size, self.load, self.limit / self.tokens.load.sum()
        )

    @property
    def parts(self) -> int:
        """Number of parts."""
        return int(self.size.size)

    def in_order(self) -> Ints:
        """Return experts in order into parts in order, ``[experts]``: what linear placement does."""
        return np.repeat(np.arange(self.parts), self.size)

    def part_load(self, part: Ints) -> Floats:
        """Load of each part, ``[scenarios, parts]``."""
        return np.stack([np.bincount(part, weights=row, minlength=self.parts) for row in self.load])

    def excess(self, part: Ints) -> float:
        """Load above the limits, in tokens' choices, over all parts and scenarios."""
        return float(np.maximum(self.part_load(part) - self.limit, 0.0).sum())

    def reached(self, part: Ints) -> int:
        """Parts reached, over all tokens."""
        return int(self.tokens.reach(part, self.parts).sum())
