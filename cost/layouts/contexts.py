"""Context parallelism that layouts may have: GPUs of an attention group that share the tokens of a sequence."""

from __future__ import annotations

import math
from dataclasses import replace

from cost.attention.linear import Recurrent
from cost.inputs.deployment import Deployment
from cost.model import Model
from topology.base.errors import InputError, called, input_name

LONG_CONTEXT = 32_768
"""Tokens from which context parallelism is tried unasked. SGLang's pull request 33926 measured from 32K tokens up,
where it paid from concurrency 16 on; at 1K ATOM's 847 lost 22 % by it, at 8K to 16K it won 15 % to 68 %."""


def cache_copies(model: Model, tp: int) -> int:
    """Return how often a group of ``tp`` GPUs holds the cache that context parallelism can split; 0 where none can.

    That of the layer with most key-value heads: ``tp / heads`` (MLA: ``tp``), as vLLM and SGLang bound ``dcp``.
    """
    heads = [cache.heads for layer in model.kinds if (cache := layer.attention.by_token) is not None]
    return max(1, tp // max(heads)) if heads and all(tp % min(tp, count) == 0 for count in heads) else 0


def splits_prompts(model: Model) -> bool:
    """Whether engines split prompts of a model over ranks that all get its keys and values: not with states."""
    mixers = (getattr(layer.attention, "inner", layer.attention) for layer in model.kinds)
    return not any(isinstance(mixer, Recurrent) for mixer in mixers)


def context_widths(deployment: Deployment, tp: int) -> list[tuple[int, int]]:
    """Return each ``dcp`` and ``pcp`` of layouts whose attention groups have ``tp`` GPUs, as asked for or by default.

    Pools that decode may have ``dcp`` that divides the copies of the cache, pools that only prefill ``pcp`` that
    divides ``tp``. Unasked, from :data:`LONG_CONTEXT` on, all copies are split, and prompts over the whole group.
    """
    model, work = deployment.model, deployment.workload
    if work.decodes:
        asked, most = deployment.dcp, cache_copies(model, tp)
    else:
        asked, most = deployment.pcp, tp if splits_prompts(model) else 0
    if asked is None:
        widths = [1, most] if most > 1 and work.context >= LONG_CONTEXT else [1]
    else:
        widths = [asked] if asked == 1 or (most and most % asked == 0) else []
    return [(width, 1) if work.decodes else (1, width) for width in widths]


def require_contexts(deployment: Deployment) -> None:
    """Check that some width of tensor parallelism may have the context parallelism asked for.

    Raises
    ------
    InputError
        If none may.
    """
    gpus, prompts = len(deployment.cluster.gpus), replace(deployment, workload=deployment.workload.of_prompt)
    heads = math.gcd(*(layer.attention.heads for layer in deployment.model.kinds))
    widths = [1 << power for power in range(gpus.bit_length()) if heads % (1 << power) == 0]
    for side in (deployment, prompts):
        if not any(context_widths(side, tp) for tp in widths):
            raise no_context(side, max(widths))


def copies_words(model: Model, tp: int, dcp: int) -> str:
    """Return how often a group that decodes holds a cache, and what would hold it once; empty if it does."""
    copies = cache_copies(model, tp)
    if copies <= dcp:
        return ""
    heads = max(cache.heads for layer in model.kinds if (cache := layer.attention.by_token) is not None)
    what = f"over {heads} KV heads" if heads > 1 else "over one latent or KV head a token"
    split = f" split over {dcp} of its GPUs" * (dcp > 1)
    return (
        f"TP {tp} {what} keeps the cache{split} {copies // dcp} times: {called('dcp')} {copies} keeps it once"
    )


def given_context(deployment: Deployment, tp: int) -> tuple[int, int]:
    """Return the ``dcp`` and ``pcp`` of a group of ``tp`` GPUs that are asked for, else 1 and 1.

    Raises
    ------
    InputError
        If it cannot have them.
    """
    widths = context_widths(deployment, tp)
    if not widths:
        raise no_context(deployment, tp)
    return widths[0]


def no_context(deployment: Deployment, tp: int) -> InputError:
    """Return why a group of ``tp`` GPUs cannot have the context parallelism that is asked for."""
    name, decodes = deployment.model.name, deployment.workload.decodes
    copies, of_tp = cache_copies(deployment.model, tp), f"{input_name('tp')} {tp}"
    if not decodes:
        states = not splits_prompts(deployment.model)
        why = (
            f"engines split no prompts of {name}: it has recurrent states"
            if states
            else f"expected a divisor of {of_tp}"
        )
        return InputError(f"{why}.", field="pcp", value=deployment.pcp)
    times = "once" if copies == 1 else f"{copies} times"
    why = f"{of_tp} keeps the cache of {name} {times}; expected a divisor of that"
    return InputError(
        f"{why if copies else f'engines split no cache of {name} by token'}.",
        field="dcp",
        value=deployment.dcp,
    )
