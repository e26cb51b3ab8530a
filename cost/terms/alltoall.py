"""Dispatch and combine as parts of a step: volumes of a kernel family, seconds of its kernel on these links."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cost.calibration.alltoall import Kernel
from cost.experts.tokens.reach import ExpertUse, Routing
from cost.experts.tokens.volumes import Volumes, alltoall_volumes, placed_vectors
from cost.inputs.machine import Efficiency, Machine
from cost.inputs.workload import StepShape
from cost.model import Model, MoeFfn
from cost.quantity import Quantity, positive
from cost.step.fair_sharing import Sharing, sharing
from cost.terms.alltoall_kernel import alltoall_seconds, vector_bytes, wire_bytes
from cost.terms.work import LayerStep, LinkPart, Parts, PlacedExperts, StepCost, Term


def vector_sizes(model: Model, machine: Machine) -> tuple[float, float]:
    """Return the bytes of one hidden vector on its way to the experts and back."""
    dispatch, combine = vector_bytes(model.expert_hidden, model.precision["experts"])
    if machine.dispatch_dtype:
        dispatch = wire_bytes(model.expert_hidden, machine.dispatch_dtype)
    return dispatch, combine


def even_alltoall_parts(model: Model, moe: MoeFfn, shape: StepShape, machine: Machine) -> list[LinkPart]:
    """Dispatch and combine of one layer where experts are loaded evenly but for ``shape.imbalance``.

    One attention group alone needs none: each of its GPUs has every token, and the all-reduce adds up. Experts
    that are cut into parts (``moe_tp``) get every token of the group: an all-gather.
    """
    groups, ep = np.asarray(shape.token_groups), np.asarray(shape.gpus)
    if not np.any(groups > 1):
        return []
    routing = routing_of(moe)
    crosses = ep > np.asarray(shape.domain_gpus)
    cut = np.asarray(shape.moe_tp) > 1
    kernels = machine.kernels
    choices = [(kernels.of(crosses=False), ~crosses & ~cut)]
    if np.any(crosses & ~cut):
        machine.rates.require_scale_out()
        choices.append((kernels.of(crosses=True), crosses & ~cut))
    if np.any(cut):
        choices.append(((kernels.gather,), cut))
    totals: dict[str, list[Quantity]] = {"dispatch": [0.0, 0.0, 0.0], "combine": [0.0, 0.0, 0.0]}
    for able, where in choices:
        active = where & (groups > 1)
        if not np.any(active):
            continue
        tokens = np.where(active, shape.tokens * np.asarray(shape.imbalance), 0.0)
        domain_gpus = np.where(where & ~crosses, ep, np.minimum(ep, shape.domain_gpus))
        tried = []
        for kernel in able:
            volumes = together = alltoall_volumes(
                kernel.family, routing, tokens=tokens, ep=ep, domain_gpus=domain_gpus
            )
            if np.any(domain_gpus < ep):
                together = alltoall_volumes(kernel.family, routing, tokens=tokens, ep=ep, domain_gpus=ep)
            tried.append(_legs(kernel, volumes, together, model, machine, ep))
        for part in fastest(tried):
            sums = totals[part.term]
            for index, value in enumerate((part.up_s, part.out_s, part.expected_s)):
                sums[index] = sums[index] + value
    return [LinkPart(term, sums[0], sums[1], sums[2]) for term, sums in totals.items()]


def alltoall_parts(
    model: Model,
    use: ExpertUse,
    *,
    tokens: float,
    domain: NDArray[np.int64],
    machine: Machine,
    shared: Sharing | None = None,
) -> list[LinkPart]:
    """Dispatch and combine of each layer of an actual placement, seconds ``[scenarios, layers]`` (traces, if any).

    ``shared``: how much longer they take on the routes between domains; None: as by formula.
    """
    if use.gpus == 1:
        return []
    crosses = len(np.unique(domain)) > 1
    if crosses:
        machine.rates.require_scale_out()
    limit = group_limit(model.moe) if model.moe else (0, 0)
    tried = []
    for kernel in machine.kernels.of(crosses=crosses):
        volumes = together = placed_vectors(
            kernel.family, use, tokens=tokens, domain=domain, limit=limit
        ).busiest
        if crosses:
            one_domain = np.zeros_like(domain)
            together = placed_vectors(
                kernel.family, use, tokens=tokens, domain=one_domain, limit=limit
            ).busiest
        if shared is not None:
            volumes = replace(volumes, out=volumes.out * shared.bound)
        tried.append(_legs(kernel, volumes, together, model, machine, np.asarray(use.gpus), shared))
    return fastest(tried)


def fastest(tried: list[list[LinkPart]]) -> list[LinkPart]:
    """Return dispatch and combine of the kernel that takes least for both; at peak, of whichever moves least."""
    best = tried[0]
    for parts in tried[1:]:
        faster = sum(np.asarray(part.expected_s) for part in parts) < sum(
            np.asarray(part.expected_s) for part in best
        )
        best = [
            LinkPart(
                best_part.term,
                np.minimum(best_part.up_s, new_part.up_s),
                np.minimum(best_part.out_s, new_part.out_s),
                np.where(faster, new_part.expected_s, best_part.expected_s),
            )
            for best_part, new_part in zip(best, parts, strict=True)
        ]
    return best


def _legs(
    kernel: Kernel,
    volumes: Volumes,
    together: Volumes,
    model: Model,
    machine: Machine,
    ep: NDArray[np.int64],
    shared: Sharing | None = None,
) -> list[LinkPart]:
    """Both directions over these links, at peak and as the kernel was measured, with its exchange of counts.

    ``together``: the volumes if the group lay in one domain. What takes the NICs instead relieves the scale-up links,
    but no kernel was seen to be faster for a border between its GPUs: such relief is not counted.
    """
    staged = volumes
    if together is not volumes:
        relief = np.where(volumes.up > 0, together.up, 0.0)  # a domain of one GPU has no links to relieve
        staged = replace(volumes, up=np.maximum(volumes.up, relief))
    if shared is not None:
        staged = replace(staged, out=volumes.out * shared.fair)
    dispatch, combine = vector_sizes(model, machine)
    return [
        leg_part(
            kernel,
            "dispatch",
            volumes,
            staged,
            size=dispatch,
            machine=machine,
            ep=ep,
            scaled=dispatch < combine,
        ),
        leg_part(kernel, "combine", volumes, staged, size=combine, machine=machine, ep=ep),
    ]


def leg_part(
    kernel: Kernel,
    way: Literal["dispatch", "combine"],
    volumes: Volumes,
    staged: Volumes,
    *,
    size: float,
    machine: Machine,
    ep: ArrayLike,
    scaled: bool = False,
) -> LinkPart:
    """One direction of a kernel for vectors of ``size`` bytes: ``volumes`` at peak, ``staged`` as it was measured."""
    rates = machine.rates
    up_s = volumes.up * size / rates.alltoall_bytes_per_s
    out_s = np.zeros_like(up_s)
    if positive(volumes.out):
        out_s = volumes.out * size / rates.out_bytes_per_s
    expected: Quantity = np.maximum(up_s, out_s)
    if not machine.efficiency.ideal:
        expected = alltoall_seconds(
            kernel.dispatch if way == "dispatch" else kernel.combine,
            staged,
            vector_bytes=size,
            up_bytes_per_s=rates.alltoall_bytes_per_s,
            out_bytes_per_s=max(rates.out_bytes_per_s, 1.0),
            ep=ep,
            scaled=scaled,
        )
        if kernel.notify_s is not None:
            expected = expected + np.where(expected > 0, kernel.notify_s.value, 0.0)
    return LinkPart(way, up_s, out_s, expected)


def routing_of(moe: MoeFfn) -> Routing:
    """Return how tokens choose among the experts of a layer, evenly loaded."""
    return Routing(moe.experts, moe.top_k, *group_limit(moe))


def group_limit(moe: MoeFfn) -> tuple[int, int]:
    """Return the groups of experts and how many of them a token may use; 0, 0 where there is no such limit."""
    return (moe.groups, moe.topk_groups) if moe.groups > 1 and moe.topk_groups < moe.groups else (0, 0)


def _add(parts: Parts, at: LayerStep) -> None:
    if isinstance(at.layer.ffn, MoeFfn):
        for part in even_alltoall_parts(at.model, at.layer.ffn, at.shape, at.machine):
            parts.links.append(replace(part, layers=at.count))


def _add_placed(cost: StepCost, at: PlacedExperts, shape: StepShape, _: Efficiency) -> None:
    """Both ways of every MoE layer; nothing is sent where one attention group has all tokens."""
    if not np.any(np.asarray(shape.token_groups) > 1):
        return
    machine, domain = at.deployment.machine(at.stage), at.deployment.domains(at.stage)
    weight = at.use.repeats / (at.use.share.shape[0] if at.use.hits is None else len(at.use.hits.gpus))
    tokens = float(shape.tokens)
    family = machine.kernels.of(crosses=True)[0].family
    shared = sharing(at.deployment, at.stage, at.use, family) if at.fair else None
    model = at.deployment.model
    for part in alltoall_parts(model, at.use, tokens=tokens, domain=domain, machine=machine, shared=shared):
        cost.add_spread(part, weight, machine.rates)


DISPATCH = Term(
    "dispatch",
    "#56b4e9",
    behind=("dispatch", "notify_s"),
    formula="layers x (start-up + bytes of the busiest GPU / rate that the kernel reaches on its links)",
    sends=True,
    of_layer=_add,
    of_placement=_add_placed,
)
"""With it the way back, :data:`COMBINE`: both directions are one computation."""
COMBINE = Term(
    "combine",
    "#cc79a7",
    behind=("combine", "notify_s"),
    formula="layers x (start-up + bytes of the busiest GPU / rate that the kernel reaches on its links)",
    sends=True,
)
