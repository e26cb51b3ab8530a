"""``compare``, ``size``, ``sweep``, ``traffic`` and ``simulate``: figures add up, and files hold them."""

from __future__ import annotations

import csv
import io
import json
import math
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


def test_shares_are_of_the_row_and_beside_the_first_cluster(run: Run) -> None:
    data = run("compare", "hgx-h100", "mi350x", *MIXTRAL, "--json").data
    first, second = data["rows"]
    shares = {"gpu": first["gpus"], "mw": first["power_w"] / 1e6, "usd_h": first["usd_per_hour"]}
    for by, amount in shares.items():
        assert first[f"tok_s_per_{by}"] == pytest.approx(first["tok_s"] / amount)
        assert first[f"requests_per_s_per_{by}"] == pytest.approx(first["requests_per_s"] / amount)
    ratio = second["tok_s_per_gpu_ratio"]
    assert ratio == pytest.approx(second["tok_s_per_gpu"] / first["tok_s_per_gpu"])
    assert second["tok_s_per_usd_h_ratio"] is None
    assert any("no rental price" in note["text"] for note in data["notes"] if note["about"] == "usd_per_hour")
    assert all(gain["gain_factor"] == pytest.approx(ratio) for gain in data["gains"])


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


def test_a_size_adds_up(run: Run) -> None:
    data = run(*SIZE, "--tok-s", "1M", "--utilization", "0.5", "--spares", "2", "--json").data
    assert data["peak_tok_s"] == 2e6
    assert (data["tpot_limit_s"], data["default_limits"]) == (0.05, ["tpot_s", "ttft_s"])
    *fewer, this, larger = data["levels"]
    assert [level["level"] for level in data["levels"]] == [*["smaller"] * len(fewer), "this", "larger"]
    assert this["tok_s"] == data["tok_s"] >= 2e6 > fewer[-1]["tok_s"]
    assert larger["gpus"] > data["gpus"] == this["gpus"] == 8 * data["domains"]
    assert data["domains"] == data["units"] + 2 == fewer[-1]["domains"] + 1
    assert data["racks"] == math.ceil(data["domains"] / 4)
    assert data["tok_s_per_gpu"] == pytest.approx(data["tok_s"] / (8 * data["units"]))
    assert data["usd_per_million_tokens"] == pytest.approx(data["usd_per_hour"] / 3600)
    assert data["usd_per_million_tokens_full"] < data["usd_per_million_tokens"] / 2 * 1.2
    assert (fewer[-1]["enough_at_tpot_s"] or math.inf) > 0.05
    assert fewer[-1]["requests_per_s"] == pytest.approx(fewer[-1]["tok_s"] / 1024)
    for pool in data["pools"]:
        assert pool["gpus"] == pool["workers"] * pool["gpus_per_worker"]
    assert sum(pool["gpus"] for pool in data["pools"]) == data["serving_gpus"] - data["gpus_idle"]
    in_decode = len(data["pools"]) > 1  # of two pools those that decode are users
    stay_s = (not in_decode) * data["ttft_s"] + 1024 / data["tok_s_per_user"]
    assert data["users"] == pytest.approx(data["requests_per_s"] * stay_s, rel=0.2 if in_decode else 1e-6)


@pytest.mark.usefixtures("no_speed_of_levels")
def test_a_size_has_pools_of_both_phases(run: Run) -> None:
    asked = ("--tok-s", "100k", "--isl", "8000", "--osl", "300", "--tpot-ms", "20")
    data = run(*SIZE, *asked, "--json").data
    pools = {pool["role"]: pool for pool in data["pools"]}
    assert (data["serving"], set(pools)) == ("two pools", {"prefill", "decode"})
    assert pools["prefill"]["tok_s"] == pytest.approx(data["requests_per_s"] * 8000)
    assert data["ttft_s"] <= data["ttft_limit_s"] == 2.0
    assert run(*SIZE, *asked, "--ttft-ms", "none", "--json").data["ttft_limit_s"] is None


def test_several_clusters_are_side_by_side_with_those_that_cannot(run: Run) -> None:
    asked = (*DECODE, "--cluster", "hgx-h200@4096", "--usd-h", "50")
    data = run(*asked, "--json").data
    first, second = data["clusters"]
    alone = run(*DECODE, "--usd-h", "50", "--json").data
    assert alone["clusters"] == [first]
    assert first == {key: alone[key] for key in first} == {key: data[key] for key in first}
    assert second["gpus"] is None
    assert "--usd-h 50 is too low" in second["reason"]
    assert second["reason"] in [note["text"] for note in data["notes"]]
    none = run(*asked, "--usd-h", "1")
    assert (none.code, none.out) == (3, "")


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
