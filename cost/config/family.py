"""How a family of decoders is described: its attention, its feed-forward parts and which layers have which."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from cost.attention.grouped import GroupedQuery
from cost.config.facts import REQUIRED, Facts
from cost.model import Attention, DenseFfn, Ffn, Layer, MoeFfn

FULL = "full_attention"
SLIDING = "sliding_attention"

_V = TypeVar("_V", bool, int)
Switch = bool | Callable[[Facts], bool]
Number = int | Callable[[Facts], int]
AttentionRule = Callable[[Facts, int, int], Sequence[Attention]]
"""From the config, hidden size and number of layers to one attention a layer."""
FfnRule = Callable[[Facts, int, int], Sequence[Ffn]]
"""From the config, hidden size and number of layers to one feed-forward part a layer."""
WindowRule = Callable[[Facts, int], Sequence[int | None]]
SparseRule = Callable[[Facts, int], Sequence[bool]]


@dataclass(frozen=True)
class Flag:
    """A key that is true or false."""

    key: str
    default: bool | None = False

    def __call__(self, f: Facts) -> bool:
        """Read the key."""
        return f.flag(self.key, default=self.default)


class Count:
    """A whole number under the first of ``keys`` that is there, in a ``section`` of the config or in itself."""

    def __init__(
        self,
        *keys: str,
        default: int | None = REQUIRED,
        least: int = 1,
        section: str = "",
    ) -> None:
        self.keys, self.default, self.least, self.section = keys, default, least, section

    def __call__(self, f: Facts) -> int:
        """Read the number."""
        facts = f.sub(self.section) if self.section else f
        return facts.count(facts.one_of(*self.keys), self.default, least=self.least)


_EXPERTS = Count("num_local_experts", "num_experts")
_TOP_K = Count("num_experts_per_tok")
_WIDTH = Count("moe_intermediate_size")
_HIDDEN = Count("hidden_size")


def value(f: Facts, setting: _V | Callable[[Facts], _V]) -> _V:
    """Return the value of a switch or a number of the table."""
    return setting(f) if callable(setting) else setting


# Windows: one entry a layer, None where a layer sees the whole context.


def interval_kinds(layers: int, interval: int) -> list[str]:
    """Kinds of layers of which each ``interval``-th sees the whole context and the others a window."""
    return [FULL if (index + 1) % interval == 0 else SLIDING for index in range(layers)]


def windows_by_type(f: Facts, layers: int, default: Sequence[str] | None = None) -> list[int | None]:
    """Return each layer's window from ``layer_types``, or from ``default`` where the key is absent."""
    f.ignore("sliding_window")
    if f.has("layer_types"):
        kinds: Sequence[object] = f.per_layer("layer_types", layers, (FULL, SLIDING))
    elif default is not None:
        kinds = default
    else:
        kinds = [f.text("layer_types")]
    return [f.count("sliding_window") if kind == SLIDING else None for kind in kinds]


def full_every(interval: Number) -> WindowRule:
    """Return the rule: windows by ``layer_types``; without it each ``interval``-th layer sees everything."""
    return lambda f, layers: windows_by_type(f, layers, interval_kinds(layers, value(f, interval)))


def one_window(f: Facts, layers: int) -> list[int | None]:
    """Return one window for all layers (null: none), as Mistral has it; ``layer_types`` goes before it."""
    if f.has("layer_types"):
        return windows_by_type(f, layers)
    return [f.count_or_none("sliding_window")] * layers


def windows_if_given(f: Facts, layers: int) -> list[int | None]:
    """Return windows by ``layer_types`` where the config speaks of windows at all."""
    if f.has("layer_types") or f.has("sliding_window"):
        return windows_by_type(f, layers)
    return [None] * layers


def switched_windows(f: Facts, layers: int) -> list[int | None]:
    """Qwen's rule: windows from layer ``max_window_layers`` on, and only with ``use_sliding_window``."""
    f.ignore("sliding_window", "max_window_layers")
    if not f.flag("use_sliding_window", default=False):
        if f.has("layer_types") and SLIDING in f.per_layer("layer_types", layers, (FULL, SLIDING)):
            f.must_be("use_sliding_window", f"true, for layer_types has {SLIDING}")
        return [None] * layers
    if f.has("layer_types"):
        return windows_by_type(f, layers)
    start, window = f.whole("max_window_layers"), f.count("sliding_window")
    return [window if index >= start else None for index in range(layers)]


