"""Improve a placement layer by layer: the hottest GPU and a few others, dealt out again by CP-SAT."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from placement import submodel

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from placement.problem import ExpertProblem

    OnProgress = Callable[[int, int, float, float, float], None]

__all__ = ["Improved", "improve"]

CLOSE = 1e-4  # a layer is done when its largest load is within this part of its bound
STEPS = 1_000_000  # integer steps to the mean GPU load
_PATIENCE = 6  # sub-packings without gain before a layer is given up
_SUB_LIMIT_S = 0.25
_PARTNERS = 3
_PROGRESS_S = 0.1


@dataclass(frozen=True, eq=False)
class Improved:
    """What :func:`improve` reached, and what it ran."""

    slot_expert: NDArray[np.int32]
    interrupted: bool
    log: tuple[str, ...]


def improve(
    problem: ExpertProblem,
    slot_expert: NDArray[np.int32],
    bound: NDArray[np.float64],
    *,
    time_limit_s: float,
    seed: int,
    on_progress: OnProgress | None = None,
) -> Improved:
    """Lower the largest GPU loads of ``slot_expert`` ``[layers, slots]``; never worse than given.

    Always the layer with the largest gap to its ``bound`` ``[layers]`` (multiples of the mean GPU load): its
    hottest GPU, its coldest and two drawn by ``seed`` are dealt out again. Ends when every layer is within
    :data:`CLOSE` of its bound or was given up, at ``time_limit_s`` seconds, or at Ctrl-C; the incumbent
    stands in all cases.
    """
    search = _Search(problem, slot_expert, bound, seed)
    start = time.monotonic()
    reported = -_PROGRESS_S
    interrupted = False
    try:
        while (left := time_limit_s - (time.monotonic() - start)) > 0 and (
            layer := search.next_layer()
        ) is not None:
            search.try_layer(layer, min(left, _SUB_LIMIT_S))
            elapsed = time.monotonic() - start
            if on_progress is not None and elapsed - reported >= _PROGRESS_S:
                reported = elapsed
                on_progress(search.done, problem.layers, search.objective, float(bound.mean()), elapsed)
    except KeyboardInterrupt:
        interrupted = True
    elapsed = time.monotonic() - start
    ran = (
        f"CP-SAT: {search.tried} sub-packings of up to {_PARTNERS + 1} GPUs in {elapsed:.1f} s, "
        f"{search.gained} of them better, {search.workers} workers, seed {seed}; "
        f"{search.done} of {problem.layers} layers within {CLOSE:g} of their bound"
    )
    kept = ("interrupted: the best placement so far is kept",) if interrupted else ()
    return Improved(search.slot_expert, interrupted, (ran, *kept))


class _Search:
    """The incumbent, its loads, and how often each layer has refused to improve."""

    def __init__(
        self, problem: ExpertProblem, slot_expert: NDArray[np.int32], bound: NDArray[np.float64], seed: int
    ) -> None:
        self.problem = problem
        self.slot_expert = slot_expert.copy()
        self.bound = bound
        self.rng = np.random.default_rng(seed)
        self.workers = submodel.cores()
        # Loads in multiples of the mean GPU load, like the bound; counts stay as they are.
        copies = problem.assignment(slot_expert).copies
        scale = problem.gpus / problem.loads.sum(axis=1, keepdims=True)
        self.share = problem.loads * scale / copies
        self.gpu_load = problem.assignment(slot_expert).gpu_load(problem.loads) * scale
        self.failures = np.zeros(problem.layers, dtype=np.int64)
        self.tried = self.gained = 0

    @property
    def objective(self) -> float:
        """Mean over layers of the largest GPU load."""
        return float(self.gpu_load.max(axis=1).mean())

    @property
    def done(self) -> int:
        """Layers within :data:`CLOSE` of their bound."""
        return int((self.gpu_load.max(axis=1) <= self.bound * (1 + CLOSE)).sum())

    def next_layer(self) -> int | None:
        """Return the layer with the largest gap that is neither done nor given up."""
        gap = self.gpu_load.max(axis=1) / self.bound - 1
        gap[self.failures >= _PATIENCE] = 0.0
        layer = int(np.argmax(gap))
        return layer if gap[layer] > CLOSE else None

    def try_layer(self, layer: int, time_limit_s: float) -> None:
        """Deal out a few GPUs of ``layer`` again, and keep the result if the hottest of them gets cooler."""
        gpus = self._choose(layer)
        problem = self.problem
        slots = [np.arange(problem.first_slot[gpu], problem.first_slot[gpu + 1]) for gpu in gpus]
        experts = np.unique(np.concatenate([self.slot_expert[layer, here] for here in slots]))
        on = np.stack([np.isin(experts, self.slot_expert[layer, here]) for here in slots], axis=1)
        share = self.share[layer, experts]
        target = int(self.bound[layer] * (1 + CLOSE / 2) * STEPS)
        sub = submodel.SubPacking(on, np.rint(share * STEPS).astype(np.int64), target)
        self.tried += 1
        better = submodel.solve(
            sub, time_limit_s=time_limit_s, seed=int(self.rng.integers(2**31)), workers=self.workers
        )
        if better is None or (share @ better).max() >= self.gpu_load[layer, gpus].max():
            self.failures[layer] += 1
            return
        row = self.slot_expert[layer].copy()
        for column, here in enumerate(slots):
            row[here] = experts[better[:, column]]
        self.slot_expert[layer] = row
        self.gpu_load[layer, gpus] = share @ better
        self.failures[layer] = 0
        self.gained += 1

    def _choose(self, layer: int) -> NDArray[np.int64]:
        """Pick the hottest GPU, the coldest one, and others drawn among those that have slots."""
        load = self.gpu_load[layer]
        used = np.flatnonzero(self.problem.slots_per_gpu > 0)
        order = used[np.argsort(load[used], kind="stable")]
        hottest, coldest, others = order[-1:], order[:1], order[1:-1]
        if order.size <= _PARTNERS + 1:
            return order
        drawn = self.rng.choice(others, size=_PARTNERS - 1, replace=False)
        return np.concatenate([hottest, coldest, drawn])
