"""Identities of the blackboard lecture: what a roofline says before any detail.

Each is the simplest form of a term that the cost model computes in full; ``examples/blackboard.py`` prints them.
Latency, cost and prices are in :mod:`cost.economics`.
"""

from __future__ import annotations

from topology.spec import DomainSpec, GpuSpec


def flop_per_byte(gpu: GpuSpec, dtype: str) -> float:
    """Dense flop/s of ``dtype`` over HBM bytes/s: how much a chip computes while it reads one byte.

    Raises
    ------
    MissingFigureError
        If the catalog lacks one of the two.
    """
    return gpu.dense_flop_per_s(dtype) / gpu.hbm_bytes_per_s


def balancing_batch(
    gpu: GpuSpec, dtype: str, total_params: float, active_params: float, param_bytes: float
) -> float:
    """Tokens per step at which computing takes as long as reading all weights once.

    ``2 * batch * active / flop_per_s = total * param_bytes / hbm_bytes_per_s``, so the batch is
    ``flop_per_byte * param_bytes / 2 * total / active``: with BF16 weights on a chip of 300 flop per byte,
    300 times the sparsity.
    """
    return flop_per_byte(gpu, dtype) * param_bytes / 2 * total_params / active_params


def hbm_read_s(gpu: GpuSpec) -> float:
    """Seconds to read all of HBM once: no step that uses the whole memory is faster."""
    return gpu.hbm_bytes / gpu.hbm_bytes_per_s


def tokens_per_s(batch: float, step_s: float) -> float:
    """Tokens per second of ``batch`` sequences that each get one token a step."""
    return batch / step_s


def train_wait_s(step_s: float) -> tuple[float, float]:
    """Return the mean and the longest time until a request that finds a place has its next token: 1.5 and 2 steps.

    A batch leaves as a train does: who arrives just after it left waits one step for the next and rides in it for
    another; who arrives at any time waits half a step on average.

    Notes
    -----
    ``step_s`` is the time in which a token passes all pipeline stages (:class:`cost.score.Score`), not that of one
    stage: the place that becomes free belongs to one micro-batch, which leaves once in that time. A request that may
    join any of ``p`` micro-batches waits at most ``1 + 1/p`` steps. Requests that queue for a place wait longer.
    """
    return 1.5 * step_s, 2 * step_s


def experts_per_gpu(experts: int, domain: DomainSpec) -> tuple[int, int]:
    """Return how many experts a GPU holds and how many GPUs of the domain are used, all holding equally many.

    The most GPUs that divide the experts: 256 experts in a domain of 72 go 4 each on 64 GPUs.
    """
    used = max(count for count in range(1, domain.gpus + 1) if experts % count == 0)
    return experts // used, used


def leaving_share(domains: int) -> float:
    """Share of uniform all-to-all traffic that leaves its domain when experts span ``domains`` of them."""
    return 1 - 1 / domains


def spanning_slowdown(domains: int, domain: DomainSpec, scale_out_bytes_per_s: float) -> tuple[float, float]:
    """How much longer an all-to-all takes when its GPUs span ``domains`` domains instead of one.

    Returns the ratio with both networks side by side, ``max(stay, leave * r)``, and one after the other,
    ``stay + leave * r``, with ``r`` the scale-up over the scale-out rate of a GPU.
    """
    leave = leaving_share(domains)
    ratio = domain.scale_up_bytes_per_s / scale_out_bytes_per_s
    return max(1 - leave, leave * ratio), (1 - leave) + leave * ratio


def pipeline_hop_ratio(
    active_experts: int, layers_per_stage: int, domain: DomainSpec, scale_out_bytes_per_s: float
) -> float:
    """Time on the scale-up fabric over time on the scale-out one, for a token passing one pipeline stage.

    In the stage a token goes to its experts and back in every layer, ``active_experts * 2 * layers_per_stage``
    vectors; to the next stage it goes once, ``r`` times slower.
    """
    ratio = domain.scale_up_bytes_per_s / scale_out_bytes_per_s
    return active_experts * 2 * layers_per_stage / ratio
