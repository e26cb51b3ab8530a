"""What is left of a plan when GPUs are lost: its cluster, layout, slots, and what they still hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from cost.assignment import Assignment
from cost.deployment import Deployment
from cost.layout import Layout, StageSpec
from cost.memory import replica_memory
from placement.arrays import Experts, Ints
from placement.pack import EMPTY
from placement.plan import Plan
from topology import build_cluster
from topology.errors import InfeasibleError, InputError
from topology.spec import Fault


@dataclass(frozen=True, eq=False)
class Degraded:
    """What a plan still has.

    Attributes
    ----------
    deployment, layout:
        The cluster without the lost GPUs, and the stages on what is left of theirs.
    slots:
        Slots of each GPU of each stage, int64 ``[gpus]``; None where a stage has no experts.
    held:
        What these slots hold, int32 ``[layers, slots]``, :data:`placement.pack.EMPTY` where nothing.
    lost_copies:
        Copies that lay on lost GPUs, over all layers and replicas.
    notes:
        What a summary repeats.
    """

    deployment: Deployment
    layout: Layout
    slots: tuple[Ints | None, ...]
    held: tuple[Experts | None, ...]
    lost_copies: int
    notes: tuple[str, ...]


def lost_gpus(plan: Plan, ids: Sequence[str]) -> tuple[int, ...]:
    """Return the GPUs that ids of GPUs, nodes, racks or domains name, as indices into ``Cluster.gpus``.

    Raises
    ------
    InputError
        If the cluster has nothing of that id.
    """
    members: dict[str, set[int]] = {}
    for index, gpu in enumerate(plan.deployment.cluster.gpus):
        for name in (gpu.id, gpu.node, gpu.rack, f"d{gpu.domain}"):
            members.setdefault(name, set()).add(index)
    lost: set[int] = set()
    for name in ids:
        if name not in members:
            raise InputError(
                f"`lost` {name}: no GPU, node, rack or domain of {plan.deployment.cluster.name} has "
                f"that id; ids look "
                f"like {', '.join(list(members)[:4])}."
            )
        lost |= members[name]
    return tuple(sorted(lost))


def degraded(plan: Plan, lost: Sequence[int]) -> Degraded:
    """Return what is left of ``plan`` without the GPUs ``lost`` (indices into ``Cluster.gpus``).

    The rest of a tensor-parallel group that lost a GPU leaves its stage. The plan file keeps replicas alike, so
    that replicas which lost GPUs are left idle as long as one is whole; where none is, the one that lost fewest is
    restored. A stage gets more slots only if it has fewer than experts.

    Raises
    ------
    InfeasibleError
        If no GPU, or a stage without GPUs, is left, or the experts do not fit in HBM at the plan's batch.
    """
    cluster, tp, gone = plan.deployment.cluster, plan.layout.tp, set(lost)
    if len(gone) == len(cluster.gpus):
        raise InfeasibleError(
            f"all {len(gone)} GPUs of {cluster.name} are lost: nothing is left to plan for."
        )
    replicas, notes = _replicas(plan, gone)
    kept = [_members(stage, tp, gone) for stage in replicas[0]]
    for stage, members in zip(replicas[0], kept, strict=True):
        if not members:
            raise InfeasibleError(
                f"no GPU is left of the {len(stage.gpus)} that hold layers {stage.layers.start} to "
                f"{stage.layers.stop - 1}: make a new plan for the rest with rackplan plan."
            )
    dropped = sum(len(s.gpus) - len(m) for s, m in zip(replicas[0], kept, strict=True))
    idle = dropped - sum(gpu in gone for stage in replicas[0] for gpu in stage.gpus)
    if idle:
        notes.append(f"idle: {idle} GPU{'s' * (idle > 1)} that shared attention (TP {tp}) with a lost one")
    deployment, number = _without(plan, gone)
    rest = [
        tuple(
            StageSpec(tuple(number[stage.gpus[local]] for local in members), stage.layers)
            for stage, members in zip(stages, kept, strict=True)
        )
        for stages in replicas
    ]
    layout = Layout(tuple(rest), tp)
    parts = [_held(part, members) for part, members in zip(plan.experts, kept, strict=True)]
    slots, held = tuple(part[0] for part in parts), tuple(part[1] for part in parts)
    if gone:
        short = [
            0 if part is None else max(0, part.experts - int(part.slots_per_gpu[members].sum()))
            for part, members in zip(plan.experts, kept, strict=True)
        ]
        _check_memory(deployment, layout, slots, short)
    copies = sum(
        int(part.slots_per_gpu[local]) * part.layers
        for stages in plan.layout.replicas
        for stage, part in zip(stages, plan.experts, strict=True)
        if part is not None
        for local, gpu in enumerate(stage.gpus)
        if gpu in gone
    )
    return Degraded(deployment, layout, slots, held, copies, tuple(notes))


def _replicas(plan: Plan, gone: set[int]) -> tuple[list[tuple[StageSpec, ...]], list[str]]:
    """The replicas that stay in use, and what to say of the others."""
    replicas = plan.layout.replicas
    hurt = [sum(gpu in gone for stage in stages for gpu in stage.gpus) for stages in replicas]
    whole = [stages for stages, count in zip(replicas, hurt, strict=True) if count == 0]
    if len(whole) == len(replicas) or len(replicas) == 1:
        return list(replicas), []
    stay = whole or [replicas[hurt.index(min(hurt))]]
    idle = len(replicas) - len(stay)
    note = (
        f"{idle} of {len(replicas)} replicas lost GPUs and are idle, since replicas are alike: a new plan "
        "(rackplan plan) can use what is left of them"
    )
    return stay, [note]


def _members(stage: StageSpec, tp: int, gone: set[int]) -> list[int]:
    """Positions in a stage that stay: tensor-parallel groups without a lost GPU."""
    groups = [range(first, first + tp) for first in range(0, len(stage.gpus), tp)]
    return [local for group in groups if not any(stage.gpus[i] in gone for i in group) for local in group]


def _without(plan: Plan, gone: set[int]) -> tuple[Deployment, dict[int, int]]:
    """The deployment without the lost GPUs, and the new number of each GPU that stays."""
    old = plan.deployment
    if not gone:
        return old, {gpu: gpu for gpu in range(len(old.cluster.gpus))}
    ids = {old.cluster.gpus[gpu].id for gpu in gone}
    faults = tuple(fault for fault in old.cluster.spec.faults if fault.gpu not in ids)
    spec = replace(old.cluster.spec, faults=(*faults, *(Fault(gpu=name) for name in sorted(ids))))
    cluster = build_cluster(spec)
    index = {gpu.id: new for new, gpu in enumerate(cluster.gpus)}
    number = {old_n: index[gpu.id] for old_n, gpu in enumerate(old.cluster.gpus) if gpu.id in index}
    return replace(old, cluster=cluster), number


def _held(part: Assignment | None, members: Sequence[int]) -> tuple[Ints | None, Experts | None]:
    """Slots of the GPUs that stay, and what they hold; with more slots where experts would not fit."""
    if part is None:
        return None, None
    first = np.searchsorted(part.slot_gpu, np.arange(part.gpus + 1))
    slots = part.slots_per_gpu[list(members)]
    grown = slots.copy()
    for _ in range(part.experts - int(slots.sum())):
        grown[np.argmin(grown)] += 1
    columns = []
    for local, before, after in zip(members, slots.tolist(), grown.tolist(), strict=True):
        mine = part.slot_expert[:, first[local] : first[local] + before]
        columns.append(np.pad(mine, ((0, 0), (0, after - before)), constant_values=EMPTY))
    return grown, np.concatenate(columns, axis=1).astype(np.int32)


def _check_memory(
    deployment: Deployment, layout: Layout, slots: Sequence[Ints | None], short: Sequence[int]
) -> None:
    """Raise InfeasibleError where what is left does not fit: by how much, and the batch that would.

    ``short`` are the experts of each stage for which the slots that are left do not suffice.
    """
    stages, batch = layout.replicas[0], deployment.workload.batch
    each = [
        np.zeros(len(stage.gpus), dtype=np.int64) if count is None else count
        for stage, count in zip(stages, slots, strict=True)
    ]
    memories = replica_memory(deployment, stages, tp=layout.tp, slots=each)
    fits = min(memory.max_batch() for memory in memories)
    for stage, memory, lacking in zip(stages, memories, short, strict=True):
        if memory.used(batch) <= memory.usable:
            continue
        layers = f"layers {stage.layers.start} to {stage.layers.stop - 1}"
        what = f"{lacking} experts lack a slot in each of {layers}; with slots for all, " if lacking else ""
        remedy = (
            f"batch {fits} would fit: serve at most that, and plan with `batch` {fits}"
            if fits
            else "no batch fits: plan again with more GPUs"
        )
        raise InfeasibleError(
            f"HBM capacity binds on the {len(stage.gpus)} GPUs left of {layers}: {what}batch {batch} needs "
            f"{memory.used(batch) / 1e9:.1f} GB per GPU and {memory.usable / 1e9:.1f} GB are usable; {remedy}."
        )
