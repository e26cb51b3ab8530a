"""Balancedness of one placement for several loads: on those it was planned on, and on loads held out.

Eight published DeepSeek-V3 workloads where they lie beside the repository (``../shared/data/expert_loads``).
``python benchmarks/scenarios.py [--time-limit S] [--seed N]`` prints the tables. Held out is each workload alone;
each with those that are nearly the same; and all prefill or all decode at once.
"""

from __future__ import annotations

import argparse
import platform
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from placement.baselines import eplb_global, linear
from placement.problem import make_problem
from placement.solve import solve as place
from placement.stop import Stop

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from cost.assignment import Assignment
    from placement.problem import Objective, Problem

    Solve = Callable[[Problem], Assignment]

REAL = Path(__file__).resolve().parents[2] / "shared" / "data" / "expert_loads"
SIZES = ((72, 4), (32, 9), (144, 2))  # GPUs, slots of each
ALIKE = 0.15  # root mean square of the difference of two loads, as part of the mean load


def main() -> None:
    """Print one table per size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--time-limit", type=float, default=0.0, help="seconds of the timed path; 0: none")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    paths = sorted(REAL.glob("*.npy"))
    if not paths:
        print(f"no workloads in {REAL.parent.parent.name}/data/expert_loads beside the repository")
        return
    print(f"Python {platform.python_version()}, NumPy {np.__version__}, {platform.machine()}")
    tokens = np.stack([np.load(path) for path in paths]).astype(np.float64)
    ways = held_out(tokens, [path.stem for path in paths])
    for gpus, slots in SIZES:
        print(f"\n{gpus} GPUs, {slots} slots each\n")
        print("| | in-sample | " + " | ".join(ways) + " | CPU s |\n|---|---|" + "---|" * (len(ways) + 1))
        for label, (objective, solve) in solvers(options.time_limit, options.seed).items():
            print(row(label, objective, solve, tokens, np.full(gpus, slots), ways), flush=True)


def held_out(tokens: NDArray[np.float64], names: list[str]) -> dict[str, list[list[int]]]:
    """Return which workloads are held out together, by the name of the way."""
    loads = tokens / tokens.mean(axis=2, keepdims=True)
    twins = [
        [j for j, other in enumerate(loads) if np.sqrt(((one - other) ** 2).mean()) < ALIKE] for one in loads
    ]
    kinds = [name.split("_")[0] for name in names]
    return {
        "one held out": [[i] for i in range(len(names))],
        "with its like": [list(group) for group in dict.fromkeys(map(tuple, twins))],
        "its kind": [[i for i, kind in enumerate(kinds) if kind == one] for one in dict.fromkeys(kinds)],
    }


def solvers(time_limit_s: float, seed: int) -> dict[str, tuple[Objective, Solve]]:
    """Return what is compared, by the name that the table prints."""

    def ours(limit_s: float) -> Solve:
        return lambda problem: place(problem, Stop(limit_s), seed=seed, eplb_groups=8).assignment

    def on_the_mean(problem: Problem) -> Assignment:
        return place(problem.average, seed=seed, eplb_groups=8).assignment

    def rival(policy: object) -> Solve:
        return lambda problem: policy(problem.average).assignment  # type: ignore[operator,no-any-return]

    found: dict[str, tuple[Objective, Solve]] = {
        "linear": ("mean", rival(linear)),
        "EPLB global on the mean load": ("mean", rival(eplb_global)),
        "rackplan on the mean load": ("mean", on_the_mean),
        "rackplan, equal votes": (
            "mean",
            lambda problem: ours(0.0)(replace(problem, scenario_weights="equal")),
        ),
        "rackplan, fast": ("mean", ours(0.0)),
        "rackplan, fast, worst": ("worst", ours(0.0)),
    }
    if time_limit_s > 0:
        found[f"rackplan, {time_limit_s:g} s"] = ("mean", ours(time_limit_s))
    return found


def row(
    label: str,
    objective: Objective,
    solve: Solve,
    tokens: NDArray[np.float64],
    slots: NDArray[np.int64],
    ways: dict[str, list[list[int]]],
) -> str:
    """Solve with all workloads and with each part held out; return one line of the table."""
    start = time.process_time()
    everything = solve(make_problem(tokens, slots, objective=objective))
    seconds = time.process_time() - start
    cells = [np.mean([everything.balancedness(one) for one in tokens])]
    known: dict[tuple[int, ...], list[float]] = {}
    for parts in ways.values():
        for part in map(tuple, parts):
            if part not in known:
                placed = solve(make_problem(np.delete(tokens, part, axis=0), slots, objective=objective))
                known[part] = [float(placed.balancedness(tokens[i]).mean()) for i in part]
        cells.append(np.mean([value for part in parts for value in known[tuple(part)]]))
    return f"| {label} | " + " | ".join(f"{cell:.4f}" for cell in cells) + f" | {seconds:.2f} |"


if __name__ == "__main__":
    main()
