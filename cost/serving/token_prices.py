"""What a token costs by its kind: computed prompts, prompts from a cache, answers; from the GPU time of each."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cost.inputs.workload import NO_CHUNK, Workload
from cost.layouts import Sweep
from cost.layouts.parts import PartsOf
from cost.money.bill import Bill
from cost.serving.lengths import Lengths
from cost.serving.pools import RateMatch
from cost.serving.serving import Serving

Array = NDArray[np.float64]
Terms = Callable[[Workload, Array], Mapping[str, Array]]
"""Seconds of each part of steps of a workload at batches (sequences per GPU), ``[batches]``."""


def terms_of(swept: Sweep, at: int) -> Terms:
    """Return what prices steps of a configuration's layout."""
    layout = int(swept.parts_of.layout[at])

    def terms(work: Workload, batch: Array) -> Mapping[str, Array]:
        under = swept.parts_of.layouts.under(replace(swept.deployment, workload=work))
        return PartsOf(under, np.full(len(batch), layout), batch)().terms_s

    return terms


@dataclass(frozen=True)
class TokenPrices:
    """USD for a million tokens of each kind; None: there are none, or there is no price.

    ``input``: of prompts that are computed; ``cached``: of prompts, read from a cache; ``output``: of answers.
    """

    input: float | None = None
    cached: float | None = None
    output: float | None = None


@dataclass(frozen=True)
class TokenShares:
    """Parts of the GPU time of whole requests, which add up to 1.

    Attributes
    ----------
    input, cached:
        Computing new tokens of prompts, and what cached ones before them add: new ones attend to them.
    output:
        Decoding answers, which reads the caches of prompts too.
    """

    input: float
    cached: float
    output: float

    @classmethod
    def mean(cls, parts: Sequence[tuple[float, TokenShares]]) -> TokenShares:
        """Return those of several kinds of units together, each with how many it is of."""
        whole = math.fsum(units for units, _ in parts)

        def share(kind: str) -> float:
            return math.fsum(units * getattr(shares, kind) for units, shares in parts) / whole

        return cls(share("input"), share("cached"), share("output"))

    def prices(self, bill: Bill, tok_s: float, lengths: Lengths) -> TokenPrices:
        """Return what tokens cost where ``tok_s`` of answers are served: together the bill, memory of caches too.

        That memory is paid for by the tokens that come from it.
        """
        if bill.usd_per_hour is None:
            return TokenPrices()
        memory_usd = bill.memory_usd_per_hour if lengths.prefix_hit else 0.0
        requests = 3600 * tok_s / lengths.mean_osl / 1e6  # millions an hour
        gpu_usd, cached = bill.usd_per_hour - memory_usd, lengths.mean_isl * lengths.prefix_hit
        return TokenPrices(
            input=gpu_usd * self.input / (requests * (lengths.mean_isl - cached)),
            cached=(gpu_usd * self.cached + memory_usd) / (requests * cached) if cached else None,
            output=gpu_usd * self.output / (requests * lengths.mean_osl),
        )


def token_shares(serving: Serving, row: RateMatch) -> TokenShares:
    """Return what the GPU time of a match goes to; idle time as the rest of its pool.

    Of one pool the prompts' part of a request's cycle (:class:`cost.serving.one_pool.Stays`): work times rate is the
    time that there is. Of two, the GPUs of each.
    """
    lengths = serving.lengths
    role, swept, at, _ = serving.sides(row)[0]
    price, work, tp = terms_of(swept, at), swept.deployment.workload, int(swept.tp[at])

    def seconds(work: Workload, batch: float) -> float:
        return math.fsum(float(part[0]) for part in price(work, np.array([batch])).values())

    if role == "both":
        decode_s = seconds(replace(work, prompt_chunk=NO_CHUNK), row.step_batch)
        prompts = 1 - decode_s / seconds(replace(work, prompt_share=1.0), row.step_batch)
    else:
        prompts = row.prefill_gpus / row.gpus_used

    def prompt_s(tokens: float, hit: float) -> float:
        alone = replace(work, phase="prefill", context=round(tokens), prefix_hit=hit, prompt=0.0, answer=0.0)
        return seconds(replace(alone, draft_tokens=0, accept_length=1.0), 1 / tp)

    fresh = lengths.mean_isl * (1 - lengths.prefix_hit)
    new = min(1.0, prompt_s(max(1.0, fresh), 0.0) / prompt_s(lengths.mean_isl, lengths.prefix_hit))
    return TokenShares(prompts * new, prompts * (1 - new), 1 - prompts)
