"""Our online balancer beside the static plan and vLLM's default, on windows that change in several ways.

Eight published DeepSeek-V3 workloads where they lie beside the repository (``../shared/data/expert_loads``), and four
drawn from them (one times the ratio of two others to the power .35, times lognormal noise of .2). Windows are blends
whose weights walk slowly or fast, are drawn anew each time, or switch from one workload to another, with Poisson
noise. ``python benchmarks/online.py [--windows N] [--seeds N] [--layers N] [--votes LAST,SEEN,STORED]`` prints a row
for each policy: mean and worst balancedness on the window after each re-plan, and the part of the copies that moves.
"""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np

from placement.arrays import Experts, Floats
from placement.baselines import eplb_global
from placement.migrate.task import migration_task
from placement.online import votes
from placement.online.balancer import balancedness, replan, start, static_plan
from placement.online.state import OnlineOptions
from placement.problem import make_problem

REAL = Path(__file__).resolve().parents[2] / "shared" / "data" / "expert_loads"
STORED = {
    "all 8": (range(8), range(8)),
    "6 of 8": ((0, 2, 3, 4, 6, 7), range(8)),
    "8 of 12": (range(8), range(12)),
}
STORED |= {"none": ((), range(12))}
BUDGETS = (0.01, 0.05, None)
TOKENS = 4000.0  # an expert and window


def main() -> None:
    """Print one table for each set of stored scenarios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--windows", type=int, default=30)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--layers", type=int, default=8, help="layers, evenly from all 58")
    parser.add_argument("--gpus", type=int, default=72)
    parser.add_argument("--votes", default="", help="weights of last window, kinds seen, stored scenarios")
    options = parser.parse_args()
    paths = sorted(REAL.glob("*.npy"))
    if not paths:
        print(f"no workloads in {REAL.parent.parent.name}/data/expert_loads beside the repository")
        return
    if options.votes:
        votes.LAST, votes.SEEN, votes.STORED = (float(part) for part in options.votes.split(","))
    print(
        f"Python {platform.python_version()}, NumPy {np.__version__}, {platform.machine()}, {vars(options)}"
    )
    loads = np.stack([np.load(path) for path in paths]).astype(np.float64)
    loads = twelve(loads)[:, np.linspace(0, 57, options.layers).astype(int)]
    slots = np.full(options.gpus, 288 // options.gpus)
    for label, (known, all_of) in STORED.items():
        print(f"\n| stored: {label} | {' | '.join(BLENDS)} | all | moved | CPU s |")
        print("|---" * (len(BLENDS) + 4) + "|")
        stored = loads[list(known)]
        static = static_plan(stored, slots) if len(stored) else None
        names = ["vLLM's default", *(f"ours, {part}" for part in BUDGETS)]
        for name in ["static"] * (static is not None) + names:
            print(row(name, loads[list(all_of)], stored, static, slots, options), flush=True)


def twelve(loads: Floats) -> Floats:
    """Return the eight loads, of mean 1, and four drawn from them."""
    rng = np.random.default_rng(77)
    relative = loads / loads.mean(axis=2, keepdims=True)
    more = [
        relative[a] * (relative[b] / relative[c]) ** 0.35 * rng.lognormal(sigma=0.2, size=relative[a].shape)
        for a, b, c in ((1, 5, 7), (0, 1, 3), (7, 5, 3), (2, 6, 1))
    ]
    return np.concatenate([relative, [each / each.mean(axis=1, keepdims=True) for each in more]])


def walk(speed: float, rest: float) -> Callable[[int, int, np.random.Generator], Floats]:
    """Return what draws weights whose logarithms walk by ``speed`` and come back by ``rest``."""

    def draw(windows: int, loads: int, rng: np.random.Generator) -> Floats:
        level = 2 * rng.normal(size=loads)
        found = []
        for _ in range(windows):
            found.append(np.exp(level - level.max()))
            level = rest * level + speed * rng.normal(size=loads)
        return np.array(found)

    return draw


def switching(windows: int, loads: int, rng: np.random.Generator) -> Floats:
    """Draw weights: .9 for one workload, another one after six windows in the mean."""
    now, found = rng.integers(loads), []
    for window in range(windows):
        now = rng.integers(loads) if window and rng.random() < 1 / 6 else now
        found.append(np.eye(loads)[now] * 0.9 + 0.1 / loads)
    return np.array(found)


BLENDS: dict[str, Callable[[int, int, np.random.Generator], Floats]] = {
    "slow walk": walk(0.25, 0.99),
    "walk": walk(0.7, 0.95),
    "fast walk": walk(1.6, 0.8),
    "independent": lambda windows, loads, rng: rng.dirichlet(np.full(loads, 0.5), windows),
    "switches": switching,
}


def row(
    name: str,
    loads: Floats,
    stored: Floats,
    static: Experts | None,
    slots: np.ndarray,
    options: argparse.Namespace,
) -> str:
    """Return one row of a table: over seeds, the mean of means, and of the worst windows."""
    cells, moved, begun, replans = [], [], time.process_time(), 0
    for draw in BLENDS.values():
        values = []
        for seed in range(1, options.seeds + 1):
            rng = np.random.default_rng(seed)
            weights = draw(options.windows + 1, len(loads), rng)
            blends = np.einsum("ws,sle->wle", weights / weights.sum(axis=1, keepdims=True), loads)
            windows = rng.poisson(blends * TOKENS).astype(np.float64)
            balance, moves = play(name, windows, stored, static, slots)
            values.append((np.mean(balance), np.min(balance)))
            moved += moves
            replans += options.windows
        cells.append(np.mean(values, axis=0))
    cells.append(np.mean(cells, axis=0))
    seconds = (time.process_time() - begun) / replans
    text = " | ".join(f"{mean:.4f} / {worst:.4f}" for mean, worst in cells)
    return f"| {name} | {text} | {np.mean(moved):.1%} | {seconds:.2f} |"


def play(
    name: str, windows: Floats, stored: Floats, static: Experts | None, slots: np.ndarray
) -> tuple[list[float], list[float]]:
    """Return balancedness on each window after the first, and the part of the copies that each re-plan moves."""
    layers, experts = windows.shape[1:]
    old = static
    budget = next((part for part in BUDGETS if name == f"ours, {part}"), 0.0)
    choice = OnlineOptions(budget=budget, first_free=False)
    state = start(experts, slots, layers=layers, stored=stored, static=static, options=choice)
    balance, moved = [], []
    for window, after in pairwise(windows):
        if name == "static":
            new = static
        elif name.startswith("vLLM"):
            found = eplb_global(make_problem(window, slots)).assignment
            new = None if found is None else found.slot_expert
        else:
            decision = replan(state, window, old)
            state, new = decision.state, decision.slot_expert
        assert new is not None
        if old is not None:
            moved.append(
                float(migration_task(make_problem(window, slots), old).moves(new).mean()) / new.shape[1]
            )
        balance.append(float(balancedness(after, new, slots).mean()))
        old = new
    return balance, moved


if __name__ == "__main__":
    main()
