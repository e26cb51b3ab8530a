"""The room for the cache of one GPU by the formula of each engine, with the interval that start logs support."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field
from functools import cache, reduce
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import numpy as np
from packaging.version import InvalidVersion, Version
from pydantic import AfterValidator, Field
from pydantic.dataclasses import dataclass

from cost.calibration.tables import CHECKED, Number, Text, load_table
from cost.model import Model, MoeFfn
from cost.quantity import Quantity
from topology.base.schema import problem

PATH = Path(__file__).with_name("engines.yaml")
GIB = 2.0**30
SPREAD_GIB = 1.5
"""Either way around a room: what start logs of one configuration differ by."""
MIN_ROOM_GIB = 3.0
"""An engine with less room may not start."""
LOGIT_BYTES = 4.0
_LARGE_GIB = 70.0
_LARGE_STEP, _SMALL_STEP = (1024, 8192), (256, 2048)
"""Sequences and tokens of a step that an API server of vLLM has by default on large GPUs, and on others."""
_GROUPED_TOKENS = 32768.0
"""Tokens that vLLM's experts take at once (VLLM_FUSED_MOE_CHUNK_SIZE)."""
_MIB = 1 / 1024
_CHUNKS = ((20, 2048, 8, 8), (35, 2048, 24, 80), (60, 4096, 32, 160), (160, 8192, 256, 512))
"""SGLang's prefill chunk and largest graph (below TP 4, from it on) on GPUs of less than so many GiB."""
_CHUNK, _GRAPH = 16384, 512
"""The same on larger GPUs."""


def _version(text: str) -> str:
    try:
        Version(text)
    except InvalidVersion:
        raise problem(f"{text!r} is no version") from None
    return text


@dataclass(frozen=True, config=CHECKED)
class Coefficient:
    """A figure with its bounds, its source and the number of start logs behind it (0: the engine's own default)."""

    value: Number
    low: Number
    high: Number
    source: Text
    logs: Annotated[int, Field(strict=True, ge=0)]

    def __post_init__(self) -> None:
        if not self.low <= self.value <= self.high:
            raise problem(f"{self.value:g} is not from {self.low:g} to {self.high:g}.")


NO_PART = Coefficient(0.0, 0.0, 0.0, "no such part", 0)


class Taken(NamedTuple):
    """GiB that an engine takes beside weights and cache, the least and the most of them, and by use."""

    gib: float
    low: float
    high: float
    uses: Mapping[str, float]

    def spread(self, off: float = 0.0) -> tuple[float, float]:
        """Return by how many GiB start logs have less, and more, room beside weights that are ``off`` either way."""
        shortfall, surplus = self.high - self.gib, self.gib - self.low
        return math.hypot(shortfall, SPREAD_GIB, off), math.hypot(surplus, SPREAD_GIB, off)


