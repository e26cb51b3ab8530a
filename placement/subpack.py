"""Improve a placement layer by layer: the hottest GPU and a few others, dealt out again by CP-SAT."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placement import submodel
from placement.apart import each_alone
from placement.problem import ExpertProblem

OnProgress = Callable[[int, int, float, float, float], None]


CLOSE = 1e-4  # a layer is done when its largest load is within this part of its bound
STEPS = 1_000_000  # integer steps to the mean GPU load
_PATIENCE = 12  # sub-packings without gain before a layer is given up
_SUB_LIMIT_S = 0.25
_PARTNERS = 3
_PROGRESS_S = 0.1


@dataclass(frozen=True, eq=False)
class Improved:
    """The best placement ``[layers, slots]``, whether Ctrl-C ended the search, and what ran."""

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

    Always the layers with the largest gap to their ``bound`` ``[layers]`` (multiples of the mean GPU load),
    as many at once as there are cores: the hottest GPU, the coldest and two drawn by ``seed`` are dealt out
    again. Ends when every layer is within :data:`CLOSE` of its bound or was given up, at ``time_limit_s``
    seconds, or at Ctrl-C; the incumbent stands in all cases.
    """
    search = _Search(problem, slot_expert, bound, seed)
    start = time.monotonic()
    told = start - _PROGRESS_S
    workers = submodel.cores()
    interrupted = False
    try:
        with ThreadPoolExecutor(workers) as pool:
            while (left := start + time_limit_s - time.monotonic()) > 0 and search.widest(workers).size:
                search.try_layers(search.widest(workers), min(left, _SUB_LIMIT_S), pool)
                now = time.monotonic()
                if on_progress is not None and now - told >= _PROGRESS_S:
                    told = now
                    on_progress(
                        search.done, problem.layers, search.objective, float(bound.mean()), now - start
                    )
    except KeyboardInterrupt:
        interrupted = True
    elapsed = time.monotonic() - start
    ran = (
        f"CP-SAT: {search.tried} sub-packings of up to {_PARTNERS + 1} GPUs in {elapsed:.1f} s, "
        f"{search.gained} of them better, {workers} at once, seed {seed}; "
        f"{search.done} of {problem.layers} layers within {CLOSE:g} of their bound"
    )
    kept = ("interrupted: the best placement so far is kept",) if interrupted else ()
    return Improved(search.slot_expert, interrupted, (ran, *kept))


@dataclass(frozen=True, eq=False)
class _Part:
    """The GPUs of one layer that are dealt out again: their slots, and the experts in them."""

    layer: int
    gpus: NDArray[np.int64]
    slots: tuple[NDArray[np.int64], ...]
    experts: NDArray[np.int32]
    sub: submodel.SubPacking
    seed: int


class _Search:
    """The incumbent, its loads, and how often each layer has refused to improve."""

    def __init__(
        self, problem: ExpertProblem, slot_expert: NDArray[np.int32], bound: NDArray[np.float64], seed: int
    ) -> None:
        self.problem = problem
        self.slot_expert = slot_expert.copy()
        self.bound = bound
        self.rng = np.random.default_rng(seed)
        # Loads in multiples of the mean GPU load, like the bound; counts stay as they are.
        start = problem.assignment(slot_expert)
        scale = problem.gpus / problem.loads.sum(axis=1, keepdims=True)
        self.share = problem.loads * scale / start.copies
        self.gpu_load = start.gpu_load(problem.loads) * scale / problem.speed
        self.alike = bool((problem.speed == problem.speed[0]).all())
        self.spread = not each_alone(problem)
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

    def widest(self, most: int) -> NDArray[np.int64]:
        """Return up to ``most`` layers with the largest gaps that are neither done nor given up."""
        gap = self.gpu_load.max(axis=1) / self.bound - 1
        gap[self.failures >= _PATIENCE] = 0.0
        order: NDArray[np.int64] = np.argsort(-gap, kind="stable")[:most]
        rest: NDArray[np.int64] = order[gap[order] > CLOSE]
        return rest

    def try_layers(
        self, layers: Sequence[int] | NDArray[np.int64], limit_s: float, pool: ThreadPoolExecutor
    ) -> None:
        """Deal out a few GPUs of each layer again; keep what makes the hottest of them cooler."""
        parts = [self.part(int(layer)) for layer in layers]
        found = pool.map(lambda part: submodel.solve(part.sub, time_limit_s=limit_s, seed=part.seed), parts)
        for part, on in zip(parts, found, strict=True):
            self._keep(part, on)

    def part(self, layer: int) -> _Part:
        """Choose GPUs of ``layer`` and describe what they hold."""
        gpus = self._choose(layer)
        first = self.problem.first_slot
        slots = tuple(np.arange(first[gpu], first[gpu + 1]) for gpu in gpus)
        experts = np.unique(np.concatenate([self.slot_expert[layer, here] for here in slots]))
        on = np.stack([np.isin(experts, self.slot_expert[layer, here]) for here in slots], axis=1)
        share = self.share[layer, experts]
        load = share if self.alike else share[:, None] / self.problem.speed[gpus]
        sub = submodel.SubPacking(
            on,
            np.rint(load * STEPS).astype(np.int64),
            int(self.bound[layer] * (1 + CLOSE / 2) * STEPS),
            self.problem.failure_domain[gpus] if self.spread else None,
            self._barred(layer, gpus, experts) if self.spread else None,
        )
        return _Part(layer, gpus, slots, experts, sub, int(self.rng.integers(2**31)))

    def _barred(self, layer: int, gpus: NDArray[np.int64], experts: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Where another GPU of the failure domain holds the expert, ``[experts, gpus]``."""
        domain, slot_gpu = self.problem.failure_domain, self.problem.slot_gpu
        outside = ~np.isin(slot_gpu, gpus)
        held = np.zeros((int(domain.max()) + 1, self.problem.experts), dtype=bool)
        held[domain[slot_gpu[outside]], self.slot_expert[layer, outside]] = True
        return held[domain[gpus][None, :], experts[:, None]]

    def _keep(self, part: _Part, on: NDArray[np.bool_] | None) -> None:
        self.tried += 1
        load = None
        if on is not None:
            load = (self.share[part.layer, part.experts] @ on) / self.problem.speed[part.gpus]
        if on is None or load is None or load.max() >= self.gpu_load[part.layer, part.gpus].max():
            self.failures[part.layer] += 1
            return
        row = self.slot_expert[part.layer].copy()
        for column, here in enumerate(part.slots):
            row[here] = part.experts[on[:, column]]
        self.slot_expert[part.layer] = row  # in one step: Ctrl-C never sees half a layer
        self.gpu_load[part.layer, part.gpus] = load
        self.failures[part.layer] = 0
        self.gained += 1

    def _choose(self, layer: int) -> NDArray[np.int64]:
        """Pick the hottest GPU, the coldest one, and others drawn among those that have slots."""
        load = self.gpu_load[layer]
        used = np.flatnonzero(self.problem.slots_per_gpu > 0)
        order = used[np.argsort(load[used], kind="stable")]
        if order.size <= _PARTNERS + 1:
            return order
        drawn = self.rng.choice(order[1:-1], size=_PARTNERS - 1, replace=False)
        return np.concatenate([order[-1:], order[:1], drawn])
