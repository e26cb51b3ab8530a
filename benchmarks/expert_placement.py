"""Balancedness and CPU time of expert placement, rivals included, all in one run.

Eight published DeepSeek-V3 workloads where they lie beside the repository (``../shared/data/expert_loads``), and
synthetic ones. ``python benchmarks/expert_placement.py [--time-limit S] [--seed N] [--sglang WHEEL] [--vllm WHEEL]``
prints the tables; with an engine's wheel (or the folder it was unpacked to) its own policies run too, which needs
torch. For CPU times set ``OMP_NUM_THREADS=1``.
"""

from __future__ import annotations

import argparse
import platform
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from engine_policies import sglang_policies, vllm_policy

from cost.loads import read_loads
from placement.baselines import eplb_global, eplb_hierarchical, linear
from placement.problem import Problem, make_problem, spread_slots
from placement.solve import solve as place
from placement.stop import Stop

if TYPE_CHECKING:
    from collections.abc import Callable

    from cost.assignment import Assignment
    from placement.baselines import Baseline

REAL = Path(__file__).resolve().parents[2] / "shared" / "data" / "expert_loads"
LAYERS, EXPERTS, GROUPS = 58, 256, 8  # DeepSeek-V3
CASES = ((72, 32, 1), (32, 32, 4), (144, 32, 2), (288, 320, 4), (288, 32, 4))  # GPUs, redundant, domains
SGLANG = "SGLang deepseek"
SYNTHETIC = ("lognormal:0.63", "zipf:1", "lognormal:1.5")

Answer = tuple["Assignment | None", "str | float"]  # and why there is none, or the proven gap


def main() -> None:
    """Print one table per set of loads."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--time-limit", type=float, default=5.0, help="seconds of the timed path, per set of loads"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sglang", type=Path, help="SGLang's wheel or the folder it was unpacked to")
    parser.add_argument("--vllm", type=Path, help="vLLM's wheel or the folder it was unpacked to")
    parser.add_argument("--sets", nargs="*", help="which loads: real, or as --loads of rackplan takes them")
    options = parser.parse_args()
    print(f"Python {platform.python_version()}, NumPy {np.__version__}, {platform.machine()}")
    extra: dict[str, Callable[[Problem], Answer]] = {}
    if options.sglang is not None:
        extra |= sglang_policies(options.sglang)
    if options.vllm is not None:
        extra |= vllm_policy(options.vllm)
    real = sorted(REAL.glob("*.npy"))
    sets = {"real": [str(path) for path in real]} if real else {}
    sets |= {text: [text] for text in SYNTHETIC}
    for name in options.sets or sets:
        texts = sets.get(name, [name])
        loads = read_loads(texts, moe_layers=range(3, 61), layers=61, experts=EXPERTS, seed=options.seed)
        for gpus, redundant, domains in CASES:
            problems = [
                make_problem(tokens, spread_slots(EXPERTS, gpus, redundant)) for tokens in loads.tokens
            ]
            print(f"\n{name}: {EXPERTS + redundant} slots on {gpus} GPUs, {domains} domains\n")
            print(
                "| | balancedness, mean | smallest | proven gap | CPU s per workload | times SGLang's deepseek |\n"
                "|---|---|---|---|---|---|"
            )
            unit = np.nan
            for label, solve in (extra | solvers(domains, options.time_limit, options.seed)).items():
                cells, seconds = row(label, solve, problems)
                unit = seconds if label == SGLANG else unit
                ratio = "" if np.isnan(seconds / unit) else f"{seconds / unit:.2f}"
                print(f"{cells} {ratio} |", flush=True)


def solvers(domains: int, time_limit_s: float, seed: int) -> dict[str, Callable[[Problem], Answer]]:
    """Return what is compared, by the name that the table prints."""

    def ours(limit_s: float) -> Callable[[Problem], Answer]:
        def solve(problem: Problem) -> Answer:
            result = place(problem, Stop(limit_s), seed=seed, eplb_groups=GROUPS, nodes=domains)
            return result.assignment, result.gap

        return solve

    def rival(policy: Callable[[Problem], Baseline]) -> Callable[[Problem], Answer]:
        def solve(problem: Problem) -> Answer:
            answer = policy(problem)
            return answer.assignment, answer.reason

        return solve

    return {
        "linear": rival(linear),
        "EPLB global": rival(eplb_global),
        "EPLB hierarchical": rival(lambda problem: eplb_hierarchical(problem, groups=GROUPS, nodes=domains)),
        "rackplan, fast": ours(0.0),
        f"rackplan, {time_limit_s:g} s": ours(time_limit_s),
    }


def row(label: str, solve: Callable[[Problem], Answer], problems: list[Problem]) -> tuple[str, float]:
    """Solve all problems, once to warm up where that is quick; return a line of the table and its CPU seconds."""
    begin = time.process_time()
    assignment, note = solve(problems[0])
    if assignment is None:
        return f"| {label} | does not apply: {note} | | | |", np.nan
    runs = 3 if time.process_time() - begin < 1.0 else 1
    seconds, answers = np.inf, list[Answer]()
    for _ in range(runs):
        begin = time.process_time()
        answers = [solve(problem) for problem in problems]
        seconds = min(seconds, (time.process_time() - begin) / len(problems))
    placed = [(answer, problem) for (answer, _), problem in zip(answers, problems, strict=True) if answer]
    values = np.concatenate([answer.balancedness(problem.mean) for answer, problem in placed])
    gaps = [note for _, note in answers if isinstance(note, float)]
    gap = f"{np.mean(gaps):.2%}" if gaps else ""
    return f"| {label} | {values.mean():.4f} | {values.min():.4f} | {gap} | {seconds:.3f} |", float(seconds)


if __name__ == "__main__":
    main()
