"""Points as runs of a user, bands, published runs; measured dispatches and combines."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import cost.validation
from cost.calibration.correction import shipped_correction
from cost.calibration.errors import errors_in
from cost.inputs.deployment import Deployment
from cost.inputs.workload import Workload
from cost.resolve import resolve_model
from cost.validation.measured import comparable_points, predicted, published_runs
from cost.validation.predict import predict, predict_alltoall
from cost.validation.read import AllToAll, Point, Pool, measurements_of, read_measurements
from cost.validation.runs import measured_runs, with_own_runs
from cost.validation.validation import error_of_similar, with_bands
from topology import resolve_cluster
from topology.base.errors import InputError
from topology.base.table import Table

HEAD = "id,quantity,measured,phase,cluster,model,tp,concurrency,isl,osl,engine,date\n"


def measured_points(*rows: str) -> list:
    return measurements_of(Table.of_text(HEAD + "\n".join(rows), "mine.csv"))


MEASURED = measured_points(
    "a,tpot_ms,20,aggregated,hgx-h100,qwen3-32b,4,64,1024,1024,vllm,",
    "b,tpot_ms,16,aggregated,hgx-h100,qwen3-32b,4,32,1024,1024,vllm,2026-02-01",
    "c,ttft_ms,90,aggregated,hgx-h100,qwen3-32b,4,32,1024,1024,vllm,",
)


def test_runs_are_the_points_that_decode() -> None:
    _, logs, places = measured_runs(MEASURED)
    assert places == [0, 1]
    alone = predict(MEASURED)
    np.testing.assert_allclose(
        logs, [np.log(p.measured / q.value) for p, q in zip(MEASURED[:2], alone, strict=False)]
    )


def test_a_version_that_was_not_measured_is_predicted_as_of_the_newest_run() -> None:
    asked = [replace(MEASURED[0], engine_version=version) for version in ("", "9", "0.12.0")]
    newest, unknown, old = (prediction.value for prediction in predict(asked, shipped_correction()))
    assert newest == unknown != old


def test_own_runs_correct_a_deployment_and_its_band() -> None:
    own = with_own_runs(MEASURED, "mine.csv")
    before, after = predict(MEASURED, shipped_correction()), predict(MEASURED, own)
    for point, old, new in zip(MEASURED[:2], before, after, strict=False):
        assert abs(np.log(new.value / point.measured)) < 0.6 * abs(np.log(old.value / point.measured))
    deployment = Deployment(resolve_cluster("hgx-h100"), resolve_model("qwen3-32b"), Workload(context=1500))
    (shipped,), (mine,) = errors_in(deployment), errors_in(replace(deployment, correction=own))
    assert (shipped.own_runs, mine.own_runs) == (0, 2)
    assert mine.band != shipped.band
    elsewhere = replace(deployment, cluster=resolve_cluster("hgx-b200"), correction=own)
    assert errors_in(elsewhere)[0].own_runs == 0


def test_a_file_that_tells_nothing_of_steps_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"mine.csv: no row has a time per token"):
        with_own_runs(MEASURED[2:], "mine.csv")
    path = tmp_path / "points.csv"
    path.write_text(HEAD + "a,tpot_ms,20,aggregated,hgx-h100,qwen3-32b,4,64,1024,1024,vllm,last May\n")
    with pytest.raises(InputError, match=r"row 2, column date: .*last May.* must be a day like 2026-04-17"):
        read_measurements(path)


def test_each_prediction_has_the_band_of_its_question() -> None:
    unseen = replace(MEASURED[0], model="mixtral-8x22b")
    unrecorded = replace(MEASURED[0], drafts_recorded=False, accept_length=0.0)
    asked = [MEASURED[0], replace(MEASURED[0], engine=""), unseen, unrecorded]
    told = with_bands(asked, predict(asked, shipped_correction()))
    named, unnamed, other, maybe = (prediction.high / prediction.value for prediction in told)
    assert all(prediction.low < prediction.value < prediction.high for prediction in told)
    assert named <= unnamed + 1e-9
    assert other >= named - 1e-9
    assert maybe >= named - 1e-9
    assert not error_of_similar(unseen.cluster, unseen.engine, unseen.model).model_seen


# --- published runs


def question(experts: str = "nvfp4", engine: str = "", **work: object) -> Deployment:
    model = resolve_model("deepseek-v3")
    model = replace(model, precision={**model.precision, "experts": experts})
    given = {"context": 2000, "kv_dtype": "fp8", **work}
    return Deployment(resolve_cluster("gb200-nvl72"), model, Workload(**given), engine=engine)  # type: ignore[arg-type]


def test_a_run_is_comparable_at_its_own_conditions_alone() -> None:
    same = {"sgl-gb200p2-decode-nvfp4", "sgl-gb200p2-decode-nvfp4-b768"}
    for asked in (question(), question(engine="sglang"), question(context=2050)):
        assert {run.row.id for run in comparable_points(asked)} == same
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
    told = {run.row.id: predicted(run, shipped_correction()) for run in runs}
    wanted = predict([run.row for run in runs], shipped_correction())
    for run, prediction in zip(runs, wanted, strict=True):
        assert prediction.value is not None
        assert told[run.row.id] == pytest.approx(run.tok_s_per_gpu * prediction.value / run.row.measured)


OURS = Path(cost.validation.__file__).parent / "data" / "alltoall.csv"
TRANSCRIBED = read_measurements(OURS)
SHAPE = AllToAll("deepep-ll", 128, 7168, 256, 8, "fp8", "bf16")


def point(**changes):
    base = Point("p", "test", "dispatch_us", 1.0, "alltoall", "hgx-h100", pool=Pool(ep=32), alltoall=SHAPE)
    return replace(base, **changes)


def dispatch_of(**changes):
    return predict_alltoall([point(**changes)])[0]


def test_transcribed_points_are_predicted_within_a_few_percent():
    values = [prediction.value for prediction in predict_alltoall(TRANSCRIBED)]
    assert None not in values
    errors = np.abs(np.array(values) / np.array([row.measured for row in TRANSCRIBED]) - 1)
    assert np.median(errors) < 0.03
    assert np.mean(errors < 0.2) > 0.98


def test_a_row_says_why_it_is_not_predicted():
    assert "not known" in dispatch_of(alltoall=replace(SHAPE, kernel="telegraph")).reason
    stand_in = dispatch_of(cluster="mi355x", pool=Pool(ep=8))
    assert math.isfinite(stand_in.value)
    assert "not measured on xgmi-mi355x" in stand_in.reason
    assert "format not known" in dispatch_of(alltoall=replace(SHAPE, dispatch_dtype="fp3")).reason
    assert "not the time of" in dispatch_of(alltoall=None).reason
    assert dispatch_of(cluster="hgx-h999").value is None
    assert (
        dispatch_of(cluster="rubin-ultra-nvl144", pool=Pool(ep=288)).value is None
    )  # nothing joins its domains
    assert (
        "inside a scale-up domain" in dispatch_of(alltoall=replace(SHAPE, kernel="nvlink-one-sided")).reason
    )


def test_links_and_domains_of_the_row_come_first():
    base = dispatch_of().value
    assert dispatch_of(out_bytes_per_s=25e9).value > 1.5 * base
    assert dispatch_of(gpus_per_domain=32).value < base  # all of it over NVLink
    alone = point(pool=Pool(ep=8))
    slower = replace(alone, up_bytes_per_s=200e9)
    assert predict_alltoall([slower])[0].value > predict_alltoall([alone])[0].value
