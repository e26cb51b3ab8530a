"""Balancers that re-plan after every window of requests, on three kinds of windows.

``python benchmarks/online.py`` prints the table of ``benchmarks/RESULTS.md``. Windows are blends of eight published
workloads of DeepSeek-V3 (``../shared/data/expert_loads``) and, where unseen ones are asked for, of four more drawn
from these; so many tokens of each expert are drawn as a Poisson number. Each re-plan is scored on the next window.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import rackplan

WORKLOADS = Path(__file__).resolve().parents[2] / "shared" / "data" / "expert_loads"
KNOWN = [0, 2, 3, 5, 7]
"""Workloads that are stored where three are kept back."""
CASES = (
    ("gb200-nvl72", 32, "5 of 8"),
    ("gb200-nvl72", 32, "8 of 12"),
    ("hgx-h200@32", 32, "5 of 8"),
)
"""Clusters, redundant experts, and how many of the workloads in the windows are stored."""
KINDS = ("independent", "drift", "switches")
POLICIES = ("static", "vllm", "rackplan", "rackplan:1%", "rackplan:5%", "rackplan-linear")
WINDOWS = 16
TOKENS = 2e6  # of a layer in a window
SPREAD, NOISE = (
    1.2,
    0.25,
)  # of a drawn workload's log load around the mean of the eight, and beside their span

Floats = NDArray[np.float64]


def main() -> None:
    """Print a row for each case and policy: mean and worst balancedness, copies moved, tokens against static."""
    files = sorted(WORKLOADS.glob("*.npy"))
    if not files:
        sys.exit(f"{WORKLOADS} has no loads: nothing to measure")
    eight = np.stack([np.load(file).astype(np.float64) for file in files])
    print_row(["stored", "policy", *KINDS, "CPU s a re-plan"])
    print_row(["---"] * (len(KINDS) + 3))
    for cluster, redundant, stored in CASES:
        workloads, known = (eight, eight[KNOWN]) if stored == "5 of 8" else (with_drawn(eight), eight)
        plan = rackplan.plan(
            model="deepseek-v3", cluster=cluster, phase="decode", loads=known, ep=72 if "nvl72" in cluster else 32,
            redundant=redundant, time_limit_s=0,
        )  # fmt: skip
        cells: dict[str, list[str]] = {policy: [] for policy in POLICIES}
        seconds = dict.fromkeys(POLICIES, 0.0)
        for kind in KINDS:
            loads = windows(kind, workloads)
            result = rackplan.replay(plan=plan, loads=loads, policies=list(POLICIES)).result
            static = next(run for run in result.runs if run.entry.name == "static")
            for run in result.runs:
                if run.entry.interval == 1:
                    tokens = run.tok_s / static.tok_s - 1
                    cells[run.entry.name].append(
                        f"{run.mean:.3f} / {run.worst:.3f}, {run.copies_moved:.0%}, {tokens:+.2%}"
                    )
                    seconds[run.entry.name] += run.cpu_s / (WINDOWS - 1) / len(KINDS)
        for policy, row in cells.items():
            print_row([f"{cluster}, {stored}", policy, *row, f"{seconds[policy]:.2f}"])


def with_drawn(workloads: Floats) -> Floats:
    """Return ``workloads`` ``[workloads, layers, experts]`` and four more, unlike any of them."""
    rng = np.random.default_rng(5)
    log_share = np.log(workloads / workloads.sum(axis=2, keepdims=True) + 1e-6)
    centre = log_share.mean(axis=0)
    drawn = []
    for _ in range(4):
        weight = rng.normal(size=len(workloads))
        weight -= weight.mean()
        weight *= SPREAD / np.linalg.norm(weight)
        log_load = centre + np.einsum("s,sle->le", weight, log_share - centre)
        load = np.exp(log_load + NOISE * rng.normal(size=centre.shape))
        drawn.append(load / load.sum(axis=1, keepdims=True) * workloads[0].sum(axis=1, keepdims=True))
    return np.concatenate([workloads, np.array(drawn)])


def windows(kind: str, workloads: Floats) -> Floats:
    """Return loads ``[windows, layers, experts]``: independent, drifting or switched."""
    rng = np.random.default_rng(0)
    count = len(workloads)
    if kind == "independent":
        blends = rng.dirichlet(np.full(count, 0.3), size=WINDOWS)
    elif kind == "drift":
        anchors = rng.dirichlet(np.full(count, 0.3), size=4)
        place = np.linspace(0, 3, WINDOWS)
        before = np.minimum(place.astype(int), 2)
        part = (place - before)[:, None]
        blends = anchors[before] * (1 - part) + anchors[before + 1] * part
    else:
        served: list[int] = []
        while len(served) < WINDOWS:
            workload = int(rng.integers(count))
            if not served or workload != served[-1]:
                served += [workload] * int(rng.integers(2, 6))
        blends = np.eye(count)[served[:WINDOWS]]
    share = workloads / workloads.sum(axis=2, keepdims=True)
    tokens: Floats = rng.poisson(TOKENS * np.einsum("ws,sle->wle", blends, share)).astype(np.float64)
    return tokens


def print_row(cells: list[str]) -> None:
    """Print a row of a table."""
    print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
