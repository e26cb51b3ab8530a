"""Parts that many families share: grouped-query attention, feed-forward parts, routed experts, windows."""

from __future__ import annotations

from collections.abc import Sequence

from cost.attention.grouped import GroupedQuery
from cost.config.facts import Facts
from cost.model import DenseFfn, MoeFfn

FULL = "full_attention"
SLIDING = "sliding_attention"
_QK_NORMS = ("", "head", "full")
_MOST_HEADS = 1 << 16
_MOST_EXPERTS = 1 << 16


def gated(hidden: int, inner: int, *, bias: bool = False) -> int:
    """Weights of a gated feed-forward part: gate, up and down."""
    return 3 * hidden * inner + (2 * inner + hidden if bias else 0)


def plain(hidden: int, inner: int, *, bias: bool = False) -> int:
    """Weights of a feed-forward part without gate: up and down."""
    return 2 * hidden * inner + (inner + hidden if bias else 0)


def grouped_query(  # noqa: PLR0913 - one flag for each thing that families differ in
    f: Facts,
    hidden: int,
    *,
    kv_heads_required: bool = False,
    head_dim_required: bool = False,
    qkv_bias: bool = False,
    out_bias: bool = False,
    qk_norm: str = "",
    window: int | None = None,
    chunked: bool = False,
    gate: bool = False,
    sinks: bool = False,
) -> GroupedQuery:
    """Read grouped-query attention from the usual keys.

    Parameters
    ----------
    kv_heads_required, head_dim_required:
        Whether the family's config class has a default of its own, which published configs do not rely on.
        Elsewhere no ``num_key_value_heads`` means one a query head, and no ``head_dim`` hidden / heads.
    qk_norm:
        ``"head"``: queries and keys are normed by a vector of ``head_dim``; ``"full"``: over all heads.
    """
    heads = f.count("num_attention_heads", most=_MOST_HEADS)
    if kv_heads_required or f.has("num_key_value_heads"):
        kv_heads = f.count("num_key_value_heads", most=_MOST_HEADS)
    else:
        kv_heads = heads
    f.divides(kv_heads, heads, "num_key_value_heads must divide num_attention_heads")
    if head_dim_required or f.has("head_dim"):
        head_dim = f.count("head_dim")
    else:
        head_dim = f.divides(
            heads, hidden, "num_attention_heads must divide hidden_size where head_dim is not given"
        )
    other = (heads + 2 * kv_heads) * head_dim if qkv_bias else 0
    other += hidden if out_bias else 0
    other += {"": 0, "head": 2 * head_dim, "full": (heads + kv_heads) * head_dim}[qk_norm]
    other += heads if sinks else 0
    return GroupedQuery(
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        value_dim=head_dim,
        window=window,
        chunked=chunked,
        gated=gate,
        other_params=other,
    )


def window_of_kind(f: Facts, kind: object) -> int | None:
    """Return the window of a layer of ``kind``; a sliding one needs ``sliding_window``."""
    return f.count("sliding_window") if kind == SLIDING else None


def windows_by_type(f: Facts, layers: int, default: Sequence[str] | None = None) -> list[int | None]:
    """Return each layer's window from ``layer_types``, or from ``default`` where the key is absent."""
    f.ignore("sliding_window")
    if f.has("layer_types"):
        kinds: Sequence[object] = f.per_layer("layer_types", layers, (FULL, SLIDING))
    elif default is not None:
        kinds = default
    else:
        kinds = [f.text("layer_types")]
    return [window_of_kind(f, kind) for kind in kinds]


def interval_windows(layers: int, every: int) -> list[str]:
    """Kinds of layers of which each ``every``-th sees the whole context and the others a window."""
    return [FULL if (index + 1) % every == 0 else SLIDING for index in range(layers)]


def moe(
    f: Facts,
    hidden: int,
    *,
    experts: int,
    top_k: int,
    expert_params: int,
    shared_params: int = 0,
    router_bias: bool = False,
    groups: bool = False,
) -> MoeFfn:
    """Put routed experts together, and check that the router can choose what it shall.

    ``groups``: read ``n_group`` and ``topk_group`` (null: one group).
    """
    if top_k > experts:
        f.refuse(f"a token uses {top_k} experts, but there are only {experts}; check num_experts_per_tok.")
    n_groups, top_groups = 1, 1
    if groups:
        n_groups, top_groups = f.count("n_group", default=1), f.count("topk_group", default=1)
        per_group = f.divides(n_groups, experts, "n_group must divide the number of experts")
        if top_groups > n_groups:
            f.fail("topk_group", f"no more than n_group ({n_groups})")
        if top_k > top_groups * per_group:
            f.fail(
                "topk_group",
                f"large enough for {top_k} experts a token, and {top_groups} x {per_group} is not",
            )
    return MoeFfn(
        experts=experts,
        top_k=top_k,
        expert_params=expert_params,
        shared_params=shared_params,
        router_params=experts * hidden + (experts if router_bias else 0),
        groups=n_groups,
        topk_groups=top_groups,
    )


def expert_count(f: Facts, *keys: str) -> int:
    """Return the number of routed experts under one of ``keys``."""
    return f.count(*keys, most=_MOST_EXPERTS)


def expert_layers(f: Facts, layers: int, *, default_dense: int | None = None) -> list[bool]:
    """Return whether each layer has experts: after ``first_k_dense_replace`` each ``moe_layer_freq``-th.

    ``mlp_layer_types`` (``dense``, ``sparse``), where given, says the same layer by layer.
    """
    if f.has("mlp_layer_types"):
        f.ignore("first_k_dense_replace", "moe_layer_freq")
        return [kind == "sparse" for kind in f.per_layer("mlp_layer_types", layers, ("dense", "sparse"))]
    if default_dense is None:
        dense = f.whole("first_k_dense_replace")
    else:
        dense = f.whole("first_k_dense_replace", default=default_dense)
    if dense >= layers:
        f.fail("first_k_dense_replace", f"less than the number of layers ({layers}), or no layer has experts")
    if f.has("moe_layer_freq") and isinstance(f.config["moe_layer_freq"], list):
        flags = f.per_layer("moe_layer_freq", layers, (0, 1))
        if any(flags[:dense]):
            f.fail(
                "moe_layer_freq", f"0 in the first {dense} layers, which first_k_dense_replace says are dense"
            )
        return [flag == 1 for flag in flags]
    every = f.count("moe_layer_freq", default=1)
    return [index >= dense and index % every == 0 for index in range(layers)]


def draft_layers(f: Facts) -> tuple[str, ...]:
    """Say which draft (multi-token prediction) layers of the checkpoint are left out."""
    keys = ("num_nextn_predict_layers", "num_mtp_modules", "mtp_num_hidden_layers", "num_mtp_layers")
    f.ignore(
        "use_mtp", "mtp_transformer_layers", "mtp_use_dedicated_embeddings", "mtp_num_layers",
        "mtp_loss_scaling_factor", "mtp_layer_types", "mtp_mlp_layer_types",
    )  # fmt: skip
    counts = [f.whole(key) for key in keys if f.has(key)]
    drafts = max(counts, default=0)
    return (f"{drafts} draft (multi-token prediction) layer{'s' if drafts > 1 else ''}",) if drafts else ()


Ffn = DenseFfn | MoeFfn
