"""Activation memory of training: all kept, each layer recomputed, or layers that are reversible; whole, and by stage.

Counted in 16 bits from the model's own shapes, as Korthikanti et al. do ("Reducing Activation Recomputation in Large
Transformer Models", arXiv 2205.05198, section 4): every tensor that some gradient needs, once. Their layer of plain
multi-head attention and a feed-forward part of four times the width comes out as theirs,
``s b h (34 + 5 a s / h)`` bytes with dropout, ``34 s b h`` of it where a fused kernel keeps no scores.
"""

from __future__ import annotations

from cost.attention.grouped import GroupedQuery
from cost.attention.latent import Latent
from cost.model import Attention, Ffn, Layer, Model, MoeFfn
from cost.quantity import require_number, span
from topology.errors import InputError
from topology.units import added

POLICIES = ("plain", "recompute", "reversible")
"""What is kept for the backward pass: everything, the input of each layer, or the output of the last layer alone."""

_ELEMENT = 2.0
_ROUTER_SCORE = 4.0  # routers compute in FP32


def layer_activation_bytes(
    layer: Layer, hidden: int, *, scores_over: float = 0.0, dropout: bool = False
) -> float:
    """Bytes that one token keeps in one layer for its backward pass, on all GPUs that share the layer together.

    Parameters
    ----------
    hidden:
        Width of the model, ``h``.
    scores_over:
        Tokens of the sequence where the softmax over all of them is kept; 0: a fused kernel (FlashAttention)
        computes it again.
    dropout:
        With a mask of one byte an element after attention and after the feed-forward part, and on kept scores.

    Raises
    ------
    InputError
        If the layer's attention is neither of grouped queries nor MLA: nothing is guessed of the others.

    Notes
    -----
    Two norms keep their inputs, ``2 h``. A product with a weight keeps its input, and an element-wise function what
    its gradient needs. So a gated feed-forward part of width ``f`` keeps ``h + 3 f`` elements (its input, gate and
    up, their product), a plain one ``h + 2 f``: in both ``h`` and the weights over ``h``. A mixture of experts keeps
    besides for each of the ``k`` experts of a token the copy that was sent there and the output, which the gradient
    of the expert's weight needs, and the router's scores. Auxiliary losses and biases are left out.
    """
    elements = 2 * hidden + hidden + _attention_elements(layer.attention, hidden)
    kept = _ELEMENT * elements + _ffn_bytes(layer.ffn, hidden) + dropout * 2 * hidden
    window = layer.attention.window if isinstance(layer.attention, GroupedQuery) else None
    per_score = 2 * _ELEMENT + 1 if dropout else _ELEMENT  # softmax; its mask and what the mask leaves
    return kept + per_score * layer.attention.heads * float(span(scores_over, window))


def _attention_elements(attention: Attention, hidden: int) -> float:
    """Queries, keys and values as they are multiplied, the input of the output projection, latents twice (norms)."""
    if isinstance(attention, GroupedQuery):
        return (
            attention.matmul_params / hidden
        )  # each projection has h of the other width: its own is what is kept
    if isinstance(attention, Latent) and attention.kind == "mla":
        latents = 2 * (attention.q_rank or 0) + 2 * attention.kv_rank + attention.rope
        wide = 2 * (attention.nope + attention.rope) + 2 * attention.value_dim
        return latents + attention.heads * wide
    raise InputError(
        f"training with {attention.kind} attention: activations are counted for grouped queries and MLA alone."
    )


def _ffn_bytes(ffn: Ffn, hidden: int) -> float:
    if not isinstance(ffn, MoeFfn):
        return _ELEMENT * (hidden + ffn.params / hidden)
    routed = ffn.top_k * (2 * hidden + ffn.expert_params / hidden)
    return _ELEMENT * (hidden + ffn.shared_params / hidden + routed) + _ROUTER_SCORE * ffn.experts


