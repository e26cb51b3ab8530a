"""Completion times beside SimGrid's, flow by flow on the same routes.

Needs a C++ compiler and SimGrid's headers and library (Debian: ``g++ libsimgrid-dev``); says so and stops without
them. ``python benchmarks/simgrid/compare.py [--model CM02|LV08]`` prints the table of ``benchmarks/RESULTS.md``.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from clusters import CLUSTERS
from paths import Paths

from topology.routes import Router, pattern_traffic, traffic_matrix

if TYPE_CHECKING:
    from topology import Cluster
    from topology.routes import Traffic

HERE = Path(__file__).parent
BYTES = 1e9
UNIFORM = ("all-to-all", "ring", "permutation")
SKEWED = ("incast", "random", "zipf", "sparse")
# no window bound by latency and no acknowledgements; LV08 keeps SimGrid's own correction factors for TCP on Ethernet
FAIR = (
    "TCP-gamma:0",
    "crosstraffic:0",
    "optim:Full",
)  # the lazy update loses precision where many flows end at once
MODELS = {"CM02": ("model:CM02", *FAIR), "LV08": ("model:LV08", *FAIR)}


def main() -> None:
    """Print one row a cluster and pattern."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="CM02", choices=list(MODELS))
    parser.add_argument("--only", default="", help="clusters whose name has this in it")
    options = parser.parse_args()
    if (compiler := shutil.which("g++")) is None or not Path("/usr/include/simgrid/s4u.hpp").is_file():
        sys.exit("SimGrid is not here: install g++ and libsimgrid-dev (Debian) and run this again.")
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "flows")
        subprocess.run(  # noqa: S603 - our own source
            [compiler, "-O2", "-std=c++17", HERE / "flows.cpp", "-o", program, "-lsimgrid"], check=True
        )
        print(
            "| cluster | pattern | flows | rackplan s | SimGrid s | difference |\n|---|---|---|---|---|---|"
        )
        for name, make in CLUSTERS.items():
            if options.only in name:
                compare(name, make(), program, options.model)


def compare(name: str, cluster: Cluster, program: Path, model: str) -> None:
    """Print the rows of one cluster."""
    paths = Paths(cluster)
    router = Router(cluster)
    routes = {}
    for pattern in (*UNIFORM, *SKEWED):
        traffic = make_traffic(pattern, len(cluster.gpus))
        ours = router.loads(traffic).completion_s
        flows, simulated = simulate(cluster, paths, traffic, program, model, routes)
        print(
            f"| {name} | {pattern} | {flows:,} | {ours:.6g} | {simulated:.6g} | {ours / simulated - 1:+.2%} |",
            flush=True,
        )


def make_traffic(pattern: str, gpus: int) -> Traffic:
    """Return a pattern of ours, or a skewed matrix."""
    random = np.random.default_rng(1)
    if pattern == "zipf":  # popular destinations, as hot experts make them
        weight = 1 / np.arange(1, gpus + 1)
        matrix = np.outer(np.ones(gpus), random.permutation(weight / weight.sum())) * BYTES
        return traffic_matrix(matrix, gpus, name=pattern)
    if pattern == "sparse":  # three peers a GPU, sizes within a factor of ten
        matrix = np.zeros((gpus, gpus))
        for row in range(gpus):
            others = np.setdiff1d(np.arange(gpus), row)
            peers = random.choice(others, size=min(3, gpus - 1), replace=False)
            matrix[row, peers] = BYTES * random.uniform(0.1, 1.0, len(peers))
        return traffic_matrix(matrix, gpus, name=pattern)
    return pattern_traffic(pattern, gpus, BYTES)


def simulate(
    cluster: Cluster,
    paths: Paths,
    traffic: Traffic,
    program: Path,
    model: str,
    routes: dict[tuple[int, int], list[tuple[float, str]]],
) -> tuple[int, float]:
    """Return how many flows there are, and SimGrid's second of the last end."""
    graph = cluster.graph
    number = {}
    links = []
    for a, b, data in graph.edges(data=True):
        for ends in ((a, b), (b, a)):
            number[ends] = len(links)
            links.append(f"{data['bytes_per_s']!r} {data['latency_s']!r}")
    flows = []
    for (i, j), amount in pairs(traffic).items():
        if (i, j) not in routes:
            ids = [cluster.gpus[g].id for g in (i, j)]
            routes[i, j] = [
                (
                    share,
                    f"{len(nodes) - 1} " + " ".join(str(number[e]) for e in pairwise(nodes)),
                )
                for share, nodes in paths.of(*ids)
            ]
        flows += [f"{amount * share!r} {route}" for share, route in routes[i, j]]
    text = "\n".join([f"{len(links)} {len(flows)}", *links, *flows, ""])
    command = [program, "--log=root.thres:error", *(f"--cfg=network/{option}" for option in MODELS[model])]
    ran = subprocess.run(command, input=text, capture_output=True, text=True, check=True)  # noqa: S603 - as built here
    return len(flows), float(ran.stdout)


def pairs(traffic: Traffic) -> dict[tuple[int, int], float]:
    """Return the bytes of each pair."""
    found = {}
    who = traffic.uniform.tolist()
    if traffic.uniform_bytes:
        found = {(a, b): traffic.uniform_bytes for a in who for b in who if a != b}
    for sources, targets, amounts in traffic.blocks():
        for a, b, amount in zip(sources.tolist(), targets.tolist(), amounts.tolist(), strict=True):
            found[a, b] = found.get((a, b), 0.0) + amount
    return found


if __name__ == "__main__":
    main()
