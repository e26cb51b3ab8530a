"""What measured runs took over the physics: near them, far from them, over requests, and with a user's own."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import numpy as np
import pytest

from cost.calibration.correction import (
    DAYS,
    GRID,
    MOST,
    OWN_PARTS,
    PHYSICS,
    Bound,
    Correction,
    Kind,
    Runs,
    correction_with,
    features_of,
    kind_of,
    lines_of,
    runs_of,
    shipped_correction,
    without_engines,
)
from cost.inputs.workload import StepShape
from cost.resolve import resolve_model
from topology.base.errors import InputError

DAY = float(date(2026, 6, 1).toordinal())
KIND = Kind(1e9, "vllm", "h100-sxm", "hopper", "disaggregated", "fp8")


def at(batch: float, tp: float = 8.0, day: float = DAY) -> np.ndarray:
    return features_of(batch=batch, tp=tp, attention_dp=1.0, context=2000.0, queries=1.0, day=day)


def learned(logs: list[float], kinds: list[Kind] | None = None, **changes: object) -> Runs:
    features = np.concatenate([at(2.0**i) for i in range(len(logs))])
    runs = Runs(tuple(kinds or [KIND] * len(logs)), features, np.zeros(len(logs)), **changes)
    return runs.fitted(np.array(logs))


def test_near_runs_say_what_they_took_and_far_ones_nothing() -> None:
    found = Correction(learned([0.2] * 6))
    near = found.factor(KIND, at(4.0))[0]
    assert 1.15 < near < np.exp(0.22)
    for other in (
        replace(KIND, model=2e9),
        replace(KIND, chip="b200-sxm", architecture="blackwell"),
        replace(KIND, chip="tpu-v7", architecture=""),
    ):
        assert found.factor(other, at(4.0))[0] == 1.0, other
    assert found.factor(KIND, at(4.0, tp=4096.0))[0] == pytest.approx(1.0, abs=0.08)
    sibling = found.factor(replace(KIND, chip="h200-sxm"), at(4.0))[0]
    assert 1.0 < sibling < near


def test_runs_of_a_plain_chip_stand_in_for_an_ultra_one_of_the_same_model_alone() -> None:
    plain = replace(KIND, chip="gb200", architecture="blackwell")
    ultra, other = replace(plain, chip="gb300"), replace(plain, chip="gb300", model=2e9)
    found = Correction(learned([0.2] * 6, [plain] * 6))
    assert found.factor(ultra, at(4.0)) == found.factor(plain, at(4.0))
    assert found.factor(other, at(4.0))[0] == 1.0
    own = Correction(learned([0.2] * 6 + [-0.3] * 6, [plain] * 6 + [ultra] * 6))
    assert own.factor(ultra, at(2.0**8))[0] < 1.0 < own.factor(plain, at(4.0))[0]
    assert found.runs.near(ultra, at(4.0)) == 0  # they are not of that chip


def test_runs_of_a_version_s_time_count_most() -> None:
    old = np.concatenate([at(4.0, day=DAY - 8 * DAYS), at(4.0)])
    runs = Runs((KIND, KIND), old, np.zeros(2), versions=("0.1", "0.2")).fitted(np.array([0.4, -0.2]))
    found = Correction(runs)
    before, now = (found.factor(KIND, at(4.0, day=found.day_of("vllm", v)))[0] for v in ("0.1", ""))
    assert now < 1.05 < before
    assert found.day_of("vllm", "0.2") == found.newest == DAY
    with pytest.raises(InputError, match=r"vllm==9.*no run was of that version; known: 0.1, 0.2"):
        found.day_of("vllm", "9")
    assert found.days["vllm", "0.1"] == DAY - 8 * DAYS


def test_an_engine_that_is_not_named_is_the_mean_of_those_measured() -> None:
    two = learned([0.3, -0.1], [KIND, replace(KIND, engine="sglang")])
    logs = [Correction(two).log_factor(replace(KIND, engine=name), at(1.5))[0] for name in ("vllm", "sglang")]
    unnamed = Correction(two).log_factor(replace(KIND, engine=""), at(1.5))[0]
    assert min(logs) < unnamed < max(logs)


def test_a_question_without_an_engine_is_corrected_by_runs_as_none_says_its_engine() -> None:
    named = learned([0.3] * 6)
    found = Correction(named, unnamed=without_engines(named, -named.weights))
    unnamed = replace(KIND, engine="")
    assert found.factor(KIND, at(4.0))[0] * found.factor(unnamed, at(4.0))[0] == pytest.approx(1.0)
    assert found.every(unnamed)[0].near(unnamed, at(4.0)) == named.near(KIND, at(4.0)) > 0


def test_tables_over_requests_are_the_process() -> None:
    found = Correction(learned([0.1, 0.3, -0.2, 0.4, 0.0, 0.2]))
    bound = Bound(found, KIND, DAY)
    batch = np.geomspace(0.2, 400, 50)
    shape = StepShape(tp=8.0, attention_dp=1.0, sequences=batch, context=2000.0)
    exact = found.factor(KIND, np.concatenate([at(one) for one in batch.tolist()]))
    np.testing.assert_allclose(bound.applied(shape).measured, exact, atol=1e-3)
    one = bound.applied(replace(shape, sequences=batch[7]))
    assert isinstance(one.measured, float)
    assert one.measured == bound.applied(shape).measured[7]
    assert bound.applied(replace(shape, sequences=0.0)).measured == 1.0
    assert found.log_factor(KIND, at(1.0), GRID).shape == (1, len(GRID))


def test_a_correction_is_bounded() -> None:
    assert Correction(learned([9.0] * 8)).factor(KIND, at(4.0))[0] <= np.exp(MOST)


def test_own_runs_go_on_top_and_survive_a_file() -> None:
    own = learned([0.2, 0.25, 0.22], parts=OWN_PARTS)
    read = correction_with(lines_of(own), physics=True)
    assert read.physics
    np.testing.assert_allclose(
        read.factor(KIND, at(3.0)), Correction(PHYSICS.runs, own).factor(KIND, at(3.0))
    )
    other = read.factor(replace(KIND, model=5e9, engine="sglang"), at(3.0))[0]
    assert 1.0 < other < read.factor(KIND, at(3.0))[0]  # the user's machines are what is slower
    off = [abs(learned([0.2, 0.25], parts=OWN_PARTS).log_factor(KIND, at(4.0))[0] - 0.22)]
    np.testing.assert_allclose(abs(own.left_out[2]), off, atol=1e-9)
    assert correction_with() is shipped_correction()
    assert correction_with(physics=True) is PHYSICS


def test_the_file_that_ships() -> None:
    found = shipped_correction()
    assert len(found.runs.kinds) > 3000
    again = runs_of(lines_of(found.runs))
    np.testing.assert_array_equal(again.weights, found.runs.weights)
    model = resolve_model("deepseek-v3")
    kind = kind_of(model, "b200-sxm", "SGLang==0.5.9", "aggregated")
    assert (kind.engine, kind.architecture, kind.format) == ("sglang", "blackwell", "fp8")
    assert found.has_seen(model)  # under another name: the runs are of DeepSeek-R1
