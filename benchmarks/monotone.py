"""More GPUs of a kind never give fewer tokens per second: systems of the catalog, hosts added one by one.

``python benchmarks/monotone.py [SYSTEM ...]`` prints every count of GPUs whose best layout yields less than that of
fewer, by how much, and both layouts. ``tests/test_cost/test_monotone.py`` holds the part that is quick.
"""

from __future__ import annotations

import sys

from cost.deployment import Deployment
from cost.layouts import best_at, sweep
from cost.resolve import resolve_model
from cost.workload import Workload
from topology import resolve_cluster
from topology.cluster import Cluster

SPEEDS = (10.0, 20.0, 50.0, 100.0)
MODELS = ("llama-3.1-70b", "deepseek-v3", "qwen3-235b-a22b", "kimi-k2")
COUNTS = {
    "hgx-h100": range(8, 144, 8),
    "hgx-h200": range(8, 144, 8),
    "mi355x": range(8, 80, 8),
    "gb200-nvl72": (*range(4, 76, 4), 76, 80, 100, 140, 144, 148, 160, 216, 220, 288, 292),
    "cm384": range(64, 400, 16),
    "lecture-512": (4, 8, 16, 32, 60, 64, 68, 72, 100, 128, 132, 256, 260, 500, 504, 512, 516, 1024),
}


def best(cluster: Cluster, model: str) -> list[tuple[float, str]]:
    """Tokens per second and layout, as many as fit and at each of SPEEDS."""
    found = sweep(Deployment(cluster, resolve_model(model), Workload(context=4096)), speeds=SPEEDS)
    places = [best_at(found, speed) for speed in (0.0, *SPEEDS)]
    return [(0.0, "") if at is None else (float(found.tok_s[at]), found.label(at)) for at in places]


def main(systems: list[str]) -> None:
    """Print what falls, and how many were tried."""
    tried = fallen = 0
    for system in systems or COUNTS:
        for model in MODELS:
            highest = [(0.0, "", 0)] * (len(SPEEDS) + 1)
            for gpus in COUNTS[system]:
                rows = best(resolve_cluster(f"{system}@{gpus}"), model)
                for place, (speed, (tok_s, layout)) in enumerate(zip((0.0, *SPEEDS), rows, strict=True)):
                    most, where, fewer = highest[place]
                    tried += 1
                    if tok_s < most * (1 - 1e-9):
                        fallen += 1
                        change = f"{tok_s / most - 1:+.1%}"
                        print(
                            f"{system}@{gpus} {model} {speed:g} tok/s/user: {change} of {fewer}: {layout} | {where}"
                        )
                    elif tok_s > most:
                        highest[place] = tok_s, layout, gpus
    print(f"{fallen} of {tried} fall")


if __name__ == "__main__":
    main(sys.argv[1:])
