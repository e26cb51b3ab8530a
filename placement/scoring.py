"""Score a placement of experts under a layout: rackplan's, a baseline's, or a manual one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np

from cost.experts.assignment import Assignment
from cost.experts.dispatch import DispatchPolicy
from cost.experts.loads import ExpertLoads
from cost.experts.tokens.reach import ExpertUse, Whole, balanced_use, expert_use, limited_hits, token_hits
from cost.experts.tokens.traffic import TokenTraffic, token_traffic
from cost.inputs.deployment import Deployment
from cost.inputs.layout import Layout, StageSpec
from cost.serving.steady_state import held_batch
from cost.step.score import LayoutScorer, Score
from cost.terms.alltoall import group_limit
from cost.terms.experts import expert_speed, placed_expert_work
from placement.arrays import Floats, Ints
from placement.experts.baselines import Baselines
from placement.experts.bounds import lower_bound
from placement.experts.exact import can_finish
from placement.experts.problem import Problem, make_problem
from placement.options import Objective
from placement.plan import ROUNDING, BaselineScore, Plan, Proof
from topology.base.errors import InputError
from topology.base.units import plural
from topology.cluster import Cluster

Unlike = Mapping[int, Sequence[Assignment | None]]
"""Experts of replicas that differ from the first one, by replica number."""
NONE_UNLIKE: Unlike = MappingProxyType({})


@dataclass(frozen=True, eq=False)
class ExpertPlacement:
    """Experts under a layout that may be no plan: a baseline's, a trial's, one made by hand.

    Attributes
    ----------
    experts:
        Of each stage, in replicas that are not ``unlike``.
    unlike:
        What replicas hold that do not hold ``experts``, by their number.
    """

    deployment: Deployment
    layout: Layout
    experts: Sequence[Assignment | None]
    loads: ExpertLoads | None
    split: DispatchPolicy = "even"
    unlike: Unlike = field(default_factory=dict)
    objective: Objective = "mean"

    def held_by(self, replica: int) -> Sequence[Assignment | None]:
        """Return what a replica holds, by stage."""
        return self.unlike.get(replica, self.experts)


def moe_rows(deployment: Deployment, layers: range) -> list[int]:
    """Rows of the loads that belong to ``layers``: positions among the model's MoE layers."""
    return [row for row, layer in enumerate(deployment.model.moe_layers) if layer in layers]


def stage_loads(deployment: Deployment, loads: ExpertLoads, layers: range) -> ExpertLoads:
    """The part of the loads that belongs to one stage."""
    return loads.rows(moe_rows(deployment, layers))


def stage_speed(deployment: Deployment, stage: StageSpec, slots_per_gpu: Ints) -> Floats | None:
    """Return the relative speed of each GPU of a stage with experts, float64 ``[gpus]``; None where all are alike."""
    moe = deployment.model.moe
    if moe is None or not slots_per_gpu.any():
        return None
    workload = deployment.workload
    even = balanced_use(1, slots_per_gpu, moe.experts, moe.top_k)
    return expert_speed(deployment, stage, moe, even, float((workload.batch or 1) * workload.tokens_per_pass))


