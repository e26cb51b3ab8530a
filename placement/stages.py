"""Layers to pipeline stages by CP-SAT: contiguous runs, the smallest largest stage time, memory respected."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from ortools.sat.python import cp_model

from topology.errors import InfeasibleError, InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["StageProblem", "StageResult", "solve_stages"]

TIME_STEPS = 100_000
"""Integer steps that the largest possible stage time is scaled to."""
MEMORY_UNIT = 1024.0
"""Bytes per integer step of memory: fine enough that rounding refuses nothing real."""


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
    """Runs of layers, the largest stage time recomputed from them, and the proven bound on it (seconds)."""

    ranges: tuple[range, ...]
    largest_s: float
    bound_s: float
    status: str


@dataclass(frozen=True)
class _Variables:
    """``of[layer][stage]``: the layer is in the stage. ``largest``: the largest stage time, in steps."""

    of: list[list[cp_model.IntVar]]
    largest: cp_model.IntVar


def solve_stages(problem: StageProblem, *, time_limit_s: float = 10.0) -> StageResult:
    """Return the split of the layers whose slowest stage is fastest.

    Raises
    ------
    InfeasibleError
        If no contiguous split respects the memory of the stages.
    """
    model = cp_model.CpModel()
    step_s = _time_step(problem)
    variables = _variables(model, problem)
    each_layer_in_one_stage(model, problem, variables)
    every_stage_has_a_layer(model, problem, variables)
    stages_are_contiguous(model, problem, variables)
    memory_is_respected(model, problem, variables)
    largest_stage_time(model, problem, variables, step_s)
    model.minimize(variables.largest)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = time_limit_s
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    # CP-SAT's own handler would leave the system's behind, and Ctrl-C would then kill without a word.
    solver.parameters.catch_sigint_signal = False
    status = solver.solve(model)
    if status == cp_model.INFEASIBLE:
        raise InfeasibleError(
            f"no split of {problem.layers} layers into {problem.stages} consecutive stages fits in HBM "
            f"({problem.capacity.min() / 1e9:.1f} GB usable on the smallest GPU)."
        )
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        raise InfeasibleError(f"no split into {problem.stages} stages found in {time_limit_s:g} s.")
    stage_of = [next(s for s, var in enumerate(row) if solver.value(var)) for row in variables.of]
    cuts = np.searchsorted(stage_of, np.arange(problem.stages + 1))
    ranges = tuple(range(int(a), int(b)) for a, b in pairwise(cuts))
    # times were rounded down to steps, so the bound in steps is one in seconds too
    largest = float(problem.stage_seconds(ranges).max())
    bound = min(float(solver.best_objective_bound) * step_s, largest)
    proven = status == cp_model.OPTIMAL
    return StageResult(ranges, largest, bound, "OPTIMAL" if proven else "FEASIBLE")


def _time_step(problem: StageProblem) -> float:
    largest = float((problem.seconds.sum(axis=0) + problem.fixed_seconds).max())
    return largest / TIME_STEPS if largest > 0 else 1.0


def _variables(model: cp_model.CpModel, problem: StageProblem) -> _Variables:
    of = [
        [model.new_bool_var(f"layer{layer}_stage{stage}") for stage in range(problem.stages)]
        for layer in range(problem.layers)
    ]
    return _Variables(of, model.new_int_var(0, 2 * TIME_STEPS, "largest"))


def each_layer_in_one_stage(model: cp_model.CpModel, problem: StageProblem, variables: _Variables) -> None:
    """Every layer is in exactly one stage."""
    for layer in range(problem.layers):
        model.add_exactly_one(variables.of[layer])


def every_stage_has_a_layer(model: cp_model.CpModel, problem: StageProblem, variables: _Variables) -> None:
    """No stage is empty."""
    for stage in range(problem.stages):
        model.add_at_least_one(row[stage] for row in variables.of)


def stages_are_contiguous(model: cp_model.CpModel, problem: StageProblem, variables: _Variables) -> None:
    """A layer is in the stage of the layer before it, or in the next one."""
    for before, after in zip(variables.of, variables.of[1:], strict=False):
        model.add_implication(after[0], before[0])
        for stage in range(1, problem.stages):
            model.add_bool_or(~after[stage], before[stage], before[stage - 1])


def memory_is_respected(model: cp_model.CpModel, problem: StageProblem, variables: _Variables) -> None:
    """Each stage's layers fit its GPUs; bytes are rounded up, so that what is accepted does fit."""
    for stage in range(problem.stages):
        need = np.ceil(problem.memory[:, stage] / MEMORY_UNIT).astype(int)
        room = int((problem.capacity[stage] - problem.fixed_memory[stage]) // MEMORY_UNIT)
        model.add(sum(int(n) * row[stage] for n, row in zip(need, variables.of, strict=True)) <= room)


def largest_stage_time(
    model: cp_model.CpModel, problem: StageProblem, variables: _Variables, step_s: float
) -> None:
    """``largest`` is at least the time of each stage; times are rounded down, so its bound is valid."""
    for stage in range(problem.stages):
        steps = np.floor(problem.seconds[:, stage] / step_s).astype(int)
        fixed = int(problem.fixed_seconds[stage] // step_s)
        model.add(
            variables.largest
            >= fixed + sum(int(n) * row[stage] for n, row in zip(steps, variables.of, strict=True))
        )
