"""GPUs of a placement called anew in each layer, so that fewer tokens change GPU or domain from layer to layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cost.assignment import Assignment
from cost.deployment import Deployment
from cost.layout import Layout, StageSpec
from cost.loads import ExpertLoads
from cost.traces.routing import RoutingTrace
from cost.traces.transitions import count_transitions
from placement.arrays import Floats, Ints
from placement.findings import LayerChanges
from placement.scoring import moe_rows, stage_speed
from placement.traffic.relabel import flow_cost, gpu_flows, relabel
from placement.traffic.tiers import Tiers

_TOKENS = 8192  # of each trace
_CHECKED = 0.25  # of them, the last, say whether names found on the others save anything
_LEAST = 0.05  # of what changes: less is chance, or GPUs that have more of the load in both layers
_DOMAIN = 8.0
"""What leaving a domain counts against leaving a GPU: links between domains are about so much slower."""


def follow_layers(
    deployment: Deployment, layout: Layout, experts: Sequence[Assignment | None], loads: ExpertLoads
) -> tuple[tuple[Assignment | None, ...], LayerChanges] | None:
    """Return the placement with GPUs of each layer called anew, and what it saves; None without what says it.

    Only equal domains, nodes and GPUs change places, so that loads, and the domains, nodes and GPUs of a token in a
    layer, stay what they were. A trace of one layer that stands for all says nothing of what follows it.
    """
    traces = [trace.sample(_TOKENS) for trace in loads.routing if not trace.repeated]
    found = list(experts)
    counts: list[tuple[int, Floats]] = []
    for index, (stage, part) in enumerate(zip(layout.replicas[0], experts, strict=True)):
        if part is None or part.layers < 2 or not traces or min(trace.kept for trace in traces) < 2:
            continue
        rows = moe_rows(deployment, stage.layers)
        tiers, domain = _tiers(deployment, stage)
        held = [trace.rows(rows) for trace in traces]
        fit = _flows(part, [trace.part(0, _cut(trace)) for trace in held])
        check = _flows(part, [trace.part(_cut(trace), trace.kept) for trace in held])
        names = relabel(fit, tiers, _kinds(deployment, stage, part))
        if flow_cost(check, tiers, names) > flow_cost(check, tiers) * (1 - _LEAST):
            names = np.tile(np.arange(part.gpus), (part.layers, 1))  # on other tokens it is chance
        flows = fit * (1 - _CHECKED) + check * _CHECKED
        if (names != names[0]).any():
            found[index] = _renamed(part, names)
        counts.append((len(flows), _changes(flows, domain, names)))
    if not counts:
        return None
    hops = sum(number for number, _ in counts)
    total = np.sum([each for _, each in counts], axis=0) / hops
    return tuple(found), LayerChanges(*(float(value) for value in total))


def _cut(trace: RoutingTrace) -> int:
    """First of the tokens on which names are checked, not found."""
    return max(1, min(trace.kept - 1, round(trace.kept * (1 - _CHECKED))))


def _flows(part: Assignment, traces: Sequence[RoutingTrace]) -> Floats:
    """Choices of a token from GPU to GPU, the mean over traces, ``[hops, gpus, gpus]``."""
    flows = np.zeros((part.layers - 1, part.gpus, part.gpus))
    for trace in traces:
        transitions = count_transitions(trace.choices, part.experts)
        flow = gpu_flows(transitions, part.slot_expert, part.slot_gpu, part.gpus)
        flows += flow / (transitions.tokens * len(traces))
    return flows


def _tiers(deployment: Deployment, stage: StageSpec) -> tuple[Tiers, Ints]:
    domain = np.unique(deployment.domains(stage), return_inverse=True)[1].reshape(-1).astype(np.int64)
    node = deployment.numbered("node")[list(stage.gpus)]
    return Tiers.of(len(stage.gpus), 1.0, [(node, 1.0), (domain, _DOMAIN)]), domain


def _kinds(deployment: Deployment, stage: StageSpec, part: Assignment) -> Ints:
    """Number GPUs that have as many slots and are as fast alike."""
    slots = part.slots_per_gpu
    speed = stage_speed(deployment, stage, slots)
    pace = np.ones(part.gpus) if speed is None else np.round(speed, 9)
    return np.unique(np.stack([slots, pace]), axis=1, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _renamed(part: Assignment, names: Ints) -> Assignment:
    """Return the placement in which what sat on GPU ``g`` of a layer sits on GPU ``names[layer, g]``."""
    first = np.concatenate(([0], np.cumsum(part.slots_per_gpu)))
    slot_expert = part.slot_expert.copy()
    for layer, row in enumerate(names):
        for old, new in enumerate(row.tolist()):
            if old != new:
                here = part.slot_expert[layer, first[old] : first[old + 1]]
                slot_expert[layer, first[new] : first[new + 1]] = here
    return replace(part, slot_expert=slot_expert)


def _changes(flows: Floats, domain: Ints, names: Ints) -> Floats:
    """Sums over hops of what changes GPU and domain, before and after, ``[4]``."""
    gpu = np.arange(len(domain))
    total = np.zeros(4)
    for flow, before, after in zip(flows, names[:-1], names[1:], strict=True):
        for at, (a, b) in enumerate(((gpu, gpu), (before, after))):
            total[2 * at] += flow[a[:, None] != b].sum()
            total[2 * at + 1] += flow[domain[a][:, None] != domain[b]].sum()
    return total
