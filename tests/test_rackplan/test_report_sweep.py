"""The page of a sweep: figures of its configurations, pools where they are matched, one line where nothing fits."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cost.inputs.deployment import Deployment
from cost.inputs.workload import Workload
from cost.layouts import sweep
from cost.resolve import resolve_model
from rackplan.render.html import page
from rackplan.views.sweep import sweep_blocks
from topology import resolve_cluster

Run = Callable[..., Any]

CHART = re.compile(r'id="chart-([\w-]+)".*?<script type="application/json">(.*?)</script>', re.DOTALL)
MIXTRAL = ("sweep", "--model", "mixtral-8x7b", "--cluster", "hgx-h100")


def test_a_folder_has_the_page_the_data_and_every_row(run: Run, tmp_path: Path) -> None:
    assert run(*MIXTRAL, "--isl", 2000, "--osl", 400, "-o", "out").code == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "report.html",
        "sweep.csv",
        "sweep.json",
    ]
    text = (tmp_path / "out/report.html").read_text(encoding="utf-8")
    charts = {name: json.loads(data) for name, data in CHART.findall(text)}
    assert set(charts) == {"pools", "pareto", "pareto-prefill", "pareto-both", "steps", "memories"}
    data = json.loads((tmp_path / "out/sweep.json").read_text())
    best = data["whole_requests"]["best"]
    assert charts["pools"]["data"][-1]["y"] == [best["output_tok_s_per_gpu"]]
    usd = data["whole_requests"]["best"]["totals"]["usd_per_million_tokens"]
    assert f"<th>Cost</th><td><div>{usd:#.3g} USD per million output tokens" in text
    assert "rackplan sweep --model mixtral-8x7b --cluster hgx-h100 --isl 2000 --osl 400 -o out" in text


def test_nothing_fits_and_the_page_says_so() -> None:
    found = sweep(Deployment(resolve_cluster("hgx-h100"), resolve_model("deepseek-v3"), Workload()))
    assert len(found) == 0
    text = page(sweep_blocks(found, command="rackplan sweep"))
    assert '<p class="forward">HBM capacity binds' in text
