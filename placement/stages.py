"""Layers to pipeline stages: contiguous runs, the smallest largest stage time, memory respected; exact."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from topology.errors import InfeasibleError, InputError

MEMORY_UNIT = 1024.0
"""Bytes are rounded up to whole kibibytes, so that what is accepted does fit."""


@dataclass(frozen=True, eq=False)
class StageProblem:
    """Consecutive layers to stages in a fixed order.

    Attributes
    ----------
    seconds:
        Time of each layer on each stage, ``[layers, stages]``.
    fixed_seconds:
        Time of each stage besides its layers (the output head on the last), ``[stages]``.
    memory:
        Bytes that each layer takes on a GPU of each stage, ``[layers, stages]``.
    fixed_memory:
        Bytes that each stage needs besides (embedding, head, workspace), ``[stages]``.
    capacity:
        Usable bytes of a GPU of each stage, ``[stages]``.
    """

    seconds: NDArray[np.float64]
    fixed_seconds: NDArray[np.float64]
    memory: NDArray[np.float64]
    fixed_memory: NDArray[np.float64]
    capacity: NDArray[np.float64]

    def __post_init__(self) -> None:
        layers, stages = self.seconds.shape
        if layers < stages:
            raise InputError(f"{stages} stages for {layers} layers: a stage needs at least one layer.")

    @property
    def layers(self) -> int:
        """Number of layers."""
        return int(self.seconds.shape[0])

    @property
    def stages(self) -> int:
        """Number of stages."""
        return int(self.seconds.shape[1])

    def stage_seconds(self, ranges: tuple[range, ...]) -> NDArray[np.float64]:
        """Time of each stage for these runs of layers, ``[stages]``."""
        rows = [self.seconds[list(r), s].sum() for s, r in enumerate(ranges)]
        return np.array(rows) + self.fixed_seconds

    def stage_memory(self, ranges: tuple[range, ...]) -> NDArray[np.float64]:
        """Bytes per GPU of each stage for these runs of layers, ``[stages]``."""
        rows = [self.memory[list(r), s].sum() for s, r in enumerate(ranges)]
        return np.array(rows) + self.fixed_memory


@dataclass(frozen=True)
class StageResult:
    """Runs of layers, the largest stage time recomputed from them, and what none can be below (seconds)."""

    ranges: tuple[range, ...]
    largest_s: float
    bound_s: float
    status: str


def solve_stages(problem: StageProblem) -> StageResult:
    """Return the split of the layers whose slowest stage is fastest.

    Notes
    -----
    A dynamic programme over stages in their order: the best for the first ``i`` layers on ``k`` stages is the least,
    over where the last of them begins, of the larger of the best before and its own time. Exact, in
    ``stages * layers^2`` steps (Bokhari 1988, IEEE Transactions on Computers 37).

    Raises
    ------
    InfeasibleError
        If no contiguous split respects the memory of the stages.
    """
    layers = problem.layers
    best = np.full(layers + 1, np.inf)
    best[0] = 0.0
    begins = np.zeros((problem.stages, layers + 1), dtype=np.int64)
    for stage in range(problem.stages):
        reached = np.maximum(best[:, None], _run_seconds(problem, stage))
        begins[stage] = np.argmin(reached, axis=0)
        best = reached[begins[stage], np.arange(layers + 1)]
    if not np.isfinite(best[layers]):
        raise InfeasibleError(
            f"no split of {layers} layers into {problem.stages} consecutive stages fits in HBM "
            f"({problem.capacity.min() / 1e9:.1f} GB usable on the smallest GPU)."
        )
    end, ranges = layers, []
    for stage in reversed(range(problem.stages)):
        begin = int(begins[stage, end])
        ranges.append(range(begin, end))
        end = begin
    found = tuple(reversed(ranges))
    largest = float(problem.stage_seconds(found).max())
    return StageResult(found, largest, largest, "OPTIMAL")


def _run_seconds(problem: StageProblem, stage: int) -> NDArray[np.float64]:
    """Seconds of layers ``j`` to ``i - 1`` on ``stage``, ``[j, i]``; infinite where there is none or no room."""
    seconds = np.concatenate(([0.0], np.cumsum(problem.seconds[:, stage])))
    units = np.concatenate(([0.0], np.cumsum(np.ceil(problem.memory[:, stage] / MEMORY_UNIT))))
    room = (problem.capacity[stage] - problem.fixed_memory[stage]) // MEMORY_UNIT
    run = problem.fixed_seconds[stage] + seconds[None, :] - seconds[:, None]
    fits = (units[None, :] - units[:, None] <= room) & np.triu(np.ones(run.shape, dtype=bool), k=1)
    return np.where(fits, run, np.inf)
