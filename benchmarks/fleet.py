"""Fleets by each goal on eight racks, on 64, and on three generations with broken GPUs.

``python benchmarks/fleet.py`` prints a row for each cluster and goal: seconds, CPU seconds, status, gap, output
tokens per second, GPUs in use, and how much better than the best uniform plan it is: tokens per second, or for the
other goals tokens per second for each GPU in use (of one kind of GPU that is for each dollar and watt too).
DeepSeek-V3, prompts of 4,096 and answers of 1,024 tokens, 50 ms a token and 2 s to the first.
"""

from __future__ import annotations

import platform
import time
from dataclasses import replace

import numpy as np
import ortools

from cost.deployment import Deployment
from cost.pools import serving_workloads
from cost.resolve import resolve_model
from cost.workload import Workload
from placement.fleet.columns import Traffic
from placement.fleet.fleet import Fleet, make_fleet
from placement.fleet.options import GOALS, FleetOptions, Goal
from placement.fleet.uniform import Uniform, best_uniform
from topology import Cluster, build_cluster, resolve_cluster
from topology.spec import Fault

ISL, OSL = 4096, 1024
BROKEN = ("d0.n3.g1", "d4.n0.g2", "d9.n0.g0")


def three_generations() -> Cluster:
    """Two racks of GB200, six hosts of H200 and four of H100, each kind with a GPU out of service."""
    hosts = resolve_cluster("hgx-h100@32").spec
    domains = (
        *resolve_cluster("gb200-nvl72@144").spec.domains,
        *resolve_cluster("hgx-h200@48").spec.domains,
        *hosts.domains,
    )
    faults = tuple(Fault(gpu=gpu) for gpu in BROKEN)
    return build_cluster(replace(hosts, name="three generations", domains=domains, faults=faults))


def traffic(cluster: Cluster) -> Traffic:
    """Return what is served."""
    whole = Deployment(cluster, resolve_model("deepseek-v3"), Workload())
    decode, prefill = (replace(whole, workload=one) for one in serving_workloads(whole.workload, ISL, OSL))
    return Traffic(((decode, prefill),), (1.0,), ISL, OSL, 0.05, 2.0, None)


def better(fleet: Fleet, goal: Goal, uniform: Uniform | None) -> str:
    """How much better by its goal than the best uniform plan a fleet is; of unlike domains there may be none."""
    if uniform is None:
        return "no uniform pools"
    if goal == "throughput":
        return f"{fleet.tok_s / uniform.tok_s - 1:+.1%}"
    if len({domain.gpu.name for domain in fleet.cluster.spec.domains}) > 1:
        return "unlike GPUs"
    return f"{fleet.tok_s / fleet.gpus_used / (uniform.tok_s / uniform.gpus_used) - 1:+.1%}"


def main() -> None:
    """Print the table."""
    versions = f"NumPy {np.__version__}, OR-Tools {ortools.__version__}"
    print(f"Python {platform.python_version()}, {versions}, {platform.machine()}")
    print("| cluster | GPUs | goal | s | CPU s | status | gap | output tok/s | GPUs in use | over uniform |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    names = ("gb200-nvl72@576", "gb200-nvl72@4608")
    for cluster in (*map(resolve_cluster, names), three_generations()):
        asked = traffic(cluster)
        uniform = best_uniform(asked)
        for goal in GOALS:
            wall, cpu = time.perf_counter(), time.process_time()
            # prices are kept with a deployment: each row pays for its own
            fleet = make_fleet(cluster, traffic(cluster), FleetOptions(goal=goal))
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            row = (
                f"{wall:.1f} | {cpu:.1f} | {fleet.proof.status} | {fleet.proof.gap:.2%} | {fleet.tok_s:,.0f} | "
                f"{fleet.gpus_used:,} | {better(fleet, goal, uniform)}"
            )
            print(f"| {cluster.name} | {len(cluster.gpus):,} | {goal} | {row} |", flush=True)


if __name__ == "__main__":
    main()
