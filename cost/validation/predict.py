"""What the model says about measured points: one list of predictions, whatever the points measure."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from cost.calibration.alltoall import KernelUse, default_kernel, find_kernel
from cost.dtypes import dtype
from cost.experts.volumes import Routing, Volumes, alltoall_volumes
from cost.resolve import model_names, resolve_model
from cost.terms.alltoall_kernel import Leg, alltoall_seconds, wire_bytes
from cost.validation.choices import choices
from cost.validation.point import NO_LAYOUT, Point, Prediction
from cost.validation.serving import predict_serving
from topology.base.errors import InputError
from topology.base.reading import nearest
from topology.catalog import cluster_names
from topology.files.resolve import resolve_cluster
from topology.structures.domain import DomainSpec

ALLTOALL = "alltoall"
"""The phase of points that are the time of one dispatch or combine; all others are of served models."""


def predict(points: Sequence[Point], *, residual: bool = True) -> list[Prediction]:
    """Return a prediction for each point, in their order; one without a value says why.

    Parameters
    ----------
    residual:
        Whether to add the learned correction (:mod:`cost.calibration.residual`).
    """
    stated, chosen = list(points), [""] * len(points)
    found = [Prediction(None, _unpredictable(point)) for point in points]
    left = [i for i, point in enumerate(points) if point.is_open and not found[i].reason]
    for i, choice in zip(left, choices([points[i] for i in left]), strict=True):
        if choice.point is None:
            found[i] = Prediction(None, choice.text)
        else:
            stated[i], chosen[i] = choice.point, choice.text
    for of_kernels in (True, False):
        mine = [
            i
            for i, point in enumerate(points)
            if not found[i].reason and (point.phase == ALLTOALL) == of_kernels
        ]
        given = [stated[i] for i in mine]
        told = predict_alltoall(given) if of_kernels else predict_serving(given, residual=residual)
        for i, prediction in zip(mine, told, strict=True):
            found[i] = replace(_finite(prediction), chosen=chosen[i])
    return found


def _finite(prediction: Prediction) -> Prediction:
    """A value that is no time and no rate is no prediction."""
    if prediction.value is None or (math.isfinite(prediction.value) and prediction.value > 0):
        return prediction
    return Prediction(None, f"the model gives {prediction.value:g}")


def unpredictable(point: Point) -> str:
    """Return why nobody could predict a point from what its row says alone; empty if it says enough."""
    return "the row leaves its layout or its batch to the model" if point.is_open else _unpredictable(point)


def _unpredictable(point: Point) -> str:
    """As :func:`unpredictable`, but for what the row leaves to the model."""
    reason = _unknown("cluster", point.cluster)
    if reason or point.phase == ALLTOALL:
        return reason
    reasons = [
        _unknown("model", point.model),
        *(_unknown("format", name) for name in (point.weights, point.experts_dtype) if name),
        _incomplete(point),
    ]
    return next(filter(None, reasons), "")


def _incomplete(point: Point) -> str:
    """Return what a row of a served model leaves out that every prediction of its phase needs."""
    served = point.phase in ("aggregated", "disaggregated")
    lacks = {
        "the row gives no parallel layout (tp, attention_dp, ep, moe_tp are all blank)": point.pool
        == NO_LAYOUT,
        "the row gives neither batch_per_gpu nor concurrency": (
            point.phase != "prefill" and not point.batch and not point.concurrency
        ),
        "the row does not give isl and osl": served and not (point.isl and point.osl),
        "the row gives neither context nor isl": not (point.context or point.isl),
    }
    return next((reason for reason, lacking in lacks.items() if lacking), "")


@cache
def _unknown(what: str, name: str) -> str:
    """Return why nothing goes by the ``name`` of a ``cluster``, ``model`` or format; empty where something does."""
    names, suffixes, read = _KNOWN[what]
    if names and name not in names() and not name.lower().endswith(suffixes):
        return f"{what} {name!r} is not in the catalog; {nearest(name, names())}"
    try:
        read(name)
    except InputError as error:
        return str(error)
    return ""


_Known = tuple[Callable[[], Collection[str]] | None, tuple[str, ...], Callable[[str], object]]
_KNOWN: Mapping[str, _Known] = {
    "cluster": (cluster_names, (".yaml", ".yml"), resolve_cluster),
    "model": (model_names, (".json",), resolve_model),
    "format": (None, (), dtype),
}


# All-to-all: measured dispatches and combines.

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
    first, out = _fabrics(point.cluster)
    up, out = first.fabric.name, point.out_bytes_per_s or out
    ep, domain = point.pool.ep, point.gpus_per_domain or first.gpus
    crosses = ep > domain
    if what.kernel:
        use = find_kernel(what.kernel, tokens=what.tokens, up_fabric=up, crosses=crosses)
    else:
        phase = "prefill" if what.tokens > LARGEST_DECODE_TOKENS else "decode"
        use = KernelUse(default_kernel(phase, up_fabric=up, crosses=crosses))
    routing = Routing(what.experts, what.top_k, what.groups, what.topk_groups, use.spread)
    if crosses and out <= 0:
        raise InputError(
            f"{point.id}: EP {ep} spans domains of {domain}, and {point.cluster} has no scale-out rate."
        )
    leg = LEGS[point.quantity]
    volumes = alltoall_volumes(use.kernel.family, routing, tokens=what.tokens, ep=ep, domain_gpus=domain)
    fmt = what.dispatch_dtype if leg == "dispatch" else what.combine_dtype
    stand_in = use.kernel.stand_in(up)
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


@cache
def _fabrics(name: str) -> tuple[DomainSpec, float]:
    """First domain of a cluster, and scale-out bytes/s per GPU (0: none)."""
    spec = resolve_cluster(name).spec
    out = spec.scale_out
    return spec.domains[0], out.scale_out_bytes_per_s / out.total_oversubscription if out else 0.0


@cache
def _up_bytes_per_s(name: str, gpus: int) -> float:
    """Bytes/s per GPU of an all-to-all among the first ``gpus`` GPUs of a domain."""
    cluster = resolve_cluster(name)
    domain = cluster.spec.domains[0]
    if domain.switched or gpus < 2:
        return domain.scale_up_bytes_per_s
    from topology.routes import Router, uniform_bytes_per_s

    return min(domain.scale_up_bytes_per_s, uniform_bytes_per_s(cluster, list(range(gpus)), Router(cluster)))
