"""Messages for infeasible plans: what binds, by how much, and what would fit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from cost.inputs.deployment import USABLE_HBM, Deployment
from cost.model import Layer, MoeFfn
from cost.serving.limits import LimitError, rounded_up
from cost.step.memory import StageMemory, layer_cache_bytes, layer_weight_bytes, replica_memory, weight_sizes
from placement.experts.failure_domains import domain_name, require_apart, stage_domains
from placement.layouts.fitting import fitting_shapes, stage_slots
from placement.layouts.partition import equal_ranges, last_where, stage_specs
from placement.layouts.shapes import Shape, enumerate_shapes
from placement.options import PlanOptions, Spread
from topology import build_cluster
from topology.base.errors import InfeasibleError, InputError, input_name
from topology.base.units import added, plural
from topology.catalog import full_domain
from topology.files.resolve import fill_domains
from topology.structures.domain import DomainSpec

if TYPE_CHECKING:
    from placement.layouts.fitting import Fitted


MOST_NODES = 4096
TRIED_ONE_BY_ONE = 48


def refuse_capacity(deployment: Deployment, redundant: int | None, spread: Spread = "gpu") -> NoReturn:
    """Raise InfeasibleError: what binds (HBM capacity, failure domains), by how much, and what would fit."""
    cluster, workload = deployment.cluster, deployment.workload
    fitting = list(fitting_shapes(deployment, redundant, spread))
    if fitting:
        best = max(fit.max_batch for fit in fitting)
        raise InfeasibleError(
            f"HBM capacity binds: {input_name('batch')} {workload.batch} does not fit on {cluster.name}; the "
            f"largest that fits is {best} sequences per GPU at {workload.context:,} tokens of context."
        )
    shape, memory = tightest(deployment, redundant, spread)
    need, usable = memory.used(1) / 1e9, memory.usable / 1e9
    parts = memory.breakdown(1)
    raise InfeasibleError(
        f"HBM capacity binds: {deployment.model.name} needs {need:,.1f} GB per GPU on "
        f"{cluster.name}, {usable:.1f} GB "
        f"are usable, {need - usable:,.1f} GB too few even at batch 1 (weights {parts['weights'] / 1e9:.1f}, "
        f"KV cache {parts['kv_cache'] / 1e9:,.1f}, workspace {parts['workspace'] / 1e9:.1f}; best of the layouts: "
        f"{len(shape.replicas[0])} stage{'s' * (len(shape.replicas[0]) > 1)}, TP {shape.tp}). "
        + _remedy(deployment, redundant, memory.usable)
    )


def _remedy(deployment: Deployment, redundant: int | None, usable: float) -> str:
    """What would fit: a number of nodes, or why no number does."""
    workload = deployment.workload
    sequence = added(layer_cache_bytes(layer, deployment.workload, 1) for layer in deployment.model.layers)
    if sequence > usable:
        return (
            "More nodes do not help: batch counts sequences per GPU, and the KV cache of one sequence of "
            f"{workload.context:,} tokens takes {sequence / 1e9:,.1f} GB; use a shorter "
            f"{input_name('context')} or a smaller {input_name('kv_dtype')}."
        )
    node = full_domain(deployment.cluster.spec.domains[0])
    nodes = smallest_nodes(deployment, redundant)
    if nodes is None:
        return f"No number of nodes of this kind up to {MOST_NODES:,} fits; use a GPU with more memory."
    joined = "" if deployment.cluster.spec.scale_out else ", joined by a `fabric:`"
    return (
        f"The smallest whole number of nodes that fits is {nodes} "
        f"({nodes * node.gpus_per_node} GPUs, {node.gpus_per_node} a node; batch 1){joined}."
    )


def tightest(
    deployment: Deployment, redundant: int | None, spread: Spread = "gpu"
) -> tuple[Shape, StageMemory]:
    """Return the shape that comes nearest to fitting batch 1, and the memory of its fullest stage.

    Raises
    ------
    InputError
        If no shape can hold the experts at all.
    InfeasibleError
        If none can with the copies of each expert spread over failure domains.
    """
    layers = len(deployment.model.layers)
    best: tuple[float, Shape, StageMemory] | None = None
    for shape in enumerate_shapes(deployment.cluster, deployment.model):
        slots = stage_slots(deployment, shape, redundant, spread)
        if slots is None:
            continue
        groups = shape.replicas[0]
        stages = stage_specs(groups, equal_ranges(layers, len(groups)))
        memories = replica_memory(deployment, stages, tp=shape.tp, slots=slots)
        fullest = max(memories, key=lambda memory: memory.used(1) - memory.usable)
        over = fullest.used(1) - fullest.usable
        if best is None or over < best[0]:
            best = over, shape, fullest
    if best is None:
        moe = deployment.model.moe
        if spread != "gpu":
            _refuse_spread(deployment, redundant, spread)
        experts = moe.experts if moe else 0
        raise InputError(
            f"no group of {deployment.cluster.name}'s GPUs can hold "
            f"{plural(experts, 'expert')} and "
            f"{redundant} extra copies without two copies of an expert on one GPU; give fewer.",
            field="redundant",
            value=redundant,
        )
    return best[1], best[2]


def _refuse_spread(deployment: Deployment, redundant: int | None, spread: Spread) -> None:
    """Raise InfeasibleError where some shape could hold the experts, if copies may share a failure domain."""
    moe = deployment.model.moe
    if moe is None:
        return
    names = {domain_name(gpu, spread) for gpu in deployment.cluster.gpus}
    for shape in enumerate_shapes(deployment.cluster, deployment.model):
        slots = stage_slots(deployment, shape, redundant)
        if slots is not None:
            for members, row in zip(zip(*shape.replicas, strict=True), slots, strict=True):
                domains = stage_domains(deployment, members, spread)
                word = (
                    f"{input_name('spread')} {spread} ({deployment.cluster.name} has {len(names)} "
                    f"{spread}{'s' * (len(names) > 1)})"
                )
                require_apart(moe.experts, row, domains, word)


def refuse_speed(
    deployment: Deployment, limit_s: float | None, fastest_s: float, fewer_s: float | None = None
) -> NoReturn:
    """Raise LimitError: no layout holds the time per token (prefill: of a step), and the fastest there is.

    ``fewer_s``: the shortest with fewer sequences than GPUs, None where unknown.
    """
    workload, fastest = deployment.workload, f"{rounded_up(fastest_s * 1e3)} ms"
    batch = f"batch {workload.batch}" if workload.batch else "batch 1"
    what = f"the fastest layout takes {fastest} per token at {batch}"
    if not workload.decodes:
        what = f"the fastest layout prefills prompts of {workload.context:,} tokens in {fastest} at {batch}"
    elif fewer_s is not None and fewer_s < fastest_s:
        what += f" (a sweep, which allows fewer sequences than GPUs: {rounded_up(fewer_s * 1e3)} ms)"
    _out_of_reach(deployment, "limit_s", "tpot_ms" if workload.decodes else "ttft_ms", limit_s or 0.0, what)


def refuse_first_token(deployment: Deployment, limit_s: float, fastest_s: float) -> NoReturn:
    """Raise LimitError: no layout gives the first token in time, and the fastest there is."""
    what = (
        f"a prompt of {deployment.workload.context:,} tokens alone takes {rounded_up(fastest_s * 1e3)} ms on the "
        "fastest layout"
    )
    _out_of_reach(deployment, "first_s", "ttft_ms", limit_s, what)


def _out_of_reach(deployment: Deployment, field: str, name: str, limit_s: float, what: str) -> NoReturn:
    raise LimitError(
        field,
        f"{input_name(name)} {limit_s * 1e3:g} is out of reach on {deployment.cluster.name}: {what}; relax "
        "the limit, or use faster or more GPUs.",
    )


def refuse_layout(deployment: Deployment, options: PlanOptions, layouts: Sequence[Fitted]) -> NoReturn:
    """Raise InfeasibleError: no layout that fits is the one asked for, and which there are."""
    asked = {"ep": options.ep, "tp": options.tp, "stages": options.stages}
    said = " ".join(f"{input_name(name)} {value}" for name, value in asked.items() if value is not None)
    shapes = sorted({(fit.layout.ep, fit.layout.tp, fit.layout.stages) for fit in layouts}, reverse=True)
    some = ", ".join(f"EP{ep} TP{tp} PP{stages}" for ep, tp, stages in shapes[:6])
    raise InfeasibleError(
        f"{said}: no such layout fits on {deployment.cluster.name}; of the {len(shapes)} that do, the widest are "
        f"{some}."
    )


def fastest_step_s(layouts: Sequence[Fitted]) -> float:
    """Return the shortest step over the layouts, at the user's batch or at 1."""
    return min(fit.scorer.at(fit.batch if fit.fixed else 1).tpot_s for fit in layouts)


