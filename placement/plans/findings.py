"""Findings on a plan: each load, one failure, and more or fewer copies.

Each class is its part of a plan file, too: pydantic reads and writes it there. Figures that follow from others are
computed again.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from placement.options import Objective, PlanOptions, Spread
from topology.base.shown import Shown
from topology.base.units import added

Count = Annotated[int, Field(ge=0, strict=True)]
AtLeastOne = Annotated[int, Field(ge=1, strict=True)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0.0, strict=True, allow_inf_nan=False)]
Fraction = Annotated[float, Field(ge=0.0, le=1.0 + 1e-9, strict=True, allow_inf_nan=False)]
"""Ranges of figures: plain numbers in the code, held when a file is read."""
LEFT_OUT: Any = None
"""Default of what a file may leave out, since it follows from the rest."""


def absent(value: object) -> bool:
    """Whether a file goes without a value."""
    return value is None


def derived(result: object, **values: object) -> None:
    """Set the fields of a frozen dataclass that follow from its others."""
    for name, value in values.items():
        object.__setattr__(result, name, value)


@dataclass(frozen=True)
class TrafficRow:
    """A placement of the same layout: its step, its balance, and where its tokens go, means over MoE layers.

    Attributes
    ----------
    placement:
        Its name.
    step_s, balancedness:
        The step, and mean over max GPU load.
    domains_per_token, nodes_per_token, gpus_per_token:
        How many of each a token needs.
    bytes_per_step:
        What all GPUs send in a step over each fabric.
    """

    placement: str
    step_s: NotNegative
    balancedness: Fraction
    domains_per_token: NotNegative = 0.0
    nodes_per_token: NotNegative = 0.0
    gpus_per_token: NotNegative = 0.0
    bytes_per_step: dict[str, Number] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class TrafficReport:
    """Placements compared by the step that they are predicted to take, as tokens choose experts together.

    Attributes
    ----------
    known:
        What says which experts tokens choose together, in words.
    traces:
        Names of the routing traces that say it; empty: it is the model's limit on groups.
    chosen:
        Name of the row that was taken.
    slack:
        How far loads may be above even, as a fraction, for fewer domains a token.
    rows:
        A row for each placement, balance alone first.
    """

    known: str
    traces: tuple[str, ...] = ()
    chosen: str
    slack: NotNegative
    rows: Annotated[tuple[TrafficRow, ...], Field(min_length=1)]

    @property
    def before(self) -> TrafficRow:
        """Balance alone."""
        return self.rows[0]

    @property
    def after(self) -> TrafficRow:
        """The chosen placement."""
        return next(row for row in self.rows if row.placement == self.chosen)


@dataclass(frozen=True)
class ScenarioRow:
    """One scenario: balancedness (mean over largest GPU load), averaged over layers.

    Attributes
    ----------
    name:
        Of the scenario.
    in_sample:
        Under the placement itself.
    left_out:
        Under one planned the fast way on the other scenarios; null where there is no other.
    worst_layer:
        The smallest in-sample one of a layer.
    """

    name: str
    in_sample: Fraction
    left_out: Fraction | None
    worst_layer: Fraction


@dataclass(frozen=True, kw_only=True)
class ScenarioReport:
    """Balancedness under each load, in sample and left out.

    Attributes
    ----------
    objective:
        What the search took over the loads.
    groups:
        Groups of similar loads with one vote each.
    in_sample:
        Mean over scenarios of balancedness under the placement.
    left_out:
        Mean over scenarios of balancedness when planned without the scenario; null for a single one.
    rows:
        A row for each load, in the order given.
    """

    objective: Objective
    groups: AtLeastOne
    in_sample: float = LEFT_OUT
    left_out: float | None = LEFT_OUT
    rows: Annotated[tuple[ScenarioRow, ...], Field(min_length=1)]

    def __post_init__(self) -> None:
        held_out = [row.left_out for row in self.rows if row.left_out is not None]
        derived(
            self,
            in_sample=float(np.mean([row.in_sample for row in self.rows])),
            left_out=float(np.mean(held_out)) if held_out else None,
        )

    @property
    def votes(self) -> str:
        """Votes in the search, in words."""
        return f"{self.groups} group{'s' * (self.groups != 1)} of similar ones, one vote each"

    def lines(self) -> list[str]:
        """Return the table of the summary: a head, a line a scenario, the mean."""
        width = max(len("scenario"), *(len(row.name) for row in self.rows))
        lines = [f"{'scenario':{width + 2}}in-sample  left out  worst layer"]
        lines += [
            _line(row.name, width, row.in_sample, row.left_out) + f"{row.worst_layer:13.3f}"
            for row in self.rows
        ]
        if len(self.rows) > 1:
            lines.append(_line("mean", width, self.in_sample, self.left_out))
        return lines


def _line(name: str, width: int, in_sample: float, left_out: float | None) -> str:
    held_out = "-" if left_out is None else f"{left_out:.3f}"
    return f"{name:{width + 2}}{in_sample:9.3f}{held_out:>10}"


@dataclass(frozen=True)
class LayerAtRisk:
    """One layer's experts that have all their copies in one failure domain.

    Attributes
    ----------
    layer, experts:
        Which, and how many.
    share:
        Fraction of the layer's tokens that they take.
    worst, worst_experts, worst_share:
        The failure domain whose loss takes most tokens, and what it takes.
    """

    layer: Count
    experts: Count
    share: Fraction
    worst: str
    worst_experts: Count
    worst_share: Fraction


@dataclass(frozen=True)
class AtRisk:
    """An expert that one failure would lose.

    Attributes
    ----------
    layer, expert, copies:
        Which, and how many copies it has.
    share:
        Fraction of its layer's tokens that it takes.
    domain:
        The failure domain that has them all.
    """

    layer: Count
    expert: Count
    copies: AtLeastOne
    share: Fraction
    domain: str


@dataclass(frozen=True)
class Losses:
    """Results after each tested failure, in cluster order; see :class:`WhatIf`.

    Attributes
    ----------
    names:
        What was lost.
    tok_s_per_gpu, balancedness:
        What the rest gives, and its mean over max GPU load.
    tokens_lost:
        Fraction of the tokens whose expert has no copy left.
    """

    names: tuple[str, ...] = ()
    tok_s_per_gpu: tuple[NotNegative, ...] = ()
    balancedness: tuple[Fraction, ...] = ()
    tokens_lost: tuple[Fraction, ...] = ()


def _empty(losses: Losses) -> bool:
    return not losses.names


@dataclass(frozen=True)
class WhatIf:
    """The plan after any one GPU, node or rack is lost: the mean and the worst over the choices.

    Attributes
    ----------
    unit:
        ``gpu``, ``node`` or ``rack``.
    choices, tried:
        How many there are in use, and how many were tried, evenly spaced.
    balancedness_mean, balancedness_worst:
        Mean over max load of the GPUs left that serve the same layers, mean over layers and scenarios; experts
        keep the copies that are left.
    tok_s_per_gpu_mean, tok_s_per_gpu_worst:
        Throughput over all GPUs given, lost ones too, at the plan's batch or the largest that still fits.
    tokens_lost_mean, tokens_lost_most:
        Fraction of the tokens whose expert has no copy left (they are dropped), mean over layers of the replica.
    experts_lost_most:
        Experts without a copy, summed over layers, in the case that loses most.
    worst:
        What has the least throughput when lost.
    each:
        The same of each one tried; absent in plans of before.
    """

    unit: Spread
    choices: AtLeastOne
    tried: AtLeastOne
    balancedness_mean: Fraction
    balancedness_worst: Fraction
    tok_s_per_gpu_mean: NotNegative
    tok_s_per_gpu_worst: NotNegative
    tokens_lost_mean: Fraction
    tokens_lost_most: Fraction
    experts_lost_most: Count
    worst: str
    each: Annotated[Losses, Field(exclude_if=_empty)] = Losses()


@dataclass(frozen=True)
class SpreadCounts:
    """How far copies are in different failure domains, summed over layers.

    Attributes
    ----------
    experts:
        All of them.
    apart, together, single:
        With copies in two failure domains or more, with several copies in one, and with one copy.
    missing:
        Why not all are apart, and what it takes; empty where all are.
    """

    experts: Count
    apart: Count
    together: Count
    single: Count
    missing: str


@dataclass(frozen=True, repr=False, kw_only=True)
class Failures(Shown):
    """Effect of one failure on a plan.

    Attributes
    ----------
    spread:
        The failure domain of ``layers`` and ``experts``.
    experts_at_risk:
        Experts with all copies in one failure domain, summed over layers.
    share_at_risk:
        Fraction of the tokens that go to them, mean over layers.
    what_if:
        After any one GPU, node or rack is lost.
    experts:
        Those at risk that take most tokens.
    layers:
        Layers with an expert at risk.
    copies:
        How far the copies are in different nodes or racks; absent where each GPU is a failure domain: no GPU has two
        copies of an expert.
    """

    spread: Spread
    experts_at_risk: int = LEFT_OUT
    share_at_risk: float = LEFT_OUT
    what_if: tuple[WhatIf, ...]
    experts: tuple[AtRisk, ...]
    layers: tuple[LayerAtRisk, ...]
    copies: Annotated[SpreadCounts | None, Field(exclude_if=absent)] = None

    def __post_init__(self) -> None:
        derived(
            self,
            experts_at_risk=sum(row.experts for row in self.layers),
            share_at_risk=added(row.share for row in self.layers) / max(1, len(self.layers)),
        )

    def brief(self) -> str:
        """Return what may fail, and in how many layers an expert has all copies there."""
        return f"of one {self.spread}: {len(self.layers)} layers with an expert at risk"


ALIKE_COPIES = 0.01
"""The knee is the fewest copies whose throughput is within this fraction of the best."""


@dataclass(frozen=True)
class RedundancyPoint:
    """One number of copies.

    Attributes
    ----------
    redundant:
        Copies per layer above one of each expert.
    slots_per_gpu:
        Slots of the fullest GPU.
    balancedness:
        Mean over max GPU load, mean over layers and loads, under the split that will run.
    batch, max_batch:
        Sequences per GPU scored, and the most that fit.
    tok_s_per_gpu, tpot_s:
        Score at ``batch``, as in :class:`cost.step.score.Score`.
    expert_bytes:
        Weights of the experts on the fullest GPU.
    """

    redundant: Count
    slots_per_gpu: AtLeastOne
    balancedness: Fraction
    batch: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    max_batch: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    tok_s_per_gpu: NotNegative
    tpot_s: NotNegative
    expert_bytes: NotNegative


@dataclass(frozen=True)
class CurveLayout:
    """The layout of a curve.

    Attributes
    ----------
    ep, tp, stages:
        GPUs of an expert group, tensor-parallel width, pipeline stages.
    """

    ep: AtLeastOne
    tp: AtLeastOne
    stages: AtLeastOne


@dataclass(frozen=True, kw_only=True)
class RedundancyCurve:
    """Throughput against copies.

    Attributes
    ----------
    layout:
        The layout that all points have.
    chosen, knee:
        Copies above one of each expert of the point that was taken, and the fewest that are nearly as good.
    points:
        By rising number of copies; those that fit in HBM and meet the time per token.
    """

    layout: CurveLayout
    chosen: int = LEFT_OUT
    knee: int = LEFT_OUT
    points: Annotated[tuple[RedundancyPoint, ...], Field(min_length=1)]

    def __post_init__(self) -> None:
        derived(self, chosen=self.best.redundant, knee=self.knee_point.redundant)

    @property
    def best(self) -> RedundancyPoint:
        """The most throughput; of equals the fewest copies."""
        return max(self.points, key=lambda point: (point.tok_s_per_gpu, -point.redundant))

    @property
    def knee_point(self) -> RedundancyPoint:
        """The fewest copies within :data:`ALIKE_COPIES` of the best."""
        enough = (1 - ALIKE_COPIES) * self.best.tok_s_per_gpu
        return next(point for point in self.points if point.tok_s_per_gpu >= enough)

    def on_layout(self, options: PlanOptions) -> PlanOptions:
        """Return ``options`` with the best number of copies, on the layout that it was found for."""
        layout = self.layout
        return replace(options, redundant=self.chosen, ep=layout.ep, tp=layout.tp, stages=layout.stages)
