"""What an engine lets weights and cache fill of a GPU, and what it keeps for itself, by use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from cost.calibration.serving import engine_version
from cost.memory.engines import GIB, SPREAD_GIB, EngineMemory, engine_memory, usual_sequences
from cost.queueing.schedulers import scheduler_of
from topology.base.errors import InputError
from topology.spec import GpuSpec

ON = {"NVIDIA": ("vllm", "sglang", "trtllm"), "AMD": ("vllm", "sglang", "atom")}
TITLES = {"vllm": "vLLM", "sglang": "SGLang", "trtllm": "TensorRT-LLM", "atom": "ATOM"}
_HALF = 0.5
"""Part of a GPU that weights fill where engines are compared before a layout is known."""


@dataclass(frozen=True)
class Budget:
    """HBM of one GPU as an engine divides it, in bytes.

    Attributes
    ----------
    engine, utilisation:
        In words (``vLLM 0.20``), and the part of memory that it was given.
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
        why = ", the tightest of the engines for this chip" if self.open else ""
        return f"{self.engine} at {self.utilisation:.2f}{why}"

    def pool(self, held: float) -> float:
        """Bytes for the cache beside ``held`` of weights and buffers; below 0 the engine does not start."""
        return self.part * (self.usable - held)


def _budget(
    form: EngineMemory,
    total: float,
    vocab: int,
    sequences: int,
    utilisation: float | None,
    *,
    several: bool,
    rocm: bool,
    among: bool,
) -> Budget:
    taken, low, high = form.taken_gib(vocab=vocab, sequences=sequences, several=several, rocm=rocm)
    graphs, buffers = form.graphs.value * several, form.tensor_parallel.value * several
    part = form.part(utilisation)
    usable = form.room_gib(total, 0.0, taken, utilisation) / part
    parts = {"workspace": taken - graphs - buffers, "graphs": graphs, "buffers": buffers}
    return Budget(
        engine=f"{TITLES[form.engine]}{f' {form.version}' * (form.version != '0')}",
        utilisation=form.utilisation.value if utilisation is None else utilisation,
        open=among,
        capacity=total * GIB,
        usable=usable * GIB,
        part=part,
        taken={use: gib * GIB for use, gib in parts.items()},
        less=(SPREAD_GIB + high - taken) * GIB,
        more=(SPREAD_GIB + taken - low) * GIB,
    )


@lru_cache(maxsize=4096)
def tightest(
    vendor: str,
    capacity: float,
    engine: str,
    vocab: int,
    sequences: int | None,
    utilisation: float | None,
    *,
    several: bool,
) -> Budget:
    """As :func:`budget_of`, of a GPU of ``capacity`` bytes."""
    name, version = engine_version(engine)
    named = engine_memory(name, version)
    forms = [named] if named else [form for each in engines_on(vendor) if (form := engine_memory(each))]
    total = capacity / GIB
    budgets = [
        _budget(
            form,
            total,
            vocab,
            sequences or most_sequences(form.engine, capacity, vendor),
            utilisation,
            several=several,
            rocm=vendor == "AMD",
            among=named is None,
        )
        for form in forms
    ]
    return min(budgets, key=lambda budget: budget.pool(_HALF * capacity))


def budget_of(
    gpu: GpuSpec,
    engine: str,
    vocab: int,
    *,
    several: bool,
    sequences: int | None = None,
    utilisation: float | None = None,
) -> Budget:
    """Return what ``engine`` (``vllm==0.20``) leaves of a GPU; none named, the tightest of those that run on it.

    Parameters
    ----------
    vocab:
        Logits of each sequence that is sampled.
    several:
        Whether a replica has several GPUs.
    sequences, utilisation:
        The most sequences that an attention group runs at a time, and the part of memory that the engine may use;
        None: the engine's default.

    Raises
    ------
    InputError
        If the version is none.
    """
    return tightest(gpu.vendor, gpu.hbm_bytes, engine, vocab, sequences, utilisation, several=several)


def most_sequences(engine: str, capacity: float, vendor: str) -> int:
    """Return the sequences that an attention group runs at a time on GPUs of ``capacity`` bytes unless told."""
    name = engine_version(engine)[0]
    names = (name,) if name else engines_on(vendor)
    return min(
        usual_sequences(capacity / GIB) if each == "vllm" else scheduler_of(each).sequences for each in names
    )


def engines_on(vendor: str) -> tuple[str, ...]:
    """Return the engines that run on the chips of a vendor; vLLM alone, by its plugins, on those of others."""
    return ON.get(vendor, ("vllm",))


def require_utilisation(part: float | None) -> None:
    """Reject a part of memory that is none.

    Raises
    ------
    InputError
        If it is not above 0 and at most 1.
    """
    if part is not None and not 0 < part <= 1:
        raise InputError(
            "expected a part of the GPU's memory, above 0 and up to 1.", field="mem_util", value=part
        )
