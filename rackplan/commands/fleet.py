"""Fleets: replicas of different shapes at once, of one model or several, on one cluster."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rackplan import options
from rackplan.digests import digests
from rackplan.options import Limits, opt
from topology.base.errors import InputError

if TYPE_CHECKING:
    from cost.experts.loads import ExpertLoads
    from cost.inputs.deployment import Deployment
    from placement.fleet.options import FleetOptions, Traffic

_SUM = 0.005
"""Shares that add up to 1 but for so much were rounded."""


@dataclass(frozen=True, kw_only=True)
class Served(Limits):
    """What a fleet serves, and what is best."""

    context: Annotated[
        int | None,
        options.length("--context", "Tokens in each sequence where only decode is asked for. [4096]"),
    ] = None
    isl: options.Isl = None
    osl: options.Osl = None
    tok_s: Annotated[
        str | None,
        opt(
            "--tok-s", "Output tokens per second to serve: 2e6, 2M, 128k. Default: as many as there are.", "N"
        ),
    ] = None
    goal: Annotated[
        str | None,
        opt("--goal", "throughput, gpus, usd or power. [gpus with --tok-s, else throughput]", "GOAL"),
    ] = None
    utilization: Annotated[
        float, opt("--utilization", "Mean over peak: with --tok-s, the fleet serves 1/U of it.", "U")
    ] = 1.0
    spares: Annotated[int, opt("--spares", "Domains kept for failures.", "N")] = 0

    def fleet_options(self, time_limit_s: float | None, seed: int) -> FleetOptions:
        """Return what is asked of the search."""
        from placement.fleet.options import FleetOptions, require_goal

        return FleetOptions(
            goal=None if self.goal is None else require_goal(self.goal),
            tok_s=None if self.tok_s is None else options.tokens_per_s(self.tok_s),
            utilization=self.utilization,
            spares=self.spares,
            time_limit_s=time_limit_s,
            seed=seed,
        )

    def traffic(self, models: list[Deployment], shares: tuple[float, ...]) -> Traffic:
        """Return the models with their lengths and limits."""
        from placement.fleet.options import Traffic

        lengths = None if self.isl is None or self.osl is None else (self.isl, self.osl)
        return Traffic.of(models, shares, lengths, self.limits_s, usual=self.usual)


def fleet(
    *,
    model: Annotated[
        list[str],
        opt(
            "--model",
            "Name, Hugging Face id or config.json, with its share of the requests; repeatable.",
            "M[:SHARE]",
        ),
    ],
    cluster: options.ClusterName,
    asked: Served,
    pricing: options.Pricing,
    loads: options.Loads = None,
    time_limit: Annotated[
        float | None,
        opt("--time-limit", "Seconds of search. [until the gap is 0.01 %, about 25 at most]", "S"),
    ] = None,
    seed: options.Seed = 0,
    output: Annotated[
        Path | None,
        opt(
            "-o --output",
            "Folder for page, fleet.json and a plan of each kind; or the page. [below out/]",
            "DIR|FILE.html",
            show_default=False,
        ),
    ] = None,
    json: options.JsonFlag = False,
) -> None:
    """Choose replicas of different shapes for a whole cluster. Pools, totals, what stays idle and why."""
    from placement.fleet.fleet import make_fleet
    from placement.fleet.plans import plan_pools
    from placement.options import PlanOptions
    from rackplan.output import FLEET_RESULTS, default_output, print_error, require_output, show, write_fleet
    from rackplan.progress import progress
    from rackplan.views.fleet import fleet_view

    wanted = asked.fleet_options(time_limit, seed)
    named, notes = _shares(model)
    serving = options.Serving(context=options.CONTEXT if asked.context is None else asked.context)
    where = options.given_clusters([cluster], pricing.settings)[0]
    deployments = [pricing.deployment(name, where, serving) for name, _ in named]
    _refuse_duplicates([one.model.name for one in deployments])
    traffic = asked.traffic(deployments, tuple(share for _, share in named))
    folder = output or default_output(f"fleet-on-{where.name}")
    target = require_output(folder, ours=FLEET_RESULTS)
    expert_loads: dict[int, ExpertLoads | None] = {}
    with progress() as reporter:
        for number, one in enumerate(deployments):
            expert_loads[number] = options.model_loads(one.model, loads or [], seed)
        made = make_fleet(where, traffic, wanted, on_stage=reporter.stage)
        made = replace(made, notes=(*notes, *made.notes))
        fast = PlanOptions(time_limit_s=0.0, seed=seed)
        plans, cut = plan_pools(made, expert_loads, fast, on_stage=reporter.stage)
        made = replace(made, interrupted=made.interrupted or cut)
        reporter.stage("writing")
        names = [one for one, _ in named]
        files = write_fleet(made, plans, target, digests([cluster, *names, *(loads or [])]))
    show(fleet_view(made, plans, files), json=json)
    if made.interrupted:
        print_error("interrupted; the best fleet so far is shown.")
        raise typer.Exit(options.INTERRUPTED)


def _shares(texts: list[str]) -> tuple[list[tuple[str, float]], list[str]]:
    """Parse ``M:SHARE``: names with shares that add up to 1, and what was done to them."""
    found = [options.name_and_share(text) for text in texts]
    for text, (_, part) in zip(texts, found, strict=True):
        if part is not None and not (math.isfinite(part) and part > 0):
            raise InputError(f"--model {text}: expected a share of the requests above 0, like 0.7.")
    given = [share for _, share in found if share is not None]
    if not given:
        even = f"no shares were given: each of the {len(found)} models has as many requests"
        return [(name, 1 / len(found)) for name, _ in found], [even] if len(found) > 1 else []
    if len(given) < len(found):
        without = next(name for name, share in found if share is None)
        raise InputError(f"--model {without}: give each model its share of the requests, like {without}:0.3.")
    total = math.fsum(given)
    notes = []
    if abs(total - 1) > _SUM:
        notes = [f"the shares add up to {total:g} and were divided by it"]
    return [(name, (share or 0.0) / total) for name, share in found], notes


def _refuse_duplicates(names: list[str]) -> None:
    twice = next((name for number, name in enumerate(names) if name in names[:number]), None)
    if twice is not None:
        raise InputError(f"--model {twice}: a duplicate; give it once, with the sum of its shares.")
