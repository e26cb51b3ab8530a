"""The pipeline of a plan: layers by domain, transfers between stages, and the bubble."""

from __future__ import annotations

from itertools import groupby

from cost.inputs.layout import StageSpec
from cost.terms.pipeline import BUBBLE, Hop, hop_list
from placement.plan import Plan
from rackplan.views.blocks import Block, labelled
from topology.base.units import format_quantity, plural
from topology.cluster import Cluster

_SAME = 1e-4  # of the step
_MOST_STAGES = 8
"""Maximum stages with domains in a summary."""
_MOST_DOMAINS = 4
"""Maximum domains named per stage."""


def pipeline_blocks(plan: Plan) -> list[Block]:
    """Return the stages, their order if optimized, the hops and the bubble; nothing for one stage."""
    if plan.layout.stages == 1:
        return []
    return [
        *labelled("Stages", _runs(plan)),
        *labelled("Order", *_order(plan)),
        *labelled("Hops", _hops(plan)),
        *labelled("Bubble", bubble_words(plan)),
    ]


def plan_hops(plan: Plan) -> list[Hop]:
    """Return the hops of the first replica of a plan, at its batch."""
    return hop_list(plan.deployment, plan.layout.replicas[0], plan.deployment.workload.batch)


def hop_words(hop: Hop) -> str:
    """Bytes and time of a hop, in words."""
    return f"{format_quantity(hop.bytes, 'byte', 3)} in {format_quantity(hop.seconds, 's', 3)}"


def bubble_words(plan: Plan) -> str:
    """Return the time that stages wait for the slowest one, in words."""
    seconds, step_s = plan.score.terms_s.get(BUBBLE.name, 0.0), plan.score.step_s
    return f"{seconds * 1e3:.2f} ms per step ({seconds / step_s:.1%}): {BUBBLE.meaning}"


def domain_words(cluster: Cluster, stage: StageSpec) -> str:
    """Return the domains of a stage, or their number if there are many."""
    domains = list(dict.fromkeys(cluster.gpus[gpu].domain for gpu in stage.gpus))
    if len(domains) > _MOST_DOMAINS:
        return f"{len(domains)} domains from d{min(domains)}"
    return "+".join(f"d{domain}" for domain in domains)


def _runs(plan: Plan) -> str:
    """Return layers and domains of each stage, for the first replica."""
    cluster, stages = plan.deployment.cluster, plan.layout.replicas[0]
    kinds = [f"{len(stage.gpus)} {cluster.domain_of(stage.gpus[0]).gpu.name}" for stage in stages]
    if len(stages) <= _MOST_STAGES:
        runs = [
            f"{stage.layers.start}-{stage.layers.stop - 1} on {domain_words(cluster, stage)} ({kind})"
            for stage, kind in zip(stages, kinds, strict=True)
        ]
        first = " (replica 0)" * (len(plan.layout.replicas) > 1)
        return f"layers {', '.join(runs)}{first}"
    same = groupby((len(stage.layers), kind) for stage, kind in zip(stages, kinds, strict=True))
    parts = ((len(list(group)), layers, kind) for (layers, kind), group in same)
    return "in order " + ", ".join(
        f"{plural(many, 'stage')} of {plural(layers, 'layer')} on {kind}" for many, layers, kind in parts
    )


def _order(plan: Plan) -> list[str]:
    """Return the step of unlike domains in the chosen order, its proof, and the step in cluster order."""
    order = plan.order
    if order is None:
        return []
    in_turn = "no split of the layers fits this batch"
    if order.in_turn is not None:
        longer = order.in_turn / order.objective - 1
        in_turn = f"{order.in_turn * 1e3:.2f} ms ({longer:+.1%})" if longer > _SAME else "the same step"
    proof = (
        f"lower bound {order.bound * 1e3:.2f} ms for all orders and splits of the layers with balanced experts, "
        f"gap {order.gap:.2%}"
    )
    return [
        f"{order.objective * 1e3:.2f} ms per step, {order.status}: {proof}",
        f"in cluster order: {in_turn}",
    ]


def _hops(plan: Plan) -> str:
    """Return the transfers of a micro-batch from stage to stage and back, with equal hops merged."""
    *forward, back = plan_hops(plan)
    texts = [f"{hop_words(hop)} over {hop.fabric}" for hop in forward]
    parts, place = [], 0
    for text, group in groupby(texts):
        many = len(list(group))
        which = f"S{place} to S{place + many}" + ", each" * (many > 1)
        parts.append(f"{which} {text}")
        place += many
    return f"per micro-batch: {', '.join(parts)}; back to S0 {hop_words(back)}"
