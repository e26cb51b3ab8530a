"""Slots of GPUs that differ: where HBM is left, there copies go."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cost.deployment import USABLE_HBM, Deployment
from cost.layout import StageSpec
from cost.memory import replica_memory, weight_sizes
from cost.model import MoeFfn
from placement.problem import spread_slots


def gpu_hbm_bytes(deployment: Deployment, gpus: Sequence[int]) -> NDArray[np.float64]:
    """Return the HBM capacity of each GPU, float64 ``[gpus]``, as its driver reports it."""
    cluster = deployment.cluster
    return np.array([cluster.domain_of(gpu).gpu.hbm_bytes for gpu in gpus])


def hbm_differs(deployment: Deployment) -> bool:
    """Whether GPUs of the cluster have unlike capacities."""
    return len({domain.gpu.hbm_bytes for domain in deployment.cluster.spec.domains}) > 1


def slots_of_stage(
    deployment: Deployment,
    groups: Sequence[tuple[int, ...]],
    ranges: Sequence[range],
    stage: int,
    *,
    tp: int,
    redundant: int | None,
    equal: bool = False,
) -> NDArray[np.int64]:
    """Return the slots of each GPU of one stage of a replica, int64 ``[gpus]``.

    GPUs with equal HBM get equally many, the first ones more of what does not divide; so do all with ``equal``.
    Else, where HBM differs, each slot goes where most of it is left, which leaves room for the largest batch.

    Raises
    ------
    InputError
        If there are fewer slots than experts, or a GPU would have more.
    """
    moe = deployment.model.moe
    if moe is None:
        return np.zeros(len(groups[stage]), dtype=np.int64)
    gpus = groups[stage]
    alike = spread_slots(moe.experts, len(gpus), redundant)
    if equal or not hbm_differs(deployment):
        return alike
    capacity = gpu_hbm_bytes(deployment, gpus)
    if (capacity == capacity[0]).all():
        return alike
    kinds = deployment.model.kind_counts(ranges[stage])
    size = weight_sizes(deployment.model)
    per_slot = sum(
        float(count) * layer.ffn.expert_params * size["experts"]
        for layer, count in kinds
        if isinstance(layer.ffn, MoeFfn)
    )
    free = USABLE_HBM * capacity - _other_bytes(
        deployment, groups, ranges, stage, tp=tp, slots=int(alike.sum())
    )
    return slots_by_free_hbm(free, per_slot, total=int(alike.sum()), most=moe.experts)


def slots_by_free_hbm(
    free_bytes: NDArray[np.float64], bytes_per_slot: float, *, total: int, most: int
) -> NDArray[np.int64]:
    """Give each of ``total`` slots to the GPU with most bytes left after it: int64 ``[gpus]``, at most ``most`` each.

    What is left on the fullest GPU is then as much as it can be. Ties go to the first GPU.
    """
    left = free_bytes[:, None] - bytes_per_slot * np.arange(1, most + 1)
    order = np.argsort(-left, axis=None, kind="stable")[:total]
    return np.bincount(order // most, minlength=free_bytes.size)


def _other_bytes(
    deployment: Deployment,
    groups: Sequence[tuple[int, ...]],
    ranges: Sequence[range],
    stage: int,
    *,
    tp: int,
    slots: int,
) -> float:
    """Bytes of a GPU besides its experts, at the batch asked for or at 1."""
    stages = [StageSpec(gpus, layers) for gpus, layers in zip(groups, ranges, strict=True)]
    sums, none = [slots] * len(stages), [0] * len(stages)
    memory = replica_memory(deployment, stages, tp=tp, slots=sums, most=none)[stage]
    return memory.used(deployment.workload.batch or 1)
