"""From one plan to another: the experts that GPUs must fetch, counted as a re-plan counts its moves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from cost.dtypes import bytes_per_param
from cost.model import MoeFfn
from placement.arrays import Ints
from placement.migrate.steps import Step, Transfers, nearest_sources, transfers
from placement.plan import Plan
from topology.base.errors import InputError
from topology.cluster import Cluster


@dataclass(frozen=True, eq=False)
class Moved:
    """What must be fetched for a plan where another one runs; counts are over all replicas.

    Attributes
    ----------
    of_layer:
        Experts that a GPU must hold and did not hold before, by layer with experts.
    expert_bytes:
        Bytes of one expert by layer.
    copies, left:
        Copies of the new plan; copies of the old one that are on no GPU that is to hold them.
    transfer:
        What the moves ask of the links.
    """

    of_layer: Mapping[int, int]
    expert_bytes: Mapping[int, float]
    copies: int
    left: int
    transfer: Transfers

    @property
    def moves(self) -> int:
        """Total moves."""
        return sum(self.of_layer.values())

    @property
    def bytes(self) -> float:
        """Bytes of all moves."""
        return sum(moves * self.expert_bytes[layer] for layer, moves in self.of_layer.items())


def why_not_counted(old: Plan, new: Plan) -> str:
    """Return why the moves between two plans cannot be counted; empty if they can."""
    before, after = old.deployment, new.deployment
    if before.model.name != after.model.name:
        return f"the models differ: {before.model.name} and {after.model.name}"
    if before.model.moe is None or after.model.moe is None:
        return f"{after.model.name} has no routed experts"
    if before.model.moe.experts != after.model.moe.experts or expert_bytes(old) != expert_bytes(new):
        return f"{after.model.name} has different experts (layers, number or bytes) in the two plans"
    if _wiring(before.cluster) != _wiring(after.cluster):
        return f"the clusters differ: {before.cluster.name} and {after.cluster.name}"
    return ""


def moved(old: Plan, new: Plan) -> Moved:
    """Return what moves where ``old`` runs and ``new`` shall; GPUs are the same where their ids are.

    Raises
    ------
    InputError
        If that cannot be counted (:func:`why_not_counted`).
    """
    why = why_not_counted(old, new)
    if why:
        raise InputError(f"moved copies cannot be counted: {why}.")
    cluster, size = new.deployment.cluster, expert_bytes(new)
    number = {gpu.id: index for index, gpu in enumerate(cluster.gpus)}
    # GPUs of the old plan that are gone keep their copies apart from those of any GPU that is there
    gone = [gpu.id for gpu in old.deployment.cluster.gpus if gpu.id not in number]
    number |= {name: len(cluster.gpus) + index for index, name in enumerate(gone)}
    before, after = _held(old, number), _held(new, number)
    come = _missing(after, before)
    moe = new.deployment.model.moe
    experts = 1 if moe is None else moe.experts
    gpu, rest = come % len(number), come // len(number)
    triples = zip((rest // experts).tolist(), gpu.tolist(), (rest % experts).tolist(), strict=True)
    steps = [Step(layer, here, 0, expert, None) for layer, here, expert in triples]
    counts = Counter(step.layer for step in steps)
    sourced = nearest_sources(cluster, steps, holders(old, cluster), size)
    return Moved(
        {layer: counts[layer] for layer in size},
        size,
        len(after),
        len(_missing(before, after)),
        transfers(cluster, sourced, size),
    )


def expert_bytes(plan: Plan) -> dict[int, float]:
    """Bytes of one expert by layer with experts."""
    model = plan.deployment.model
    width = bytes_per_param(model.precision["experts"])
    ffns = {layer: model.layers[layer].ffn for layer in model.moe_layers}
    return {layer: ffn.expert_params * width for layer, ffn in ffns.items() if isinstance(ffn, MoeFfn)}


def holders(old: Plan, cluster: Cluster) -> dict[tuple[int, int], list[int]]:
    """Which GPUs, by their number in ``cluster``, hold what expert of what layer in the plan ``old``."""
    gpus = old.deployment.cluster.gpus
    number = {gpu.id: index for index, gpu in enumerate(cluster.gpus)}
    gpus_of: dict[tuple[int, int], list[int]] = {}
    for part, stages in old.parts():  # idle replicas too
        layers = [layer for layer in old.deployment.model.moe_layers if layer in stages[0].layers]
        ids = [[gpus[stage.gpus[local]].id for stage in stages] for local in range(part.gpus)]
        places = [[number[name] for name in names if name in number] for names in ids]
        of_slot = part.slot_gpu.tolist()
        for layer, row in zip(layers, part.slot_expert.tolist(), strict=True):
            for slot, expert in enumerate(row):
                gpus_of.setdefault((layer, expert), []).extend(places[of_slot[slot]])
    return gpus_of


def _held(plan: Plan, number: Mapping[str, int]) -> Ints:
    """Return each layer, expert and GPU where a copy lies as one number, sorted, each once."""
    gpus, moe = plan.deployment.cluster.gpus, plan.deployment.model.moe
    experts = 1 if moe is None else moe.experts
    codes_of: list[Ints] = [np.zeros(0, dtype=np.int64)]
    for part, stages in plan.parts():
        ids = np.array([layer for layer in plan.deployment.model.moe_layers if layer in stages[0].layers])
        codes = ids[:, None] * experts + part.slot_expert.astype(np.int64)
        for stage in stages:
            own = np.array([number[gpus[gpu].id] for gpu in stage.gpus])
            codes_of.append((codes * len(number) + own[part.slot_gpu]).ravel())
    held = np.concatenate(codes_of)
    del codes_of
    held.sort()  # np.unique hashes whole numbers first: twenty times slower on the 23 million of 100,000 GPUs
    return held[np.concatenate([[True], held[1:] != held[:-1]])] if len(held) else held


def _missing(these: Ints, there: Ints) -> Ints:
    """Those of ``these`` that are not among ``there``, both sorted and each once."""
    if not len(there):
        return these
    at = np.minimum(np.searchsorted(there, these), len(there) - 1)
    missing: Ints = these[there[at] != these]
    return missing


def _wiring(cluster: Cluster) -> list[tuple[object, ...]]:
    """Return what ids of GPUs stand for, whatever is broken or set."""
    return [
        (domain.part, domain.gpu.name, domain.gpus, domain.gpus_per_node, getattr(domain, "shape", ()))
        for domain in cluster.spec.domains
    ]
