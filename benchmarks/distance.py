"""Placement by load times distance, proven optimal: experts nearest to where each layer's tokens are.

``python benchmarks/distance.py [LOADS] [--cluster NAME] [--per-layer N] [--unit hops|seconds] [--json]``. LOADS is
an ``.npy`` ``[layers, experts]``; without it lognormal loads of 58 layers of 256 experts. Layer ``l`` starts from the
GPUs of one node, in turn. CPU seconds of this process.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np

from cost.traces.arrays import npy_array
from placement.traffic.distance import gpu_distances, place_by_distance
from topology import resolve_cluster
from topology.errors import RackplanError


def main() -> None:
    """Print cost, bound, baselines and seconds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("loads", type=Path, nargs="?")
    parser.add_argument("--cluster", default="hgx-h100@256")
    parser.add_argument("--per-layer", type=int, default=2)
    parser.add_argument("--unit", choices=("hops", "seconds"), default="hops")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if given.loads:
        loads = npy_array(given.loads).whole()
    else:
        loads = np.rint(np.random.default_rng(0).lognormal(8.0, 0.63, (58, 256)))
    begin = time.process_time()
    cluster = resolve_cluster(given.cluster)
    distance = gpu_distances(cluster, given.unit)
    nodes = list(dict.fromkeys(gpu.node for gpu in cluster.gpus))
    at = np.array([nodes.index(gpu.node) for gpu in cluster.gpus])
    # mean over the GPUs of the node that a layer's tokens start from
    far = np.stack([distance[at == layer % len(nodes)].mean(axis=0) for layer in range(len(loads))])
    routed = time.process_time() - begin
    found = place_by_distance(loads, far, per_layer=given.per_layer)
    data = {
        "cost": found.cost,
        "bound": found.bound,
        "status": found.status,
        "contiguous": found.contiguous,
        "round_robin": found.round_robin,
        "routes_seconds": routed,
        "seconds": time.process_time() - begin,
    }
    if given.json:
        print(json.dumps(data))
        return
    layers, experts = loads.shape
    print(
        f"{layers} layers of {experts} experts on {len(cluster.gpus)} GPUs of {given.cluster}, mean {given.unit}:"
    )
    for name in ("cost", "bound", "contiguous", "round_robin"):
        value = data[name]
        print(f"{name:12} {'breaks a limit' if value is None else format(value / loads.sum(), '.6g')}")
    print(f"{found.status} in {data['seconds']:.1f} CPU seconds, {routed:.1f} of them for routes")


if __name__ == "__main__":
    try:
        main()
    except RackplanError as error:
        print(f"distance.py: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
