"""What a command and the function of the library of its name do alike, once what they were given is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Any

from topology.errors import InfeasibleError, InputError

if TYPE_CHECKING:
    from cost.cache_path import CachePath
    from cost.deployment import Deployment
    from cost.layouts import Sweep
    from cost.lengths import Lengths
    from cost.loads import ExpertLoads
    from cost.service_limits import LimitError
    from cost.sizing import Demand, Size
    from placement.options import PlanOptions
    from rackplan.results import Comparison
    from rackplan.views.sweep import Pools
    from topology.cluster import Cluster

STORY_TOK_S_USER = 20.0
"""Speed per user of a story: 50 ms a token."""


def swept(
    deployment: Deployment,
    *,
    redundant: int | None = None,
    imbalance: float | None = 1.0,
    speeds: Sequence[float] = (),
) -> Sweep:
    """Return every layout at every batch, priced.

    Raises
    ------
    InputError
        As of :func:`cost.layouts.sweep`.
    InfeasibleError
        If nothing fits: by how much.
    """
    from cost.layouts import sweep

    found = sweep(deployment, redundant=redundant, imbalance=imbalance, speeds=speeds)
    if not len(found):
        raise InfeasibleError(
            f"HBM capacity binds: no layout of {deployment.model.name} on "
            f"{deployment.cluster.name} holds a sequence of "
            f"{deployment.workload.context:,} tokens; the nearest lacks {found.shortage_bytes / 1e9:.1f} GB per GPU."
        )
    return found


@dataclass(frozen=True, kw_only=True)
class BothPhases:
    """What is asked of two pools that are matched.

    Attributes
    ----------
    isl, osl:
        Tokens of a prompt and of an answer.
    ttft_s, tpot_s:
        Limits in seconds, None: none. ``ttft_usual``: nobody asked for the first.
    prefix_hit, kv_offload, host_link:
        Part of each prompt that a cache holds, the tier where it lies (None: HBM), and the GPU's link to its host.
    imbalance, redundant, speeds:
        As of :func:`cost.layouts.sweep`; the speeds are of decode.
    """

    isl: int
    osl: int
    ttft_s: float | None
    tpot_s: float | None = None
    ttft_usual: bool = False
    prefix_hit: float = 0.0
    kv_offload: str | None = None
    host_link: str | None = None
    imbalance: float | None = None
    redundant: int | None = None
    speeds: Sequence[float] = ()

    def fetch(self, prefill: Deployment) -> CachePath | None:
        """Return how a cached prefix comes from where it lies; None where that is HBM."""
        from cost.cache_path import host_path
        from topology.figures import Evidence, Figure
        from topology.units import parse_quantity

        if self.kv_offload is None:
            return None
        link = None
        if self.host_link is not None:
            rate = parse_quantity(self.host_link, "byte/s", "`host_link`")
            link = Figure(rate, "byte/s", Evidence.USER, "--host-link", self.host_link)
        return host_path(prefill, self.kv_offload, link=link)


def matched(deployment: Deployment, prefills: Cluster, asked: BothPhases) -> Pools:
    """Return two pools that are matched, ``prefills`` the cluster that prefills.

    Beside them what they would be with prompts recomputed, where that differs.

    Raises
    ------
    InputError
        If something asked cannot be used.
    InfeasibleError
        If no layout of one of them fits.
    """
    from cost.cache_path import fetch_or_recompute
    from cost.pools import match_rates, serving_workloads
    from rackplan.views.sweep import Pools

    base = deployment.workload
    decoding, prefilling = serving_workloads(base, asked.isl, asked.osl, prefix_hit=asked.prefix_hit)
    there = replace(deployment, cluster=prefills, workload=prefilling)
    here = replace(deployment, workload=decoding)
    alike: dict[str, Any] = {"redundant": asked.redundant, "imbalance": asked.imbalance}
    speeds = asked.speeds if asked.tpot_s is None else [*asked.speeds, 1 / asked.tpot_s]
    decode, prefill = swept(here, **alike, speeds=speeds), swept(there, **alike)
    fetch = asked.fetch(prefill.deployment)
    limits: dict[str, Any] = {"osl": asked.osl, "ttft_s": asked.ttft_s, "tpot_s": asked.tpot_s}
    matches = match_rates(decode, prefill, fetch=fetch, **limits)
    pools = Pools(matches, decode, prefill, ttft_s=asked.ttft_s, ttft_default=asked.ttft_usual)
    if fetch is not None:
        whole = swept(replace(there, workload=replace(prefilling, prefix_hit=0.0)), **alike)
        best = matches.best()
        either = None if best is None else fetch_or_recompute(prefill, whole, best.prefill, fetch)
        pools = replace(pools, either=either, recomputed=match_rates(decode, whole, **limits).best())
    return pools


def compared(
    deployments: Sequence[Deployment],
    loads: ExpertLoads | None,
    asked: PlanOptions,
    targets: Sequence[float],
    *,
    story: bool = False,
    say: Callable[[str], None] | None = None,
) -> Comparison:
    """Return the best of each deployment at each of ``targets``; with a ``story`` its two ends, and the story.

    Raises
    ------
    InputError
        If a story has not two clusters and one speed, or as of :func:`placement.compare.compare_clusters`.
    InfeasibleError
        If one end of a story does not reach its speed.
    """
    from placement.compare import compare_clusters
    from placement.story import tell
    from rackplan.results import Comparison

    first, sides, tell_of = deployments[0], [one.cluster for one in deployments], say or (lambda _: None)
    if not story:
        turn = count(1)
        rows = compare_clusters(
            sides,
            first.model,
            first.workload,
            loads,
            asked,
            targets,
            engine=first.engine,
            on_progress=lambda name: tell_of(f"comparing {name}, {next(turn)} of {len(sides)}"),
        )
        usual = not targets and asked.service_level(first.workload).usual
        return Comparison(tuple(rows), tuple(deployments), loads, usual=usual)
    target = targets[0] if targets else None
    told = tell(first, sides[1], loads, asked, target, on_progress=lambda name: tell_of(f"comparing {name}"))
    usual = target is None and asked.service_level(first.workload).usual
    return Comparison((told.first, told.last), tuple(deployments), loads, told, usual=usual)


def story_speed(clusters: int, targets: Sequence[float], phase: str) -> list[float]:
    """Return the one speed of a story; prompts have none unless it is given.

    Raises
    ------
    InputError
        If there are not two clusters, or several speeds.
    """
    if clusters != 2:
        raise InputError(f"--story takes one cluster to another: give two, not {clusters}.")
    if len(targets) > 1:
        raise InputError("--story is told at one speed: give --tok-s-user a single one.")
    return list(targets) or ([STORY_TOK_S_USER] if phase == "decode" else [])


def sized(
    deployment: Deployment,
    demand: Demand,
    usual: frozenset[str],
    *,
    lengths: Lengths | None = None,
    redundant: int | None = None,
    imbalance: float | None = None,
) -> tuple[Size, tuple[LimitError, ...]]:
    """Return how much serves a demand, and which of the ``usual`` limits were left out since nothing keeps them.

    Raises
    ------
    InputError
        If something asked cannot be used.
    InfeasibleError
        If the model does not fit, or nothing keeps a limit that somebody gave.
    """
    from cost.service_limits import giving_way
    from cost.sizing import size
    from placement.fleet.supply import FleetSupply

    given: Any = {"lengths": lengths, "redundant": redundant, "imbalance": imbalance}
    mixed = lengths is not None and len(lengths.isl) > 1

    def of(wanted: Demand) -> Size:
        fleets = None if mixed else FleetSupply(deployment, wanted, **given)
        return size(deployment, wanted, **given, fleets=fleets)

    return giving_way(of, demand, usual)
