"""``rackplan sweep`` and ``traffic``: both phases, files with every row, matrices of bytes and of times, Ctrl-C."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest

from helpers import PLAN, Run
from page_check import Page

MIXTRAL = ("sweep", "--model", "mixtral-8x7b", "--cluster", "hgx-h100")


def test_a_folder_has_the_page_the_data_and_every_row(run: Run, tmp_path: Path) -> None:
    assert run(*MIXTRAL, "--isl", 900, "--osl", 100, "-o", "out").code == 0
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


def test_ctrl_c_leaves_the_bound(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from topology import routes

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(routes, "fair_s", interrupted)
    result = run("traffic", "hgx-h100", "--json")
    assert result.code == 130
    assert result.data["completion"] == "bound"
    assert "interrupted: the bound was computed" in result.err


def test_a_matrix(run: Run, tmp_path: Path) -> None:
    matrix = np.zeros((8, 8))
    matrix[2, 5] = 45e9
    matrix[3, 3] = 1e15  # stays where it is
    np.save(tmp_path / "m.npy", matrix)
    data = run("traffic", "hgx-h100", "--pattern", "m.npy", "--json").data
    assert (data["bytes"], data["senders"]) == (45e9, 1)
    assert data["completion_s"] == pytest.approx(0.1 + 1e-6)


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
    run("traffic", "plan/plan.json", "--matrix", "some.npy", "--gpus", "6-9", "--no-fair")
    some = np.load(tmp_path / "some.npy")
    assert some.shape == (4, 4)
    assert some[0, 2] > 5 * some[0, 1]
    assert run(*asked).code == 2  # a file that exists is left alone
