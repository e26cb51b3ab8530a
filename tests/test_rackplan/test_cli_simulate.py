"""``rackplan simulate``: what it prints and writes, of a model, of plans and of traces, and limits out of reach."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

import rackplan
from cost.queueing.requests import ARRIVALS
from cost.queueing.simulation import ROUTERS
from helpers import Run, plan_of
from rackplan.requests import Arrivals, Router

LENGTHS = ("--isl", "2000", "--osl", "100")
LLAMA = ("--model", "llama-3.1-8b", "--cluster", "hgx-h100", *LENGTHS)

pytestmark = pytest.mark.usefixtures("few_requests")


@pytest.fixture
def plan(prepared: Run) -> str:
    """A plan of whole requests, in ``p``."""
    prepared(*plan_of("llama-3.1-8b", phase=None, to="p"), *LENGTHS)
    return "p"


def test_a_plan_is_simulated_as_placed_and_written(run: Run, plan: str, tmp_path: Path) -> None:
    first = run("simulate", plan, "--req-s", 10, "--seed", 3, "-o", "s", "--json")
    assert first.data["isl"] == 2000
    again = run("simulate", plan, "--req-s", 10, "--seed", 3, "-o", "s", "--json")
    assert first.out == again.out
    assert json.loads((tmp_path / "s/simulate.json").read_text()) == json.loads(first.out)
    assert "Queue and batch" in (tmp_path / "s/report.html").read_text()
    details = run("simulate", plan, "--concurrency", 8, "--details").out
    assert "8 users" in details
    assert "8,192 tokens per step" in details


def test_a_trace_shares_its_prefixes(run: Run, plan: str, tmp_path: Path) -> None:
    same = {"input_length": 2000, "output_length": 20}
    rows = [{"timestamp": 50 * at, **same, "hash_ids": [at % 4, 9, 9, 1000 + at]} for at in range(200)]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    data = run("simulate", plan, "--trace", "t.jsonl", "--router", "prefix", "--json").data
    assert data["requests"] == data["requests_counted"] == 200
    assert data["requests_per_s"] == pytest.approx(20)
    assert 0.5 < data["prefix_hit"] < 0.8
    assert data["low_max_requests_per_s"] == data["high_max_requests_per_s"]
    faster = run("simulate", plan, "--trace", "t.jsonl", "--speed", 2, "--json").data
    assert faster["requests_per_s"] == pytest.approx(40)


def test_python_gives_a_frame_of_requests() -> None:
    found = rackplan.simulate(model="llama-3.1-8b", cluster="hgx-h100", concurrency=4, isl=500, osl=50)
    rows = found.columns()
    assert list(found.to_frame()["ttft_s"]) == rows["ttft_s"].tolist()
    assert rows["ttft_s"] == pytest.approx(rows["first_s"] - rows["arrival_s"])
    # four users: never more than four requests at once
    change = np.repeat([1, -1], len(rows["done_s"]))
    order = np.lexsort((change, np.concatenate([rows["arrival_s"], rows["done_s"]])))
    assert change[order].cumsum().max() == 4
    assert "4 users" in repr(found)


def test_limits_out_of_reach_are_no_answer(run: Run, plan: str) -> None:
    found = run("simulate", plan, "--req-s", 1, "--ttft-p99-ms", 5)
    assert found.code == 3
    assert "no rate meets 5 ms to the first token" in found.err
    assert "Times, waiting included" in found.out


def test_words_of_options_are_those_of_the_simulation() -> None:
    assert get_args(Router) == ROUTERS
    assert get_args(Arrivals) == ARRIVALS


def test_a_trace_too_short_to_find_a_rate_says_so(run: Run, tmp_path: Path) -> None:
    rows = "".join(f"{at},900,5\n" for at in (0, 500, 1500))
    (tmp_path / "short.csv").write_text("timestamp,input_length,output_length\n" + rows)
    done = run("simulate", "--model", "llama-3.1-8b", "--cluster", "hgx-h100", "--trace", "short.csv")
    assert done.code == 0
    assert "These 3 requests keep the limits at any rate; use a longer trace." in " ".join(done.out.split())