def stage_use(
    deployment: Deployment,
    stage: StageSpec,
    assignment: Assignment,
    loads: ExpertLoads,
    split: DispatchPolicy = "even",
    intact: Whole | None = None,
) -> ExpertUse:
    """Return what the experts of one stage ask of its GPUs when the engine splits their tokens in this way.

    Where the loads have routing traces, tokens go between GPUs as those do (:attr:`ExpertUse.hits`). ``intact``: what
    the stage is left of, under the same loads.

    Raises
    ------
    InputError
        If the loads do not fit the model.
    """
    loads = stage_loads(deployment, loads, stage.layers)
    use = split_use(deployment, stage, assignment, loads, split)
    moe = deployment.model.moe
    assert moe is not None  # noqa: S101 - checked there
    nodes = deployment.numbered("node")[list(stage.gpus)]
    domains = deployment.domains(stage)
    if not loads.routing:
        if len(np.unique(domains)) == 1:
            return use
        limited = limited_hits(
            assignment if use.filled is None else use.filled.assignment,
            use.slot_share,
            loads.tokens,
            moe.top_k,
            group_limit(moe),
            nodes=nodes,
            domains=domains,
            whole=intact if use.filled is None else None,
        )
        return replace(use, hits=limited)
    speed = None if split == "even" else stage_speed(deployment, stage, assignment.slots_per_gpu)
    hits = token_hits(
        assignment,
        loads.routing,
        split=split,
        nodes=nodes,
        domains=domains,
        speed=speed,
        quota=deployment.workload.quota_slots,
    )
    return replace(use, hits=hits)


def split_use(
    deployment: Deployment,
    stage: StageSpec,
    assignment: Assignment,
    loads: ExpertLoads,
    split: DispatchPolicy,
) -> ExpertUse:
    """As :func:`stage_use` with the loads of the stage, without the ways that tokens take between GPUs.

    Raises
    ------
    InputError
        As of :func:`stage_use`.
    """
    moe = deployment.model.moe
    if moe is None:
        raise InputError(f"{deployment.model.name} has no routed experts to place.")
    if split == "even":
        return expert_use(assignment, loads, moe.top_k)
    return expert_use(
        assignment,
        loads,
        moe.top_k,
        split=split,
        nodes=split_places(deployment, stage, split),
        speed=stage_speed(deployment, stage, assignment.slots_per_gpu),
        quota=deployment.workload.quota_slots,
    )


def split_places(deployment: Deployment, stage: StageSpec, split: DispatchPolicy) -> Ints:
    """Return the places of each GPU that a split goes by, ``[gpus]``: nodes; of quota slots, domains."""
    return deployment.domains(stage) if split == "quota" else deployment.numbered("node")[list(stage.gpus)]


def use_balancedness(use: ExpertUse, speed: Floats | None = None) -> Floats:
    """Return mean over max GPU load, ``[scenarios, layers]``; of unequal GPUs, of load over speed.

    The mean is then what every GPU would have if all were equally busy.
    """
    busy = use.share if speed is None else use.share / speed
    balance: Floats = use.share.mean(axis=2) / busy.max(axis=2)
    return balance


def gpu_load(plan: Plan, stage: StageSpec, assignment: Assignment) -> Floats:
    """Return the load of each GPU of a stage over its layer's mean, the mean over scenarios, ``[layers, gpus]``.

    Where GPUs differ it is load over speed, as in balancedness.
    """
    if plan.loads is None:
        raise ValueError("a plan without experts has no loads")
    loads = stage_loads(plan.deployment, plan.loads.untraced, stage.layers)
    share = split_use(plan.deployment, stage, assignment, loads, plan.split).share
    speed = stage_speed(plan.deployment, stage, assignment.slots_per_gpu)
    busy = (share if speed is None else share / speed).mean(axis=0)
    over_mean: Floats = busy / np.maximum(share.mean(axis=(0, 2))[:, None], 1e-300)
    return np.broadcast_to(over_mean, (assignment.layers, assignment.gpus))


def away_share(plan: Plan) -> float | None:
    """Return the part of the expert choices of tokens that another scale-up domain serves, the mean over layers.

    Tokens are equally many on each GPU of a stage. None where no experts are placed.
    """
    inside: list[Floats] = []
    for stage, assignment in zip(plan.layout.replicas[0], plan.experts, strict=True):
        if assignment is not None:
            domain = np.unique(plan.deployment.domains(stage), return_inverse=True)[1]
            load = gpu_load(plan, stage, assignment)
            inside.append((load * np.bincount(domain)[domain] / len(domain)).sum(axis=1) / load.sum(axis=1))
    return float(1 - np.concatenate(inside).mean()) if inside else None


