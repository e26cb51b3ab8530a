"""What the all-to-all model says about measured dispatches and combines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from cost.calibration.alltoall import KernelUse, default_kernel, find_kernel
from cost.terms.alltoall_kernel import Leg, alltoall_seconds, wire_bytes
from cost.terms.alltoall_volumes import Routing, Volumes, alltoall_volumes
from cost.validation.point import Point, Prediction
from topology.errors import InputError
from topology.resolve import resolve_cluster

LARGEST_DECODE_TOKENS = 1024
"""A point that names no kernel and has more tokens per GPU is taken for prefill."""

LEGS = {"dispatch_us": "dispatch", "combine_us": "combine"}


@dataclass(frozen=True)
class Case:
    """A point in the terms of :func:`cost.terms.alltoall_kernel.alltoall_seconds`."""

    use: KernelUse
    leg: str
    volumes: Volumes
    vector_bytes: float
    up_bytes_per_s: float
    out_bytes_per_s: float
    ep: int
    reason: str = ""

    def coefficients(self) -> Leg:
        """Coefficients of the kernel in this direction."""
        return self.use.kernel.dispatch if self.leg == "dispatch" else self.use.kernel.combine


def predict_alltoall(points: Sequence[Point]) -> list[Prediction]:
    """Return the predicted microseconds of each point, or why there are none, in the order of ``points``."""
    return [_predict(point) for point in points]


def _predict(point: Point) -> Prediction:
    try:
        case = alltoall_case(point)
        seconds = alltoall_seconds(
            case.coefficients(),
            case.volumes,
            vector_bytes=case.vector_bytes,
            up_bytes_per_s=case.up_bytes_per_s,
            out_bytes_per_s=case.out_bytes_per_s,
            ep=case.ep,
        )
    except InputError as error:
        return Prediction(None, str(error))
    return Prediction(float(seconds) * 1e6, case.reason)


def alltoall_case(point: Point) -> Case:
    """Return the kernel, vectors and rates of a point.

    Raises
    ------
    InputError
        If the point is no dispatch or combine, or names a kernel, cluster or format that is not known.
    """
    what = point.alltoall
    if what is None or point.quantity not in LEGS:
        raise InputError(f"{point.id}: {point.quantity} is not the time of a dispatch or a combine.")
    if what.tokens <= 0 or what.hidden <= 0:
        raise InputError(
            f"{point.id}: tokens per GPU and hidden size are needed; found {what.tokens:g}, {what.hidden}."
        )
    fabric = _fabrics(point.cluster)
    ep, domain = point.pool.ep, point.gpus_per_domain or fabric.domain_gpus
    crosses = ep > domain
    if what.kernel:
        use = find_kernel(what.kernel, tokens=what.tokens, up_fabric=fabric.up, crosses=crosses)
    else:
        phase = "prefill" if what.tokens > LARGEST_DECODE_TOKENS else "decode"
        use = KernelUse(default_kernel(phase, up_fabric=fabric.up, crosses=crosses))
    routing = Routing(what.experts, what.top_k, what.groups, what.topk_groups, use.spread)
    out = point.out_bytes_per_s or fabric.out_bytes_per_s
    if crosses and out <= 0:
        raise InputError(
            f"{point.id}: EP {ep} spans domains of {domain}, and {point.cluster} has no scale-out rate."
        )
    leg = LEGS[point.quantity]
    volumes = alltoall_volumes(use.kernel.family, routing, tokens=what.tokens, ep=ep, domain_gpus=domain)
    fmt = what.dispatch_dtype if leg == "dispatch" else what.combine_dtype
    stand_in = use.kernel.stand_in(fabric.up)
    return Case(
        use,
        leg,
        volumes,
        wire_bytes(what.hidden, fmt or "bf16"),
        point.up_bytes_per_s or _up_bytes_per_s(point.cluster, min(ep, domain)),
        out,
        ep,
        "; ".join(note for note in (use.note, stand_in) if note),
    )


@dataclass(frozen=True)
class _Fabrics:
    up: str
    domain_gpus: int
    out_bytes_per_s: float


@cache
def _fabrics(name: str) -> _Fabrics:
    """Fabric and size of the first domain of a cluster, and scale-out bytes/s per GPU (0: none)."""
    spec = resolve_cluster(name).spec
    domain, out = spec.domains[0], spec.scale_out
    rate = out.scale_out_bytes_per_s / out.total_oversubscription if out else 0.0
    return _Fabrics(domain.fabric.name, domain.gpus, rate)


@cache
def _up_bytes_per_s(name: str, gpus: int) -> float:
    """Bytes/s per GPU of an all-to-all among the first ``gpus`` GPUs of a domain."""
    cluster = resolve_cluster(name)
    domain = cluster.spec.domains[0]
    if domain.structure == "switch" or gpus < 2:
        return domain.scale_up_bytes_per_s
    from topology.routes import Router, uniform_bytes_per_s

    return min(domain.scale_up_bytes_per_s, uniform_bytes_per_s(cluster, list(range(gpus)), Router(cluster)))
