"""Every layout of a request priced: of one phase, or of whole requests in one pool or two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rackplan.requests import CompareRequest, SimulateRequest, SweepRequest
from topology.base.errors import InfeasibleError

if TYPE_CHECKING:
    from cost.inputs.deployment import Deployment
    from cost.layouts import Sweep
    from cost.serving.result import Pools
    from cost.serving.serving import Serving
    from topology.cluster import Cluster


def within_limit(found: Sweep, request: SweepRequest) -> Sweep:
    """Return a sweep of one phase with the limit that its best keeps.

    Raises
    ------
    LimitError
        If nothing keeps a limit that was given.
    """
    default = found.deployment.workload.decodes and request.tpot_s is None
    return found.within(request.limit_s, default=default)


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

    found = sweep_layouts(deployment, imbalance=1.0, speeds=speeds)
    _require_some(found)
    return found


def _require_some(found: Sweep) -> None:
    deployment = found.deployment
    if not len(found):
        raise InfeasibleError(
            f"HBM capacity binds: no layout of {deployment.model.name} on {deployment.cluster.name} holds a sequence "
            f"of {deployment.workload.context:,} tokens; the closest lacks {found.shortage_bytes / 1e9:.1f} GB per "
            "GPU."
        )


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
    found = serving_of(deployment, request, [] if tpot_s is None else [tpot_s], prefills)
    if found.best(tpot_s) is None and request.tpot_s is None:
        tpot_s = None
    return Pools(found, tpot_s, tpot_default=request.tpot_s is None, ttft_default=request.ttft_ms is None)


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

    whole = request.whole
    assert whole is not None  # noqa: S101 - else one phase is asked about
    found = Serving.of(
        deployment,
        whole,
        prefills=prefills,
        ttft_s=request.ttft_s,
        speeds=[1 / tpot_s for tpot_s in tpots],
    )
    for side in (found.decode, found.prefill):
        _require_some(side)
    return found.reachable() if request.ttft_ms is None else found
