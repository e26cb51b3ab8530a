"""Generations of machines keep their order at one speed per user, whatever runs correct."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import rackplan

SPEEDS = (20, 60, 100, 160)
PARTS = 1e-3
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def rates(clusters: list[str], model: str, speeds: tuple[int, ...] = SPEEDS, **asked: object) -> np.ndarray:
    """tok/s/GPU, ``[clusters, speeds]``; 0 out of reach."""
    found = rackplan.compare(clusters, model, tok_s_user=list(speeds), **asked)
    return np.array([row.tok_s_per_gpu or 0.0 for row in found.rows]).reshape(len(clusters), len(speeds))


def test_better_chips_give_more_at_every_speed() -> None:
    found = rates(["hgx-h100@8", "hgx-h200@8", "hgx-b200@8"], "gpt-oss-120b")
    assert (np.diff(found, axis=0) >= -1e-3 * found[1:]).all()
    assert (found[:, 0] > 0).all()


def test_a_larger_domain_is_never_behind() -> None:
    found = rates(["lecture-8@72", "lecture-72@72"], "deepseek-v3", (20, 60))
    assert (found[1] >= found[0] * (1 - 1e-3)).all()
    assert found[1, 1] > 1.05 * found[0, 1]


@pytest.mark.wide
@pytest.mark.parametrize("engine", ["", "sglang"])
@pytest.mark.parametrize("model", ["deepseek-v3", "kimi-k2", "llama-3.1-70b"])
def test_every_generation_gives_more_at_every_speed(model: str, engine: str) -> None:
    asked = {"engine": engine} if engine else {}
    for family in (
        ["hgx-h100@72", "hgx-h200@72", "hgx-b200@72", "gb200-nvl72@72", "gb300-nvl72@72"],
        ["gb200-nvl72@72", "vr-nvl72@72"],
        ["mi300x@72", "mi325x@72", "mi355x@72"],
    ):
        found = rates(family, model, tuple(range(10, 201, 10)), **asked)
        assert (np.diff(found, axis=0) >= -PARTS * found[:-1]).all(), family
        assert (np.diff(found, axis=0) >= -1e-3 * found[:-1]).mean() > 0.96, family


@pytest.mark.wide
def test_published_ratios_are_near_or_have_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import ratios

    found = ratios.ratios()
    assert len(found) >= 15
    assert np.median([ratio.off for ratio in found]) <= 1.25
    assert all(ratio.off <= ratios.WITHIN or ratio.row["reason"] for ratio in found)
    told = f"{len(found)} ratios: off by {np.median([ratio.off for ratio in found]):.2f} times"
    assert told in ratios.PAGE.read_text(encoding="utf-8")
    sys.modules.pop("ratios")