@dataclass(frozen=True)
class Grouped:
    """Grouped-query attention by the usual keys; called with the config, it gives one attention a layer.

    Attributes
    ----------
    kv_heads_required, head_dim_required:
        Whether the family's config class has a default of its own, which published configs do not rely on.
        Elsewhere no ``num_key_value_heads`` means one a query head, and no ``head_dim`` hidden / heads.
    bias, out_bias:
        Biases of queries, keys and values, and of the output (None: as ``bias``).
    qk_norm, normed:
        Queries and keys are normed, where ``normed``, by a vector of ``head_dim`` (``"head"``) or over all heads
        (``"full"``).
    windows, chunked:
        Each layer's window (None: no layer has one); ``chunked``: windows do not slide, but lie side by side.
    """

    kv_heads_required: bool = False
    head_dim_required: bool = False
    bias: Switch = False
    out_bias: Switch | None = None
    qk_norm: str = ""
    normed: Switch = True
    gate: Switch = False
    sinks: bool = False
    windows: WindowRule | None = None
    chunked: bool = False

    def one(self, f: Facts, hidden: int) -> GroupedQuery:
        """Return the attention of a layer without window."""
        heads = f.count("num_attention_heads")
        has_kv_heads = self.kv_heads_required or f.has("num_key_value_heads")
        kv_heads = f.count("num_key_value_heads") if has_kv_heads else heads
        f.divides(kv_heads, heads, "num_key_value_heads must divide num_attention_heads")
        if self.head_dim_required or f.has("head_dim"):
            head_dim = f.count("head_dim")
        else:
            head_dim = f.divides(
                heads, hidden, "num_attention_heads must divide hidden_size where head_dim is not given"
            )
        bias = value(f, self.bias)
        other_params = (heads + 2 * kv_heads) * head_dim if bias else 0
        other_params += hidden if (bias if self.out_bias is None else value(f, self.out_bias)) else 0
        if self.qk_norm and value(f, self.normed):
            sizes = {"head": 2, "full": heads + kv_heads}
            other_params += sizes[self.qk_norm] * head_dim
        other_params += heads if self.sinks else 0
        gated = value(f, self.gate)
        return GroupedQuery(
            hidden, heads, kv_heads, head_dim, head_dim, gated=gated, other_params=other_params
        )

    def __call__(self, f: Facts, hidden: int, layers: int) -> Sequence[GroupedQuery]:
        """Return each layer's attention."""
        base = self.one(f, hidden)
        if self.windows is None:
            return [base] * layers
        return [
            replace(base, window=window, chunked=self.chunked and window is not None)
            for window in self.windows(f, layers)
        ]


def feed_forward(hidden: int, inner: int, matrices: int = 3, *, bias: bool = False) -> int:
    """Weights of a feed-forward part: gate, up and down, or up and down alone (2 matrices)."""
    return matrices * hidden * inner + ((matrices - 1) * inner + hidden if bias else 0)


@dataclass(frozen=True)
class Dense:
    """A feed-forward part that every token goes through.

    ``width`` is the key of the inner width; ``extra``: weights of a learned activation function.
    """

    width: str = "intermediate_size"
    gated: bool = True
    bias: Switch = False
    extra: int = 0

    def one(self, f: Facts, hidden: int) -> DenseFfn:
        """Return the part of one layer."""
        inner, matrices = f.count(self.width), 3 if self.gated else 2
        return DenseFfn(feed_forward(hidden, inner, matrices, bias=value(f, self.bias)) + self.extra)

    def __call__(self, f: Facts, hidden: int, layers: int) -> Sequence[Ffn]:
        """Return each layer's part."""
        return [self.one(f, hidden)] * layers


def after_first(f: Facts, layers: int, *, default_dense: int | None = None) -> list[bool]:
    """DeepSeek's rule: after ``first_k_dense_replace`` each ``moe_layer_freq``-th layer has experts.

    ``mlp_layer_types`` (``dense``, ``sparse``), where given, says the same layer by layer.
    """
    if f.has("mlp_layer_types"):
        f.ignore("first_k_dense_replace", "moe_layer_freq")
        return f.layers_with("mlp_layer_types", layers, "sparse", "dense")
    dense = f.whole("first_k_dense_replace", default=default_dense)
    if dense >= layers:
        f.must_be(
            "first_k_dense_replace", f"less than the number of layers ({layers}), or no layer has experts"
        )
    if f.has("moe_layer_freq") and isinstance(f.data["moe_layer_freq"], list):
        flags = f.layers_with("moe_layer_freq", layers, 1, 0)
        if any(flags[:dense]):
            f.must_be(
                "moe_layer_freq", f"0 in the first {dense} layers, which first_k_dense_replace says are dense"
            )
        return flags
    interval = f.count("moe_layer_freq", default=1)
    return [index >= dense and index % interval == 0 for index in range(layers)]


