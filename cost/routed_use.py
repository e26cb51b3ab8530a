"""What the tokens of routing traces reach under a placement and a dispatch policy: co-activation as it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from cost.assignment import Assignment, sum_by_gpu
from cost.dispatch import DispatchPolicy, rank_choices, rank_tp, slot_shares, source_choices
from cost.token_hits import Floats, Ints, TokenHits, numbered, place_hits
from cost.traces.routing import RoutingTrace
from topology.base.errors import InputError


def token_hits(
    assignment: Assignment,
    traces: Sequence[RoutingTrace],
    *,
    split: DispatchPolicy = "even",
    nodes: Ints,
    domains: Ints,
    speed: Floats | None = None,
) -> TokenHits:
    """Return what the tokens of ``traces`` reach under ``assignment``, exactly.

    A choice of an expert goes to one of its copies, from source ``s`` to place ``d`` with probability ``p[s, e, d]``
    (an even split: copies in proportion; ``source`` and ``rank``: the copy that the rank uses; ``lp``: the split that
    is best for the trace's own counts). A token of experts ``{e}`` reaches ``d`` with probability
    ``1 - prod (1 - p[s, e, d])``; the mean over tokens.

    Parameters
    ----------
    traces:
        Of the assignment's layers, in order.
    nodes, domains:
        Node and scale-up domain of each GPU of the group, ``[gpus]``.
    speed:
        As for :func:`cost.dispatch.slot_shares`, where a linear programme splits.

    Raises
    ------
    InputError
        If a trace is of other layers or experts than the assignment.
    """
    for trace in traces:
        if (trace.layers, trace.experts) != (assignment.layers, assignment.experts):
            raise InputError(
                f"{trace.name}: a trace of {trace.layers} layers x {trace.experts} experts does not fit an "
                f"assignment of {assignment.layers} layers x {assignment.experts} experts."
            )
    node_of, domain_of = (numbered(where) for where in (nodes, domains))
    places = (np.arange(assignment.gpus, dtype=np.int64), node_of, domain_of)
    found = []
    for trace in traces:
        rows: list[tuple[Floats, ...]] = []
        for layer, chosen in enumerate(_chosen(assignment, trace, split, nodes, speed)):
            if layer and trace.repeated and _same(assignment, layer):
                rows.append(rows[-1])
                continue
            rows.append(_layer_hits(assignment, layer, chosen, trace, places))
        found.append([np.stack(level) for level in zip(*rows, strict=True)])
    pairs, gpus, by_node, by_domain = (np.stack(level) for level in zip(*found, strict=True))
    kept = sum(trace.kept for trace in traces)
    return TokenHits(gpus, pairs, by_node, by_domain, node_of, domain_of, kept)


def _same(assignment: Assignment, layer: int) -> bool:
    """Whether a layer's experts lie as those of the layer before."""
    return bool((assignment.slot_expert[layer] == assignment.slot_expert[layer - 1]).all())


def _chosen(
    assignment: Assignment, trace: RoutingTrace, split: DispatchPolicy, nodes: Ints, speed: Floats | None
) -> Iterator[Floats]:
    """Yield by layer the fraction of a source's tokens of the slot's expert that go to it, ``[sources, slots]``."""
    if split == "source":
        for layer in range(assignment.layers):
            yield source_choices(assignment, layer, nodes)
        return
    tp = rank_tp(split)
    if tp is not None:
        for layer in range(assignment.layers):
            yield rank_choices(assignment, layer, tp)
        return
    for shares in slot_shares(assignment, split, load=trace.counts.astype(np.float64), speed=speed):
        yield shares[None]


def _layer_hits(
    assignment: Assignment, layer: int, chosen: Floats, trace: RoutingTrace, places: Sequence[Ints]
) -> tuple[Floats, ...]:
    """Pairs by GPU, then chances by each kind of place, ``[sources, places]``, of one layer."""
    slot_expert, slot_gpu = assignment.slot_expert[layer].astype(np.int64), assignment.slot_gpu
    choices = trace.layer(layer).astype(np.int64)
    choices = choices[(choices >= 0).any(axis=1)]
    used = np.bincount(choices[choices >= 0], minlength=trace.experts) / max(1, len(choices))
    pairs = sum_by_gpu(chosen * used[slot_expert], slot_gpu, assignment.gpus)
    chances = [
        place_hits(choices, slot_expert, place_of[slot_gpu], chosen, int(place_of.max()) + 1, trace.experts)
        for place_of in places
    ]
    return pairs, *chances
