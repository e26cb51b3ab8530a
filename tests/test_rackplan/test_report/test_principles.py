"""Documents of the blackboard as they read: each figure of the lecture beside ours."""

from __future__ import annotations

import re

import rackplan
from cost.principles.lecture import lecture
from goldens import require_doc, require_golden
from rackplan.report.page import page
from rackplan.report.principles import LECTURE, economics_doc, roofline_doc


def test_a_blackboard_reads_as_it_did() -> None:
    doc = roofline_doc(rackplan.roofline("deepseek-v3", ["lecture-72", "gb200-nvl72"]))
    require_golden("roofline", doc)
    assert re.findall(r'id="chart-([\w-]+)"', page(doc)) == [
        "latency-of-a-step-over-batches--lecture-72",
        "latency-of-a-step-over-batches--gb200-nvl72",
        "cost-of-a-token-over-batches",
    ]


def test_economics_read_as_they_did() -> None:
    require_golden("economics", economics_doc(rackplan.economics()))


def test_every_figure_of_the_lecture_is_told() -> None:
    docs = roofline_doc(rackplan.roofline("deepseek-v3", "lecture-72")), economics_doc(rackplan.economics())
    told = {}
    for doc in docs:
        for table in doc.data.values():
            rows = table if isinstance(table, list) else []
            told |= next((row for row in rows if isinstance(row, dict) and row.get("cluster") == LECTURE), {})
    assert {key: said.value for key, said in lecture().items()}.items() <= told.items()


def test_odd_boards_keep_the_rules() -> None:
    for asked in (
        {"model": "llama-3.1-8b", "cluster": "l40s@1"},  # one GPU, nothing joined
        {"model": "kimi-k2", "cluster": "tpu-v5p", "phase": "prefill", "batches": "1000,1e6", "stages": 3},
        {"model": "qwen3.5-397b-a17b", "cluster": ["hgx-h100", "rubin-576"]},  # states in place of a cache
    ):
        require_doc(roofline_doc(rackplan.roofline(**asked)))
    unpriced = economics_doc(rackplan.economics(model="gpt-oss-120b", cluster="lecture-72"))
    require_doc(unpriced)
    assert any("no price" in note["text"] for note in unpriced.data["notes"])
