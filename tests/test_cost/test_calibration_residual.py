"""The learned correction: by hand, near what was measured alone, and never where it was not learned."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from cost.calibration.residual import (
    COLUMNS,
    FEATURES,
    MOST,
    NEAR,
    PATH,
    Kind,
    ResidualFigures,
    read_residual,
    residual,
    shipped_residual,
    step_features,
)
from cost.validation.predict import choices, predict, predict_serving
from cost.validation.read import Point, Pool
from topology.base.errors import InputError
from topology.base.schema import validated

KIND = Kind("aggregated", "trtllm", "hopper")
AT = np.array([0.25, 0.5, 0.125, 0.125, 0.0, 0.0, 1.0, 0.5, 0.0, 24.0, 0.0])
ROW = ["aggregated", "trtllm", "hopper", *(f"{value:g}" for value in AT), "0.2"]
DATA = {
    "source": "made up",
    "rows": 3,
    "centres": 1,
    "length": 0.25,
    "errors": {
        name: {"physics": [0.2, 0.3], "corrected": [0.1, 0.2]}
        for name in ("cross_validated", "model_left_out", "chip_left_out")
    },
}


def figures(**changes):
    return validated(ResidualFigures, {**DATA, **changes}, "residual.yaml")


def table(*rows, **changes):
    return read_residual(figures(centres=len(rows), **changes), [list(COLUMNS), *rows])


def told(features, kind=KIND, found=None):
    factor, weight = residual(kind, np.atleast_2d(features), found or table(ROW))
    return float(factor[0]), float(weight[0])


def shifted(by, name="batch"):
    return AT + by * (np.array(FEATURES) == name)


def test_one_centre_by_hand():
    assert told(AT) == pytest.approx((math.exp(0.2), 1.0))
    near = math.exp(-1 / 2)  # one length away
    weight = (near - NEAR) / (1 - NEAR)
    assert told(shifted(0.25)) == pytest.approx((math.exp(weight * near * 0.2), weight))


def test_weight_falls_with_distance_and_reaches_nothing():
    found = [told(shifted(0.05 * step)) for step in range(15)]
    for (factor, weight), (farther, less) in pairwise(found):
        assert 1 <= farther <= factor
        assert 0 <= less <= weight
    assert found[-1] == (1.0, 0.0)


def test_features_by_hand():
    terms_s = {"attention": 1.0, "experts": 2.0, "dispatch": 0.5, "combine": 0.25, "head": 0.25}
    found = step_features(
        terms_s, batch=np.array([8.0, 64.0]), tp=4.0, attention_dp=2.0, hidden=4096, queries=3.0
    )
    shares = [0.25, 0.5, 0.0, 0.0, 0.1875, 0.0]
    logs = [math.log(4) / 2, math.log(2) / 2, 3 * math.log(4096), 0.6 * math.log(3)]
    assert found.shape == (2, len(FEATURES))
    assert found[0] == pytest.approx([*shares, math.log(8) / 3, *logs])
    assert found[1] == pytest.approx([*shares, math.log(64) / 3, *logs])
    doubled = step_features(
        {name: 2 * seconds for name, seconds in terms_s.items()},
        batch=8.0, tp=4.0, attention_dp=2.0, hidden=4096, queries=3.0,
    )  # fmt: skip
    assert doubled[0] == pytest.approx(found[0])


def changed(place, text):
    return [text if i == place else cell for i, cell in enumerate(ROW)]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([changed(0, "decode")], "row 2: phase: 'decode' is no phase; known: aggregated"),
        ([changed(1, "trtlm")], "engine: 'trtlm' is no measured engine; did you mean trtllm"),
        ([changed(2, "volta")], "architecture: 'volta'"),
        ([changed(3, "1.5")], "attention: '1.5' must be less than or equal to 1"),
        ([changed(9, "many")], "batch: 'many' must be a valid number"),
        ([changed(len(ROW) - 1, "nan")], "coefficient: 'nan' must be a finite number"),
        ([ROW[:-1]], "row 2: 14 cells; expected 15"),
        ([ROW, ROW], "row 3: duplicate centre"),
    ],
)
def test_bad_rows_are_named(rows, message):
    with pytest.raises(InputError, match=message):
        table(*rows)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"length": 0.0}, "length: 0.0 must be greater than 0"),
        ({"length": 2.0}, "length: 2.0 must be less than or equal to 1"),
        ({"centres": 5}, "1 centres; residual.yaml says 5"),
        ({"errors": {}}, "cross_validated: it is missing"),
        (
            {"errors": {**DATA["errors"], "chip_left_out": {"physics": [0.1], "corrected": [0.1, 0.2]}}},
            "chip_left_out: physics.*needs the key `1`",
        ),
        ({"more": 1}, "more"),
    ],
)
def test_bad_figures_are_named(changes, message):
    with pytest.raises(InputError, match=message):
        read_residual(figures(**changes), [list(COLUMNS), ROW])


def test_a_file_without_its_columns():
    for rows in ([], [["phase"]], [ROW]):
        with pytest.raises(InputError, match="the first line must be phase,engine"):
            read_residual(figures(), rows)


def test_what_is_shipped_holds_its_conditions():
    found = shipped_residual()
    assert PATH.stat().st_size < 100_000
    across = found.errors["cross_validated"]
    assert all(off - on >= 0.01 for off, on in zip(across.physics, across.corrected, strict=True))
    out = [errors for name, errors in found.errors.items() if "left_out" in name]
    assert len(out) == 4
    for errors in out:
        assert all(on - off <= 0.01 for off, on in zip(errors.physics, errors.corrected, strict=True))
    for kind, centres in found.centres.items():
        factor, weight = residual(kind, centres.features)
        assert weight == pytest.approx(1.0)
        assert (np.abs(np.log(factor)) <= MOST).all()


# --- served points

SERVED = Point(
    *("a", "test", "tpot_ms", 10.0, "aggregated", "hgx-h200", "llama-3.1-70b"),
    pool=Pool(tp=8, moe_tp=8),
    engine="trtllm",
    weights="fp8",
    concurrency=16,
    isl=1000,
    osl=200,
)


def values(*points, **more):
    return [one.value for one in predict_serving(points, **more)]


def test_a_served_point_is_corrected():
    (on,), (off,) = predict_serving([SERVED]), predict_serving([SERVED], residual=False)
    assert 0.6 < on.value / off.value < 1.65
    assert on.value != off.value
    assert predict([SERVED], residual=False)[0] == off
    assert predict([SERVED])[0] == on


def test_throughput_follows_from_the_corrected_time():
    """A full closed loop: requests in the engine = rate x (prefill + answer), the prefill being the physics'."""
    rate = replace(SERVED, quantity="tok_s_per_gpu")
    (tpot, speed), (slow, least) = values(SERVED, rate), values(SERVED, rate, residual=False)
    seconds = [SERVED.concurrency * SERVED.osl / (one * SERVED.pool.gpus) for one in (speed, least)]
    assert seconds[0] - seconds[1] == pytest.approx(SERVED.osl * (tpot - slow) / 1e3)


@pytest.mark.parametrize(
    "changes",
    [
        {"quantity": "ttft_ms"},
        {"drafts_recorded": False},
        {"phase": "decode", "batch": 16.0, "context": 1000, "concurrency": 0},
        {"overlap": True},
        {"cluster": "mi355x"},
        {"cluster": "hgx-h20"},
    ],
    ids=str,
)
def test_what_is_like_no_measured_run_stays_physics(changes):
    point = replace(SERVED, **changes)
    assert predict_serving([point]) == predict_serving([point], residual=False)


def test_the_model_chooses_by_physics(monkeypatch):
    open_ = replace(
        SERVED, pool=replace(SERVED.pool, tp=0, attention_dp=0, ep=0, moe_tp=0, best=True), gpus=8
    )
    (chosen,) = choices([open_])
    monkeypatch.setattr("cost.validation.predict.group_residual", None)
    assert choices([open_]) == [chosen]


# --- the script
