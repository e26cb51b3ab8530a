"""Tokens of placed experts on the routes of a cluster: how much longer than by formula they take between domains.

Formulas count the busiest GPU at the rate of its stage. The flows of a placement share links max-min fairly, which
takes longer where they are held up in several places, and faulty links hold up what passes them, more or less than
the even traffic that the stage's rate is of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cost.experts.tokens.reach import ExpertUse
from cost.inputs.deployment import Deployment
from cost.inputs.layout import StageSpec
from topology.routes import Pairs, Traffic, fair_s

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
SAME_TIME = 1e-3
"""How near to the busiest link's time a fair time is that counts as the same: it is known as exactly."""
MAX_GPUS = 1024
"""GPUs of a stage whose flows are followed; beyond, the busiest link's time counts."""
_SAMPLED_GPUS, _SAMPLED_LAYERS = (
    144,
    3,
)  # of so few GPUs the fair times of so many layers are computed, else of one
_MAX_CELLS, _MAX_LAYERS = 6000, 8  # layers x GPUs, and layers, routed over faulty links, at most
_EVEN_FABRICS = ("rail", "leaf-spine", "fat-tree")


@dataclass(frozen=True, eq=False)
class Sharing:
    """Seconds between domains over those by formula, ``[layers]``.

    Attributes
    ----------
    bound:
        Of the busiest link, over those at the rate of the stage: 1 where all links work.
    fair:
        Of max-min fair sharing, over those of the busiest link.
    """

    bound: Floats
    fair: Floats


def sharing(deployment: Deployment, stage: StageSpec, use: ExpertUse, family: str) -> Sharing | None:
    """Return how the tokens of placed experts share links between domains; None where that is as formulas have it.

    ``family``: of the kernel (:data:`cost.experts.tokens.volumes.FAMILIES`). Combine goes the same ways back, in the
    same time.

    Notes
    -----
    Inside one domain, and over equal switched domains on a fabric that is not oversubscribed, the link of the busiest
    GPU is busy from the first byte to the last, so that fair sharing takes as long as that link: nothing is computed.
    Elsewhere the fair time is that of three layers, from the most even to the most uneven, and by the busiest GPU's
    share between them; of more than 144 GPUs that of the layer in the middle, of more than :data:`MAX_GPUS` it is
    left out.
    """
    if as_by_formula(deployment, stage):
        return None
    traced = b"" if use.hits is None else use.hits.gpus.tobytes()
    key = stage.gpus, family, use.share.tobytes(), traced
    return deployment.once(lambda: _sharing(deployment, stage, use, family), "sharing", *key)


def as_by_formula(deployment: Deployment, stage: StageSpec) -> bool:
    """Whether fair sharing between the domains of a stage takes as long as its busiest GPU's link."""
    domains, spec = deployment.domain_set(stage), deployment.cluster.spec
    if len(domains) == 1 or spec.scale_out is None:
        return True
    even = len(set(np.unique(deployment.domains(stage), return_counts=True)[1].tolist())) == 1
    plain = even and not spec.faults and all(spec.domains[domain].structure == "switch" for domain in domains)
    return plain and spec.scale_out.kind in _EVEN_FABRICS and spec.scale_out.total_oversubscription == 1


def sharing_words(deployment: Deployment, stages: Sequence[StageSpec]) -> str:
    """Return how tokens share links between domains in the score of a placement; empty if a formula applies."""
    routed = [stage for stage in stages if not as_by_formula(deployment, stage)]
    if not routed or deployment.model.moe is None:
        return ""
    if max(len(stage.gpus) for stage in routed) > MAX_GPUS:
        return (
            "the all-to-all between domains takes the busiest link's time, a lower bound, since flows of more than "
            f"{MAX_GPUS:,} GPUs are not simulated"
        )
    return (
        "the all-to-all between domains takes the max-min fair time of its flows; sweeps and layout "
        "comparisons use the busiest link's time, a lower bound"
    )


def bound_words(deployment: Deployment) -> str:
    """Return that a sweep takes the busiest link's time between domains; empty where a formula says it."""
    if deployment.model.moe is None or as_by_formula(
        deployment, StageSpec(tuple(range(len(deployment.cluster.gpus))), range(0))
    ):
        return ""
    return (
        "the all-to-all between domains takes the busiest link's time, a lower bound; the score of a plan "
        "uses the max-min fair time of its flows"
    )


