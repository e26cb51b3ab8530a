"""``compare``, ``size``, ``sweep``, ``traffic`` and ``simulate``: figures add up, and files hold them."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest

import rackplan
from helpers import PLAN, Run, plan_of
from page_check import Page

MIXTRAL = ("--model", "mixtral-8x7b")
SIZE = ("size", *MIXTRAL, "--cluster", "hgx-h100")
DECODE = (*SIZE, "--context", "4096")
LENGTHS = ("--isl", "2000", "--osl", "100")

pytestmark = pytest.mark.usefixtures("few_joined", "few_requests")


def test_where_nobody_can_the_rows_still_say_why(run: Run) -> None:
    result = run("compare", "hgx-h100", "--model", "deepseek-v3", "--json")
    assert (result.code, result.data["rows"][0]["tok_s_per_gpu"]) == (3, None)
    assert "HBM capacity binds" in result.data["rows"][0]["reason"]


def test_equal_power_is_whole_domains_within_it(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ("compare", "hgx-h100", "hgx-h200", *MIXTRAL, "--mw", 0.1)
    whole = run(*asked, "--json").data["rows"]
    monkeypatch.setattr("cost.money.budget.MAX_JOINED_GPUS", 16)
    data = run(*asked, "--json").data
    for row, other in zip(data["rows"], whole, strict=True):
        assert row["gpus"] % 8 == 0
        assert row["power_w"] <= 1e5 < row["power_w"] * (row["gpus"] + 8) / row["gpus"]
        assert (row["cluster"], row["gpus"]) == (other["cluster"], other["gpus"])
        assert row["tok_s_per_gpu"] == pytest.approx(other["tok_s_per_gpu"], rel=0.2)
    data = run("compare", "hgx-h100", *MIXTRAL, "--usd-h", 1, "--json").data
    assert (data["rows"][0]["cluster"], data["rows"][0]["gpus"]) == ("hgx-h100", 8)


def test_the_root_is_the_cheapest_or_what_a_budget_serves_most_with(run: Run) -> None:
    asked = (*DECODE, "--cluster", "gb200-nvl72")
    data = run(*asked, "--mw", "0.32", "--json").data
    few, most = data["clusters"]
    assert few["tok_s"] < most["tok_s"] == data["tok_s"]
    assert few["gpus"] > most["gpus"]
    fleets = run(*asked, "--tok-s", "100k", "--json").data
    prices = [fleet["usd_per_million_tokens"] for fleet in fleets["clusters"]]
    assert fleets["usd_per_million_tokens"] == min(prices)


def test_a_sweep_has_the_page_the_data_and_every_row(run: Run, tmp_path: Path) -> None:
    assert run("sweep", *SIZE[1:], "--isl", 900, "--osl", 100, "-o", "out").code == 0
    folder = tmp_path / "out"
    assert sorted(path.name for path in folder.iterdir()) == ["report.html", "sweep.csv", "sweep.json"]
    data = json.loads((folder / "sweep.json").read_text())
    rows = list(csv.DictReader(io.StringIO((folder / "sweep.csv").read_text(encoding="utf-8"))))
    assert len(rows) == sum(phase["configurations"] for phase in data["phases"])
    best = max(data["layouts"], key=lambda row: row["tok_s_per_gpu"])
    assert str(best["step_s"]) in {row["step_s"] for row in rows}
    text = (folder / "report.html").read_text(encoding="utf-8")
    charts = Page(text).charts
    assert set(charts) == {"chart-throughput-against-speed-per-user", "chart-steps-by-part"}
    best = charts["chart-throughput-against-speed-per-user"]["data"][-1]["y"]
    assert best == pytest.approx([data["tok_s_per_gpu"]], rel=1e-5)
    assert "rackplan sweep --model mixtral-8x7b --cluster hgx-h100 --isl 900 --osl 100 -o out" in text


def test_traffic_by_hand(run: Run) -> None:
    data = run("traffic", "gb200-nvl72@144", "--bytes-per-gpu", 143e6, "--json").data
    assert data["completion_s"] == pytest.approx(72e6 / 50e9 + 9e-6)
    assert data["bytes"] == pytest.approx(144 * 143e6)
    assert data["bottleneck"]["link"] == "d0.n0.g0 -> f.p0.l0"
    assert data["tiers"][1]["bytes"] == pytest.approx(144 * 72e6)
    assert data["bytes_per_s_per_gpu"] == pytest.approx(143e6 / data["completion_s"])
    assert data["bound_s"] == pytest.approx(data["completion_s"])
    assert len(data["bottlenecks"]) == 3 * 144  # uplinks of the leaves are as busy as the NICs
    assert {row["seconds"] for row in data["bottlenecks"]} == {data["bottleneck"]["seconds"]}


def test_a_matrix_of_times_in_the_order_of_a_plan(run: Run, prepared: Run, tmp_path: Path) -> None:
    layout = ("--cluster", "hgx-h100@16", "--ep", "16", "--stages", "1")
    prepared(*PLAN[:-2], "--batch", "2", "--redundant", "8", *layout, "-o", "plan")
    ranks = [rank["gpu_id"] for rank in run("export", "plan", "--to", "sglang", "--json").data["ranks"]]
    asked = ("traffic", "plan", "--matrix", "cost.json", "--bytes-per-gpu", "45 GB")
    assert run(*asked, "--json").data["matrix"] == "cost.json"
    written = json.loads((tmp_path / "cost.json").read_text())
    assert written["gpus"] == ranks
    assert written["rank_cost_matrix"][0][1] == pytest.approx(0.1 + 1e-6)
    assert written["bytes_per_s"][0][1] == pytest.approx(450e9)
    assert run(*asked).code == 2  # a file that exists is left alone


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
    slow = run("simulate", plan, "--req-s", 1, "--ttft-p99-ms", 5)
    assert (slow.code, "no rate meets 5 ms" in slow.err, "Times, waiting" in slow.out) == (3, True, True)


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
    simulated = rackplan.simulate(model="llama-3.1-8b", cluster="hgx-h100", concurrency=4, isl=500, osl=50)
    rows = simulated.columns()
    assert list(simulated.to_frame()["ttft_s"]) == rows["ttft_s"].tolist()
    assert rows["ttft_s"] == pytest.approx(rows["first_s"] - rows["arrival_s"])
    # four users: never more than four requests at once
    change = np.repeat([1, -1], len(rows["done_s"]))
    order = np.lexsort((change, np.concatenate([rows["arrival_s"], rows["done_s"]])))
    assert change[order].cumsum().max() == 4
