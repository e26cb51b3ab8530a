"""What a roofline says of a model on a machine before any placement: the identities of the blackboard."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Unpack

from cost.inputs.deployment import Deployment
from cost.inputs.layout import Layout, StageSpec, StageWidths
from cost.inputs.workload import StepShape
from cost.principles.step import balancing_batch
from cost.principles.tiers import CacheTier, cache_tiers
from cost.step.score import Score
from cost.step.step import even_step
from cost.terms.pipeline import BUBBLE
from topology.base.errors import InputError


@dataclass(frozen=True)
class Identities:
    """What a roofline says of a model on the GPUs of the first stage, with even loads.

    Attributes
    ----------
    step_tokens, balancing_batch:
        Tokens of a step of one replica, and those at which computing takes as long as reading all weights.
    output_over_input:
        Price of an output token over that of an input token; None for prefill.
    tiers:
        Memories that can keep contexts, HBM first.
    bubble:
        Share of the step that stages wait for the slowest of them.
    one_domain_s, two_domains_s:
        Seconds of a step with the EP group in one domain, and halved over two; None where no fabric joins domains.
    """

    step_tokens: float
    balancing_batch: float
    output_over_input: float | None
    tiers: tuple[CacheTier, ...]
    bubble: float
    one_domain_s: float | None
    two_domains_s: float | None

    def to_dict(self) -> Any:
        """Return what commands print; its type is this class."""
        return asdict(self)


def identities(deployment: Deployment, layout: Layout, score: Score) -> Identities:
    """Return the roofline identities of a model with its layout and score."""
    workload, stages = deployment.workload, layout.replicas[0]
    first_stage = stages[0]
    gpu = deployment.cluster.domain_of(first_stage.gpus[0]).gpu
    try:
        over: tuple[float | None, float | None] = over_two_domains(
            deployment, first_stage, score.batch, **layout.widths
        )
    except InputError:
        over = None, None
    decodes = workload.decodes and workload.context > 1
    return Identities(
        step_tokens=score.batch * workload.tokens_per_pass * sum(len(stage.gpus) for stage in stages),
        balancing_batch=balancing_batch(deployment.model, gpu),
        output_over_input=output_over_input(deployment, first_stage, score.batch, **layout.widths)
        if decodes
        else None,
        tiers=cache_tiers(gpu),
        bubble=score.terms_s.get(BUBBLE.name, 0.0) / score.step_s,
        one_domain_s=over[0],
        two_domains_s=over[1],
    )


def output_over_input(
    deployment: Deployment, stage: StageSpec, batch: float, **widths: Unpack[StageWidths]
) -> float:
    """Return GPU-seconds of an output token over those of an input token.

    Both on the GPUs of ``stage`` with evenly loaded experts: a decode step of ``batch`` sequences per GPU, and the
    prefill of one prompt per GPU of as many tokens as the context has.
    """
    workload = deployment.workload
    prefill = replace(
        deployment, workload=replace(workload, phase="prefill", batch=1, draft_tokens=0, accept_length=1.0)
    )
    gpus = len(stage.gpus)
    output_s = _step_s(deployment, stage, batch, gpus, **widths) / (batch * workload.tokens_per_step)
    return output_s / (_step_s(prefill, stage, 1.0, gpus, **widths) / workload.context)


def over_two_domains(
    deployment: Deployment, stage: StageSpec, batch: float, **widths: Unpack[StageWidths]
) -> tuple[float, float]:
    """Return seconds of a step where one domain holds the EP group, and where each of two holds half of it.

    Whole model on the GPUs of ``stage``, evenly loaded experts, ``batch`` sequences per GPU.

    Raises
    ------
    InputError
        If no fabric joins its domains.
    """
    deployment.rates(stage).require_scale_out()
    gpus = len(stage.gpus)
    one, two = (_step_s(deployment, stage, batch, part, **widths) for part in (gpus, gpus / 2))
    return one, two


def _step_s(
    deployment: Deployment,
    stage: StageSpec,
    batch: float,
    domain_gpus: float,
    **widths: Unpack[StageWidths],
) -> float:
    """Return seconds of a step of the whole model on the GPUs of one stage."""
    ep = len(stage.gpus)
    tp, dcp, pcp = widths["tp"], widths.get("dcp", 1), widths.get("pcp", 1)
    shape = StepShape(tp=tp, attention_dp=ep / tp, ep=ep, domain_gpus=domain_gpus, dcp=dcp, pcp=pcp)
    shape = shape.under(deployment.workload, batch)
    return float(even_step(deployment.model, shape, deployment.machine(stage)).total_s)
