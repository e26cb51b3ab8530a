"""Tokens from expert to expert of consecutive MoE layers: read from a file, or counted in a routing trace."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array

from cost.traces.arrays import npy_array, npz_array, npz_names
from topology.errors import InputError, one_line
from topology.units import plural

KEY = "transitions"
"""Key of the array in an ``.npz`` file; ``tokens`` beside it says how many tokens were counted."""
_MOST = 1e150


@dataclass(frozen=True, eq=False)
class Transitions:
    """How many tokens go from expert ``i`` of a MoE layer to expert ``j`` of the next.

    Attributes
    ----------
    weights:
        float64 ``[hops, experts, experts]``, one hop fewer than layers; whole numbers where they were counted.
    tokens:
        Tokens that were counted: costs are per token.
    """

    weights: NDArray[np.float64]
    tokens: float

    @staticmethod
    def of(weights: ArrayLike, tokens: float | None = None, *, name: str = "transitions") -> Transitions:
        """Check and take; without ``tokens`` the hop with the most weight counts them.

        Raises
        ------
        InputError
            If the shape is not ``[hops, experts, experts]``, a weight is not a finite number from 0, all are 0, or
            ``tokens`` is not above 0.
        """
        try:
            array = np.asarray(weights, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise InputError(f"{name}: not an array of numbers ({one_line(error)}).") from error
        shape = list(array.shape)
        if array.ndim != 3 or array.shape[1] != array.shape[2] or 0 in array.shape:
            raise InputError(
                f"{name}: has shape {shape}; expected [hops, experts, experts]: tokens from expert i of a MoE layer "
                "to expert j of the next, one hop fewer than layers."
            )
        bad = np.argwhere(~(np.isfinite(array) & (array >= 0)))
        if bad.size:
            hop, i, j = (int(n) for n in bad[0])
            raise InputError(
                f"{name}: hop {hop}, expert {i} to expert {j}: {array[hop, i, j]:g}; expected a number from 0."
            )
        if float(array.max()) > _MOST:
            raise InputError(f"{name}: numbers up to {array.max():g} are too large to add up.")
        sums = array.sum(axis=(1, 2))
        if not sums.any():
            raise InputError(f"{name}: all are 0: no token goes from layer to layer.")
        counted = float(sums.max()) if tokens is None else float(tokens)
        if not (np.isfinite(counted) and counted > 0):
            raise InputError(f"{name}: {counted:g} tokens; expected a number above 0.")
        return Transitions(np.ascontiguousarray(array), counted)

    @property
    def hops(self) -> int:
        """Pairs of consecutive layers."""
        return int(self.weights.shape[0])

    @property
    def layers(self) -> int:
        """MoE layers."""
        return self.hops + 1

    @property
    def experts(self) -> int:
        """Experts of each layer."""
        return int(self.weights.shape[1])


def read_transitions(path: Path) -> Transitions:
    """Read ``.npz`` with ``transitions`` ``[hops, experts, experts]`` and ``tokens``, or ``.npy`` of the first alone.

    Raises
    ------
    InputError
        If the file is missing, is something else, or holds no transitions.
    """
    suffix = path.suffix.lower()
    if suffix not in {".npz", ".npy"}:
        raise InputError(f"{path}: expected .npz with an array {KEY!r}, or .npy.")
    if not path.is_file():
        raise InputError(f"{path}: no such file.")
    try:
        if suffix == ".npy":
            return Transitions.of(_numbers(path, npy_array(path)), name=str(path))
        weights = _numbers(path, npz_array(path, KEY))
        counted = "tokens" in npz_names(path)
        tokens = _numbers(path, npz_array(path, "tokens")) if counted else None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({one_line(error)}).") from error
    if tokens is not None and tokens.size != 1:
        raise InputError(f"{path}: `tokens` has shape {list(tokens.shape)}; expected one number.")
    return Transitions.of(weights, None if tokens is None else float(tokens.ravel()[0]), name=str(path))


def _numbers(path: Path, array: NDArray[Any]) -> NDArray[Any]:
    if array.dtype.kind not in "iuf":
        raise InputError(f"{path}: holds {array.dtype}, not numbers of tokens.")
    return array


def count_transitions(choices: NDArray[np.integer], experts: int) -> Transitions:
    """Count the transitions of a routing trace.

    Each pair of choices of a token, one in a layer and one in the next, weighs one over the token's choices in
    the earlier layer: what a token sends from one layer to the next weighs as much as it has choices in the later.

    Parameters
    ----------
    choices:
        ``[layers, tokens, k]`` ids of experts, -1 for a choice that was not used.
    experts:
        Experts of a layer.

    Raises
    ------
    InputError
        If there are fewer than two layers, or an id is no expert's.
    """
    if choices.ndim != 3 or len(choices) < 2:
        raise InputError(
            f"choices have shape {list(choices.shape)}; expected [layers, tokens, k] with two layers or more."
        )
    if choices.size and (choices.min() < -1 or choices.max() >= experts):
        raise InputError(f"choices of experts {choices.min()}..{choices.max()}; there are {experts}.")
    tokens = choices.shape[1]
    weights = np.empty((len(choices) - 1, experts, experts))
    sent = _chosen(choices[0], experts)
    for hop in range(len(weights)):
        used = np.maximum(1, np.diff(sent.indptr))
        shares = csr_array(
            (sent.data / np.repeat(used, np.diff(sent.indptr)), sent.indices, sent.indptr), sent.shape
        )
        sent = _chosen(choices[hop + 1], experts)
        weights[hop] = (shares.T @ sent).toarray()
    return Transitions.of(weights, tokens, name=f"the transitions of {plural(tokens, 'token')}")


def _chosen(choices: NDArray[np.integer], experts: int) -> csr_array:
    """Return 1 where a token chose an expert, sparse ``[tokens, experts]``."""
    used = choices >= 0
    starts = np.concatenate([[0], np.cumsum(used.sum(axis=1))])
    return csr_array((np.ones(int(starts[-1])), choices[used], starts), shape=(len(choices), experts))
