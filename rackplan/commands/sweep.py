"""Layouts and clusters compared: every layout at every batch, and several clusters for one model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rackplan import options
from rackplan.options import Group, arg, opt
from topology.errors import InfeasibleError, InputError

if TYPE_CHECKING:
    from cost.cache_path import CachePath
    from cost.deployment import Deployment
    from cost.layouts import Sweep
    from cost.loads import ExpertLoads
    from placement.compare import CompareRow
    from placement.options import PlanOptions
    from placement.story import Story
    from rackplan.views.sweep import Pools
    from topology.cluster import Cluster

STORY_TOK_S_USER = 20.0
"""Speed per user of a story: 50 ms a token."""
TARGETS = (25.0, 50.0, 75.0, 100.0, 125.0, 150.0, 200.0)
"""Speeds per user that comparisons of chips usually stand at."""


@dataclass(frozen=True, kw_only=True)
class Swept(Group):
    """What is swept, and the pools that are matched."""

    phase: options.Phase = "decode"
    context: Annotated[
        int | None,
        opt("--context", "Tokens already in each sequence; prefill: of each prompt. Default 4096."),
    ] = None
    isl: Annotated[int | None, opt("--isl", "With --osl: tokens of a prompt; sweeps both phases.", "N")] = (
        None
    )
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
    afd: Annotated[bool, opt("--afd", "Decode with attention and experts on different GPUs.")] = False
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
        asked = [] if self.tok_s_user is None else options.speeds(self.tok_s_user)
        return asked if self.tpot_s is None else [*asked, 1 / self.tpot_s]

    def fetch(self, prefill: Deployment) -> CachePath | None:
        """Return how a cached prefix comes from where it lies; None where that is HBM."""
        from cost.cache_path import host_path
        from topology.figures import Evidence, Figure
        from topology.units import parse_quantity

        if self.kv_offload is None:
            return None
        link = None
        if self.host_link is not None:
            rate = parse_quantity(self.host_link, "byte/s", "--host-link")
            link = Figure(rate, "byte/s", Evidence.USER, "--host-link", self.host_link)
        return host_path(prefill, self.kv_offload, link=link)


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

    targets = asked.targets
    length = options.CONTEXT if asked.context is None else asked.context
    names = [cluster, *([asked.prefill_cluster] if asked.prefill_cluster else [])]
    clusters = options.given_clusters(names, pricing.settings)
    serving = options.Serving(phase=asked.phase, context=length)
    first = pricing.deployment(model, clusters[0], serving, *clusters[1:])
    with output_forms(output, "sweep.csv", "sweep.json", "report.html") as write:
        if asked.lengths is None:
            workload = replace(first.workload, prefix_hit=asked.prefix_hit)
            sweeps, pools = [_sweep(replace(first, workload=workload), asked, apart=asked.afd)], None
        else:
            sweeps, pools = _pools(first, clusters[-1], asked, *asked.lengths)
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

    free = tok_s_user is not None and tok_s_user.strip().lower() == "none"
    targets = [] if tok_s_user is None or free else options.speeds(tok_s_user)
    if story:
        told_at = _story_speed(clusters, targets, serving.phase)
        targets = [] if free else told_at
    sides = options.equal_clusters(clusters, gpus, pricing.settings)
    first = pricing.deployment(model, sides[0], serving, *sides[1:])
    deployments = [replace(first, cluster=side) for side in sides]
    expert_loads = options.model_loads(first.model, loads or [], seed)
    asked = PlanOptions(time_limit_s=0.0, seed=seed, tpot_s="none" if free else None)
    with output_forms(output, "compare.json", "report.html") as write, progress() as reporter:
        rows, told = _compared(deployments, expert_loads, asked, targets, reporter.stage, story=story)
        usual = not targets and asked.service_level(first.workload).usual
        view = compare_view(rows, deployments, expert_loads, told, usual=usual)

        def report() -> str:
            reporter.stage("drawing")
            drawings = {side.name: svg(side) or "" for side in sides}
            given: dict[str, Any] = {"command": command_line(), "story": told, "drawings": drawings}
            return page(compare_page(rows, deployments, expert_loads, **given))

        if write is not None:
            write({"compare.json": lambda: json_text(view.data), "report.html": report})
    show(view, json=json)
    if all(row.tok_s_per_gpu is None for row in rows):
        raise InfeasibleError("none of the clusters runs this: " + rows[0].reason)


def _compared(
    deployments: Sequence[Deployment],
    loads: ExpertLoads | None,
    asked: PlanOptions,
    targets: Sequence[float],
    say: Callable[[str], None],
    *,
    story: bool,
) -> tuple[list[CompareRow], Story | None]:
    """Return the rows of a comparison; with a story those of its two ends, and the story."""
    from placement.compare import compare_clusters
    from placement.story import tell

    first, sides = deployments[0], [one.cluster for one in deployments]
    turn = count(1)
    if not story:
        rows = compare_clusters(
            sides,
            first.model,
            first.workload,
            loads,
            asked,
            targets,
            engine=first.engine,
            on_progress=lambda name: say(f"comparing {name}, {next(turn)} of {len(sides)}"),
        )
        return rows, None
    target = targets[0] if targets else None
    told = tell(first, sides[1], loads, asked, target, on_progress=lambda name: say(f"comparing {name}"))
    return [told.first, told.last], told


def _story_speed(clusters: Sequence[str], targets: Sequence[float], phase: str) -> list[float]:
    """Return the one speed of a story; prompts have none unless it is given."""
    if len(clusters) != 2:
        raise InputError(f"--story takes one cluster to another: give two, not {len(clusters)}.")
    if len(targets) > 1:
        raise InputError("--story is told at one speed: give --tok-s-user a single one.")
    return list(targets) or ([STORY_TOK_S_USER] if phase == "decode" else [])


def _pools(first: Deployment, where: Cluster, asked: Swept, isl: int, osl: int) -> tuple[list[Sweep], Pools]:
    """Match the pools, prefill on ``where``; beside them what they would be with prompts recomputed, or no AFD."""
    from cost.cache_path import fetch_or_recompute
    from cost.pools import match_rates, serving_workloads
    from rackplan.views.sweep import Pools

    decoding, prefilling = serving_workloads(first.workload, isl, osl, prefix_hit=asked.prefix_hit)
    there = replace(first, cluster=where, workload=prefilling)
    here = replace(first, workload=decoding)
    decode, prefill = _sweep(here, asked, apart=asked.afd), _sweep(there, asked)
    fetch = asked.fetch(prefill.deployment)
    limits: dict[str, Any] = {"osl": osl, "ttft_s": asked.ttft_s, "tpot_s": asked.tpot_s}
    matches = match_rates(decode, prefill, fetch=fetch, **limits)
    pools = Pools(matches, decode, prefill, ttft_s=limits["ttft_s"], ttft_default=asked.ttft_ms is None)
    if fetch is not None:
        whole = _sweep(replace(there, workload=replace(prefilling, prefix_hit=0.0)), asked)
        best = matches.best()
        either = None if best is None else fetch_or_recompute(prefill, whole, best.prefill, fetch)
        pools = replace(pools, either=either, recomputed=match_rates(decode, whole, **limits).best())
    if asked.afd:
        joint = _sweep(here, asked)
        pools = replace(pools, joint=match_rates(joint, prefill, fetch=fetch, **limits).best())
    return [decode, prefill], pools


def _sweep(deployment: Deployment, asked: Swept, *, apart: bool = False) -> Sweep:
    """Sweep one side, with attention ``apart`` from experts or not; that nothing fits is said before any speed."""
    from cost.afd import afd_sweep
    from cost.layouts import sweep as priced

    imbalance = 1.0 if asked.lengths is None and asked.imbalance is None else asked.imbalance
    found: Sweep = (
        afd_sweep(deployment, imbalance=imbalance)
        if apart
        else priced(
            deployment,
            redundant=asked.redundant,
            imbalance=imbalance,
            speeds=asked.speeds if deployment.workload.decodes or asked.lengths is None else (),
        )
    )
    if not len(found):
        raise InfeasibleError(
            f"HBM capacity binds: no layout of {deployment.model.name} on "
            f"{deployment.cluster.name} holds a sequence of "
            f"{deployment.workload.context:,} tokens; the nearest lacks {found.shortage_bytes / 1e9:.1f} GB per GPU."
        )
    return found
