"""Layer-to-layer affinity of any file of transitions: what a token crosses, and what it must.

``python benchmarks/affinity.py FILE.npz --gpus N [--group GPUS:PRICE]... [--seed N] [--json]``. FILE has
``transitions`` ``[hops, experts, experts]`` and ``tokens``. A change of GPU costs 1; with ``--group 4:5`` one that
leaves its group of four GPUs (a node, a domain) costs 5. CPU seconds of this process.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from cost.traces.transitions import read_transitions
from placement.traffic.layer_affinity import even_slots, place_layers
from placement.traffic.tiers import Tiers
from topology.errors import InputError, RackplanError


def group(text: str) -> tuple[int, float]:
    """Read ``GPUS:PRICE``."""
    try:
        size, price = text.split(":")
        return int(size), float(price)
    except ValueError as error:
        raise InputError(f"--group {text!r}: expected GPUS:PRICE, such as 8:10.") from error


def main(arguments: list[str] | None = None) -> None:
    """Print cost, bound and seconds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--gpus", type=int, required=True)
    parser.add_argument("--group", action="append", default=[], metavar="GPUS:PRICE", help="narrowest first")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    begin = time.process_time()
    transitions = read_transitions(given.file)
    slots = even_slots(transitions.experts, given.gpus)
    tiers = Tiers.even(given.gpus, [group(text) for text in given.group])
    found = place_layers(transitions, slots, tiers, seed=given.seed)
    data = {
        "cost": found.cost,
        "bound": found.bound,
        "gap": found.gap,
        "status": found.status,
        "seconds": time.process_time() - begin,
        "contiguous": found.contiguous,
        "swept": found.swept,
        "experts_per_gpu": sorted({int(n) for n in slots}),
        "gpu": found.gpu.tolist(),
    }
    if given.json:
        print(json.dumps(data))
        return
    shape = f"{transitions.layers} layers of {transitions.experts} experts on {given.gpus} GPUs"
    if slots.min() != slots.max():
        shape += f", {slots.min()} or {slots.max()} of a layer on each (they do not divide evenly)"
    print(shape)
    print(f"cost        {found.cost:.5f} a token over all hops ({found.status}, gap {found.gap:.1%})")
    print(f"bound       {found.bound:.5f}")
    print(f"contiguous  {found.contiguous:.5f}; exact sweeps alone {found.swept:.5f}")
    print(f"seconds     {data['seconds']:.1f} CPU")


if __name__ == "__main__":
    try:
        main()
    except RackplanError as error:
        print(f"affinity.py: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
