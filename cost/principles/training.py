"""Flop and tokens of a model over its life: pre-training, reinforcement learning, inference."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq, minimize_scalar

from cost.quantity import Quantity

PRETRAIN, INFER = 6.0, 2.0
"""Flop a token and weight: forward and backward, and forward alone (Kaplan et al., 2020, table 1)."""
CHINCHILLA = 20.0
"""Tokens a weight for the lowest loss at a budget of training (Hoffmann et al., 2022, table 3, in round numbers)."""
SECONDS_A_MONTH = 365.25 / 12 * 86400
ACTIVATION_BYTES_PER_HIDDEN = 34.0
"""Bytes that a layer keeps of a token for its backward pass in 16 bits, over its width, without attention scores
(Korthikanti et al., Reducing Activation Recomputation in Large Transformer Models, 2022, equation 1)."""
LOSS, WEIGHTS, TOKENS = 1.8172, (482.01, 0.3478), (2085.43, 0.3658)
"""Loss of a model of N weights after D tokens: ``E + A / N**a + B / D**b`` (Besiroglu et al., Chinchilla Scaling: A
replication attempt, 2024, table 1)."""


def inference_tokens(tok_s: float, months: float) -> float:
    """Return tokens that a deployment serves over its life."""
    return tok_s * months * SECONDS_A_MONTH


def equal_cost_tokens(served: float, flop: float, utilisation: float = 1.0) -> float:
    """Return the tokens of a phase of ``flop`` a token and weight that costs as much as serving ``served`` of them.

    ``utilisation``: of the phase over that of inference.
    """
    return served * INFER / flop * utilisation


def loss(params: Quantity, tokens: Quantity) -> Quantity:
    """Return the loss of a model after training (:data:`LOSS`)."""
    return LOSS + WEIGHTS[0] / params ** WEIGHTS[1] + TOKENS[0] / tokens ** TOKENS[1]


@dataclass(frozen=True)
class Smaller:
    """The model of the same loss that costs least over its life.

    Attributes
    ----------
    params, tokens:
        Its weights and those that it is trained on.
    saved_share:
        Part of the flop of training and inference that it saves.
    """

    params: float
    tokens: float
    saved_share: float


def smaller(params: float, served: float) -> Smaller:
    """Return the cheapest model as good as one of ``params`` trained on :data:`CHINCHILLA` tokens a weight."""
    goal = float(loss(params, CHINCHILLA * params))

    def tokens(size: float) -> float:
        remaining_loss = goal - LOSS - WEIGHTS[0] / size ** WEIGHTS[1]
        return float((TOKENS[0] / remaining_loss) ** (1 / TOKENS[1]))

    def flop(log_size: float) -> float:
        size = float(np.exp(log_size))
        return size * (PRETRAIN * tokens(size) + INFER * served)

    least = brentq(lambda log: goal - LOSS - WEIGHTS[0] / np.exp(log) ** WEIGHTS[1], 0.0, np.log(params))
    best = minimize_scalar(flop, bounds=(float(least) + 1e-6, np.log(params)), method="bounded")
    size = float(np.exp(best.x))
    usual = params * (PRETRAIN * CHINCHILLA * params + INFER * served)
    return Smaller(size, tokens(size), 1 - float(best.fun) / usual)
