"""Stages over unlike groups of GPUs: what a layer takes on each, what a hop takes, and the orders worth pricing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

import numpy as np

from cost.inputs.deployment import Deployment
from cost.inputs.layout import StageSpec
from cost.inputs.machine import unlike_gpus
from cost.layouts.arrays import Array
from cost.layouts.candidates import (
    MAX_STAGES,
    Arrangement,
    Group,
    arrangement_of,
    cuts,
    domain_gpus,
)
from cost.layouts.order_search import exchanged_order
from cost.layouts.stage_order import OrderProblem
from cost.layouts.stages import Pricer, StageTable, Widths, single_parts
from cost.terms.pipeline import hand_over
from topology.cluster import Cluster

ORDER_BATCHES = {"decode": (8.0, 64.0), "prefill": (1.0, 8.0)}
"""Sequences per GPU for which an order is chosen: what suits few of them need not suit many."""


MAX_UNLIKE_DOMAINS = 64
"""Whole domains of unlike sizes that one replica may have a stage on each of."""


def order_problem(
    pricer: Pricer, groups: Sequence[Group], *, sequences: float, stages: int, tp: int = 1
) -> OrderProblem:
    """Return the problem of putting the layers of a model on ``stages`` of some groups of GPUs, in any order.

    Parameters
    ----------
    groups:
        GPUs of each group, indices into ``Cluster.gpus``; no GPU is in two.
    sequences:
        In flight over all GPUs of the replica, in as many micro-batches as there are stages.
    tp:
        Width of tensor parallelism.

    Notes
    -----
    Experts are balanced and spread evenly.
    """
    deployment = pricer.deployment
    model, count = deployment.model, len(groups)
    total = sum(len(group) for group in groups)
    specs = [StageSpec(group, range(0)) for group in groups]
    table = StageTable.bare(
        [pricer.stage(deployment.context(spec), total, stages) for spec in specs], len(model.kinds)
    )
    rows, held = single_parts(model, count)
    parts, batch = len(model.kinds) + 2, sequences / total
    widths = Widths.plain(np.full(len(rows), tp, dtype=np.int64), np.full(len(rows), batch))
    shape = pricer.shape(table, rows, widths)
    seconds = pricer.seconds(table, rows, shape, held).step_s.reshape(parts, count)
    budgets = pricer.budgets(table, rows, shape)
    weights, cache = pricer.memory(table, rows, shape, held, buffers=False)
    buffers = np.asarray(pricer.memory(table, rows, shape, held)[0] - weights).reshape(parts, count)
    memory = np.asarray(weights + batch * cache / budgets.part).reshape(parts, count)
    hops, back = hop_seconds(deployment, specs, sequences / stages)
    return OrderProblem(
        kind_of=np.array(model.kind_of),
        seconds=seconds[:-2],
        first_seconds=seconds[-2],
        last_seconds=seconds[-1],
        memory=memory[:-2],
        fixed_memory=buffers.max(axis=0),
        first_memory=memory[-2],
        last_memory=memory[-1],
        capacity=budgets.usable[:count],
        hop_seconds=hops,
        back_seconds=back,
        stages=stages,
    )


def hop_seconds(deployment: Deployment, groups: Sequence[StageSpec], sequences: float) -> tuple[Array, Array]:
    """Seconds of handing ``sequences`` to another group, and their sampled tokens, ``[groups, groups]`` each."""
    count = len(groups)
    forward, back = np.zeros((count, count)), np.zeros((count, count))
    for i, sender in enumerate(groups):
        for j, receiver in enumerate(groups):
            if i != j:
                forward[i, j] = hand_over(deployment, sender, receiver, sequences)[1]
                back[i, j] = hand_over(deployment, sender, receiver, sequences, back=True)[1]
    return forward, back


def unlike_arrangements(pricer: Pricer) -> list[Arrangement]:
    """Return one replica over groups that differ, in each order that is best at one of :data:`ORDER_BATCHES`.

    None where all domains are alike. Orders are found by exchanges, the same every time
    (:func:`cost.layouts.order_search.exchanged_order`). Groups are whole domains, alike ones joined up to the size
    of the largest, and where GPUs differ equal cuts; all of them are stages, or the fastest kinds alone.
    """
    deployment = pricer.deployment
    if not differs(deployment):
        return []
    return deployment.once(lambda: _ordered(pricer), "unlike arrangements", pricer.redundant)


def _ordered(pricer: Pricer) -> list[Arrangement]:
    deployment = pricer.deployment
    arrangements: dict[tuple[Group, ...], Arrangement] = {}
    for groups, cut in _group_sets(deployment):
        tp = 1 if deployment.model.moe is not None else len(groups[0])
        for per_gpu in ORDER_BATCHES[deployment.workload.step_phase]:
            sequences = per_gpu * sum(len(group) for group in groups)
            for stages in _depths(pricer, groups, tp):
                problem = order_problem(pricer, groups, sequences=sequences, stages=stages, tp=tp)
                best = exchanged_order(problem, [range(stages)])
                if best is not None:
                    order = tuple(groups[group] for group in best.order)
                    arrangements.setdefault(order, arrangement_of(deployment.cluster, (order,), cut=cut))
    return list(arrangements.values())


def differs(deployment: Deployment) -> bool:
    """Whether the scale-up domains of a cluster differ in size, GPU, links or faults."""
    domains = domain_gpus(deployment.cluster)
    return len(domains) > 1 and (len(set(map(len, domains))) > 1 or not _one_gpu(deployment.cluster))


def _one_gpu(cluster: Cluster) -> bool:
    """Whether all GPUs have the same figures and links."""
    kinds = {
        (domain.gpu.name, domain.gpu.hbm_bytes, domain.gpu.hbm_bytes_per_s, domain.scale_up_bytes_per_s)
        for domain in cluster.spec.domains
    }
    return len(kinds) == 1 and not unlike_gpus(cluster)


def _group_sets(deployment: Deployment) -> Iterator[tuple[list[Group], bool]]:
    """Yield sets of groups that may be stages, and whether tensor parallelism may cut them (all of one size)."""
    model, domains = deployment.model, domain_gpus(deployment.cluster)
    max_stages = min(MAX_STAGES, len(model.layers))
    sizes = {len(domain) for domain in domains}
    if model.moe is not None and len(sizes) > 1:
        for groups in (domains, _joined(deployment, domains)):
            if 1 < len(groups) <= min(MAX_UNLIKE_DOMAINS, len(model.layers)):
                yield groups, False
    if not _one_gpu(deployment.cluster):
        for groups in cuts(deployment.cluster, domains, any_shape=deployment.any_shape).values():
            if 1 < len(groups) <= max_stages:
                yield groups, True


def _joined(deployment: Deployment, domains: Sequence[Group]) -> list[Group]:
    """Join small domains of a kind, as many as divide them evenly and are no larger than the largest domain."""
    cluster, largest = deployment.cluster, max(len(domain) for domain in domains)
    kinds: dict[tuple[str, int], list[Group]] = {}
    for domain in domains:
        gpu = cluster.spec.domains[cluster.gpus[domain[0]].domain].gpu.name
        kinds.setdefault((gpu, len(domain)), []).append(domain)
    joined: list[Group] = []
    for (_, size), alike in kinds.items():
        width = max(
            part for part in range(1, len(alike) + 1) if len(alike) % part == 0 and part * size <= largest
        )
        joined += [
            tuple(gpu for group in alike[i : i + width] for gpu in group) for i in range(0, len(alike), width)
        ]
    return joined


def _depths(pricer: Pricer, groups: Sequence[Group], tp: int) -> list[int]:
    """Numbers of stages worth a try: all groups, or those of the fastest kinds."""
    if len(groups) > MAX_STAGES:
        return [len(groups)]
    problem = order_problem(pricer, groups, sequences=float(len(groups)), stages=len(groups), tp=tp)
    layer_s = (problem.before[:, -1, None] * problem.seconds).sum(axis=0)
    kinds: dict[float, int] = {}
    for seconds in layer_s.tolist():
        kinds[seconds] = kinds.get(seconds, 0) + 1
    depths = {depth for depth in accumulate(kinds[seconds] for seconds in sorted(kinds)) if depth > 1}
    return sorted({*sorted(depths)[-4:], len(groups)}, reverse=True)
