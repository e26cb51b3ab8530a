"""Moves and balancedness of re-plans, real load to real load, over all ordered pairs of workloads.

The published DeepSeek-V3 workloads where they lie beside the repository (``../shared/data/expert_loads``); else
lognormal loads that drift. ``python benchmarks/replan.py [--gpus N] [--redundant N] [--time-limit S] [--pairs N]``
prints one row a pair and their mean, and what a fresh plan moves as it comes and relabelled.
"""

from __future__ import annotations

import argparse
import platform
import time
from itertools import permutations
from pathlib import Path

import numpy as np

from placement.migrate.migration import migrate
from placement.migrate.task import migration_task
from placement.problem import make_problem, spread_slots
from placement.solve import solve
from placement.stop import Stop

REAL = Path(__file__).resolve().parents[2] / "shared" / "data" / "expert_loads"
LAYERS, EXPERTS = 58, 256


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", type=int, default=72)
    parser.add_argument("--redundant", type=int, default=32)
    parser.add_argument("--time-limit", type=float, default=0.0, help="seconds of search of each pair")
    parser.add_argument("--pairs", type=int, default=0, help="only about so many pairs, evenly from all")
    options = parser.parse_args()
    print(f"Python {platform.python_version()}, NumPy {np.__version__}, {platform.machine()}")
    loads = workloads()
    slots = spread_slots(EXPERTS, options.gpus, options.redundant)
    plans = {name: fresh(tokens, slots) for name, tokens in loads.items()}
    print(f"\n{slots.sum()} slots on {options.gpus} GPUs, {LAYERS} layers\n")
    print("| from | to | old | fresh | re-plan | of fresh | moved | fresh moves | relabelled | CPU s |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    pairs = list(permutations(loads, 2))
    rows = []
    for before, after in pairs[:: max(1, len(pairs) // (options.pairs or len(pairs)))]:
        rows.append(row(plans[before], loads[after], slots, options.time_limit))
        print(f"| {before} | {after} | {cells(rows[-1])} |", flush=True)
    print(f"| mean | | {cells(np.mean(rows, axis=0))} |")


def workloads() -> dict[str, np.ndarray]:
    """Return tokens ``[layers, experts]`` by name."""
    files = sorted(REAL.glob("*.npy"))
    if files:
        return {path.stem: np.load(path).astype(float) for path in files}
    rng = np.random.default_rng(0)
    base = rng.lognormal(0, 0.63, (LAYERS, EXPERTS))
    return {f"drift {i}": base * rng.lognormal(0, 0.5, base.shape) for i in range(4)}


def fresh(tokens: np.ndarray, slots: np.ndarray) -> np.ndarray:
    """Return the fast path's placement, ``[layers, slots]``."""
    return solve(make_problem(tokens, slots)).assignment.slot_expert


def row(old: np.ndarray, tokens: np.ndarray, slots: np.ndarray, time_limit_s: float) -> list[float]:
    """Re-plan one pair; return the columns of its row."""
    task = migration_task(make_problem(tokens, slots), old)
    start = time.process_time()
    found = migrate([task], stop=Stop(time_limit_s))
    seconds = time.process_time() - start
    placed = found.placements[0]
    before, new, best = (
        float(task.judged(each)[1].mean()) for each in (old, placed.slot_expert, placed.fresh)
    )
    copies = old.size
    return [
        before,
        best,
        new,
        new / best,
        found.moves / copies,
        float(task.moves(fresh(tokens, slots)).sum()) / copies,
        float(task.moves(placed.fresh).sum()) / copies,
        seconds,
    ]


def cells(values: list[float] | np.ndarray) -> str:
    """Return the columns as the table prints them."""
    old, best, new, ratio, moved, whole, relabelled, seconds = values
    return (
        f"{old:.4f} | {best:.4f} | {new:.4f} | {ratio:.4f} | {moved:.1%} | {whole:.1%} | {relabelled:.1%} | "
        f"{seconds:.1f}"
    )


if __name__ == "__main__":
    main()
