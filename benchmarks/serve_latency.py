"""Milliseconds of an answer under sliders: figures of the machine by random factors, everything priced again.

``python benchmarks/serve_latency.py`` prints the table of ``benchmarks/RESULTS.md``: CPU milliseconds in this
process, the median, the 95th percentile and the largest of ``--requests`` random positions, by part of the answer.
With ``--http`` the same positions are asked of ``rackplan serve``: wall milliseconds of whole answers.
"""

from __future__ import annotations

import argparse
import http.client
import json
import platform
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

import rackplan
from rackplan.report.results import of

if TYPE_CHECKING:
    from numpy.typing import NDArray

RACK = ("gb200-nvl72",)
FIVE = ("gb200-nvl72", "hgx-h200@72", "hgx-b200@72", "mi355x@72", "gb300-nvl72")
LENGTHS = {"isl": 8192, "osl": 1024}
CONTEXT = 4608
"""Tokens in the cache where a case says nothing of lengths: of prompts of 4,096 and half of 1,024."""
CASES: tuple[tuple[str, Sequence[str], dict[str, Any]], ...] = (
    ("deepseek-v3", RACK, {}),
    ("kimi-k2", RACK, {}),
    ("qwen3-235b-a22b", RACK, {}),
    ("llama-3.1-405b", RACK, {}),
    ("deepseek-v3", RACK, {"context": 131_072}),
    ("deepseek-v3", RACK, {"draft_tokens": 2}),
    ("deepseek-v3", RACK, {"phase": "prefill"}),
    ("deepseek-v3", RACK, LENGTHS),
    ("deepseek-v3", RACK, {**LENGTHS, "tpot_ms": 25.0, "ttft_ms": 3000.0}),
    ("qwen3-235b-a22b", RACK, LENGTHS),
    ("deepseek-v3", FIVE, {}),
    ("deepseek-v3", FIVE, LENGTHS),
)
SLIDERS = (
    "gpu.hbm_bytes_per_s",
    "gpu.flop_per_s",
    "scale-up.link_bytes_per_s",
    "scale-out.link_bytes_per_s",
)
LEAST, MOST = 0.5, 4.0
PARTS = ("resolve", "price", "document", "json", "whole")


def main() -> None:
    """Print a row a case."""
    options = argparse.ArgumentParser()
    options.add_argument("--requests", type=int, default=200)
    options.add_argument("--http", action="store_true")
    asked = options.parse_args()
    if asked.http:
        ask_server(asked.requests)
        return
    print(f"Python {platform.python_version()}, {platform.machine()}; {asked.requests} positions\n")
    print(f"| model | clusters | asked | {' | '.join(PARTS)} |")
    print(f"|---|---|---|{'---|' * len(PARTS)}")
    for number, (model, clusters, kw) in enumerate(CASES):
        rng = np.random.default_rng(number)
        answer(model, clusters, rng, kw)
        seconds = np.array([answer(model, clusters, rng, kw) for _ in range(asked.requests)]) * 1e3
        said = " ".join(f"{name} {value}" for name, value in kw.items()) or "decode"
        print(
            f"| {model} | {where_of(clusters)} | {said} | {' | '.join(map(shown, seconds.T))} |", flush=True
        )


def ask_server(requests: int) -> None:
    """Print a row a case of what ``rackplan serve`` answers, which has no drafts beside other phases."""
    print(
        f"Python {platform.python_version()}, {platform.machine()}; {requests} positions over HTTP, wall ms\n"
    )
    print("| model | clusters | asked | wall |")
    print("|---|---|---|---|")
    with server() as ask:
        for number, (model, clusters, kw) in enumerate(CASES):
            if "context" in kw or "phase" in kw:
                continue
            rng = np.random.default_rng(number)
            wanted = {"model": {"name": model}, "clusters": [{"name": name} for name in clusters]}
            wanted |= kw if "isl" in kw else {"serving": "decode", "isl": 4096, **kw}
            ask(wanted)
            ms = []
            for _ in range(requests):
                factors = dict(zip(("hbm", "flop", "up", "out"), positions(rng), strict=True))
                begun = time.perf_counter()
                ask({**wanted, "factors": factors})
                ms.append((time.perf_counter() - begun) * 1e3)
            said = " ".join(f"{name} {value}" for name, value in kw.items()) or "decode"
            print(f"| {model} | {where_of(clusters)} | {said} | {shown(np.array(ms))} |", flush=True)


@contextmanager
def server() -> Iterator[Callable[[dict[str, Any]], bytes]]:
    """Yield what asks a server of its own for a plot."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "rackplan", "serve", "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)  # noqa: S603 - ours

    def ask(wanted: dict[str, Any]) -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("POST", "/api/plot", json.dumps(wanted), {"content-type": "application/json"})
        found = connection.getresponse()
        body = found.read()
        if found.status != http.client.OK:
            raise SystemExit(f"{found.status}: {body[:500]!r}")
        return body

    try:
        for _ in range(600):
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                time.sleep(0.1)
        yield ask
    finally:
        process.terminate()
        process.wait()


def positions(rng: np.random.Generator) -> list[float]:
    """Return a random factor for each slider."""
    factors = np.exp(rng.uniform(np.log(LEAST), np.log(MOST), len(SLIDERS)))
    return [round(float(factor), 2) for factor in factors]


def where_of(clusters: Sequence[str]) -> str:
    """Return the cluster, or how many."""
    return clusters[0] if len(clusters) == 1 else f"{len(clusters)} of 72 GPUs"


def answer(model: str, clusters: Sequence[str], rng: np.random.Generator, kw: dict[str, Any]) -> list[float]:
    """Return seconds of each part of an answer at a random position of the sliders."""
    if not kw.keys() & {"isl", "context", "phase"}:
        kw = {"context": CONTEXT, **kw}  # else whole requests
    settings = {name: f"{factor:g}x" for name, factor in zip(SLIDERS, positions(rng), strict=True)}
    spent = np.zeros(len(PARTS))
    for cluster in clusters:
        at = [time.process_time()]
        made = rackplan.make_cluster(cluster, settings=settings)
        at.append(time.process_time())
        found: Any = rackplan.sweep(model, made, **kw)
        at.append(time.process_time())
        doc = of(found)
        at.append(time.process_time())
        json.dumps(None if doc is None else doc.data)
        at.append(time.process_time())
        spent += [*np.diff(at), at[-1] - at[0]]
    return [float(one) for one in spent]


def shown(ms: NDArray[np.float64]) -> str:
    """The median, the 95th percentile and the largest."""
    return f"{np.median(ms):.0f} / {np.percentile(ms, 95):.0f} / {ms.max():.0f}"


if __name__ == "__main__":
    main()
