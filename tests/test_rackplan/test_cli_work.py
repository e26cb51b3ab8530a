"""``--work``: a timed plan is repeated byte for byte, but for the fields that say what was asked."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from placement import work as work_module

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Run = Callable[..., Any]

MODEL = ("--model", "mixtral-8x7b", "--cluster", "hgx-h100@8", "--ep", 8, "--tp", 1, "--batch", 8)
ASKED = ("plan", *MODEL, "--redundant", 8, "--loads", "lognormal:1.2")


@pytest.mark.wide
@pytest.mark.usefixtures("short")
def test_a_timed_replan_is_repeated(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(*ASKED, "--time-limit", 0, "-o", "old").code == 0
    asked = ("replan", "old", "--loads", "zipf:0.7", "--json")
    now = iter(range(10**9))
    with monkeypatch.context() as patch:
        patch.setattr(work_module.time, "monotonic", lambda: 0.06 * next(now))
        first = json.loads(run(*asked, "--time-limit", 0.3, "-o", "one").out)
    again = json.loads(run(*asked, "--work", first["proof"]["work"], "-o", "two").out)
    assert first["proof"]["work"] > 0
    assert again | {"files": {}} == first | {"files": {}}
    assert (tmp_path / "one/moves.json").read_bytes() == (tmp_path / "two/moves.json").read_bytes()
    asked_s = [json.loads((tmp_path / name / "plan.json").read_text())["request"] for name in ("one", "two")]
    assert [each["time_limit_s"] for each in asked_s] == [0.3, None]


def test_not_with_a_time_limit(run: Run) -> None:
    both = run(*ASKED, "--work", 5, "--time-limit", 1, "-o", "two")
    assert both.code == 2
    assert "--work 5 and --time-limit 1: one of them ends the search; leave one out" in both.err
