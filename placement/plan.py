"""The plan: what goes where, what it costs, how good it is, and everything needed to score it again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cost.expert_use import expert_use
from cost.score import score_layout

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cost.assignment import Assignment
    from cost.expert_use import ExpertUse
    from cost.layout import Layout
    from cost.loads import ExpertLoads
    from cost.score import Score
    from cost.setting import Setting

__all__ = ["BaselineScore", "Plan", "Proof", "moe_rows", "score_placement", "stage_loads"]


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


def score_placement(
    setting: Setting, layout: Layout, experts: Sequence[Assignment | None], loads: ExpertLoads | None
) -> tuple[Score, dict[int, float]]:
    """Score any placement: ours, a rival's, one made by hand.

    Returns the score and the balancedness by absolute layer id (mean over scenarios).

    Raises
    ------
    InputError
        If the loads do not fit the model.
    InfeasibleError
        If the batch does not fit in HBM.
    """
    uses: list[ExpertUse | None] = []
    balancedness: dict[int, float] = {}
    moe = setting.model.moe
    for stage, assignment in zip(layout.replicas[0], experts, strict=True):
        if assignment is None or loads is None or moe is None:
            uses.append(None)
            continue
        part = stage_loads(setting, loads, stage.layers)
        uses.append(expert_use(assignment, part, moe.top_k))
        by_scenario = [assignment.balancedness(scenario) for scenario in part.tokens]
        mean = sum(by_scenario) / len(by_scenario)
        ids = [layer for layer in setting.model.moe_layers if layer in stage.layers]
        balancedness.update(zip(ids, mean.tolist(), strict=True))
    synthetic = loads is not None and loads.synthetic
    score = score_layout(setting, layout, [uses] * len(layout.replicas), synthetic=synthetic)
    return score, balancedness
