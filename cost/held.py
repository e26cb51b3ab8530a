"""What a pipeline stage holds of a model: layers of each kind, the embedding, the head."""

from __future__ import annotations

from dataclasses import dataclass

from cost.model import Layer, Model
from cost.quantity import Quantity


@dataclass(frozen=True, eq=False)
class Held:
    """Part of a model; numbers, or arrays with one entry for each of many stages.

    Attributes
    ----------
    layers:
        Distinct layers and how many of each.
    first, last:
        1 where the stage begins with the embedding, and where it ends with the head; else 0.
    """

    layers: tuple[tuple[Layer, Quantity], ...]
    first: Quantity = 1.0
    last: Quantity = 1.0


def whole_model(model: Model) -> Held:
    """Return what the only stage holds: everything."""
    return Held(tuple(model.kind_counts(range(len(model.layers)))))
