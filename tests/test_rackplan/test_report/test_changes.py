"""Documents of changes: a re-plan as it reads, plans side by side."""

from __future__ import annotations

import pytest

import rackplan
from goldens import require_doc, require_golden
from helpers import planned
from placement.migrate.replan import ReplanOptions
from placement.plan import Plan
from rackplan.report.changes import plans_doc, replan_doc


def olmoe(loads: str = "lognormal:0.63", context: int = 4096) -> Plan:
    asked = {"loads": loads, "context": context, "batch": 16, "ep": 8, "tp": 1, "redundant": 8}
    return planned("olmoe-1b-7b", "hgx-h100", **asked)


def test_a_re_plan_reads_as_it_did() -> None:
    found = rackplan.replan(olmoe(), loads="zipf:1", time_limit_s=0)
    doc = replan_doc(found)
    require_golden("replan", doc)
    data = doc.data
    assert sum(row["bytes"] for row in data["sources"]) == pytest.approx(found.bytes)
    assert [row["moves"] for row in data["front"]] == [point.moves for point in found.front]
    assert len(doc.rows) == found.moves
    assert set(doc.rows[0]) == {"layer", "expert", "gpu", "slot", "source", "replaces", "bytes"}


def test_a_lost_gpu_is_said(short: None) -> None:
    found = rackplan.replan(olmoe(), lost="d0.n0.g2", time_limit_s=0)
    doc = replan_doc(found, ReplanOptions(lost=("d0.n0.g2",)))
    require_doc(doc)
    assert (doc.data["lost"], doc.data["balancedness_before"]) == (["d0.n0.g2"], None)
    assert any(note["text"].startswith("Lost: 1 GPU with") for note in doc.data["notes"])


def test_plans_side_by_side_read_as_they_did() -> None:
    first, second = olmoe(), olmoe("zipf:1", 2048)
    doc = plans_doc({"a": first, "b": second})
    require_golden("score-two", doc)
    data = doc.data
    assert [row["step_s"] for row in data["plans"]] == [first.score.step_s, second.score.step_s]
    assert {row["input"]: row["after"] for row in data["changed"]}["context"] == "2048"
    parts = {row["part"]: row for row in data["step_changes"]}
    assert parts["attention"]["first_step_s"] == first.score.terms_s["attention"]
    over = data["change_over"][0]
    assert over["moves"] == sum(row["moves"] for row in data["moved_layers"]) > 0
    assert over["bytes"] == pytest.approx(sum(row["bytes"] for row in data["sources"]))
    back = plans_doc({"b": second, "a": first}).data
    assert back["change_over"][0]["copies_left"] == over["moves"]
    assert {(row["plan"], row["finding"]) for row in back["findings"]} == {
        (row["plan"], row["finding"]) for row in data["findings"]
    }


def test_odd_plans_side_by_side() -> None:
    same = plans_doc({"a": olmoe(), "b": olmoe()})
    require_doc(same)
    assert (same.data["same"], same.data["changed"], same.data["findings"]) == (True, [], [])
    three = plans_doc({"a": olmoe(), "b": olmoe(context=2048), "c": planned("llama-3.1-8b", "hgx-h100")})
    require_doc(three)
    assert any(note["about"] == "moves" for note in three.data["notes"])
