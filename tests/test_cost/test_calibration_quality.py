"""What the committed calibration must keep: errors on measurements, and the direction of every comparison."""

from __future__ import annotations

import importlib
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest

from cost.validation.predict import predict
from cost.validation.read import Point, Pool, read_measurements, shipped_files
from cost.validation.statistics import errors_of

SAMPLE = Path(__file__).parents[2].parent / "shared/data/serving_measurements/silicon_calibration.csv"
SHIPPED = {path.name: path for path in shipped_files()}


SCRIPTS = Path(__file__).parents[2] / "benchmarks" / "calibration"
absent = pytest.mark.skipif(
    not (SAMPLE.is_file() and SCRIPTS.is_dir()), reason="the silicon sample or what reads it is absent"
)


@pytest.mark.wide
@absent
def test_errors_on_the_silicon_sample(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    points = importlib.import_module("silicon").read_silicon(SAMPLE, "tpot_ms")
    predictions = predict(points)
    of_rows = errors_of(points, predictions)["tpot_ms"]
    assert len(points) == 2704
    assert of_rows.rows == sum(not point.saturated for point in points) > 2600
    assert of_rows.coverage == 1.0
    assert of_rows.median_abs_error <= 0.115
    assert of_rows.mean_abs_error <= 0.175
    assert abs(of_rows.bias) <= 0.03
    # rows that say whether they drafted, or that public configurations say it of
    labelled = [i for i, point in enumerate(points) if point.drafts_recorded]
    recorded = errors_of([points[i] for i in labelled], [predictions[i] for i in labelled])["tpot_ms"]
    assert recorded.rows >= 2300
    assert recorded.median_abs_error <= 0.105
    assert recorded.mean_abs_error <= 0.16


def test_pairs_of_published_rows_stand_in_the_right_order():
    compared = 0
    points = [point for point in read_measurements(SHIPPED["published.csv"]) if point.pair]
    for (a, first), (b, second) in combinations(zip(points, predict(points), strict=True), 2):
        close = abs(a.measured - b.measured) <= 0.02 * min(a.measured, b.measured)
        if (a.pair, a.quantity) == (b.pair, b.quantity) and not close:
            compared += 1
            assert (first.value < second.value) == (a.measured < b.measured), (a.id, b.id)
    assert compared >= 16


# --- directions that stand without a measurement

WIDE = Point(
    *("wide", "test", "tok_s_per_gpu", 1.0, "decode", "hgx-h100", "deepseek-v3"),
    pool=Pool(attention_dp=72, ep=72, slots=288),
    weights="fp8",
    engine="sglang",
    context=2000,
    batch=256,
)


def values(*points):
    return [prediction.value for prediction in predict(points)]


@pytest.mark.parametrize(("batch", "pays"), [(512, True), (256, True), (32, False), (8, False)])
def test_half_batches_pay_at_large_batch_alone(batch, pays):
    off, on = values(*(replace(WIDE, batch=batch, overlap=overlap) for overlap in (False, True)))
    assert (on > off) is pays


@pytest.mark.parametrize(("batch", "factor"), [(4, 0.85), (32, 1.0), (128, 1.4), (512, 1.6)])
@pytest.mark.parametrize("width", [16, 32, 64])
def test_a_rack_beats_nodes_where_experts_span_them(width, batch, factor):
    """By more the larger the batch; at a few sequences per GPU fixed delays bind, and both are alike."""
    pool = Pool(attention_dp=width, ep=width)
    row = replace(WIDE, pool=pool, weights="nvfp4", batch=batch, engine="")
    rack, nodes = values(*(replace(row, cluster=name) for name in ("gb200-nvl72", "hgx-b200")))
    assert rack > factor * nodes
