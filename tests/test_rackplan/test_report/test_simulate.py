"""The document of a simulation."""

from __future__ import annotations

from typing import Any

import pytest

import rackplan
from goldens import require_doc, require_golden
from rackplan.report.page import page
from rackplan.report.simulate import simulate_doc

ASKED = {"model": "llama-3.1-8b", "cluster": "hgx-h100", "isl": 2000, "osl": 100}


pytestmark = pytest.mark.usefixtures("few_requests")


def test_what_users_see() -> None:
    doc = simulate_doc(rackplan.simulate(**ASKED, req_s=10))
    require_golden("simulate", doc)
    drawn = page(doc)
    for title in (
        "Time to the first token by request rate",
        "Queue and batch",
        "Percentiles by request rate",
    ):
        assert title in drawn


@pytest.mark.parametrize(
    "asked", [{"req_s": 400}, {"concurrency": 4, "osl": 1}, {"req_s": 1, "tpot_ms": "none"}]
)
def test_odd_loads_keep_the_rules(asked: dict[str, Any]) -> None:
    found = rackplan.simulate(**{**ASKED, **asked})
    doc = simulate_doc(found)
    require_doc(doc)
    assert any(block.text for block in doc.all if getattr(block, "kind", "") == "warning") == found.overloaded
    assert found.plot().data
