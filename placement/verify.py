"""Independent check of placements and plans, used on every plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from cost.experts.assignment import Assignment
from cost.inputs.layout import POOLS_APART
from cost.layouts.contexts import context_widths, no_context
from cost.memory.batches import sequences_of
from cost.memory.stages import layout_memory
from placement.arrays import Ints
from placement.experts.failure_domains import stage_domains
from placement.experts.problem import Problem, most_in_domain
from placement.scoring import moe_rows
from topology.base.errors import InputError

if TYPE_CHECKING:
    from placement.plan import Plan


def verify_experts(
    assignment: Assignment, problem: Problem, *, together: bool = False, domains: int | None = None
) -> list[str]:
    """Return every way in which ``assignment`` breaks the rules of ``problem``, in words; empty if legal.

    The rules: the arrays have the problem's shape; every GPU has its number of slots; every slot holds an
    expert that exists; every expert has at least one copy in every layer; no GPU holds two copies of one, and no
    failure domain more than :func:`most_in_domain`. Layers are named by their row. ``together``: a GPU may hold two
    copies of one. ``domains``: failure domains that copies are to be spread over; None: those with slots.
    """
    errors = _shape_violations(assignment, problem)
    if errors:
        return errors
    errors = _slot_violations(assignment, problem)
    for layer in range(problem.layers):
        errors += _layer_violations(assignment, layer, together=together)
    if problem.spread is not None:
        errors += _spread_violations(assignment, problem, domains)
    return errors


def _spread_violations(assignment: Assignment, problem: Problem, domains: int | None) -> list[str]:
    """Experts with copies on more GPUs of one failure domain than may be."""
    errors = []
    domain = problem.failure_domain.tolist()
    used = len(set(problem.failure_domain[problem.slots_per_gpu > 0].tolist()))
    for layer, row in enumerate(assignment.slot_expert.tolist()):
        copies = Counter(row)
        gpus_of: dict[tuple[int, int], list[int]] = {}
        for expert, gpu in zip(row, assignment.slot_gpu.tolist(), strict=True):
            holders = gpus_of.setdefault((expert, domain[gpu]), [])
            if gpu in holders:
                continue
            holders.append(gpu)
            allowed = most_in_domain(copies[expert], used if domains is None else domains)
            if len(holders) <= allowed:
                continue
            if allowed == 1:
                errors.append(
                    f"row {layer}: GPUs {holders[0]} and {gpu}, of one failure domain, both hold expert {expert}"
                )
            elif len(holders) == allowed + 1:
                errors.append(
                    f"row {layer}: GPUs {', '.join(map(str, holders))}, of one failure domain, hold expert {expert}: "
                    f"{allowed} of its {copies[expert]} copies at most are allowed there"
                )
    return errors


def _shape_violations(assignment: Assignment, problem: Problem) -> list[str]:
    errors = []
    for word, actual, expected in (
        ("experts", assignment.experts, problem.experts),
        ("GPUs", assignment.gpus, problem.gpus),
        ("shape of slot_expert", assignment.slot_expert.shape, (problem.layers, problem.slots)),
        ("shape of slot_gpu", assignment.slot_gpu.shape, (problem.slots,)),
    ):
        if actual != expected:
            errors.append(f"{word}: {actual}, but the problem has {expected}")
    for word, array in (("slot_expert", assignment.slot_expert), ("slot_gpu", assignment.slot_gpu)):
        if not np.issubdtype(array.dtype, np.integer):
            errors.append(f"{word} holds {array.dtype}, not integers")
    return errors


def _slot_violations(assignment: Assignment, problem: Problem) -> list[str]:
    errors = []
    slot_gpu = [int(gpu) for gpu in assignment.slot_gpu]
    if slot_gpu != sorted(slot_gpu):
        errors.append("slots are not in the order of their GPUs")
    for gpu in range(problem.gpus):
        actual, expected = slot_gpu.count(gpu), int(problem.slots_per_gpu[gpu])
        if actual != expected:
            errors.append(f"GPU {gpu} has {actual} slots, but the problem gives it {expected}")
    return errors


def _layer_violations(assignment: Assignment, layer: int, *, together: bool) -> list[str]:
    errors = []
    row = assignment.slot_expert[layer]
    absent = set(range(assignment.experts)) - {int(expert) for expert in row}
    errors += [f"row {layer}: expert {expert} has no copy" for expert in sorted(absent)]
    held: set[tuple[int, int]] = set()
    for slot, (expert, gpu) in enumerate(zip(row.tolist(), assignment.slot_gpu.tolist(), strict=True)):
        if not 0 <= expert < assignment.experts:
            errors.append(f"row {layer}, slot {slot}: expert {expert} is not in 0..{assignment.experts - 1}")
        elif (expert, gpu) in held and not together:
            errors.append(f"row {layer}: GPU {gpu} holds expert {expert} more than once")
        held.add((expert, gpu))
    return errors


def verify_plan(plan: Plan) -> list[str]:
    """Return every way in which ``plan`` is illegal, in words; empty if it is legal.

    The rules: the stages of each replica hold every layer once, in order; no GPU is in two stages; tensor
    parallelism divides each stage and stays in a domain, or is as wide as a stage with as many GPUs in each domain;
    its groups have whole sequences; each layer's experts are legal on the stage's GPUs
    (:func:`placement.verify.verify_experts`), or each is cut into as many parts as the stage has GPUs; every GPU's
    weights, KV cache and workspace fit in usable HBM.
    """
    total = len(plan.deployment.cluster.gpus)
    unknown = [gpu for gpu in plan.layout.gpus_in_use if not 0 <= gpu < total]
    if unknown:  # nothing else can be looked up
        return [f"GPU number {gpu} of {total}" for gpu in unknown]
    return [*_layers(plan), *_gpus(plan), *_experts(plan), *_memory(plan)]


def _layers(plan: Plan) -> list[str]:
    count = len(plan.deployment.model.layers)
    errors = []
    for index, stages in enumerate(plan.layout.replicas):
        held = [layer for stage in stages for layer in stage.layers]
        if held != list(range(count)):
            errors.append(f"replica {index}: its stages hold layers {held}, not 0 to {count - 1} in order")
    return errors


def _run(layers: range) -> str:
    return f"layers {layers.start} to {layers.stop - 1}"


def _gpus(plan: Plan) -> list[str]:
    used = plan.layout.gpus_in_use
    errors = []
    if len(set(used)) != len(used):
        twice = next(gpu for gpu in used if used.count(gpu) > 1)
        errors.append(f"GPU {plan.deployment.cluster.gpus[twice].id} is in two stages")
    tp = plan.layout.tp
    heads = {layer.attention.heads for layer in plan.deployment.model.kinds}
    errors += [f"TP {tp} does not divide {count} query heads" for count in sorted(heads) if count % tp]
    dcp, pcp = plan.layout.dcp, plan.layout.pcp
    if (dcp, pcp) not in context_widths(replace(plan.deployment, dcp=dcp, pcp=pcp), tp):
        errors.append(str(no_context(replace(plan.deployment, dcp=dcp, pcp=pcp), tp)))
    for number, stages in enumerate(plan.layout.replicas):
        held = [stage for _, stage in plan.layout.pools_of(number)[:1]] or stages
        for stage in held:  # of GPUs with attention
            domains = plan.deployment.domains(stage)
            even = len(set(np.unique(domains, return_counts=True)[1].tolist())) == 1
            if tp == len(domains) and even:
                continue
            if len(domains) % tp or (np.ptp(domains.reshape(-1, tp), axis=1) != 0).any():
                errors.append(f"TP {tp} does not divide {_run(stage.layers)} into groups within a domain")
    batch = plan.deployment.workload.batch
    if not sequences_of(batch, plan.layout.group_gpus):
        errors.append(f"batch {batch} per GPU is not a whole number of sequences of a group of {tp} GPUs")
    return errors


def _experts(plan: Plan) -> list[str]:
    errors: list[str] = []
    cut = plan.layout.moe_tp
    if cut > 1:
        placed = any(assignment is not None for assignment in plan.experts)
        sizes = {len(stage.gpus) for stages in plan.layout.replicas for stage in stages}
        errors += [f"experts cut into {cut} parts are placed too"] * placed
        return errors + [f"experts cut into {cut} parts on stages of {size} GPUs" for size in sizes - {cut}]
    for replica, held in ((0, plan.experts), *plan.unlike.items()):
        errors += _replica_experts(plan, replica, held)
    return errors


def _replica_experts(plan: Plan, replica: int, experts: Sequence[Assignment | None]) -> list[str]:
    """What is wrong with the experts of a replica, and of those that hold the same."""
    moe = plan.deployment.model.moe
    alike = [replica] if replica else [r for r in range(len(plan.layout.replicas)) if r not in plan.unlike]
    errors = []
    for index, (stage, assignment) in enumerate(zip(plan.layout.replicas[replica], experts, strict=True)):
        rows = moe_rows(plan.deployment, stage.layers)
        if not rows:
            continue
        if moe is None or assignment is None:
            errors.append(f"{_run(stage.layers)}: no experts are placed")
            continue
        if assignment.gpus != len(stage.gpus):
            errors.append(
                f"{_run(stage.layers)}: experts on {assignment.gpus} GPUs, the stage has {len(stage.gpus)}"
            )
            continue
        members = [plan.layout.replicas[r][index].gpus for r in alike]
        joined = stage_domains(plan.deployment, members, plan.spread)
        used = None if joined is None else len(set(joined[assignment.slots_per_gpu > 0].tolist()))
        for domains in _failure_domains(plan, members):
            try:
                problem = Problem(np.ones((len(rows), moe.experts)), assignment.slots_per_gpu, spread=domains)
            except InputError as error:
                errors.append(f"{_run(stage.layers)}: {error}")
                break
            together = plan.origin == "imported"  # other planners may put two copies on a GPU
            lines = verify_experts(assignment, problem, together=together, domains=used)
            errors += [f"{_run(stage.layers)}: {line}" for line in lines]
    return errors


def _failure_domains(plan: Plan, members: Sequence[Sequence[int]]) -> list[Ints | None]:
    """Failure domains of a stage's GPUs, each way in which they lie in some replica; None: each GPU its own."""
    if plan.spread == "gpu":
        return [None]
    number = plan.deployment.numbered(plan.spread)
    ways: dict[bytes, Ints | None] = {}
    for gpus in members:
        domains = np.unique(number[list(gpus)], return_inverse=True)[1].reshape(-1)
        ways.setdefault(domains.tobytes(), domains.astype(np.int64))
    return list(ways.values())


def _memory(plan: Plan) -> list[str]:
    batch = plan.deployment.workload.batch
    errors = []
    for index, stages in enumerate(plan.layout.replicas):
        slots = [
            np.zeros(len(stage.gpus), dtype=np.int64) if assignment is None else assignment.slots_per_gpu
            for stage, assignment in zip(stages, plan.held_by(index), strict=True)
        ]
        memories = layout_memory(plan.deployment, plan.layout, index, slots)
        if batch > memories[0].most * (1 + 1e-9):
            limit = f"{memories[0].most:,.9g} at a time"
            errors.append(f"replica {index}: {batch:,.9g} sequences per GPU, and engines run {limit}")
        names = [_run(stage.layers) for stage in stages]
        for name, memory in zip(names if plan.layout.apart is None else POOLS_APART, memories, strict=True):
            if memory.used(batch) > memory.usable:
                errors.append(
                    f"replica {index}, {name}: {memory.used(batch) / 1e9:.2f} GB per GPU, "
                    f"{memory.usable / 1e9:.2f} GB usable"
                )
    return errors
