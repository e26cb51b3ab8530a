"""The way of a prompt's cache from the pool that prefills to the one that decodes.

A cache is moved once, whatever it is stored as: a latent that tensor parallelism replicates leaves each group once,
its GPUs sending equal parts side by side. What a receiving group copies among its own GPUs is not counted.
"""

from __future__ import annotations

from dataclasses import dataclass

from cost.dtypes import cache_bytes_per_element
from cost.inputs.deployment import Deployment
from cost.inputs.layout import StageSpec
from cost.layouts.candidates import domain_gpus
from cost.quantity import Quantity
from topology.base.errors import InputError
from topology.base.figures import Evidence, Figure

OUT_REACH = Figure(
    0.475,
    "1",
    Evidence.MEASURED,
    "Mooncake Transfer Engine, README: 190 GB/s over 8 x 400 Gb/s RoCE for 40 GB of cache (87 over 4 x 200 Gb/s)",
    "190 GB/s of 400 GB/s",
)
"""Of the scale-out NICs' rate that a transfer of caches reaches."""
UP_REACH = Figure(
    0.053,
    "1",
    Evidence.MEASURED,
    "NIXL issue 1037, November 2025: nixlbench 48 GB/s between GPUs of two nodes over NVLink 5 (UCX alone 746 GB/s)",
    "48 GB/s of 900 GB/s",
)
"""Of the scale-up links' rate that a transfer of caches reaches: the library's pipeline, not the links, limits it."""


@dataclass(frozen=True)
class CachePath:
    """The way of a cache.

    Attributes
    ----------
    name:
        Fabric, as reports print it.
    bytes_per_s:
        Of one GPU, in one direction, as transfers reach it.
    latency_s:
        Before the first byte arrives.
    reach:
        The part of the links' rate that ``bytes_per_s`` counts.
    """

    name: str
    bytes_per_s: float
    latency_s: float
    reach: Figure

    def seconds(self, moved: Quantity, gpus: Quantity) -> Quantity:
        """Seconds to move ``moved`` bytes, ``gpus`` side by side: ``latency + bytes / (gpus * rate)``."""
        return self.latency_s + moved / (gpus * self.bytes_per_s)


def prompt_cache_bytes(deployment: Deployment, tokens: float) -> float:
    """Return the cache bytes of ``tokens`` tokens of one sequence over all layers, each stored once."""
    return deployment.model.cache_bytes(tokens, cache_bytes_per_element(deployment.workload.kv_dtype))


def token_cache_bytes(deployment: Deployment, context: float) -> float:
    """Return the cache bytes of a token over all layers, the mean of a sequence of ``context`` tokens."""
    return prompt_cache_bytes(deployment, context) / context


def kv_path(
    decode: Deployment, prefill: Deployment, *, up_reach: Figure = UP_REACH, out_reach: Figure = OUT_REACH
) -> CachePath:
    """Return the links that caches take from the pool that prefills to the one that decodes.

    Notes
    -----
    Pools that share a cluster of one scale-up domain use its links. In every other case any prefill worker may hand
    a prompt to any decode worker, so the path is that between domains: each GPU's scale-out links, less what the
    fabric is oversubscribed and what is broken in it, at the slower of two clusters.

    Raises
    ------
    InputError
        If pools in several domains have no scale-out fabric between them.
    """
    pools = [decode] if decode.cluster is prefill.cluster else [decode, prefill]
    rates = [pool.rates(StageSpec(tuple(range(len(pool.cluster.gpus))), range(0))) for pool in pools]
    if len(pools) == 1 and len(domain_gpus(decode.cluster)) == 1:
        rate = rates[0]
        return CachePath(rate.up_fabric, up_reach.value * rate.up_bytes_per_s, rate.up_latency_s, up_reach)
    for pool, rate in zip(pools, rates, strict=True):
        if rate.out_bytes_per_s <= 0:
            raise InputError(
                f"{pool.cluster.name}: no `fabric:` connects its domains, so caches cannot move between "
                "prefill and decode pools; add one."
            )
    slowest = min(rates, key=lambda rate: rate.out_bytes_per_s)
    latency_s = max(rate.out_latency_s for rate in rates)
    return CachePath(slowest.out_fabric, out_reach.value * slowest.out_bytes_per_s, latency_s, out_reach)
