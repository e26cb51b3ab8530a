"""``rackplan what-if``: what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from helpers import Result


def test_a_file_that_is_no_plan_is_refused(run: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{}")
    done = run("what-if", "x.json")
    assert done.code == 2
    assert "not a plan" in done.error_line
