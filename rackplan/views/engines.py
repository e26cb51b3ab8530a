"""Views of exported plans with launch commands, and of check results."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from pydantic.dataclasses import dataclass

from placement.engines.manifests.pools import Pool
from placement.engines.manifests.write import Deployed
from placement.engines.mapping import Place
from placement.engines.registry import Checked
from rackplan.views.blocks import Block, Heading, Lines, Text, View, labelled, sections
from rackplan.views.data import LEFT_OUT, Maybe, taken
from topology.base.units import plural

_FINDINGS = {"refused": "NOT LOADED", "wrong": "WRONG", "note": "note"}
MOST_NODES = 8
"""Maximum nodes with listed GPUs; ``--json`` lists all."""


@dataclass(frozen=True, kw_only=True)
class SplitData:
    """How tokens of an expert are split over its copies.

    Attributes
    ----------
    engine, plan, how:
        Ways of the engine, the way that the plan expects, and the engine's in words.
    """

    engine: list[str]
    plan: str
    how: str


@dataclass(frozen=True, kw_only=True)
class ExportBalanceData:
    """Balancedness under the plan's loads.

    Attributes
    ----------
    engine, plan:
        As the engine splits tokens, and as the plan expects.
    """

    engine: float
    plan: float


@dataclass(frozen=True, kw_only=True)
class LaunchData:
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


@dataclass(frozen=True, kw_only=True)
class GroupData:
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


@dataclass(frozen=True, kw_only=True)
class RankData:
    """The GPU of a rank of the engine.

    Attributes
    ----------
    replica, stage, rank, gpu:
        Which rank, and the id of its GPU.
    host, device, nics:
        The host, the number of the GPU on it, and the NICs nearest to it.
    """

    replica: int
    stage: int
    rank: int
    gpu: str
    host: str
    device: int
    nics: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ExportResult:
    """Output of ``rackplan export``: a plan in an engine's format.

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
    text: Maybe[str] = LEFT_OUT


