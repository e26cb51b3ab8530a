"""Pipelines of their stages and hops: how long a step takes of many at once, and what it is spent on of some."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cost.layouts.candidates import LayoutTable
from cost.layouts.result import StepParts
from cost.layouts.stages import Columns, Pipelines, Pricer
from cost.layouts.units import Widths, stage_seconds
from cost.terms.pipeline import BUBBLE, HOPS, bubble_seconds
from cost.terms.work import IMBALANCE

Array = NDArray[np.float64]
Index = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Runs:
    """Where runs of equal keys start in an array of ``rows`` rows."""

    start: NDArray[np.int64]
    rows: int

    def __len__(self) -> int:
        return len(self.start)

    def sum(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sum of each run."""
        return values if len(self) == self.rows else np.add.reduceat(values, self.start)

    def max(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Largest of each run."""
        return values if len(self) == self.rows else np.maximum.reduceat(values, self.start)

    def min(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Smallest of each run."""
        return values if len(self) == self.rows else np.minimum.reduceat(values, self.start)

    def argmax(self, values: NDArray[np.float64]) -> NDArray[np.int64]:
        """Row of the (first) largest of each run."""
        if len(self) == self.rows:
            return self.start
        run = np.zeros(self.rows, dtype=np.int64)
        run[self.start[1:]] = 1
        run = np.cumsum(run)
        largest = np.flatnonzero(values == self.max(values)[run])
        return largest[np.unique(run[largest], return_index=True)[1]]


def runs_of(*keys: Index | Array) -> Runs:
    """Return the runs of rows in which all ``keys`` stay the same."""
    rows = len(keys[0])
    new = np.zeros(rows, dtype=bool)
    new[:1] = True
    for key in keys:
        new[1:] |= key[1:] != key[:-1]
    return Runs(np.flatnonzero(new), rows)


def pipeline_seconds(
    pricer: Pricer, pipelines: Pipelines, variants: Index, asked: Widths
) -> tuple[Index, Index, Array]:
    """Return the seconds of a step of every pipeline of some configurations.

    ``variants``: the variant of each configuration.

    Returns
    -------
    Of which configuration each pipeline is, growing; which of ``pipelines``; and its seconds.
    """
    of, pipeline = pipelines.of(variants)
    line, rows = pipelines.rows(pipeline)
    stages, places = pipelines.stages, np.arange(len(rows))
    # of equal stages the first alone is priced
    lead = places - (rows - pipelines.lead[rows])
    first = lead == places
    seconds = stage_seconds(pricer, stages, rows[first], of[line[first]], asked)
    if len(seconds) < len(rows):
        seconds = seconds[(np.cumsum(first) - 1)[lead]]
    runs = runs_of(line)
    one_pass_s, slowest_s = runs.sum(stages.times[rows] * seconds), runs.max(seconds)
    hops_s = np.zeros(len(pipeline))
    for hop_s in _hop_seconds(pipelines, pipeline, asked.batch[of]).values():
        hops_s = hops_s + hop_s
    # with the bubble of :func:`cost.terms.pipeline.bubble_seconds`; of equal pipelines none is slower by rounding
    return of, pipeline, np.maximum(one_pass_s + hops_s, pipelines.depth[pipeline] * slowest_s)


def _hop_seconds(pipelines: Pipelines, pipeline: Index, batch: Array) -> dict[str, Array]:
    """Seconds of all hops by fabric, ``batch`` sequences per GPU in flight."""
    hops = pipelines.hops
    return {
        fabric: fixed[pipeline] + batch * hops.slope[fabric][pipeline] for fabric, fixed in hops.fixed.items()
    }


@dataclass(frozen=True, eq=False)
class Details:
    """What the steps of priced configurations are spent on, found for those that are asked for.

    ``layout`` and ``batch`` of each configuration; ``imbalance`` as in :func:`cost.layouts.sweep`.
    """

    pricer: Pricer
    table: LayoutTable
    pipelines: Pipelines
    layout: Index
    batch: Array
    imbalance: float | None

    def __call__(self, which: Index) -> StepParts:
        """Return those of the configurations ``which``: of the slowest pipeline of each."""
        layout, batch, table = self.layout[which], self.batch[which], self.table
        asked = Widths(table.tp[layout], table.moe_tp[layout], batch, self.imbalance)
        of, pipeline, step_s = pipeline_seconds(self.pricer, self.pipelines, table.variant[layout], asked)
        slowest = pipeline[runs_of(of).argmax(step_s)]
        line, rows = self.pipelines.rows(slowest)
        stages = self.pipelines.stages
        shape = self.pricer.shape(
            stages,
            rows,
            tp=asked.tp[line],
            moe_tp=asked.moe_tp[line],
            batch=batch[line],
            imbalance=self.imbalance,
        )
        seconds = self.pricer.seconds(stages, rows, shape, stages.held(self.pricer.deployment, rows))
        found = _lines(seconds, runs_of(line), stages.times[rows], self.pipelines, slowest, batch)
        limits = found.named("limit")
        by = list(limits.values())
        return StepParts(
            found["lower_s"],
            np.argmax(by, axis=0) if by else np.zeros(len(which), dtype=np.int64),
            tuple(limits),
            found.named("term"),
        )


def _lines(
    seconds: Columns, runs: Runs, times: Array, pipelines: Pipelines, pipeline: Index, batch: Array
) -> Columns:
    """Pipelines of their stages and hops (:mod:`cost.score`: one micro-batch for each stage goes round)."""
    depth = pipelines.depth[pipeline]
    found = {key: runs.sum(times * value) for key, value in seconds.table.items()}
    none = np.zeros(len(pipeline))
    one_pass_s, hops_s = found.get(("step_s", ""), none), none
    for fabric, hop_s in _hop_seconds(pipelines, pipeline, batch).items():
        found["limit", fabric] = found.get(("limit", fabric), 0.0) + hop_s
        hops_s = hops_s + hop_s
    bubble_s = np.asarray(bubble_seconds(depth, runs.max(seconds["step_s"]), one_pass_s, hops_s))
    if np.any(depth > 1):
        found |= {
            ("term", HOPS.name): hops_s,
            ("term", BUBBLE.name): bubble_s,
            ("limit", IMBALANCE): bubble_s,
        }
    peak_s = found.get(("lower_s", ""), none) + batch * pipelines.hops.peak[pipeline]
    found["lower_s", ""] = np.maximum(peak_s, depth * runs.max(seconds["lower_s"]))
    return Columns(len(pipeline), found)
