"""Arrangements with their layers split over the stages: equal times, or equal shares of the memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from cost.capacity import even_memory
from cost.held import Held
from cost.layout import StageSpec
from cost.sweep.arrangement import arrangements
from cost.sweep.price import stage_seconds, stage_shape
from cost.sweep.split import balanced_ranges
from cost.sweep.stages import Variant, distinct_stages, stage_table

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cost.setting import Setting
    from cost.shape import StepShape
    from cost.sweep.arrangement import Arrangement
    from cost.sweep.stages import Machines, Stage, StageTable

    Array = NDArray[np.float64]

__all__ = ["variants_of"]

TYPICAL_BATCH = {"decode": 64.0, "prefill": 1.0}
"""Sequences per GPU at which layers are weighed against each other and against the head."""


@dataclass(frozen=True, eq=False)
class _Weights:
    """What a layer of each kind, the embedding and the head take: ``kinds [kinds, stages]``, ``[stages]``."""

    kinds: Array
    first: Array
    last: Array

    def ranges(self, kind_of: NDArray[np.int64], stages: list[int]) -> tuple[range, ...]:
        """The best split over stages of these kinds, in order."""
        fixed = np.zeros(len(stages))
        fixed[0] += self.first[stages[0]]
        fixed[-1] += self.last[stages[-1]]
        return balanced_ranges(self.kinds[kind_of][:, stages].T, fixed)


def variants_of(
    setting: Setting, machines: Machines, redundant: int | None
) -> tuple[list[Variant], list[int]]:
    """Return the variants, and for each the one that it stands in for where that does not fit (-1: none).

    Layers are split so that the slowest stage is fastest, experts balanced; a second variant splits them so that
    the fullest GPU is least full.
    """
    layers = len(setting.model.layers)
    found: list[Variant] = []
    instead_of: list[int] = []
    whole = arrangements(setting.cluster, setting.model)
    kinds: dict[Stage, int] = {}
    stages = [_stages(setting, machines, what, kinds) if what.stages > 1 else [] for what in whole]
    weights = _weights(setting, machines, list(kinds), redundant) if kinds else []
    kind_of = np.array(setting.model.kind_of)
    for what, row in zip(whole, stages, strict=True):
        splits: list[tuple[range, ...]]
        if what.stages == 1:
            splits = [(range(layers),)]
        else:
            splits = list(dict.fromkeys(weight.ranges(kind_of, row) for weight in weights))
        for number, ranges in enumerate(splits):
            instead_of.append(len(found) - 1 if number else -1)
            found.append(Variant(what, ranges))
    return found, instead_of


def _stages(setting: Setting, machines: Machines, what: Arrangement, kinds: dict[Stage, int]) -> list[int]:
    """The stages of a replica without layers, each as an index into ``kinds``, which grows."""
    specs = [StageSpec(gpus, range(0)) for gpus in what.replicas[0]]
    total = sum(len(spec.gpus) for spec in specs)
    bare = [replace(s, first=False, last=False) for s in distinct_stages(setting, machines, specs, total)]
    return [kinds.setdefault(stage, len(kinds)) for stage in bare]


def _weights(
    setting: Setting, machines: Machines, stages: list[Stage], redundant: int | None
) -> list[_Weights]:
    """Seconds, and fractions of HBM, of everything that a stage may hold, on each kind of stage."""
    model = setting.model
    table = stage_table([(0, 1, stage) for stage in stages], len(model.kinds))
    parts, many = len(model.kinds) + 2, len(stages)
    rows = np.tile(np.arange(many), parts)
    one = np.repeat(np.eye(parts), many, axis=1)
    held = Held(
        tuple((layer, one[kind]) for kind, layer in enumerate(model.kinds)), first=one[-2], last=one[-1]
    )
    return [
        _Weights(values[:-2], values[-2], values[-1])
        for values in (
            _seconds(setting, machines, table, rows, held, redundant).reshape(parts, many),
            _memory(setting, table, rows, held, redundant).reshape(parts, many),
        )
    ]


def _shape(
    setting: Setting, table: StageTable, rows: NDArray[np.int64], batch: Array, redundant: int | None
) -> StepShape:
    one = np.ones(len(rows), dtype=np.int64)
    tp = table.gpus[rows].astype(np.int64) if setting.model.moe is None else one
    return stage_shape(setting, table, rows, tp=tp, moe_tp=one, batch=batch, redundant=redundant)


def _seconds(
    setting: Setting,
    machines: Machines,
    table: StageTable,
    rows: NDArray[np.int64],
    held: Held,
    redundant: int | None,
) -> Array:
    batch = np.full(len(rows), TYPICAL_BATCH[setting.workload.phase])
    shape = _shape(setting, table, rows, batch, redundant)
    return stage_seconds(setting, machines.found, table.machine[rows], shape, held).total


def _memory(
    setting: Setting, table: StageTable, rows: NDArray[np.int64], held: Held, redundant: int | None
) -> Array:
    shape = _shape(setting, table, rows, np.ones(len(rows)), redundant)
    weights, cache = even_memory(
        setting.model, setting.workload, shape, held, in_flight=table.in_flight[rows], at_once=0.0
    )
    return np.asarray(weights + cache) / table.hbm_bytes[rows]
