"""The bound and the max-min fair time beside SimGrid's, flow by flow on the same routes.

Needs a C++ compiler and SimGrid's headers and library (Debian: ``g++ libsimgrid-dev``); says so and stops without
them. ``python benchmarks/simgrid/compare.py [--only WORDS] [--patterns P ...] [--latency]`` prints a row a case, then
the worst of each cluster, as in ``benchmarks/RESULTS.md``.

Each route of a pair is a flow of its own. SimGrid gives a flow less the longer its latency is, which max-min fairness
does not, so latencies are zero in both unless ``--latency`` asks for them.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from clusters import CLUSTERS
from paths import Paths

from topology.routes import Router, fair_s, pattern_traffic, traffic_matrix

if TYPE_CHECKING:
    from topology import Cluster
    from topology.routes import Traffic

HERE = Path(__file__).parent
BYTES = 1e9
PATTERNS = (
    "all-to-all",
    "ring",
    "permutation",
    "shift:3",
    "incast",
    "random",
    "zipf",
    "lognormal:0.63",
    "sparse",
)
# no window bound by latency; the lazy update loses precision where many flows end at once
OPTIONS = ("model:CM02", "TCP-gamma:0", "crosstraffic:0", "optim:Full")


class Row(NamedTuple):
    """One case: seconds, and what ours are off by."""

    cluster: str
    pattern: str
    flows: int
    bound_s: float
    fair_s: float
    simgrid_s: float

    @property
    def bound_error(self) -> float:
        """Relative difference of the bound."""
        return self.bound_s / self.simgrid_s - 1

    @property
    def fair_error(self) -> float:
        """Relative difference of the fair time."""
        return self.fair_s / self.simgrid_s - 1


def main() -> None:
    """Print one row a cluster and pattern, and the worst of each cluster."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="clusters whose name has this in it")
    parser.add_argument("--patterns", nargs="*", default=PATTERNS)
    parser.add_argument("--latency", action="store_true", help="with the latencies of links")
    options = parser.parse_args()
    if (compiler := shutil.which("g++")) is None or not Path("/usr/include/simgrid/s4u.hpp").is_file():
        sys.exit("SimGrid is not here: install g++ and libsimgrid-dev (Debian) and run this again.")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "flows")
        subprocess.run(  # noqa: S603 - our own source
            [compiler, "-O2", "-std=c++17", HERE / "flows.cpp", "-o", program, "-lsimgrid"], check=True
        )
        print("| cluster | pattern | flows | bound s | fair s | SimGrid s | bound off | fair off |")
        print("|---|---|---|---|---|---|---|---|")
        for name, make in CLUSTERS.items():
            if options.only in name:
                rows += compare(name, make(), program, options.patterns, latency=options.latency)
    summary(rows)


def compare(
    name: str, cluster: Cluster, program: Path, patterns: tuple[str, ...], *, latency: bool
) -> list[Row]:
    """Print and return the rows of one cluster."""
    paths, router = Paths(cluster), Router(cluster)
    routes: dict[tuple[int, int], list[tuple[float, str]]] = {}
    rows = []
    for pattern in patterns:
        traffic = make_traffic(pattern, len(cluster.gpus))
        loads = router.loads(traffic)
        ours = fair_s(router, traffic, loads)
        less = 0.0 if latency else loads.latency_s
        flows, simulated = simulate(cluster, paths, traffic, program, routes, latency=latency)
        row = Row(name, pattern, flows, ours.bound_s - less, ours.completion_s - less, simulated)
        print(
            f"| {name} | {pattern} | {flows:,} | {row.bound_s:.6g} | {row.fair_s:.6g} | {simulated:.6g} | "
            f"{row.bound_error:+.2%} | {row.fair_error:+.2%} |",
            flush=True,
        )
        rows.append(row)
    return rows


def summary(rows: list[Row]) -> None:
    """Print the worst case of each cluster."""
    print("\n| cluster | cases | bound, worst | fair, worst |\n|---|---|---|---|")
    for name in dict.fromkeys(row.cluster for row in rows):
        mine = [row for row in rows if row.cluster == name]
        bound = max(mine, key=lambda row: abs(row.bound_error))
        fair = max(mine, key=lambda row: abs(row.fair_error))
        print(
            f"| {name} | {len(mine)} | {bound.bound_error:+.2%} ({bound.pattern}) | "
            f"{fair.fair_error:+.2%} ({fair.pattern}) |"
        )
    within = [sum(abs(error) <= 0.01 for error in errors) for errors in zip(*map(_errors, rows), strict=True)]
    print(f"\n{len(rows)} cases; within 1 %: bound {within[0]}, fair {within[1]}")


def _errors(row: Row) -> tuple[float, float]:
    return row.bound_error, row.fair_error


def make_traffic(pattern: str, gpus: int) -> Traffic:
    """Return a pattern of ours, or three peers a GPU, sizes within a factor of ten."""
    if pattern != "sparse":
        return pattern_traffic(pattern, gpus, BYTES, seed=1)
    random = np.random.default_rng(1)
    matrix = np.zeros((gpus, gpus))
    for row in range(gpus):
        others = np.setdiff1d(np.arange(gpus), row)
        peers = random.choice(others, size=min(3, gpus - 1), replace=False)
        matrix[row, peers] = BYTES * random.uniform(0.1, 1.0, len(peers))
    return traffic_matrix(matrix, gpus, name=pattern)


def simulate(
    cluster: Cluster,
    paths: Paths,
    traffic: Traffic,
    program: Path,
    routes: dict[tuple[int, int], list[tuple[float, str]]],
    *,
    latency: bool,
) -> tuple[int, float]:
    """Return how many flows there are, and SimGrid's second of the last end."""
    graph = cluster.graph
    number = {}
    links = []
    for a, b, data in graph.edges(data=True):
        for ends in ((a, b), (b, a)):
            number[ends] = len(links)
            links.append(f"{data['bytes_per_s']!r} {data['latency_s'] * latency!r}")
    flows = []
    for (i, j), amount in pairs(traffic).items():
        if (i, j) not in routes:
            shares: dict[tuple[str, ...], float] = defaultdict(float)
            for share, nodes in paths.of(*(cluster.gpus[g].id for g in (i, j))):
                shares[nodes] += share  # both ways round a ring of two are one
            routes[i, j] = [
                (share, f"{len(nodes) - 1} " + " ".join(str(number[e]) for e in pairwise(nodes)))
                for nodes, share in shares.items()
            ]
        flows += [f"{amount * share!r} {route}" for share, route in routes[i, j]]
    text = "\n".join([f"{len(links)} {len(flows)}", *links, *flows, ""])
    command = [program, "--log=root.thres:error", *(f"--cfg=network/{option}" for option in OPTIONS)]
    ran = subprocess.run(command, input=text, capture_output=True, text=True, check=True)  # noqa: S603 - as built here
    return len(flows), float(ran.stdout)


def pairs(traffic: Traffic) -> dict[tuple[int, int], float]:
    """Return the bytes of each pair."""
    found = {}
    for alike in traffic.alike():
        amounts = alike.amounts.tolist()
        for a in np.flatnonzero(alike.senders).tolist():
            found |= {(a, b): amount for b, amount in enumerate(amounts) if a != b and amount > 0}
    for sources, targets, amounts in traffic.blocks():
        for a, b, amount in zip(sources.tolist(), targets.tolist(), amounts.tolist(), strict=True):
            found[a, b] = found.get((a, b), 0.0) + amount
    return found


if __name__ == "__main__":
    main()
