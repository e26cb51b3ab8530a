"""Messages for infeasible plans: what binds, by how much, and what would fit."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

from cost.calibration.serving import engine_names
from cost.inputs.deployment import Deployment
from cost.inputs.layout import Layout
from cost.layouts.candidates import MAX_STAGES
from cost.layouts.contexts import context_widths, no_context
from cost.memory.batches import batch_of, most_that_fit, sequences_of
from cost.memory.budget import engines_on
from cost.memory.sizes import layer_cache_bytes, layer_weight_bytes, weight_sizes
from cost.memory.stages import StageMemory, replica_memory
from cost.model import Model, MoeFfn
from cost.serving.limits import out_of_reach, rounded_up
from placement.experts.failure_domains import domain_name, require_apart, stage_domains
from placement.layouts.fitting import fitting_shapes, stage_slots
from placement.layouts.partition import equal_ranges, last_where, stage_specs
from placement.layouts.shapes import TP_WIDTHS, Shape, enumerate_shapes
from placement.options import PlanOptions, Spread
from topology import build_cluster
from topology.base.errors import InfeasibleError, InputError, input_name
from topology.base.units import added, plural
from topology.catalog import full_domain
from topology.files.resolve import fill_domains
from topology.structures.domain import DomainSpec

if TYPE_CHECKING:
    from placement.layouts.fitting import Fitted


LAYOUTS_NAMED = 3
"""Layouts that a refusal names."""
MOST_NODES = 4096
"""Nodes up to which a refusal looks for a number that fits."""
TRIED_ONE_BY_ONE = 48
"""Numbers of nodes that are all tried; above them, in doubling steps: each try enumerates layouts."""


def refuse_capacity(deployment: Deployment, redundant: int | None, spread: Spread = "gpu") -> NoReturn:
    """Raise InfeasibleError: what binds (HBM capacity, failure domains), by how much, and what would fit."""
    cluster, workload = deployment.cluster, deployment.workload
    fitting = list(fitting_shapes(deployment, redundant, spread))
    if fitting:
        largest = max(fit.max_batch for fit in fitting)
        held = [fit for fit in fitting if fit.max_batch >= workload.batch]
        if held:
            widths = ", ".join(str(tp) for tp in sorted({fit.shape.tp for fit in held}))
            raise InfeasibleError(
                f"{input_name('batch')} {workload.batch:,.9g}: the GPUs of a tensor-parallel group hold whole "
                f"sequences together, and none of the widths that hold so many ({widths}) has a whole number of "
                f"them; the smallest batch of a group of N GPUs is 1/N."
            )
        most = f"the largest that fits is {largest:,.9g} sequences per GPU at {workload.context:,} tokens of context"
        for fit in fitting:
            if fit.max_batch >= largest and runs_no_more(deployment, fit.shape, largest):
                raise InfeasibleError(f"{beyond_engine(deployment, workload.batch)}; {most} of cache.")
        raise InfeasibleError(
            f"HBM capacity binds: {input_name('batch')} {workload.batch:,.9g} does not fit on {cluster.name}; {most}."
        )
    shape, memory = tightest(deployment, _shapes(deployment), redundant, spread)
    raise InfeasibleError(
        f"HBM capacity binds: {deployment.model.name} on {cluster.name} {_shortage(deployment, shape, memory)}. "
        + _remedy(deployment, redundant, memory.usable)
    )


def runs_no_more(deployment: Deployment, shape: Shape, batch: float) -> bool:
    """Whether ``batch`` is all that the engine runs at a time on a shape, whatever HBM has room for."""
    return (batch + batch_of(1, shape.tp)) * shape.tp * len(shape.replicas[0]) > deployment.most_sequences


def beyond_engine(deployment: Deployment, batch: float) -> str:
    """Say that the engine does not run ``batch`` at a time, whatever HBM has room for."""
    return (
        f"{input_name('batch')} {batch:,.9g} is more than engines run at a time: {deployment.most_sequences:,} "
        f"sequences of an attention group; {input_name('max_seqs')} allows more"
    )


def _shapes(deployment: Deployment) -> list[Shape]:
    """Every shape that plans may have, those of cut experts too."""
    return list(enumerate_shapes(deployment, cut_experts=True))


def _shortage(deployment: Deployment, shape: Shape, memory: StageMemory) -> str:
    """What the fullest GPU of a shape needs for the smallest batch, and how much it lacks."""
    least = batch_of(1, shape.tp)
    need, usable, parts = memory.used(least) / 1e9, memory.usable / 1e9, memory.breakdown(least)
    reserved = {
        use: held
        for use, held in parts.items()
        if use not in ("experts", "weights", "kv_cache", "free") and held > 0
    }
    words = ", ".join(f"{use} {held / 1e9:.1f}" for use, held in reserved.items())
    unit = "sequence" if deployment.workload.decodes else "prompt"
    group = f"tensor-parallel group of {shape.tp} GPUs" if shape.tp > 1 else "GPU"
    layout = _evenly(deployment, shape).short(moe=deployment.model.moe is not None)
    return (
        f"needs {need:,.1f} GB per GPU, {usable:.1f} GB are usable, {need - usable:,.1f} GB too few even for one "
        f"{unit} a {group} (weights {memory.weights / 1e9:.1f}, KV cache {parts['kv_cache'] / 1e9:,.1f}; "
        f"{memory.budget.words}, keeps {words}; best of the layouts: {layout})"
    )


def _remedy(deployment: Deployment, redundant: int | None, usable: float) -> str:
    """What would fit: a number of nodes, or why no number does."""
    workload, model = deployment.workload, deployment.model
    widest = max(tp for tp in TP_WIDTHS if _heads(model) % tp == 0)
    sequence = added(layer_cache_bytes(layer, workload, widest) / widest for layer in model.layers)
    if sequence > usable:
        return (
            "More nodes do not help: the KV cache of one sequence of "
            f"{workload.context:,} tokens takes {sequence / 1e9:,.1f} GB of each GPU even at TP {widest}; use a "
            f"shorter {input_name('context')} or a smaller {input_name('kv_dtype')}."
        )
    if fits := _engines_that_fit(deployment, redundant):
        options = " or ".join(f"{input_name('engine')} {engine}" for engine in fits)
        return f"It fits with {options}, which keeps less; {input_name('mem_util')} gives an engine more."
    node = full_domain(deployment.cluster.spec.domains[0])
    nodes = smallest_nodes(deployment, redundant)
    if nodes is None:
        return f"No number of nodes of this kind up to {MOST_NODES:,} fits; use a GPU with more memory."
    joined = "" if deployment.cluster.spec.scale_out else ", joined by a `fabric:`"
    return (
        f"The smallest whole number of nodes that fits is {nodes} "
        f"({nodes * node.gpus_per_node} GPUs, {node.gpus_per_node} a node){joined}."
    )


def _engines_that_fit(deployment: Deployment, redundant: int | None) -> list[str]:
    """Return the engines with which a layout fits, where none is named and the tightest counts."""
    vendors = {domain.gpu.vendor for domain in deployment.cluster.spec.domains}
    if deployment.engine or len(vendors) > 1:
        return []
    named = [name for name in engines_on(vendors.pop()) if name in engine_names()]
    return [name for name in named if any(fitting_shapes(replace(deployment, engine=name), redundant))]


def _heads(model: Model) -> int:
    """Query heads, of which every width of tensor parallelism is a divisor."""
    return math.gcd(*(layer.attention.heads for layer in model.kinds))


def tightest(
    deployment: Deployment, shapes: Iterable[Shape], redundant: int | None, spread: Spread = "gpu"
) -> tuple[Shape, StageMemory]:
    """Return the shape that comes nearest to fitting its smallest batch, and the memory of its fullest stage.

    Raises
    ------
    InputError
        If no shape can hold the experts at all.
    InfeasibleError
        If none can with the copies of each expert spread over failure domains.
    """
    layers = len(deployment.model.layers)
    best: tuple[float, Shape, StageMemory] | None = None
    for shape in shapes:
        slots = stage_slots(deployment, shape, redundant, spread)
        if slots is None:
            continue
        groups, least = shape.replicas[0], batch_of(1, shape.tp)
        stages = stage_specs(groups, equal_ranges(layers, len(groups)))
        memories = replica_memory(deployment, stages, slots=slots, **shape.widths)
        memory = min(memories, key=lambda stage: stage.usable - stage.used(least))
        over = memory.used(least) - memory.usable
        if best is None or over < best[0]:
            best = over, shape, memory
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
    for shape in enumerate_shapes(deployment):
        slots = stage_slots(deployment, shape, redundant)
        if slots is not None:
            for members, row in zip(zip(*shape.replicas, strict=True), slots, strict=True):
                domains = stage_domains(deployment, members, spread)
                word = (
                    f"{input_name('spread')} {spread} ({deployment.cluster.name} has {len(names)} "
                    f"{spread}{'s' * (len(names) > 1)})"
                )
                require_apart(moe.experts, row, domains, word)


def refuse_speed(deployment: Deployment, limit_s: float | None, fastest_s: float) -> NoReturn:
    """Raise LimitError: no layout holds the time per token (prefill: of a step), and the fastest there is."""
    workload, fastest = deployment.workload, f"{rounded_up(fastest_s * 1e3)} ms"
    batch = f"at batch {workload.batch:,.9g}" if workload.batch else "with one sequence a group"
    reason = f"the fastest layout takes {fastest} per token {batch}"
    if not workload.decodes:
        batch = batch.replace("sequence", "prompt")
        reason = f"the fastest layout prefills prompts of {workload.context:,} tokens in {fastest} {batch}"
    option = "tpot_ms" if workload.decodes else "ttft_ms"
    raise out_of_reach("limit_s", option, limit_s or 0.0, deployment.cluster.name, reason)


def refuse_first_token(deployment: Deployment, limit_s: float, fastest_s: float) -> NoReturn:
    """Raise LimitError: no layout gives the first token in time, and the fastest there is."""
    reason = (
        f"a prompt of {deployment.workload.context:,} tokens alone takes {rounded_up(fastest_s * 1e3)} ms on the "
        "fastest layout"
    )
    raise out_of_reach("first_s", "ttft_ms", limit_s, deployment.cluster.name, reason)


def refuse_layout(deployment: Deployment, options: PlanOptions, layouts: Sequence[Fitted]) -> NoReturn:
    """Raise InfeasibleError: what binds of the widths asked for, and those near them that fit."""
    widths = " ".join(f"{input_name(name)} {value}" for name, value in options.widths.items())
    legal = [shape for shape in _shapes(deployment) if options.admits(_evenly(deployment, shape))]
    why = _too_much(deployment, options, legal) if legal else ""
    if not why and options.tp is not None and not context_widths(deployment, options.tp):
        why = str(no_context(deployment, options.tp)).removesuffix(".")
    why = why or next(_broken_rules(deployment, options))
    raise InfeasibleError(
        f"{widths} on {deployment.cluster.name}: {why}.{_nearest(deployment, options, layouts)}"
    )


def _too_much(deployment: Deployment, options: PlanOptions, shapes: Sequence[Shape]) -> str:
    """What of memory or the batch rules these shapes out; empty if nothing."""
    shape, memory = tightest(deployment, shapes, options.copies, options.spread)
    batch = deployment.workload.batch
    if memory.used(batch_of(1, shape.tp)) > memory.usable:
        return f"HBM capacity binds: it {_shortage(deployment, shape, memory)}"
    if batch > memory.most >= batch_of(1, shape.tp) and memory.used(batch) <= memory.usable:
        return beyond_engine(deployment, batch)
    if memory.used(batch) > memory.usable:
        return (
            f"HBM capacity binds: {input_name('batch')} {batch:,.9g} does not fit; the largest that fits is about "
            f"{most_that_fit(memory.room, shape.tp):,.9g} sequences per GPU"
        )
    if batch and not sequences_of(batch, shape.tp):
        return f"{input_name('batch')} {batch:,.9g} is no whole number of sequences of a group of {shape.tp} GPUs"
    return ""


def _evenly(deployment: Deployment, shape: Shape) -> Layout:
    return shape.split(equal_ranges(len(deployment.model.layers), len(shape.replicas[0])))


def _nearest(deployment: Deployment, options: PlanOptions, layouts: Sequence[Fitted]) -> str:
    """Which widths that fit have most in common with those asked for, spelled as options."""
    names = ("ep", "tp", "stages") if deployment.model.moe is not None else ("tp", "stages")
    requested = options.widths
    # experts that are cut over more GPUs than attention are left out: no option asks for them
    plain = (fit.layout for fit in layouts if fit.layout.ep > 1 or fit.layout.moe_tp in (1, fit.layout.tp))
    fits = {tuple(getattr(layout, name) for name in names) for layout in plain}

    def far(widths: tuple[int, ...]) -> tuple[float, ...]:
        of = dict(zip(names, widths, strict=True))
        apart = [abs(math.log(of[name] / width)) for name, width in requested.items() if name in of]
        # of equals that with experts over most GPUs, then the simplest
        return sum(distance > 0 for distance in apart), sum(apart), -of.get("ep", 0), of["tp"], of["stages"]

    spelled = [
        " ".join(f"{input_name(name)} {width}" for name, width in zip(names, widths, strict=True))
        for widths in sorted(fits, key=far)[:LAYOUTS_NAMED]
    ]
    return f" What fits: {'; '.join(spelled)}." if spelled else ""


def _broken_rules(deployment: Deployment, options: PlanOptions) -> Iterator[str]:
    """Yield which rules of layouts the widths asked for break, the plainest first; HBM plays no part."""
    model, cluster = deployment.model, deployment.cluster
    ep, tp, stages = options.ep, options.tp, options.stages or 1
    gpus, domain = len(cluster.gpus), max(domain_spec.gpus for domain_spec in cluster.spec.domains)
    heads, group, most_stages = _heads(model), max(ep or 1, tp or 1), min(MAX_STAGES, len(model.layers))
    if tp is not None and heads % tp:
        yield f"{heads} query heads do not divide by {tp}"
    if tp is not None and tp not in TP_WIDTHS:
        yield f"TP {tp} is not offered: plans have powers of two up to {TP_WIDTHS[-1]}"
    if stages > most_stages:
        yield f"at most {most_stages} stages are offered"
    if group * stages > gpus:
        yield f"that takes {group * stages} GPUs, and it has {gpus}"
    if model.moe is not None and ep is not None and tp is not None and ep < tp:
        if ep > 1:
            yield (
                f"that cuts each expert into {tp // ep} parts and spreads them over {ep} places, which a sweep prices"
                f" and plans do not offer; {input_name('ep')} {tp} spreads whole experts over the group, "
                f"{input_name('ep')} 1 cuts each over all of it"
            )
        if domain % tp:
            yield f"experts are cut within a scale-up domain, and groups of {tp} GPUs do not divide its {domain} GPUs"
    if ep is not None and tp is not None and ep % tp:
        yield f"attention groups of {tp} GPUs do not divide the {ep} GPUs of an expert group"
    if tp is not None and tp > domain and ep not in (None, tp):
        yield (
            f"tensor parallelism over several domains of {domain} GPUs is offered where it is as wide as the stage "
            f"({input_name('ep')} {tp})"
        )
    if model.moe is not None and -(-(model.moe.experts + (options.copies or 0)) // group) > model.moe.experts:
        yield f"{group} GPUs cannot hold that many copies of {model.moe.experts} experts without two of one on a GPU"
    node = cluster.spec.domains[0].gpus_per_node
    if node % group and group % node:
        yield f"groups of {group} GPUs do not divide nodes of {node}"
    domains = plural(len(cluster.spec.domains), "domain")
    yield f"{plural(stages, 'stage')} of {group} GPUs do not fill its {domains} of {domain} GPUs evenly"


def fastest_step_s(layouts: Sequence[Fitted]) -> float:
    """Return the shortest step over the layouts, at the user's batch or with one sequence for each group."""
    return min(fit.scorer.at(fit.least_batch).tpot_s for fit in layouts)


