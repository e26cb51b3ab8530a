"""Where the moves of a re-plan arrive, on the expert map."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from placement.migrate.replan import Replanned
from placement.plan import Plan
from rackplan.report.doc import Picture
from rackplan.report.pictures.experts import expert_map
from topology.base.units import plural


def _most_moved(replanned: Replanned) -> Plan:
    """Return the plan of those replicas alone that hold the same, and where most copies arrive."""
    plan = replanned.moved
    arrivals = Counter(step.gpu for step in replanned.steps)
    kinds: dict[int, list[int]] = {}
    for replica in range(len(plan.layout.replicas)):
        kinds.setdefault(plan.first_like(replica), []).append(replica)
    rows = [[plan.layout.replicas[replica] for replica in row] for row in kinds.values()]
    moved = [sum(arrivals[gpu] for stages in row for stage in stages for gpu in stage.gpus) for row in rows]
    at = moved.index(max(moved))
    held = plan.held_by(list(kinds.values())[at][0])
    return replace(plan, layout=replace(plan.layout, replicas=tuple(rows[at])), experts=held, unlike={})


def moves_map(replanned: Replanned) -> Picture | None:
    """Return the expert map after the re-plan, coloured by arriving copies; None without any.

    Columns are the GPUs of the replica where most arrive; copies that arrive in those that hold the same count with
    those of the same place.
    """
    if not replanned.moves or replanned.moved.loads is None:
        return None
    plan = _most_moved(replanned)
    used = {gpu for stages in plan.layout.replicas for stage in stages for gpu in stage.gpus}
    column: dict[int, int] = {}
    row: dict[int, int] = {}
    for s, entry in enumerate(plan.experts):
        if entry is None:
            continue
        start = len(set(column.values()))
        for stages in plan.layout.replicas:
            column |= {gpu: start + place for place, gpu in enumerate(stages[s].gpus)}
        layers = [x for x in plan.deployment.model.moe_layers if x in plan.layout.replicas[0][s].layers]
        row |= {layer: len(row) + at for at, layer in enumerate(layers)}
    arrived = np.zeros((len(row), len(set(column.values()))), dtype=np.int64)
    for step in (move for move in replanned.steps if move.gpu in used):
        arrived[row[step.layer], column[step.gpu]] += 1
    picture = expert_map(plan, arrived)
    if picture is None:
        return None
    gpus = int((arrived.sum(axis=0) > 0).sum())
    says = f"Map of the moves: {plural(replanned.moves, 'move')} to {plural(gpus, 'GPU')} of a replica"
    return replace(picture, key="moves", alt=says, title="Where copies arrive")
