"""Fixed delays of layers, steps and sequences, and engine time lost between kernels."""

from __future__ import annotations

from cost.inputs.workload import StepShape
from cost.model import MoeFfn
from cost.quantity import Quantity
from cost.terms.work import LayerStep, Parts, Term

LATENT = ("mla", "dsa", "csa", "hca")
"""Kinds of attention that work on latents: their layers run more kernels than those of grouped queries."""
INDEXED = ("dsa", "csa", "bsa")
"""Kinds that pick the tokens they attend to by an index: logits, top-k and gather besides."""
COMPRESSED = ("csa", "hca")
"""Kinds whose cache holds compressed entries, in models with several residual streams (DeepSeek-V4)."""


def add_delays(parts: Parts, at: LayerStep) -> None:
    """Count the fixed delays of layers alike; one that is attention or feed-forward part alone counts half."""
    kind, count = at.layer.attention.kind, at.count
    picks = kind in INDEXED and getattr(at.layer.attention, "own_index", True)
    parts.count("delay.layer", count * at.layer.parts / 2)
    parts.count("delay.moe_layer", count * isinstance(at.layer.ffn, MoeFfn))
    parts.count("delay.latent_layer", count * (kind in LATENT))
    parts.count("delay.index_layer", count * picks)
    parts.count("delay.compress_layer", count * (kind in COMPRESSED))


def add_step_delays(parts: Parts, shape: StepShape, last: Quantity) -> None:
    """Count those of a step and of its sequences, where ``last`` is 1: they are paid once for all stages."""
    parts.count("delay.step", last)
    parts.count("delay.sequence", last * shape.sequences * shape.tp)


OVERHEAD = Term(
    "overhead",
    "#8c959f",
    behind=("delay.layer", "delay.latent_layer", "delay.moe_layer", "delay.step", "delay.sequence"),
    meaning="fixed delays of layers, of the step and of each sequence",
    formula="layers x delay of their kind + delay of a step + sequences x delay of one",
    delays=("delay.layer", "delay.moe_layer", "delay.latent_layer", "delay.step", "delay.sequence"),
    of_layer=add_delays,
)
SPARSE = Term(
    "sparse_attention",
    "#ee99aa",
    behind=("delay.index_layer", "delay.compress_layer"),
    meaning="fixed delays of indexers and compressors in sparse attention layers",
    formula="layers that pick x their delay",
    delays=("delay.index_layer", "delay.compress_layer"),
)
ENGINE = Term(
    "engine",
    "#999933",
    behind=("engine.share",),
    meaning="time that an engine loses between kernels, proportional to kernel time",
    formula="engine.share x seconds of all kernels",
)
