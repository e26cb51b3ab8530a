"""Seconds of an engine's step by what is in it, priced once on a grid by the cost model and read off after that."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Seconds = Callable[[Array, Array, float, float], Array]
"""Seconds of steps of ``(sequences, prompt tokens, cached tokens, context)``: the first two of each attention group,
``[steps]``; tokens of each prompt that a cache already holds; mean tokens in the cache of sequences that decode.
Returned are ``[2, steps]``: all of a step, and the experts' part of it, which GPUs share."""
PRICED_TOKENS = np.array([32.0, 128.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0])
"""Prompt tokens of an attention group that steps are priced at: between them a step is a straight line."""
SEQUENCE_GROWTH = 1.4
"""Sequences of a group at one priced step over those at the one before."""
CACHED_TOKENS = 8192.0
"""Tokens in a cache at which the cost of attending to them is priced."""


@dataclass(frozen=True, eq=False)
class StepTable:
    """Steps of one engine.

    Attributes
    ----------
    groups, stages:
        Attention groups of the engine, each with sequences of its own; as many of them are in each of the batches
        that pass the stages of a pipeline one after the other.
    sequences:
        Sequences that decode in a group, rising, ``[s]``; ``decode_s``: seconds of their step with nothing in the
        cache, and ``context_s`` for each token of mean context, ``[s]``.
    tokens:
        Prompt tokens of a group, rising, ``[t]``. Seconds that they add to a step, ``[2, t]``, in one of their own
        and beside ``beside`` sequences: ``prompt_s``, ``span_s`` for each token of span, and ``expert_s``.

    Notes
    -----
    A step waits for the group with most prompt tokens, but for experts: those of all groups compute the tokens of
    each, so that they take as long as with the mean. Tokens of a prompt attend to what precedes them: a prompt of
    ``n`` tokens of which a cache holds ``c`` has a span of ``n + c``, and its others attend to half of that on
    average.
    """

    groups: int
    stages: int
    sequences: list[float]
    decode_s: list[float]
    context_s: list[float]
    tokens: list[float]
    prompt_s: list[list[float]]
    span_s: list[list[float]]
    expert_s: list[list[float]]
    beside: float

    @classmethod
    def of(
        cls,
        seconds: Seconds,
        *,
        groups: int,
        max_sequences: float,
        context: float,
        stages: int = 1,
        decodes: bool = True,
    ) -> StepTable:
        """Price steps of up to ``max_sequences`` a group with about ``context`` tokens in the cache of each.

        ``decodes``: whether the engine does; one that prefills alone has steps of prompts only.
        """
        counts = [1.0]
        while counts[-1] < max_sequences:
            counts.append(max(counts[-1] + 1, float(round(counts[-1] * SEQUENCE_GROWTH))))
        sizes, beside = np.array(counts if decodes else [1.0, 2.0]), max(2.0, counts[-1] / 2)
        decode_s = context_s = np.zeros_like(sizes)
        if decodes:
            short, long = (
                seconds(sizes, np.zeros_like(sizes), 0.0, at)[0] for at in (context, 1.5 * context)
            )
            context_s = (long - short) / (0.5 * context)
            decode_s = short - context_s * context
        prompt_s, span_s, expert_s = [], [], []
        for sequences in (0.0, beside) if decodes else (0.0,):
            batch = np.full_like(PRICED_TOKENS, sequences)
            base = seconds(batch[:1], np.zeros(1), 0.0, context) if sequences else np.zeros((2, 1))
            (prompt_alone_s, experts_s), (cached_s, _) = (
                seconds(batch, PRICED_TOKENS, cached, context) - base for cached in (0.0, CACHED_TOKENS)
            )
            slope = (cached_s - prompt_alone_s) / (2 * CACHED_TOKENS)
            prompt_s.append((prompt_alone_s - experts_s - slope * PRICED_TOKENS).tolist())
            span_s.append(slope.tolist())
            expert_s.append(experts_s.tolist())
        return cls(
            groups,
            stages,
            sizes.tolist(),
            decode_s.tolist(),
            context_s.tolist(),
            PRICED_TOKENS.tolist(),
            [prompt_s[0], prompt_s[-1]],
            [span_s[0], span_s[-1]],
            [expert_s[0], expert_s[-1]],
            beside,
        )

    def decode(self, sequences: float, context: float) -> float:
        """Return the seconds of a step of ``sequences`` of the engine with ``context`` tokens each on average."""
        group_size = max(sequences / self.groups, 1.0)
        knots, seconds, slopes = self.sequences, self.decode_s, self.context_s
        at = min(max(bisect_right(knots, group_size), 1), len(knots) - 1)
        share = (group_size - knots[at - 1]) / (knots[at] - knots[at - 1])
        below, above = seconds[at - 1] + slopes[at - 1] * context, seconds[at] + slopes[at] * context
        return below + share * (above - below)

    def prompts_of(self, tokens: list[float], spans: list[float], sequences: float, *, others: bool) -> float:
        """Return the seconds that prompts of all attention groups add to a step.

        Parameters
        ----------
        tokens, spans:
            Of each group, and the sum of the spans of its tokens, ``[groups]``.
        sequences:
            As of :meth:`prompts`.
        others:
            Whether the engine has more to do.

        Notes
        -----
        Batches of a pipeline share its stages and do not wait for each other: what one adds is spread over them.
        Where there is nothing else to do, the step lasts until the longest has passed all stages.
        """
        if self.stages == 1:
            return self._batch(tokens, spans, sequences)
        size = self.groups // self.stages
        starts = range(0, self.groups, size)
        added = [self._batch(tokens[at : at + size], spans[at : at + size], sequences) for at in starts]
        return sum(added) / self.stages if others else max(added)

    def _batch(self, tokens: list[float], spans: list[float], sequences: float) -> float:
        busiest = max(tokens)
        if not busiest:
            return 0.0
        span = spans[tokens.index(busiest)] / busiest
        return self.prompts(busiest, span, sum(tokens) / len(tokens), sequences)

    def prompts(self, tokens: float, span: float, mean: float, sequences: float) -> float:
        """Return the seconds that prompts add to a step.

        Parameters
        ----------
        tokens, span:
            Of the busiest group, and the mean span of its tokens.
        mean:
            Tokens of a group on average.
        sequences:
            Sequences of the engine that decode in the step; 0: it is the whole step.
        """
        knots = self.tokens
        at = min(max(bisect_right(knots, tokens), 1), len(knots) - 1)
        share = (tokens - knots[at - 1]) / (knots[at] - knots[at - 1])
        of = min(max(bisect_right(knots, mean), 1), len(knots) - 1)
        part = (mean - knots[of - 1]) / (knots[of] - knots[of - 1])

        def read(row: int) -> float:
            seconds, slopes, experts = self.prompt_s[row], self.span_s[row], self.expert_s[row]
            below, above = seconds[at - 1] + slopes[at - 1] * span, seconds[at] + slopes[at] * span
            routed = experts[of - 1] + part * (experts[of] - experts[of - 1])
            return max(below + share * (above - below), 0.0) + max(routed, 0.0)

        alone = read(0)
        if not sequences:
            return alone
        weight = min(1.0, sequences / self.groups / self.beside)
        return alone + weight * (read(1) - alone)
