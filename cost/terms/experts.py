"""Routed experts of one layer: flop by the tokens received, bytes by the experts that some token uses."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cost.dtypes import bytes_per_param
from cost.expert_use import ExpertUse
from cost.model import MoeFfn
from cost.quantity import Quantity
from cost.rates import Rates
from cost.shape import StepShape
from cost.terms.work import Work, filling

_POINTS = 7
"""Gauss-Hermite points over the use of experts: within 1 % of the mean for 8 of 256 experts at a skew of 1.4."""
DRAFTS_APART = 0.5
"""Part of a token's experts that a further token of the same sequence adds, where use is unequal: of 1, 0.5 and 0.25
the middle one meets published times of 1, 6 and 12 sequences an engine with three drafts (InferenceX, GB200) within
8 %."""
MATRICES = 3
"""An expert is a gated feed-forward: gate, up and down, each ``hidden`` by the expert's own width."""


def expert_columns(moe: MoeFfn, hidden: int) -> float:
    """Width of one expert (DeepSeek-V3: 2,048)."""
    return moe.expert_params / (MATRICES * hidden)


def expert_times(
    moe: MoeFfn, use: ExpertUse, *, tokens: float, weights: str, rates: Rates
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return seconds at peak for computing and for reading, each ``[scenarios, layers, gpus]``.

    Parameters
    ----------
    tokens:
        Tokens of the step over the whole EP group.

    Notes
    -----
    A GPU computes ``2 * expert_params`` flop for each pair it receives, ``tokens * top_k * share``, and reads
    the weights of each slot that some token uses.
    """
    pairs = tokens * moe.top_k * use.share
    compute_s = 2 * moe.expert_params * pairs / rates.flop_per_s[weights]
    read = use.touched_slots(tokens) * moe.expert_params * bytes_per_param(weights)
    return compute_s, read / rates.hbm_bytes_per_s


def _touched(chance: Quantity, tokens: Quantity, skew: Quantity) -> Quantity:
    """Return the part of the slots that some of ``tokens`` tokens use, each with ``chance`` on average."""
    points, weights = np.polynomial.hermite_e.hermegauss(_POINTS if np.any(np.asarray(skew) > 0) else 1)
    found: Quantity = 0.0
    for point, weight in zip(points, weights / weights.sum(), strict=True):
        one = np.minimum(chance * np.exp(skew * point - skew**2 / 2), 1 - 1e-15)
        found = found - weight * np.expm1(tokens * np.log1p(-one))
    return found


def even_expert_work(moe: MoeFfn, shape: StepShape, *, hidden: int, weights: str, rates: Rates) -> Work:
    """Work of the busiest GPU of a group whose experts are equally loaded but for ``shape.imbalance``.

    Notes
    -----
    Each expert is cut into ``moe_tp`` parts and each GPU holds ``slots`` of ``ep`` such shares. A slot is read if
    one of the group's tokens uses it, with chance ``1 - (1 - top_k / slots) ** tokens``: few at small batch, all
    of them soon after. Experts of unequal use (``shape.skew``, log-normal) are touched less often: the mean chance,
    and drafted tokens use experts of their sequence again.
    """
    group = shape.tokens * shape.gpus
    slots = np.maximum(shape.slots, moe.experts)
    fresh = shape.sequences * (1 + DRAFTS_APART * (shape.queries - 1)) + shape.prompt_tokens
    tokens = np.where(np.asarray(shape.skew) > 0, fresh * shape.gpus, group)
    touched = slots / shape.ep * _touched(moe.top_k / slots, tokens, shape.skew)
    pairs = shape.imbalance * group * moe.top_k / shape.ep
    flop = 2 * moe.expert_params * pairs / shape.moe_tp
    read = touched * moe.expert_params * bytes_per_param(weights) / shape.moe_tp
    fraction, wider = rates.fractions("experts", weights)
    return Work(
        "experts",
        fraction,
        "hbm.experts",
        flop / rates.flop_per_s[weights],
        read / rates.hbm_bytes_per_s,
        columns=filling(
            expert_columns(moe, hidden) / shape.moe_tp, rates.flop_per_s[weights], rates.hbm_bytes_per_s
        ),
        wider=wider,
    )
