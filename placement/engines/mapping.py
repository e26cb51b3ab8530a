"""Content of every engine's plan file, independent of format: the expert in each slot of each MoE layer."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cost.experts.assignment import Assignment
from cost.inputs.layout import Layout
from cost.model import Model
from placement.arrays import Bools, Ints
from placement.plan import Plan
from topology.base.errors import InputError, input_name
from topology.cluster import Cluster
from topology.graph import INSIDE_KINDS, SCALE_OUT_KINDS

_CLASSES = {
    "dbrx": "DbrxForCausalLM",
    "deepseek_v2": "DeepseekV2ForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
    "deepseek_v32": "DeepseekV32ForCausalLM",
    "deepseek_v4": "DeepseekV4ForCausalLM",
    "glm4_moe": "Glm4MoeForCausalLM",
    "glm_moe_dsa": "GlmMoeDsaForCausalLM",
    "gpt_oss": "GptOssForCausalLM",
    "kimi_k2": "DeepseekV3ForCausalLM",
    "kimi_k25": "KimiK25ForConditionalGeneration",
    "kimi_linear": "KimiLinearForCausalLM",
    "llama4": "Llama4ForConditionalGeneration",
    "minimax_m2": "MiniMaxM2ForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "olmoe": "OlmoeForCausalLM",
    "qwen2_moe": "Qwen2MoeForCausalLM",
    "qwen3_5_moe": "Qwen3_5MoeForConditionalGeneration",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "qwen3_next": "Qwen3NextForCausalLM",
}
"""The class of a model by ``model_type``, as transformers, vLLM 0.33.0 and TensorRT-LLM register it; the catalog
keeps what a model costs, not its class."""
_WITH_VISION = {
    "kimi_k2": "KimiK25ForConditionalGeneration",
    "llama4_text": "Llama4ForConditionalGeneration",
    "qwen3_5_moe_text": "Qwen3_5MoeForConditionalGeneration",
}
"""By ``model_type`` of the text part, where a vision tower stands beside it."""


@dataclass(frozen=True)
class ModelFacts:
    """Facts that a plan file is checked against.

    Attributes
    ----------
    layers:
        All layers of the model, dense ones too.
    moe_layers:
        Absolute ids of those with routed experts.
    experts:
        Logical experts of a layer.
    model_type:
        ``model_type`` of its config.json; empty where there is none.
    architecture:
        Its class, as ``architectures`` of its config.json calls it; empty where nothing says.
    """

    name: str
    layers: int
    moe_layers: tuple[int, ...]
    experts: int
    model_type: str = ""
    architecture: str = ""


def model_facts(model: Model) -> ModelFacts:
    """Return the facts of a model with experts.

    Raises
    ------
    InputError
        If it has none, or if a layer of the engines is several of ours (LongCat).
    """
    if model.moe is None:
        raise InputError(f"{model.name} has no routed experts, so there is no placement to export.")
    declared = model.config.get("num_layers")
    if isinstance(declared, int) and declared < len(model.layers):
        raise InputError(
            f"{model.name}: engines count {declared} layers where plans count {len(model.layers)}; "
            "files of engines are not written for such models."
        )
    kind = model.config.get("model_type")
    return ModelFacts(
        model.name,
        len(model.layers),
        model.moe_layers,
        model.moe.experts,
        kind if isinstance(kind, str) else "",
        architecture_of(model.config),
    )


def architecture_of(config: Mapping[str, object]) -> str:
    """Return the class of a model from the facts of its config.json; empty where neither says it."""
    named = config.get("architectures")
    if isinstance(named, list) and named and isinstance(named[0], str):
        return named[0]
    kind, text = config.get("model_type"), config.get("text_config")
    if isinstance(kind, str):
        return _CLASSES.get(kind, "")
    inner = text.get("model_type") if isinstance(text, Mapping) else None
    return _WITH_VISION.get(str(inner), "") if "vision_config" in config else _CLASSES.get(str(inner), "")


@dataclass(frozen=True, eq=False)
class ExpertMapping:
    """Experts in the slots of all MoE layers.

    Attributes
    ----------
    slot_expert:
        int64 ``[MoE layers, slots]``; rank r has the slots ``r * slots_per_rank`` and on.
    layer_ids:
        Absolute layer id of each row.
    experts, ranks:
        Logical experts of a layer, and GPUs of the EP group.
    """

    slot_expert: Ints
    layer_ids: tuple[int, ...]
    experts: int
    ranks: int

    @property
    def slots(self) -> int:
        """Slots of a layer."""
        return int(self.slot_expert.shape[1])

    @property
    def slots_per_rank(self) -> int:
        """Slots of each rank."""
        return self.slots // self.ranks

    @property
    def redundant(self) -> int:
        """Redundant copies per layer."""
        return self.slots - self.experts

    def by_rank(self) -> Ints:
        """Return the experts of each rank, ``[MoE layers, ranks, slots per rank]``."""
        return self.slot_expert.reshape(len(self.layer_ids), self.ranks, self.slots_per_rank)

    def assignment(self, rows: Bools | slice = slice(None)) -> Assignment:
        """Return the experts of some rows on the ranks."""
        slot_gpu = np.repeat(np.arange(self.ranks, dtype=np.int32), self.slots_per_rank)
        return Assignment(self.slot_expert[rows].astype(np.int32), slot_gpu, self.experts, self.ranks)

    def doubled(self) -> list[tuple[int, int, int]]:
        """Return layer id, rank and expert where a rank holds an expert more than once."""
        held = np.sort(self.by_rank(), axis=2)
        row, rank, slot = np.nonzero(held[:, :, 1:] == held[:, :, :-1])
        triples = zip(row.tolist(), rank.tolist(), slot.tolist(), strict=True)
        return [(self.layer_ids[r], g, int(held[r, g, s])) for r, g, s in triples]


def mapping_of(plan: Plan) -> ExpertMapping:
    """Return the mapping of a plan; replicas are alike, so one serves them all.

    Raises
    ------
    InputError
        If the model has no experts, or what no engine's file can hold: GPUs of a stage with unequal slots, or
        stages that differ in their GPUs or slots.
    """
    plan.require_experts()
    facts = model_facts(plan.deployment.model)
    parts = [part for part in plan.experts if part is not None]
    require_equal_ranks([part.slots_per_gpu for part in parts], facts.experts)
    rows = np.concatenate([part.slot_expert for part in parts]).astype(np.int64)
    return ExpertMapping(rows, facts.moe_layers, facts.experts, parts[0].gpus)


def require_equal_ranks(slots: Sequence[Ints], experts: int) -> None:
    """Check that stages with experts have ranks as an engine numbers them; ``slots`` of each GPU of each stage.

    Raises
    ------
    InputError
        If GPUs of a stage have unequal slots, or stages differ in their GPUs or slots.
    """
    for counts in slots:
        if counts.min() == counts.max():
            continue
        total, gpus = int(counts.sum()), len(counts)
        redundant = -(-total // gpus) * gpus - experts
        raise InputError(
            f"GPUs of the plan have {counts.min()} to {counts.max()} slots per layer ({total} on {gpus} "
            "GPUs), but engines need the same number on every rank; make the plan with rackplan plan --redundant "
            f"{redundant} on GPUs "
            "of equal memory."
        )
    reference = slots[0]
    for counts in slots[1:]:
        if (len(counts), counts.sum()) != (len(reference), reference.sum()):
            raise InputError(
                f"the plan's stages differ: {len(reference)} GPUs with {reference.sum()} slots per layer in one, "
                f"{len(counts)} with {counts.sum()} in another, but an engine has one EP size for all "
                "stages; make the plan with "
                f"rackplan plan --stages 1, or {input_name('stages')} and {input_name('ep')} that fit equal domains."
            )


def experts_of(mapping: ExpertMapping, layout: Layout) -> tuple[Assignment | None, ...]:
    """Return the assignment of each stage of ``layout``, whose stages have as many GPUs as the mapping ranks."""
    ids = np.array(mapping.layer_ids)
    parts: list[Assignment | None] = []
    for stage in layout.replicas[0]:
        inside = (ids >= stage.layers.start) & (ids < stage.layers.stop)
        parts.append(mapping.assignment(inside) if inside.any() else None)
    return tuple(parts)


@dataclass(frozen=True)
class Place:
    """A rank of the engine and the GPU that it must run on; ranks count from 0 in each replica.

    Attributes
    ----------
    device:
        Number of the GPU on its host.
    nics:
        The NICs that are nearest to it.
    """

    replica: int
    stage: int
    rank: int
    gpu: str
    node: str
    device: int
    nics: tuple[str, ...]


def device_numbers(cluster: Cluster) -> list[int]:
    """Number of each GPU on its host: from its id, else by order."""
    numbers, counted = [], dict[str, int]()
    for gpu in cluster.gpus:
        match = re.search(r"\.g(\d+)$", gpu.id)
        numbers.append(int(match[1]) if match else counted.get(gpu.node, 0))
        counted[gpu.node] = counted.get(gpu.node, 0) + 1
    return numbers


def nearest_nics(cluster: Cluster, gpu: str) -> tuple[str, ...]:
    """Return the NICs that are the fewest links inside the host away; ``GPU.nic`` is one that is only a cable."""
    graph, visited, level = cluster.graph, {gpu}, [gpu]
    while level:
        around = {neighbour: graph.nodes[neighbour]["kind"] for node in level for neighbour in graph[node]}
        if level == [gpu] and any(kind in SCALE_OUT_KINDS for kind in around.values()):
            return (f"{gpu}.nic",)
        if nics := sorted(node for node, kind in around.items() if kind == "nic"):
            return tuple(nics)
        level = [node for node, kind in around.items() if kind in INSIDE_KINDS and node not in visited]
        visited.update(level)
    return ()


def rank_places(plan: Plan) -> Iterator[Place]:
    """Yield the GPU of each rank: stages in order, in each its EP ranks."""
    cluster = plan.deployment.cluster
    gpus, numbers = cluster.gpus, device_numbers(cluster)
    for replica, stages in enumerate(plan.layout.replicas):
        rank = 0
        for number, stage in enumerate(stages):
            for gpu in stage.gpus:
                member = gpus[gpu]
                nics = nearest_nics(cluster, member.id)
                yield Place(replica, number, rank, member.id, member.node, numbers[gpu], nics)
                rank += 1