def from_start(f: Facts, layers: int) -> list[bool]:
    """As `after_first`, where the first layer has experts unless ``first_k_dense_replace`` says otherwise."""
    return after_first(f, layers, default_dense=0)


def by_list(f: Facts, layers: int) -> list[bool]:
    """As `from_start`, where ``moe_layer_freq`` or ``mlp_layer_types`` has to be there."""
    if not f.has("mlp_layer_types"):
        f.items("moe_layer_freq")
    return from_start(f, layers)


def by_step(f: Facts, layers: int) -> list[bool]:
    """Qwen's rule: every ``decoder_sparse_step``-th layer has experts, except ``mlp_only_layers``."""
    step = f.count("decoder_sparse_step", default=1)
    dense = f.listed("mlp_only_layers", layers) if f.has("mlp_only_layers") else [False] * layers
    sparse = [(index + 1) % step == 0 and not dense[index] for index in range(layers)]
    if not any(sparse):
        f.refuse("decoder_sparse_step and mlp_only_layers leave no layer with experts.")
    return sparse


@dataclass(frozen=True)
class Routed:
    """Routed experts: which keys count them, and which layers have them.

    Attributes
    ----------
    experts, top_k, width:
        Keys of the number of experts, of those a token uses, and of one expert's inner width.
    bias, gated:
        Whether experts have biases, and a gate.
    shared, shared_width, shared_gate:
        How many experts every token uses besides, their inner width (None: a routed one's), and whether a gate
        of its own weighs them.
    router_bias:
        Whether the router has a bias for each expert.
    groups:
        Whether ``n_group`` and ``topk_group`` limit the choice (null: one group).
    sparse, dense:
        Which layers have experts (None: all), and the part of the others.
    """

    experts: Number = _EXPERTS
    top_k: Number = _TOP_K
    width: Number = _WIDTH
    bias: bool = False
    gated: bool = True
    shared: Number = 0
    shared_width: Number | None = None
    shared_gate: bool = False
    router_bias: Switch = False
    groups: Switch = False
    sparse: SparseRule | None = None
    dense: Dense = Dense()

    def one(self, f: Facts, hidden: int, *, expert_hidden: int | None = None) -> MoeFfn:
        """Return the experts of one layer, and check the router settings.

        ``expert_hidden``: width of the vectors which routed experts take, where it is not ``hidden`` (latent MoE).
        """
        inner = value(f, self.width)
        experts, top_k = value(f, self.experts), value(f, self.top_k)
        shared = value(f, self.shared)
        shared_inner = inner if self.shared_width is None else value(f, self.shared_width)
        matrices = 3 if self.gated else 2
        shared_params = matrices * hidden * shared * shared_inner + (hidden if self.shared_gate else 0)
        shared_params += 2 * hidden * (expert_hidden or 0)
        router_bias = value(f, self.router_bias)
        if top_k > experts:
            f.refuse(
                f"a token uses {top_k} experts, but there are only {experts}; check num_experts_per_tok."
            )
        groups, top_groups = self._groups(f, experts, top_k) if value(f, self.groups) else (1, 1)
        return MoeFfn(
            experts=experts,
            top_k=top_k,
            expert_params=feed_forward(expert_hidden or hidden, inner, matrices, bias=self.bias),
            shared_params=shared_params,
            router_params=experts * hidden + (experts if router_bias else 0),
            columns=inner,
            groups=groups,
            topk_groups=top_groups,
            width=expert_hidden,
            matrices=matrices,
        )

    @staticmethod
    def _groups(f: Facts, experts: int, top_k: int) -> tuple[int, int]:
        """Return the groups of experts, and of how many of them a token's experts are."""
        groups, top_groups = f.count("n_group", default=1), f.count("topk_group", default=1)
        per_group = f.divides(groups, experts, "n_group must divide the number of experts")
        if top_groups > groups:
            f.must_be("topk_group", f"no more than n_group ({groups})")
        if top_k > top_groups * per_group:
            f.must_be(
                "topk_group",
                f"large enough for {top_k} experts a token, and {top_groups} x {per_group} is not",
            )
        return groups, top_groups

    def in_layers(self, f: Facts, hidden: int, layers: int, experts: MoeFfn) -> Sequence[Ffn]:
        """Return ``experts`` in the layers that have them, and the dense part in the others."""
        if self.sparse is None:
            return [experts] * layers
        sparse = self.sparse(f, layers)
        f.ignore(self.dense.width)
        if all(sparse):
            return [experts] * layers
        dense = self.dense.one(f, hidden)
        return [experts if has_experts else dense for has_experts in sparse]

    def __call__(self, f: Facts, hidden: int, layers: int) -> Sequence[Ffn]:
        """Return each layer's part."""
        return self.in_layers(f, hidden, layers, self.one(f, hidden))