def expert_read_bytes(plan: Plan, batch: float) -> float | None:
    """Return the bytes of expert weights that a GPU of the first replica reads in a step, the busiest of its stages.

    Each of as many micro-batches as stages reads those that its tokens use. None where no experts are placed.
    """
    deployment, stages, moe = plan.deployment, plan.layout.replicas[0], plan.deployment.model.moe
    uses = placement_uses(replace(plan, unlike={}))[0]
    tokens = batch * sum(len(stage.gpus) for stage in stages) / len(stages)
    tokens *= deployment.workload.tokens_per_pass
    read: list[float] = []
    for stage, use in zip(stages, uses, strict=True):
        if use is not None and moe is not None:
            rates, weights = deployment.rates(stage), deployment.model.precision["experts"]
            work = placed_expert_work(moe, use, tokens=tokens, weights=weights, rates=rates)
            of_layers = np.asarray(work.memory_s).mean(axis=0).sum(axis=0) * use.repeats
            read.append(float(of_layers.max()) * rates.hbm_bytes_per_s * len(stages))
    return max(read, default=None)


def step_held(plan: Plan, requests_per_s: float, steps: float) -> float:
    """Return the seconds of a step of a plan whose replicas serve so many requests per second, of ``steps`` each.

    At the batch that they hold (:func:`cost.serving.steady_state.held_batch`), its own at most.
    """
    score = plan.score
    scorer, _ = placement_scorer(replace(plan, unlike={}))

    def stay_s(batch: Floats) -> Floats:
        step_s = scorer.step_s(batch.item())
        return np.array([steps * step_s * scorer.stays(step_s, batch.item())[0]])

    per_s, largest = requests_per_s / plan.layout.gpus_used, np.array([float(score.batch)])
    if per_s * stay_s(largest).item() >= largest.item() * (1 - ROUNDING):
        return score.step_s
    return scorer.step_s(held_batch(per_s, stay_s, largest).item())


def placement_scorer(
    placed: ExpertPlacement | Plan, *, fair: bool = True
) -> tuple[LayoutScorer, dict[int, float]]:
    """Return what scores a placement at any batch (ours, a baseline's, one made by hand), and its balancedness.

    ``fair``: with max-min fair sharing of links between domains (:mod:`cost.step.fair_sharing`), which
    layouts that are only compared go without. Balancedness is mean over max GPU load by absolute layer id, the mean
    over scenarios and replicas; empty without experts.

    Raises
    ------
    InputError
        If the loads do not fit the model.
    """
    uses, replicas = placement_uses(placed), len(placed.layout.replicas)
    synthetic = placed.loads is not None and placed.loads.synthetic
    scorer = LayoutScorer(placed.deployment, placed.layout, uses, synthetic=synthetic, fair=fair)
    balance = _balancedness(placed, uses[0])
    if placed.unlike:
        apart = [_balancedness(placed, uses[replica], replica) for replica in placed.unlike]
        balance = {
            layer: ((replicas - len(apart)) * value + sum(layers[layer] for layers in apart)) / replicas
            for layer, value in balance.items()
        }
    return scorer, balance


def placement_uses(placed: ExpertPlacement | Plan) -> list[list[ExpertUse | None]]:
    """Return how busy the GPUs of each stage of each replica are, ``[replica][stage]``; None without experts.

    Where tokens are traced, replicas that lie otherwise over nodes and domains differ. Tokens that are held out say
    it, where there are some (:attr:`ExpertLoads.judged`).

    Raises
    ------
    InputError
        If the loads do not fit the model.
    """
    deployment, layout = placed.deployment, placed.layout
    loads = placed.loads and placed.loads.judged
    if loads is None or not (loads.routing or _limited(deployment, layout)):
        rows = [_uses(placed, loads)] * len(layout.replicas)
        for replica in placed.unlike:
            rows[replica] = _uses(placed, loads, replica)
        return rows
    known: dict[object, list[ExpertUse | None]] = {}
    node = deployment.numbered("node")
    rows = []
    for replica, stages in enumerate(layout.replicas):
        where = [(node[list(stage.gpus)], deployment.domains(stage)) for stage in stages]
        key = (
            replica if replica in placed.unlike else None,
            *(np.unique(place, return_inverse=True)[1].tobytes() for pair in where for place in pair),
        )
        if key not in known:
            known[key] = _uses(placed, loads, replica)
        rows.append(known[key])
    return rows


