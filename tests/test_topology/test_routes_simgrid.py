"""Completion times beside a flow-level network simulator, where SimGrid and a C++ compiler are there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PATTERNS = ("ring", "zipf", "lognormal:0.63", "sparse")
HEADER = Path("/usr/include/simgrid/s4u.hpp")


@pytest.mark.wide
@pytest.mark.skipif(
    shutil.which("g++") is None or not HEADER.is_file(), reason="needs g++ and libsimgrid-dev (Debian)"
)
@pytest.mark.parametrize("name", ["tori 2x2x2 behind 4:1"])
def test_simgrid_agrees(name: str) -> None:
    ran = subprocess.run(
        [sys.executable, ROOT / "benchmarks/simgrid/compare.py", "--only", name, "--patterns", *PATTERNS],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    lines = ran.stdout.split("\n\n")[0].splitlines()[2:]
    rows = [line.strip("| ").split(" | ") for line in lines]
    assert len(rows) == len(PATTERNS)
    for _, pattern, _, bound, fair, simulated, *_ in rows:
        assert float(fair) == pytest.approx(float(simulated), rel=0.01), pattern
        assert float(bound) <= float(simulated) * 1.001, pattern
    assert min(float(row[3]) / float(row[5]) for row in rows) < 0.95  # here the two times differ
