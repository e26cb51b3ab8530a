"""The blackboard for one model on one kind of cluster: its figures, and its steps over batches."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from cost.dtypes import cache_bytes_per_element
from cost.inputs.deployment import Deployment
from cost.inputs.layout import StageSpec
from cost.inputs.machine import Rates
from cost.inputs.workload import CHUNK_TOKENS, StepShape
from cost.layouts.candidates import domain_gpus
from cost.memory.sizes import shard_bytes
from cost.principles import links, step, training
from cost.quantity import Quantity
from cost.step.step import even_step, measured, token_wait_s, with_even_slots
from cost.terms.pipeline import ACTIVATION_BYTES, even_hops_s
from topology.base.errors import MissingFigureError
from topology.base.figures import Figure
from topology.base.shown import Shown
from topology.base.units import added
from topology.spec import GpuSpec

Array = NDArray[np.float64]
SPEED_RATIO = 2.5
"""Times the speed of a fast mode whose price is asked for, as providers sell one."""
CONTEXTS: Array = 2.0 ** np.arange(0, 40, 0.125)
"""Contexts at which reading a cache is compared with computing, tokens."""
POINTS = 40
"""Of the picture of latency."""
BATCHES: Array = 4.0 ** np.arange(0, 9, dtype=np.float64)
"""Tokens of a step by default."""
REQUESTS_PER_S, TOK_S = 20_000.0, 200e6
"""Requests that fill a batch of 2,000 within 100 ms, and hundreds of millions of tokens a second: the lecture's."""
FULL_SHARE = 0.9
"""Part of HBM that weights may fill before another domain is needed: the rest is for a cache."""


