"""What was found out about a plan: how it fares under each load, after one failure, and with more or fewer copies."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated

import numpy as np
from pydantic import Field

from placement.options import Objective, PlanOptions, Spread
from topology.base.shown import Shown
from topology.base.units import added

Count = Annotated[int, Field(ge=0)]
AtLeastOne = Annotated[int, Field(ge=1)]
Fraction = Annotated[float, Field(ge=0.0, le=1.0 + 1e-9)]
NotNegative = Annotated[float, Field(ge=0.0)]
"""Ranges of figures: plain numbers in the code, held when a file is read."""


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
    bytes_per_step: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class FrontPoint:
    """The fewest domains a token that were found within a balance slack.

    Attributes
    ----------
    slack:
        How far loads may be above even, as a fraction; null: any.
    balancedness, domains_per_token, step_s:
        Mean over max GPU load, domains that a token needs, and the step.
    """

    slack: NotNegative | None
    balancedness: Fraction
    domains_per_token: NotNegative
    step_s: NotNegative


@dataclass(frozen=True)
class TrafficReport:
    """Placements compared by the step that they are predicted to take, as tokens choose experts together.

    Attributes
    ----------
    known:
        What says which experts tokens choose together, in words.
    traces:
        Names of the routing traces that say it; empty: it is the model's limit on groups.
    chosen:
        Name of the row that was taken; rows begin with balance alone.
    slack:
        How far loads may be above even, as a fraction, for fewer domains a token.
    front:
        Balance against domains a token, where asked for; else empty.
    """

    known: str
    traces: tuple[str, ...]
    chosen: str
    slack: NotNegative
    rows: tuple[TrafficRow, ...]
    front: tuple[FrontPoint, ...] = ()

    @property
    def before(self) -> TrafficRow:
        """Balance alone."""
        return self.rows[0]

    @property
    def after(self) -> TrafficRow:
        """What was taken."""
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


@dataclass(frozen=True)
class ScenarioReport:
    """The rows of all scenarios, in the order given, and their means.

    ``groups``: of alike scenarios, where each has one vote in the search; None where each scenario has one.
    """

    objective: Objective
    rows: tuple[ScenarioRow, ...]
    groups: int | None = None

    @property
    def votes(self) -> str:
        """Who has a vote in the search, in words."""
        if self.groups is None:
            return "each with one vote"
        return f"{self.groups} group{'s' * (self.groups != 1)} of alike ones with one vote each"

    @property
    def in_sample(self) -> float:
        """Mean over scenarios of balancedness under the placement."""
        return float(np.mean([row.in_sample for row in self.rows]))

    @property
    def left_out(self) -> float | None:
        """Mean over scenarios of balancedness when planned without the scenario; None for a single one."""
        values = [row.left_out for row in self.rows if row.left_out is not None]
        return float(np.mean(values)) if values else None

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
    left = "-" if left_out is None else f"{left_out:.3f}"
    return f"{name:{width + 2}}{in_sample:9.3f}{left:>10}"


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
    """An expert that one failure would kill.

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
    """What is left after each loss that was tried, in the order of the cluster; see :class:`WhatIf`.

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
        The same of each one tried; empty in plans of before.
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
    each: Losses = Losses()


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


@dataclass(frozen=True, repr=False)
class Failures(Shown):
    """What one failure would do to a plan.

    ``layers`` and ``experts`` are of the failure domain ``spread``; ``experts`` are those that take most tokens.
    ``copies`` is None where each GPU is a failure domain: no GPU has two copies of an expert.
    """

    spread: Spread
    layers: tuple[LayerAtRisk, ...]
    experts: tuple[AtRisk, ...]
    what_if: tuple[WhatIf, ...]
    copies: SpreadCounts | None = None

    def brief(self) -> str:
        """Return what may fail, and in how many layers an expert has all copies there."""
        return f"of one {self.spread}: {len(self.layers)} layers with an expert at risk"

    @property
    def experts_at_risk(self) -> int:
        """Experts with all copies in one failure domain, summed over layers."""
        return sum(row.experts for row in self.layers)

    @property
    def share_at_risk(self) -> float:
        """Fraction of the tokens that go to them, mean over layers."""
        return added(row.share for row in self.layers) / max(1, len(self.layers))


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
    batch: AtLeastOne
    max_batch: AtLeastOne
    tok_s_per_gpu: NotNegative
    tpot_s: NotNegative
    expert_bytes: NotNegative


@dataclass(frozen=True)
class RedundancyCurve:
    """Throughput against copies, of one layout.

    Attributes
    ----------
    points:
        By rising number of copies; those that fit in HBM and meet the time per token.
    ep, tp, stages:
        The layout.
    interrupted:
        Whether Ctrl-C ended it: the points are those so far.
    """

    points: tuple[RedundancyPoint, ...]
    ep: int
    tp: int
    stages: int
    interrupted: bool = False

    @property
    def best(self) -> RedundancyPoint:
        """The most throughput; of equals the fewest copies."""
        return max(self.points, key=lambda point: (point.tok_s_per_gpu, -point.redundant))

    @property
    def knee(self) -> RedundancyPoint:
        """The fewest copies within :data:`ALIKE_COPIES` of the best."""
        enough = (1 - ALIKE_COPIES) * self.best.tok_s_per_gpu
        return next(point for point in self.points if point.tok_s_per_gpu >= enough)

    def asked(self, options: PlanOptions) -> PlanOptions:
        """Return ``options`` with the best number of copies, on the layout that it was found for."""
        return replace(options, redundant=self.best.redundant, ep=self.ep, tp=self.tp, stages=self.stages)
