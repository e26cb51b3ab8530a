"""Pictures of a re-plan's moves: distance of the sources, and destinations on the expert map."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from placement.migrate.replan import Replanned
from placement.migrate.steps import NEAR
from placement.plan import Plan
from rackplan.report.doc import Picture
from rackplan.report.pictures.experts import expert_map
from rackplan.report.pictures.svg import Part, bytes_bar
from topology.base.units import added, plural

_COLOURS = ("#1b7837", "#5aae61", "#e08214", "#b2182b", "#762a83")
"""From nearest to farthest."""


def moves_pictures(found: Replanned) -> list[Picture]:
    """Return the pictures of a re-plan with moves: bytes by distance, and the map of arriving copies."""
    return [picture for picture in (sources_bar(found), moves_map(found)) if picture is not None]


def sources_bar(found: Replanned) -> Picture | None:
    """Return one bar of fetched bytes by distance; None if there are none."""
    amounts = {near: found.transfer.bytes_by_distance.get(near, 0.0) for near in NEAR}
    if added(amounts.values()) <= 0:
        return None
    words = {"across": "over the scale-out fabric", "storage": "from storage"}
    formula = "copies fetched x bytes per expert"
    parts = [
        Part(words.get(near, f"in the {near}"), amount, colour, formula, hatched=near == "storage")
        for (near, amount), colour in zip(amounts.items(), _COLOURS, strict=True)
        if amount > 0
    ]
    seconds = found.transfer.seconds
    long = "" if seconds is None else f"; {seconds * 1e3:,.1f} ms over the links"
    spoken = ", ".join(f"{part.words} {part.bytes / 1e9:,.1f} GB" for part in parts)
    svg = bytes_bar("sources", parts, "the bytes", f"{plural(found.moves, 'move')}{long}")
    says = f"Sources of the copies: {spoken}{long}"
    return Picture("sources", says, svg, title="Sources of the copies")


def _most_moved(found: Replanned) -> Plan:
    """Return the plan of those replicas alone that hold the same, and where most copies arrive."""
    plan = found.plan
    arrivals = Counter(step.gpu for step in found.steps)
    kinds: dict[int, list[int]] = {}
    for replica in range(len(plan.layout.replicas)):
        kinds.setdefault(plan.first_like(replica), []).append(replica)
    rows = [[plan.layout.replicas[replica] for replica in row] for row in kinds.values()]
    moved = [sum(arrivals[gpu] for stages in row for stage in stages for gpu in stage.gpus) for row in rows]
    at = moved.index(max(moved))
    held = plan.held_by(list(kinds.values())[at][0])
    return replace(plan, layout=replace(plan.layout, replicas=tuple(rows[at])), experts=held, unlike={})


def moves_map(found: Replanned) -> Picture | None:
    """Return the expert map after the re-plan, coloured by arriving copies; None without any.

    Columns are the GPUs of the replica where most arrive; copies that arrive in those that hold the same count with
    those of the same place.
    """
    if not found.moves or found.plan.loads is None:
        return None
    plan = _most_moved(found)
    used = {gpu for stages in plan.layout.replicas for stage in stages for gpu in stage.gpus}
    column: dict[int, int] = {}
    row: dict[int, int] = {}
    for s, entry in enumerate(plan.experts):
        if entry is None:
            continue
        first = len(set(column.values()))
        for stages in plan.layout.replicas:
            column |= {gpu: first + place for place, gpu in enumerate(stages[s].gpus)}
        layers = [x for x in plan.deployment.model.moe_layers if x in plan.layout.replicas[0][s].layers]
        row |= {layer: len(row) + at for at, layer in enumerate(layers)}
    arrived = np.zeros((len(row), len(set(column.values()))), dtype=np.int64)
    for step in (one for one in found.steps if one.gpu in used):
        arrived[row[step.layer], column[step.gpu]] += 1
    picture = expert_map(plan, arrived)
    if picture is None:
        return None
    many = int((arrived.sum(axis=0) > 0).sum())
    says = f"Map of the moves: {plural(found.moves, 'move')} to {plural(many, 'GPU')} of a replica"
    return replace(picture, key="moves", alt=says, title="Where copies arrive")
