"""What a command and the function of the library of its name do alike, once what they were given is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Any

from topology.base.errors import InfeasibleError

if TYPE_CHECKING:
    from cost.experts.loads import ExpertLoads
    from cost.inputs.deployment import Deployment
    from cost.layouts import Sweep
    from cost.serving.lengths import Lengths
    from cost.serving.limits import LimitError
    from cost.serving.sizing import Demand, Size
    from placement.options import PlanOptions
    from rackplan.views.compare import Comparison
    from rackplan.views.pools import Pools
    from topology.cluster import Cluster


def swept(
    deployment: Deployment,
    *,
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

    found = sweep(deployment, imbalance=imbalance, speeds=speeds)
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
    prefix_hit:
        Part of each prompt that a cache holds in HBM.
    """

    isl: int
    osl: int
    ttft_s: float | None
    tpot_s: float | None = None
    ttft_usual: bool = False
    prefix_hit: float = 0.0


def matched(deployment: Deployment, prefills: Cluster, asked: BothPhases) -> Pools:
    """Return two pools that are matched, ``prefills`` the cluster that prefills.

    Raises
    ------
    InputError
        If something asked cannot be used.
    InfeasibleError
        If no layout of one of them fits.
    """
    from cost.serving.lengths import serving_workloads
    from cost.serving.pools import match_rates
    from rackplan.views.pools import Pools

    base = deployment.workload
    decoding, prefilling = serving_workloads(base, asked.isl, asked.osl, prefix_hit=asked.prefix_hit)
    there = replace(deployment, cluster=prefills, workload=prefilling)
    here = replace(deployment, workload=decoding)
    speeds = [] if asked.tpot_s is None else [1 / asked.tpot_s]
    decode, prefill = swept(here, imbalance=None, speeds=speeds), swept(there, imbalance=None)
    limits: dict[str, Any] = {"osl": asked.osl, "ttft_s": asked.ttft_s, "tpot_s": asked.tpot_s}
    matches = match_rates(decode, prefill, **limits)
    return Pools(matches, decode, prefill, ttft_s=asked.ttft_s, ttft_default=asked.ttft_usual)


def compared(
    deployments: Sequence[Deployment],
    loads: ExpertLoads | None,
    asked: PlanOptions,
    targets: Sequence[float],
    *,
    say: Callable[[str], None] = lambda _: None,
) -> Comparison:
    """Return the best of each deployment at each of ``targets``.

    Raises
    ------
    InputError
        As of :func:`placement.analysis.compare.compare_clusters`.
    """
    from placement.analysis.compare import compare_clusters
    from rackplan.views.compare import Comparison

    first, turn = deployments[0], count(1)
    rows = compare_clusters(
        [one.cluster for one in deployments],
        first.model,
        first.workload,
        loads,
        asked,
        targets,
        engine=first.engine,
        on_progress=lambda name: say(f"comparing {name}, {next(turn)} of {len(deployments)}"),
    )
    usual = not targets and asked.service_level(first.workload).usual
    return Comparison(tuple(rows), tuple(deployments), loads, usual=usual)


def sized(
    deployment: Deployment,
    demand: Demand,
    usual: frozenset[str],
    *,
    lengths: Lengths | None = None,
) -> tuple[Size, tuple[LimitError, ...]]:
    """Return how much serves a demand, and which of the ``usual`` limits were left out since nothing keeps them.

    Raises
    ------
    InputError
        If something asked cannot be used.
    InfeasibleError
        If the model does not fit, or nothing keeps a limit that somebody gave.
    """
    from cost.serving.limits import relax_default_limits
    from cost.serving.sizing import size
    from placement.fleet.supply import FleetOnUnits

    mixed = lengths is not None and len(lengths.isl) > 1

    def of(wanted: Demand) -> Size:
        fleet = None if mixed else FleetOnUnits(deployment, wanted, lengths=lengths)
        return size(deployment, wanted, lengths=lengths, fleet=fleet)

    return relax_default_limits(of, demand, usual)
