"""Balancedness and CPU time of expert placement, rivals included, all in one run.

``python benchmarks/experts.py [--time-limit S] [--seed N] [--sglang WHEEL] [--vllm WHEEL]`` places each workload by
its own loads: eight published DeepSeek-V3 workloads where ``../shared/data/expert_loads`` exists, and synthetic ones.
With an engine's wheel (or the folder it was unpacked to) its own policies run too, which needs torch.

``--between-batches`` compares what an engine's balancer calls with vLLM's policies alone, call by call in turn, over
more shapes.

``--held-out`` makes one placement for several of the eight workloads and scores it on those left out: each workload
alone, each with its near-duplicates, and all prefill or all decode. For CPU times set ``OMP_NUM_THREADS=1``.
"""

from __future__ import annotations

import argparse
import platform
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from engine_policies import sglang_policies, vllm_policies

from cost.experts.loads import read_loads
from cost.experts.quota import fill_quota
from cost.experts.traces.counts import Wanted
from placement.budget import Budget
from placement.experts.baselines import eplb_global, eplb_hierarchical, linear
from placement.experts.problem import Problem, make_problem, spread_slots
from placement.experts.solve import solve as place

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from cost.experts.assignment import Assignment
    from placement.experts.baselines import Baseline
    from placement.experts.problem import Objective

    Solve = Callable[[Problem], Assignment]

REAL = Path(__file__).resolve().parents[2] / "shared" / "data" / "expert_loads"
LAYERS, EXPERTS, GROUPS = 58, 256, 8  # DeepSeek-V3
CASES = ((72, 32, 1), (32, 32, 4), (144, 32, 2), (288, 320, 4), (288, 32, 4))  # GPUs, redundant, domains
SGLANG = "SGLang deepseek"
SIZES = ((72, 4), (32, 9), (144, 2))  # GPUs, slots of each, for several loads
ALIKE = 0.15  # root mean square of the difference of two loads, as part of the mean load
SHAPES = (
    (58, 256, 72, 4),
    (58, 256, 32, 9),
    (58, 256, 144, 2),
    (61, 384, 72, 6),
    (48, 128, 72, 2),
    (48, 128, 72, 3),
)
"""Layers, experts, GPUs and slots of each, between batches."""
TURNS = 15
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
    parser.add_argument(
        "--between-batches", action="store_true", help="the fast path against vLLM's policies"
    )
    parser.add_argument("--held-out", action="store_true", help="one placement for several workloads")
    options = parser.parse_args()
    print(f"Python {platform.python_version()}, NumPy {np.__version__}, {platform.machine()}")
    if options.held_out:
        print_held_out(options.time_limit, options.seed)
        return
    extra: dict[str, Callable[[Problem], Answer]] = {}
    if options.sglang is not None:
        extra |= sglang_policies(options.sglang)
    if options.vllm is not None:
        extra |= vllm_policies(options.vllm)
    real = sorted(REAL.glob("*.npy"))
    sets = {"real": [str(path) for path in real]} if real else {}
    sets |= {text: [text] for text in SYNTHETIC}
    if options.between_batches:
        print_between_batches(extra)
        return
    for name in options.sets or sets:
        texts = sets.get(name, [name])
        loads = read_loads(texts, Wanted(tuple(range(3, 61)), 61, EXPERTS), seed=options.seed)
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
            result = place(problem, Budget(limit_s), seed=seed, eplb_groups=GROUPS, nodes=domains)
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


def print_between_batches(rivals: dict[str, Callable[[Problem], Answer]]) -> None:
    """Print one table: balancedness, and the smallest CPU time of some calls of each in turn, in milliseconds."""
    names = ["rackplan, fast", *rivals]
    print(
        "\n| | " + " | ".join(f"{name} | ms" for name in names) + " |\n" + "|---" * (1 + 2 * len(names)) + "|"
    )
    for layers, experts, gpus, slots in SHAPES:
        rng = np.random.default_rng(0)
        ranks = rng.permuted(np.tile(np.arange(1.0, experts + 1), (layers, 1)), axis=1)
        sets = {"log-normal": [rng.lognormal(0, 0.7, (layers, experts))]}
        sets |= {f"zipf {s:g}": [ranks**-s] for s in (1.0, 0.5)}
        if experts == EXPERTS and layers == LAYERS:
            sets = {"real": [np.load(path) for path in sorted(REAL.glob("*.npy"))]} | sets
        for name, loads in sets.items():
            problems = [make_problem(tokens, np.full(gpus, slots)) for tokens in loads]
            if problems:
                cells = " | ".join(in_turn(problems, rivals))
                print(f"| {name}, {layers} x {experts}, {gpus} x {slots} | {cells} |", flush=True)


