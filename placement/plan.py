"""The plan: what goes where, what it costs, how good it is, and everything needed to score it again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cost.assignment import Assignment
from cost.deployment import Deployment
from cost.dispatch import ExpertUse, Split, balanced_use, expert_use, require_split
from cost.layout import Layout, StageSpec
from cost.loads import ExpertLoads
from cost.score import LayoutScorer, Score
from cost.terms.experts import expert_speed
from placement.failure_domains import numbered_domains
from placement.options import Objective, Spread, require_objective, require_spread
from placement.scenarios.report import ScenarioReport
from topology.errors import InputError

if TYPE_CHECKING:
    from placement.failures import Failures
    from placement.redundancy import RedundancyCurve


_EQUAL = 1e-9  # relative: the objective is the bound up to rounding


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

    @classmethod
    def of_layers(cls, reached: NDArray[np.float64], least: NDArray[np.float64]) -> Proof:
        """Return the proof of a placement that nobody searched, of largest over mean GPU load and bound by layer."""
        status = "OPTIMAL" if (reached <= least * (1 + _EQUAL)).all() else "FEASIBLE"
        objective, lowest = float(reached.mean()), float(np.minimum(least, reached).mean())
        return cls(status, objective, lowest, max(0.0, 1 - lowest / objective))


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
    scenarios:
        With several loads, how the plan fares in each, and one made without it; else None.
    failures:
        What one failure would do; None where nobody looked, or without experts.
    redundancy:
        Throughput against copies where their number was chosen; else None.
    notes:
        What a summary repeats: what was assumed, dropped or run.
    options:
        What the planner was asked besides, as JSON-able values.
    passed_over:
        A layout that is faster by the estimate and less simple, in words; empty if there is none.
    """

    deployment: Deployment
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
    scenarios: ScenarioReport | None = None
    failures: Failures | None = None
    redundancy: RedundancyCurve | None = None
    passed_over: str = ""

    @property
    def split(self) -> Split:
        """How the engine splits an expert's tokens over its copies."""
        return require_split(str(self.options.get("split", "even")))

    @property
    def spread(self) -> Spread:
        """What may fail at once: copies of an expert lie in different ones."""
        return require_spread(str(self.options.get("spread", "gpu")))

    @property
    def objective(self) -> Objective:
        """What counts over several loads."""
        return require_objective(str(self.options.get("objective", "mean")))


def moe_rows(deployment: Deployment, layers: range) -> list[int]:
    """Rows of the loads that belong to ``layers``: positions among the model's MoE layers."""
    return [row for row, layer in enumerate(deployment.model.moe_layers) if layer in layers]


def stage_loads(deployment: Deployment, loads: ExpertLoads, layers: range) -> ExpertLoads:
    """The part of the loads that belongs to one stage."""
    return replace(loads, tokens=loads.tokens[:, moe_rows(deployment, layers)])


def stage_speed(
    deployment: Deployment, stage: StageSpec, slots_per_gpu: NDArray[np.int64]
) -> NDArray[np.float64] | None:
    """Return the relative speed of each GPU of a stage with experts, float64 ``[gpus]``; None where all are alike."""
    moe = deployment.model.moe
    if moe is None or not slots_per_gpu.any():
        return None
    workload = deployment.workload
    even = balanced_use(1, slots_per_gpu, moe.experts, moe.top_k)
    return expert_speed(
        deployment, stage, moe, even, float(max(1, workload.batch) * workload.tokens_per_pass)
    )


def stage_use(
    deployment: Deployment,
    stage: StageSpec,
    assignment: Assignment,
    loads: ExpertLoads,
    split: Split = "even",
) -> ExpertUse:
    """Return what the experts of one stage ask of its GPUs when the engine splits their tokens in this way.

    Raises
    ------
    InputError
        If the loads do not fit the model.
    """
    moe = deployment.model.moe
    if moe is None:
        raise InputError(f"{deployment.model.name} has no routed experts to place.")
    part = stage_loads(deployment, loads, stage.layers)
    if split == "even":
        return expert_use(assignment, part, moe.top_k)
    nodes = numbered_domains(deployment, "node")[list(stage.gpus)]
    speed = stage_speed(deployment, stage, assignment.slots_per_gpu)
    return expert_use(assignment, part, moe.top_k, split=split, nodes=nodes, speed=speed)


