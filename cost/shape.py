"""What one step processes and over how many GPUs: one configuration, or thousands side by side."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cost.quantity import Quantity


@dataclass(frozen=True, eq=False)
class StepShape:
    """A step of one EP group; every attribute is a number or an array, and they broadcast together.

    Attributes
    ----------
    sequences:
        Sequences per GPU that decode in this step, and ``queries`` tokens of each (1, and 1 more for each draft).
    context:
        Tokens in the cache of each.
    prompt_tokens:
        Tokens per GPU of prompts that are prefilled in this step, and ``prompt_length`` tokens each prompt has.
    prompt_cached:
        Tokens of each prompt that a cache already holds: they are attended to, not prefilled.
    tp:
        Width of tensor parallelism in attention and dense parts.
    attention_dp:
        Groups of that width that attend to their own sequences; together they are the EP group.
    ep, moe_tp:
        GPUs that a layer's experts are spread over, and parts that each expert is cut into.
    slots:
        Expert copies per layer over the group; 0: one of each.
    imbalance:
        Busiest GPU's expert load over the mean.
    skew:
        How unequally experts are used within a step: standard deviation of the logarithms, 0 where all alike.
    domain_gpus:
        GPUs of the group in one scale-up domain.
    random:
        1 where requests are assigned to attention ranks at random, 0 where each has just as many.
    """

    tp: Quantity = 1.0
    attention_dp: Quantity = 1.0
    ep: Quantity = 1.0
    moe_tp: Quantity = 1.0
    sequences: Quantity = 0.0
    context: Quantity = 0.0
    queries: Quantity = 1.0
    prompt_tokens: Quantity = 0.0
    prompt_length: Quantity = 1.0
    prompt_cached: Quantity = 0.0
    slots: Quantity = 0.0
    imbalance: Quantity = 1.0
    skew: Quantity = 0.0
    domain_gpus: Quantity = 1.0
    random: Quantity = 1.0

    @property
    def gpus(self) -> Quantity:
        """GPUs of the group."""
        return self.tp * self.attention_dp

    @property
    def tokens(self) -> Quantity:
        """Tokens per GPU of the step."""
        return self.sequences * self.queries + self.prompt_tokens

    @property
    def decodes(self) -> bool:
        """Whether any sequence decodes."""
        return bool(np.any(np.asarray(self.sequences) > 0))

    @property
    def prefills(self) -> bool:
        """Whether any prompt is prefilled."""
        return bool(np.any(np.asarray(self.prompt_tokens) > 0))
