"""Demand and goal of a fleet."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self, get_args

from cost.inputs.deployment import Deployment
from cost.serving.lengths import Lengths
from topology.base.errors import InputError, input_name

Goal = Literal["throughput", "gpus", "usd", "power"]
GOALS: tuple[Goal, ...] = get_args(Goal)
"""Most tokens; or fewest GPUs, least USD or least watts: at the speed asked for, else for each token."""

DECODE, PREFILL, BOTH = "decode", "prefill", "both"
"""What replicas do: one phase of requests, or both, each prompt where its answer is decoded."""
WORTH_S = 16.0
"""The solver's own seconds at most where nobody says: about 25 of a core."""


def require_goal(goal: str) -> Goal:
    """Return ``goal`` if it is known; InputError if it is not."""
    for known in GOALS:
        if goal.strip().lower() == known:
            return known
    raise InputError(f"expected {', '.join(GOALS[:-1])} or {GOALS[-1]}.", field="goal", value=goal)


@dataclass(frozen=True)
class FleetOptions:
    """Options of a fleet.

    Attributes
    ----------
    goal:
        What is best; None: fewest GPUs where ``tok_s`` is asked for, else most throughput.
    tok_s:
        Output tokens per second that must be served; None: as many as there are.
    utilization:
        Of what the fleet can serve, the part that ``tok_s`` is: mean over peak, above 0 and at most 1.
    spares:
        Whole domains kept out for failures.
    time_limit_s:
        Seconds of search; None: :data:`WORTH_S`.
    seed:
        Of the search.
    most_layouts:
        Different layouts of a pool on a kind of GPU at most; None: as many as there are.
    """

    goal: Goal | None = None
    tok_s: float | None = None
    utilization: float = 1.0
    spares: int = 0
    time_limit_s: float | None = None
    seed: int = 0
    most_layouts: int | None = 2

    def __post_init__(self) -> None:
        if self.goal is not None:
            require_goal(self.goal)
        if self.tok_s is not None and not (math.isfinite(self.tok_s) and self.tok_s > 0):
            raise InputError(
                "expected output tokens per second above 0.", field="tok_s", value=f"{self.tok_s:g}"
            )
        if not 0 < self.utilization <= 1:
            raise InputError(
                "expected the mean over the peak, above 0 and at most 1.",
                field="utilization",
                value=f"{self.utilization:g}",
            )
        if self.utilization < 1 and self.tok_s is None:
            raise InputError(
                f"only with {input_name('tok_s')}, the mean that is served.", field="utilization"
            )
        if self.spares < 0:
            raise InputError("expected 0 or more domains.", field="spares", value=self.spares)
        if self.seed < 0:
            raise InputError("expected a whole number from 0 up.", field="seed", value=self.seed)
        if self.time_limit_s is not None and not (math.isfinite(self.time_limit_s) and self.time_limit_s > 0):
            raise InputError(f"expected seconds above 0, not {self.time_limit_s:g}.", field="time_limit_s")

    @property
    def wanted(self) -> Goal:
        """The goal, by default that of what is asked for."""
        return self.goal or ("throughput" if self.tok_s is None else "gpus")

    @property
    def peak_tok_s(self) -> float | None:
        """Output tokens per second that the fleet must be able to serve."""
        return None if self.tok_s is None else self.tok_s / self.utilization


@dataclass(frozen=True, eq=False)
class Traffic:
    """What is served: lengths, limits, and the models with their shares of the requests.

    Attributes
    ----------
    deployments:
        Of each model, its decode and, where prompts are prefilled too, its prefill.
    shares:
        Of the requests, ``[models]``; they add up to 1.
    isl, osl:
        Tokens of a prompt and of an answer; 0 and 1 where only decoding is asked for (a request is then a token).
    tpot_s, ttft_s:
        Longest time per output token and to the first token (prefill and transfer, without waiting); None: no limit.
    imbalance:
        Busiest GPU's expert load over the mean; None: as usual in wide groups.
    redundant:
        Extra expert copies of each layer; None: the fewest that divide.
    usual:
        Limits that nobody asked for (``tpot_s``, ``ttft_s``): left out where nothing holds them.
    near_per_s:
        Requests per second that about come: those that prefill share them.
    swept:
        Prices that are known.
    """

    deployments: tuple[tuple[Deployment, Deployment | None], ...]
    shares: tuple[float, ...]
    isl: int
    osl: int
    tpot_s: float | None
    ttft_s: float | None
    imbalance: float | None = 1.0
    redundant: int | None = None
    usual: frozenset[str] = frozenset()
    near_per_s: float = 0.0
    swept: dict[tuple[object, ...], Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls,
        models: Sequence[Deployment],
        shares: Sequence[float],
        lengths: Lengths | None,
        limits: tuple[float | None, float | None],
        *,
        redundant: int | None = None,
        usual: frozenset[str] = frozenset(),
        near_per_s: float = 0.0,
    ) -> Self:
        """Return what ``models`` serve: with ``lengths`` of requests both phases, else decode as it is.

        ``limits`` are ``tpot_s`` and ``ttft_s``, the second of both phases alone.
        """
        pairs: list[tuple[Deployment, Deployment | None]] = []
        for one in models:
            if lengths is None:
                pairs.append((one, None))
                continue
            decode, prompts = lengths.workloads(one.workload, one.scheduler)
            pairs.append((replace(one, workload=decode), replace(one, workload=prompts[0][1])))
        return cls(
            deployments=tuple(pairs),
            shares=tuple(shares),
            isl=0 if lengths is None else lengths.isl[0],
            osl=1 if lengths is None else lengths.osl[0],
            tpot_s=limits[0],
            ttft_s=limits[1] if lengths else None,
            imbalance=None if lengths else 1.0,
            redundant=redundant,
            usual=usual,
            near_per_s=near_per_s,
        )

    @property
    def limits(self) -> str:
        """The limits in words, as a suffix; empty without any."""
        limits = ((self.tpot_s, "a token"), (self.ttft_s, "to the first token"))
        words = [f"{limit_s * 1e3:,g} ms {what}" for limit_s, what in limits if limit_s is not None]
        return f" within {' and '.join(words)}" if words else ""

    @property
    def first_to_go(self) -> str:
        """The limit to drop where not all can be met: a default one first, and of two the time to first token."""
        kept = [name for name in ("ttft_s", "tpot_s") if getattr(self, name) is not None]
        return next((name for name in kept if name in self.usual), kept[0] if kept else "tpot_s")

    @property
    def phases(self) -> tuple[str, ...]:
        """Phases of every request."""
        return (DECODE, PREFILL) if self.deployments[0][1] is not None else (DECODE,)

    @property
    def roles(self) -> tuple[str, ...]:
        """Possible roles of replicas."""
        return (*self.phases, BOTH) if len(self.phases) > 1 else self.phases

    @property
    def lengths(self) -> Lengths:
        """Of the requests, where both phases are served."""
        prefill = self.deployments[0][1]
        hit = 0.0 if prefill is None else prefill.workload.prefix_hit
        return replace(Lengths.of(self.isl, self.osl), prefix_hit=hit)

    def deployment(self, model: int, role: str) -> Deployment:
        """Return what replicas of a model do in one of :attr:`roles`."""
        decode, prefill = self.deployments[model]
        if role == BOTH:
            return replace(decode, workload=self.lengths.in_one_pool(decode.workload, decode.scheduler))
        if role == PREFILL and prefill is not None:
            return prefill
        return decode