@dataclass(frozen=True, eq=False, repr=False)
class Roofline(Shown):
    """What first principles say of a model on the first domain of a cluster.

    Attributes
    ----------
    stages:
        Pipeline stages, each on a domain; 0: the fewest that hold the weights.
    batches:
        Tokens of a step, of prompts in prefill; empty: :data:`BATCHES`.
    requests_per_s, tok_s:
        Requests that arrive a second, and output tokens a second that are wanted.
    """

    deployment: Deployment
    stages: int = 0
    batches: Sequence[float] = ()
    requests_per_s: float = REQUESTS_PER_S
    tok_s: float = TOK_S

    def brief(self) -> str:
        """Return the model, the GPUs, and the batch that balances them."""
        return f"{self.deployment.brief()}: {self.figures['balancing_batch']:,.0f} tokens balance a step"

    @cached_property
    def _domain(self) -> tuple[int, ...]:
        return domain_gpus(self.deployment.cluster)[0]

    @property
    def gpu(self) -> GpuSpec:
        """The chip."""
        return self.deployment.cluster.domain_of(self._domain[0]).gpu

    @cached_property
    def price(self) -> Figure | None:
        """USD of an hour of the chip; None where nobody set one."""
        try:
            return self.deployment.prices.price(self.gpu)
        except MissingFigureError:
            return None

    @cached_property
    def gpus(self) -> int:
        """GPUs of a domain that hold as many experts (of a dense model: heads) each."""
        model = self.deployment.model
        parts = (
            max(layer.attention.heads for layer in model.kinds) if model.moe is None else model.moe.experts
        )
        return links.even_gpus(parts, len(self._domain))

    @cached_property
    def _stage(self) -> StageSpec:
        return StageSpec(self._domain[: self.gpus], range(len(self.deployment.model.layers)))

    @cached_property
    def rates(self) -> Rates:
        """Rates of a GPU of the domain."""
        return self.deployment.rates(self._stage)

    @cached_property
    def weight_bytes(self) -> float:
        """Bytes of all weights, each once."""
        model = self.deployment.model
        slots = 0 if model.moe is None else model.moe.experts
        work, shape = self.deployment.workload, StepShape()
        return float(shard_bytes(model, work, model.whole, shape, slots=slots, routed=False)[0])

    @cached_property
    def depth(self) -> int:
        """Pipeline stages."""
        return self.stages or math.ceil(self.weight_bytes / (FULL_SHARE * self.gpus * self.gpu.hbm_bytes))

    def _cache_bytes(self, context: Quantity) -> Quantity:
        """Bytes of cache that a token reads at a context, over all layers."""
        element = cache_bytes_per_element(self.deployment.workload.kv_dtype)
        counts = self.deployment.model.kind_counts(range(len(self.deployment.model.layers)))
        return added(count * layer.attention.read_bytes(context, element) for layer, count in counts)

    @property
    def _flop_per_s(self) -> float:
        model = self.deployment.model
        return self.gpus * self.rates.flop_per_s[model.precision[model.main_weights]]

    @property
    def _bytes_per_s(self) -> float:
        return self.gpus * self.rates.hbm_bytes_per_s

    def predicted_s(self, tokens: Quantity, *, prompts: bool = False) -> Quantity:
        """Return seconds of a step of ``tokens`` as every other command predicts it, on even loads."""
        model, workload = self.deployment.model, self.deployment.workload
        work = replace(workload, phase="prefill" if prompts else "decode")
        machine = replace(self.deployment, workload=work).machine(self._stage)
        shape = StepShape(tp=self.gpus, ep=self.gpus, domain_gpus=self.gpus)
        if model.moe is not None:
            shape = with_even_slots(replace(shape, tp=1, attention_dp=self.gpus, slots=model.moe.experts))
        sequences = np.asarray(tokens, dtype=np.float64) / self.gpus / (work.context if prompts else 1)
        shape = shape.under(work, sequences)
        once = even_step(model, measured(shape, machine), machine, bounds=False).total_s
        return once + even_hops_s(model, replace(shape, stages=self.depth), machine)

    def _flop_share(self, tokens: float, *, prompts: bool) -> float:
        computing = step.compute_s(tokens, self.deployment.model.active_params, self._flop_per_s)
        return float(computing / self.predicted_s(tokens, prompts=prompts))

    def steps(self, tokens: Array) -> dict[str, Array]:
        """Return columns over tokens: seconds of computing, reading, the larger and as predicted, flop in use."""
        work, model = self.deployment.workload, self.deployment.model
        computing = step.compute_s(tokens, model.active_params, self._flop_per_s)
        cached = tokens * self._cache_bytes(float(work.context)) if work.decodes else 0.0
        reading = np.broadcast_to(step.memory_s(self.weight_bytes, cached, self._bytes_per_s), tokens.shape)
        step_s = np.broadcast_to(self.predicted_s(tokens, prompts=not work.decodes), tokens.shape)
        return {
            "step_tokens": tokens,
            "compute_s": computing,
            "hbm_s": reading,
            "lower_step_s": np.maximum(computing, reading),
            "step_s": step_s,
            "flop_share": computing / step_s,
            "gpu_s_per_million_tokens": 1e6 * self.gpus * step_s / tokens,
        }

    @property
    def listed(self) -> dict[str, Array]:
        """Steps at the batches that are asked about."""
        return self.steps(np.array(self.batches or BATCHES))

    @property
    def drawn(self) -> dict[str, Array]:
        """Steps at even distances up to twice the balancing batch: the lecture's picture."""
        widest = 2 * step.balancing_batch(self.deployment.model, self.gpu)
        return self.steps(np.linspace(widest / POINTS, widest, POINTS))

    @cached_property
    def figures(self) -> Mapping[str, float | None]:
        """Every figure of the blackboard by its key."""
        model, context = self.deployment.model, float(self.deployment.workload.context)
        batch = step.balancing_batch(model, self.gpu)
        per_token = float(self._cache_bytes(context)) / context
        full_s = self.gpu.hbm_bytes / self.rates.hbm_bytes_per_s
        floor_s = self.weight_bytes / self._bytes_per_s
        stored = model.precision[model.main_weights]
        per_byte = self.rates.flop_per_s[stored] / self.rates.hbm_bytes_per_s
        mode = step.faster(SPEED_RATIO, self.depth * full_s, floor_s)
        used = {
            prompts: self._flop_share(float(CHUNK_TOKENS * self.gpus) if prompts else batch, prompts=prompts)
            for prompts in (False, True)
        }
        wall = step.wall(self._cache_bytes(CONTEXTS), CONTEXTS, model.active_params, per_byte)
        served, layer_bytes = batch / full_s, training.ACTIVATION_BYTES_PER_HIDDEN * model.hidden
        return {
            "domain_gpus": len(self._domain),
            "used_gpus": self.gpus,
            "bf16_flop_per_byte": self.gpu.dense_flop_per_s("bf16") / self.gpu.hbm_bytes_per_s,
            "total_over_active": model.total_params / model.active_params,
            "dense_equivalent": step.dense_equivalent(model.total_params, model.active_params),
            "balancing_batch": batch,
            "weight_bytes": self.weight_bytes,
            "kv_bytes_per_token": per_token,
            "weights_read_s": floor_s,
            "sweep_s": full_s,
            "longest_wait_s": token_wait_s(full_s)[1],
            "fill_s": batch / self.requests_per_s,
            "unbatched_cost_ratio": per_byte * self.weight_bytes / model.total_params / 2,
            "fastest_ratio": mode.most,
            "faster_price_ratio": mode.price,
            "decode_flop_share": used[False],
            "prefill_flop_share": used[True],
            "flop_share_ratio": used[True] / used[False],
            "domain_tok_s": served,
            "domains_wanted": math.ceil(self.tok_s / served),
            "wall_context": wall,
            "sparse_wall_context": None if wall is None else wall**2,
            "equal_context": self.weight_bytes / (batch * per_token) if per_token else None,
            "compute_per_token_s": float(step.compute_s(1.0, model.active_params, self._flop_per_s)),
            "cache_read_per_token_s": context * per_token / self._bytes_per_s,
            "activation_bytes_per_token": layer_bytes * len(model.layers),
            "reversible_bytes_per_token": layer_bytes,
            **self._links(batch),
        }

    def _links(self, batch: float) -> dict[str, float | None]:
        """Figures of experts within a domain, and of stages over domains."""
        model, rates, moe = self.deployment.model, self.rates, self.deployment.model.moe
        joined = rates.out_bytes_per_s > 0
        ratio = (
            rates.up_bytes_per_s / rates.out_bytes_per_s
            if joined and math.isfinite(rates.up_bytes_per_s)
            else None
        )
        stages = max(self.depth, 2)
        layers, tokens = len(model.layers) / stages, batch / self.gpus
        vectors = batch * model.hidden * ACTIVATION_BYTES
        figures: dict[str, float | None] = {
            "scale_up_rate_ratio": ratio,
            "scale_up_links": self._hops,
            **{f"leaving_{count}_share": links.leaving_share(count) for count in (2, 4, 8)},
            "domain_hbm_bytes_per_s": len(self._domain) * rates.hbm_bytes_per_s,
            "stages": stages,
            "stage_layers": layers,
            "stage_weight_bytes": self.weight_bytes / stages,
            "stage_kv_bytes": batch * float(self._cache_bytes(float(self.deployment.workload.context))),
            "hop_bytes_per_step": vectors,
            "hop_s": vectors / self.gpus / rates.out_bytes_per_s if joined else None,
            "lone_bubble_share": links.training_bubble(stages, 1),
            "training_bubble_share": links.training_bubble(stages, 4 * stages),
            "gpu_experts": None,
            "alltoall_inside_s": None,
            "alltoall_across_s": None,
            "stage_links_ratio": None,
        }
        if moe is not None:
            figures["gpu_experts"] = moe.experts / self.gpus
            figures["alltoall_inside_s"] = links.alltoall_s(
                moe, model.expert_hidden, tokens, rates, self.gpus, 1
            )
            if ratio is not None:
                figures["alltoall_across_s"] = links.alltoall_s(
                    moe, model.expert_hidden, tokens, rates, self.gpus, 2
                )
                figures["stage_links_ratio"] = links.stage_links_ratio(ratio, moe.top_k, layers)
        return figures

    @cached_property
    def _hops(self) -> int:
        """Links between the GPUs of the domain that are farthest apart."""
        ids = [self.deployment.cluster.gpus[gpu].id for gpu in self._domain]
        away = nx.single_source_shortest_path_length(self.deployment.cluster.graph, ids[0])
        return max(away[name] for name in ids)


@dataclass(frozen=True, repr=False)
class Rooflines(Shown):
    """The blackboards of a model on several clusters."""

    boards: tuple[Roofline, ...]

    def brief(self) -> str:
        """Return the model and the clusters."""
        names = ", ".join(board.deployment.cluster.name for board in self.boards)
        return f"of {self.boards[0].deployment.model.name} on {names}"