def training_compute(policy: str) -> float:
    """Flop of a training step over those with everything kept: 1, or 4/3 where each layer is computed once more.

    A backward pass costs twice a forward one, so three become four. Reversible layers recompute their input from
    their output on the way back, which costs a forward pass too (RevNets, Gomez et al., arXiv 1707.04585).

    Raises
    ------
    InputError
        If there is no such policy.
    """
    if policy not in POLICIES:
        raise InputError(f"activations {policy!r}: choose {', '.join(POLICIES)}.")
    return 1.0 if policy == "plain" else 4 / 3


def activation_bytes(
    model: Model,
    policy: str,
    *,
    layers: range | None = None,
    held: int = 1,
    scores_over: float = 0.0,
    dropout: bool = False,
) -> float:
    """Bytes that a token of a micro-batch needs in ``layers`` (all of them if not given) at the worst moment.

    ``plain``: every layer's activations of each of ``held`` micro-batches. ``recompute``: the input of every layer
    of each, ``2 h`` bytes, and the activations of the one layer that is being computed again. ``reversible``: of each
    the two streams that leave the last layer, ``4 h`` bytes whatever the number of layers (Kitaev et al., "Reformer",
    arXiv 2001.04451, section 3), and again one layer. Embedding, head and loss are left out: ``4 (h + vocabulary)``
    bytes a token on the last stage (section 4.3 of the paper above).

    Raises
    ------
    InputError
        If there is no such policy, or a layer's attention is none that is counted.
    """
    training_compute(policy)
    counts = model.kind_counts(range(len(model.layers)) if layers is None else layers)
    each = [
        (layer_activation_bytes(layer, model.hidden, scores_over=scores_over, dropout=dropout), count)
        for layer, count in counts
    ]
    if policy == "plain":
        return held * added(amount * count for amount, count in each)
    boundaries = sum(count for _, count in each) if policy == "recompute" else 2
    return held * boundaries * _ELEMENT * model.hidden + max(amount for amount, _ in each)


def in_flight(stages: int, micro_batches: int, stage: int) -> int:
    """Micro-batches whose activations a stage (0: the first) holds under 1F1B: ``min(m, p - stage)``.

    Source: Narayanan et al. (arXiv 2104.04473), section 2.2.1: at most as many as there are stages, on the first one.

    Raises
    ------
    InputError
        If a count is not at least 1, or there is no such stage.
    """
    require_number("stages", stages, least=1, kind="whole number")
    require_number("micro_batches", micro_batches, least=1, kind="whole number")
    if not 0 <= stage < stages:
        raise InputError(f"stage {stage}: expected 0 to {stages - 1}.")
    return min(micro_batches, stages - stage)


def pipeline_activation_bytes(
    model: Model, policy: str, *, stages: int, micro_batches: int, tokens: float, scores_over: float = 0.0
) -> tuple[float, ...]:
    """Bytes of activations on each stage of a 1F1B pipeline, layers split as evenly as they can be.

    Parameters
    ----------
    tokens:
        Tokens of one micro-batch. Divide the result by the GPUs of a stage where they share the tokens or, with
        sequence parallelism, the tensors.

    Returns
    -------
        The first stage holds ``p`` micro-batches of ``L / p`` layers: with everything kept as much as one GPU with
        all layers and one micro-batch, so stages do not save activations there.

    Raises
    ------
    InputError
        If a count is not at least 1, there are more stages than layers, or the model's layers are not counted.
    """
    held = [in_flight(stages, micro_batches, stage) for stage in range(max(1, stages))]
    count = len(model.layers)
    if stages > count:
        raise InputError(f"stages {stages}: {model.name} has {count} layers.")
    require_number("tokens", tokens, least=1)
    ends = [stage * count // stages for stage in range(stages + 1)]
    return tuple(
        tokens
        * activation_bytes(
            model,
            policy,
            layers=range(ends[stage], ends[stage + 1]),
            held=held[stage],
            scores_over=scores_over,
        )
        for stage in range(stages)
    )
