"""What a model is, as far as its cost goes: layers with an attention, a feed-forward part or both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, NamedTuple, Protocol

from cost.quantity import Quantity
from topology.base.shown import Shown
from topology.base.units import added, plural


class ByToken(NamedTuple):
    """A cache whose tokens may lie on different GPUs: its key-value heads, and what a query head sends around.

    ``query`` and ``output`` are elements of one head and token, as they meet the cache (MLA: latents).
    """

    heads: int
    query: int
    output: int


class Attention(Protocol):
    """The attention part of one layer; one frozen dataclass per kind implements it (:mod:`cost.attention`).

    ``context`` is the number of tokens already in the sequence, ``kv_bytes`` the bytes of one cache element.
    """

    @property
    def kind(self) -> str:
        """``gqa``, ``mla``, ``linear``...: the word that summaries print."""
        ...

    @property
    def heads(self) -> int:
        """Query heads: tensor parallelism divides them."""
        ...

    @property
    def modules(self) -> Mapping[str, int]:
        """Weights of each projection by name; they add up to :attr:`matmul_params`."""
        ...

    @property
    def matmul_params(self) -> int:
        """Weights that each token is multiplied with (2 flop each); read once a step."""
        ...

    @property
    def replicated(self) -> tuple[str, ...]:
        """Projections that every rank of a tensor-parallel group holds whole."""
        ...

    @property
    def other_params(self) -> int:
        """Weights besides (norms, biases, sinks)."""
        ...

    def cache_bytes(self, context: Quantity, kv_bytes: float) -> Quantity:
        """Cache bytes that one sequence of ``context`` tokens holds in this layer."""
        ...

    def read_bytes(self, context: Quantity, kv_bytes: float) -> Quantity:
        """Cache bytes that one decode step reads for one sequence in this layer."""
        ...

    def decode_flop(self, context: Quantity) -> Quantity:
        """Flop of one decoded token besides ``2 * matmul_params``: scores and weighted values."""
        ...

    def prefill_flop(self, context: Quantity) -> Quantity:
        """Flop of one prompt token besides ``2 * matmul_params``, averaged over a prompt of ``context``."""
        ...

    def kv_shards(self, tp: Quantity) -> Quantity:
        """Into how many parts ``tp``-way tensor parallelism divides the cache (MLA: 1, replicated)."""
        ...

    @property
    def by_token(self) -> ByToken | None:
        """How context parallelism splits the cache; None where every rank keeps it: windows, states."""
        ...

    def index_bytes(self, context: Quantity) -> Quantity:
        """Bytes of the keys of an index, which every rank has of all tokens; 0 without one."""
        ...

    def cache_share(self, total: Quantity, context: Quantity, tp: Quantity, dcp: Quantity) -> Quantity:
        """Return what each of ``tp`` GPUs has of ``total`` cache bytes, tokens split over ``dcp`` of them."""
        ...


class Projected:
    """What attentions have in common: weights by projection, and a cache that every rank has all of."""

    replicated: ClassVar[tuple[str, ...]] = ()

    @property
    def modules(self) -> dict[str, int]:
        """Weights of each projection by name."""
        raise NotImplementedError

    @property
    def matmul_params(self) -> int:
        """All projections."""
        return sum(self.modules.values())

    def kv_shards(self, tp: Quantity) -> Quantity:  # noqa: ARG002 - the protocol's signature
        """Return 1: one latent or key-value head for all heads, which tensor parallelism replicates."""
        return 1

    @property
    def by_token(self) -> ByToken | None:
        """Return None: every rank keeps the cache of all tokens."""
        return None

    def index_bytes(self, context: Quantity) -> Quantity:  # noqa: ARG002 - the protocol's signature
        """Return 0: there is no index."""
        return 0.0

    def cache_share(self, total: Quantity, context: Quantity, tp: Quantity, dcp: Quantity) -> Quantity:
        """Return ``total`` over the parts by head, and all but the index's keys of that over ``dcp``.

        Engines stripe keys, values and latents, and keep the index's keys (SGLang pull request 31821), windows
        (tokenspeed 1498) and states (SGLang's guide, Kimi K3) on every rank.
        """
        share: Quantity = total / self.kv_shards(tp)
        if self.by_token is None:
            return share
        return share - (share - self.index_bytes(context)) * (1 - 1 / dcp)


@dataclass(frozen=True)
class DenseFfn:
    """A feed-forward part that every token goes through."""

    params: int


@dataclass(frozen=True)
class SharedFfn(DenseFfn):
    """What stays of a layer with experts where those lie on other GPUs: shared experts and router."""

    shared_params: int
    router_params: int


@dataclass(frozen=True)
class MoeFfn:
    """Routed experts, of which each token uses ``top_k``, and the weights every token uses besides.

    ``expert_params`` are the weights of one expert. ``groups`` and ``topk_groups`` describe group-limited
    routing (1 and 1 where there is none). ``router_params`` includes the router's bias. ``width`` is that of the
    vectors that experts take where it is not the model's own (latent MoE: the two projections are in
    ``shared_params``, and tokens travel in the narrow form). ``columns``: inner width of an expert (DeepSeek-V3:
    2,048), which tensor parallelism divides; ``matrices`` of it: gate, up and down, or 2.
    """

    experts: int
    top_k: int
    expert_params: int
    shared_params: int
    router_params: int
    columns: int
    groups: int = 1
    topk_groups: int = 1
    width: int | None = None
    matrices: int = 3


Ffn = DenseFfn | MoeFfn


@dataclass(frozen=True)
class Layer:
    """One decoder layer."""

    attention: Attention
    ffn: Ffn
    norm_params: int

    @property
    def parts(self) -> int:
        """How many parts it has: 2, 1 where layers have one each (Nemotron-H) or lack their experts."""
        ffn = isinstance(self.ffn, MoeFfn) or (self.ffn.params > 0 and not isinstance(self.ffn, SharedFfn))
        return (self.attention.matmul_params > 0) + ffn

    @property
    def total_params(self) -> int:
        """All weights of the layer."""
        ffn = self.ffn
        if isinstance(ffn, MoeFfn):
            ffn_params = ffn.experts * ffn.expert_params + ffn.shared_params + ffn.router_params
        else:
            ffn_params = ffn.params
        return self.attention.matmul_params + self.attention.other_params + ffn_params + self.norm_params

    @property
    def active_params(self) -> int:
        """Weights that one token uses."""
        ffn = self.ffn
        if not isinstance(ffn, MoeFfn):
            return self.total_params
        return self.total_params - (ffn.experts - ffn.top_k) * ffn.expert_params


@dataclass(frozen=True, repr=False)
class Model(Shown):
    """A model, as read from a Hugging Face ``config.json``.

    Attributes
    ----------
    embedding_params, head_params:
        Input embedding, and output head (the head counts once more as ``head_params`` even if ``tied``:
        see ``total_params``).
    tied:
        The head is the embedding's own matrix: it is stored once.
    precision:
        Dtype name (:mod:`cost.dtypes`) of each class of weights: ``experts``, ``shared``, ``attention``,
        ``dense``, ``router``, ``embedding``, ``head``, ``norm``.
    precision_source:
        Where the precision was read (``quantization_config``, ``torch_dtype``, the catalog, the user).
    omitted:
        Parts of the checkpoint that are left out of the counts (draft layers, vision tower), in words.
    config:
        The JSON-able facts from which :func:`cost.config.build.model_from_config` builds this model again.
    weights_override:
        The precision that replaces the checkpoint's own, or None.
    notes:
        What a careful reader should know: keys that are not known, classes of weights of mixed precision.
    most_context:
        The longest sequence that the model's own config states, extended positions included; None: it states none.
    most_context_source:
        Where that was read.
    """

    name: str
    hidden: int
    vocab: int
    layers: tuple[Layer, ...]
    embedding_params: int
    head_params: int
    final_norm_params: int
    tied: bool
    precision: Mapping[str, str]
    precision_source: str
    source: str
    omitted: tuple[str, ...] = ()
    config: Mapping[str, object] = field(default_factory=dict)
    weights_override: str | None = None
    notes: tuple[str, ...] = ()
    most_context: int | None = None
    most_context_source: str = ""

    def brief(self) -> str:
        """Return its name, layers, experts and parameters."""
        experts = f", {plural(self.moe.experts, 'expert')} top {self.moe.top_k}" if self.moe else ""
        return f"{self.name}: {len(self.layers)} layers{experts}, {self.total_params / 1e9:,.4g} B parameters"

    def beyond(self, tokens: float) -> str:
        """Return what to say of a sequence of so many tokens: that the model was not made for it; else empty."""
        if self.most_context is None or tokens <= self.most_context:
            return ""
        return (
            f"sequences of {tokens:,.0f} tokens exceed the {self.most_context:,} that {self.name} "
            f"supports ({self.most_context_source}); costs are valid, but answers may degrade"
        )

    @cached_property
    def moe_layers(self) -> tuple[int, ...]:
        """Absolute ids of the layers with routed experts."""
        return tuple(i for i, layer in enumerate(self.layers) if isinstance(layer.ffn, MoeFfn))

    @cached_property
    def kinds(self) -> tuple[Layer, ...]:
        """The distinct layers: most models have one to three."""
        return tuple(dict.fromkeys(self.layers))

    @cached_property
    def kind_of(self) -> tuple[int, ...]:
        """For each layer its index in ``kinds``."""
        index = {layer: number for number, layer in enumerate(self.kinds)}
        return tuple(index[layer] for layer in self.layers)

    def kind_counts(self, layers: range) -> list[tuple[Layer, int]]:
        """How often each distinct layer occurs among ``layers``."""
        counts = Counter(self.kind_of[layers.start : layers.stop])
        return [(self.kinds[kind], count) for kind, count in counts.items()]

    def slot_params(self, layers: range) -> float:
        """Parameters of one routed expert of each of ``layers`` that has experts."""
        kinds = self.kind_counts(layers)
        return added(
            float(n) * layer.ffn.expert_params for layer, n in kinds if isinstance(layer.ffn, MoeFfn)
        )

    @property
    def whole(self) -> StageShard:
        """What the only stage of a pipeline holds: everything."""
        return StageShard(tuple(self.kind_counts(range(len(self.layers)))))

    def first_stage(self, stages: Quantity) -> StageShard:
        """What the first of equal stages of a pipeline holds, the fullest: no head unless it is the only one."""
        layers = tuple((layer, count / stages) for layer, count in self.whole.layers)
        return StageShard(layers, last=(stages == 1) * 1.0)

    @property
    def without_experts(self) -> Model:
        """The model as GPUs have it whose experts lie on others."""

        def left(layer: Layer) -> Layer:
            ffn = layer.ffn
            if not isinstance(ffn, MoeFfn):
                return layer
            held = ffn.shared_params + ffn.router_params
            return replace(layer, ffn=SharedFfn(held, ffn.shared_params, ffn.router_params))

        return replace(self, layers=tuple(map(left, self.layers)))

    @property
    def main_weights(self) -> str:
        """The class of weights that most of the model is: ``experts`` where it has any, else ``dense``."""
        return "experts" if self.moe is not None else "dense"

    @property
    def moe(self) -> MoeFfn | None:
        """The routed experts of the first MoE layer (all alike in every model we read), or None."""
        ffn = self.layers[self.moe_layers[0]].ffn if self.moe_layers else None
        return ffn if isinstance(ffn, MoeFfn) else None

    @property
    def attention_kinds(self) -> list[str]:
        """The kinds of attention that its layers have, by name."""
        return sorted({layer.attention.kind for layer in self.kinds if layer.attention.heads})

    def cache_bytes(self, tokens: float, element: float) -> float:
        """Return the cache bytes of ``tokens`` tokens of one sequence over all layers, each stored once."""
        counts = self.kind_counts(range(len(self.layers)))
        return float(added(count * layer.attention.cache_bytes(tokens, element) for layer, count in counts))

    @property
    def draft(self) -> Layer:
        """The decoder layer of a draft module: as the last; of two layers of one part each in Nemotron 3 (``*E``)."""
        last = self.layers[-1]
        if last.attention.heads:
            return last
        mixers = (layer.attention for layer in self.layers[::-1])
        return replace(
            last, attention=next(mixer for mixer in mixers if mixer.kind not in ("none", "mamba2"))
        )

    @property
    def expert_hidden(self) -> int:
        """Width of the vectors that are sent to experts and back: ``hidden`` but for latent MoE."""
        return self.hidden if self.moe is None or self.moe.width is None else self.moe.width

    @property
    def total_params(self) -> int:
        """All weights of the checkpoint, without draft layers and vision towers; a tied head counts once."""
        head = 0 if self.tied else self.head_params
        layers = sum(layer.total_params for layer in self.layers)
        return layers + self.embedding_params + head + self.final_norm_params

    @property
    def active_params(self) -> int:
        """Weights that one token uses, with the output head, without the input embedding."""
        return sum(layer.active_params for layer in self.layers) + self.head_params + self.final_norm_params

    @property
    def active_params_with_embedding(self) -> int:
        """The other count in use: with the input embedding too (once only where the head is tied)."""
        return self.active_params + (0 if self.tied else self.embedding_params)


@dataclass(frozen=True, eq=False)
class StageShard:
    """Part of a model; numbers, or arrays with one entry for each of many stages.

    Attributes
    ----------
    layers:
        Distinct layers and how many of each.
    first, last:
        1 where the stage begins with the embedding, and where it ends with the head; else 0.
    """

    layers: tuple[tuple[Layer, Quantity], ...]
    first: Quantity = 1.0
    last: Quantity = 1.0
