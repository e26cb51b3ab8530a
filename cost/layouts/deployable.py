"""Which layouts operators deploy: workers of parts of a node or of whole nodes, at widths that engines are run at."""

from __future__ import annotations

WIDTHS = (4, *range(8, 97, 8), 144, 320)
"""GPUs over which experts are spread in production, whatever the size of the domain.

NVIDIA and LMSYS on GB200 NVL72 (4 to 72), DeepSeek's inference system of V3 and R1 (144, and 320 as of its report;
Huawei's on CloudMatrix384 too); whole domains of eight, which a larger domain may have as groups too.
"""
HOST_GPUS = 8
"""GPUs of most hosts."""
NODE_STAGES = (1, 2, 3, 4, 8, 16)
"""Stages of whole nodes that a replica has, besides one on each domain of the cluster."""

MAX_MIXED_GPUS = 8
"""GPUs of an engine that serves both phases, or as many times 2 as hold the model: no public run has more than these
(2,862 runs of InferenceX, AMD's included).

Across nodes decode takes low-latency all-to-all kernels, which cannot send the tokens of prompts in the same step.
"""


def is_power_of_two(count: int) -> bool:
    """Whether ``count`` is 1, 2, 4 and so on: widths of tensor parallelism that engines take."""
    return count > 0 and count & (count - 1) == 0


def deployable_stage(gpus: int, *, node: int, domain: int) -> bool:
    """Whether ``gpus`` make a stage that fills nodes evenly.

    A power of two of the GPUs under one host; whole nodes, which divide the scale-up domain or are one of
    :data:`WIDTHS`; any number of whole domains.

    Parameters
    ----------
    gpus:
        Of the stage, all in one domain or those of whole domains.
    node, domain:
        GPUs under one host, and of one domain.
    """
    if gpus < node:
        return is_power_of_two(gpus)
    return gpus % node == 0 and (gpus >= domain or domain % gpus == 0 or gpus in WIDTHS)


def deployable_stages(stages: int, gpus: int, *, node: int, domain: int, groups: int) -> bool:
    """Whether a replica has ``stages`` of ``gpus`` GPUs each: powers of two inside a node, else of whole nodes.

    Of smaller nodes as many in a domain as have :data:`HOST_GPUS` GPUs count as one: what a host of eight may run, a
    larger domain may. ``groups``: stages of as many GPUs that the cluster has room for; all make a replica too.
    """
    if gpus < node:
        return is_power_of_two(stages) and stages * gpus <= max(node, min(HOST_GPUS, domain))
    return stages in NODE_STAGES or stages == groups