@dataclass(frozen=True, kw_only=True)
class FindingData:
    """Something found in a plan file.

    Attributes
    ----------
    where, what, kind:
        The place, what is so, and whether it is a ``note``, ``wrong`` or ``refused``.
    """

    where: str
    what: str
    kind: str


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """Output of ``rackplan check``: whether an engine would load a placement file correctly.

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


def export_view(deployed: Deployed) -> View:
    """Return the result of ``rackplan export``."""
    exported, manifest = deployed.exported[0], deployed.manifest
    engine, mapping, launch = exported.engine, exported.mapping, exported.launch
    unreleased = " (NOT RELEASED)" * (not engine.released)
    experts = (
        f"{mapping.experts} in {plural(mapping.slots, 'slot')} per layer ({mapping.slots_per_rank} per GPU, "
        f"{mapping.redundant} redundant copies), {plural(len(mapping.layer_ids), 'MoE layer')}, EP {mapping.ranks}"
    )
    balance = (
        f"{exported.balancedness:.4f} under the plan's loads with the engine's split (planned: "
        f"{exported.planned:.4f})"
    )
    split = (
        f"the engine splits an expert's tokens {engine.split_words}",
        f"the plan expects {launch.split}",
        f"assuming attention tensor parallelism {launch.tp}, as set by {exported.tp_source}",
    )
    blocks = sections(
        [
            Heading(f"{exported.model} for {engine.title}{unreleased}"),
            Text(", ".join(map(str, deployed.files)), "Written"),
            Text(experts, "Experts"),
            Text(engine.version, "Checked with"),
            *labelled("Split", *split),
            Text(balance, "Balancedness"),
        ],
        [Lines(["Start with", *(f"  {line}" for line in _start(deployed))])],
        [*(_groups(deployed.pools) or _order(exported.places))],
        [
            *(Text(note, "First") for note in (manifest.notes if manifest else ())),
            *(Text(warning, "Warning") for one in deployed.exported for warning in one.warnings),
        ],
    )
    return View(blocks, _export_result(deployed))


def _start(deployed: Deployed) -> list[str]:
    """Return what is typed to start the engine."""
    if deployed.manifest is None:
        return _shell(deployed.exported[0].flags)
    return [f"{deployed.manifest.start} {list(deployed.files)[-1]}"]


def _groups(pools: Sequence[Pool]) -> list[Block]:
    """Return the hosts of each stage and expert group, a line each."""
    words = [f"{pool.name}, {group.words}" for pool in pools for group in pool.groups]
    more = f"and {len(words) - MOST_NODES} more (--json lists all)" if len(words) > MOST_NODES else ""
    return labelled("Hosts", *words[:MOST_NODES], more)


def check_view(checked: Checked) -> View:
    """Return the result of ``rackplan check``."""
    blocks = sections(
        [
            Heading(f"{checked.file} for {checked.engine.title}"),
            Text(checked.engine.version, "Checked with"),
            Text("yes" if checked.loads else "no", "Loads"),
            Text("yes" if checked.right else "no", "Right"),
        ],
        [Text(f"{finding.where}: {finding.what}", _FINDINGS[finding.kind]) for finding in checked.findings],
    )
    found = taken(
        CheckResult,
        checked,
        engine=checked.engine.name,
        version=checked.engine.version,
        findings=[taken(FindingData, finding) for finding in checked.findings],
    )
    return View(blocks, found)


def _shell(flags: tuple[str, ...]) -> list[str]:
    """Lines as a shell takes them; those of a file as they are."""
    if not any(line.startswith("--") for line in flags):
        return list(flags)
    return [*(line if line.startswith("#") else f"{line} \\" for line in flags[:-1]), flags[-1]]


def _order(places: tuple[Place, ...]) -> list[Block]:
    """Which GPU is which rank, a line a node."""
    lines = ["GPU of each engine rank; slots of a rank are in the order of the file"]
    runs = [list(run) for _, run in groupby(places, key=lambda place: (place.replica, place.node))]
    several = any(place.replica for place in places)
    for run in runs[:MOST_NODES]:
        first, last = run[0], run[-1]
        replica = f"replica {first.replica}, " if several else ""
        ranks = f"ranks {first.rank}-{last.rank}" if last.rank > first.rank else f"rank {first.rank}"
        lines.append(f"{replica}{ranks}: {', '.join(place.gpu for place in run)}")
    if len(runs) > MOST_NODES:
        lines.append(f"and {len(runs) - MOST_NODES} more nodes in the same order (--json lists all)")
    return labelled("GPU order", *lines)


def _export_result(deployed: Deployed) -> ExportResult:
    exported, manifest = deployed.exported[0], deployed.manifest
    engine, mapping, launch = exported.engine, exported.mapping, exported.launch
    return ExportResult(
        engine=engine.name,
        file=launch.file,
        version=engine.version,
        released=engine.released,
        split=SplitData(engine=list(engine.splits), plan=launch.split, how=engine.split_words),
        tp=launch.tp,
        model=launch.model,
        balancedness=ExportBalanceData(engine=exported.balancedness, plan=exported.planned),
        experts=mapping.experts,
        slots=mapping.slots,
        redundant=mapping.redundant,
        slots_per_gpu=mapping.slots_per_rank,
        moe_layers=len(mapping.layer_ids),
        ep=mapping.ranks,
        flags=list(exported.flags),
        warnings=[warning for one in deployed.exported for warning in one.warnings],
        launch=None if manifest is None else taken(LaunchData, manifest, file=str(list(deployed.files)[-1])),
        expert_groups=[
            taken(
                GroupData,
                group,
                pool=pool.name,
                role=pool.role,
                layers=[group.layers.start, group.layers.stop - 1],
                ranks=[group.ranks.start, group.ranks.stop - 1],
                hosts=group.hostlist,
            )
            for pool in deployed.pools
            for group in pool.groups
        ],
        ranks=[taken(RankData, place, host=deployed.names[0][place.node]) for place in exported.places],
    )
