"""``rackplan traffic``: the summary, the contract of ``--json``, files, ranges, refusals."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Run = Callable[..., Any]


def test_the_contract_of_json(run: Run) -> None:
    data = run("traffic", "gb200-nvl72@144", "--bytes-per-gpu", 143e6, "--json").data
    assert data["completion_s"] == pytest.approx(72e6 / 50e9 + 9e-6)
    assert data["bytes"] == pytest.approx(144 * 143e6)
    assert data["bottleneck"]["link"] == "d0.n0.g0 -> f.p0.l0"
    assert data["bottleneck"]["bytes_per_s"] == 50e9
    assert data["bottleneck"]["seconds"] == pytest.approx(72e6 / 50e9)
    assert [tier["tier"] for tier in data["tiers"]] == ["nvlink5", "ib-ndr400 leaf", "ib-ndr400 spine"]
    assert data["tiers"][1]["bytes"] == pytest.approx(144 * 72e6)
    assert data["scale_up_rate_ratio"] == 18
    assert data["bytes_per_s_per_gpu"] == pytest.approx(143e6 / data["completion_s"])
    assert data["hottest"][0]["links"] == 2 * 144
    assert data["completion"] == "fair"
    assert data["bound_s"] == pytest.approx(data["completion_s"])
    assert len(data["bottlenecks"]) == 3 * 144  # uplinks of the leaves are as busy as the NICs
    assert data["bottlenecks"][0] == data["bottleneck"]
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
    assert data["bytes"] == 45e9
    assert data["completion_s"] == pytest.approx(0.1 + 1e-6)
    assert data["senders"] == 1
    refused = run("traffic", "hgx-h100", "--pattern", "m.npy", "--bytes-per-gpu", "1")
    assert refused.code == 2
    assert "already sets the bytes" in refused.error_line
    assert "(8, 8) must be (16, 16)" in run("traffic", "hgx-h100@16", "--pattern", "m.npy").error_line


def test_a_matrix_of_times_in_the_order_of_a_plan(run: Run, prepared: Run, tmp_path: Path) -> None:
    prepared("plan", "--model", "mixtral-8x7b", "--time-limit", "0", "--batch", "2", "--redundant", "8",
             "--cluster", "hgx-h100@16", "--ep", "16", "--stages", "1", "-o", "plan")  # fmt: skip
    ranks = [rank["gpu_id"] for rank in run("export", "plan", "--to", "sglang", "--json").data["ranks"]]
    data = run("traffic", "plan", "--matrix", "cost.json", "--bytes-per-gpu", "45 GB", "--json").data
    assert data["matrix"] == "cost.json"
    written = json.loads((tmp_path / "cost.json").read_text())
    assert written["gpus"] == ranks
    assert written["rank_cost_matrix"][0][1] == pytest.approx(0.1 + 1e-6)
    assert written["bytes_per_s"][0][1] == pytest.approx(450e9)
    run("traffic", "plan/plan.json", "--matrix", "some.npy", "--gpus", "6-9", "--no-fair")
    some = np.load(tmp_path / "some.npy")
    assert some.shape == (4, 4)
    assert some[0, 2] > 5 * some[0, 1]
    assert "ends in .json or .npy" in run("traffic", "plan", "--matrix", "x.csv").error_line
    assert run("traffic", "plan", "--matrix", "cost.json").code == 2  # one that exists is left alone