def smallest_nodes(deployment: Deployment, redundant: int | None) -> int | None:
    """Return the fewest nodes of the cluster's kind on which batch 1 fits; None up to ``MOST_NODES``.

    Nodes are tried one by one from what the weights alone need; far above that, in doubling steps and back. A torus
    or a raw domain grows by whole domains.
    """
    domain = full_domain(deployment.cluster.spec.domains[0])
    size = weight_sizes(deployment.model)
    weights = added(
        layer_weight_bytes(layer, size, tp=1, slots=_experts(layer)) for layer in deployment.model.layers
    )
    step = domain.gpus // domain.gpus_per_node if domain.whole else 1
    per_step = step * domain.gpus_per_node * USABLE_HBM * domain.gpu.hbm_bytes
    first = max(1, math.ceil(weights / per_step))
    for steps in range(first, first + TRIED_ONE_BY_ONE):
        if _fits(deployment, domain, steps * step, redundant):
            return steps * step
    low, high = steps, 2 * steps
    while not _fits(deployment, domain, high * step, redundant):
        low, high = high, 2 * high
        if high * step > MOST_NODES:
            return None
    too_few = last_where(low, high, lambda steps: not _fits(deployment, domain, steps * step, redundant))
    return (too_few + 1) * step


def _experts(layer: Layer) -> int:
    return layer.ffn.experts if isinstance(layer.ffn, MoeFfn) else 0


def _fits(deployment: Deployment, domain: DomainSpec, nodes: int, redundant: int | None) -> bool:
    spec = fill_domains(
        f"{nodes} nodes", domain, deployment.cluster.spec.scale_out, nodes * domain.gpus_per_node
    )
    there = Deployment(build_cluster(spec), deployment.model, deployment.workload, any_shape=True)
    return any(fitting_shapes(there, redundant))
