"""Errors of the calibration: what the file says, who borrows whose, what is refused, how the file is made."""

from __future__ import annotations

import importlib
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import yaml

import helpers
from cost.calibration import errors, serving
from cost.calibration.correction import Runs
from cost.calibration.errors import (
    EACH_ENGINE,
    MIN_ROWS,
    ErrorTable,
    error_behind,
    error_table,
    error_to_dict,
    errors_in,
    widest,
)
from cost.calibration.serving import calibrated
from cost.inputs.deployment import Deployment
from cost.inputs.machine import PEAK
from cost.inputs.workload import Workload
from cost.resolve import resolve_model
from cost.validation.predict import Prediction
from cost.validation.read import Point, Pool
from helpers import error_of
from topology import resolve_cluster
from topology.base.errors import InputError
from topology.base.schema import validated
from topology.catalog import gpu_names, load_gpu

ROOT = Path(__file__).parents[2]
SHIPPED = yaml.safe_load(Path(errors.PATH).read_text(encoding="utf-8"))
SERVED = [name for name, chip in SHIPPED["chips"].items() if chip["rows_of"] == "served"]
# --- the shipped file


def test_it_is_of_the_same_fit_as_the_coefficients():
    fit = yaml.safe_load(serving.PATH.read_text(encoding="utf-8"))["families"][0]["fit"]
    own = error_table().served.physics  # of AMD's chips too, cross-validated
    assert fit["median_abs_error"] < own.median < fit["median_abs_error"] + 0.02
    assert own.mean == pytest.approx(fit["mean_abs_error"], abs=0.03)


# --- whose error it is


def test_too_few_rows_of_an_engine_give_way_to_all_and_say_so():
    few = SHIPPED["chips"]["gb200"]["engines"]["vllm"]["rows"]
    assert few < MIN_ROWS
    found = error_of("gb200", "vllm")
    assert found.engine == EACH_ENGINE
    assert found.rows == SHIPPED["chips"]["gb200"]["engines"]["any"]["rows"]
    assert found.note == f"since {few} rows for vllm are too few"
    assert not found.borrowed
    gone = error_of("gb300", "sglang")
    assert "sglang" not in SHIPPED["chips"]["gb300"]["engines"]
    assert (gone.engine, gone.note) == (EACH_ENGINE, "since 0 rows for sglang are too few")


def widest_chip():
    cells = {chip: SHIPPED["chips"][chip]["engines"]["any"] for chip in SERVED}
    return max(cells, key=lambda chip: cells[chip]["left_out"]["band"])


@pytest.mark.parametrize("chip", ["mi455x", "rubin", "tpu-v5p"])
def test_an_unmeasured_chip_names_its_stand_in_and_takes_the_widest_band(chip):
    assert chip in gpu_names()
    found, worst = error_of(chip), widest_chip()
    assert (found.chip, found.stand_in_for) == (calibrated(load_gpu(chip)).chip, chip)
    assert found.borrowed
    assert found.left_out_chip == worst
    assert found.band == SHIPPED["chips"][worst]["engines"]["any"]["left_out"]["band"]
    assert found.band > 1


def test_coefficients_of_other_origin_have_no_error():
    assert error_behind(PEAK) is None
    assert error_behind(replace(calibrated(load_gpu("gb200")), chip="mine")) is None


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (("gb200", "ollama"), "ollama"),
        (("gb2000",), "gb2000"),
    ],
)
def test_what_is_not_known_is_refused(asked, words):
    with pytest.raises(InputError, match=words) as refused:
        error_of(*asked)
    assert "\n" not in str(refused.value)


def test_a_cluster_of_two_chips_has_two_errors(tmp_path):
    file = tmp_path / "mixed.yaml"
    file.write_text("name: mixed\ndomains:\n- {part: hgx-h100}\n- {part: hgx-h200}\n- {part: hgx-h100}\n"
                    "fabric: {kind: rail, nic: 400 Gb/s}\n")  # fmt: skip
    found = errors_in(Deployment(resolve_cluster(str(file)), resolve_model("llama-3.1-8b"), Workload()))
    assert [error.chip for error in found] == ["h100-sxm", "h200-sxm"]
    data = error_to_dict(found)
    assert data["band"] == max(error.band for error in found) == widest(found).band
    assert [one["chip"] for one in data["each"]] == ["h100-sxm", "h200-sxm"]
    assert "each" not in error_to_dict(found[:1])
    assert error_to_dict(()) is None


# --- files that are refused


changed = partial(helpers.changed, SHIPPED)