def use_balancedness(use: ExpertUse, speed: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
    """Return mean over max GPU load, ``[scenarios, layers]``; of unequal GPUs, of load over speed.

    The mean is then what every GPU would have if all were equally busy.
    """
    busy = use.share if speed is None else use.share / speed
    balance: NDArray[np.float64] = use.share.mean(axis=2) / busy.max(axis=2)
    return balance


def placement_scorer(
    deployment: Deployment,
    layout: Layout,
    experts: Sequence[Assignment | None],
    loads: ExpertLoads | None,
    split: Split = "even",
) -> LayoutScorer:
    """Return what scores a placement at any batch: ours, a rival's, one made by hand.

    Raises
    ------
    InputError
        If the loads do not fit the model.
    """
    return _scorer(deployment, layout, _uses(deployment, layout, experts, loads, split), loads)


def placement_balancedness(
    deployment: Deployment,
    layout: Layout,
    experts: Sequence[Assignment | None],
    loads: ExpertLoads | None,
    split: Split = "even",
) -> dict[int, float]:
    """Return mean over max GPU load by absolute layer id, the mean over scenarios; empty without experts."""
    return _balancedness(deployment, layout, experts, _uses(deployment, layout, experts, loads, split))


def score_placement(
    deployment: Deployment,
    layout: Layout,
    experts: Sequence[Assignment | None],
    loads: ExpertLoads | None,
    split: Split = "even",
) -> tuple[Score, dict[int, float]]:
    """Score any placement at the deployment's batch; return the score and the balancedness by layer.

    Raises
    ------
    InputError
        If the loads do not fit the model.
    InfeasibleError
        If the batch does not fit in HBM.
    """
    uses = _uses(deployment, layout, experts, loads, split)
    score = _scorer(deployment, layout, uses, loads).at(deployment.workload.batch)
    return score, _balancedness(deployment, layout, experts, uses)


def under_sparse_attention(plan: Plan, rule: str) -> Plan:
    """Return ``plan`` scored as if attention were sparse by ``rule`` (:mod:`cost.attention.sparse`).

    Raises
    ------
    InputError
        If the rule is none.
    """
    workload = replace(plan.deployment.workload, sparse_attention=rule)
    deployment = replace(plan.deployment, workload=workload)
    score, balancedness = score_placement(deployment, plan.layout, plan.experts, plan.loads, plan.split)
    # rivals and failures were scored without it
    return replace(
        plan, deployment=deployment, score=score, balancedness=balancedness, baselines={}, failures=None
    )


def _uses(
    deployment: Deployment,
    layout: Layout,
    experts: Sequence[Assignment | None],
    loads: ExpertLoads | None,
    split: Split,
) -> list[ExpertUse | None]:
    return [
        None
        if assignment is None or loads is None
        else stage_use(deployment, stage, assignment, loads, split)
        for stage, assignment in zip(layout.replicas[0], experts, strict=True)
    ]


def _scorer(
    deployment: Deployment, layout: Layout, uses: list[ExpertUse | None], loads: ExpertLoads | None
) -> LayoutScorer:
    synthetic = loads is not None and loads.synthetic
    return LayoutScorer(deployment, layout, [uses] * len(layout.replicas), synthetic=synthetic)


def _balancedness(
    deployment: Deployment,
    layout: Layout,
    experts: Sequence[Assignment | None],
    uses: Sequence[ExpertUse | None],
) -> dict[int, float]:
    balancedness: dict[int, float] = {}
    for stage, assignment, use in zip(layout.replicas[0], experts, uses, strict=True):
        if assignment is None or use is None:
            continue
        speed = stage_speed(deployment, stage, assignment.slots_per_gpu)
        ids = [layer for layer in deployment.model.moe_layers if layer in stage.layers]
        mean = use_balancedness(use, speed).mean(axis=0)
        balancedness.update(zip(ids, mean.tolist(), strict=True))
    return balancedness
