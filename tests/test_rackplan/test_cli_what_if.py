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
    assert data["held"]["tpot_s"] == 0.004
    assert {one["kind"] for one in data["levers"]} == {"hardware", "workload", "precision", "layout"}
    ways = ("batch_kept", "layout_kept", "layout_free")
    for one in data["levers"]:
        assert set(one["reasons"]) == {way for way in ways if one[way] is None}
    double = next(one for one in data["levers"] if (one["lever"], one["change"]) == ("HBM bandwidth", "x2"))
    plan = data["plan"]["tok_s_per_gpu"]
    assert double["layout_kept"]["gain"] == pytest.approx(double["layout_kept"]["tok_s_per_gpu"] / plan - 1)
    assert data["unchanged"]["layout_kept"]["gain"] == pytest.approx(0)


def test_a_file_that_is_no_plan_is_refused(run: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{}")
    assert run("what-if", "x.json").code == 2
    assert "not a plan" in run("what-if", "x.json").error_line
