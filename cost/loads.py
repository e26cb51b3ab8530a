"""Tokens routed to each expert: one scenario or several, validated where they enter."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class ExpertLoads:
    """Tokens per expert, float64 ``[scenarios, layers, experts]``; layers are the MoE layers in order.

    ``names`` has one entry a scenario. ``synthetic`` says that nobody measured them, or not all of them.
    ``notes`` are lines that the summary repeats (dense rows dropped, and so on).
    """

    tokens: NDArray[np.float64]
    names: tuple[str, ...]
    synthetic: bool
    notes: tuple[str, ...] = ()

    @property
    def normalised(self) -> NDArray[np.float64]:
        """Each layer of each scenario divided by its own mean, ``[scenarios, layers, experts]``."""
        part = self.tokens / self.tokens.max(axis=2, keepdims=True)  # the sum of loads near 1e308 overflows
        scaled: NDArray[np.float64] = part / part.mean(axis=2, keepdims=True)
        return scaled

    @property
    def mean(self) -> NDArray[np.float64]:
        """The scenarios weighted equally, ``[layers, experts]``, each layer with mean 1."""
        averaged: NDArray[np.float64] = self.normalised.mean(axis=0)
        return averaged
