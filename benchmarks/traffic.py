"""Time and memory of laying clusters and routing traffic on them, each in a process of its own.

``python benchmarks/traffic.py`` prints the table of ``benchmarks/RESULTS.md``.
"""

from __future__ import annotations

import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CLUSTERS = (
    "hgx-h100",
    "gb200-nvl72",
    "gb200-nvl72@576",
    "rubin-576",
    "gb200-nvl72@4608",
    "gb200-nvl72@16384",
    "hgx-h100@4608",
    "hgx-h100@16384",
    "mi300x@16384",
    "cm384@16128",
    "hgx-h100@100000",
    "gb200-nvl72@100800",
    "mi300x@100000",
    "cm384@99840",
    "torus 8x8x9",
    "torus 16x16x18",
    "torus 16x32x32",
)
PATTERNS = ("all-to-all", "ring", "incast", "permutation")


def main() -> None:
    """Print one row a cluster."""
    if len(sys.argv) > 1:
        print(row(sys.argv[1]))
        return
    print(f"Python {platform.python_version()}, {platform.machine()}\n")
    head = [
        "cluster",
        "GPUs",
        "directed links",
        "links s",
        "routes s",
        *(f"{name} s" for name in PATTERNS),
        "MB",
    ]
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for name in CLUSTERS:
        ran = subprocess.run(  # noqa: S603 - this file itself
            [sys.executable, __file__, name], capture_output=True, text=True, check=True
        )
        print(ran.stdout.strip(), flush=True)


def row(name: str) -> str:
    """Build and route one cluster; return its line of the table."""
    from topology import resolve_cluster
    from topology.routes import Router, pattern_traffic

    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        text = str(torus_file(Path(folder), name)) if name.startswith("torus ") else name
        cluster = resolve_cluster(text)
    links = 2 * len(cluster.wiring.a)
    built = time.perf_counter()
    router = Router(cluster)
    seconds = [built - start, time.perf_counter() - built]
    for pattern in PATTERNS:
        begin = time.perf_counter()
        router.loads(pattern_traffic(pattern, len(cluster.gpus), 1e9))
        seconds.append(time.perf_counter() - begin)
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    cells = [
        name,
        f"{len(cluster.gpus):,}",
        f"{links:,}",
        *(f"{value:.2f}" for value in seconds),
        f"{peak_mb:.0f}",
    ]
    return f"| {' | '.join(cells)} |"


def torus_file(folder: Path, name: str) -> Path:
    """Write a torus larger than any that is sold."""
    shape = name.removeprefix("torus ").split("x")
    path = folder / "torus.yaml"
    row = f"gpu: tpu-v5p, structure: torus, shape: [{', '.join(shape)}], wrap: true, link: 100 GB/s"
    path.write_text(f"domains: [{{{row}}}]\n", encoding="utf-8")
    return path


if __name__ == "__main__":
    main()
