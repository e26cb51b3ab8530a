"""The document of a fleet as it reads."""

from __future__ import annotations

import json

import pytest

import rackplan
from goldens import require_doc, require_golden
from rackplan.report.fleet import fleet_doc
from rackplan.report.page import page


def test_two_models_share_a_cluster() -> None:
    fleet = rackplan.fleet(
        ["mixtral-8x7b:0.7", "llama-3.1-8b:0.3"], "hgx-h100@16", isl=100, osl=1000, time_limit_s=200
    )
    doc = fleet_doc(fleet)
    require_golden("fleet", doc)
    data = doc.data
    assert sum(pool["gpus"] for pool in data["pools"]) == data["gpus_used"]
    assert {(row["pool"]) for row in data["replicas"]} == {pool["pool"] for pool in data["pools"]}
    shown = page(doc)
    assert "Memory of the fullest GPU" in shown
    assert "Figures and their sources" in shown


@pytest.mark.parametrize(
    ("cluster", "asked"),
    [
        ("hgx-h100", {"context": 4096, "tok_s": "9k", "utilization": 0.8}),  # idle GPUs
        ("lecture-8", {"context": 4096}),  # without a price
        ("hgx-h100@16", {"isl": 8000, "osl": 200, "goal": "usd", "tpot_ms": 6}),  # two pools
    ],
)
def test_odd_fleets(cluster: str, asked: dict[str, object]) -> None:
    doc = fleet_doc(rackplan.fleet("llama-3.1-8b", cluster, time_limit_s=1, **asked))
    require_doc(doc)
    data = json.loads(json.dumps(doc.data))
    null = [key for key in ("usd_per_hour", "power_w") if data[key] is None]
    assert any(note["kind"] == "missing" for note in data["notes"]) == bool(null)
    assert bool(data["idle"]) == (data["gpus_working"] > data["gpus_used"])
