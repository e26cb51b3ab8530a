"""What the steps of layouts are spent on, found for those that are shown: it costs far more than to price them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from cost.layouts.arrays import Array, Index, runs_of
from cost.layouts.fitting import FittingLayouts
from cost.layouts.pipelines import pipeline_seconds
from cost.terms.pipeline import BUBBLE, HOPS, bubble_seconds
from cost.terms.work import IMBALANCE


@dataclass(frozen=True, eq=False)
class StepParts:
    """What steps are spent on; every array is ``[configurations]``.

    Attributes
    ----------
    lower_step_s:
        Seconds that no schedule can beat at data-sheet peaks.
    bound_by:
        What most of the step is spent on, as an index into ``limits``.
    terms_s:
        Seconds of the step by part; they add up to ``step_s``.
    """

    lower_step_s: Array
    bound_by: Index
    limits: tuple[str, ...]
    terms_s: Mapping[str, Array]


@dataclass(frozen=True, eq=False)
class PartsOf:
    """What finds the parts of steps; ``layout`` and ``batch`` of each configuration."""

    layouts: FittingLayouts
    layout: Index
    batch: Array

    def rows(self, which: Index) -> PartsOf:
        """Those of some configurations."""
        return PartsOf(self.layouts, self.layout[which], self.batch[which])

    def __call__(self) -> StepParts:
        """Return what the step of each configuration is spent on: that of its slowest pipeline."""
        layouts = self.layouts
        pricer, pipelines, widths = layouts.pricer, layouts.pipelines, layouts.widths(self.layout, self.batch)
        of, slowest = pipelines.of(layouts.variant[self.layout])
        if len(of) > len(self.layout):  # replicas differ
            of, pipeline, step_s = pipeline_seconds(pricer, pipelines, layouts.variant[self.layout], widths)
            slowest = pipeline[runs_of(of).argmax(step_s)]
        line, rows = pipelines.rows(slowest)
        at, stages = widths.rows(line), pipelines.stages
        shape = pricer.shape(stages, rows, at)
        costs = pricer.seconds(stages, rows, shape, stages.held(pricer.deployment, rows))
        runs, times, depth = runs_of(line), pipelines.times[rows], pipelines.depth[slowest]
        # one micro-batch for each stage goes round (:mod:`cost.step.score`)
        terms = {name: runs.sum(times * seconds) for name, seconds in costs.terms_s.items()}
        limits = {name: runs.sum(times * seconds) for name, seconds in costs.limits_s.items()}
        hops_s = np.zeros(len(slowest))
        for fabric, hop_s in pipelines.hops_s(slowest, widths.batch).items():
            limits[fabric] = limits.get(fabric, 0.0) + hop_s
            hops_s = hops_s + hop_s
        if np.any(depth > 1):
            one_pass_s = runs.sum(times * costs.step_s)
            bubble_s = np.asarray(bubble_seconds(depth, runs.max(costs.step_s), one_pass_s, hops_s))
            terms |= {HOPS.name: hops_s, BUBBLE.name: bubble_s}
            limits[IMBALANCE] = bubble_s
        peak_s = runs.sum(times * costs.lower_s) + widths.batch * pipelines.peak_s[slowest]
        lower_s = np.maximum(peak_s, depth * runs.max(costs.lower_s))
        bound_by = np.argmax(list(limits.values()), axis=0) if limits else np.zeros_like(self.layout)
        return StepParts(lower_s, bound_by, tuple(limits), terms)
