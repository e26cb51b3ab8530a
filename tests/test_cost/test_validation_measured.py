"""Published runs: comparable at a question's own conditions alone, and predicted at their own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cost.calibration.correction import shipped_correction
from cost.inputs.deployment import Deployment
from cost.inputs.workload import Workload
from cost.resolve import resolve_model
from cost.validation.measured import comparable_points, predicted, published_runs
from cost.validation.predict import predict
from topology import resolve_cluster


def question(experts: str = "nvfp4", engine: str = "", **work: object) -> Deployment:
    model = resolve_model("deepseek-v3")
    model = replace(model, precision={**model.precision, "experts": experts})
    given = {"context": 2000, "kv_dtype": "fp8", **work}
    return Deployment(resolve_cluster("gb200-nvl72"), model, Workload(**given), engine=engine)  # type: ignore[arg-type]


def test_a_run_is_comparable_at_its_own_conditions_alone() -> None:
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


def test_each_run_has_the_prediction_for_its_own_conditions() -> None:
    runs = [run for run in published_runs(question()) if not run.row.is_open]
    assert len(runs) > 5
    found = {run.id: predicted(run, shipped_correction()) for run in runs}
    wanted = predict([run.row for run in runs], shipped_correction())
    for run, one in zip(runs, wanted, strict=True):
        assert one.value is not None
        assert found[run.id] == pytest.approx(run.tok_s_per_gpu * one.value / run.row.measured)
