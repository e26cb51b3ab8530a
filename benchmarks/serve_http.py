"""Milliseconds of CPU that the local page's server spends on an answer under sliders, asked over HTTP.

``python benchmarks/serve_http.py`` starts ``rackplan serve`` and asks for random positions of all five sliders, one
after the other; Linux alone, as the CPU time is that of the server's process.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

import numpy as np

RACK = ({"name": "gb200-nvl72"},)
FIVE = tuple({"name": name} for name in ("gb200-nvl72", "hgx-h200", "hgx-b200", "mi355x", "gb300-nvl72"))
CASES = (
    ("one cluster", RACK, False),
    ("five clusters", FIVE, False),
    ("one cluster, both pools", RACK, True),
)
SLIDERS = ("hbm", "flop", "up", "out", "price")


def main() -> None:
    """Print a row a case."""
    options = argparse.ArgumentParser()
    options.add_argument("--requests", type=int, default=200)
    count = options.parse_args().requests
    command = [sys.executable, "-m", "rackplan", "serve", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - this Python
        assert process.stdout is not None
        found = re.search(r"http://\S+", process.stdout.readline())
        assert found is not None
        for name, clusters, pools in CASES:
            rng = np.random.default_rng(1)
            asked = {"clusters": clusters, "pools": pools}
            ask(found[0], asked)
            spent = []
            for _ in range(count):
                factors = {slider: round(float(2 ** rng.uniform(-1, 2)), 2) for slider in SLIDERS}
                before = cpu_s(process.pid)
                size = ask(found[0], {**asked, "factors": factors})
                spent.append(1e3 * (cpu_s(process.pid) - before))
            figures = f"{np.median(spent):.0f} / {np.percentile(spent, 95):.0f} / {max(spent):.0f} ms"
            print(f"{name}: {figures} (median / 95th percentile / largest), {size:,} bytes", flush=True)
        process.terminate()


def ask(address: str, question: dict[str, object]) -> int:
    """Return the bytes of an answer."""
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(f"{address}api/plot", json.dumps(question).encode(), headers)  # noqa: S310
    with urllib.request.urlopen(request) as answer:  # noqa: S310
        return len(answer.read())


def cpu_s(process: int) -> float:
    """Return seconds of CPU that a process has spent."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