def _limited(deployment: Deployment, layout: Layout) -> bool:
    """Whether what tokens reach is known without traces: a limit on groups of experts, over several domains."""
    moe = deployment.model.moe
    several = (len(deployment.domain_set(stage)) > 1 for stages in layout.replicas for stage in stages)
    return bool(moe and group_limit(moe)[0]) and any(several)


def _uses(
    placed: ExpertPlacement | Plan, loads: ExpertLoads | None, replica: int = 0
) -> list[ExpertUse | None]:
    """Return how busy the GPUs of each stage of a replica are; None of a stage without experts."""
    return [
        None
        if assignment is None or loads is None
        else stage_use(placed.deployment, stage, assignment, loads, placed.split)
        for stage, assignment in zip(placed.layout.replicas[replica], placed.held_by(replica), strict=True)
    ]


def _balancedness(
    placed: ExpertPlacement | Plan, uses: Sequence[ExpertUse | None], replica: int = 0
) -> dict[int, float]:
    deployment, balance = placed.deployment, dict[int, float]()
    stages = placed.layout.replicas[replica]
    for stage, assignment, use in zip(stages, placed.held_by(replica), uses, strict=True):
        if assignment is not None and use is not None:
            speed = stage_speed(deployment, stage, assignment.slots_per_gpu)
            ids = [layer for layer in deployment.model.moe_layers if layer in stage.layers]
            balance.update(zip(ids, use_balancedness(use, speed).mean(axis=0).tolist(), strict=True))
    return balance


def placement_balancedness(placed: ExpertPlacement | Plan) -> dict[int, float]:
    """Return the balancedness of a placement alone, as :func:`placement_scorer` does."""
    counts = None if placed.loads is None else placed.loads.untraced  # of which balance is
    return _balancedness(placed, _uses(placed, counts))


def score_placement(
    deployment: Deployment,
    layout: Layout,
    experts: Sequence[Assignment | None],
    loads: ExpertLoads | None,
    split: DispatchPolicy = "even",
    unlike: Unlike = NONE_UNLIKE,
) -> tuple[Score, dict[int, float]]:
    """Score any placement at the deployment's batch; return the score and the balancedness by layer.

    Raises
    ------
    InputError
        If the loads do not fit the model, or the placements the stages of the layout.
    InfeasibleError
        If the batch does not fit in HBM.
    """
    expected = [len(stage.gpus) for stage in layout.replicas[0]]
    sizes = [part.gpus if part is not None else count for part, count in zip(experts, expected, strict=False)]
    if len(experts) != len(expected) or sizes != expected:
        raise InputError(
            f"{plural(len(experts), 'placement')} for {' + '.join(map(str, sizes)) or 0} GPUs; the layout needs one "
            f"for each stage, of {' + '.join(map(str, expected))} GPUs."
        )
    placed = ExpertPlacement(deployment, layout, experts, loads, split, unlike)
    scorer, balancedness = placement_scorer(placed)
    return scorer.at(deployment.workload.batch), balancedness


