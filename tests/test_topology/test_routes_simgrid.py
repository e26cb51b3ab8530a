"""Completion times beside a flow-level network simulator, where SimGrid and a C++ compiler are there."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEADER = Path("/usr/include/simgrid/s4u.hpp")


@pytest.mark.skipif(
    shutil.which("g++") is None or not HEADER.is_file(), reason="needs g++ and libsimgrid-dev (Debian)"
)
@pytest.mark.parametrize("name", ["random raw graph 2"])
def test_simgrid_agrees(name: str) -> None:
    ran = subprocess.run(
        [sys.executable, ROOT / "benchmarks/simgrid/compare.py", "--only", name],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    rows = [line.strip("| ").split(" | ") for line in ran.stdout.splitlines()[2:]]
    assert len(rows) == 7
    for _, pattern, _, ours, simulated, _ in rows:
        close = 0.05 if pattern in ("all-to-all", "ring", "permutation") else 0.10
        assert float(ours) == pytest.approx(float(simulated), rel=close), pattern
