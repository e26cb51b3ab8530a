"""Balancedness and CPU time of expert placement, rivals included, all in one run.

Eight published DeepSeek-V3 workloads where they lie beside the repository (``../shared/data/expert_loads``),
and synthetic ones. ``python benchmarks/expert_placement.py [--time-limit S] [--seed N]`` prints the tables.
"""

from __future__ import annotations

import argparse
import platform
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cost.load_files import read_loads
from placement.baselines import eplb_global, eplb_hierarchical, linear
from placement.experts import place_experts
from placement.problem import ExpertProblem, expert_problem, spread_slots

if TYPE_CHECKING:
    from collections.abc import Callable

    from cost.assignment import Assignment
    from placement.baselines import Baseline

REAL = Path(__file__).resolve().parents[2] / "shared" / "data" / "expert_loads"
LAYERS, EXPERTS, GROUPS = 58, 256, 8  # DeepSeek-V3
CASES = ((72, 32, 1), (32, 32, 4), (144, 32, 2), (288, 320, 4))  # GPUs, redundant, domains
SYNTHETIC = ("lognormal:0.63", "zipf:1", "lognormal:1.5")

Answer = tuple["Assignment | None", str]


def main() -> None:
    """Print one table per set of loads."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--time-limit", type=float, default=5.0, help="seconds of the timed path, per set of loads"
    )
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print(f"Python {platform.python_version()}, NumPy {np.__version__}, {platform.machine()}")
    real = sorted(REAL.glob("*.npy"))
    sets = [("eight DeepSeek-V3 workloads", [str(path) for path in real])] if real else []
    for name, texts in [*sets, *((text, [text]) for text in SYNTHETIC)]:
        loads = read_loads(texts, moe_layers=range(3, 61), layers=61, experts=EXPERTS, seed=options.seed)
        for gpus, redundant, domains in CASES:
            problems = [
                expert_problem(tokens, spread_slots(EXPERTS, gpus, redundant)) for tokens in loads.tokens
            ]
            print(f"\n{name}: {EXPERTS + redundant} slots on {gpus} GPUs, {domains} domains\n")
            print("| | balancedness, mean | smallest | CPU s per workload |\n|---|---|---|---|")
            for label, solve in solvers(domains, options.time_limit, options.seed).items():
                print(row(label, solve, problems), flush=True)


def solvers(domains: int, time_limit_s: float, seed: int) -> dict[str, Callable[[ExpertProblem], Answer]]:
    """Return what is compared, by the name that the table prints."""

    def ours(limit_s: float) -> Callable[[ExpertProblem], Answer]:
        def solve(problem: ExpertProblem) -> Answer:
            result = place_experts(
                problem, time_limit_s=limit_s, seed=seed, eplb_groups=GROUPS, nodes=domains
            )
            return result.assignment, ""

        return solve

    def rival(policy: Callable[[ExpertProblem], Baseline]) -> Callable[[ExpertProblem], Answer]:
        def solve(problem: ExpertProblem) -> Answer:
            answer = policy(problem)
            return answer.assignment, answer.reason

        return solve

    return {
        "linear": rival(linear),
        "EPLB global": rival(eplb_global),
        "EPLB hierarchical": rival(lambda problem: eplb_hierarchical(problem, groups=GROUPS, nodes=domains)),
        "rackplan, fast (with both EPLBs in it)": ours(0.0),
        f"rackplan, {time_limit_s:g} s": ours(time_limit_s),
    }


def row(label: str, solve: Callable[[ExpertProblem], Answer], problems: list[ExpertProblem]) -> str:
    """Solve all problems; return one line of the table."""
    balance, reason = [], ""
    start = time.process_time()
    for problem in problems:
        assignment, reason = solve(problem)
        if assignment is not None:
            balance.append(assignment.balancedness(problem.loads))
    seconds = (time.process_time() - start) / len(problems)
    if not balance:
        return f"| {label} | does not apply: {reason} | | |"
    values = np.concatenate(balance)
    return f"| {label} | {values.mean():.4f} | {values.min():.4f} | {seconds:.3f} |"


if __name__ == "__main__":
    main()
