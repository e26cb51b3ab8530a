"""The file of a re-plan's moves, ``moves.json``: totals, and the moves in an order that a runtime can follow."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, TypeAdapter
from pydantic.dataclasses import dataclass

from placement.migrate.replan import Replanned

SCHEMA_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class BalancednessData:
    """Balancedness through a re-plan.

    Attributes
    ----------
    before, restored, after, fresh:
        Of the old plan (null where an expert has no copy left), with lost experts restored alone, of the new one, and
        of a plan made afresh.
    """

    before: float | None
    restored: float
    after: float
    fresh: float


@dataclass(frozen=True, kw_only=True)
class MovesPointData:
    """A re-plan with another number of moves.

    Attributes
    ----------
    moves, bytes:
        Copies to move, and their weights.
    balancedness, max_over_mean:
        Mean over max GPU load, and the objective of the search.
    meets_limit:
        Whether it keeps the plan's longest time per token (prefill: of a step); null: the plan has none.
    """

    moves: int
    bytes: float
    balancedness: float
    max_over_mean: float
    meets_limit: bool | None


@dataclass(frozen=True, kw_only=True)
class MovesTotalsData:
    """What a re-plan moves.

    Attributes
    ----------
    moves, bytes, moved:
        Copies that a GPU must hold and did not, their weights, and their part of all copies.
    copies, fresh_moves, lost_copies, needed_moves:
        All copies; moves to a plan made afresh; copies that are lost; moves that restore every expert.
    least_moves, least_layers:
        What any placement needs in which each layer is as balanced, and how many layers the proof looked at.
    seconds, bottleneck:
        Of the transfer over the cluster's links (null: they are not known), and the busiest of them.
    bytes_from:
        By how far the copy comes from: ``node``, ``domain``, ``rack``, ``across``, ``storage``.
    buffers:
        Moves that need a slot free on the way.
    balancedness:
        Through the re-plan.
    front:
        Balance against moves.
    """

    moves: int
    bytes: float
    copies: int
    fresh_moves: int
    lost_copies: int
    seconds: float | None
    bottleneck: str
    bytes_from: dict[str, float]
    moved: float
    needed_moves: int
    least_moves: int
    least_layers: int
    buffers: int
    balancedness: BalancednessData
    front: list[MovesPointData]


@dataclass(frozen=True, kw_only=True)
class MoveData:
    """A copy that a GPU must fetch.

    Attributes
    ----------
    layer, slot, expert:
        The layer of the model, the slot of the placement, and the expert that comes there.
    replaces:
        The expert that was there; null: the slot was empty.
    buffer:
        Whether the move needs a slot free on the way.
    gpu, from:
        Where it goes, and the GPU that has it; null: storage.
    bytes:
        Its weights.
    """

    layer: int
    slot: int
    expert: int
    replaces: int | None
    buffer: bool
    gpu: str
    from_: Annotated[str | None, Field(alias="from")]
    bytes: float


@dataclass(frozen=True, kw_only=True)
class MovesFile:
    """``moves.json``: the moves of a re-plan in an order that a runtime can follow.

    Attributes
    ----------
    schema_version:
        Of this form.
    model, cluster:
        Their names.
    plan_sha256:
        The SHA-256 of the ``plan.json`` that was written with it, in hexadecimal.
    totals:
        What they come to.
    moves:
        In order.
    """

    schema_version: int
    model: str
    cluster: str
    plan_sha256: str
    totals: MovesTotalsData
    moves: list[MoveData]


_FILE = TypeAdapter(MovesFile)


def moves_to_dict(replanned: Replanned, plan_sha256: str) -> dict[str, Any]:
    """Return ``moves.json`` as JSON-able data; ``plan_sha256`` is of the ``plan.json`` beside it."""
    deployment = replanned.moved.deployment
    ids = [gpu.id for gpu in deployment.cluster.gpus]
    file = _FILE.validate_python(
        {
            "schema_version": SCHEMA_VERSION,
            "model": deployment.model.name,
            "cluster": deployment.cluster.name,
            "plan_sha256": plan_sha256,
            "totals": moves_totals(replanned),
            "moves": [
                {
                    **vars(step),
                    "gpu": ids[step.gpu],
                    "from": None if step.source is None else ids[step.source],
                    "bytes": replanned.expert_bytes[step.layer],
                }
                for step in replanned.steps
            ],
        }
    )
    data: dict[str, Any] = _FILE.dump_python(file, mode="json", by_alias=True)
    return data


def moves_totals(replanned: Replanned) -> dict[str, Any]:
    """Return the fields of :class:`MovesTotalsData`."""
    return {
        "moves": replanned.moves,
        "bytes": replanned.bytes,
        "copies": replanned.copies,
        "fresh_moves": replanned.fresh_moves,
        "lost_copies": replanned.lost_copies,
        "seconds": replanned.transfer.seconds,
        "bottleneck": replanned.transfer.bottleneck,
        "bytes_from": replanned.transfer.bytes_by_distance,
        "moved": replanned.moves / replanned.copies,
        "needed_moves": replanned.needed,
        "least_moves": replanned.least.moves,
        "least_layers": replanned.least.layers,
        "buffers": sum(step.buffer for step in replanned.steps),
        "balancedness": BalancednessData(
            before=replanned.before, restored=replanned.restored, after=replanned.after, fresh=replanned.fresh
        ),
        "front": [
            MovesPointData(
                moves=point.moves,
                bytes=point.moves * replanned.bytes_per_move,
                balancedness=point.balancedness,
                max_over_mean=point.objective,
                meets_limit=None
                if replanned.moved.limit_s is None
                else replanned.meets is not None and point.moves >= replanned.meets.moves,
            )
            for point in replanned.front
        ],
    }
