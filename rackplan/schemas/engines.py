"""What commands about engines print."""

from __future__ import annotations

from typing import NotRequired

from typing_extensions import TypedDict


class SplitData(TypedDict):
    """How tokens of an expert are split over its copies.

    Attributes
    ----------
    engine, plan, how:
        Ways of the engine, the way that the plan expects, and the engine's in words.
    """

    engine: list[str]
    plan: str
    how: str


class ExportBalanceData(TypedDict):
    """Balancedness under the plan's loads.

    Attributes
    ----------
    engine, plan:
        As the engine splits tokens, and as the plan expects.
    """

    engine: float
    plan: float


class LaunchData(TypedDict):
    """The file that starts the engine.

    Attributes
    ----------
    kind, file, start:
        What it is for, where it is, and what starts it.
    notes:
        What to do first.
    """

    kind: str
    file: str
    start: str
    notes: list[str]


class GroupData(TypedDict):
    """The hosts of an expert group.

    Attributes
    ----------
    pool, role, replica, stage:
        Which group it is.
    layers, ranks:
        First and last, both included.
    hosts:
        A host list.
    """

    pool: str
    role: str
    replica: int
    stage: int
    layers: list[int]
    ranks: list[int]
    hosts: str


class RankData(TypedDict):
    """The GPU of a rank of the engine.

    Attributes
    ----------
    replica, stage, rank, gpu:
        Which rank, and the id of its GPU.
    """

    replica: int
    stage: int
    rank: int
    gpu: str


class ExportPrinted(TypedDict):
    """What ``rackplan export`` prints: a plan in the form of an engine.

    Attributes
    ----------
    engine, version, released:
        The engine, what the form was checked with, and whether a release loads it.
    file, model:
        What was written, and what the engine loads: a Hugging Face id or a path.
    split, balancedness:
        Of tokens over copies.
    tp, ep:
        Tensor-parallel width of attention, and ranks of an expert group.
    experts, slots, redundant, slots_per_gpu, moe_layers:
        Of each layer: experts, places, copies above one of each, places of a GPU; and layers with experts.
    flags, warnings:
        What the engine is started with, and what to know first.
    launch:
        The file that starts it; null: the flags alone.
    expert_groups, ranks:
        Which hosts and GPUs are which.
    text:
        Without ``-o``: the file.
    """

    engine: str
    file: str
    version: str
    released: bool
    split: SplitData
    tp: int
    model: str
    balancedness: ExportBalanceData
    experts: int
    slots: int
    redundant: int
    slots_per_gpu: int
    moe_layers: int
    ep: int
    flags: list[str]
    warnings: list[str]
    launch: LaunchData | None
    expert_groups: list[GroupData]
    ranks: list[RankData]
    text: NotRequired[str]


class FindingData(TypedDict):
    """Something found in a plan file.

    Attributes
    ----------
    where, what, kind:
        The place, what is so, and whether it is a ``note``, ``wrong`` or ``refused``.
    """

    where: str
    what: str
    kind: str


class CheckPrinted(TypedDict):
    """What ``rackplan check`` prints: whether a plan file would load and be right.

    Attributes
    ----------
    engine, version:
        The engine, and what it was checked with.
    loads, right:
        Whether the engine takes the file, and whether it then does what it says.
    balancedness:
        Under the loads given; null: none were.
    findings:
        In order.
    """

    engine: str
    loads: bool
    right: bool
    version: str
    balancedness: float | None
    findings: list[FindingData]
