"""Equal spending on pre-training, reinforcement learning and inference, and the over-training it implies.

A sum of costs that trade against each other is near its least where they are equal. Per parameter that a token
uses, training takes 6 flop a token (forward 2, backward 4) and generating one takes 2, on hardware that decode
keeps ``decode_efficiency`` times as busy as pre-training does:

- pre-training: ``6 N D_pre``
- inference: ``2 / decode_efficiency * N D_inf``
- reinforcement learning: ``(2 / decode_efficiency + 6 * trained) * N D_rl``, for tokens that are generated and of
  which a share ``trained`` is trained on

Deployment all equal to inference, ``D_pre = D_inf / (3 * decode_efficiency)``: where decode is a third as efficient,
as many tokens are trained on as will ever be served. A model of 100 B active parameters that serves 50 M
tokens/s for two months serves 2.6e14; Chinchilla's 20 tokens per parameter are 2e12: it is trained on 130 times
as many, the lecture's "about 100 times".
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from topology.errors import InputError
from topology.figures import Evidence, Figure

CHINCHILLA_TOKENS_PER_PARAM = Figure(
    20.0,
    "1",
    Evidence.DERIVED,
    "Hoffmann et al., arXiv 2203.15556 (Chinchilla): 70 B parameters trained on 1.4 T tokens",
    "20",
)
_TRAIN_FLOP, _GENERATE_FLOP = 6.0, 2.0  # per parameter and token: Kaplan et al., arXiv 2001.08361, table 1


@dataclass(frozen=True)
class EqualSpend:
    """Tokens of the three parts of a model's life that cost the same.

    Attributes
    ----------
    pretraining_tokens, rl_tokens, inference_tokens:
        Trained on first; generated in reinforcement learning; served to users.
    training_flop:
        Cost of each part, as flop at the efficiency of pre-training.
    over_training:
        Pre-training tokens over those of Chinchilla for as many active parameters.
    """

    pretraining_tokens: float
    rl_tokens: float
    inference_tokens: float
    training_flop: float
    over_training: float


def equal_spend(
    active_params: float, inference_tokens: float, *, decode_efficiency: float, trained: float
) -> EqualSpend:
    """Return how many tokens to train on if each part shall cost what inference costs.

    Parameters
    ----------
    active_params:
        Parameters that a token uses; Chinchilla's rule, made for dense models, is applied to them.
    inference_tokens:
        Tokens served in the model's life.
    decode_efficiency:
        Share of the flop/s of pre-training that decode reaches; prices of output tokens 3 times those of input
        tokens suggest a third.
    trained:
        Share of the tokens generated in reinforcement learning that is trained on, from 0 to 1.

    Raises
    ------
    InputError
        If a figure cannot be.
    """
    for name, value in (("active_params", active_params), ("inference_tokens", inference_tokens)):
        if not (math.isfinite(value) and value > 0):
            raise InputError(f"{name} {value:g}: expected a number above 0.")
    if not 0 < decode_efficiency <= 1:
        raise InputError(f"decode_efficiency {decode_efficiency:g}: expected a share above 0 and at most 1.")
    if not 0 <= trained <= 1:
        raise InputError(f"trained {trained:g}: expected a share from 0 to 1.")
    generate = _GENERATE_FLOP / decode_efficiency
    spent = generate * inference_tokens  # flop per parameter
    pretraining = spent / _TRAIN_FLOP
    return EqualSpend(
        pretraining_tokens=pretraining,
        rl_tokens=spent / (generate + _TRAIN_FLOP * trained),
        inference_tokens=inference_tokens,
        training_flop=spent * active_params,
        over_training=pretraining / (CHINCHILLA_TOKENS_PER_PARAM.value * active_params),
    )
