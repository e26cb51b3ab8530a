"""Hand-overs between pipeline stages, and the wait for the slowest of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from cost.inputs.deployment import Deployment
from cost.inputs.layout import Joint, StageSpec, joint
from cost.inputs.machine import OUT_LINKS, Machine
from cost.inputs.workload import StepShape
from cost.model import Model
from cost.quantity import Quantity
from cost.terms.work import Term

ACTIVATION_BYTES = 2.0
"""Activations between GPUs travel in BF16."""
LEAF_LINKS = 2
"""Links between GPUs of two domains on one leaf: up to it and down again."""
TOKEN_ID_BYTES = 4.0
"""A sampled token travels back to the first stage, which embeds it, as an int32."""


def hop_seconds(
    deployment: Deployment, sender: StageSpec, receiver: StageSpec, *, moved: float
) -> tuple[str, float, float]:
    """Return the fabric of a pipeline hop, its expected seconds and its seconds at peak.

    ``moved`` bytes pass the busiest GPU: over the scale-up fabric where both stages lie in one domain, else over the
    scale-out one. Neighbours on one leaf share no uplink with others, and their bytes pass :data:`LEAF_LINKS` links;
    in one pod of a fat tree they do not pass its cores. Where links are broken or slow, what they leave counts
    (:mod:`cost.inputs.fabric_faults`).
    """
    rates, reached = deployment.rates(sender), deployment.machine(sender).efficiency["links.hop"]
    near = joint(deployment.place(sender), deployment.place(receiver))
    if near is Joint.DOMAIN:
        peak_s = moved / rates.up_bytes_per_s
        return rates.up_fabric, peak_s / reached + rates.up_latency_s, peak_s
    rates.require_scale_out()
    out, share, latency_s = deployment.cluster.spec.scale_out, 1.0, rates.out_latency_s
    assert out is not None  # noqa: S101 - checked above
    if near is Joint.LEAF:
        share, latency_s = out.total_oversubscription, latency_s * LEAF_LINKS / OUT_LINKS
    elif near is Joint.POD:
        share = out.oversubscription_above_pods
    rate = out.scale_out_bytes_per_s / out.total_oversubscription * share
    peak_s = moved / (rate * deployment.hop_left(sender, receiver))
    return rates.out_fabric, peak_s / reached + latency_s, peak_s


def hops(
    deployment: Deployment, stages: Sequence[StageSpec], batch: float
) -> Iterator[tuple[str, float, float]]:
    """Fabric, expected seconds and seconds at peak of each hop of a micro-batch, back to the first stage too.

    Each GPU hands one hidden vector a token to its counterpart, the last stage the sampled token to the first.
    ``batch`` sequences per GPU of the replica are in flight, as many micro-batches as stages; one stage has no hop.
    """
    total, depth = sum(len(stage.gpus) for stage in stages), len(stages)
    if depth == 1:
        return
    for stage, receiver in zip(stages, [*stages[1:], stages[0]], strict=True):
        yield hand_over(deployment, stage, receiver, batch * total / depth, back=receiver is stages[0])


def hand_over(
    deployment: Deployment, stage: StageSpec, receiver: StageSpec, sequences: float, *, back: bool = False
) -> tuple[str, float, float]:
    """Return the fabric, expected seconds and seconds at peak of handing a micro-batch to the next stage.

    ``sequences``: of the micro-batch over all GPUs; ``back``: the sampled tokens, to the first stage.
    """
    # the side with fewer GPUs moves more through each
    tokens = sequences / min(len(stage.gpus), len(receiver.gpus)) * deployment.workload.tokens_per_pass
    vector_bytes = TOKEN_ID_BYTES if back else deployment.model.hidden * ACTIVATION_BYTES
    return hop_seconds(deployment, stage, receiver, moved=tokens * vector_bytes)


def even_hops_s(model: Model, shape: StepShape, machine: Machine) -> Quantity:
    """Return the seconds of the hops of a micro-batch between equal stages, 0 of one stage; as :func:`hops` has them.

    Inside a domain where all stages lie in one, else over the scale-out fabric.
    """
    rates, vectors = machine.rates, shape.tokens * model.hidden * ACTIVATION_BYTES
    inside = np.asarray(shape.engine_gpus) <= shape.domain_gpus
    with np.errstate(divide="ignore"):  # without a fabric the hop never ends
        per_byte = 1 / np.where(inside, rates.up_bytes_per_s, rates.out_bytes_per_s)
    latency_s = np.where(inside, rates.up_latency_s, rates.out_latency_s)
    back = shape.sequences * TOKEN_ID_BYTES
    moved = (shape.stages - 1) * vectors + back
    seconds = moved * per_byte / machine.efficiency["links.hop"] + shape.stages * latency_s
    return np.where(np.asarray(shape.stages) > 1, seconds, 0.0)


def even_stage_s(one_pass_s: Quantity, ends_s: Quantity, layers: int, stages: Quantity) -> Quantity:
    """Return the seconds of the slowest of ``stages`` that share whole layers, all alike, as evenly as they can.

    ``one_pass_s`` of all of them, ``ends_s`` of what the last one does besides: the head, and fixed costs of a step.
    """
    layer_s = (np.asarray(one_pass_s) - ends_s) / layers
    of_last = np.arange(1.0, layers + 1).reshape(-1, *[1] * layer_s.ndim)
    of_others = np.ceil((layers - of_last) / np.maximum(np.asarray(stages) - 1, 1))
    slowest = np.maximum(of_last * layer_s + ends_s, of_others * layer_s)
    return np.asarray(np.where(np.asarray(stages) > 1, slowest.min(axis=0), one_pass_s))


@dataclass(frozen=True)
class Hop:
    """A hand-over of a micro-batch: its fabric, the bytes of all GPUs together, and expected seconds.

    ``bytes_per_s`` is the peak rate of a GPU of the side that has fewer.
    """

    fabric: str
    bytes: float
    seconds: float
    bytes_per_s: float


def hop_list(deployment: Deployment, stages: Sequence[StageSpec], batch: float) -> list[Hop]:
    """Return the hops of a micro-batch from stage to stage, at last that of sampled tokens back to the first.

    Parameters as of :func:`hops`.
    """
    sequences = batch * sum(len(stage.gpus) for stage in stages) / len(stages)
    vectors = sequences * deployment.workload.tokens_per_pass * deployment.model.hidden * ACTIVATION_BYTES
    tokens = sequences * deployment.workload.tokens_per_pass * TOKEN_ID_BYTES
    hop_of: list[Hop] = []
    for number, (fabric, seconds, peak_s) in enumerate(hops(deployment, stages, batch), 1):
        moved = tokens if number == len(stages) else vectors
        pairs = min(len(stages[number - 1].gpus), len(stages[number % len(stages)].gpus))
        hop_of.append(Hop(fabric, moved, seconds, moved / pairs / peak_s))
    return hop_of


def bubble_seconds(depth: Quantity, slowest_s: Quantity, one_pass_s: Quantity, hops_s: Quantity) -> Quantity:
    """Seconds that ``depth`` micro-batches going round wait for the slowest of as many stages.

    It serves each of them once, or one of them passes every stage and every hop, whichever takes longer.
    """
    return np.maximum(0.0, depth * slowest_s - one_pass_s - hops_s)


HOPS = Term(
    "pipeline_hops",
    "#aa4466",
    behind=("links.hop",),
    meaning="hand-overs between stages",
    formula="stages x (bytes of the busiest GPU / reached rate + latency)",
)
BUBBLE = Term(
    "pipeline_bubble",
    "#ddcc77",
    meaning="stages wait for the slowest stage",
    formula="stages x seconds of the slowest stage - seconds of all stages and hops, or nothing",
)
