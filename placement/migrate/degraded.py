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
from topology.broken import lost_faults, with_faults
from topology.cluster import Cluster
from topology.errors import InfeasibleError, InputError

_MOST_NAMED = 3


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
    lost_gpus, lost_copies:
        GPUs that are gone, and the copies that lay on them, over all layers and replicas.
    notes:
        What a summary repeats.
    """

    deployment: Deployment
    layout: Layout
    slots: tuple[Ints | None, ...]
    held: tuple[Experts | None, ...]
    lost_gpus: int
    lost_copies: int
    notes: tuple[str, ...]


def cluster_without(cluster: Cluster, names: Sequence[str]) -> Cluster:
    """Return ``cluster`` without the GPUs, nodes, racks, domains, NICs, switches, planes and links of some names.

    Raises
    ------
    InputError
        If the cluster has nothing of that name.
    InfeasibleError
        If no GPU is left, or some are cut off from the others.
    """
    if not names:
        return cluster
    lost = [fault for name in names for fault in lost_faults(cluster, name)]
    faults = with_faults(cluster.spec.faults, lost)
    if len({fault.gpu for fault in lost if fault.gpu is not None}) == len(cluster.gpus):
        raise InfeasibleError(
            f"all {len(cluster.gpus)} GPUs of {cluster.name} are lost: nothing is left to plan for."
        )
    return build_cluster(replace(cluster.spec, faults=faults))


def described_anew(old: Cluster, new: Cluster) -> Cluster:
    """Return the cluster of a plan, ``old``, as a new description of it has it: other faults, the same GPUs.

    A graph that is written out may lack GPUs, which are lost then; elsewhere ids are places, and all must be there.

    Raises
    ------
    InputError
        If its GPUs are not those of ``old``: other ids, types, nodes or domains.
    """
    before, after = (
        {gpu.id: gpu for gpu in build_cluster(replace(one.spec, faults=(), part=())).gpus}
        for one in (old, new)
    )
    strange = [name for name in after if name not in before]
    missing = [name for name in before if name not in after]
    where = f"`cluster` {new.name}"
    if strange or (missing and new.spec.raw is None):
        what = "it has" if strange else "it lacks"
        some = (strange or missing)[:_MOST_NAMED]
        raise InputError(
            f"{where}: its GPUs are not those of the plan, which is for {old.name}: {what} "
            f"{', '.join(some)}{', ...' * (len(strange or missing) > len(some))}, and the plan's are "
            f"{next(iter(before))} to {list(before)[-1]}. Describe the same cluster, with other faults."
        )
    domains: dict[int, int] = {}
    for name, gpu in after.items():
        known = before[name]
        kinds = old.spec.domains[known.domain].gpu.name, new.spec.domains[gpu.domain].gpu.name
        differs: dict[str, tuple[object, object]] = {"type": kinds, "node": (known.node, gpu.node)}
        differs["domain"] = (domains.setdefault(gpu.domain, known.domain), known.domain)
        for key, (one, other) in differs.items():
            if one != other:
                raise InputError(
                    f"{where}: GPU {name} is of another {key} than in the plan ({one}, not {other}); describe the "
                    "same cluster, with other faults."
                )
    if len(set(domains.values())) < len(domains):
        raise InputError(f"{where}: domains of the plan's cluster {old.name} are in several parts there.")
    return build_cluster(replace(new.spec, part=old.spec.part)) if old.spec.part else new


def degraded(plan: Plan, cluster: Cluster) -> Degraded:
    """Return what is left of ``plan`` on ``cluster``: its own with other faults, GPUs the same where their ids are.

    The rest of a tensor-parallel group that lost a GPU leaves its stage. The plan file keeps replicas alike, so
    that replicas which lost GPUs are left idle as long as one is whole; where none is, the one that lost fewest is
    restored. A stage gets more slots only if it has fewer than experts.

    Raises
    ------
    InfeasibleError
        If no GPU, or a stage without GPUs, is left, or the experts do not fit in HBM at the plan's batch.
    """
    before, tp = plan.deployment.cluster.gpus, plan.layout.tp
    index = {gpu.id: new for new, gpu in enumerate(cluster.gpus)}
    number = {old: index[gpu.id] for old, gpu in enumerate(before) if gpu.id in index}
    gone = set(range(len(before))) - set(number)
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
    if more := len(cluster.gpus) - len(number):
        notes.append(f"idle: {more} GPU{'s' * (more > 1)} that the plan did not have")
    deployment = plan.deployment
    if cluster is not deployment.cluster:
        deployment = replace(deployment, cluster=cluster)
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
    return Degraded(deployment, layout, slots, held, len(gone), copies, tuple(notes))


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
