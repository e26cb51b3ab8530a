"""What prices tell of the machine behind them, what a cached token costs, and what a model costs over its life."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import zip_longest
from typing import NamedTuple

import numpy as np

from cost.principles import prices, step, training
from cost.principles.roofline import Roofline
from cost.principles.tiers import CacheTier, cache_tiers
from topology.base.figures import Figure
from topology.base.shown import Shown

HELD_S = (300.0, 3600.0)
"""How long price lists keep a cached prompt: 5 minutes, or an hour."""
HOLDING_S = np.geomspace(1.0, 30 * 86400.0, 60)
"""Seconds of the curves of cost over holding time, up to a month."""
RL = 2.0, 6.0
"""Flop a token and weight of reinforcement learning: from every rollout generated and none learned from, to all."""


@dataclass(frozen=True)
class Listed:
    """Prices in USD for a million tokens: prompts, answers, prompts read from a cache, and prompts beyond a context.

    ``long_context``: from how many tokens on.
    """

    input: float
    output: float
    cached: float
    long: float
    long_context: float


class Kept(NamedTuple):
    """A tier, USD of a million tokens that wait in it for :data:`HELD_S`, and until when it costs less.

    Less than computing them again, and than keeping them in the next slower tier.
    """

    tier: CacheTier
    usd: tuple[float | None, ...]
    cheaper_than_computing_s: float | None
    cheaper_than_next_s: float | None


@dataclass(frozen=True, eq=False, repr=False)
class Economics(Shown):
    """The economics of the blackboard.

    Attributes
    ----------
    roofline:
        Of the model and the chip whose own figures stand beside those that prices tell.
    listed, active_params:
        The price list, and the weights that a token uses, behind it.
    kv_bytes:
        Bytes of cache a token that tiers keep.
    tok_s, months:
        Tokens a second that a model serves, and for how long.
    tiers:
        Figures in place of the catalog's, by tier.
    """

    roofline: Roofline
    listed: Listed
    active_params: float
    kv_bytes: float
    tok_s: float
    months: float
    tiers: Mapping[str, Mapping[str, Figure]] = field(default_factory=dict)

    def brief(self) -> str:
        """Return what a price step says of the cache of a token."""
        size = self.figures["price_kv_bytes"]
        return f"a price step at {self.listed.long_context:,.0f} tokens: {size:,.0f} bytes a token"

    @cached_property
    def computing_usd(self) -> float | None:
        """USD of computing the cache of a token again: its prefill at the utilisation that is predicted."""
        price = self.roofline.price
        if price is None:
            return None
        used = self.roofline.figures["prefill_flop_share"] or 1.0
        model = self.roofline.deployment.model
        flop_per_s = self.roofline.rates.flop_per_s[model.precision[model.main_weights]]
        return float(step.compute_s(1.0, self.active_params, flop_per_s * used)) * price.value / 3600

    @cached_property
    def kept(self) -> list[Kept]:
        """What every tier costs, the fastest first."""
        computing_usd, tiers = (
            self.computing_usd,
            cache_tiers(self.roofline.gpu, self.roofline.price, self.tiers),
        )
        return [
            Kept(
                tier,
                tuple(
                    None if (usd := tier.usd(self.kv_bytes, held)) is None else 1e6 * usd for held in HELD_S
                ),
                None if computing_usd is None else tier.equal_s(computing_usd / self.kv_bytes),
                None if next_tier is None else tier.beaten_s(next_tier),
            )
            for tier, next_tier in zip_longest(tiers, tiers[1:])
        ]

    def holding(self) -> Iterator[tuple[str, float, float]]:
        """Yield a tier (or computing again), a time, and USD of a million tokens kept so long and read once."""
        for entry in self.kept:
            for held in HOLDING_S.tolist():
                usd = entry.tier.usd(self.kv_bytes, held)
                if usd is not None:
                    yield entry.tier.name, held, 1e6 * usd
        if self.computing_usd is not None:
            for held in HOLDING_S.tolist():
                yield "computed again", held, 1e6 * self.computing_usd

    @cached_property
    def figures(self) -> Mapping[str, float | None]:
        """Every figure by its key."""
        listed, active, figures = self.listed, self.active_params, self.roofline.figures
        per_byte = figures["bf16_flop_per_byte"] or 0.0
        served = training.inference_tokens(self.tok_s, self.months)
        usual, cheaper = training.CHINCHILLA * active, training.smaller(active, served)
        ratio = figures["flop_share_ratio"] or 1.0
        computing_usd = self.computing_usd
        return {
            "long_context": listed.long_context,
            "price_kv_bytes": prices.kv_bytes_behind(active, listed.long_context, per_byte, 1.0),
            "price_kv_flop_bytes": prices.kv_bytes_behind(active, listed.long_context, per_byte),
            "kv_bytes_per_token": figures["kv_bytes_per_token"],
            "output_over_input": listed.output / listed.input,
            "flop_share_ratio": ratio,
            "long_premium": listed.long / listed.input,
            "covered_context": prices.covered_context(listed.long_context, listed.long / listed.input),
            "input_over_cached": listed.input / listed.cached,
            "computed_usd_per_million_tokens": None if computing_usd is None else 1e6 * computing_usd,
            "active_params": active,
            "served_tokens": served,
            "pretrain_flop_per_token": training.PRETRAIN * active,
            "low_rl_flop_per_token": RL[0] * active,
            "high_rl_flop_per_token": RL[1] * active,
            "inference_flop_per_token": training.INFER * active,
            "inference_flop": training.INFER * active * served,
            "chinchilla_tokens": usual,
            "overtraining": served / usual,
            "equal_pretrain_tokens": training.equal_cost_tokens(served, training.PRETRAIN, ratio),
            # rollouts are decoded, what is learned from them is computed like pre-training
            "low_equal_rl_tokens": training.equal_cost_tokens(served, RL[0] + (RL[1] - RL[0]) / ratio),
            "high_equal_rl_tokens": training.equal_cost_tokens(served, RL[0]),
            "smaller_params": cheaper.params,
            "smaller_tokens": cheaper.tokens,
            "smaller_saved_share": cheaper.saved_share,
        }
