"""What an engine lets weights and cache fill of a GPU, and what it keeps for itself, by use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from cost.calibration.serving import engine_version
from cost.memory.engines import (
    GIB,
    EngineMemory,
    engine_memory,
    forward_gib,
    seen_gib,
    usual_step,
)
from cost.model import Model
from cost.queueing.schedulers import scheduler_of
from topology.spec import GpuSpec

if TYPE_CHECKING:
    from cost.inputs.layout import Layout

ENGINES_ON = {"NVIDIA": ("vllm", "sglang", "trtllm"), "AMD": ("vllm", "sglang", "atom")}
TITLES = {"vllm": "vLLM", "sglang": "SGLang", "trtllm": "TensorRT-LLM", "atom": "ATOM"}
_WEIGHTS_SHARE = 0.5
"""Part of a GPU that weights fill where engines are compared before a layout is known."""


@dataclass(frozen=True)
class Budget:
    """HBM of one GPU as an engine divides it, in bytes.

    Attributes
    ----------
    engine, utilisation:
        In words (``vLLM (since 0.20)``), and the part of memory that it was given.
    open:
        Whether no engine was named, so that this is the one that leaves least.
    capacity:
        What the driver reports.
    usable:
        What weights and ``1 / part`` of the cache may fill.
    part:
        Of what is left beside weights, the engine gives so much to the cache.
    taken:
        What it takes beside both, by use: ``workspace``, ``graphs`` and ``buffers``.
    less, more:
        Start logs differ from ``usable`` by so much less to so much more.
    """

    engine: str
    utilisation: float
    open: bool
    capacity: float
    usable: float
    part: float
    taken: Mapping[str, float]
    less: float
    more: float

    @property
    def words(self) -> str:
        """The engine, the part of memory that it was given, and why it is this one."""
        why = ", tightest of the engines for this chip" if self.open else ""
        return f"{self.engine}, utilisation {self.utilisation:.2f}{why}"

    def pool(self, held: float) -> float:
        """Bytes for the cache beside ``held`` of weights and buffers; below 0 the engine does not start."""
        return self.part * (self.usable - held)


class Ranks(NamedTuple):
    """How a replica is laid out: parts of attention and of an expert, attention groups of a stage, stages."""

    tp: int
    moe_tp: int
    attention_dp: int
    stages: int = 1

    @classmethod
    def of(cls, layout: Layout) -> Ranks:
        """Return how the replicas of a layout are laid out."""
        return cls(layout.tp, layout.moe_tp, layout.attention_dp, layout.stages)

    @property
    def several(self) -> bool:
        """Whether it has several GPUs."""
        return self.tp * self.attention_dp * self.stages > 1


def budget_of(
    gpu: GpuSpec,
    model: Model,
    engine: str,
    ranks: Ranks,
    *,
    drafts: bool = False,
    sequences: int | None = None,
    utilisation: float | None = None,
) -> Budget:
    """Return what ``engine`` (``vllm==0.20``) leaves of a GPU; if none is named, the tightest of those for it.

    Parameters
    ----------
    sequences, utilisation:
        The most sequences that an attention group runs at a time, and the part of memory that the engine may use;
        None: the engine's default.
    """
    named = engine_memory(*engine_version(engine))
    forms = [named] if named else [form for name in engines_on(gpu.vendor) if (form := engine_memory(name))]
    total = gpu.hbm_bytes / GIB
    total = seen_gib(total) if gpu.vendor == "NVIDIA" else total

    def budget(form: EngineMemory) -> Budget:
        overhead = form.taken_gib(
            vocab=model.vocab,
            sequences=sequences or most_sequences(form.engine, gpu),
            several=ranks.several,
            rocm=gpu.vendor == "AMD",
            experts=model.moe is not None,
            forward=float(
                forward_gib(model, usual_step(total, gpu.name)[1], tp=ranks.tp, moe_tp=ranks.moe_tp)
            ),
        )
        shortfall, surplus = overhead.spread()
        # what SGLang's default keeps for many attention ranks fits no GPU: whoever runs them gives the fraction
        part = utilisation or form.usual_utilisation(total, tp=ranks.tp, stages=ranks.stages, drafts=drafts)
        return Budget(
            engine=f"{TITLES[form.engine]}{f' (since {form.version})' * (form.version != '0')}",
            utilisation=part,
            open=named is None,
            capacity=gpu.hbm_bytes,
            usable=form.room_gib(total, 0.0, overhead.gib, part) / form.part(part) * GIB,
            part=form.part(part),
            taken={use: gib * GIB for use, gib in overhead.uses.items()},
            less=shortfall * GIB,
            more=surplus * GIB,
        )

    return min(map(budget, forms), key=lambda candidate: candidate.pool(_WEIGHTS_SHARE * gpu.hbm_bytes))


def most_sequences(engine: str, gpu: GpuSpec) -> int:
    """Return the sequences that an attention group runs at a time on a GPU unless told."""
    name = engine_version(engine)[0]
    vllm_default = usual_step(gpu.hbm_bytes / GIB, gpu.name)[0]
    names = (name,) if name else engines_on(gpu.vendor)
    return min(
        vllm_default if candidate == "vllm" else scheduler_of(candidate).sequences for candidate in names
    )


def engines_on(vendor: str) -> tuple[str, ...]:
    """Return the engines that run on the chips of a vendor; vLLM alone, by its plugins, on those of others."""
    return ENGINES_ON.get(vendor, ("vllm",))