@dataclass(frozen=True, config=CHECKED)
class EngineMemory:
    """What an engine keeps for itself, from one of its versions on.

    Attributes
    ----------
    engine, version, month:
        Its name, the first version and the first whole month of this form; empty: any earlier one.
    base:
        What the utilisation is a part of: the driver's total, what is free before loading, or what is left after it.
    utilisation:
        The default of the engine.
    outside:
        GiB of the total that are taken before the engine loads anything.
    always, tensor_parallel, rocm:
        GiB beside the sampler's in any case, with several GPUs a replica (NCCL), and on AMD.
    libraries:
        GiB outside the allocator of tensors.
    experts:
        GiB with routed experts on several GPUs: buffers of dispatch and of grouped kernels.
    graphs, expert_graphs:
        GiB that it keeps free for CUDA graphs with several GPUs, and with routed experts besides (buffers of their
        kernels in every graph); they differ most by model and version.
    per_logits:
        Times the FP32 logits of the largest number of sequences: what a sampler sorts and sums beside them.
    share_of_total:
        Part of the total that is never touched.
    by_tp:
        Its default utilisation from so many GPUs of tensor parallelism on.
    reserves:
        Whether its default utilisation is what SGLang's reserve leaves (:meth:`usual_utilisation`).
    sequences:
        The most sequences of a step that it has by default on any GPU.
    whole_prompts:
        Whether it profiles a prompt of the longest sequence at once, not a chunk.
    """

    engine: Text
    base: Literal["total", "before loading", "after loading"]
    utilisation: Coefficient
    version: Annotated[str, AfterValidator(_version)] = "0"
    month: str = ""
    outside: Coefficient = NO_PART
    always: Coefficient = NO_PART
    tensor_parallel: Coefficient = NO_PART
    rocm: Coefficient = NO_PART
    experts: Coefficient = NO_PART
    libraries: Coefficient = NO_PART
    graphs: Coefficient = NO_PART
    expert_graphs: Coefficient = NO_PART
    per_logits: Coefficient = NO_PART
    share_of_total: Coefficient = NO_PART
    by_tp: Mapping[int, Coefficient] = field(default_factory=dict)
    reserves: bool = False
    sequences: int = _LARGE_STEP[0]
    whole_prompts: bool = False

    def taken_gib(
        self,
        *,
        vocab: int,
        sequences: int,
        several: bool,
        rocm: bool,
        experts: bool = False,
        graphs: bool = True,
        forward: float = 0.0,
    ) -> Taken:
        """Return GiB beside weights and cache (activations, graphs, libraries, buffers).

        A profiling run peaks in its layers or in its sampler, whichever takes more. The bounds of parts add up as
        those of independent figures.

        Parameters
        ----------
        vocab, sequences:
            Logits of each of so many sequences.
        several, rocm, experts, graphs:
            With several GPUs a replica, on AMD, with routed experts, with CUDA graphs.
        forward:
            GiB of activations in the layers (:func:`forward_gib`); 0 where it is not known.
        """
        logits, captured = sequences * vocab * LOGIT_BYTES / GIB, several and graphs
        parts = {
            "workspace": (
                (self.always, 1.0),
                (self.per_logits, logits),
                (self.libraries, 1.0),
                (self.rocm, rocm),
            ),
            "graphs": ((self.graphs, captured), (self.expert_graphs, captured and experts)),
            "buffers": ((self.tensor_parallel, several), (self.experts, several and experts)),
        }
        uses = {use: sum(part.value * times for part, times in row) for use, row in parts.items()}
        if self.base != "before loading":  # else activations are in the part that the utilisation leaves
            uses["workspace"] += max(0.0, forward - self.always.value - self.per_logits.value * logits)
        terms, value = [part for row in parts.values() for part in row], sum(uses.values())
        below = math.hypot(*((part.value - part.low) * times for part, times in terms))
        above = math.hypot(*((part.high - part.value) * times for part, times in terms))
        return Taken(value, value - below, value + above, uses)

    def usual_utilisation(
        self,
        total: float,
        *,
        tp: int = 1,
        stages: int = 1,
        ranks: int = 1,
        drafts: bool = False,
        chunk: int = 0,
    ) -> float:
        """Return the default utilisation; SGLang's is what a reserve of MiB leaves of ``total`` (GiB).

        The reserve: 512, 1.5 for each token of a ``chunk``, 2 for each sequence of the largest graph, 128 for each
        GPU, 3 more (4.5 from 300 on) for each sequence of it on each of several attention ``ranks``, 2,048 for
        ``drafts`` (SGLang server_args.py, ``_handle_gpu_memory_settings``; pull request 10975).
        """
        if not self.reserves:
            usual = [coefficient for gpus, coefficient in sorted(self.by_tp.items()) if tp >= gpus]
            return usual[-1].value if usual else self.utilisation.value
        usual_chunk, *graph = next(
            (row for below, *row in _CHUNKS if total < below), (_CHUNK, _GRAPH, _GRAPH)
        )
        graph_sequences = graph[tp >= 4]
        reserve = 512 + 1.5 * max(chunk or usual_chunk, 2048) + 2 * graph_sequences + 128 * tp * stages
        reserve += (ranks > 1) * graph_sequences * ranks * (4.5 if graph_sequences > 300 else 3)
        reserve = max(reserve, (total > 60) * 10240) + 2048 * drafts
        return (total - reserve * _MIB) / total

    def part(self, utilisation: float | None = None) -> float:
        """Return the part of what is left beside weights that the engine gives to the cache."""
        fraction = self.utilisation.value if utilisation is None else utilisation
        return fraction if self.base == "after loading" else 1.0

    def room_gib(
        self, total: float, weights: float, overhead: float, utilisation: float | None = None
    ) -> float:
        """GiB that the engine allocates for the cache; below 0 it does not start.

        Parameters
        ----------
        total, weights, overhead:
            GiB: what the driver reports, weights (of drafts too), and :meth:`taken_gib`.
        utilisation:
            The engine's default if None.
        """
        part = self.utilisation.value if utilisation is None else utilisation
        total -= self.outside.value
        if self.base == "after loading":
            return part * (total - weights - overhead)
        return (part - self.share_of_total.value) * total - weights - overhead


