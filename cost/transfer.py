"""Moving a prompt's cache: from the pool that prefills to the one that decodes, and back from a host's memory.

A cache is moved once, whatever it is stored as: a latent that tensor parallelism replicates leaves each group once,
its GPUs sending equal parts side by side. What a receiving group copies among its own GPUs is not counted.
"""

from __future__ import annotations

from dataclasses import dataclass

from cost.deployment import Deployment
from cost.dtypes import cache_bytes_per_element
from cost.economics.cache_tiers import cache_tier
from cost.economics.figure_file import figure_file
from cost.quantity import Quantity
from cost.rates import stage_rates
from topology.cluster import Cluster
from topology.errors import InputError, MissingFigureError
from topology.figures import Evidence, Figure

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
HOST_REACH = Figure(
    0.88,
    "1",
    Evidence.MEASURED,
    "NVIDIA's article on nvbandwidth: 55.63 GB/s from host to device over PCIe 5.0 x16",
    "55.6 GB/s of 63 GB/s",
)
"""Of the link between GPU and host that copies reach."""


@dataclass(frozen=True)
class CachePath:
    """The way of a cache.

    Attributes
    ----------
    name:
        Fabric or tier, as reports print it.
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
    element = cache_bytes_per_element(deployment.workload.kv_dtype)
    model = deployment.model
    counts = model.kind_counts(range(len(model.layers)))
    return float(sum(count * layer.attention.cache_bytes(tokens, element) for layer, count in counts))


def kv_path(
    decode: Deployment, prefill: Deployment, *, up_reach: Figure = UP_REACH, out_reach: Figure = OUT_REACH
) -> CachePath:
    """Return the links that caches take from the pool that prefills to the one that decodes.

    Notes
    -----
    Pools that share a cluster of one scale-up domain use its links. In every other case any prefill worker may hand
    a prompt to any decode worker, so the path is that between domains: each GPU's scale-out links, less what the
    fabric is oversubscribed, at the slower of two clusters.

    Raises
    ------
    InputError
        If pools in several domains have no scale-out fabric between them.
    """
    clusters = [decode.cluster] if decode.cluster is prefill.cluster else [decode.cluster, prefill.cluster]
    rates = [stage_rates(cluster, range(len(cluster.gpus)), ("bf16",)) for cluster in clusters]
    if len(clusters) == 1 and len(_domains(clusters[0])) == 1:
        one = rates[0]
        return CachePath(one.up_fabric, up_reach.value * one.up_bytes_per_s, one.up_latency_s, up_reach)
    for cluster, one in zip(clusters, rates, strict=True):
        if one.out_bytes_per_s <= 0:
            raise InputError(
                f"{cluster.name}: no `fabric:` leaves its domains, so caches cannot move between pools of "
                "prefill and of decode; add one."
            )
    slowest = min(rates, key=lambda one: one.out_bytes_per_s)
    latency_s = max(one.out_latency_s for one in rates)
    return CachePath(slowest.out_fabric, out_reach.value * slowest.out_bytes_per_s, latency_s, out_reach)


def _domains(cluster: Cluster) -> set[int]:
    return {gpu.domain for gpu in cluster.gpus}


def host_path(deployment: Deployment, tier: str, *, link: Figure | None = None) -> CachePath:
    """Return how caches that lie in a tier of the hosts come back to the GPUs that prefill.

    Parameters
    ----------
    tier:
        Name in the catalog of tiers (:func:`cost.economics.cache_tiers.cache_tier`).
    link:
        Bytes/s between a GPU and its host in one direction; None: the catalog's for the slowest GPU.

    Notes
    -----
    Each GPU reads at ``min(reach * link, devices per GPU * bytes/s of a device)``; the devices of a host are shared
    out evenly over its GPUs. Latency of the device is not counted.

    Raises
    ------
    InputError
        If there is no such tier.
    MissingFigureError
        If the catalog has no link for a GPU, or no usual number of devices.
    """
    what = cache_tier(tier)
    if what.per_gpu is None:
        raise MissingFigureError(
            f"--kv-offload {tier}: no figure says how many of them a host has for each GPU; take another tier."
        )
    table = figure_file("host_links", "gpus")
    rates = []
    for name in {domain.gpu.name for domain in deployment.cluster.spec.domains}:
        if link is None and name not in table.names:
            raise MissingFigureError(
                f"--kv-offload: the link between {name} and its host is not in the catalog; give --host-link RATE."
            )
        found = link or table.figures(table.entry(name), {"bytes_per_s": "byte/s"})["bytes_per_s"]
        rates.append(HOST_REACH.value * found.value)
    devices = what.per_gpu.value * what.bytes_per_s.value
    return CachePath(tier, min(*rates, devices), 0.0, HOST_REACH)
