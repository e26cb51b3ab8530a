"""How many points per second a study prices: single layouts and sweeps, on one worker and two, and on Ray.

``python benchmarks/study.py [--points 10000] [--sweeps 1000] [--engines local:1 local:2 ray:2]``; needs
``rackplan[study]``, and ``rackplan[ray]`` for Ray. Prints wall and CPU seconds of the whole command, start included.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow.parquet as pq

SCORE = """\
kind: score
fixed: {{model: deepseek-v3, cluster: gb200-nvl72}}
sample: {{points: {points}, seed: 1, context: [512, 32768], batch: [1, 128], ep: [24, 36, 72], tp: [1, 2, 4]}}
"""
SWEEP = """\
kind: sweep
fixed: {{model: deepseek-v3, cluster: gb200-nvl72}}
sample:
  points: {points}
  seed: 1
  context: [1024, 16384]
  tpot_ms: [15.0, 60.0]
  set.gpu.hbm_bytes_per_s: [0.5x, 2x]
"""


def main() -> None:
    """Run each study on each engine."""
    options = argparse.ArgumentParser()
    options.add_argument("--points", type=int, default=10_000)
    options.add_argument("--sweeps", type=int, default=1_000)
    options.add_argument("--engines", nargs="+", default=["local:1", "local:2", "ray:2"])
    asked = options.parse_args()
    print("study    engine   points  wall s   CPU s  CPU s of points  points/s")
    with tempfile.TemporaryDirectory() as name:
        for kind, text, points in (("score", SCORE, asked.points), ("sweep", SWEEP, asked.sweeps)):
            study = Path(name) / f"{kind}.yaml"
            study.write_text(text.format(points=points), encoding="utf-8")
            for engine in asked.engines if points else ():
                which, _, workers = engine.partition(":")
                folder = Path(name) / f"{kind}-{which}-{workers}"
                command = [sys.executable, "-m", "rackplan", "study", str(study), "-o", str(folder)]
                before = resource.getrusage(resource.RUSAGE_CHILDREN)
                begun = time.perf_counter()
                with Path(os.devnull).open("wb") as nowhere:
                    subprocess.run(  # noqa: S603 - this program
                        [*command, "--engine", which, "--workers", workers], check=True, stdout=nowhere
                    )
                wall = time.perf_counter() - begun
                after = resource.getrusage(resource.RUSAGE_CHILDREN)
                cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
                rows = pq.read_table(folder / "results", columns=["cpu_s", "seconds"])
                inside = sum(rows.column("cpu_s").to_pylist())
                many = rows.num_rows
                print(
                    f"{kind:8} {engine:8} {many:6} {wall:7.1f} {cpu:7.1f} {inside:16.1f} {many / wall:9.1f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
