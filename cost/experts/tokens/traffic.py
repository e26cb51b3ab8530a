"""Where a placement sends tokens: GPUs, nodes and domains that one needs, and the bytes of a step on each fabric."""

from __future__ import annotations

from dataclasses import astuple, dataclass, field, replace

import numpy as np

from cost.experts.assignment import numbered, sum_by_place
from cost.experts.tokens.reach import ExpertUse, Floats
from cost.experts.tokens.volumes import placed_vectors
from cost.inputs.deployment import Deployment
from cost.inputs.layout import Layout, StageSpec
from cost.step.score import Uses
from cost.terms.alltoall import group_limit, vector_sizes
from topology.base.units import mean_of


@dataclass(frozen=True)
class LayerTraffic:
    """Where the tokens of a layer go.

    Attributes
    ----------
    gpus_per_token, nodes_per_token, domains_per_token:
        GPUs, nodes and scale-up domains that the experts of a token lie on: the mean over tokens, traces (without
        any, loads) and the GPUs that tokens come from.
    """

    gpus_per_token: float
    nodes_per_token: float
    domains_per_token: float


@dataclass(frozen=True)
class TokenTraffic(LayerTraffic):
    """Demand of the tokens of a step, and the resulting link traffic; means over MoE layers.

    Attributes
    ----------
    bytes_per_step:
        Bytes that all GPUs of all replicas send in a step over each fabric, dispatch and combine of all layers.
    layers:
        By absolute id of the layer.
    routing, tokens:
        Names of the routing traces, and how many of their tokens were followed; empty and 0: experts are taken to be
        chosen independently of each other.
    independent:
        The same placement under the same loads, if experts were chosen independently; null where this is that.
    """

    bytes_per_step: dict[str, float]
    layers: dict[str, LayerTraffic]
    routing: list[str] = field(default_factory=list)
    tokens: int = 0
    independent: TokenTraffic | None = None


def token_traffic(
    deployment: Deployment, layout: Layout, uses: Uses, *, batch: float, traces: tuple[str, ...] = ()
) -> TokenTraffic | None:
    """Return where a placement sends tokens at ``batch`` sequences per GPU in use; None without experts.

    Parameters
    ----------
    uses:
        As :class:`cost.step.score.LayoutScorer` takes them, ``uses[replica][stage]``.
    traces:
        Names of the routing traces in them.

    Notes
    -----
    GPUs, nodes and domains are those of the first replica; bytes are of all of them.
    """
    first_uses = [use for use in uses[0] if use is not None]
    if not first_uses:
        return None
    traffic = _traffic(deployment, layout, uses, batch)
    tokens = max((use.hits.tokens for use in first_uses if use.hits is not None), default=0)
    if not tokens:
        return traffic
    independent = _traffic(deployment, layout, uses, batch, independent=True)
    return replace(traffic, routing=list(traces), tokens=tokens, independent=independent)


def _traffic(
    deployment: Deployment, layout: Layout, uses: Uses, batch: float, *, independent: bool = False
) -> TokenTraffic:
    """Return the traffic, ``independent``: as if experts were chosen so, whatever is known of them."""
    moe = deployment.model.moe
    limit = (0, 0) if moe is None else group_limit(moe)
    layers: dict[str, LayerTraffic] = {}
    sent: dict[str, float] = {}
    known: dict[object, dict[str, float]] = {}
    for replica, (stages, row) in enumerate(zip(layout.replicas, uses, strict=True)):
        width = sum(len(stage.gpus) for stage in stages)
        for stage, placed in zip(stages, row, strict=True):
            if placed is None:
                continue
            use = replace(placed, hits=None) if independent else placed
            if replica == 0:
                ids = [str(layer) for layer in deployment.model.moe_layers if layer in stage.layers]
                reached = np.stack(_reached(deployment, stage, use, limit), axis=1).tolist()
                layers |= {layer: LayerTraffic(*row) for layer, row in zip(ids, reached, strict=True)}
            if len(stage.gpus) <= layout.tp // layout.pcp:  # one attention group has every token on each GPU
                continue
            sequences = batch * width / len(stage.gpus)
            rates, domain = deployment.rates(stage), deployment.domains(stage)
            key = placed.digest, sequences, rates.up_fabric, rates.out_fabric, domain.tobytes()
            if key not in known:
                known[key] = _sent(deployment, stage, use, limit, sequences)
            for fabric, amount in known[key].items():
                sent[fabric] = sent.get(fabric, 0.0) + amount
    gpus, nodes, domains = (mean_of(places) for places in zip(*map(astuple, layers.values()), strict=True))
    return TokenTraffic(gpus, nodes, domains, sent, layers)


def _reached(
    deployment: Deployment, stage: StageSpec, use: ExpertUse, limit: tuple[int, int]
) -> list[Floats]:
    """GPUs, nodes and domains of a token, ``[layers]`` each."""
    if (hits := use.hits) is not None:
        return [places.sum(axis=-1).mean(axis=(0, 2)) for places in (hits.gpus, hits.nodes, hits.domains)]
    nodes = deployment.numbered("node")[list(stage.gpus)]
    reached = []
    for place in (np.arange(use.gpus), nodes, deployment.domains(stage)):
        share = sum_by_place(use.share, numbered(place))
        hits_of_layer = replace(use, share=share).token_share(limit).sum(axis=-1).mean(axis=0)
        reached.append(np.repeat(hits_of_layer, use.repeats))  # a row may stand for many layers
    return reached


def _sent(
    deployment: Deployment, stage: StageSpec, use: ExpertUse, limit: tuple[int, int], sequences: float
) -> dict[str, float]:
    """Bytes that the GPUs of one stage send in a step, by fabric."""
    model, machine = deployment.model, deployment.machine(stage)
    crosses = len(deployment.domain_set(stage)) > 1
    vectors = placed_vectors(
        machine.kernels.of(crosses=crosses)[0].family,
        use,
        tokens=sequences * deployment.workload.tokens_per_pass,
        domain=deployment.domains(stage),
        limit=limit,
    )
    size = sum(vector_sizes(model, machine)) * use.repeats
    sent = {machine.rates.up_fabric: float(vectors.sent_up.sum(axis=(1, 2)).mean()) * size}
    if crosses:
        out = machine.rates.out_fabric
        sent[out] = sent.get(out, 0.0) + float(vectors.sent_out.sum(axis=(1, 2)).mean()) * size
    return sent
