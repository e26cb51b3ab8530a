"""How a model is spread over GPUs: replicas, pipeline stages, expert and tensor parallelism."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NamedTuple, Required, TypedDict, overload

from topology.base.units import plural


@dataclass(frozen=True)
class StageSpec:
    """One pipeline stage of one replica: a run of layers and the GPUs that share them.

    ``gpus`` are indices into ``Cluster.gpus``; ``layers`` is a range of absolute layer ids.
    """

    gpus: tuple[int, ...]
    layers: range


class Place(NamedTuple):
    """Scale-up domain, leaf and pod of the scale-out fabric that GPUs lie in; None where they lie in several."""

    domain: int | None
    leaf: int | None
    pod: int | None


class Joint(IntEnum):
    """What two groups of GPUs have in common, from near to far: one domain, switches of one leaf, of one pod."""

    DOMAIN = 0
    LEAF = 1
    POD = 2
    FAR = 3


def joint(left: Place, right: Place) -> Joint:
    """Return the nearest that two groups have in common."""
    for level, a, b in zip(Joint, left, right, strict=False):
        if a is not None and a == b:
            return level
    return Joint.FAR


def joints(places: Sequence[Place]) -> tuple[Joint, ...]:
    """What each stage of a replica has in common with the next, the last with the first."""
    return tuple(joint(a, b) for a, b in zip(places, [*places[1:], places[0]], strict=True))


Replica = tuple[StageSpec, ...]
"""The stages of one copy of the model, in order of layers."""


class CutReplicas(Sequence[Replica]):
    """Replicas whose layers are cut alike, each made when it is asked for: thousands of them cost no more than one.

    Parameters
    ----------
    groups:
        For each replica the GPUs of each of its stages.
    ranges:
        The layers of each stage.
    alike:
        First of each set of replicas that cost the same if their experts are loaded alike, and how many they are.
    """

    def __init__(
        self,
        groups: Sequence[Sequence[tuple[int, ...]]],
        ranges: Sequence[range],
        alike: tuple[tuple[int, int], ...],
    ) -> None:
        self._groups, self._ranges, self.alike = groups, tuple(ranges), alike

    def __len__(self) -> int:
        return len(self._groups)

    @overload
    def __getitem__(self, index: int) -> Replica: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Replica, ...]: ...

    def __getitem__(self, index: int | slice) -> Replica | tuple[Replica, ...]:
        if isinstance(index, slice):
            return tuple(self[i] for i in range(*index.indices(len(self))))
        groups = zip(self._groups[index], self._ranges, strict=True)
        return tuple(StageSpec(gpus, layers) for gpus, layers in groups)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (CutReplicas, tuple)):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    def __hash__(self) -> int:
        return hash(tuple(self))


def widths_label(ep: int | None, moe_tp: int, tp: int, stages: int, dcp: int = 1, pcp: int = 1) -> str:
    """Widths of a replica in a few letters: ``EP8 ETP2 TP4 DCP2 PP1``; ``ep`` is None of a model without experts."""
    parts = [] if ep is None else [f"EP{ep}"]
    parts += [f"ETP{moe_tp}"] if moe_tp > 1 else []
    contexts = [f"{name}{width}" for name, width in (("DCP", dcp), ("PCP", pcp)) if width > 1]
    return " ".join([*parts, f"TP{tp}", *contexts, f"PP{stages}"])


class StageWidths(TypedDict, total=False):
    """Widths of parallelism inside a stage, as of :class:`Layout`; 1 what is absent."""

    tp: Required[int]
    moe_tp: int
    dcp: int
    pcp: int


POOLS_APART = ("attention", "experts")
"""Names of the two pools of a layout whose attention runs apart from its experts."""


@dataclass(frozen=True)
class Apart:
    """Attention on GPUs of its own (attention-FFN disaggregation, AFD); the stages hold the routed experts alone.

    Attributes
    ----------
    gpus:
        For each replica the GPUs with attention, dense and shared parts, the cache and the sequences.
    micro_batches:
        Parts of the batch that take turns on these and on the experts.
    """

    gpus: tuple[tuple[int, ...], ...]
    micro_batches: int


@dataclass(frozen=True)
class Layout:
    """A parallel layout over the whole cluster.

    Attributes
    ----------
    replicas:
        For each independent copy of the model, its stages in order of layers.
    tp:
        Tensor-parallel width of attention, dense and shared parts: GPUs of a stage in groups of ``tp``.
    moe_tp:
        Parts that tensor parallelism cuts each routed expert into, one on each GPU of a stage: none is placed. 1:
        GPUs hold whole experts.
    dcp:
        GPUs of such a group that the cache of each decoding sequence is split over by token, instead of copies of its
        key-value heads or latents; queries are gathered and partial results merged (:mod:`cost.terms.context`).
    pcp:
        GPUs of such a group, of a pool that only prefills, that the tokens of each prompt are split over; each has
        the weights of ``tp / pcp`` parts and, in the end, all keys and values.
    apart:
        GPUs of attention beside those of the experts; None: the same GPUs have both.
    """

    replicas: Sequence[Replica]
    tp: int
    moe_tp: int = 1
    dcp: int = 1
    pcp: int = 1
    apart: Apart | None = None

    @property
    def widths(self) -> StageWidths:
        """Widths of parallelism inside a stage, as what prices and fits layouts takes them."""
        return {"tp": self.tp, "moe_tp": self.moe_tp, "dcp": self.dcp, "pcp": self.pcp}

    @property
    def stages(self) -> int:
        """Pipeline stages of a replica."""
        return len(self.replicas[0])

    @property
    def stage_gpus(self) -> int:
        """GPUs of the largest stage."""
        return max(len(stage.gpus) for stage in self.replicas[0])

    @property
    def ep(self) -> int:
        """Places over which one layer's experts are spread: GPUs of the largest stage, 1 where experts are cut."""
        return self.stage_gpus // self.moe_tp

    @property
    def attention_dp(self) -> int:
        """Groups of a stage that run attention on their own sequences."""
        return (self.stage_gpus if self.apart is None else len(self.apart.gpus[0])) // self.tp

    @property
    def group_gpus(self) -> float:
        """GPUs in use for each such group: with attention apart those of its experts too."""
        if self.apart is None:
            return self.tp
        return self.tp * len(self.gpus_of(0)) / len(self.apart.gpus[0])

    def gpus_of(self, replica: int) -> tuple[int, ...]:
        """Return the GPUs of a replica: those of attention apart, then its stages'."""
        attention = () if self.apart is None else self.apart.gpus[replica]
        return (*attention, *(gpu for stage in self.replicas[replica] for gpu in stage.gpus))

    def of_replicas(self, which: Sequence[int]) -> Layout:
        """Return the layout of some replicas alone."""
        apart = self.apart and replace(self.apart, gpus=tuple(self.apart.gpus[i] for i in which))
        return replace(self, replicas=tuple(self.replicas[i] for i in which), apart=apart)

    @property
    def gpus_in_use(self) -> list[int]:
        """GPUs of all replicas, in order of their stages."""
        return [gpu for replica in range(len(self.replicas)) for gpu in self.gpus_of(replica)]

    @property
    def gpus_used(self) -> int:
        """GPUs that hold a part of some replica."""
        if isinstance(self.replicas, CutReplicas):
            return sum(
                count * sum(len(stage.gpus) for stage in self.replicas[replica_number])
                for replica_number, count in self.replicas.alike
            )
        return sum(len(self.gpus_of(replica)) for replica in range(len(self.replicas)))

    def pools_of(self, replica: int) -> tuple[tuple[str, StageSpec], ...]:
        """Return both pools of a replica by name, where its attention runs apart from its experts; else none."""
        if self.apart is None:
            return ()
        (experts,) = self.replicas[replica]
        attention = StageSpec(self.apart.gpus[replica], experts.layers)
        return tuple(zip(POOLS_APART, (attention, experts), strict=True))

    @property
    def simplicity(self) -> tuple[int, int, int, int]:
        """Smaller is simpler: narrow tensor and context parallelism, experts over many GPUs, few stages."""
        return self.tp, self.dcp * self.pcp, self.stages * len(self.replicas), self.stages

    def short(self, *, moe: bool) -> str:
        """The layout in a few letters, as tables print it: ``EP72 TP1 PP4 x2``."""
        ep = self.ep if moe else None
        attention = "" if self.apart is None else f"A{len(self.apart.gpus[0])} "
        widths = widths_label(ep, self.moe_tp, self.tp, self.stages, self.dcp, self.pcp)
        return f"{attention}{widths} x{len(self.replicas)}"

    def describe(self, *, moe: bool) -> str:
        """The layout in one line, as summaries print it; ``moe``: whether the model has routed experts."""
        parts = [f"EP {self.ep}"] if moe else []
        parts += [f"each expert cut into {self.moe_tp} parts"] if self.moe_tp > 1 else []
        parts += [f"attention DP {self.attention_dp}", f"TP {self.tp}"]
        parts += [f"{name} {width}" for name, width in (("DCP", self.dcp), ("PCP", self.pcp)) if width > 1]
        parts.append(f"{self.stages} stage{'s' if self.stages > 1 else ''}")
        if self.apart is not None:
            turns = plural(self.apart.micro_batches, "micro-batch")
            parts.append(f"attention apart on {len(self.apart.gpus[0])} GPUs, {turns}")
        sizes = Counter(len(self.gpus_of(replica)) for replica in range(len(self.replicas)))
        unlike = (
            ", ".join(f"{count} of {gpus} GPUs" for gpus, count in sizes.items()) if len(sizes) > 1 else ""
        )
        parts.append(f"{plural(len(self.replicas), 'replica')}{f' ({unlike})' if unlike else ''}")
        return ", ".join(parts)
