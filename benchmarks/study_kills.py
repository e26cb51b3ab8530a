"""Kill studies at random moments, the parent or a worker, go on, and compare the rows with an undisturbed run.

``python benchmarks/study_kills.py [--kills 50] [--seed 0]``; needs ``rackplan[study]`` and Linux.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq

STUDY = """\
kind: score
limit_s: 60
fixed: {model: deepseek-v3, cluster: gb200-nvl72}
grid:
  context: [1024, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768]
  batch: [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512]
  ep: [8, 12, 18, 24, 36, 72]
  tp: [1, 2, 4]
"""
TIMES = {"seconds", "cpu_s", "host", "finished"}


def begin(study: Path, folder: Path) -> subprocess.Popen[bytes]:
    """Start a run of the study."""
    command = [
        sys.executable,
        "-m",
        "rackplan",
        "study",
        str(study),
        "-o",
        str(folder),
        "--workers",
        "2",
        "--json",
    ]
    with Path(os.devnull).open("wb") as nowhere:
        return subprocess.Popen(  # noqa: S603 - this program
            command, stdout=nowhere, stderr=subprocess.PIPE, start_new_session=True
        )


def children(of: int) -> list[int]:
    """Return the processes below one."""
    try:
        texts = [path.read_text(encoding="ascii") for path in Path(f"/proc/{of}/task").glob("*/children")]
    except OSError:
        return []
    found = [int(one) for text in texts for one in text.split()]
    return found + [below for one in found for below in children(one)]


def rows(folder: Path) -> dict[str, dict[str, object]]:
    """Return the rows by digest, without times."""
    found = {}
    for row in pq.read_table(folder / "results").to_pylist():
        assert row["digest"] not in found, "a row stands twice"
        found[row["digest"]] = {name: value for name, value in row.items() if name not in TIMES}
    return found


def main() -> None:
    """Run, kill, compare."""
    options = argparse.ArgumentParser()
    options.add_argument("--kills", type=int, default=50)
    options.add_argument("--seed", type=int, default=0)
    asked = options.parse_args()
    chance = random.Random(asked.seed)
    with tempfile.TemporaryDirectory() as name:
        base = Path(name)
        study = base / "study.yaml"
        study.write_text(STUDY, encoding="utf-8")
        begun = time.perf_counter()
        assert begin(study, base / "whole").wait() == 0
        took = time.perf_counter() - begun
        whole = rows(base / "whole")
        print(f"undisturbed: {len(whole)} rows in {took:.1f} s")
        folder, kills, finished, said = base / "out-0", 0, 0, Counter[str]()
        while kills < asked.kills:
            run = begin(study, folder)
            end = time.perf_counter() + chance.uniform(0.2, took)
            while run.poll() is None and time.perf_counter() < end:
                time.sleep(0.01)
            if run.poll() is None:
                victims = children(run.pid)
                worker = chance.random() < 0.4 and victims
                victim = chance.choice(victims) if worker else run.pid
                try:
                    os.kill(victim, signal.SIGKILL)
                except ProcessLookupError:
                    continue
                kills += 1
                said["worker" if worker else "parent"] += 1
                if worker:
                    run.wait()
            if run.poll() is None:
                run.wait()
            if run.returncode == 0:
                assert rows(folder) == whole, "rows differ"
                left = {path.name for path in folder.iterdir()} - {"journal", "results", "study.json"}
                assert not left, left
                finished += 1
                folder = base / f"out-{finished}"
            elif run.returncode != -signal.SIGKILL:
                raise SystemExit((run.stderr.read() if run.stderr else b"").decode())
        assert begin(study, folder).wait() == 0
        assert rows(folder) == whole
        print(f"{kills} kills ({dict(said)}), {finished + 1} studies finished: the same rows as undisturbed")


if __name__ == "__main__":
    main()
