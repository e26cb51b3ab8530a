"""Limits that nobody asked for give way where nothing holds them; printed reaches are ones that can be asked for."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cost.serving.limits import LimitError, relax_default_limits, rounded_down, rounded_up


@dataclass(frozen=True)
class Level:
    tpot_s: float | None = 0.05
    ttft_s: float | None = 2.0


def hard(level: Level) -> Level:
    """Solve nothing faster than 0.1 s a token and 3 s to the first."""
    for name, least in (("tpot_s", 0.1), ("ttft_s", 3.0)):
        value = getattr(level, name)
        if value is not None and value < least:
            raise LimitError(name, f"{name} is out of reach")
    return level


def test_usual_limits_give_way_and_are_named() -> None:
    answer, left_out = relax_default_limits(hard, Level(), {"tpot_s", "ttft_s"})
    assert answer == Level(None, None)
    assert [error.limit for error in left_out] == ["tpot_s", "ttft_s"]
    assert relax_default_limits(hard, Level(0.2, 4.0), {"tpot_s", "ttft_s"}) == (Level(0.2, 4.0), ())


def test_a_limit_that_was_asked_for_stays() -> None:
    with pytest.raises(LimitError, match="ttft_s"):
        relax_default_limits(hard, Level(), {"tpot_s"})


def test_what_fails_without_its_limit_too_is_refused() -> None:
    def never(level: Level) -> Level:
        raise LimitError("tpot_s", f"no room at {level.tpot_s}")

    with pytest.raises(LimitError, match="no room at None"):
        relax_default_limits(never, Level(), {"tpot_s"})


@given(st.floats(1e-6, 1e9))
def test_printed_reaches_can_be_asked_for(value: float) -> None:
    up, down = (float(text(value).replace(",", "")) for text in (rounded_up, rounded_down))
    assert down * (1 - 1e-11) <= value <= up * (1 + 1e-11)
    assert up - down <= value * 1.0001e-3
