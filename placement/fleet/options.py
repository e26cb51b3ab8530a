"""What a fleet serves, and its goal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from cost.inputs.deployment import Deployment
from cost.serving.lengths import Lengths
from placement.options import Goal

DECODE, PREFILL, BOTH = "decode", "prefill", "both"
"""What replicas do: one phase of requests, or both, each prompt where its answer is decoded."""
WORTH_S = 16.0
"""The solver's own seconds at most where nobody says: about 25 of a core."""


@dataclass(frozen=True)
class FleetOptions:
    """Options of a fleet.

    Attributes
    ----------
    goal:
        What is best: most tokens, or fewest GPUs, least USD or least watts for each.
    seed:
        Of the search.
    most_layouts:
        Different layouts of a pool on a kind of GPU at most; None: as many as there are.
    """

    goal: Goal = "throughput"
    seed: int = 0
    most_layouts: int | None = 2


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
        for deployment in models:
            if lengths is None:
                pairs.append((deployment, None))
                continue
            decode, prompts = lengths.workloads(deployment.workload, deployment.scheduler)
            pairs.append((replace(deployment, workload=decode), replace(deployment, workload=prompts[0][1])))
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
        words = [f"{limit_s * 1e3:,g} ms {event}" for limit_s, event in limits if limit_s is not None]
        return f" within {' and '.join(words)}" if words else ""

    @property
    def first_to_go(self) -> str:
        """The limit to drop where not all can be met: a default one first, and of two the time to first token."""
        limits = [name for name in ("ttft_s", "tpot_s") if getattr(self, name) is not None]
        return next((name for name in limits if name in self.usual), limits[0] if limits else "tpot_s")

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
