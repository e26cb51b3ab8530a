"""The plan: placement, predicted step, proof, and everything needed to score it again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np

from cost.calibration.errors import ErrorOf, errors_in, widest
from cost.experts.assignment import Assignment
from cost.experts.dispatch import DispatchPolicy
from cost.experts.loads import ExpertLoads
from cost.experts.tokens.traffic import TokenTraffic
from cost.inputs.deployment import Deployment
from cost.inputs.layout import Layout, StageSpec
from cost.inputs.machine import NearRuns
from cost.money.bill import Totals
from cost.serving.supply import Pool
from cost.step.score import Score
from cost.step.step import near_runs
from placement.arrays import Floats
from placement.experts.problem import proven
from placement.options import Objective, PlanOptions, Spread
from placement.plans.findings import Failures, Number, RedundancyCurve, ScenarioReport, TrafficReport
from topology.base.errors import InputError
from topology.base.shown import Shown

Origin = Literal["planned", "replanned", "imported"]
ROUNDING = 1e-9
"""Part of a time that rounding may cost."""


@dataclass(frozen=True)
class Proof:
    """Proof of the expert placement.

    Attributes
    ----------
    status:
        ``OPTIMAL`` or ``FEASIBLE``.
    objective:
        Mean over layers of largest over mean GPU load.
    bound:
        What no placement of these copies on these GPUs can be below.
    gap:
        Fraction of the objective between the two.
    """

    status: str
    objective: Number
    bound: Number
    gap: Number

    @classmethod
    def of_layers(cls, reached: Floats, least: Floats) -> Proof:
        """Return the proof of a placement that nobody searched, of largest over mean GPU load and bound by layer."""
        status = "OPTIMAL" if proven(reached, least).all() else "FEASIBLE"
        objective, lowest = float(reached.mean()), float(np.minimum(least, reached).mean())
        return cls(status, objective, lowest, max(0.0, 1 - lowest / objective))


@dataclass(frozen=True)
class OrderProof(Proof):
    """Proof of the stage order over unlike domains, with balanced experts.

    Attributes
    ----------
    status:
        ``OPTIMAL`` or ``FEASIBLE``.
    objective:
        The step in seconds with the stages in the order of the plan.
    bound:
        What no order of these and of idle domains and no split of the layers can be below, in seconds.
    gap:
        Fraction of the objective between the two.
    in_turn:
        The step in seconds with the same groups in the order of the cluster; null where no split of that fits.
    search:
        What ran.
    """

    in_turn: Number | None = None
    search: str = ""


@dataclass(frozen=True)
class Idle:
    """Working GPUs that are in no replica.

    Attributes
    ----------
    gpu_ids, reason:
        Their ids, and why they are idle.
    """

    gpu_ids: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class Decision:
    """What could be decided beside the best layout of each pool, and how: by CP-SAT, or by a bound without a call.

    Attributes
    ----------
    what:
        The decisions, in words.
    search:
        What decided: the call of CP-SAT and its size, or the bound that leaves nothing to decide.
    status, objective, bound, gap:
        ``OPTIMAL`` or ``FEASIBLE``; what is reached, what nothing can beat, and the fraction of the bound between.
    unit:
        Of both.
    idle:
        GPUs that no replica has.
    """

    what: str
    search: str
    status: str
    objective: Number
    bound: Number
    gap: Number
    unit: str
    idle: tuple[Idle, ...] = ()


@dataclass(frozen=True, eq=False)
class BaselineScore:
    """A baseline's placement under the same layout and batch, or why its policy does not apply."""

    reason: str = ""
    balancedness: Mapping[int, float] = field(default_factory=dict)
    score: Score | None = None


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a plan of whole requests, or of several pools, was made for, and what was found of ways to serve it.

    Attributes
    ----------
    isl, osl:
        Tokens of a prompt and of an answer; None: decode alone.
    shares:
        Of the requests, by model; empty: there is one.
    tpot_limit_s, ttft_limit_s, defaults, left_out:
        The longest that times may be (null: no limit); which of them (``tpot_s``, ``ttft_s``) nobody gave, and those
        that nothing keeps and that were left out, in words.
    priced_tok_s_per_gpu:
        What each way gives within the limits, the better one first, as priced before experts were placed.
    turns:
        Which way is ahead from which tokens per second of a user to which.
    refused:
        Why there cannot be two pools; empty where there can.
    pairing:
        How it was decided which workers share a domain, in words; empty where there was nothing to decide.
    """

    isl: int | None
    osl: int | None
    shares: dict[str, float] = field(default_factory=dict)
    tpot_limit_s: Number | None = None
    ttft_limit_s: Number | None = None
    defaults: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    priced_tok_s_per_gpu: dict[str, float] = field(default_factory=dict)
    turns: tuple[tuple[str, float, float], ...] = ()
    refused: str = ""
    pairing: str = ""


@dataclass(frozen=True, kw_only=True)
class WholeRequests(Asked):
    """What the pools of a plan serve together, with placed experts (:func:`placement.pools.served_together`).

    Attributes
    ----------
    serving:
        ``one pool`` for both phases, or ``two pools``.
    pools, parts:
        The pools in the order of :attr:`Plan.pools`, and the part of the requests that each serves in its phase. The
        batch of prefill may be parts of a prompt per GPU.
    tok_s_per_user, tpot_s, ttft_s:
        Of one request: output tokens per second, seconds of each, and to the first without waiting; where pools
        differ of the slowest.
    inside_share:
        Part of the requests whose cache can stay in a scale-up domain on its way from prefill to decode; None where
        none moves.
    totals:
        Of the whole cluster, idle GPUs too: of two pools at the rate of the slower one.
    """

    serving: str
    pools: tuple[Pool, ...]
    parts: tuple[float, ...]
    tok_s_per_user: Number
    tpot_s: Number
    ttft_s: Number | None
    inside_share: Number | None
    totals: Totals

    def brief(self) -> str:
        """Return the requests, the pools and the throughput."""
        pools = " and ".join(
            f"{pool.layout} for {pool.role}".removesuffix(" for both") for pool in self.pools[::-1]
        )
        subject = f"requests of {self.isl:,} + {self.osl:,} tokens, {self.serving}" if self.osl else "decode"
        ttft = "" if self.ttft_s is None else f", TTFT {self.ttft_s:,.2f} s"
        return (
            f"{subject}: {pools}, "
            f"{self.totals.tok_s_per_gpu:,.0f} output tok/s/GPU, {self.tok_s_per_user:,.3g} tok/s/user{ttft}"
        )

    @property
    def missed(self) -> dict[str, tuple[float, float]]:
        """Limits that the plan exceeds with placed experts: seconds, and the limit."""
        limits = {
            "time per output token": (self.tpot_s, self.tpot_limit_s),
            "first token": (self.ttft_s, self.ttft_limit_s),
        }
        return {
            name: (seconds, limit)
            for name, (seconds, limit) in limits.items()
            if limit is not None and seconds is not None and seconds > limit * (1 + ROUNDING)
        }


@dataclass(frozen=True, eq=False, repr=False)
class Plan(Shown):
    """A complete plan.

    Attributes
    ----------
    experts:
        For each stage, the assignment of its MoE layers (None where it has none), in the first replica and those
        like it.
    unlike:
        The same of replicas that hold something else, by their number: of those that lost GPUs, what is left.
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
    request:
        The options that it was made with.
    origin:
        Whether this planner made it, a re-plan did, or it was imported from an engine's file.
    passed_over:
        A layout that is faster by the estimate and less simple, in words; empty if there is none.
    service_level:
        What the layout was chosen for and what it holds, in words; empty where nobody chose.
    limit_s:
        Longest time per output token (prefill: of a step) that the layout was chosen to hold, in seconds; None for no
        limit.
    search:
        How long the experts were searched for and why, in words; empty where the time was asked for.
    order:
        Proof of the order of the stages; None where domains are alike, there is one stage, or nobody looked.
    traffic:
        Where its tokens go, where routing traces say which experts are chosen together; else None.
    by_traffic:
        Placements compared by the step that they are predicted to take, as tokens choose experts together; None where
        nothing is known of that, or it does not matter.
    requests:
        What its pools serve together where it was made for whole requests, or has several pools; else None.
    differences:
        Which figures of the file that it was read from are not those computed again, and which files beside it are
        of another plan, in words; empty where none is.
    beside:
        The plans of the other pools; :attr:`totals` are of all.
    decision:
        How it was decided which replicas there are; None where one layout of one phase was chosen.
    apart:
        What the best layout of the other kind is estimated at, attention apart from the experts or together with
        them, in words; empty where nobody asked.
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
    request: PlanOptions = field(default_factory=PlanOptions)
    interrupted: bool = False
    scenarios: ScenarioReport | None = None
    failures: Failures | None = None
    redundancy: RedundancyCurve | None = None
    passed_over: str = ""
    service_level: str = ""
    limit_s: float | None = None
    unlike: Mapping[int, tuple[Assignment | None, ...]] = field(default_factory=dict)
    search: str = ""
    order: OrderProof | None = None
    traffic: TokenTraffic | None = None
    by_traffic: TrafficReport | None = None
    origin: Origin = "planned"
    requests: WholeRequests | None = None
    beside: tuple[Plan, ...] = ()
    decision: Decision | None = None
    differences: str = ""
    apart: str = ""

    @property
    def pools(self) -> tuple[Plan, ...]:
        """The plan of each pool, this one first."""
        return (self, *self.beside)

    @property
    def late(self) -> tuple[float, float]:
        """The seconds to the first token that miss a limit which was asked for, and that limit; zeros if none do."""
        if self.requests is None or "ttft_s" in self.requests.defaults:
            return 0.0, 0.0
        return self.requests.missed.get("first token", (0.0, 0.0))

    @property
    def role(self) -> str:
        """What the pool does: ``decode``, ``prefill`` or ``both``."""
        return self.deployment.workload.phase

    @property
    def tok_s_per_user(self) -> float:
        """Tokens per second of a sequence; of whole requests at the batch that their rate holds."""
        return self.score.tok_s_per_user if self.requests is None else self.requests.tok_s_per_user

    @property
    def step_s(self) -> float:
        """Seconds of such a step."""
        return (
            self.score.step_s if self.requests is None else self.requests.tpot_s * self.score.tokens_per_step
        )

    @property
    def over_limit(self) -> float | None:
        """Fraction by which its time per output token exceeds :attr:`limit_s`; None if it does not."""
        if self.limit_s is None or self.score.tpot_s <= self.limit_s * (1 + ROUNDING):
            return None
        return self.score.tpot_s / self.limit_s - 1

    def held_by(self, replica: int) -> tuple[Assignment | None, ...]:
        """Return what a replica holds, by stage."""
        return self.unlike.get(replica, self.experts)

    def first_like(self, replica: int) -> int:
        """Return the first replica that holds the same as ``replica``."""
        held = self.held_by(replica)
        return next(earlier for earlier in range(replica + 1) if self.held_by(earlier) is held)

    def require_experts(self) -> None:
        """Raise InputError where no experts are placed: there are none, or tensor parallelism cuts each of them."""
        if not any(part is not None for part in self.experts):
            name, cut = self.deployment.model.name, self.layout.moe_tp
            raise InputError(
                f"{name}: the plan places no experts, since tensor parallelism cuts each into {cut} parts, one a GPU."
                if cut > 1
                else f"{name} has no routed experts, so the plan places none."
            )

    def parts(self) -> list[tuple[Assignment, list[StageSpec]]]:
        """Return each assignment with the stages that it is of, one in each replica that holds it."""
        groups: list[tuple[int, Assignment, list[StageSpec]]] = []
        for replica, stages in enumerate(self.layout.replicas):
            for index, (stage, part) in enumerate(zip(stages, self.held_by(replica), strict=True)):
                if part is None:
                    continue
                same = (held for number, assignment, held in groups if number == index and assignment is part)
                held = next(same, None)
                if held is None:
                    groups.append((index, part, held := []))
                held.append(stage)
        return [(part, held) for _, part, held in groups]

    def brief(self) -> str:
        """Return what is planned, its layout, its throughput and its gap."""
        where, score, shape = self.deployment, self.score, self.layout
        if self.requests is not None:
            models = " + ".join(dict.fromkeys(pool.deployment.model.name for pool in self.pools))
            return f"{models} on {where.cluster.whole.name}, {self.requests.brief()}"
        widths = f"{f'EP{shape.ep} ' if where.model.moe else ''}TP{shape.tp} PP{shape.stages} x{len(shape.replicas)}"
        gap = f", experts {self.proof.status} with a gap of {self.proof.gap:.2%}" if self.balancedness else ""
        return (
            f"{where.brief()}: {widths}, {score.tok_s_per_gpu:,.0f} {score.tokens} tok/s/GPU, "
            f"step {score.step_s * 1e3:,.4g} ms{gap}"
        )

    @property
    def errors(self) -> tuple[ErrorOf, ...]:
        """The errors of its chips, each once."""
        return errors_in(self.deployment, self.layout, self.near)

    @cached_property
    def near(self) -> NearRuns:
        """What measured runs near its decode step say."""
        return near_runs(self.deployment, self.layout, self.score.batch)

    @cached_property
    def band(self) -> tuple[float, float] | None:
        """Range of tok/s/GPU that holds 80 % of measured runs; None if no coefficient is calibrated."""
        error = widest(self.errors)
        rate = self.totals.tok_s_per_gpu
        return None if error is None else (rate / error.band, rate * error.band)

    @cached_property
    def totals(self) -> Totals:
        """Throughput, cost and power of all GPUs of the cluster, idle ones included, for one phase or both."""
        if self.requests is not None:
            return self.requests.totals
        deployment, score, work = self.deployment, self.score, self.deployment.workload
        cluster, used = deployment.cluster, self.layout.gpus_used
        idle = len(cluster.gpus) - used
        busy = [cluster.gpus[gpu].id for gpu in self.layout.gpus_in_use]
        tok_s = score.tok_s_per_gpu * len(cluster.gpus)
        return deployment.bill.totals(
            tok_s,
            score.tokens,
            requests_per_s=tok_s / work.answer if work.phase == "both" else None,
            gpus_idle=idle,
            phase=work.phase,
            used=deployment.prices.bill(cluster, busy) if idle else None,
        )

    @property
    def split(self) -> DispatchPolicy:
        """How the engine splits an expert's tokens over its copies."""
        return self.request.split

    @property
    def spread(self) -> Spread:
        """What may fail at once: copies of an expert lie in different ones."""
        return self.request.spread

    @property
    def objective(self) -> Objective:
        """What counts over several loads."""
        return self.request.objective
