"""Time and memory of building clusters and routing traffic on them, each in a process of its own.

``python benchmarks/traffic.py`` prints the table of ``benchmarks/RESULTS.md``.
"""

from __future__ import annotations

import json
import platform
import resource
import subprocess
import sys
import tempfile
import time
from math import log
from pathlib import Path

FABRICS = {
    "leaf-spine 8:1": "kind: leaf-spine, oversubscription: 8, nodes_per_leaf: 4, spines: 4",
    "fat tree": "kind: fat-tree, nodes_per_leaf: 4, leaves_per_pod: 32, spines: 32, cores: 1024",
    "small pods": "kind: fat-tree, nodes_per_leaf: 4, leaves_per_pod: 8, spines: 8, cores: 64",
    "dragonfly": "kind: dragonfly, nodes_per_router: 8, routers_per_group: 16, local_links: 4, radix: 256",
    "faults": "kind: rail",
}
FAMILIES = {
    "rails": ("hgx-h100@16384", "hgx-h100@100000"),
    "rails, faults": ("faults@16384", "faults@100000"),
    "NVL72": ("gb200-nvl72@16384", "gb200-nvl72@100800"),
    "CloudMatrix": ("cm384@16128", "cm384@99840"),
    "meshes": ("mi300x@16384", "mi300x@100000"),
    "twin NICs": ("b300@16384", "b300@100000"),
    "leaf-spine": ("leaf-spine 8:1@16384", "leaf-spine 8:1@100000"),
    "fat tree": ("fat tree@16384", "fat tree@100000"),
    "fat tree of small pods": ("small pods@16384", "small pods@100000"),
    "dragonfly": ("dragonfly@16384", "dragonfly@100000"),
    "torus": ("torus 16x32x32", "torus 40x50x50"),
}
PATTERNS = ("all-to-all", "ring", "incast", "permutation")


def main() -> None:
    """Print one row a cluster, and the exponents of each family: how seconds grow with GPUs."""
    if len(sys.argv) > 1:
        print(json.dumps(measure(sys.argv[1])))
        return
    print(f"Python {platform.python_version()}, {platform.machine()}\n")
    head = ["cluster", "GPUs", "directed links", "links s", "routes s"]
    print_row([*head, *(f"{name} s" for name in PATTERNS), "MB"])
    print_row(["---"] * (len(head) + len(PATTERNS) + 1))
    exponents = []
    for family, names in FAMILIES.items():
        rows = []
        for name in names:
            ran = subprocess.run(  # noqa: S603 - this file itself
                [sys.executable, __file__, name], capture_output=True, text=True, check=True
            )
            rows.append(json.loads(ran.stdout))
            gpus, links, *seconds, peak_mb = rows[-1]
            print_row(
                [name, f"{gpus:,}", f"{links:,}", *(f"{value:.2f}" for value in seconds), f"{peak_mb:.0f}"]
            )
        (few, _, *fast, _), (many, _, *slow, _) = rows
        grown = [log(max(b, 0.01) / max(a, 0.01)) / log(many / few) for a, b in zip(fast, slow, strict=True)]
        exponents.append([family, *(f"{value:.1f}" for value in grown)])
    print()
    print_row(["seconds grow with GPUs to the power of", *head[3:], *PATTERNS])
    print_row(["---"] * len(exponents[0]))
    for row in exponents:
        print_row(row)


def print_row(cells: list[str]) -> None:
    """Print a row of a table."""
    print(f"| {' | '.join(cells)} |", flush=True)


def measure(name: str) -> list[float]:
    """Return GPUs, directed links, CPU seconds to lay links, make routes and route each pattern, and MB of memory."""
    from topology import resolve_cluster
    from topology.routes import Router, pattern_traffic

    start = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        cluster = resolve_cluster(cluster_file(Path(folder), name))
    links = 2 * len(cluster.wiring.a)
    seconds = [time.process_time() - start]
    start = time.process_time()
    router = Router(cluster)
    seconds.append(time.process_time() - start)
    for pattern in PATTERNS:
        start = time.process_time()
        router.loads(pattern_traffic(pattern, len(cluster.gpus), 1e9))
        seconds.append(time.process_time() - start)
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    return [len(cluster.gpus), links, *seconds, peak_mb]


def cluster_file(folder: Path, name: str) -> str:
    """Return the name of a cluster, or of a file that describes it."""
    kind, _, size = name.partition("@")
    path = folder / "cluster.yaml"
    if name.startswith("torus "):
        shape = name.removeprefix("torus ").replace("x", ", ")
        row = f"gpu: tpu-v5p, structure: torus, shape: [{shape}], wrap: true, link: 100 GB/s"
        path.write_text(f"domains: [{{{row}}}]\n", encoding="utf-8")
    elif kind in FABRICS:
        fabric = f"fabric: {{nic: 400 Gb/s, {FABRICS[kind]}}}\n"
        links = "{link: [f.p3.l5, f.s1]}, {link: [d0.n0.g3, d0.s1]}, {link: [d5.n0.g2, f.p0.l2]}"
        broken = f"broken: [{links}]\n" if kind == "faults" else ""
        domains = f"domains: [{{part: hgx-h100, count: {int(size) // 8}}}]\n"
        path.write_text(domains + fabric + broken, encoding="utf-8")
    else:
        return name
    return str(path)


if __name__ == "__main__":
    main()