CELL = ("chips", "gb200", "engines", "any")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (changed("source"), "source"),
        (changed("chips", "gb200", "rows_of", to="rumours"), "rumours"),
        (changed(*CELL), "gb200.*any: is missing"),
        (changed(*CELL, "rows", to=0), "rows"),
        (changed(*CELL, "in_sample", "median", to=-0.1), "median: -0.1 must be greater than or equal to 0"),
        (changed(*CELL, "in_sample", "within_20_percent", to=1.1), "within_20_percent: 1.1 .*equal to 1"),
        ({**SHIPPED, "chips": {"h20-sxm": SHIPPED["chips"]["h20-sxm"]}}, "none has 20 rows"),
        ([], "errors.yaml"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_broken_files_are_refused(data, words):
    with pytest.raises(InputError, match=words) as refused:
        validated(ErrorTable, data, "errors.yaml")
    assert "\n" not in str(refused.value)


# --- how it is made

SCRIPTS = ROOT / "benchmarks" / "calibration"
needs_scripts = pytest.mark.skipif(not SCRIPTS.is_dir(), reason="the benchmarks are not part of this copy")


@pytest.fixture
def scripts(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return importlib.import_module("held_out"), importlib.import_module("error_tables")


@needs_scripts
def test_figures_by_hand(scripts):
    measured = np.full(5, 10.0)
    told = np.array([10.0, 11.0, 8.0, 5.0, 12.5])
    assert scripts[1].figures(measured, told) == {
        "median": 0.2,
        "mean": 0.21,  # 0, 0.1, 0.2, 0.5, 0.25 over 5
        "within_20_percent": 0.6,
        "bias": 0.0,
        "band": 1.25,  # factors 1, 1.1, 1.25, 1.25, 2: four of five are within 1.25
    }
    with pytest.raises(ValueError, match="1 of 5 rows have no prediction"):
        scripts[1].figures(measured, np.array([10.0, 11.0, 8.0, 5.0, np.nan]))


ROW = Point(
    *("a", "test", "tpot_ms", 10.0, "aggregated", "hgx-h100", "deepseek-v3"),
    pool=Pool(tp=8, ep=8),
    isl=2000,
    osl=500,
    concurrency=8,
    engine="trtllm",
)
ROWS = [
    replace(ROW, cluster=cluster, model=model, concurrency=requests, isl=isl)
    for cluster in ("hgx-h100", "hgx-b200")
    for model in ("deepseek-v3", "deepseek-r1", "llama-3.1-70b")
    for isl in (1000, 2000, 4000)
    for requests in (4, 8, 300)
]


@needs_scripts
def test_no_prediction_is_by_a_fit_that_saw_the_row(scripts, monkeypatch):
    """Stubs remember what fits and corrections were given: what those of a prediction saw of its relatives."""
    held_out, _ = scripts
    seen = []

    class Fits:
        def __init__(self, points, _):
            self.points = points

        def __call__(self, kept, _):
            return [point for point, keep in zip(self.points, kept, strict=True) if keep]

    def runs(points, physics, reach):
        of = tuple(points)
        return (
            Runs(of, np.arange(len(of), dtype=float)[:, None], np.zeros(len(of))),
            np.zeros(len(of)),
            [*range(len(of))],
        )

    def predicted(points, reach, *, correction):
        if isinstance(reach, list) and correction is not None:
            seen.append((points, reach, correction.runs.kinds))
        return [Prediction(1.0)] * len(points)

    monkeypatch.setattr(held_out, "Fits", Fits)
    monkeypatch.setattr(held_out, "measured_runs", runs)
    monkeypatch.setattr(Runs, "fitted", lambda self, _: self)
    monkeypatch.setattr(held_out, "predict_serving", predicted)
    monkeypatch.setattr(held_out, "spreads", lambda points, *_: np.ones(len(points)))
    found = held_out.predict_held_out(ROWS[9:], ROWS[:9], 3, lambda _: None)
    for told in (found.physics, found.cross_validated, found.chip_left_out, found.model_left_out):
        assert set(told) == {"any", "named"}
        assert all(np.isfinite(values).all() for values in told.values())
    assert found.served.tolist() == [True] * 45 + [False] * 9
    configuration = held_out.configurations
    folds, chips, models = seen[:6], seen[6:10], seen[10:]
    assert sum(len(points) for points, _, _ in folds) == 2 * len(ROWS)  # each named and unnamed
    for points, given, learned in folds[::2]:
        assert not set(configuration(points)) & set(configuration(given))
        assert not set(configuration(points)) & set(configuration(learned))
        assert len(points) + len(given) == len(ROWS)
    for points, given, learned in chips[::2]:
        assert not {p.cluster for p in points} & {p.cluster for p in (*given, *learned)}
    for points, given, learned in models[::2]:
        kinds = {"llama" in p.model for p in points}
        assert len(kinds) == 1, "DeepSeek-V3 and R1 are of one architecture"
        assert not kinds & {"llama" in p.model for p in (*given, *learned)}
