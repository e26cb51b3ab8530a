"""The pipeline partition: layers to stages so that times, or shares of the memory, are as equal as can be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from cost.layouts.candidates import Arrangement, Variant
from cost.layouts.cuts import Costs, cut_alike
from cost.layouts.stages import Pricer, Stage, StageTable
from cost.model import StageShard
from cost.workload import StepShape

Array = NDArray[np.float64]


def run_sums(layers: NDArray[np.float64], fixed: NDArray[np.float64]) -> NDArray[np.float64]:
    """What layers ``i`` to ``j - 1`` take on each stage, ``[stages, i, j]``; infinite where there are none."""
    count = layers.shape[1]
    ends = np.concatenate([np.zeros((len(layers), 1)), np.cumsum(layers, axis=1)], axis=1)
    # laid out as [stages, j, i], which best_cuts reads along i
    runs: Array = ends[:, :, None] - ends[:, None, :]
    runs += fixed[:, None, None]
    runs += _no_layer(count)
    return runs.transpose(0, 2, 1)


@lru_cache(maxsize=64)
def _no_layer(count: int) -> Array:
    """Infinite for runs without a layer, else 0: ``[j, i]``."""
    place = np.arange(count + 1)
    return np.where(place[:, None] <= place, np.inf, 0.0)


def best_cuts(runs: Array, row_of: Sequence[int] | None = None) -> tuple[float, tuple[range, ...]]:
    """Return the largest stage of the split whose largest stage is smallest, and the split.

    Parameters
    ----------
    runs:
        What layers ``i`` to ``j - 1`` take on each stage, ``[stages, layers + 1, layers + 1]``; infinite where there
        are none or no room. An infinite answer says that no split has room.
    row_of:
        The row of ``runs`` that each stage has, where some have the same; None: each its own.

    Notes
    -----
    A dynamic programme over stages in their order: the best for the first ``j`` layers is the least, over where the
    last stage begins, of the larger of the best before and its own: ``stages * layers^2`` steps, exact (Bokhari 1988,
    IEEE Transactions on Computers 37).
    """
    row_of = range(len(runs)) if row_of is None else row_of
    count = runs.shape[1] - 1
    backward = np.ascontiguousarray(
        runs.transpose(0, 2, 1)
    )  # [rows, j, i]: what is compared lies side by side
    # of the first stages, for the first so many layers; the cuts are looked for where they matter, at the end
    best = [np.maximum(runs[row_of[0], 0], 0.0)]
    worst = np.empty_like(backward[0])
    for row in row_of[1:-1]:
        best.append(np.maximum(best[-1], backward[row], out=worst).min(axis=1))
    stops, largest = [count], float(best[-1][count])
    for stage in range(len(row_of) - 1, 0, -1):
        last = np.maximum(best[stage - 1], backward[row_of[stage], stops[-1]])
        stops.append(int(last.argmin()))
        if stage == len(row_of) - 1:
            largest = float(last[stops[-1]])
    return largest, tuple(range(a, b) for a, b in pairwise([0, *stops[::-1]]))


TYPICAL = {"decode": ((1.0, True), (64.0, False)), "prefill": ((1.0, False), (8.0, False))}
"""Sequences per GPU at which layers are weighed against each other and against the head, and whether all GPUs of a
stage are one tensor-parallel group then. What suits few sequences best need not suit many, and splits for one batch
alone would favour one chip over another by chance."""

BEYOND = 2
"""Layers fewer on the last stage than in any split that is balanced."""


@dataclass(frozen=True, eq=False)
class _Weights:
    """What a layer of each kind, the embedding and the head take: ``kinds [kinds, stages]``, ``[stages]``."""

    kinds: Array
    first: Array
    last: Array

    def costs(self, kind_of: NDArray[np.int64], stages: NDArray[np.int64], row_of: Sequence[int]) -> Costs:
        """What layers take on the ``stages [rows, pipelines]``, in the order of ``row_of``."""
        ends = np.zeros((2, len(stages), 1))
        ends[0, row_of[0]], ends[1, row_of[-1]] = 1.0, 1.0
        layers = self.kinds[:, stages][kind_of].transpose(1, 2, 0)
        return Costs(np.ascontiguousarray(layers), self.first[stages] * ends[0] + self.last[stages] * ends[1])


def variants_of(pricer: Pricer, whole: Sequence[Arrangement]) -> list[Variant]:
    """Return the arrangements, each with every split of its layers that is worth pricing.

    Layers are split so that the slowest stage is fastest, experts balanced, at each of :data:`TYPICAL`; so that the
    fullest GPU is least full, which leaves room for more sequences; and in the ways between these.
    """
    one_stage: list[tuple[range, ...]] = [(range(len(pricer.deployment.model.layers)),)]
    _balance(pricer, [what for what in whole if what.stages > 1 and what not in pricer.balanced])
    found: list[Variant] = []
    kind_of = pricer.deployment.model.kind_of
    for what in whole:
        splits = one_stage
        if what.stages > 1:
            middle = set(pricer.line(what, 0).kinds[1:-1])
            splits = between(list(dict.fromkeys(pricer.balanced[what])), kind_of if len(middle) == 1 else ())
        found += [Variant(what, ranges) for ranges in splits]
    return found


def _balance(pricer: Pricer, whole: Sequence[Arrangement]) -> None:
    """Enter the balanced splits of arrangements: at each of :data:`TYPICAL`, then of memory."""
    stages = [pricer.line(what, 0).kinds for what in whole]
    used = sorted({kind for row in stages for kind in row})
    weights = _weights(pricer, [pricer.kinds[kind] for kind in used]) if used else []
    place = {kind: number for number, kind in enumerate(used)}
    kind_of = np.array(pricer.deployment.model.kind_of)
    alike: dict[tuple[int, ...], list[tuple[Arrangement, list[int]]]] = {}
    for what, row in zip(whole, stages, strict=True):
        last = len(row) - 1
        ends = [(place[kind], index == 0, index == last) for index, kind in enumerate(row)]
        rows = list(dict.fromkeys(ends))
        alike.setdefault(tuple(map(rows.index, ends)), []).append((what, [kind for kind, _, _ in rows]))
    for row_of, found in alike.items():
        kinds = np.array([row for _, row in found]).T
        *times, memory = (weight.costs(kind_of, kinds, row_of) for weight in weights)
        first, then = Costs.joined([*times, memory]), Costs.joined([memory for _ in times] + times[-1:])
        splits = cut_alike(first, then, row_of)  # all at once: each call costs more than what it does
        for number, (what, _) in enumerate(found):
            pricer.balanced[what] = splits[number :: len(found)]


def between(splits: list[tuple[range, ...]], kind_of: Sequence[int] = ()) -> list[tuple[range, ...]]:
    """Return splits and those on the way from one to the next: what suits a batch between theirs lies there.

    They are taken by the layers of the last stage, and every cut moves to that of the next in as many even steps as
    the cut that moves farthest has layers to go. :data:`BEYOND` more leave the last stage, which has the head, fewer
    layers than any: a chip with a little more compute must not lose the split that suits one with less. For the same
    reason stages on the way that are alike get equally many layers: those of one kind by ``kind_of`` (empty: stages
    differ).
    """
    order = sorted(splits, key=lambda split: len(split[-1]))
    found = dict.fromkeys([*_shorter(order[0]), order[0]])
    for before, after in pairwise(order):
        cuts = np.array([[stage.stop for stage in split] for split in (before, after)])
        steps = int(np.abs(cuts[1] - cuts[0]).max())
        for step in range(1, steps + 1):
            stops = [0, *np.round(cuts[0] + (cuts[1] - cuts[0]) * step / steps).astype(int).tolist()]
            found[tuple(range(a, b) for a, b in pairwise(_evened(stops, kind_of)))] = None
    return [split for split in found if all(split)]


def _evened(stops: list[int], kind_of: Sequence[int]) -> list[int]:
    """Return the ends of stages with those between the first and the last as long as each other, if alike."""
    start, stop, middle = stops[1], stops[-2], len(stops) - 3
    if len(set(kind_of[start:stop])) != 1:
        return stops
    return [0, *(start + (stop - start) * index // middle for index in range(middle)), *stops[-2:]]


def _shorter(split: tuple[range, ...]) -> list[tuple[range, ...]]:
    """Return splits whose last stage has a layer fewer each, which the stage with fewest of the others gets."""
    found = []
    lengths = [len(stage) for stage in split]
    for _ in range(min(BEYOND, lengths[-1] - 1)):
        lengths[-1] -= 1
        lengths[int(np.argmin(lengths[:-1]))] += 1
        stops = np.cumsum([0, *lengths]).tolist()
        found.append(tuple(range(a, b) for a, b in pairwise(stops)))
    return found


def _weights(pricer: Pricer, stages: list[Stage]) -> list[_Weights]:
    """Seconds, and fractions of HBM, of everything that a stage may hold, on each kind of stage."""
    model, phase = pricer.deployment.model, pricer.deployment.workload.phase
    table = StageTable.bare(stages, len(model.kinds))
    parts, many = len(model.kinds) + 2, len(stages)
    rows = np.tile(np.arange(many), parts)
    one = np.repeat(np.eye(parts), many, axis=1)
    held = StageShard(
        tuple((layer, one[kind]) for kind, layer in enumerate(model.kinds)), first=one[-2], last=one[-1]
    )
    single, group = np.ones(len(rows), dtype=np.int64), table.gpus[rows].astype(np.int64)

    def shape(batch: float, *, whole: bool) -> StepShape:
        """Attention as wide as the group where it is one (as without experts), else one wide."""
        tp = group if whole or model.moe is None else single
        return pricer.shape(table, rows, tp=tp, moe_tp=single, batch=np.full(len(rows), batch))

    found = [
        pricer.seconds(table, rows, shape(batch, whole=whole), held)["step_s"]
        for batch, whole in TYPICAL[phase]
    ]
    weights, cache = pricer.memory(table, rows, shape(1.0, whole=False), held, passing=False)
    found.append(np.asarray(weights + cache) / table.hbm_bytes[rows])
    shaped = (values.reshape(parts, many) for values in found)
    return [_Weights(values[:-2], values[-2], values[-1]) for values in shaped]
