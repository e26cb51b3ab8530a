"""Options of the planner: what is refused, and in which words."""

from __future__ import annotations

import pytest

from placement.options import PlanOptions
from topology.base.errors import InputError


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