def in_turn(problems: list[Problem], rivals: dict[str, Callable[[Problem], Answer]]) -> list[str]:
    """Solve all problems with each policy in turn, some times; return balancedness and milliseconds of each."""
    policies = [lambda problem: (place(problem, exact=False).assignment, ""), *rivals.values()]
    least, value = np.full((len(policies), len(problems)), np.inf), np.zeros((len(policies), len(problems)))
    for _ in range(TURNS):
        for j, problem in enumerate(problems):
            for i, policy in enumerate(policies):
                begin = time.process_time()
                answer, _ = policy(problem)
                least[i, j] = min(least[i, j], time.process_time() - begin)
                value[i, j] = np.nan if answer is None else answer.balancedness(problem.mean).mean()
    return [
        text
        for ms, balance in zip(1e3 * least.mean(axis=1), value.mean(axis=1), strict=True)
        for text in (f"{balance:.4f}", f"{ms:.1f}")
    ]


def print_held_out(time_limit_s: float, seed: int) -> None:
    """Print one table per size: in-sample, and by what is held out."""
    paths = sorted(REAL.glob("*.npy"))
    if not paths:
        print(f"no workloads in {REAL.parent.parent.name}/data/expert_loads beside the repository")
        return
    tokens = np.stack([np.load(path) for path in paths]).astype(np.float64)
    ways = held_out(tokens, [path.stem for path in paths])
    for gpus, slots in SIZES:
        print(f"\n{gpus} GPUs, {slots} slots each\n")
        print("| | in-sample | " + " | ".join(ways) + " | CPU s |\n|---|---|" + "---|" * (len(ways) + 1))
        solvers = scenario_solvers(time_limit_s, seed)
        for label, (objective, solve) in solvers.items():
            print(held_out_row(label, objective, solve, tokens, np.full(gpus, slots), ways), flush=True)
        single = spread_slots(EXPERTS, gpus, 0)
        for name, fixed in (("a copy of each", single), (f"{slots} slots", np.full(gpus, slots))):
            for policy in ("linear", "rackplan, fast"):
                label = f"{policy}, {name} and a quota slot a GPU"
                print(held_out_row(label, *solvers[policy], tokens, fixed, ways, quota=1), flush=True)


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


def scenario_solvers(time_limit_s: float, seed: int) -> dict[str, tuple[Objective, Solve]]:
    """Return what is compared, by the name that the table prints."""

    def ours(limit_s: float) -> Solve:
        return lambda problem: place(problem, Budget(limit_s), seed=seed, eplb_groups=8).assignment

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
            lambda problem: ours(0.0)(replace(problem, grouped=False)),
        ),
        "rackplan, fast": ("mean", ours(0.0)),
        "rackplan, fast, worst": ("worst", ours(0.0)),
    }
    if time_limit_s > 0:
        found[f"rackplan, {time_limit_s:g} s"] = ("mean", ours(time_limit_s))
    return found


def held_out_row(
    label: str,
    objective: Objective,
    solve: Solve,
    tokens: NDArray[np.float64],
    slots: NDArray[np.int64],
    ways: dict[str, list[list[int]]],
    quota: int = 0,
) -> str:
    """Solve with all workloads and with each part held out; return one line of the table.

    ``quota``: slots of each GPU that are filled for each workload, besides ``slots``.
    """

    def balance(placed: Assignment, load: NDArray[np.float64]) -> float:
        if not quota:
            return float(placed.balancedness(load).mean())
        filled = fill_quota(placed, load, quota)
        return float(filled.assignment.balancedness(load, filled.shares).mean())

    start = time.process_time()
    everything = solve(make_problem(tokens, slots, objective=objective))
    seconds = time.process_time() - start
    cells = [np.mean([balance(everything, one) for one in tokens])]
    known: dict[tuple[int, ...], list[float]] = {}
    for parts in ways.values():
        for part in map(tuple, parts):
            if part not in known:
                placed = solve(make_problem(np.delete(tokens, part, axis=0), slots, objective=objective))
                known[part] = [balance(placed, tokens[i]) for i in part]
        cells.append(np.mean([value for part in parts for value in known[tuple(part)]]))
    return f"| {label} | " + " | ".join(f"{cell:.4f}" for cell in cells) + f" | {seconds:.2f} |"


if __name__ == "__main__":
    main()