def draft_layers(f: Facts) -> tuple[str, ...]:
    """Return which draft (multi-token prediction) layers of the checkpoint are left out."""
    keys = ("num_nextn_predict_layers", "num_mtp_modules", "mtp_num_hidden_layers", "num_mtp_layers")
    f.ignore(
        "use_mtp", "mtp_transformer_layers", "mtp_use_dedicated_embeddings", "mtp_num_layers",
        "mtp_loss_scaling_factor", "mtp_layer_types", "mtp_mlp_layer_types",
    )  # fmt: skip
    counts = [f.whole(key) for key in keys if f.has(key)]
    drafts = max(counts, default=0)
    return (f"{drafts} draft (multi-token prediction) layer{'s' if drafts > 1 else ''}",) if drafts else ()


@dataclass(frozen=True)
class Decoder:
    """A decoder-only language model, counted but without names and precision.

    ``head_params`` includes the head's bias; ``parts`` of the layers are one of the checkpoint.
    """

    hidden: int
    vocab: int
    layers: tuple[Layer, ...]
    embedding_params: int
    head_params: int
    final_norm_params: int
    tied: bool
    omitted: tuple[str, ...] = ()
    parts: int = 1


@dataclass(frozen=True)
class Family:
    """One family of decoders: a row of :data:`cost.config.families.FAMILIES`.

    Attributes
    ----------
    names:
        Its values of ``model_type``, with spaces between.
    about:
        What it is, in one line.
    attention, ffn:
        Each layer's attention and feed-forward part: `Grouped`, `Dense`, `Routed`, or a function of the
        config, the hidden size and the number of layers.
    layers, parts:
        The key of the number of layers, and how many of ours one of them is (LongCat: two, each with an attention and
        a dense part).
    norms, norm_width:
        Norms a layer, and weights of one in units of hidden (1: scale; 2: scale and bias; 0: none).
    besides:
        Weights in each layer and after the last one that count with the norms, from the config and hidden.
    embedding:
        Weights of the embedding besides ``vocab x hidden``; from config and hidden.
    tied:
        What the family's config class takes where ``tie_word_embeddings`` is not in the file.
    must:
        Keys of which one value is modelled (taken too where the key is absent), with what messages say.
    ignore, before:
        Keys that count nothing (with spaces between), and what is checked or completed before anything is read.
    """

    names: str
    about: str
    attention: AttentionRule
    ffn: FfnRule = Dense()
    hidden: Count = _HIDDEN
    layers: str = "num_hidden_layers"
    parts: int = 1
    norms: Number = 2
    norm_width: Number = 1
    besides: Callable[[Facts, int], tuple[int, int]] | None = None
    embedding: Callable[[Facts, int], int] | None = None
    tied: bool = False
    head_bias: Switch = False
    must: Mapping[str, tuple[bool | int, str]] = field(default_factory=dict)
    ignore: str = ""
    before: Callable[[Facts], object] | None = None

    def decoder(self, f: Facts) -> Decoder:
        """Return the decoder that a config of this family describes.

        Raises
        ------
        InputError
            If a needed key is missing or impossible, or a part of the architecture is not modelled.
        """
        f.ignore(*self.ignore.split())
        if self.before is not None:
            self.before(f)
        for key, (only, must) in self.must.items():
            setting = f.flag(key, default=only) if isinstance(only, bool) else f.whole(key, default=only)
            if setting != only:
                f.must_be(key, must)
        hidden, count = self.hidden(f), f.layers(self.layers) * self.parts
        ffns = self.ffn(f, hidden, count)
        attentions = self.attention(f, hidden, count)
        layer_params, final_params = (0, 0) if self.besides is None else self.besides(f, hidden)
        width = value(f, self.norm_width) * hidden
        norm_params = value(f, self.norms) * width + layer_params
        vocab = f.count("vocab_size")
        return Decoder(
            hidden=hidden,
            vocab=vocab,
            layers=tuple(
                Layer(attention, ffn, norm_params) for attention, ffn in zip(attentions, ffns, strict=True)
            ),
            embedding_params=vocab * hidden + (0 if self.embedding is None else self.embedding(f, hidden)),
            head_params=vocab * hidden + (vocab if value(f, self.head_bias) else 0),
            final_norm_params=width + final_params,
            tied=f.flag("tie_word_embeddings", default=self.tied),
            omitted=draft_layers(f),
            parts=self.parts,
        )