def _sharing(deployment: Deployment, stage: StageSpec, use: ExpertUse, family: str) -> Sharing:
    rows = _rows(deployment, stage, use, family)
    uneven = rows.max(axis=1) / rows.mean(axis=1)
    order = np.argsort(uneven, kind="stable")
    bound = _bound(deployment, stage, rows, family, uneven)
    faults = deployment.fabric_faults
    if len(stage.gpus) > MAX_GPUS:
        return Sharing(bound, np.ones(len(rows)))
    sampled = [len(rows) // 2]
    if len(stage.gpus) <= _SAMPLED_GPUS:
        sampled = np.unique(np.linspace(0, len(rows) - 1, _SAMPLED_LAYERS).astype(np.int64)).tolist()
    ratios: dict[int, float] = {}
    for layer in order[sampled].tolist():
        traffic = _traffic(deployment, stage, rows[layer], family)
        router = deployment.router if faults is None else faults.router(traffic)
        loads = router.loads(traffic)
        times = fair_s(router, traffic, loads)
        longer = (times.completion_s - loads.latency_s) / loads.transfer_s
        ratios[layer] = longer if longer > 1 + SAME_TIME else 1.0
    at = sorted(ratios, key=lambda layer: uneven[layer])
    return Sharing(bound, np.interp(uneven, uneven[at], [ratios[layer] for layer in at]))


def _bound(deployment: Deployment, stage: StageSpec, rows: Floats, family: str, uneven: Floats) -> Floats:
    """Seconds of the busiest link between domains over those at the stage's rate, ``[layers]``.

    Of layers from the most even to the most uneven; of those between by the busiest GPU's share.
    """
    faults = deployment.fabric_faults
    if faults is None:
        return np.ones(len(rows))
    order = np.argsort(uneven, kind="stable")
    count = min(_MAX_LAYERS, max(1, _MAX_CELLS // len(stage.gpus)))
    tried = order[np.unique(np.linspace(0, len(rows) - 1, count).astype(np.int64))]
    longer = [faults.longer(_traffic(deployment, stage, rows[layer], family)) for layer in tried.tolist()]
    return np.interp(uneven, uneven[tried], longer) * deployment.alltoall_left(stage)


def _rows(deployment: Deployment, stage: StageSpec, use: ExpertUse, family: str) -> Floats:
    """Tokens that a GPU sends to each GPU of the stage, or per node to each domain, ``[layers, places]``."""
    if use.hits is not None:  # of all sources alike
        hits = use.hits
        chance = {"per-node": hits.domains, "per-copy": hits.pairs}.get(family, hits.gpus)
        return np.asarray(chance.mean(axis=(0, 2)), dtype=np.float64)
    if family == "per-node":
        domains = deployment.domains(stage)
        inside = [use.share[..., domains == domain].sum(axis=-1) for domain in np.unique(domains)]
        use = replace(use, share=np.stack(inside, axis=-1))
    share = use.share if family == "per-copy" else use.token_share()
    return np.asarray(share.mean(axis=0), dtype=np.float64)


def _traffic(deployment: Deployment, stage: StageSpec, row: Floats, family: str) -> Traffic:
    """Return what all GPUs of a stage send, alike, in one layer."""
    gpus, count = np.array(stage.gpus), len(deployment.cluster.gpus)
    if family != "per-node":
        order = np.argsort(gpus)
        return Traffic("experts", count, row=row[order], members=gpus[order])
    index = np.unique(deployment.domains(stage), return_inverse=True)[1]
    members = [gpus[index == domain] for domain in range(len(row))]
    sources, targets, amounts = zip(*_per_node(members, row), strict=True)
    pairs = Pairs(np.concatenate(sources), np.concatenate(targets), np.concatenate(amounts))
    return Traffic("experts", count, pairs=pairs)


def _per_node(members: Sequence[Ints], row: Floats) -> list[tuple[Ints, Ints, Floats]]:
    """One copy from each GPU to the GPU at its place in each other domain."""
    flows = []
    for sender, senders in enumerate(members):
        for receiver, receivers in enumerate(members):
            if sender != receiver:
                place = np.arange(len(senders)) % len(receivers)
                flows.append((senders, receivers[place], np.full(len(senders), row[receiver])))
    return flows
