"""What can be changed of a deployment besides its layout: the machine, the context, formats."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from cost.config.build import model_from_config
from cost.dtypes import bytes_per_param, cache_bytes_per_element, multiply_dtype
from cost.inputs.deployment import Deployment
from cost.model import Model
from topology.base.errors import InputError
from topology.base.units import format_quantity
from topology.changes.overrides import PEAKS, overrides
from topology.cluster import Cluster

FACTORS = {"+10%": 1.1, "x2": 2.0}
"""By how much figures of the machine are changed."""
Changed = tuple[str, str, str, Deployment | str]
"""Name of the lever, by how much, what it is then, and the deployment or why it cannot be."""

_HARDWARE = (
    ("HBM bandwidth", "gpu", "hbm_bytes_per_s"),
    ("HBM capacity", "gpu", "hbm_bytes"),
    ("flop/s", "gpu", PEAKS),
    ("scale-up bandwidth", "scale-up", "link_bytes_per_s"),
    ("scale-out bandwidth", "scale-out", "link_bytes_per_s"),
)
_WEIGHTS = ("bf16", "fp8", "fp4")
_CACHES = ("bf16", "fp8")


@dataclass(frozen=True, eq=False)
class Machine:
    """A cluster with one figure of all its GPUs or links changed, or ``why`` it cannot be."""

    name: str
    change: str
    to: str
    cluster: Cluster
    why: str = ""


def machines(cluster: Cluster) -> Iterator[Machine]:
    """Yield the cluster with each figure of :data:`_HARDWARE` raised by each of :data:`FACTORS`."""
    for name, part, figure in _HARDWARE:
        if part == "scale-out" and len({gpu.domain for gpu in cluster.gpus}) < 2:
            why = "the cluster is one domain: nothing leaves it"
            yield from (Machine(name, change, "", cluster, why) for change in FACTORS)
            continue
        if part == "scale-up" and all(domain.gpus == 1 for domain in cluster.spec.domains):
            why = "no two GPUs share a domain"
            yield from (Machine(name, change, "", cluster, why) for change in FACTORS)
            continue
        for change, factor in FACTORS.items():
            try:
                (changed,) = overrides([cluster], [f"{part}.{figure}={factor:g}x"])
            except InputError as error:
                yield Machine(name, change, "", cluster, str(error))
                continue
            yield Machine(name, change, _said(changed, part, figure), changed)


def _said(cluster: Cluster, part: str, figure: str) -> str:
    """Return a figure that was changed, as of every GPU; empty where GPUs differ in it."""
    spec = cluster.spec
    if part == "scale-out":
        rates = {0.0 if spec.scale_out is None else spec.scale_out.scale_out_bytes_per_s}
    elif part == "scale-up":
        rates = {domain.scale_up_bytes_per_s for domain in spec.domains}
    elif figure == PEAKS:
        rates = {domain.gpu.dense_flop_per_s("bf16") for domain in spec.domains}
    else:
        rates = {domain.gpu.figure(figure).value for domain in spec.domains}
    unit = {"hbm_bytes": "byte", PEAKS: "flop/s"}.get(figure, "byte/s")
    text = format_quantity(next(iter(rates)), unit) if len(rates) == 1 else ""
    return f"{text} BF16" if text and figure == PEAKS else text


def other_context(deployment: Deployment) -> Iterator[Changed]:
    """Yield the deployment at half the context, a tenth more, and twice."""
    context = deployment.workload.context
    lengths = {"half": context // 2, "+10%": round(1.1 * context), "x2": 2 * context}
    for change, length in lengths.items():
        if length < 1 or length == context:
            continue
        to = f"{length:,} tokens"
        try:
            yield (
                "context",
                change,
                to,
                replace(deployment, workload=replace(deployment.workload, context=length)),
            )
        except InputError as error:
            yield "context", change, to, str(error)


def other_formats(deployment: Deployment) -> Iterator[Changed]:
    """Yield the deployment with the next narrower and wider format of the weights, and of the cache."""
    model, cache = deployment.model, deployment.workload.kv_dtype
    now = model.precision["experts" if model.moe else "dense"]
    names = dict.fromkeys(_WEIGHTS)
    size = bytes_per_param(now)
    for change, name in _next(
        size, {name: bytes_per_param(_weights(name, deployment)) for name in names}
    ).items():
        dtype = _weights(name, deployment)
        to = f"{dtype} from {now}"
        try:
            yield "weights", change, to, replace(deployment, model=_in_format(model, dtype))
        except InputError as error:
            yield "weights", change, to, str(error)
    elements = {name: cache_bytes_per_element(name) for name in _CACHES}
    for change, name in _next(cache_bytes_per_element(cache), elements).items():
        workload = replace(deployment.workload, kv_dtype=name)
        yield "KV cache", change, f"{name} from {cache}", replace(deployment, workload=workload)


def _next(size: float, sizes: dict[str, float]) -> dict[str, str]:
    """Return the next ``narrower`` and ``wider`` of formats by their bytes, where there are such."""
    near = 0.1  # scales of blocks add to the bytes of a format
    narrower = [name for name in sizes if sizes[name] < size * (1 - near)]
    wider = [name for name in sizes if sizes[name] > size * (1 + near)]
    found = {"narrower": max(narrower, key=sizes.__getitem__)} if narrower else {}
    return found | ({"wider": min(wider, key=sizes.__getitem__)} if wider else {})


def _weights(name: str, deployment: Deployment) -> str:
    """Return the format of weights that a width is stored in: of FP4 the one that the chip multiplies."""
    if name != "fp4":
        return name
    gpus = [domain.gpu for domain in deployment.cluster.spec.domains]
    own = all(gpu.vendor == "NVIDIA" and multiply_dtype("nvfp4", gpu)[0] == "fp4" for gpu in gpus)
    return "nvfp4" if own else "mxfp4"


def _in_format(model: Model, weights: str) -> Model:
    """Return the same model with its weights in another format."""
    return model_from_config(dict(model.config), name=model.name, weights=weights)
