"""What it costs a token to change GPU: a price for each tier that it crosses (GPU, node, domain)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from placement.arrays import Floats, Ints
from topology.errors import InputError
from topology.units import plural


@dataclass(frozen=True, eq=False)
class Tiers:
    """GPUs in groups in groups, and the price of leaving one: that of the widest group that is left.

    Attributes
    ----------
    groups:
        int64 ``[tiers, gpus]``, narrowest first: the group of each GPU. The first tier is the GPU itself.
    prices:
        float64 ``[tiers]``: what a token pays that leaves its group of the tier and stays in that of the next;
        they never fall.
    """

    groups: Ints
    prices: Floats

    @staticmethod
    def of(gpus: int, price: float = 1.0, wider: Sequence[tuple[ArrayLike, float]] = ()) -> Tiers:
        """Check and number; ``wider`` has the groups of each further tier ``[gpus]`` and its price.

        Raises
        ------
        InputError
            If groups do not match the GPUs, a group lies in two of the next tier, or a price is below the one before.
        """
        if gpus < 1:
            raise InputError(f"`gpus` {gpus}: expected 1 or more.")
        rows, prices = [np.arange(gpus, dtype=np.int64)], [float(price)]
        for labels, value in wider:
            row = np.asarray(labels)
            if row.shape != (gpus,):
                raise InputError(f"groups of {row.size} GPUs; there are {gpus}.")
            row = np.unique(row, return_inverse=True)[1].astype(np.int64)
            if np.unique(np.stack([rows[-1], row]), axis=1).shape[1] > rows[-1].max() + 1:
                raise InputError("a group of GPUs lies in two groups of the next tier: each must lie in one.")
            rows.append(row)
            prices.append(float(value))
        values = np.array(prices)
        if not np.isfinite(values).all() or values[0] < 0 or (np.diff(values) < 0).any():
            raise InputError(
                f"prices of tiers {prices}: expected finite numbers from 0 that never fall: "
                "leaving a wider group costs no less."
            )
        return Tiers(np.stack(rows), values)

    @staticmethod
    def even(gpus: int, sizes: Sequence[tuple[int, float]] = (), price: float = 1.0) -> Tiers:
        """Return tiers of consecutive GPUs, ``(GPUs of a group, price)`` each, narrowest first.

        Raises
        ------
        InputError
            If a size does not divide the GPUs or the next size.
        """
        before = 1
        for size, _ in sizes:
            if size < 1 or size % before or gpus % size:
                raise InputError(
                    f"groups of {size} among {plural(gpus, 'GPU')}: expected a multiple of {before} that divides "
                    f"{gpus}."
                )
            before = size
        return Tiers.of(gpus, price, [(np.arange(gpus) // size, value) for size, value in sizes])

    @property
    def gpus(self) -> int:
        """GPUs."""
        return int(self.groups.shape[1])

    @property
    def uniform(self) -> bool:
        """Whether every change of GPU costs the same."""
        return (
            bool(self.prices.max() == self.prices.min()) or not (self.groups[1:] != self.groups[1:, :1]).any()
        )

    @cached_property
    def steps(self) -> Floats:
        """What leaving a group of each tier adds to the price of the tier before, ``[tiers]``."""
        return np.diff(self.prices, prepend=0.0)

    @cached_property
    def price(self) -> Floats:
        """What a token pays from GPU to GPU, ``[gpus, gpus]``: symmetric, 0 on the diagonal."""
        apart = self.groups[:, :, None] != self.groups[:, None, :]
        found: Floats = np.einsum("t,tgh->gh", self.steps, apart.astype(np.float64))
        return found
