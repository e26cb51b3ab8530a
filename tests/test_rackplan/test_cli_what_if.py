"""``rackplan what-if`` and the levers that ``explain`` ends with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from helpers import Result


@pytest.fixture
def planned(prepared: Callable[..., None], few_layers: Callable[[str, int], Path]) -> None:
    """A plan in ``p`` of a small model on one host."""
    model = few_layers("mixtral-8x7b", 2)
    prepared("plan", "--model", model, "--cluster", "hgx-h100", "--tpot-ms", 4, "--time-limit", 0, "-o", "p")


@pytest.mark.usefixtures("planned")
def test_the_data_have_every_lever_with_its_reasons(run: Callable[..., Result]) -> None:
    data = run("what-if", "p/plan.json", "--json").data
    assert data["tpot_limit_s"] == 0.004
    assert {row["lever_kind"] for row in data["levers"]} == {"hardware", "workload", "precision", "layout"}
    assert all((row["gain"] is None) == (row["reason"] is not None) for row in data["reached"])
    ends = {(row["lever"], row["change"], row["way"]): row for row in data["reached"]}
    double = ends["HBM bandwidth", "x2", "same layout"]
    assert double["gain"] == pytest.approx(double["tok_s_per_gpu"] / data["tok_s_per_gpu"] - 1)
    assert ends[None, None, "same layout"]["gain"] == pytest.approx(0)


def test_a_file_that_is_no_plan_is_refused(run: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{}")
    assert run("what-if", "x.json").code == 2
    assert "not a plan" in run("what-if", "x.json").error_line
