"""HBM of the fullest GPU as one bar: routed experts, other weights, cache, workspace and free space."""

from __future__ import annotations

from dataclasses import replace

from cost.inputs.deployment import Deployment
from cost.inputs.layout import Layout
from cost.step.score import Score
from rackplan.report.doc import Picture
from rackplan.report.pictures.svg import Part, bytes_bar
from topology.base.units import added

_USES = {
    "experts": Part("routed experts", "#aa4499", "copies on the GPU x layers x bytes of an expert"),
    "weights": Part(
        "other weights", "#117733", "attention, dense and shared layers, router, embedding, head"
    ),
    "kv_cache": Part("KV cache", "#88ccee", "sequences x bytes of the cache of one context, all its layers"),
    "workspace": Part("workspace", "#cc6677", "activations of the largest step, logits of the largest batch"),
    "graphs": Part("CUDA graphs", "#ddcc77", "what the engine keeps free for them"),
    "buffers": Part("buffers", "#999933", "collectives, and tokens on their way to experts"),
    "free": Part("free", "#e4e8ec", "unused HBM, available for a larger batch", empty=True),
    "reserved": Part(
        "reserved",
        "#8c959f",
        "what the engine does not use of the HBM reported by the driver",
        hatched=True,
    ),
}
"""Each use; the colours differ from those of step parts and resources."""


def memory_picture(deployment: Deployment, layout: Layout, score: Score) -> Picture:
    """Return HBM of the fullest GPU by use; the uses add up to the capacity reported by the driver."""
    held = score.hbm_bytes
    gpu = deployment.cluster.gpus[layout.replicas[0][0].gpus[0]].domain
    figure = deployment.cluster.spec.domains[gpu].gpu.figures["hbm_bytes"]
    origin = f"{figure.kind.label}: {figure.source}"
    parts = [
        replace(_USES[name], bytes=amount, origin=origin if name in ("free", "reserved") else "")
        for name, amount in held.items()
        if amount > 0
    ]
    words = ", ".join(f"{part.words} {part.bytes / 1e9:,.1f}" for part in parts)
    says = f"HBM of the fullest GPU by use, in GB: {words}; total {added(held.values()) / 1e9:,.1f}"
    svg = bytes_bar("memory", parts, "the GPU", f"as reported by its driver; {origin}")
    return Picture("memory", says, svg)