def with_loads(plan: Plan, loads: ExpertLoads | None) -> Plan:
    """Return ``plan`` scored under other loads; with routing traces in them, also where its tokens go.

    What was found out under the plan's own loads (scenarios, failures) does not hold for others, and is dropped.

    Raises
    ------
    InputError
        If the loads do not fit the model, or the plan places no experts.
    """
    if loads is not plan.loads:
        plan.require_experts()
    changed = replace(plan, loads=loads)
    scorer, balancedness = placement_scorer(changed)
    batch, proof = plan.deployment.workload.batch, plan.proof
    if loads is not None and loads is not plan.loads:
        proof = placement_proof(changed)
    return replace(
        changed,
        score=scorer.at(batch),
        balancedness=balancedness,
        proof=proof,
        traffic=routed_traffic(plan.deployment, plan.layout, scorer, loads, batch),
        scenarios=None,
        failures=None,
        baselines={} if loads is None else other_splits(changed),
        service_level="",
        requests=None,
        beside=(),
    )


def routed_traffic(
    deployment: Deployment, layout: Layout, scorer: LayoutScorer, loads: ExpertLoads | None, batch: float
) -> TokenTraffic | None:
    """Return where the tokens of routing traces go under what ``scorer`` scores; None without traces."""
    if layout.apart is not None:
        return None
    if loads is None or not (loads.routing or any(use is not None and use.hits for use in scorer.uses[0])):
        return None
    names = tuple(trace.name for trace in loads.routing)
    return token_traffic(deployment, layout, scorer.uses, batch=batch, traces=names)


def under_sparse_attention(plan: Plan, rule: str) -> Plan:
    """Return ``plan`` scored with sparse attention by ``rule`` (:mod:`cost.attention.sparse`).

    Raises
    ------
    InputError
        If the rule is none.
    """
    workload = replace(plan.deployment.workload, sparse_attention=rule)
    # it may be faster than what was asked for
    return replace(_rescored(plan, replace(plan.deployment, workload=workload)), service_level="")


def on_cluster(plan: Plan, cluster: Cluster) -> Plan:
    """Return ``plan`` scored on a cluster of the same GPUs whose figures differ.

    Raises
    ------
    InfeasibleError
        If its batch no longer fits in HBM.
    """
    return _rescored(plan, replace(plan.deployment, cluster=cluster))


def _rescored(plan: Plan, deployment: Deployment) -> Plan:
    """Return ``plan`` scored as ``deployment``, without rivals, failures and order of stages: those of before."""
    changed = replace(plan, deployment=deployment)
    scorer, balancedness = placement_scorer(changed)
    return replace(
        changed,
        score=scorer.at(deployment.workload.batch),
        balancedness=balancedness,
        baselines={},
        failures=None,
        order=None,
        traffic=None,
        requests=None,
        beside=(),
    )


def of_first_kind(plan: Plan) -> Plan:
    """Return the plan of those replicas alone that hold what the first does; the GPUs of the others stay idle."""
    if not plan.unlike:
        return plan
    rows = tuple(stages for r, stages in enumerate(plan.layout.replicas) if r not in plan.unlike)
    alone = replace(plan, layout=replace(plan.layout, replicas=rows), unlike={})
    return _rescored(alone, plan.deployment)


def score_rivals(placed: ExpertPlacement | Plan) -> dict[str, BaselineScore]:
    """Return each baseline's score by name, on the slots per GPU of a placement and planned on the mean of its loads.

    Where a policy does not apply in some stage, its entry holds the reason.
    """
    baselines = {replica: _rivals(placed, replica) for replica in (0, *placed.unlike)}
    scored = {}
    for name in next((stage for stage in baselines[0] if stage is not None), {}):
        rivals = {
            replica: [None if stage is None else stage[name] for stage in stages]
            for replica, stages in baselines.items()
        }
        applied = [rival for row in rivals.values() for rival in row if rival is not None]
        reason = next((rival.reason for rival in applied if rival.assignment is None), "")
        if reason:
            scored[name] = BaselineScore(reason)
            continue
        parts = {
            replica: [None if rival is None else rival.assignment for rival in row]
            for replica, row in rivals.items()
        }
        score, balancedness = score_placement(
            placed.deployment, placed.layout, parts.pop(0), placed.loads, placed.split, parts
        )
        scored[name] = BaselineScore("", balancedness, score)
    return scored | other_splits(placed)


