"""The choices of tokens in one layer, as arrays that searches count with."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from placement.arrays import Bools, Floats, Index, Ints
from topology.base.errors import InputError

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
        stands where a token has fewer than ``k``.
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
        if raw.ndim != 2 or not (np.issubdtype(raw.dtype, np.integer)):
            raise InputError(
                f"choices of tokens: expected whole numbers [tokens, k] of one layer, got {raw.dtype} "
                f"{list(raw.shape)}."
            )
        if not 1 <= experts <= MOST_EXPERTS:
            raise InputError(f"{experts} experts in a layer: expected 1 to {MOST_EXPERTS}.")
        if raw.size and (int(raw.min()) < NONE or int(raw.max()) >= experts):
            bad = int(raw.max()) if int(raw.max()) >= experts else int(raw.min())
            raise InputError(
                f"choices of tokens: expert {bad} is not one of the {experts} (0 to {experts - 1})."
            )
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
        if len(self) <= most:
            return self
        return self.rows(np.arange(most) * len(self) // most)

    def renamed(self, name: Ints) -> Tokens:
        """Return the same with expert ``e`` called ``name[e]``."""
        names = np.append(name, self.experts).astype(np.int32)
        return Tokens(np.sort(names[self.choices], axis=1), self.experts)

    def ranks(self) -> Ints:
        """A name for each expert that does not depend on those they came with, ``[experts]``.

        By falling load, then by how uneven their company is: what is searched under these names finds the same
        groups however experts were numbered.
        """
        company = np.sort(self.together, axis=1)
        order = np.lexsort((*company.T, -self.load))
        rank = np.empty(self.experts, dtype=np.int64)
        rank[order] = np.arange(self.experts)
        return rank
