"""The plan: what goes where, what it costs, how good it is, and everything needed to score it again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from cost.expert_use import expert_use
from cost.score import LayoutScorer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cost.assignment import Assignment
    from cost.expert_use import ExpertUse
    from cost.layout import Layout
    from cost.loads import ExpertLoads
    from cost.score import Score
    from cost.setting import Setting

__all__ = [
    "BaselineScore",
    "Plan",
    "Proof",
    "moe_rows",
    "placement_balancedness",
    "placement_scorer",
    "score_placement",
    "stage_loads",
]


@dataclass(frozen=True)
class Proof:
    """What is proven of the experts' placement.

    ``objective`` is the mean over layers of largest over mean GPU load, ``bound`` what no placement of these
    copies on these GPUs can be below, ``gap`` the fraction of the objective between the two.
    """

    status: str
    objective: float
    bound: float
    gap: float


@dataclass(frozen=True, eq=False)
class BaselineScore:
    """A rival's placement under the same layout and batch, or why its policy does not apply."""

    reason: str = ""
    balancedness: Mapping[int, float] = field(default_factory=dict)
    score: Score | None = None


@dataclass(frozen=True, eq=False)
class Plan:
    """A complete plan.

    Attributes
    ----------
    experts:
        For each stage, the assignment of its MoE layers (None where it has none); replicas are alike.
    loads:
        The loads it was made for; None for a model without experts.
    balancedness:
        Mean over max GPU load by absolute layer id, the mean over scenarios.
    notes:
        What a summary repeats: what was assumed, dropped or run.
    options:
        What the planner was asked besides, as JSON-able values.
    """

    setting: Setting
    layout: Layout
    experts: tuple[Assignment | None, ...]
    loads: ExpertLoads | None
    score: Score
    balancedness: Mapping[int, float]
    proof: Proof
    baselines: Mapping[str, BaselineScore] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    options: Mapping[str, object] = field(default_factory=dict)
    interrupted: bool = False


def moe_rows(setting: Setting, layers: range) -> list[int]:
    """Rows of the loads that belong to ``layers``: positions among the model's MoE layers."""
    return [row for row, layer in enumerate(setting.model.moe_layers) if layer in layers]


def stage_loads(setting: Setting, loads: ExpertLoads, layers: range) -> ExpertLoads:
    """The part of the loads that belongs to one stage."""
    from dataclasses import replace

    return replace(loads, tokens=loads.tokens[:, moe_rows(setting, layers)])


def placement_scorer(
    setting: Setting, layout: Layout, experts: Sequence[Assignment | None], loads: ExpertLoads | None
) -> LayoutScorer:
    """Return what scores a placement at any batch: ours, a rival's, one made by hand.

    Raises
    ------
    InputError
        If the loads do not fit the model.
    """
    uses: list[ExpertUse | None] = []
    moe = setting.model.moe
    for stage, assignment in zip(layout.replicas[0], experts, strict=True):
        if assignment is None or loads is None or moe is None:
            uses.append(None)
        else:
            uses.append(expert_use(assignment, stage_loads(setting, loads, stage.layers), moe.top_k))
    synthetic = loads is not None and loads.synthetic
    return LayoutScorer(setting, layout, [uses] * len(layout.replicas), synthetic=synthetic)


def placement_balancedness(
    setting: Setting, layout: Layout, experts: Sequence[Assignment | None], loads: ExpertLoads | None
) -> dict[int, float]:
    """Return mean over max GPU load by absolute layer id, the mean over scenarios; empty without experts."""
    balancedness: dict[int, float] = {}
    for stage, assignment in zip(layout.replicas[0], experts, strict=True):
        if assignment is None or loads is None:
            continue
        part = stage_loads(setting, loads, stage.layers)
        mean = np.mean([assignment.balancedness(scenario) for scenario in part.normalised], axis=0)
        ids = [layer for layer in setting.model.moe_layers if layer in stage.layers]
        balancedness.update(zip(ids, mean.tolist(), strict=True))
    return balancedness


def score_placement(
    setting: Setting, layout: Layout, experts: Sequence[Assignment | None], loads: ExpertLoads | None
) -> tuple[Score, dict[int, float]]:
    """Score any placement at the setting's batch; return the score and the balancedness by layer.

    Raises
    ------
    InputError
        If the loads do not fit the model.
    InfeasibleError
        If the batch does not fit in HBM.
    """
    score = placement_scorer(setting, layout, experts, loads).at(setting.workload.batch)
    return score, placement_balancedness(setting, layout, experts, loads)
