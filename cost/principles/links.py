"""Experts within a domain, layers over domains: what links say of where a model goes."""

from __future__ import annotations

from cost.experts.tokens.reach import Routing
from cost.experts.tokens.volumes import alltoall_volumes
from cost.inputs.machine import Rates
from cost.model import MoeFfn
from cost.terms.pipeline import ACTIVATION_BYTES


def even_gpus(parts: int, domain_gpus: int) -> int:
    """Return the most GPUs of a domain that ``parts`` (experts of a layer, or heads) divide over evenly."""
    return next(gpus for gpus in range(min(parts, domain_gpus), 0, -1) if parts % gpus == 0)


def leaving_share(domains: int) -> float:
    """Return the part of tokens whose expert is in another of ``domains``: ``1 - 1/n``."""
    return 1 - 1 / domains


def alltoall_s(moe: MoeFfn, hidden: int, tokens: float, rates: Rates, gpus: int, domains: int) -> float:
    """Return seconds of a dispatch and combine of a layer whose experts lie on ``gpus`` of each of ``domains``.

    One copy of a vector in BF16 for each expert of a token; ``tokens`` a GPU. Both kinds of links work at once.
    """
    volumes = alltoall_volumes(
        "per-copy", Routing(moe.experts, moe.top_k), tokens=tokens, ep=gpus * domains, domain_gpus=gpus
    )
    up_s = float(volumes.up) / rates.up_bytes_per_s
    out_s = float(volumes.out) / rates.out_bytes_per_s if domains > 1 else 0.0
    return 2 * hidden * ACTIVATION_BYTES * max(up_s, out_s)


def stage_links_ratio(rate_ratio: float, active_experts: float, layers: float) -> float:
    """Return time on scale-up links over time on scale-out links of a stage: ``(1/8) x experts x layers x 2``.

    Every layer sends a token to its experts and back inside the domain, a stage hands it over once.
    """
    return active_experts * layers * 2 / rate_ratio


def training_bubble(stages: int, micro_batches: int) -> float:
    """Return the part of a training step that stages are idle: ``(p-1) / (m+p-1)`` (Huang et al., GPipe, 2019)."""
    return (stages - 1) / (micro_batches + stages - 1)
