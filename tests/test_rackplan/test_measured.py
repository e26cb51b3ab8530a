"""Measured runs beside a frontier: each against its own prediction."""

from __future__ import annotations

import pytest

from cost.inputs.deployment import Deployment
from cost.inputs.workload import Workload
from cost.resolve import resolve_model
from cost.validation.measured import published_runs
from rackplan.views.blocks import Beside, Chart, Text
from rackplan.views.charts import measured_chart
from rackplan.views.pareto import beside_measured
from topology import resolve_cluster

QUESTION = Deployment(resolve_cluster("gb200-nvl72"), resolve_model("deepseek-v3"), Workload())


def test_each_run_stands_beside_its_prediction() -> None:
    pairs = [(run, 0.9 * run.tok_s_per_gpu) for run in published_runs(QUESTION)]
    band, diagonal, dots = measured_chart({"gb200": pairs}, 1.3).data
    assert (list(dots.x), list(dots.y)) == (
        [rate for _, rate in pairs],
        [run.tok_s_per_gpu for run, _ in pairs],
    )
    assert list(diagonal.x) == list(diagonal.y)
    assert [y / x for x, y in zip(band.x, band.y, strict=True)] == pytest.approx([1 / 1.3, 1 / 1.3, 1.3, 1.3])


def test_the_panel_counts_every_run_and_says_where_there_is_none() -> None:
    chart = Chart("frontier", measured_chart({"gb200": [(published_runs(QUESTION)[0], 1.0)]}, None), "", 480)
    beside, note, _ = beside_measured(chart, [QUESTION])
    assert isinstance(beside, Beside)
    assert isinstance(note, Text)
    assert f"{len(published_runs(QUESTION))} published runs" in note.text
    alone = Deployment(resolve_cluster("hgx-h200"), resolve_model("mixtral-8x7b"), Workload())
    assert beside_measured(chart, [alone])[0] is chart
