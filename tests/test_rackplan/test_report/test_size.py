"""Documents of fleets as they read."""

from __future__ import annotations

import re

import pytest

import rackplan
from goldens import require_doc, require_golden
from rackplan.report.page import page
from rackplan.report.size import size_doc

pytestmark = pytest.mark.usefixtures("few_joined")


def test_a_size_reads_as_it_did() -> None:
    require_golden("size", size_doc(rackplan.size("mixtral-8x7b", "hgx-h100", req_s=200, spares=1)))


@pytest.mark.usefixtures("few_requests", "no_speed_of_levels")
def test_odd_sizes_keep_the_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rackplan.report.size.SPEEDS", 2)
    unpriced = size_doc(rackplan.size("llama-3.1-8b", "mi350x", tok_s="10k", context=4096))
    require_doc(unpriced)
    assert "have no known price" in " ".join(unpriced.answer)
    require_doc(size_doc(rackplan.size("mixtral-8x7b", "hgx-h100", users=1000, think_s=10, ttft_p99_ms=2000)))
    several = size_doc(rackplan.size("mixtral-8x7b", ["hgx-h100", "hgx-h200@4096"], usd_h=50, context=4096))
    require_doc(several)
    assert re.findall(r'id="chart-([\w-]+)"', page(several)) == [
        "throughput-by-speed-per-user",
        "price-by-speed-per-user",
    ]


@pytest.mark.usefixtures("no_speed_of_levels")
def test_the_other_recipe_takes_so_many_gpus() -> None:
    asked = {"model": "glm-5", "cluster": "hgx-b300", "tok_s": "20k", "context": 4096}
    doc = size_doc(rackplan.size(**asked))
    require_doc(doc)
    (row,) = next(block.rows for block in doc.details if getattr(block, "key", "") == "other_recipe")
    then = rackplan.size(**asked, recipe="usual")
    assert row["gpus"] == then.gpus < doc.row["gpus"]
    assert "in the checkpoint's formats. They cost" in doc.answer[0]
    assert doc.answer[1].startswith(f"{then.gpus} GPUs with the recipe of published runs (experts nvfp4")
