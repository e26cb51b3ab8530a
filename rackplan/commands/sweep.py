"""Layouts and clusters compared: every layout at every batch, and several clusters for one model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rackplan import options
from rackplan.options import Group, arg, opt
from topology.errors import InfeasibleError, InputError

if TYPE_CHECKING:
    from rackplan.work import BothPhases


@dataclass(frozen=True, kw_only=True)
class Swept(Group):
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
    ttft_ms: options.TtftLimit = None
    tpot_ms: Annotated[
        str | None, opt("--tpot-ms", "Longest time per output token of matched pools; none: no limit.", "X")
    ] = None
    tok_s_user: Annotated[str | None, opt("--tok-s-user", "Speeds per user: 25,50,100 (tok/s).", "LIST")] = (
        None
    )
    prefix_hit: Annotated[
        float, opt("--prefix-hit", "Part of each prompt that a cache already holds, 0 to below 1.", "F")
    ] = 0.0
    kv_offload: Annotated[
        str | None, opt("--kv-offload", "Where the cached part lies: ddr5, flash. Default: in HBM.", "TIER")
    ] = None
    host_link: Annotated[
        str | None, opt("--host-link", "Link of a GPU to its host, like '63 GB/s'.", "RATE")
    ] = None
    imbalance: Annotated[
        float | None,
        opt(
            "--imbalance",
            "Busiest GPU's expert load over the mean. [1; matched pools: as usual in wide groups]",
            "X",
        ),
    ] = None
    redundant: options.Redundant = None

    def __post_init__(self) -> None:
        """Refuse options that mean nothing without another, or with it."""
        if self.isl is None and self.tpot_ms is not None:
            raise InputError("--tpot-ms: it is of matched pools, only with --isl and --osl.")

    @property
    def lengths(self) -> tuple[int, int] | None:
        """Tokens of a prompt and of an answer where both phases are asked for."""
        return None if self.isl is None or self.osl is None else (self.isl, self.osl)

    @property
    def targets(self) -> Sequence[float]:
        """Speeds per user to show the best at."""
        if self.tok_s_user is not None:
            return options.speeds(self.tok_s_user)
        from rackplan.views.sweep import TARGETS

        return TARGETS if self.phase == "decode" else ()

    @property
    def ttft_s(self) -> float | None:
        """The limit on the time to first token in seconds, None where there is none."""
        from cost.pools import TTFT_LIMIT

        return options.limit_or(self.ttft_ms, "--ttft-ms", TTFT_LIMIT)

    @property
    def tpot_s(self) -> float | None:
        """The limit on the time per output token in seconds, None where there is none."""
        limit = options.limit_s(self.tpot_ms, "--tpot-ms")
        return None if limit == "none" else limit

    @property
    def speeds(self) -> Sequence[float]:
        """Speeds per user that were asked for: each layout is priced at its exact batch there."""
        return [] if self.tok_s_user is None else options.speeds(self.tok_s_user)

    def both(self, isl: int, osl: int) -> BothPhases:
        """Return what is asked of matched pools."""
        from rackplan.work import BothPhases

        return BothPhases(
            isl=isl,
            osl=osl,
            ttft_s=self.ttft_s,
            tpot_s=self.tpot_s,
            ttft_usual=self.ttft_ms is None,
            prefix_hit=self.prefix_hit,
            kv_offload=self.kv_offload,
            host_link=self.host_link,
            imbalance=self.imbalance,
            redundant=self.redundant,
            speeds=self.speeds,
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
    from rackplan.output import command_line, json_text, output_forms, show
    from rackplan.render.html import page
    from rackplan.results import svg
    from rackplan.views.sweep import sweep_csv, sweep_view
    from rackplan.views.sweep_page import sweep_page
    from rackplan.work import matched, swept

    targets = asked.targets
    length = options.CONTEXT if asked.context is None else asked.context
    names = [cluster, *([asked.prefill_cluster] if asked.prefill_cluster else [])]
    clusters = options.given_clusters(names, pricing.settings)
    serving = options.Serving(phase=asked.phase, context=length)
    first = pricing.deployment(model, clusters[0], serving, *clusters[1:])
    write = output_forms(output, "sweep.csv", "sweep.json", "report.html")
    if asked.lengths is None:
        workload = replace(first.workload, prefix_hit=asked.prefix_hit)
        given: dict[str, Any] = {"redundant": asked.redundant, "speeds": asked.speeds}
        imbalance = 1.0 if asked.imbalance is None else asked.imbalance
        sweeps = [swept(replace(first, workload=workload), imbalance=imbalance, **given)]
        pools = None
    else:
        pools = matched(first, clusters[-1], asked.both(*asked.lengths))
        sweeps = [pools.decode, pools.prefill]
    view = sweep_view(sweeps, pools, targets)

    def report() -> str:
        drawings = {one.name: svg(one) or "" for one in clusters}
        return page(sweep_page(sweeps, pools, targets, command=command_line(), drawings=drawings))

    if write is not None:
        write(
            {
                "sweep.csv": lambda: sweep_csv(sweeps),
                "sweep.json": lambda: json_text(view.data),
                "report.html": report,
            }
        )
    show(view, json=json)


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
    story: Annotated[
        bool,
        opt("--story", "Take the first of two to the second one factor at a time, at one speed [20]."),
    ] = False,
    loads: options.Loads = None,
    serving: options.Serving,
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
    from rackplan.output import command_line, json_text, output_forms, show
    from rackplan.progress import progress
    from rackplan.render.html import page
    from rackplan.results import svg
    from rackplan.views.compare import compare_view
    from rackplan.views.compare_page import compare_page
    from rackplan.work import compared, story_speed

    free = tok_s_user is not None and tok_s_user.strip().lower() == "none"
    targets = [] if tok_s_user is None or free else options.speeds(tok_s_user)
    if story:
        told_at = story_speed(len(clusters), targets, serving.phase)
        targets = [] if free else told_at
    sides = options.equal_clusters(clusters, gpus, pricing.settings)
    first = pricing.deployment(model, sides[0], serving, *sides[1:])
    deployments = [replace(first, cluster=side) for side in sides]
    expert_loads = options.model_loads(first.model, loads or [], seed)
    asked = PlanOptions(time_limit_s=0.0, seed=seed, tpot_s="none" if free else None)
    write = output_forms(output, "compare.json", "report.html")
    with progress() as reporter:
        found = compared(deployments, expert_loads, asked, targets, story=story, say=reporter.stage)
        view = compare_view(found.rows, deployments, expert_loads, found.story, usual=found.usual)

        def report() -> str:
            reporter.stage("drawing")
            drawings = {side.name: svg(side) or "" for side in sides}
            given: dict[str, Any] = {"command": command_line(), "story": found.story, "drawings": drawings}
            return page(compare_page(found.rows, deployments, expert_loads, **given))

        if write is not None:
            write({"compare.json": lambda: json_text(view.data), "report.html": report})
    show(view, json=json)
    if all(row.tok_s_per_gpu is None for row in found.rows):
        raise InfeasibleError("none of the clusters runs this: " + found.rows[0].reason)
