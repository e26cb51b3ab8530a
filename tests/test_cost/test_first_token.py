"""Time to the first token: factors between knots, where waiting dominates, what a calibration file must be."""

import numpy as np
import pytest

from cost.calibration.first_token import QUEUED, FirstTokenCalibration, first_token, first_token_calibration
from topology.base.errors import InputError
from topology.base.schema import validated

SIMPLE = {"fixed_s": 0.1, "low": [0.5, 0.5, 2.0], "middle": [1.0, 1.5, 4.0], "high": [2.0, 4.0, 16.0]}
FILE = {
    "source": "test",
    "fit": {"rows": 10},
    "knots": [4, 16, 64],
    "engines": {"any": SIMPLE, "vllm": SIMPLE | {"fixed_s": 0.2}},
    "two_pools": SIMPLE | {"fixed_s": 0.3},
    "queue": {"aggregated": [0.1, 1.0], "disaggregated": [0.2, 2.0]},
}


def first(requests, *, prefill=0.4, waiting=0.0, engine="", phase="aggregated"):
    return first_token(
        np.array([prefill]),
        np.array([waiting]),
        np.array([float(requests)]),
        engine=engine,
        phase=phase,
        calibration=validated(FirstTokenCalibration, FILE, "first_token.yaml"),
    )


@pytest.mark.parametrize(
    ("requests", "low", "high"),
    [
        (1, 0.5, 2.0),  # below the first knot as at it
        (4, 0.5, 2.0),
        (8, 0.5, 8**0.5),  # half way in the logarithm
        (16, 0.5, 4.0),
        (64, 2.0, 16.0),
        (256, 8.0, 64.0),  # beyond the last knot as before it
    ],
)
def test_factors_are_straight_in_logarithms(requests, low, high):
    found = first(requests)
    assert found.unloaded_s[0] == pytest.approx(0.5)
    assert (found.low_s[0], found.high_s[0]) == (pytest.approx(0.5 * low), pytest.approx(0.5 * high))


def test_a_queue_is_what_littles_law_says():
    assert first(1, waiting=0.49).reason(0) == ""  # less than half of the time
    found = first(1, waiting=9.5)
    assert found.reason(0) == QUEUED
    assert (found.low_s[0], found.high_s[0]) == (pytest.approx(1.0), pytest.approx(10.0))
    other = first(1, waiting=9.5, phase="disaggregated")
    assert (other.low_s[0], other.high_s[0]) == (pytest.approx(0.2 * 10.2), pytest.approx(2 * 10.2))


def test_engines_have_their_own_seconds():
    assert first(1, engine="vllm").unloaded_s[0] == pytest.approx(0.6)
    assert first(1, engine="dynamo").unloaded_s[0] == pytest.approx(0.5)
    assert first(1, engine="vllm", phase="disaggregated").unloaded_s[0] == pytest.approx(0.7)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"knots": [4]}, "knots: expected two or more rising"),
        ({"knots": [16, 4, 64]}, "knots: expected two or more rising"),
        ({"engines": {"vllm": SIMPLE}}, "any is missing"),
        ({"engines": {"any": SIMPLE | {"low": [0.5, 0.5]}}}, "a factor for each of 3 knots"),
        ({"engines": {"any": SIMPLE | {"low": [3.0, 3.0, 3.0]}}}, "rise from low to high"),
        ({"engines": {"any": SIMPLE | {"slow": 1}}}, "slow"),
        ({"queue": {"aggregated": [2.0, 1.0], "disaggregated": [1, 2]}}, "two factors that rise"),
        ({"more": 1}, "more"),
    ],
)
def test_bad_files(change, says):
    with pytest.raises(InputError, match=says):
        validated(FirstTokenCalibration, FILE | change, "first_token.yaml")


def test_the_committed_file_has_every_engine_and_its_held_out_share():
    found = first_token_calibration()
    assert set(found.engines) == {"any", "sglang", "trtllm", "vllm"}
    assert found.fit["aggregated_rows"] == 1810
    assert 0.75 <= found.fit["aggregated_inside_held_out"] <= 0.85
