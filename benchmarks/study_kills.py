"""Kill studies at random moments, the parent, a worker or both, go on, and compare rows with an undisturbed run.

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
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from rackplan.studies.columns import WHEN
from rackplan.studies.store import journal_rows, parts

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


def rows(folder: Path) -> pa.Table:
    """Return the rows of a finished study without times, in the order in which they lie there."""
    return pq.read_table(folder / "results").drop_columns(WHEN)


def on_disk(folder: Path) -> set[str]:
    """Return the digests of the points that a folder holds, none of them twice in its dataset."""
    parted = [row["digest"] for part in parts(folder) for row in pq.read_table(part).to_pylist()]
    assert len(parted) == len(set(parted)), "a row stands twice"
    return {*parted, *(row["digest"] for row in journal_rows(folder)[0])}


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
        print(f"undisturbed: {whole.num_rows} rows in {took:.1f} s")
        safe: set[str] = set()
        folder, kills, finished, said = base / "out-0", 0, 0, Counter[str]()
        while kills < asked.kills:
            run = begin(study, folder)
            soon = chance.random() < 0.3  # twice in a row: while it begins, and tidies up after the last kill
            end = time.perf_counter() + (chance.uniform(0.05, 1.5) if soon else chance.uniform(0.2, took))
            while run.poll() is None and time.perf_counter() < end:
                time.sleep(0.01)
            if run.poll() is None:
                victims = children(run.pid)
                what = chance.choice(["parent", "parent", "worker", "both"] if victims else ["parent"])
                chosen = [] if what == "parent" else [chance.choice(victims)]
                for victim in [*chosen, *([] if what == "worker" else [run.pid])]:
                    with suppress(ProcessLookupError):
                        os.kill(victim, signal.SIGKILL)
                kills += 1
                said[what] += 1
            run.wait()
            now = on_disk(folder)
            assert safe <= now, "a row that was on disk is lost"
            safe = now
            if run.returncode == 0:
                assert rows(folder).equals(whole), "rows differ"
                safe = set()
                left = {path.name for path in folder.iterdir()} - {"journal", "results", "study.json"}
                left = {
                    name for name in left if not name.startswith(".rackplan-")
                }  # of a kill: never looked at
                assert not left, left
                finished += 1
                folder = base / f"out-{finished}"
            elif run.returncode != -signal.SIGKILL:
                raise SystemExit((run.stderr.read() if run.stderr else b"").decode())
        assert begin(study, folder).wait() == 0
        assert rows(folder).equals(whole)
        print(f"{kills} kills ({dict(said)}), {finished + 1} studies finished: the same rows as undisturbed")


if __name__ == "__main__":
    main()
