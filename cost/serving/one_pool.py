"""One pool for both phases: prompts of the next requests are prefilled between the decode steps of the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from cost.inputs.workload import Workload
from cost.layouts import Sweep
from cost.layouts.arrays import Array, Index
from cost.layouts.fitting import FittingLayouts
from cost.serving.pools import RateMatches
from cost.serving.steady_state import held_batch


@dataclass(frozen=True, eq=False)
class Stays:
    """How long requests stay in each configuration of one pool.

    Attributes
    ----------
    both, whole:
        Sweep of a workload of both phases; its layouts where steps bear all prompts.
    longest_s:
        Prefill of the longest prompt alone, ``[configurations]``.
    """

    both: Sweep
    whole: FittingLayouts
    longest_s: Array

    @classmethod
    def of(cls, swept: Sweep, prompts: Sequence[tuple[float, Workload]], load_s: float = 0.0) -> Stays:
        """Return them for ``prompts``: prefill of each length of prompts with its share of the requests.

        ``load_s``: of their caches from slower memory.
        """
        deployment, work = swept.deployment, swept.deployment.workload
        layouts, layout = swept.parts_of.layouts, swept.parts_of.layout
        used, place = np.unique(layout, return_inverse=True)

        def under(workload: Workload) -> FittingLayouts:
            return layouts.under(replace(deployment, workload=workload))

        alone = [under(workload).price(used, 1 / layouts.tp[used]).step_s[place] for _, workload in prompts]
        return cls(swept, under(replace(work, prompt_share=1.0)), np.max(alone, axis=0) + load_s)

    @property
    def steps(self) -> float:
        """Decode steps of a request."""
        work = self.both.deployment.workload
        return work.answer / work.accept_length

    def seconds(self, rows: Index, batch: Array) -> Array:
        """Return how long each request stays in configurations ``rows`` at batches: its cycle."""
        return self.steps * self.whole.price(self.both.parts_of.layout[rows], batch).step_s

    def matches(self) -> RateMatches:
        """Return what each configuration serves.

        Notes
        -----
        Requests per second are the sequences over the seconds of a cycle, as of
        :func:`cost.serving.steady_state.aggregated`, by which measured runs are predicted.
        """
        swept, work = self.both, self.both.deployment.workload
        stays_s = self.seconds(np.arange(len(swept)), swept.batch)
        first_s: Array = swept.step_s + self.longest_s
        zeros = np.zeros(len(swept), dtype=np.int64)
        return RateMatches(
            isl=work.prompt,
            osl=work.answer,
            gpus=len(swept.deployment.cluster.gpus),
            prefill=zeros - 1,
            decode=np.arange(len(swept)),
            prefill_workers=zeros,
            decode_workers=swept.replicas,
            requests_per_s=swept.tok_s / work.answer * (self.steps * swept.step_s / stays_s),
            tok_s_per_user=swept.tok_s_per_user,
            step_batch=swept.batch,
            prefill_s=first_s,
            transfer_s=np.zeros(len(swept)),
            prefill_gpus=zeros,
            decode_gpus=swept.replicas * swept.gpus,
            cache_bytes=0.0,
            path=None,
            fastest_ttft_s=float(np.min(first_s, initial=np.inf)),
        )

    def at_rate(self, rows: Index, requests_per_s: Array) -> tuple[tuple[Array, Array], Array]:
        """Return batches and their steps where so many requests are served, and the time to the first token."""
        swept = self.both
        layouts, layout = swept.parts_of.layouts, swept.parts_of.layout[rows]

        per_s = requests_per_s / (swept.replicas[rows] * swept.gpus[rows])
        batch = held_batch(per_s, lambda batch: self.seconds(rows, batch), swept.max_batch[rows])
        step_s = layouts.price(layout, batch).step_s
        return (batch, step_s), step_s + self.longest_s[rows]