@dataclass(frozen=True, config=CHECKED)
class EngineTable:
    """The file: forms of engines, oldest first, and their sources in words.

    ``driver_gib``, ``driver_part``: what NVIDIA's driver keeps of the memory that ``nvidia-smi`` prints, in GiB and
    as a part of it; CUDA's total, which engines read, is the rest.
    """

    sources: Mapping[str, Text]
    driver_gib: Coefficient
    driver_part: Coefficient
    engines: tuple[EngineMemory, ...]

    def __post_init__(self) -> None:
        for form in self.engines:
            figures = vars(form) | {f"by_tp {gpus}": figure for gpus, figure in form.by_tp.items()}
            for name, figure in figures.items():
                if (
                    isinstance(figure, Coefficient)
                    and figure is not NO_PART
                    and figure.source not in self.sources
                ):
                    raise problem(
                        f"{form.engine}, {name}: {figure.source!r} is not among the file's sources."
                    )


@cache
def _table() -> EngineTable:
    return load_table(EngineTable, PATH)


def engine_memory(engine: str, version: str = "", month: str = "") -> EngineMemory | None:
    """Return the form of an engine's version, or of a log's month (``2026-05``); the newest if neither is known.

    A version that is none (``nightly``) says nothing. None for an engine that has no form.
    """
    forms = [form for form in _table().engines if form.engine == engine]
    try:
        known = Version(version)
    except InvalidVersion:
        forms = [form for form in forms if not month or form.month <= month]
    else:
        forms = [form for form in forms if known >= Version(form.version)]
    return forms[-1] if forms else None


def seen_gib(total_gib: float) -> float:
    """Return the total that an engine reads of an NVIDIA GPU, of that which ``nvidia-smi`` prints."""
    table = _table()
    return total_gib * (1 - table.driver_part.value) - table.driver_gib.value


def usual_step(total_gib: float, chip: str = "") -> tuple[int, int]:
    """Return the most sequences, and tokens, that a step of vLLM's API server has unless told.

    The A100 counts as small whatever it holds (vLLM pull request 17885).
    """
    return _LARGE_STEP if total_gib >= _LARGE_GIB and not chip.lower().startswith("a100") else _SMALL_STEP


def forward_gib(model: Model, tokens: float, *, tp: Quantity = 1.0, moe_tp: Quantity = 1.0) -> Quantity:
    """Return GiB of activations that ``tokens`` of a step have alive at once in the widest layer, in BF16.

    Three hidden vectors (residual, its norm, the block's output), and gate, up and their product: of a dense block
    or, with experts, of each chosen one beside its output. vLLM issue 10517 (Llama 3.1 8B): 2.07 GiB for 20,000
    tokens, 2.99 for 29,000.
    """
    moe, hidden = model.moe, model.hidden
    dense = [layer.ffn.params / hidden / tp for layer in model.kinds if not isinstance(layer.ffn, MoeFfn)]
    inner = [tokens * width for width in dense]
    if moe is not None:
        width = moe.top_k * (3.0 * moe.columns / moe_tp + model.expert_hidden)
        inner.append(min(tokens, _GROUPED_TOKENS) * width)
    return 2.0 * (3.0 * hidden * tokens + reduce(np.maximum, inner)) / GIB
