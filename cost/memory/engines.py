"""The room for the cache of one GPU by the formula of each engine, with the interval that start logs support."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from packaging.version import InvalidVersion, Version
from pydantic import AfterValidator, Field
from pydantic.dataclasses import dataclass

from cost.calibration.tables import CHECKED, Number, Text, load_table
from topology.base.schema import problem

PATH = Path(__file__).with_name("engines.yaml")
GIB = 2.0**30
SPREAD_GIB = 1.5
"""Either way around a room: what start logs of one configuration differ by."""
LEAST_GIB = 3.0
"""An engine with less room may not start."""
LOGIT_BYTES = 4.0
_LARGE_GIB, _MANY, _FEW = 70.0, 1024, 256


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


NONE = Coefficient(0.0, 0.0, 0.0, "no such part", 0)


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
        GiB in any case, with several GPUs a replica (NCCL), and on AMD.
    graphs:
        GiB that it keeps free for CUDA graphs with several GPUs; they differ most by model and version.
    per_logits:
        Times the FP32 logits of the largest number of sequences.
    share_of_total:
        Part of the total that is never touched.
    """

    engine: Text
    base: Literal["total", "before loading", "after loading"]
    utilisation: Coefficient
    version: Annotated[str, AfterValidator(_version)] = "0"
    month: str = ""
    outside: Coefficient = NONE
    always: Coefficient = NONE
    tensor_parallel: Coefficient = NONE
    rocm: Coefficient = NONE
    graphs: Coefficient = NONE
    per_logits: Coefficient = NONE
    share_of_total: Coefficient = NONE

    def taken_gib(
        self, *, vocab: int, sequences: int, several: bool, rocm: bool
    ) -> tuple[float, float, float]:
        """Return GiB beside weights and cache (activations, graphs, libraries, buffers), and the least and most.

        ``vocab``: logits of each of ``sequences``; ``several``: of several GPUs a replica.
        """
        logits = sequences * vocab * LOGIT_BYTES / GIB
        fixed = self.always.value + self.tensor_parallel.value * several + self.rocm.value * rocm
        taken = fixed + self.per_logits.value * logits
        value, low, high = (
            taken + gib * several for gib in (self.graphs.value, self.graphs.low, self.graphs.high)
        )
        return value, low, high

    def part(self, utilisation: float | None = None) -> float:
        """Return the part of what is left beside weights that the engine gives to the cache."""
        given = self.utilisation.value if utilisation is None else utilisation
        return given if self.base == "after loading" else 1.0

    def room_gib(self, total: float, weights: float, taken: float, utilisation: float | None = None) -> float:
        """GiB that the engine allocates for the cache; below 0 it does not start.

        Parameters
        ----------
        total, weights, taken:
            GiB: what the driver reports, weights (of drafts too), and :meth:`taken_gib`.
        utilisation:
            The engine's default if None.
        """
        part = self.utilisation.value if utilisation is None else utilisation
        total -= self.outside.value
        if self.base == "after loading":
            return part * (total - weights - taken)
        return (part - self.share_of_total.value) * total - weights - taken


@dataclass(frozen=True, config=CHECKED)
class EngineTable:
    """The file: forms of engines, oldest first, and their sources in words."""

    sources: Mapping[str, Text]
    engines: tuple[EngineMemory, ...]

    def __post_init__(self) -> None:
        for form in self.engines:
            for name, figure in vars(form).items():
                if (
                    isinstance(figure, Coefficient)
                    and figure is not NONE
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

    None for an engine that has no form.
    """
    forms = [form for form in _table().engines if form.engine == engine]
    if version:
        try:
            known = Version(version)
        except InvalidVersion:
            return None
        forms = [form for form in forms if known >= Version(form.version)]
    elif month:
        forms = [form for form in forms if form.month <= month]
    return forms[-1] if forms else None


def usual_sequences(total_gib: float) -> int:
    """Return the largest number of sequences that vLLM serves at a time unless told."""
    return _MANY if total_gib >= _LARGE_GIB else _FEW
