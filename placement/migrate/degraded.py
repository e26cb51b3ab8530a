"""The rest of a plan after GPU failures: cluster, layout, slots and remaining experts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cost.experts.assignment import Assignment
from cost.inputs.deployment import Deployment
from cost.inputs.layout import Layout, StageSpec, StageWidths
from cost.memory.stages import replica_max_batch, replica_memory
from placement.arrays import Experts, Ints
from placement.engines.mapping import require_equal_ranks
from placement.experts.pack import EMPTY
from placement.plan import Plan
from topology.base.errors import InfeasibleError, InputError, input_name
from topology.build import build_cluster, rebuilt
from topology.changes.broken import lost_faults, with_faults
from topology.cluster import Cluster, ClusterView

_MOST_NAMED = 3


@dataclass(frozen=True, eq=False)
class Rest:
    """The rest of equal replicas.

    Attributes
    ----------
    stages:
        Stages of the first of them on what is left of its GPUs.
    slots:
        Slots of each GPU of each stage, int64 ``[gpus]``; None where a stage has no experts.
    held:
        What these slots hold, int32 ``[layers, slots]``, :data:`placement.experts.pack.EMPTY` where nothing.
    idle:
        GPUs of one of them that are not lost and cannot go on.
    replicas:
        Their numbers in :attr:`Degraded.layout`.
    """

    stages: tuple[StageSpec, ...]
    slots: tuple[Ints | None, ...]
    held: tuple[Experts | None, ...]
    idle: int
    replicas: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class Degraded:
    """The rest of a plan.

    Attributes
    ----------
    deployment, layout:
        The cluster without the lost GPUs, and the stages on what is left of theirs; replicas that lost nothing first.
    rests:
        What the replicas hold, a row for those that hold the same.
    lost_gpus, lost_copies:
        GPUs that are gone, and the copies that lay on them, over all layers and replicas.
    notes:
        What a summary repeats.
    """

    deployment: Deployment
    layout: Layout
    rests: tuple[Rest, ...]
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
            f"all {len(cluster.gpus)} GPUs of {cluster.name} are lost, so none remain to plan for."
        )
    return rebuilt(cluster, replace(cluster.spec, faults=faults))


def described_anew(old: Cluster, new: Cluster) -> Cluster:
    """Return the cluster of a plan, ``old``, as a new description of it has it: other faults, the same GPUs.

    A graph that is written out may lack GPUs, which are lost then; elsewhere ids are places, and all must be there.

    Raises
    ------
    InputError
        If its GPUs are not those of ``old``: other ids, types, nodes or domains.
    """
    before, after = (
        {gpu.id: gpu for gpu in build_cluster(replace(cluster.spec, faults=())).gpus}
        for cluster in (old, new)
    )
    strange = [name for name in after if name not in before]
    missing = [name for name in before if name not in after]
    where = f"{input_name('cluster')} {new.name}"
    if strange or (missing and new.spec.raw is None):
        what = "it has" if strange else "it lacks"
        some = (strange or missing)[:_MOST_NAMED]
        raise InputError(
            f"{where}: its GPUs are not those of the plan, which is for {old.name}: {what} "
            f"{', '.join(some)}{', ...' * (len(strange or missing) > len(some))}, and the plan's are "
            f"{next(iter(before))} to {list(before)[-1]}. Describe the same cluster with other faults."
        )
    domains: dict[int, int] = {}
    for name, gpu in after.items():
        known = before[name]
        kinds = old.spec.domains[known.domain].gpu.name, new.spec.domains[gpu.domain].gpu.name
        differs: dict[str, tuple[object, object]] = {"type": kinds, "node": (known.node, gpu.node)}
        differs["domain"] = (domains.setdefault(gpu.domain, known.domain), known.domain)
        for key, (is_now, was) in differs.items():
            if is_now != was:
                raise InputError(
                    f"{where}: GPU {name} is of another {key} than in the plan ({is_now}, not {was}); describe the "
                    "same cluster, with other faults."
                )
    if len(set(domains.values())) < len(domains):
        raise InputError(f"{where}: domains of the plan's cluster {old.name} are in several parts there.")
    if not isinstance(old, ClusterView):
        return new
    return ClusterView(new, [name for name in old.ids if name in after], new.name)


def degraded(plan: Plan, cluster: Cluster) -> Degraded:
    """Return what is left of ``plan`` on ``cluster``: its own with other faults, GPUs the same where their ids are.

    Each replica goes on with what is left of it; the rest of a tensor-parallel group that lost a GPU leaves its
    stage. A stage gets more slots only if it has fewer than experts. A replica of several is left idle where that
    cannot be: a stage without GPUs, experts that do not fit in HBM at the plan's batch, or GPUs of unequal slots with
    an engine named (:func:`placement.engines.mapping.require_equal_ranks`).

    Raises
    ------
    InfeasibleError
        If no replica can go on.
    """
    before = plan.deployment.cluster.gpus
    index = {gpu.id: new for new, gpu in enumerate(cluster.gpus)}
    number = {old: index[gpu.id] for old, gpu in enumerate(before) if gpu.id in index}
    gone = set(range(len(before))) - set(number)
    if gone and plan.layout.apart is not None:
        raise InputError(
            f"a plan with attention apart is not re-planned without GPUs; plan what is left with {input_name('afd')}."
        )
    deployment = plan.deployment
    if cluster is not deployment.cluster:
        deployment = replace(deployment, cluster=cluster)
    lost = [sum(gpu in gone for stage in stages for gpu in stage.gpus) for stages in plan.layout.replicas]
    rows: dict[tuple[bool, int], list[int]] = {}
    rests: list[Rest] = []
    replicas: list[tuple[StageSpec, ...]] = []
    notes: list[str] = []
    refused: list[InfeasibleError] = []
    for old in sorted(range(len(lost)), key=lambda replica: lost[replica]):
        hurt = lost[old] > 0
        key = hurt, old if hurt else plan.first_like(old)
        if key not in rows:
            try:
                rests.append(_kept(plan, old, gone, number, deployment))
            except InfeasibleError as error:
                refused.append(error)
                notes.append(f"{_of(plan, old)} is idle: {str(error).rstrip('.')}")
                continue
        rows.setdefault(key, []).append(len(replicas))
        stages = plan.layout.replicas[old]
        replicas.append(
            rests[-1].stages
            if hurt
            else tuple(StageSpec(tuple(number[gpu] for gpu in stage.gpus), stage.layers) for stage in stages)
        )
        if hurt and len(lost) > 1:
            used = sum(len(stage.gpus) for stage in stages)
            left = sum(len(stage.gpus) for stage in rests[-1].stages)
            notes.append(f"{_of(plan, old)} continues with {left} of its {used} GPUs")
    if not rests:
        raise refused[0]
    if idle := sum(rest.idle for rest in rests):
        tp = plan.layout.tp
        notes.append(f"idle: {idle} GPU{'s' * (idle > 1)} that shared attention (TP {tp}) with a lost one")
    if more := len(cluster.gpus) - len(number):
        notes.append(f"idle: {more} GPU{'s' * (more > 1)} that the plan did not use")
    return Degraded(
        deployment,
        replace(plan.layout, replicas=tuple(replicas)),
        tuple(replace(rest, replicas=tuple(row)) for row, rest in zip(rows.values(), rests, strict=True)),
        len(gone),
        _lost_copies(plan, gone),
        tuple(notes),
    )


def _kept(plan: Plan, old: int, gone: set[int], number: Mapping[int, int], deployment: Deployment) -> Rest:
    """Return what is left of replica ``old``; raise InfeasibleError where it cannot go on."""
    stages, tp, experts = plan.layout.replicas[old], plan.layout.tp, plan.held_by(old)
    kept = [_members(stage, tp, gone) for stage in stages]
    for stage, members in zip(stages, kept, strict=True):
        if not members:
            raise InfeasibleError(
                f"no GPU remains of the {len(stage.gpus)} that hold layers {stage.layers.start} to "
                f"{stage.layers.stop - 1}; make a new plan for the remaining GPUs with rackplan plan."
            )
    left = tuple(
        StageSpec(tuple(number[stage.gpus[local]] for local in members), stage.layers)
        for stage, members in zip(stages, kept, strict=True)
    )
    parts = [_held(part, members) for part, members in zip(experts, kept, strict=True)]
    slots, held = tuple(part[0] for part in parts), tuple(part[1] for part in parts)
    gpus = [gpu for stage in stages for gpu in stage.gpus]
    lost = sum(gpu in gone for gpu in gpus)
    if gone:
        short = [
            0 if part is None else max(0, part.experts - int(part.slots_per_gpu[members].sum()))
            for part, members in zip(experts, kept, strict=True)
        ]
        _check_memory(deployment, left, plan.layout.widths, slots, short)
    moe = deployment.model.moe
    if moe is not None and lost and len(plan.layout.replicas) > 1 and deployment.engine:
        try:
            require_equal_ranks([count for count in slots if count is not None], moe.experts)
        except InputError as error:
            raise InfeasibleError(f"{deployment.engine} cannot run on the remaining GPUs: {error}") from None
    return Rest(left, slots, held, len(gpus) - lost - sum(map(len, kept)))


def _of(plan: Plan, replica: int) -> str:
    """A replica by its number and its first GPU."""
    gpu = plan.layout.replicas[replica][0].gpus[0]
    return f"replica {replica} (from {plan.deployment.cluster.gpus[gpu].id})"


def _lost_copies(plan: Plan, gone: set[int]) -> int:
    """Copies on GPUs that are gone, over all layers and replicas."""
    return sum(
        int(part.slots_per_gpu[local]) * part.layers
        for replica, stages in enumerate(plan.layout.replicas)
        for stage, part in zip(stages, plan.held_by(replica), strict=True)
        if part is not None
        for local, gpu in enumerate(stage.gpus)
        if gpu in gone
    )


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
    deployment: Deployment,
    stages: Sequence[StageSpec],
    widths: StageWidths,
    slots: Sequence[Ints | None],
    short: Sequence[int],
) -> None:
    """Raise InfeasibleError where what is left does not fit: by how much, and the batch that would.

    ``short`` are the experts of each stage for which the slots that are left do not suffice.
    """
    batch = deployment.workload.batch
    stage_slots = [
        np.zeros(len(stage.gpus), dtype=np.int64) if count is None else count
        for stage, count in zip(stages, slots, strict=True)
    ]
    memories = replica_memory(deployment, stages, slots=stage_slots, **widths)
    fits = replica_max_batch(memories, widths["tp"])
    for stage, memory, lacking in zip(stages, memories, short, strict=True):
        if memory.used(batch) <= memory.usable:
            continue
        layers = f"layers {stage.layers.start} to {stage.layers.stop - 1}"
        what = f"{lacking} experts lack a slot in each of {layers}; with slots for all, " if lacking else ""
        remedy = (
            f"batch {fits} would fit; serve at most that, and plan with {input_name('batch')} {fits}"
            if fits
            else "no batch fits: plan again with more GPUs"
        )
        raise InfeasibleError(
            f"HBM capacity binds on the {len(stage.gpus)} GPUs left of {layers}: {what}batch {batch} needs "
            f"{memory.used(batch) / 1e9:.1f} GB per GPU and {memory.usable / 1e9:.1f} GB are usable; {remedy}."
        )
