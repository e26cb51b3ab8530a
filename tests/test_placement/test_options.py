"""Options of the planner: what is refused, and in which words."""

from __future__ import annotations

import pytest

from placement.options import PlanOptions
from topology.base.errors import InputError


def test_defaults() -> None:
    options = PlanOptions()
    assert (options.redundant, options.tpot_s, options.seed) == (None, None, 0)
    assert options.time_limit_s is None  # what the search is worth


@pytest.mark.parametrize("options", [{"redundant": 0}, {"time_limit_s": 0.0}, {"tpot_s": 1e-12}, {"seed": 0}])
def test_the_smallest_of_each_is_accepted(options: dict[str, float]) -> None:
    made = PlanOptions(**options)  # type: ignore[arg-type]
    for name, value in options.items():
        assert getattr(made, name) == value


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"redundant": -1}, "`redundant` -1"),
        ({"tpot_s": 0.0}, "`tpot_ms`: expected a number above 0"),
        ({"time_limit_s": -1.0}, "`time_limit_s`: expected 0 or more seconds, not -1"),
        ({"seed": -1}, "`seed` -1"),
    ],
)
def test_each_bad_option_is_named(options: dict[str, float], words: str) -> None:
    with pytest.raises(InputError, match=words) as refusal:
        PlanOptions(**options)  # type: ignore[arg-type]
    assert "\n" not in str(refusal.value)
