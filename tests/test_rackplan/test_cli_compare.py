"""``rackplan compare``: rows of the contract, equal sides, unreachable speeds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]

MIXTRAL = ("--model", "mixtral-8x7b")
ROW = {"cluster", "model", "tok_s_per_user", "tok_s_per_gpu", "step_s", "batch", "bound_by"}


def test_json_has_a_row_per_cluster(run: Run, tmp_path: Path) -> None:
    result = run("compare", "hgx-h100", "hgx-h200", *MIXTRAL, "--json", "-o", "out")
    assert (result.code, result.err) == (0, "")
    rows = result.data["rows"]
    assert [row["cluster"] for row in rows] == ["hgx-h100", "hgx-h200"]
    assert all(set(row) >= ROW and row["model"] == "mixtral-8x7b" for row in rows)
    assert (tmp_path / "out/compare.json").read_text() == result.out
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["compare.json", "report.html"]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("hgx-h100@16", "hgx-h200@8"), "hgx-h100@16 16, hgx-h200@8 8"),
        (("hgx-h100", "--gpus", 12), "hgx-h100@8 or hgx-h100@16"),
        (("hgx-h100", "--tok-s-user", "fast"), "--tok-s-user fast"),
        (("hgx-h100", "--accept-length", 2), "--accept-length 2"),
    ],
)
def test_bad_input_leaves_nothing(run: Run, args: tuple[object, ...], words: str, tmp_path: Path) -> None:
    result = run("compare", *args, *MIXTRAL, "-o", "out", "--json")
    assert result.code == 2
    assert words in result.error_line
    assert list(tmp_path.iterdir()) == []


def test_where_nobody_can_the_rows_still_say_why(run: Run) -> None:
    result = run("compare", "hgx-h100", "--model", "deepseek-v3", "--json")
    assert result.code == 3
    assert result.data["rows"][0]["tok_s_per_gpu"] is None
    assert "HBM capacity binds" in result.data["rows"][0]["reason"]
    assert len(result.err.splitlines()) == 1
    assert "none of the clusters" in result.err