def smallest_nodes(deployment: Deployment, redundant: int | None) -> int | None:
    """Return the fewest nodes of the cluster's kind on which a sequence fits; None up to ``MOST_NODES``.

    Nodes are tried one by one from what the weights alone need; far above that, in doubling steps and back. A torus
    or a raw domain grows by whole domains.
    """
    domain = full_domain(deployment.cluster.spec.domains[0])
    size = weight_sizes(deployment.model)
    slots = (layer.ffn.experts if isinstance(layer.ffn, MoeFfn) else 0 for layer in deployment.model.layers)
    layers = zip(deployment.model.layers, slots, strict=True)
    weights = added(layer_weight_bytes(layer, size, tp=1, slots=count) for layer, count in layers)
    step = domain.gpus // domain.gpus_per_node if domain.whole else 1
    per_step = step * domain.gpus_per_node * domain.gpu.hbm_bytes
    fewest = max(1, math.ceil(weights / per_step))
    for steps in range(fewest, fewest + TRIED_ONE_BY_ONE):
        if _fits(deployment, domain, steps * step, redundant):
            return steps * step
    low, high = steps, 2 * steps
    while not _fits(deployment, domain, high * step, redundant):
        low, high = high, 2 * high
        if high * step > MOST_NODES:
            return None
    too_few = last_where(low, high, lambda steps: not _fits(deployment, domain, steps * step, redundant))
    return (too_few + 1) * step


def _fits(deployment: Deployment, domain: DomainSpec, nodes: int, redundant: int | None) -> bool:
    spec = fill_domains(
        f"{nodes} nodes", domain, deployment.cluster.spec.scale_out, nodes * domain.gpus_per_node
    )
    enlarged = replace(deployment, cluster=build_cluster(spec), any_shape=True)
    return any(fitting_shapes(enlarged, redundant, cut_experts=True))
