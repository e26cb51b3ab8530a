"""Layouts and clusters compared: every layout at every batch, and several clusters for one model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rackplan import options
from rackplan.options import Limits, arg, opt
from topology.base.errors import InfeasibleError

if TYPE_CHECKING:
    from rackplan.work import BothPhases


@dataclass(frozen=True, kw_only=True)
class Swept(Limits):
    """What is swept, and the pools that are matched."""

    phase: options.Phase = "decode"
    context: Annotated[
        int | None,
        options.length("--context", "Tokens already in each sequence; prefill: of each prompt. [4096]"),
    ] = None
    isl: Annotated[
        int | None, options.length("--isl", "With --osl: tokens of a prompt; sweeps both phases.")
    ] = None
    osl: options.Osl = None
    prefill_cluster: Annotated[
        str | None, opt("--prefill-cluster", "GPUs that prefill; default: a part of --cluster.", "C")
    ] = None
    prefix_hit: Annotated[
        float, opt("--prefix-hit", "Part of each prompt that a cache already holds, 0 to below 1.", "F")
    ] = 0.0

    @property
    def lengths(self) -> tuple[int, int] | None:
        """Tokens of a prompt and of an answer where both phases are asked for."""
        return None if self.isl is None or self.osl is None else (self.isl, self.osl)

    @property
    def targets(self) -> Sequence[float]:
        """Speeds per user to show the best at: that of the limit, else some that are usual."""
        from rackplan.views.sweep import TARGETS

        return self.speeds or (TARGETS if self.phase == "decode" else ())

    @property
    def speeds(self) -> Sequence[float]:
        """The speed per user of the limit that was given: each layout is priced at its exact batch there."""
        return [1 / self.tpot_s] if isinstance(self.tpot_s, float) else []

    def both(self, isl: int, osl: int) -> BothPhases:
        """Return what is asked of matched pools."""
        from rackplan.work import BothPhases

        return BothPhases(
            isl=isl,
            osl=osl,
            ttft_s=self.limits_s[1],
            tpot_s=self.tpot_s if isinstance(self.tpot_s, float) else None,
            ttft_usual=self.ttft_ms is None,
            prefix_hit=self.prefix_hit,
        )


def sweep(
    *,
    model: options.ModelName,
    cluster: options.ClusterName,
    asked: Swept,
    pricing: options.Pricing,
    output: Annotated[
        Path | None,
        opt(
            "-o --output",
            "Folder for report.html, sweep.json and sweep.csv, or one.",
            "DIR|FILE.html|.json|.csv",
        ),
    ] = None,
    json: options.JsonFlag = False,
) -> None:
    """Price every parallel layout at every batch. The frontier, the best at each speed, matched pools."""
    from rackplan.output import command_line, written
    from rackplan.render.html import page
    from rackplan.results import svg
    from rackplan.views.sweep import sweep_blocks, sweep_csv, sweep_view
    from rackplan.work import matched, swept

    finish = written(output, "sweep", "sweep.csv", json=json, html="report.html")
    targets = asked.targets
    length = options.CONTEXT if asked.context is None else asked.context
    names = [cluster, *([asked.prefill_cluster] if asked.prefill_cluster else [])]
    clusters = options.given_clusters(names, pricing.settings)
    serving = options.Serving(phase=asked.phase, context=length)
    first = pricing.deployment(model, clusters[0], serving, *clusters[1:])
    if asked.lengths is None:
        workload = replace(first.workload, prefix_hit=asked.prefix_hit)
        sweeps = [swept(replace(first, workload=workload), speeds=asked.speeds)]
        pools = None
    else:
        pools = matched(first, clusters[-1], asked.both(*asked.lengths))
        sweeps = [pools.decode, pools.prefill]
    view = sweep_view(sweeps, pools, targets)

    def report() -> str:
        drawings = {one.name: svg(one) or "" for one in clusters}
        return page(sweep_blocks(sweeps, pools, targets, command=command_line(), drawings=drawings))

    finish(view, {"sweep.csv": lambda: sweep_csv(sweeps), "report.html": report})


def compare(
    *,
    clusters: Annotated[list[str], arg("C...", "Catalog names, name@GPUS or YAML files.")],
    model: options.ModelName,
    gpus: Annotated[int | None, opt("--gpus", "GPUs of each; default: the most of any named.")] = None,
    tok_s_user: Annotated[
        str | None,
        opt(
            "--tok-s-user",
            "Speeds per user to compare at: 25,50,100 (tok/s); none: as much as fits. [20]",
            "LIST|none",
            show_default=False,
        ),
    ] = None,
    length: options.Length,
    pricing: options.Pricing,
    seed: options.Seed = 0,
    output: Annotated[
        Path | None,
        opt("-o --output", "Folder for report.html and compare.json, or one.", "DIR|FILE.html|.json"),
    ] = None,
    json: options.JsonFlag = False,
) -> None:
    """Compare clusters for one model. Step time, tok/s/GPU, tok/s/user and what binds."""
    from placement.options import PlanOptions
    from rackplan.output import command_line, written
    from rackplan.progress import progress
    from rackplan.render.html import page
    from rackplan.results import svg
    from rackplan.views.compare import compare_blocks, compare_view
    from rackplan.work import compared

    finish = written(output, "compare", json=json, html="report.html")
    free = tok_s_user is not None and tok_s_user.strip().lower() == "none"
    targets = [] if tok_s_user is None or free else options.speeds(tok_s_user)
    sides = options.equal_clusters(clusters, gpus, pricing.settings)
    serving = options.Serving(phase=length.phase, context=length.context)
    first = pricing.deployment(model, sides[0], serving, *sides[1:])
    deployments = [replace(first, cluster=side) for side in sides]
    expert_loads = options.model_loads(first.model, [], seed)
    asked = PlanOptions(time_limit_s=0.0, seed=seed, tpot_s="none" if free else None)
    with progress() as reporter:
        found = compared(deployments, expert_loads, asked, targets, say=reporter.stage)
        view = compare_view(found)

        def report() -> str:
            reporter.stage("drawing")
            drawings = {side.name: svg(side) or "" for side in sides}
            return page(compare_blocks(found, command=command_line(), drawings=drawings))

        finish(view, {"report.html": report})
    if all(row.tok_s_per_gpu is None for row in found.rows):
        raise InfeasibleError("none of the clusters runs this: " + found.rows[0].reason)
