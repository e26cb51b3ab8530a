"""``rackplan sweep``: one phase, both phases, the CSV file, and what is refused."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]

CHART = re.compile(r'id="chart-([\w-]+)".*?<script type="application/json">(.*?)</script>', re.DOTALL)
MIXTRAL = ("sweep", "--model", "mixtral-8x7b", "--cluster", "hgx-h100")


def test_both_phases_are_matched(run: Run) -> None:
    args = (*MIXTRAL, "--isl", "2000", "--osl", "400", "--ttft-ms", "500", "--tpot-ms", "30")
    data = run(*args, "--json").data
    one, two = (
        next(way for way in data["ways"] if way["serving"] == name) for name in ("one pool", "two pools")
    )
    assert (data["context"], data["isl"], data["osl"], data["gpus"]) == (2200, 2000, 400, 8)
    assert two["ttft_s"] <= 0.5
    assert two["tok_s_per_user"] >= 1 / 0.03
    pools = [pool for pool in data["pools"] if pool["serving"] == "two pools"]
    assert [pool["role"] for pool in pools] == ["prefill", "decode"]
    assert sum(pool["workers"] * pool["gpus_per_worker"] for pool in pools) == two["gpus_used"] <= 8
    assert two["total_tok_s_per_gpu"] == pytest.approx(two["tok_s_per_gpu"] * 2400 / 400)
    assert (one["prefill_gpus"], one["transfer_s"]) == (0, 0.0)
    assert data["tok_s_per_gpu"] == max(one["tok_s_per_gpu"], two["tok_s_per_gpu"])
    assert {turn["serving"] for turn in data["turns"]} <= {"one pool", "two pools"}
    none = run(*args[:-1], "0.001")
    assert (none.code, none.out) == (3, "")
    assert "--tpot-ms 0.001 is out of reach on" in none.error_line


def test_a_folder_has_the_page_the_data_and_every_row(run: Run, tmp_path: Path) -> None:
    assert run(*MIXTRAL, "--isl", 900, "--osl", 100, "-o", "out").code == 0
    folder = tmp_path / "out"
    assert sorted(path.name for path in folder.iterdir()) == ["report.html", "sweep.csv", "sweep.json"]
    data = json.loads((folder / "sweep.json").read_text())
    rows = list(csv.DictReader(io.StringIO((folder / "sweep.csv").read_text(encoding="utf-8"))))
    assert len(rows) == sum(phase["configurations"] for phase in data["phases"])
    best = max(data["layouts"], key=lambda row: row["tok_s_per_gpu"])
    assert str(best["step_s"]) in {row["step_s"] for row in rows}
    page = (folder / "report.html").read_text(encoding="utf-8")
    charts = {name: json.loads(chart) for name, chart in CHART.findall(page)}
    assert set(charts) == {"throughput-against-speed-per-user", "steps-by-part"}
    assert charts["throughput-against-speed-per-user"]["data"][-1]["y"] == pytest.approx(
        [data["tok_s_per_gpu"]], rel=1e-5
    )
    assert "rackplan sweep --model mixtral-8x7b --cluster hgx-h100 --isl 900 --osl 100 -o out" in page
