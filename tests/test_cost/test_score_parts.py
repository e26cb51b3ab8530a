"""Of a score: what binds a part of the step, and what two half-batches hide of it."""

from __future__ import annotations

import pytest

from cost.step.score import Score
from topology.base.figures import Evidence


def score(parts_s: dict[tuple[str, str], float]) -> Score:
    step_s = sum(parts_s.values())
    return Score(step_s, step_s, 1.0, 1.0, 1.0, parts_s, {}, {}, 1, 1, Evidence.ASSUMED)


def test_what_binds_a_part_comes_with_the_most_first() -> None:
    parts = {
        ("experts", "HBM"): 1e-3,
        ("experts", "compute"): 2e-3,
        ("experts", "idle"): 0.0,
        ("dispatch", ""): 1e-3,
    }
    assert list(score(parts).bounds_of("experts").items()) == [("compute", 2e-3), ("HBM", 1e-3)]
    assert score(parts).bounds_of("dispatch") == {}


def test_half_of_the_shorter_of_computing_and_sending_is_hidden() -> None:
    longer = score({("experts", "compute"): 10e-3, ("dispatch", "nvlink"): 4e-3})
    assert longer.hidden_s(0.5) == pytest.approx({"dispatch": 4e-3})  # 8 ms are sent, 4 of them are seen
    shorter = score({("experts", "compute"): 2e-3, ("dispatch", "nvlink"): 3e-3, ("combine", "nvlink"): 1e-3})
    assert shorter.hidden_s(0.5) == pytest.approx(
        {"dispatch": 0.75e-3, "combine": 0.25e-3}
    )  # half of computing
    assert longer.hidden_s(0.0) == {}
    assert score({("experts", "compute"): 1e-3}).hidden_s(0.5) == {}
