"""The document of a plan's levers as it reads."""

from __future__ import annotations

import pytest

import rackplan
from goldens import require_doc, require_golden
from rackplan.report.levers import levers_doc


def test_levers_of_a_sparse_model() -> None:
    plan = rackplan.plan("mixtral-8x7b", "hgx-h100", phase="decode", tpot_ms=20, time_limit_s=0)
    doc = levers_doc(rackplan.what_if(plan))
    require_golden("what-if", doc)
    data = doc.data
    assert data["tpot_limit_s"] == 0.02
    assert {row["lever_kind"] for row in data["levers"]} == {"hardware", "workload", "precision", "layout"}
    assert all((row["gain"] is None) == (row["reason"] is not None) for row in data["reached"])
    ends = {(row["lever"], row["change"], row["way"]): row for row in data["reached"]}
    double = ends["HBM bandwidth", "x2", "same layout"]
    assert double["gain"] == pytest.approx(double["tok_s_per_gpu"] / data["tok_s_per_gpu"] - 1)
    assert ends[None, None, "same layout"]["gain"] == pytest.approx(0)


@pytest.mark.parametrize("asked", [{"phase": "prefill", "context": 2000}, {"goal": "latency"}, {"batch": 4}])
def test_levers_of_other_plans(asked: dict[str, object]) -> None:
    plan = rackplan.plan("llama-3.1-8b", "hgx-h100", **{"context": 4096, "time_limit_s": 0, **asked})
    doc = levers_doc(rackplan.what_if(plan))
    require_doc(doc)
    assert doc.data["gain_of"] == ("tok_s_per_user" if "goal" in asked else "tok_s_per_gpu")
