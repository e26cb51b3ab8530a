"""Effect of one failure: the experts lost, and the performance of the remaining GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from cost.experts.assignment import Assignment
from cost.experts.dispatch import follows_loads
from cost.experts.loads import ExpertLoads
from cost.experts.tokens.reach import ExpertUse, Whole
from cost.inputs.layout import StageSpec
from cost.inputs.stage_context import digest
from cost.step.score import LayoutScorer
from placement.arrays import Bools, Floats, Ints
from placement.experts.failure_domains import domain_name, stage_domains
from placement.options import SPREADS, Spread
from placement.plan import Plan
from placement.plans.findings import AtRisk, Failures, LayerAtRisk, Losses, SpreadCounts, WhatIf
from placement.progress import Say, silent
from placement.scoring import stage_loads, stage_speed, stage_use, use_balancedness
from topology.base.errors import RackplanError

MOST_TRIED = 96
"""Failures of a kind that are tried one by one; of more, so many evenly spaced ones."""
MOST_ROUTED = 8
"""The same where the rates of what is left follow from routes (tori, broken links)."""
MOST_SOLVED = 6
"""The same where each splits tokens by the loads, with an LP (0.6 s of 58 layers)."""
MOST_CELLS = 3e7
"""Slots x layers x scenarios over all failures of a kind."""
MANY_CELLS, FEWEST_TRIED = 2**23, 3
"""Above so many of one failure alone (500 scenarios of 58 layers) it takes a second, and so few are tried."""
MOST_REPLICAS = 20_000
"""Replicas priced over all failures of a kind."""
EXPERTS_LISTED = 20
"""Experts listed by name."""
FEW_TOKENS = 2048
"""Tokens of a routing trace that are followed where many placements are scored only to be compared."""


def find_failures(plan: Plan, say: Say = silent) -> Failures | None:
    """Return the effect of one failure on ``plan``; None for a model without experts, and with attention apart.

    ``say`` is told which of how many is lost.
    """
    if plan.loads is None or plan.layout.apart or not any(entry is not None for entry in plan.experts):
        return None
    layers: list[LayerAtRisk] = []
    experts: list[AtRisk] = []
    for stage, assignment in zip(plan.layout.replicas[0], plan.experts, strict=True):
        if assignment is not None:
            rows, named = _at_risk(plan, plan.loads, stage, assignment)
            layers += rows
            experts += named
    experts.sort(key=lambda row: (-row.share, row.layer, row.expert))
    loss = _Loss(plan, plan.loads)
    what_if = tuple(_what_if(loss, unit, say) for unit in SPREADS)
    return Failures(
        spread=plan.spread,
        what_if=what_if,
        experts=tuple(experts[:EXPERTS_LISTED]),
        layers=tuple(layers),
        copies=count_spread(plan),
    )


def count_spread(plan: Plan) -> SpreadCounts | None:
    """Return how many experts have copies in different failure domains in every replica; None if each GPU is one."""
    if plan.spread == "gpu":
        return None
    apart = single = experts = most_used = 0
    for index, assignment in enumerate(plan.experts):
        members = [stages[index].gpus for stages in plan.layout.replicas]
        domain = stage_domains(plan.deployment, members, plan.spread)
        if assignment is None or domain is None:
            continue
        held = np.zeros((assignment.layers, assignment.experts, int(domain.max()) + 1), dtype=bool)
        held[np.arange(assignment.layers)[:, None], assignment.slot_expert, domain[assignment.slot_gpu]] = (
            True
        )
        apart += int((held.sum(axis=2) > 1).sum())
        single += int((assignment.copies == 1).sum())
        experts += assignment.copies.size
        most_used = max(most_used, int(held.any(axis=(0, 1)).sum()))
    missing = _missing(plan, most_used) if apart < experts else ""
    return SpreadCounts(experts, apart, experts - apart - single, single, missing)


def _missing(plan: Plan, used: int) -> str:
    """Return why some experts have all copies in one failure domain, and what it takes to change that."""
    unit, moe = plan.spread, plan.deployment.model.moe
    names = {domain_name(gpu, unit) for gpu in plan.deployment.cluster.gpus}
    copies = "" if moe is None else f"--redundant {moe.experts}"
    if len(names) == 1:
        return (
            f"the cluster has only one {unit}; use a narrower --spread, or a cluster of at least two {unit}s"
        )
    if used < 2:
        return (
            f"each EP group of {plan.layout.ep} GPUs is within one {unit}; use an --ep that spans several "
            f"{unit}s, with {copies} for a second copy of every expert"
        )
    return f"a second copy of every expert takes {copies}"


def _at_risk(
    plan: Plan, plan_loads: ExpertLoads, stage: StageSpec, assignment: Assignment
) -> tuple[list[LayerAtRisk], list[AtRisk]]:
    """Experts of one stage with all copies in one failure domain: by layer, and the heaviest of them."""
    deployment = plan.deployment
    domain = deployment.numbered(plan.spread)[list(stage.gpus)]
    names = {
        int(number): domain_name(deployment.cluster.gpus[gpu], plan.spread)
        for number, gpu in zip(domain, stage.gpus, strict=True)
    }
    loads = stage_loads(deployment, plan_loads, stage.layers).mean
    share = loads / loads.sum(axis=1, keepdims=True)
    of_slot = np.broadcast_to(domain[assignment.slot_gpu], assignment.slot_expert.shape)
    rows = np.broadcast_to(np.arange(assignment.layers)[:, None], of_slot.shape)
    lowest = np.full(share.shape, np.iinfo(np.int64).max)
    highest = np.full(share.shape, -1)
    np.minimum.at(lowest, (rows, assignment.slot_expert), of_slot)
    np.maximum.at(highest, (rows, assignment.slot_expert), of_slot)
    lone = lowest == highest
    ids = [layer for layer in deployment.model.moe_layers if layer in stage.layers]
    layers_at_risk = []
    for row, layer in enumerate(ids):
        domains = lowest[row, lone[row]]
        tokens = np.bincount(domains, weights=share[row, lone[row]], minlength=int(domain.max()) + 1)
        worst = int(np.argmax(tokens)) if domains.size else -1
        layers_at_risk.append(
            LayerAtRisk(
                layer,
                int(domains.size),
                float(share[row, lone[row]].sum()),
                names.get(worst, ""),
                int((domains == worst).sum()),
                float(tokens[worst]) if domains.size else 0.0,
            )
        )
    heaviest = np.argsort(-np.where(lone, share, -1.0), axis=None, kind="stable")[:EXPERTS_LISTED]
    named = [
        AtRisk(
            ids[row],
            int(expert),
            int(assignment.copies[row, expert]),
            float(share[row, expert]),
            names[int(lowest[row, expert])],
        )
        for row, expert in zip(*np.unravel_index(heaviest, share.shape), strict=True)
        if lone[row, expert]
    ]
    return layers_at_risk, named


@dataclass(frozen=True)
class _After:
    """The plan after one loss; see :class:`WhatIf`."""

    balancedness: float
    tok_s_per_gpu: float
    tokens_lost: float
    experts_lost: int


def _what_if(loss: _Loss, unit: Spread, say: Say) -> WhatIf:
    plan = loss.plan
    number = plan.deployment.numbered(unit)
    choices = list(dict.fromkeys(number[plan.layout.gpus_in_use].tolist()))
    limit = _most_tried(plan, len(loss.loads.tokens))
    tried = [choices[i * len(choices) // limit] for i in range(limit)] if len(choices) > limit else choices
    outcomes = []
    for turn, choice in enumerate(tried, 1):
        say(f"losing a {'GPU' if unit == 'gpu' else unit}: {turn} of {len(tried)}")
        outcomes.append(loss.of(number == choice))
    worst = min(range(len(tried)), key=lambda i: outcomes[i].tok_s_per_gpu)
    gpus = plan.deployment.cluster.gpus
    names = [domain_name(gpus[int(np.argmax(number == choice))], unit) for choice in tried]
    balance = [outcome.balancedness for outcome in outcomes]
    speed = [outcome.tok_s_per_gpu for outcome in outcomes]
    lost = [outcome.tokens_lost for outcome in outcomes]
    return WhatIf(
        unit,
        len(choices),
        len(tried),
        float(np.mean(balance)),
        min(balance),
        float(np.mean(speed)),
        min(speed),
        float(np.mean(lost)),
        max(lost),
        max(outcome.experts_lost for outcome in outcomes),
        names[worst],
        Losses(tuple(names), tuple(speed), tuple(balance), tuple(lost)),
    )


def _most_tried(plan: Plan, scenarios: int) -> int:
    spec = plan.deployment.cluster.spec
    if spec.reshaped or not spec.switched:
        return MOST_ROUTED
    if follows_loads(plan.split):
        return MOST_SOLVED
    cells = scenarios * sum(a.slot_expert.size for a in plan.experts if a is not None)
    within = min(int(MOST_CELLS / cells), MOST_REPLICAS // len(plan.layout.replicas))
    return max(MOST_ROUTED if cells <= MANY_CELLS else FEWEST_TRIED, min(MOST_TRIED, within))


class _Loss:
    """Scores a plan without some of its GPUs.

    Replicas that lose none are those of the plan, and equal losses are scored once.
    """

    def __init__(self, plan: Plan, loads: ExpertLoads) -> None:
        self.plan, self.loads = plan, loads
        self.uses: list[list[ExpertUse | None]] = []
        self.balance: list[list[Floats]] = []
        for replica, stages in enumerate(plan.layout.replicas):
            if replica and replica not in plan.unlike:  # as the first
                self.uses.append(self.uses[0])
                self.balance.append(self.balance[0])
                continue
            held = plan.held_by(replica)
            uses = [
                None if entry is None else stage_use(plan.deployment, stage, entry, loads, plan.split)
                for stage, entry in zip(stages, held, strict=True)
            ]
            self.uses.append(uses)
            self.balance.append(
                [
                    self._balance(stage, use, None if entry is None else entry.slots_per_gpu)
                    for stage, use, entry in zip(stages, uses, held, strict=True)
                ]
            )
        self._scorer = LayoutScorer(plan.deployment, plan.layout, self.uses)
        self._likeness: dict[int, int | bytes] = {}
        self._owner = np.full(len(plan.deployment.cluster.gpus), -1)
        for replica, stages in enumerate(plan.layout.replicas):
            for stage in stages:
                self._owner[list(stage.gpus)] = replica
        self._known: dict[tuple[tuple[int | bytes, ...], ...], _After] = {}

    def _like(self, replica: int) -> int | bytes:
        """Equal for replicas that the loss of GPUs in the same places leaves equal."""
        deployment, stages = self.plan.deployment, self.plan.layout.replicas[replica]
        spec = deployment.cluster.spec
        if self.plan.unlike or spec.raw is not None or spec.faults or not spec.switched:
            return replica
        gpus = [gpu for stage in stages for gpu in stage.gpus]
        places = [deployment.numbered("node"), deployment.shared.domain, *deployment.shared.leaf_and_pod]
        shared = [np.unique(place[gpus], return_inverse=True)[1] for place in places]
        return digest(*shared, np.array(deployment.cluster.domain_kind)[deployment.shared.domain[gpus]])

    def of(self, lost: Bools) -> _After:
        """Return the plan without the GPUs of the cluster that are ``lost``, ``[gpus]``."""
        rows = []
        for replica in np.unique(self._owner[lost & (self._owner >= 0)]).tolist():
            if replica not in self._likeness:
                self._likeness[replica] = self._like(replica)
            gone = [self._gone(stage, lost).tobytes() for stage in self.plan.layout.replicas[replica]]
            rows.append((self._likeness[replica], *gone))
        key = tuple(sorted(rows))
        if key not in self._known:
            self._known[key] = self._after(lost)
        return self._known[key]

    def _after(self, lost: Bools) -> _After:
        """As :meth:`of`, computed."""
        hit = set(self._owner[lost].tolist())
        replicas: list[tuple[StageSpec, ...]] = []
        uses: list[list[ExpertUse | None]] = []
        balance, unhit, tokens, experts = [], [0.0], [], 0
        for replica, stages in enumerate(self.plan.layout.replicas):
            if replica not in hit:
                replicas.append(stages)
                uses.append(self.uses[replica])
                unhit = [_over_layers(self.balance[replica])]
                continue
            gone = [self._gone(stage, lost) for stage in stages]
            parts = [
                self._left(replica, index, stage, part)
                for index, (stage, part) in enumerate(zip(stages, gone, strict=True))
            ]
            experts += sum(part.experts_lost for part in parts)
            tokens.append(_over_layers([part.tokens_lost for part in parts]))
            if any(part.stops for part in parts):
                continue
            balance.append(_over_layers([part.balance for part in parts]))
            replicas.append(tuple(part.stage for part in parts))
            uses.append([part.use for part in parts])
        return _After(
            float(np.mean(balance or unhit)),
            self._tok_s_per_gpu(replicas, uses),
            float(np.mean(tokens)),
            experts,
        )

    def _gone(self, stage: StageSpec, lost: Bools) -> Bools:
        """GPUs of a stage that stop: a tensor-parallel group stops as a whole, ``[gpus]``."""
        groups = lost[list(stage.gpus)].reshape(-1, self.plan.layout.tp).any(axis=1)
        return np.repeat(groups, self.plan.layout.tp)

    def _left(self, replica: int, index: int, stage: StageSpec, gone: Bools) -> _Part:
        """What is left of one stage of a replica."""
        entry = self.plan.held_by(replica)[index]
        if not gone.any():
            nothing = np.zeros(0 if entry is None else entry.layers)
            return _Part(stage, self.uses[replica][index], self.balance[replica][index], nothing, 0)
        shrunk = replace(stage, gpus=tuple(np.array(stage.gpus)[~gone].tolist()))
        if entry is None:
            return _Part(shrunk, None, np.zeros(0), np.zeros(0), 0, stops=bool(gone.all()))
        if gone[entry.slot_gpu].all():
            all_experts = entry.layers * entry.experts
            return _Part(shrunk, None, np.zeros(0), np.ones(entry.layers), all_experts, stops=True)
        place = np.cumsum(~gone) - 1
        alive = ~gone[entry.slot_gpu]
        remaining = Assignment(
            entry.slot_expert[:, alive],
            place[entry.slot_gpu[alive]].astype(np.int32),
            entry.experts,
            len(shrunk.gpus),
        )
        use_before = self.uses[replica][index]
        intact = None if use_before is None else Whole(entry, use_before, np.flatnonzero(~gone))
        use = stage_use(self.plan.deployment, shrunk, remaining, self.loads, self.plan.split, intact)
        lost = np.clip(1.0 - use.share.sum(axis=2).mean(axis=0), 0.0, 1.0)
        return _Part(
            shrunk,
            use,
            self._balance(shrunk, use, remaining.slots_per_gpu),
            np.where(lost > 1e-12, lost, 0.0),
            int((remaining.copies == 0).sum()),
        )

    def _balance(self, stage: StageSpec, use: ExpertUse | None, slots: Ints | None) -> Floats:
        """Balancedness of each layer of a stage, the mean over scenarios."""
        if use is None or slots is None:
            return np.zeros(0)
        busy = use.share.max(axis=(0, 2)) > 0
        balance = np.zeros(len(busy))
        if busy.any():
            part = replace(use, share=use.share[:, busy])
            speed = stage_speed(self.plan.deployment, stage, slots)
            balance[busy] = use_balancedness(part, speed).mean(axis=0)
        return balance

    def _tok_s_per_gpu(
        self, replicas: Sequence[tuple[StageSpec, ...]], uses: Sequence[Sequence[ExpertUse | None]]
    ) -> float:
        """Throughput over all GPUs given; 0 where nothing runs."""
        if not replicas:
            return 0.0
        plan = self.plan
        layout = replace(plan.layout, replicas=tuple(replicas))
        scorer = LayoutScorer(plan.deployment, layout, uses, near=self._scorer)
        batch = min(plan.deployment.workload.batch, scorer.max_batch)
        if not batch:
            return 0.0
        try:
            return scorer.at(batch).tok_s_per_gpu
        except RackplanError:
            return 0.0  # the links that are left do not reach


@dataclass(frozen=True, eq=False)
class _Part:
    """What is left of one stage: arrays are by layer with experts; ``stops``: no GPU, or none that has experts."""

    stage: StageSpec
    use: ExpertUse | None
    balance: Floats
    tokens_lost: Floats
    experts_lost: int
    stops: bool = False


def _over_layers(values: Sequence[Floats]) -> float:
    """Mean over the layers of all stages."""
    joined = np.concatenate(list(values)) if values else np.zeros(0)
    return float(joined.mean()) if joined.size else 0.0
