"""Every layout of a request priced: of one phase, or of whole requests in one pool or two."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rackplan.requests import CompareRequest, SimulateRequest, SweepRequest, Whole

if TYPE_CHECKING:
    from cost.inputs.deployment import Deployment
    from cost.layouts import Sweep
    from cost.queueing.conversations import Conversations
    from cost.serving.lengths import Lengths
    from cost.serving.result import Pools
    from cost.serving.serving import Serving
    from topology.cluster import Cluster


def within_limit(sweep: Sweep, request: SweepRequest) -> Sweep:
    """Return a sweep of one phase with the limit that its best keeps.

    Raises
    ------
    LimitError
        If nothing keeps a limit that was given.
    """
    default = sweep.deployment.workload.decodes and request.tpot_s is None
    return sweep.within(request.limit_s, default=default)


def swept(deployment: Deployment, *, speeds: Sequence[float] = ()) -> Sweep:
    """Price every layout at every batch, with balanced experts.

    Raises
    ------
    InputError
        As of :func:`cost.layouts.sweep`.
    InfeasibleError
        If nothing fits: by how much.
    """
    from cost.layouts import sweep as sweep_layouts

    return sweep_layouts(deployment, imbalance=1.0, speeds=speeds).that_fits()


def served(
    deployment: Deployment, request: SweepRequest | SimulateRequest, prefills: Cluster | None = None
) -> Pools:
    """Return how a cluster serves whole requests, or how one decodes while another one ``prefills``.

    Raises
    ------
    InputError
        If something asked cannot be used.
    InfeasibleError
        If the model does not fit.
    """
    from cost.serving.result import Pools

    tpot_s, _ = request.limits_s
    serving = serving_of(deployment, request, [] if tpot_s is None else [tpot_s], prefills)
    if serving.best(tpot_s) is None and request.tpot_s is None:
        tpot_s = None
    return Pools(serving, tpot_s, tpot_default=request.tpot_s is None, ttft_default=request.ttft_ms is None)


def serving_of(
    deployment: Deployment,
    request: SweepRequest | CompareRequest | SimulateRequest,
    tpots: Sequence[float],
    prefills: Cluster | None = None,
) -> Serving:
    """Return how whole requests are served; each layout has its exact batch at the times per token ``tpots``.

    Raises
    ------
    InputError
        If lengths are wrong.
    InfeasibleError
        If the model does not fit: by how much.
    """
    from cost.serving.serving import Serving

    def priced(lengths: Lengths) -> Serving:
        serving = Serving.of(
            deployment,
            lengths,
            prefills=prefills,
            ttft_s=request.ttft_s,
            speeds=[1 / tpot_s for tpot_s in tpots],
        )
        for side in (serving.decode, serving.prefill):
            side.that_fits()
        return serving.reachable() if request.ttft_ms is None else serving

    chats = conversations(deployment, request, tpots[0] if tpots else None, priced)
    lengths = settled(chats, request, deployment)
    assert lengths is not None  # noqa: S101 - else one phase is asked about
    return priced(lengths)


def conversations(
    deployment: Deployment,
    request: Whole,
    tpot_s: float | None,
    priced: Callable[[Lengths], Serving] | None = None,
) -> Conversations | None:
    """Return conversations as a cluster serves them within limits; None where requests come alone.

    ``priced``: sweeps of requests of such lengths; None: as every command makes them by default.
    """
    from cost.queueing.conversations import Conversations
    from cost.serving.serving import Serving

    if request.conversations is None:
        return None
    _, ttft_s = getattr(request, "limits_s", (None, getattr(request, "ttft_s", None)))

    def by_default(lengths: Lengths) -> Serving:
        speeds = [] if tpot_s is None else [1 / tpot_s]
        return Serving.of(deployment, lengths, ttft_s=ttft_s, speeds=speeds).reachable()

    return Conversations(request.conversations, priced or by_default, tpot_s, getattr(request, "cv", 0.0))


def settled(served: Conversations | None, request: Whole, deployment: Deployment) -> Lengths | None:
    """Return the lengths of requests, those of conversations with the hits that the cluster's caches reach."""
    if served is None or request.given("prefix_hit"):
        return request.whole
    return served.settled(deployment.prices.memory)
