"""What a simulation came to: what users see of its requests, at other rates too, and the most that keep limits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cost.calibration.errors import ErrorOf, errors_in
from cost.inputs.deployment import Deployment
from cost.inputs.machine import NearRuns
from cost.queueing.load import LoadLimits, MostRequests, UnderLoad, under_load
from cost.queueing.pools import EnginePools
from cost.queueing.requests import Requests
from cost.serving.lengths import Lengths
from topology.base.shown import Shown

RATE_SHARES = (0.1, 0.3, 0.5, 0.7, 0.85, 0.95, 1.0, 1.1)
"""Rates of the curve of percentiles over the most that keep the limits."""


@dataclass(frozen=True, eq=False, repr=False)
class Simulated(Shown):
    """Requests on the engines of a plan, or of the best way of serving them.

    Attributes
    ----------
    load, req_s, router, seed:
        What was simulated: the load in words, and requests per second that arrive.
    deployment:
        Of the pool that decodes, or the only one.
    pools, layouts:
        The engines, and the layout of one of each pool.
    lengths, requests:
        Of the requests, and those that were simulated.
    found:
        What users see of them.
    most, reason:
        The most requests per second that keep the limits, or why there is no such rate.
    make:
        Makes requests of these lengths by rate and seed.
    near:
        What measured runs near the decode step of the layout say.
    notes:
        On the plan that was read.
    """

    load: str
    req_s: float
    router: str
    seed: int
    deployment: Deployment
    pools: EnginePools
    layouts: tuple[str, ...]
    lengths: Lengths
    requests: Requests
    limits: LoadLimits
    found: UnderLoad
    most: MostRequests | None
    reason: str
    make: Callable[[float, int], Requests]
    near: NearRuns
    notes: tuple[str, ...] = ()

    def brief(self) -> str:
        """Return the load, the p99 time to first token, and the maximum request rate."""
        limit = (
            "no rate meets the limits"
            if self.most is None
            else f"maximum {self.most.requests_per_s:,.3g} requests/s"
        )
        p99 = float(np.percentile(self.found.ttft_s, 99))
        return (
            f"{self.deployment.model.name} on {self.deployment.cluster.whole.name}, {self.load}: first token p99 "
            f"{p99:,.3g} s, {self.found.output_tok_s:,.0f} output tok/s; {limit}"
        )

    @property
    def overloaded(self) -> bool:
        """Whether more requests are sent than the engines serve."""
        return self.requests.made and not self.requests.users and self.found.grows

    @cached_property
    def curve(self) -> dict[float, UnderLoad]:
        """What users see by the rate, up to a little more than the most."""
        peak = self.req_s if self.most is None else self.most.requests_per_s
        return {
            rate: under_load(self.pools, self.make(rate, 0), self.limits, self.router)
            for rate in (peak * part for part in RATE_SHARES)
        }

    @property
    def errors(self) -> tuple[ErrorOf, ...]:
        """The errors of the chips."""
        return errors_in(self.deployment, near=self.near)

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return the requests as columns, those before the counted ones too."""
        outcome = self.found.outcome
        return {
            "arrival_s": outcome.arrival_s,
            "first_s": outcome.first_s,
            "done_s": outcome.done_s,
            "isl": outcome.isl,
            "osl": outcome.osl,
            "cached": outcome.cached,
            "ttft_s": outcome.first_s - outcome.arrival_s,
            "tpot_s": (outcome.done_s - outcome.first_s) / np.maximum(outcome.osl - 1, 1),
            "counted": self.found.counted,
        }