def other_splits(placed: ExpertPlacement | Plan) -> dict[str, BaselineScore]:
    """Return the scores of a placement's fixed copies alone, split evenly and by an LP; empty without quota slots."""
    if placed.split != "quota":
        return {}
    deployment = placed.deployment
    alone = replace(deployment, workload=replace(deployment.workload, quota_slots=0))
    policies: tuple[DispatchPolicy, ...] = ("even", "lp")
    return {
        f"{policy}_split": BaselineScore("", balancedness, score)
        for policy in policies
        for score, balancedness in [
            score_placement(alone, placed.layout, placed.experts, placed.loads, policy, placed.unlike)
        ]
    }


def _rivals(placed: ExpertPlacement | Plan, replica: int) -> list[Baselines | None]:
    """Return the rivals of each stage of a replica; None of a stage without experts."""
    deployment, loads, moe = placed.deployment, placed.loads, placed.deployment.model.moe
    rivals: list[Baselines | None] = []
    for stage, assignment in zip(placed.layout.replicas[replica], placed.held_by(replica), strict=True):
        if assignment is None or moe is None or loads is None:
            rivals.append(None)
            continue
        slots = assignment.slots_per_gpu
        problem = make_problem(
            loads.mean[moe_rows(deployment, stage.layers)], slots, stage_speed(deployment, stage, slots)
        )
        rivals.append(Baselines(problem, eplb_groups=moe.groups, nodes=len(deployment.domain_set(stage))))
    return rivals


def stage_problem(
    deployment: Deployment,
    stage: StageSpec,
    slots_per_gpu: Ints,
    loads: ExpertLoads,
    objective: Objective,
    split: DispatchPolicy,
    spread: Ints | None = None,
) -> Problem:
    """Return what the experts of a stage are placed for: the loads of its layers, its GPUs' slots and speeds."""
    return make_problem(
        loads.normalised[:, moe_rows(deployment, stage.layers)],
        slots_per_gpu,
        stage_speed(deployment, stage, slots_per_gpu),
        spread,
        objective=objective,
        split=split,
        nodes=split_places(deployment, stage, split),
        quota_slots=deployment.workload.quota_slots,
    )


def placement_proof(placed: ExpertPlacement | Plan, *, priced: bool = False) -> Proof:
    """Return objective and bound of any placement, means over all layers and replicas.

    It is OPTIMAL where each layer is at its bound. Failure domains are left out: with copies spread evenly, counts
    have no limit but the GPUs. The bounds are for copies on different GPUs; in a layer where a GPU has two of one, as
    other planners may leave it, only the mean load binds. ``priced``: with the highest bound that any search may
    have proven, of layers small enough for CP-SAT the objective itself.
    """
    deployment, layout, loads = placed.deployment, placed.layout, placed.loads
    value: list[Floats] = []
    bound: list[Floats] = []
    alike = len(layout.replicas) - len(placed.unlike) if placed.unlike else 1
    for replica, times in ((0, alike), *((index, 1) for index in placed.unlike)):
        for stage, part in zip(layout.replicas[replica], placed.held_by(replica), strict=True):
            if part is None or loads is None:
                continue
            problem = stage_problem(
                deployment, stage, part.slots_per_gpu, loads, placed.objective, placed.split
            )
            reached = problem.evaluate(part)
            exact = priced and can_finish(problem)
            least = reached if exact else lower_bound(problem, reached if priced else None)
            least = np.where(problem.apart(part.slot_expert), least, np.minimum(1.0, reached))
            value.append(np.tile(reached, times))
            bound.append(np.tile(least, times))
    return Proof.of_layers(np.concatenate(value), np.concatenate(bound))
