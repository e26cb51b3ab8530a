"""CPU seconds of the max-min fair time, and how far above the bound it is.

``python benchmarks/fair.py`` prints the table of ``benchmarks/RESULTS.md``.
"""

from __future__ import annotations

import platform
import sys
import time
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "simgrid"))
from clusters import fabric_of, tori_behind_leaves

from topology import Cluster, build_cluster, resolve_cluster
from topology.routes import Router, fair_s, pattern_traffic
from topology.spec import Fault

PATTERNS = ("all-to-all", "permutation", "shift:3", "incast", "zipf", "lognormal:0.63")
MOST_GPUS = 2000  # of patterns that are not alike for all GPUs


def faulty() -> Cluster:
    """Return 72 hosts on rails with a GPU, two NICs, a chip link and a rail uplink that are not as built."""
    base = resolve_cluster("hgx-h100@576").spec
    faults = (
        Fault(gpu="d1.n0.g3"),
        Fault(link=("d0.n0.g0", "d0.s1"), factor=0.4),
        Fault(link=("d2.n0.g5", "f.p0.l5")),
        Fault(link=("d7.n0.g2", "f.p0.l2"), factor=0.5),
        Fault(link=("f.p0.l2", "f.s1")),
    )
    return build_cluster(replace(base, faults=faults))


CLUSTERS = {
    "hgx-h100@576": lambda: resolve_cluster("hgx-h100@576"),
    "gb200-nvl72@576": lambda: resolve_cluster("gb200-nvl72@576"),
    "hgx-h100@576, rails with faults": faulty,
    "hgx-h100@576, leaf-spine 8:1": lambda: fabric_of(
        "leaf-spine", 72, nodes_per_pod=8, spines=4, oversubscription=8.0
    ),
    "16 tori of 6x6 behind 4:1": lambda: tori_behind_leaves(6, 6, domains=16, oversubscription=4.0),
    "hgx-h100@16384": lambda: resolve_cluster("hgx-h100@16384"),
    "gb200-nvl72@16384": lambda: resolve_cluster("gb200-nvl72@16384"),
}


def main() -> None:
    """Print one row a cluster."""
    print(f"Python {platform.python_version()}, {platform.machine()}\n")
    head = ["cluster", "GPUs", *PATTERNS]
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for name, make in CLUSTERS.items():
        cluster = make()
        router, gpus = Router(cluster), len(cluster.gpus)
        cells = []
        for pattern in PATTERNS:
            if gpus > MOST_GPUS and pattern.startswith(("zipf", "lognormal")):
                cells.append("")
                continue
            traffic = pattern_traffic(pattern, gpus, 1e9)
            loads, begin = router.loads(traffic), time.process_time()
            found = fair_s(router, traffic, loads)
            seconds = time.process_time() - begin
            cells.append(f"{seconds:.2f} (+{found.completion_s / found.bound_s - 1:.1%})")
        print(f"| {' | '.join([name, f'{gpus:,}', *cells])} |", flush=True)


if __name__ == "__main__":
    main()
