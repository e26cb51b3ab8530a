"""What measured runs took over the physics: near them, far from them, over requests, and with a user's own."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import numpy as np
import pytest

from cost.calibration.correction import (
    DAYS,
    MAX_CORRECTION,
    OWN_PARTS,
    PHYSICS,
    SLOPE,
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
KIND = Kind(1e9, "vllm", "h100-sxm", "disaggregated", "fp8")
TIMES = np.log(0.01) + 0.3 * np.arange(6)


def at(log_s: float, tp: float = 8.0, day: float = DAY) -> np.ndarray:
    return features_of(StepShape(tp=tp, context=2000.0, sequences=2.0), log_s, day)


def learned(logs: list[float], kinds: list[Kind] | None = None, **changes: object) -> Runs:
    features = np.concatenate([at(time) for time in TIMES[: len(logs)]])
    runs = Runs(tuple(kinds or [KIND] * len(logs)), features, np.zeros(len(logs)), **changes)
    return runs.fitted(np.array(logs))


def log_of(found: Correction, kind: Kind, features: np.ndarray) -> float:
    return float(found.corrected([kind], [features])[0, 0] - features[0, 0])


def test_near_runs_say_what_they_took_and_far_ones_nothing() -> None:
    found, asked = Correction(learned([0.2] * 6)), at(TIMES[2])
    near = log_of(found, KIND, asked)
    assert 0.14 < near < 0.22
    for other in (
        replace(KIND, model=2e9),
        replace(KIND, chip="b200-sxm"),
        replace(KIND, chip="tpu-v7"),
    ):
        assert log_of(found, other, asked) == pytest.approx(0.0, abs=1e-9), other
    assert log_of(found, KIND, at(TIMES[2], tp=4096.0)) == pytest.approx(0.0, abs=0.08)
    assert log_of(found, KIND, at(TIMES[2] + 4)) == pytest.approx(0.0, abs=2e-3)
    assert 0.0 < log_of(found, replace(KIND, chip="h200-sxm"), asked) < near


def test_runs_of_the_same_die_count_for_another_chip() -> None:
    plain = replace(KIND, chip="gb200")
    ultra, other = replace(plain, chip="gb300"), replace(plain, chip="gb300", model=2e9)
    found, asked = Correction(learned([0.2] * 6, [plain] * 6)), at(TIMES[2])
    assert 0.7 * log_of(found, plain, asked) < log_of(found, ultra, asked) < log_of(found, plain, asked)
    assert log_of(found, other, asked) == 0.0
    assert found.runs.near(ultra, asked) == 0  # they are not of that chip


def test_what_takes_longer_by_physics_takes_longer() -> None:
    found = Correction(learned([0.7, -0.7, 0.7, -0.7, 0.7, -0.7]))
    features = np.concatenate([at(time) for time in np.arange(-8.0, 2.0, 0.01)])
    logs = found.corrected([KIND], [features])[0]
    steps = np.diff(logs)
    assert (steps >= SLOPE * 0.01 - 1e-9).all()
    assert steps.max() < 0.1


def test_runs_of_a_version_s_time_count_most() -> None:
    old = np.concatenate([at(TIMES[0], day=DAY - 8 * DAYS), at(TIMES[0])])
    runs = Runs((KIND, KIND), old, np.zeros(2), versions=("0.1", "0.2")).fitted(np.array([0.4, -0.2]))
    found = Correction(runs)
    before, now = (log_of(found, KIND, at(TIMES[0], day=found.day_of(f"vllm{v}"))) for v in ("==0.1", ""))
    assert now < before
    assert found.day_of("vllm==0.2") == found.newest == DAY
    with pytest.raises(InputError, match=r"vllm==9.*no run was of that version; known: 0.1, 0.2"):
        found.day_of("vllm==9")
    assert found.days["vllm", "0.1"] == DAY - 8 * DAYS


def test_an_engine_that_is_not_named_is_the_mean_of_those_measured() -> None:
    two = Correction(learned([0.3, -0.1], [KIND, replace(KIND, engine="sglang")]))
    logs = [log_of(two, replace(KIND, engine=name), at(TIMES[0])) for name in ("vllm", "sglang")]
    assert min(logs) < log_of(two, replace(KIND, engine=""), at(TIMES[0])) < max(logs)


def test_a_question_without_an_engine_is_corrected_by_runs_as_none_says_its_engine() -> None:
    named, asked = learned([0.3] * 6), at(TIMES[2])
    found = Correction(named, unnamed=without_engines(named, -named.weights))
    unnamed = replace(KIND, engine="")
    assert log_of(found, KIND, asked) + log_of(found, unnamed, asked) == pytest.approx(0.0, abs=1e-3)
    assert found.every(unnamed)[0].near(unnamed, asked) == named.near(KIND, asked) > 0


def test_a_correction_is_bounded() -> None:
    assert log_of(Correction(learned([9.0] * 6)), KIND, at(TIMES[2])) <= MAX_CORRECTION + 1e-9


def test_ten_numbers_of_requests_of_one_configuration_are_not_ten_witnesses() -> None:
    other = [replace(KIND, phase="aggregated")] * 3 + [KIND] * 3
    alike, apart = (learned([0.2] * 6, kinds) for kinds in (None, other))
    asked = at(TIMES[2])
    assert alike.variance(KIND, asked)[0] < apart.variance(KIND, asked)[0]
    one = learned([0.2])
    far, near = (one.variance(KIND, at(TIMES[0] + off))[0] for off in (5.0, 0.0))
    assert near < far < 0.13
    assert one.variance(replace(KIND, model=3e9), asked)[0] == pytest.approx(0.11 + 0.01 + 0.004)


def test_variance_is_that_of_the_process() -> None:
    runs = learned([0.1, 0.3, -0.2])
    asked = at(TIMES[1] + 0.1)
    kernel = runs.covariance(KIND, asked)
    between = np.concatenate([runs.covariance(KIND, row[None]) for row in runs.features])
    noise = 0.004 + 0.01 * np.eye(3)  # of one configuration, and of each run
    by_hand = 0.11 + 0.014 - kernel @ np.linalg.inv(between + noise) @ kernel.T
    np.testing.assert_allclose(runs.variance(KIND, asked), by_hand[0])


def test_own_runs_go_on_top_and_survive_a_file() -> None:
    own, asked = learned([0.2, 0.25, 0.22], parts=OWN_PARTS), at(TIMES[1])
    read = correction_with(lines_of(own), physics=True)
    assert read.physics
    assert log_of(read, KIND, asked) == pytest.approx(log_of(Correction(PHYSICS.runs, own), KIND, asked))
    other = log_of(read, replace(KIND, model=5e9, engine="sglang"), asked)
    assert 0.0 < other < log_of(read, KIND, asked)  # the user's machines are what is slower
    alone = learned([0.2, 0.25], parts=OWN_PARTS)
    off = abs(alone.mean(KIND, own.features[2:])[0] - 0.22)
    assert abs(own.left_out[2]) < off  # its configuration's share of the noise is known from the others
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
