"""How a model is spread over GPUs: replicas, pipeline stages, expert and tensor parallelism."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class StageSpec:
    """One pipeline stage of one replica: a run of layers and the GPUs that share them.

    ``gpus`` are indices into ``Cluster.gpus``; ``layers`` is a range of absolute layer ids.
    """

    gpus: tuple[int, ...]
    layers: range


def joints(domains: Sequence[frozenset[int]]) -> tuple[bool, ...]:
    """Whether each stage of a replica lies in one scale-up domain with the next, the last with the first."""
    return tuple(len(a | b) == 1 for a, b in zip(domains, [*domains[1:], domains[0]], strict=True))


@dataclass(frozen=True)
class Layout:
    """A parallel layout over the whole cluster.

    Attributes
    ----------
    replicas:
        For each independent copy of the model, its stages in order of layers.
    tp:
        Tensor-parallel width of attention, dense and shared parts: GPUs of a stage in groups of ``tp``.
    """

    replicas: tuple[tuple[StageSpec, ...], ...]
    tp: int

    @property
    def stages(self) -> int:
        """Pipeline stages of a replica."""
        return len(self.replicas[0])

    @property
    def ep(self) -> int:
        """GPUs over which one layer's experts are spread (those of the largest stage)."""
        return max(len(stage.gpus) for stage in self.replicas[0])

    @property
    def attention_dp(self) -> int:
        """Groups of a stage that run attention on their own sequences."""
        return self.ep // self.tp

    @property
    def gpus_used(self) -> int:
        """GPUs that hold a part of some replica."""
        return sum(len(stage.gpus) for replica in self.replicas for stage in replica)

    @property
    def simplicity(self) -> tuple[int, int, int]:
        """Smaller is simpler: narrow tensor parallelism, experts over many GPUs, few stages."""
        return self.tp, self.stages * len(self.replicas), self.stages

    def short(self, *, moe: bool) -> str:
        """The layout in a few letters, as tables print it: ``EP72 TP1 PP4 x2``."""
        return f"EP{self.ep} " * moe + f"TP{self.tp} PP{self.stages} x{len(self.replicas)}"

    def describe(self, *, moe: bool) -> str:
        """The layout in one line, as summaries print it; ``moe``: whether the model has routed experts."""
        parts = [f"EP {self.ep}"] if moe else []
        parts += [f"attention DP {self.attention_dp}", f"TP {self.tp}"]
        parts.append(f"{self.stages} stage{'s' if self.stages > 1 else ''}")
        parts.append(f"{len(self.replicas)} replica{'s' if len(self.replicas) > 1 else ''}")
        return ", ".join(parts)
