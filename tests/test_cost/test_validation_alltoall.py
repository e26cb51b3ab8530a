"""Measured dispatches and combines: transcription against the shared table, and how far off predictions are."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np

import cost.validation
from cost.validation.predict import alltoall_case, predict_alltoall
from cost.validation.read import AllToAll, Point, Pool, read_measurements

OURS = Path(cost.validation.__file__).parent / "data" / "alltoall.csv"
TRANSCRIBED = read_measurements(OURS)
SHAPE = AllToAll("deepep-ll", 128, 7168, 256, 8, "fp8", "bf16")


def point(**changes):
    base = Point("p", "test", "dispatch_us", 1.0, "alltoall", "hgx-h100", pool=Pool(ep=32), alltoall=SHAPE)
    return replace(base, **changes)


def predicted(**changes):
    return predict_alltoall([point(**changes)])[0]


def test_transcribed_points_are_predicted_within_a_few_percent():
    values = [prediction.value for prediction in predict_alltoall(TRANSCRIBED)]
    assert None not in values
    errors = np.abs(np.array(values) / np.array([row.measured for row in TRANSCRIBED]) - 1)
    assert np.median(errors) < 0.03
    assert np.mean(errors < 0.2) > 0.98


def test_a_row_says_why_it_is_not_predicted():
    assert "not known" in predicted(alltoall=replace(SHAPE, kernel="telegraph")).reason
    stand_in = predicted(cluster="mi355x", pool=Pool(ep=8))
    assert math.isfinite(stand_in.value)
    assert "not measured on xgmi-mi355x" in stand_in.reason
    assert "format not known" in predicted(alltoall=replace(SHAPE, dispatch_dtype="fp3")).reason
    assert "tokens per GPU" in predicted(alltoall=replace(SHAPE, tokens=0)).reason
    assert "not the time of" in predicted(alltoall=None).reason
    assert predicted(cluster="hgx-h999").value is None
    assert (
        predicted(cluster="rubin-ultra-nvl144", pool=Pool(ep=288)).value is None
    )  # nothing joins its domains
    assert "inside a scale-up domain" in predicted(alltoall=replace(SHAPE, kernel="nvlink-one-sided")).reason


def test_links_and_domains_of_the_row_come_first():
    base = predicted().value
    assert predicted(out_bytes_per_s=25e9).value > 1.5 * base
    assert predicted(gpus_per_domain=32).value < base  # all of it over NVLink
    phases = {128: "deepep-ll", 4096: "deepep-normal"}  # a row without a kernel takes that of its phase
    for tokens, kernel in phases.items():
        case = alltoall_case(point(alltoall=replace(SHAPE, kernel="", tokens=tokens)))
        assert case.use.kernel.name == kernel
    alone = point(pool=Pool(ep=8))
    slower = replace(alone, up_bytes_per_s=200e9)
    assert predict_alltoall([slower])[0].value > predict_alltoall([alone])[0].value
