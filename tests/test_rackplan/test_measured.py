"""Measured runs: on a frontier only at the question's own conditions, elsewhere beside their own predictions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cost.calibration.correction import shipped_correction
from cost.inputs.deployment import Deployment
from cost.inputs.workload import Workload
from cost.resolve import resolve_model
from cost.validation.predict import predict
from rackplan.views.blocks import Beside, Chart, Text
from rackplan.views.charts import measured_chart
from rackplan.views.measured import comparable_points, predicted, published_runs
from rackplan.views.pareto import beside_measured
from topology import resolve_cluster


def question(experts: str = "nvfp4", engine: str = "", **work: object) -> Deployment:
    model = resolve_model("deepseek-v3")
    model = replace(model, precision={**model.precision, "experts": experts})
    given = {"context": 2000, "kv_dtype": "fp8", **work}
    return Deployment(resolve_cluster("gb200-nvl72"), model, Workload(**given), engine=engine)  # type: ignore[arg-type]


def test_a_run_is_on_a_frontier_at_its_own_conditions_alone() -> None:
    same = {"sgl-gb200p2-decode-nvfp4", "sgl-gb200p2-decode-nvfp4-b768"}
    for asked in (question(), question(engine="sglang"), question(context=2050)):
        assert {run.id for run in comparable_points(asked)} == same
    others = (
        question(experts="fp8"),
        question(engine="trtllm"),
        question(kv_dtype="bf16"),
        question(context=4096),
        question(draft_tokens=1, accept_length=1.8),
        question(phase="prefill"),
    )
    assert [comparable_points(asked) for asked in others] == [[]] * len(others)


def test_each_run_stands_beside_the_prediction_for_its_own_conditions() -> None:
    runs = [run for run in published_runs(question()) if not run.row.is_open]
    assert len(runs) > 5
    found = {run.id: predicted(run, shipped_correction()) for run in runs}
    wanted = predict([run.row for run in runs], shipped_correction())
    for run, one in zip(runs, wanted, strict=True):
        assert one.value is not None
        assert found[run.id] == pytest.approx(run.tok_s_per_gpu * one.value / run.row.measured)
    pairs = [(run, found[run.id] or 0.0) for run in runs]
    band, diagonal, dots = measured_chart({"gb200": pairs}, 1.3).data
    assert (list(dots.x), list(dots.y)) == (
        [rate for _, rate in pairs],
        [run.tok_s_per_gpu for run, _ in pairs],
    )
    assert list(diagonal.x) == list(diagonal.y)
    assert [y / x for x, y in zip(band.x, band.y, strict=True)] == pytest.approx([1 / 1.3, 1 / 1.3, 1.3, 1.3])


def test_the_panel_counts_every_run_and_says_where_there_is_none() -> None:
    chart = Chart(
        "frontier", measured_chart({"gb200": [(published_runs(question())[0], 1.0)]}, None), "", 480
    )
    beside, note, _ = beside_measured(chart, [question()])
    assert isinstance(beside, Beside)
    assert isinstance(note, Text)
    assert f"{len(published_runs(question()))} published runs" in note.text
    alone = Deployment(resolve_cluster("hgx-h200"), resolve_model("mixtral-8x7b"), Workload())
    assert beside_measured(chart, [alone])[0] is chart
