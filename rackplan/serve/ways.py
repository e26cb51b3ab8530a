"""Serving modes at the page's settings: one pool, two pools, or decode only, with their widths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cost.inputs.deployment import Deployment
from cost.inputs.machine import NearRuns
from cost.layouts import Sweep
from cost.serving.pools import RateMatches
from cost.serving.result import Pools
from cost.serving.serving import ONE_POOL, TWO_POOLS, Serving
from cost.step.step import near_runs
from rackplan.layouts import served, swept
from rackplan.requests import SweepRequest, make
from rackplan.serve.pricing import deployed
from rackplan.serve.question import FieldError, Question
from topology.base.errors import RackplanError


@dataclass(frozen=True, eq=False)
class Way:
    """One serving mode on one cluster: the sweep of the decode pool (or the only pool), and the pool matches."""

    name: str
    sweep: Sweep
    serving: Serving | None = None
    matches: RateMatches | None = None

    @cached_property
    def speeds(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Output tokens per second of one user, and per GPU, of every configuration or match."""
        if self.matches is not None:
            return self.matches.tok_s_per_user, self.matches.output_tok_s_per_gpu
        return self.sweep.tok_s_per_user, self.sweep.tok_s_per_gpu

    @cached_property
    def frontier(self) -> NDArray[np.int64]:
        """The Pareto-optimal configurations, slowest per user first."""
        return (self.sweep if self.matches is None else self.matches).frontier()

    def near(self, row: int) -> NearRuns:
        """Return what measured runs near the decode step of a configuration or match say."""
        at = int(self.in_sweep(row))
        return near_runs(self.sweep.deployment, self.sweep.layout_of(at), float(self.sweep.batch[at]))

    def best(self, target: float) -> int | None:
        """Return the configuration with most throughput of those as fast as ``target``."""
        edge = self.frontier
        at = int(np.searchsorted(self.speeds[0][edge], target * (1 - 1e-12)))
        return int(edge[at]) if at < len(edge) else None

    def in_sweep(self, rows: Any) -> Any:
        """Return the sweep rows of configurations or matches."""
        return rows if self.matches is None else self.matches.decode[rows]

    def label(self, row: int) -> str:
        """Return a short label of a configuration: its layout, or for requests the workers of each pool."""
        if self.serving is None or self.matches is None:
            return self.sweep.label(row)
        sides = self.serving.sides(self.matches.row(row))
        return " + ".join(
            f"{workers} x {sweep.worker_label(at)}{f' {role}' if len(sides) > 1 else ''}"
            for role, sweep, at, workers in sides
        )


@dataclass(frozen=True, eq=False)
class Side:
    """One priced cluster: its serving modes, the names of those drawn, or why there are none.

    ``pools`` is how it serves whole requests; None: decode only.
    """

    deployment: Deployment
    ways: Mapping[str, Way]
    drawn: tuple[str, ...] = ()
    pools: Pools | None = None
    reason: str = ""

    def best(self, target: float) -> tuple[Way, int] | None:
        """Return the drawn configuration with the highest throughput at a speed of ``target`` or more."""
        candidates = [(way, row) for way in self.shown if (row := way.best(target)) is not None]
        return max(candidates, key=lambda pair: float(pair[0].speeds[1][pair[1]]), default=None)

    @property
    def shown(self) -> list[Way]:
        """The serving modes that are drawn."""
        return [self.ways[name] for name in self.drawn]


@lru_cache(maxsize=12)
def explored(question: Question) -> tuple[Sequence[Side], Mapping[str, str]]:
    """Return the priced clusters, and notes by field; recent answers are cached.

    Raises
    ------
    FieldError
        If an input cannot be used, by field.
    """
    deployments, notes = deployed(question)
    return [_side(question, deployment) for deployment in deployments], notes


def sweep_request(question: Question, deployment: Deployment) -> SweepRequest:
    """Return the request of the command that prices one cluster."""
    return make(SweepRequest, deployment.model, deployment.cluster, **question.given)


def _side(question: Question, deployment: Deployment) -> Side:
    """Price one cluster in the requested serving modes and widths; the result has a reason if nothing fits."""
    try:
        request = sweep_request(question, deployment)
        if request.alone:
            (sweep,) = _of_widths(question, swept(deployment, speeds=request.speeds))
            return Side(deployment, {"decode": Way("decode", sweep)}, ("decode",))
        pools = served(deployment, request)
    except FieldError:
        raise
    except RackplanError as error:
        return Side(deployment, {}, reason=str(error))
    serving = pools.serving
    assert serving.both is not None  # noqa: S101 - one cluster serves both phases
    decode, one_pool = _of_widths(question, serving.decode, serving.both)
    serving = (
        replace(serving, decode=decode, both=one_pool, _known={}) if decode is not serving.decode else serving
    )
    sweeps = {ONE_POOL: one_pool, TWO_POOLS: decode}
    ways = {
        name: Way(name, sweeps[name], serving, matches)
        for name, matches in serving.ways().items()
        if len(matches)
    }
    drawn = tuple(name for name in ways if question.serving in ("better", name))
    reason = "" if drawn else _why_not(question, serving)
    return Side(deployment, ways, drawn, replace(pools, serving=serving), reason)


def _of_widths(question: Question, *sweeps: Sweep) -> list[Sweep]:
    """Return the layouts of sweeps that have the requested widths.

    Raises
    ------
    FieldError
        If there are none.
    """
    fitting = list(sweeps)
    for name in ("tp", "ep"):
        width = getattr(question, name)
        if width is None:
            continue
        widths = sorted({int(size) for sweep in fitting for size in getattr(sweep, name)})
        if width not in widths:
            raise FieldError(
                {name: f"no layout has width {width}; possible widths: {', '.join(map(str, widths))}."}
            )
        fitting = [sweep.rows(np.flatnonzero(getattr(sweep, name) == width)) for sweep in fitting]
    return fitting


def _why_not(question: Question, serving: Serving) -> str:
    """Return why a cluster cannot serve requests in the requested mode."""
    if question.serving == TWO_POOLS and serving.refused:
        return serving.refused
    way = "no layout" if question.serving == "better" else f"no layout of {question.serving}"
    limit = (
        "" if serving.ttft_s is None else f" meets a time to first token of {serving.ttft_s * 1e3:,.0f} ms"
    )
    return f"{way}{limit or ' fits'}: the fastest takes {serving.fastest_ttft_s * 1e3:,.0f} ms."
