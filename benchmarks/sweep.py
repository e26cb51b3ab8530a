"""Seconds to price every layout at every batch, the Pareto frontier included, and to match both phases.

``python benchmarks/sweep.py`` prints the table of ``benchmarks/RESULTS.md``: the best and the first of several runs.
"""

from __future__ import annotations

import platform
import time
from typing import TYPE_CHECKING, TypeVar

from cost.inputs.deployment import Deployment
from cost.inputs.workload import Workload
from cost.layouts import sweep
from cost.resolve import resolve_model
from cost.serving.lengths import serving_workloads
from cost.serving.pools import match_rates
from topology import resolve_cluster

if TYPE_CHECKING:
    from collections.abc import Callable

    from cost.layouts import Sweep

CASES = (
    ("deepseek-v3", "gb200-nvl72"),
    ("deepseek-v3", "hgx-h100@72"),
    ("deepseek-v3", "gb200-nvl72@576"),
    ("qwen3-235b-a22b", "gb200-nvl72"),
    ("llama-3.1-405b", "gb200-nvl72"),
)
RUNS = 5
ISL, OSL = 4096, 1024
Result = TypeVar("Result")


def main() -> None:
    """Print one row a case."""
    print(f"Python {platform.python_version()}, {platform.machine()}; best of {RUNS} (first)\n")
    print("| model, cluster | phase | configurations | sweep and frontier s | on the frontier |")
    print("|---|---|---|---|---|")
    for model, cluster in CASES:
        case(model, cluster)


def case(name: str, where: str) -> None:
    """Print the rows of one model on one cluster: each phase, both, and their matching."""
    cluster, model = resolve_cluster(where), resolve_model(name)
    sweeps, first, best = [], 0.0, 0.0
    for workload in serving_workloads(Workload(), ISL, OSL):

        def run(workload: Workload = workload) -> tuple[Sweep, int]:
            found = sweep(Deployment(cluster, model, workload))
            return found, len(found.frontier())

        (found, edge), seconds = timed(run)
        sweeps.append(found)
        first, best = first + seconds[0], best + min(seconds)
        print(f"| {name}, {where} | {workload.phase} | {len(found):,} | {shown(seconds)} | {edge} |")
    total = sum(map(len, sweeps))
    print(f"| | both | {total:,} | **{best:.2f}** ({first:.2f}) | |")
    matches, seconds = timed(lambda: match_rates(sweeps[0], sweeps[1], osl=OSL))
    print(f"| | matched | {len(matches):,} | {shown(seconds)} | {len(matches.frontier())} |")


def timed(run: Callable[[], Result]) -> tuple[Result, list[float]]:
    """Run several times; return the last result and the seconds of each run."""
    seconds = []
    for _ in range(RUNS):
        start = time.perf_counter()
        result = run()
        seconds.append(time.perf_counter() - start)
    return result, seconds


def shown(seconds: list[float]) -> str:
    """The best, and the first in brackets."""
    return f"{min(seconds):.2f} ({seconds[0]:.2f})"


if __name__ == "__main__":
    main()
