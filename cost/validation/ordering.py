"""Whether predictions put measured configurations in the right order, two by two."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cost.validation.point import Point, Prediction

_NAMED_GAP = 0.02
_SERVED_GAP = 0.05  # repeated runs of one configuration differ by up to 2 % in three cases of four
_LIST_AT_MOST = 1000


@dataclass(frozen=True)
class Pair:
    """Two rows whose order was compared: the positions of both, and whether the predicted order is the measured."""

    first: int
    second: int
    right: bool


@dataclass(frozen=True)
class Ordering:
    """How many pairs were compared and how many of them were in the right order.

    ``pairs`` lists the pairs themselves where there are few of them (up to 1,000).
    """

    compared: int
    right: int
    pairs: tuple[Pair, ...] = ()

    @property
    def share(self) -> float | None:
        """Share in the right order, None where nothing was compared."""
        return self.right / self.compared if self.compared else None


def named_orderings(points: Sequence[Point], predictions: Sequence[Prediction]) -> dict[str, Ordering]:
    """Compare, by quantity, all rows that share the name of a pair and differ by more than 2 %."""
    return _orderings(points, predictions, [point.pair or None for point in points], _NAMED_GAP)


def served_orderings(points: Sequence[Point], predictions: Sequence[Prediction]) -> dict[str, Ordering]:
    """Compare, by quantity, served rows of the same model, cluster and requests that differ by more than 5 %.

    They differ in layout, engine, precision or phase: the choice that a user makes. Rows of one and the same
    configuration are not compared (they differ in what their source does not say).
    """
    keys: list[Hashable | None] = [
        (point.model, point.cluster, point.isl, point.osl, point.concurrency)
        if point.concurrency and point.isl and point.osl
        else None
        for point in points
    ]
    return _orderings(points, predictions, keys, _SERVED_GAP)


def _orderings(
    points: Sequence[Point],
    predictions: Sequence[Prediction],
    keys: Sequence[Hashable | None],
    gap: float,
) -> dict[str, Ordering]:
    groups: dict[str, dict[Hashable, list[int]]] = {}
    for i, (point, prediction, key) in enumerate(zip(points, predictions, keys, strict=True)):
        if key is not None and prediction.value is not None:
            groups.setdefault(point.quantity, {}).setdefault(key, []).append(i)
    configurations = [_configuration(point) for point in points]
    return {
        quantity: _ordering(points, predictions, configurations, by_key, gap)
        for quantity, by_key in groups.items()
    }


def _configuration(point: Point) -> Hashable:
    """What makes two rows the same configuration, ids and sources aside."""
    return (
        *(point.pool, point.prefill_pool, point.phase, point.model, point.cluster, point.engine, point.gpus),
        *(point.weights, point.experts_dtype, point.kv_dtype, point.batch, point.concurrency, point.tokens),
        *(point.isl, point.osl, point.context, point.overlap, point.draft_tokens, point.accept_length),
        *(point.imbalance, point.kernel, point.alltoall, point.token_kind, point.gpus_per_domain),
        *(point.up_bytes_per_s, point.out_bytes_per_s, point.cache_hit),
    )


def _ordering(
    points: Sequence[Point],
    predictions: Sequence[Prediction],
    configurations: Sequence[Hashable],
    by_key: Mapping[Hashable, Sequence[int]],
    gap: float,
) -> Ordering:
    compared, right = 0, 0
    pairs: list[Pair] = []
    for members in by_key.values():
        if len(members) < 2:
            continue
        first, second = np.triu_indices(len(members), 1)
        measured = np.array([points[i].measured for i in members])
        predicted = np.array([predictions[i].value for i in members], dtype=float)
        numbers: dict[Hashable, int] = {}
        same = np.array([numbers.setdefault(configurations[i], len(numbers)) for i in members])
        low = np.minimum(measured[first], measured[second])
        kept = (np.abs(measured[first] - measured[second]) > gap * low) & (same[first] != same[second])
        first, second = first[kept], second[kept]
        agree = (measured[first] - measured[second]) * (predicted[first] - predicted[second]) > 0
        compared += len(first)
        right += int(agree.sum())
        room = _LIST_AT_MOST - len(pairs)
        pairs += [
            Pair(members[a], members[b], bool(ok))
            for a, b, ok in zip(first[:room], second[:room], agree[:room], strict=True)
        ]
    return Ordering(compared, right, tuple(pairs) if compared <= _LIST_AT_MOST else ())
