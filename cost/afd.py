"""Attention and experts on different GPUs (AFD): micro-batches go back and forth between the two pools.

The attention GPUs hold attention, dense, shared and router weights, embedding, head and the caches; the expert GPUs
hold the routed experts. In each layer with experts every micro-batch computes ``A`` seconds on the attention GPUs, is
sent to the experts (``D``), computes ``E`` there and is sent back (``C``), while the others take their turns
("ping-pong"). With ``m`` micro-batches a layer takes

    max(m A, m E, m D, m C, A + E + D + C)

and the whole step once ``min(A + E + D + C - T, (m - 1) T)`` more, ``T`` the largest of the four: the pipeline fills.
Where ``m T`` is the largest these are ``(A + E + D + C) + T (m L - 1)`` over ``L`` layers, as in MegaScale-Infer
(Zhu et al., arXiv:2504.02263, section 4.1), whose condition ``m T >= 2 (T + D)`` says that no pool waits; Step-3
(arXiv:2507.19427) runs the same pipeline. Dispatch and combine count apart, since links work in both directions.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from cost.deployment import USABLE_HBM, Deployment
from cost.layout import StageSpec
from cost.layouts.candidates import batch_grid, domain_gpus, equal_groups, group_sizes
from cost.layouts.result import StepParts, Sweep
from cost.layouts.stages import Columns
from cost.machine import Machine
from cost.memory import batch_room, even_memory, weight_sizes
from cost.model import Layer, Model, MoeFfn
from cost.quantity import Quantity
from cost.step import priced
from cost.terms.all_reduce import ALL_REDUCE
from cost.terms.alltoall import leg_part, routing_of
from cost.terms.alltoall_kernel import vector_bytes
from cost.terms.alltoall_volumes import Volumes, hit_chance
from cost.terms.attention import ATTENTION
from cost.terms.dense import DENSE, add_head
from cost.terms.experts import even_expert_work
from cost.terms.overhead import OVERHEAD, add_step_delays
from cost.terms.work import LayerStep, LinkPart, Parts
from cost.workload import StepShape, with_imbalance
from topology.errors import InputError

Array = NDArray[np.float64]
Index = NDArray[np.int64]


MICRO_BATCHES = (2, 3, 4)
"""Micro-batches that are tried: at least 2, and 3 or 4 where sending takes as long as half of computing (section 4.1
of MegaScale-Infer)."""
WIDTHS = (1, 2, 4, 8)
"""Tensor-parallel widths of attention that are tried."""


@dataclass(frozen=True, eq=False)
class AfdShape:
    """Groups of GPUs that share the work, numbers or arrays.

    Attributes
    ----------
    attention_gpus, expert_gpus, tp:
        GPUs of each side of a group, and the width of tensor parallelism on the attention side.
    sequences, micro_batches:
        Sequences per attention GPU of one micro-batch, and micro-batches in flight.
    crosses:
        Whether the sides lie in different scale-up domains.
    imbalance:
        Busiest expert GPU over the mean.
    """

    attention_gpus: Quantity
    expert_gpus: Quantity
    tp: Quantity
    sequences: Quantity
    micro_batches: Quantity
    crosses: bool = False
    imbalance: Quantity = 1.0


@dataclass(frozen=True, eq=False)
class LayerTimes:
    """Seconds of one micro-batch in one layer: attention side, experts, sending there and back.

    ``peak_s``: the slowest of them at data-sheet peaks, without delays.
    """

    attention_s: Quantity
    experts_s: Quantity
    dispatch_s: Quantity
    combine_s: Quantity
    peak_s: Quantity = 0.0

    @property
    def longest_s(self) -> Quantity:
        """The slowest of the four, which the others wait for."""
        return np.maximum(
            np.maximum(self.attention_s, self.experts_s), np.maximum(self.dispatch_s, self.combine_s)
        )

    @property
    def round_trip_s(self) -> Quantity:
        """One micro-batch through all four."""
        return self.attention_s + self.experts_s + self.dispatch_s + self.combine_s


def ping_pong_seconds(times: LayerTimes, micro_batches: Quantity) -> tuple[Quantity, Quantity]:
    """Return the seconds of a layer for all micro-batches, and those in which the pipeline fills, once a step."""
    longest, through = times.longest_s, times.round_trip_s
    layer_s = np.maximum(micro_batches * longest, through)
    return layer_s, np.minimum(through - longest, (micro_batches - 1) * longest)


def afd_layer(
    deployment: Deployment, machine: Machine, layer: Layer, shape: AfdShape, *, queries: float
) -> LayerTimes:
    """Return what one micro-batch costs in ``layer``; a layer without experts runs on the attention side alone.

    Notes
    -----
    A token is sent once to each expert GPU that holds one of its experts, ``n_e h(1)`` of them
    (:func:`cost.terms.alltoall_volumes.hit_chance`), and as many vectors come back. The slower side binds: an
    attention GPU sends those of its own tokens, an expert GPU receives a share of all. Rates and fixed parts are
    those of the phase's all-to-all kernel on the same links: no library of this kind publishes its own for them.
    """
    model, moe = deployment.model, layer.ffn
    tokens = shape.sequences * queries
    own = StepShape(
        tp=shape.tp,
        attention_dp=shape.attention_gpus / shape.tp,
        sequences=shape.sequences,
        queries=queries,
        context=float(deployment.workload.context),
        domain_gpus=shape.attention_gpus,
    )
    parts, at = Parts(), LayerStep(model, layer, 1.0, own, machine)
    for term in (ATTENTION, DENSE, OVERHEAD):
        term.of_layer(parts, at)
    parts.counts["delay.moe_layer"] = 0.0  # paid by the experts
    ALL_REDUCE.of_layer(parts, replace(at, shape=replace(own, attention_dp=2.0)))
    near = priced(parts, machine.efficiency, machine.rates)
    if not isinstance(moe, MoeFfn):
        none = np.zeros_like(np.asarray(near.total_s))
        return LayerTimes(near.total_s, none, none, none, near.lower_s)
    ep = np.asarray(shape.expert_gpus, dtype=np.float64)
    apart = StepShape(
        attention_dp=ep,
        ep=ep,
        sequences=tokens * shape.attention_gpus / ep,
        slots=np.ceil(moe.experts / ep) * ep,
        imbalance=shape.imbalance,
    )
    work = even_expert_work(
        moe, apart, hidden=model.expert_hidden, weights=model.precision["experts"], rates=machine.rates
    )
    far = priced(Parts(works=[work], counts={"delay.moe_layer": 1.0}), machine.efficiency, machine.rates)
    out, back = _sent(model, moe, machine, shape, tokens)
    peak_s = reduce(np.maximum, (near.lower_s, far.lower_s, out.up_s, out.out_s, back.up_s, back.out_s))
    return LayerTimes(near.total_s, far.total_s, out.expected_s, back.expected_s, peak_s)


def _sent(
    model: Model, moe: MoeFfn, machine: Machine, shape: AfdShape, tokens: Quantity
) -> tuple[LinkPart, LinkPart]:
    """What is sent to the experts and back."""
    if shape.crosses:
        machine.rates.require_scale_out()
    kernel = machine.kernels.across if shape.crosses else machine.kernels.inside
    copies = np.asarray(shape.expert_gpus * hit_chance(routing_of(moe), 1, shape.expert_gpus))
    sent = np.asarray(tokens * copies)
    received = sent * shape.imbalance * shape.attention_gpus / shape.expert_gpus
    busiest = np.maximum(sent, received)
    none = np.zeros_like(busiest)
    up, out = (none, busiest) if shape.crosses else (busiest, none)
    dispatch, combine = vector_bytes(model.expert_hidden, model.precision["experts"])
    ep = np.maximum(shape.attention_gpus, shape.expert_gpus)

    def leg(way: Literal["dispatch", "combine"], size: float, ends: Array) -> LinkPart:
        volumes = Volumes(up, out, ends)
        return leg_part(kernel, way, volumes, volumes, size=size, machine=machine, ep=ep)

    return leg("dispatch", dispatch, received), leg("combine", combine, sent)


@dataclass(frozen=True, eq=False)
class AfdSweep(Sweep):
    """A sweep of groups whose attention and experts lie on different GPUs.

    ``ep`` counts the expert GPUs, ``attention_dp * tp`` the attention GPUs of a group of ``gpus``; ``batch`` is
    sequences per GPU of both sides together.
    """

    micro_batches: Index = field(kw_only=True)

    def label(self, index: int) -> str:
        """The layout in a few letters: ``A48 E24 TP1 m3 x1``."""
        attention = int(self.attention_dp[index] * self.tp[index])
        return (
            f"A{attention} E{self.ep[index]} TP{self.tp[index]} m{self.micro_batches[index]} "
            f"x{self.replicas[index]}"
        )

    def columns(self) -> dict[str, NDArray[np.float64] | NDArray[np.int64] | NDArray[np.str_]]:
        """All columns by name, as a file of them has."""
        return super().columns() | {"micro_batches": self.micro_batches}


def afd_sweep(deployment: Deployment, *, imbalance: float | None = 1.0) -> AfdSweep:
    """Price decode with attention and experts apart: every size of a group, share of it, width and batch.

    Parameters
    ----------
    imbalance:
        Busiest expert GPU over the mean; None: the usual one of wide groups.

    Notes
    -----
    A group lies in one domain, its sides joined by the scale-up links, or joins whole domains, some of which hold
    attention and the others experts: then everything crosses the scale-out links. Both sides are GPUs of one cluster.

    Raises
    ------
    InputError
        If the phase is not decode, the model has no routed experts, or half batches were asked for as well.
    """
    model, workload = deployment.model, deployment.workload
    if not workload.decodes:
        raise InputError("`afd`: only decode is split so; leave `phase` prefill out.")
    if model.moe is None:
        raise InputError(f"`afd`: {model.name} has no routed experts to put elsewhere.")
    if workload.overlap:
        raise InputError("`afd`: its micro-batches overlap already; leave `overlap` out.")
    pieces = [_price(deployment, *each, imbalance=imbalance) for each in _candidates(deployment)]
    found = reduce(Columns.joined, pieces, Columns(0))
    tp, gpus, replicas, experts, micro = (
        found[name].astype(np.int64) for name in ("tp", "gpus", "replicas", "experts", "micro")
    )
    step_s, limits, one = found["step_s"], found.named("limit"), np.ones(found.rows, dtype=np.int64)
    tok_s = found["batch"] * gpus * replicas * workload.tokens_per_step / np.maximum(step_s, 1e-30)
    return AfdSweep(
        deployment=deployment,
        layout=np.arange(found.rows),
        tp=tp,
        attention_dp=(found["attention"] / np.maximum(tp, 1)).astype(np.int64),
        ep=experts,
        moe_tp=one,
        stages=one,
        replicas=replicas,
        gpus=gpus,
        batch=found["batch"],
        max_batch=found["most"],
        step_s=step_s,
        tok_s=tok_s,
        parts_of=StepParts(
            found["lower_s"],
            np.argmax(list(limits.values()), axis=0) if limits else one,
            tuple(limits),
            {"attention_side": found["busy_s"], "waiting": step_s - found["busy_s"]},
        ),
        variants=(),
        shortage_bytes=0.0 if found.rows else _shortage(deployment),
        imbalance=imbalance,
        micro_batches=micro,
    )


def _candidates(deployment: Deployment) -> list[tuple[tuple[int, ...], int, bool, list[int]]]:
    """Groups of each size: GPUs of the first, their number, whether sides cross, sizes of the expert side."""
    domains = domain_gpus(deployment.cluster)
    largest = max(map(len, domains))
    found = []
    moe = deployment.model.moe
    most = moe.experts if moe else 0
    for size in group_sizes(domains):
        groups = equal_groups(domains, size)
        crosses = size > largest
        step = largest if crosses else 1
        sides = [n for n in range(step, size, step) if n <= most]
        if groups and sides and (not crosses or size % largest == 0):
            found.append((groups[0], len(groups), crosses, sides))
    return found


def _price(
    deployment: Deployment,
    group: tuple[int, ...],
    replicas: int,
    crosses: bool,
    sides: list[int],
    *,
    imbalance: float | None,
) -> Columns:
    """All widths, batches and micro-batches of groups of one size, as columns."""
    model = deployment.model
    machine = deployment.machine(StageSpec(group, range(len(model.layers))))
    heads = int(np.gcd.reduce([layer.attention.heads for layer in model.kinds]))
    where = deployment.cluster.gpus[group[0]].domain
    inside = sum(deployment.cluster.gpus[gpu].domain == where for gpu in group)
    pairs = np.array(
        [
            (len(group) - n, n, tp, m)
            for n in sides
            for tp in WIDTHS
            for m in MICRO_BATCHES
            if (len(group) - n) % tp == 0 and heads % tp == 0 and (not crosses or inside % tp == 0)
        ],
        dtype=np.float64,
    ).reshape(-1, 4)
    attention, experts, tp, micro = pairs.T
    hbm = machine.rates.hbm_bytes
    room = batch_room(_attention_memory(deployment, tp), hbm)
    fits = _expert_weights(model, experts) <= USABLE_HBM * hbm
    most = np.where(fits, np.floor(np.maximum(room, 0.0) * tp / micro), 0.0)
    grid = batch_grid(float(most.max(initial=0.0)))
    row, place = np.nonzero(grid[None, :] <= most[:, None])
    attention, experts, tp, micro = pairs[row].T
    stated = StepShape(ep=experts, imbalance=0.0 if imbalance is None else imbalance)
    uneven = with_imbalance(stated, "decode").imbalance
    shape = AfdShape(attention, experts, tp, grid[place] / tp, micro, crosses, uneven)
    table = {
        "tp": tp,
        "attention": attention,
        "experts": experts,
        "micro": micro,
        "gpus": attention + experts,
        "replicas": np.full(len(row), float(replicas)),
        "batch": shape.sequences * micro * attention / (attention + experts),
        "most": most[row] * micro / tp * attention / (attention + experts),
    }
    named = {(name, ""): value for name, value in table.items()}
    return Columns(len(row), named | _step(deployment, machine, shape))


def _step(deployment: Deployment, machine: Machine, shape: AfdShape) -> dict[tuple[str, str], Array]:
    """Seconds of a step, its lower bound, and seconds by what may bind it, as columns."""
    model, workload = deployment.model, deployment.workload
    queries = 1.0 + workload.draft_tokens
    layers = [(layer, float(count), queries) for layer, count in model.kind_counts(range(len(model.layers)))]
    if workload.draft_tokens:
        layers.append((model.layers[-1], float(workload.draft_tokens), 1.0))
    m = np.asarray(shape.micro_batches)
    step, lower, busy, experts, links, trips, fill = (np.zeros(len(m)) for _ in range(7))
    for layer, count, each in layers:
        times = afd_layer(deployment, machine, layer, shape, queries=each)
        if isinstance(layer.ffn, MoeFfn):
            layer_s, fills = ping_pong_seconds(times, m)
            fill = np.maximum(fill, fills)
            trips = trips + count * times.round_trip_s
        else:
            layer_s = m * times.attention_s
            trips = trips + count * layer_s
        step = step + count * layer_s
        lower = lower + count * m * times.peak_s
        busy = busy + count * m * times.attention_s
        experts = experts + count * m * times.experts_s
        links = links + count * m * np.maximum(times.dispatch_s, times.combine_s)
    heads = [(1.0, queries)] + ([(float(workload.draft_tokens), 1.0)] if workload.draft_tokens else [])
    for count, each in heads:
        parts = Parts()
        own = StepShape(tp=shape.tp, sequences=shape.sequences * m, queries=each)
        add_head(parts, model, own, machine, 1.0)
        if each != 1.0 or not workload.draft_tokens:
            add_step_delays(parts, own, 1.0)
        cost = priced(parts, machine.efficiency, machine.rates)
        step, busy, trips = (value + count * cost.total_s for value in (step, busy, trips))
        lower = lower + count * cost.lower_s
    return {
        ("step_s", ""): step + fill,
        ("lower_s", ""): lower,
        ("busy_s", ""): busy,
        ("limit", "attention side"): busy,
        ("limit", "expert side"): experts,
        ("limit", "round trip"): trips,
        ("limit", machine.rates.out_fabric if shape.crosses else machine.rates.up_fabric): links,
    }


def _attention_memory(deployment: Deployment, tp: Quantity) -> tuple[Quantity, Quantity]:
    """Bytes of weights, and for each sequence, of an attention GPU in a group of ``tp``."""
    shape = StepShape(tp=tp, context=float(deployment.workload.context))
    return even_memory(deployment.model, deployment.workload, shape, routed=False)


def _expert_weights(model: Model, gpus: Quantity) -> Array:
    """Bytes of routed experts on the fullest of ``gpus`` expert GPUs."""
    size = weight_sizes(model)["experts"]
    bytes_: Array = np.zeros_like(np.asarray(gpus, dtype=np.float64))
    for layer, count in model.kind_counts(range(len(model.layers))):
        if isinstance(layer.ffn, MoeFfn):
            bytes_ = bytes_ + count * np.ceil(layer.ffn.experts / gpus) * layer.ffn.expert_params * size
    return bytes_


def _shortage(deployment: Deployment) -> float:
    """Bytes that the best split of the largest group lacks on an expert GPU, or for one sequence."""
    candidates = _candidates(deployment)
    if not candidates:
        return 1.0
    group, _, _, sides = candidates[0]
    rates = deployment.machine(StageSpec(group, range(len(deployment.model.layers)))).rates
    weights, each = _attention_memory(deployment, np.ones(1))
    usable = USABLE_HBM * rates.hbm_bytes
    experts = float(_expert_weights(deployment.model, np.array([float(max(sides))]))[0]) - usable
    return max(experts, float(np.max(weights + each)) - usable, 1.0)
