"""Documents of comparisons as they read, and their charts."""

from __future__ import annotations

import json
import re

import pytest

import rackplan
from goldens import require_doc, require_golden
from page_check import Page
from rackplan.report.compare import compare_doc
from rackplan.report.page import page

CLUSTERS = ["hgx-h100", "hgx-b200"]


def test_a_comparison_reads_as_it_did() -> None:
    require_golden("compare", compare_doc(rackplan.compare(CLUSTERS, "llama-3.1-8b")))


def test_charts_have_the_figures_of_the_rows() -> None:
    doc = compare_doc(rackplan.compare(CLUSTERS, "mixtral-8x7b", context=4096, tok_s_user=[25, 1e6]))
    require_doc(doc)
    text = page(doc)
    charts = Page(text).charts
    frontiers = charts["chart-throughput-against-speed-per-user"]["data"]
    parts = charts["chart-steps-by-part"]["data"]
    assert "chart-memory-of-the-fullest-gpu" in charts
    reached = [row for row in doc.data["rows"] if row["tok_s_per_gpu"] is not None]
    assert [row["cluster"] for row in reached] == CLUSTERS
    for row in reached:
        own = (x for bars in parts for x, y in zip(bars["x"], bars["y"], strict=True) if y == row["cluster"])
        assert sum(own) == pytest.approx(row["step_s"] * 1e3, rel=1e-5)
        line, star = (trace for trace in frontiers if trace["name"] == row["cluster"])
        assert line["x"] == sorted(line["x"])
        assert line["y"] == sorted(line["y"], reverse=True)
        reached = [row["reached_tok_s_per_user"], row["tok_s_per_gpu"]]
        assert [*star["x"], *star["y"]] == pytest.approx(reached, rel=1e-5)
        # no placement beats perfect balance
        faster = [y for x, y in zip(line["x"], line["y"], strict=True) if x >= star["x"][0]]
        assert star["y"][0] <= 1.1 * max(faster)
    assert "out of reach" in text
    assert text.count('class="drawing"') == 2
    assert not re.search(r"\b(src=|href=\"[^#])", text[: text.rindex("<noscript>")])


def test_a_waterfall_goes_from_each_cluster_to_the_next() -> None:
    doc = compare_doc(rackplan.compare([*CLUSTERS, "hgx-h200"], "llama-3.1-8b"))
    drawn = Page(page(doc)).charts["chart-gain-of-each-cluster-over-the-one-before"]
    names = [name.strip() for name in drawn["layout"]["xaxis"]["categoryarray"]]
    assert [name for name in names if name.startswith("hgx")] == ["hgx-h100", "hgx-b200", "hgx-h200"]
    (bars,) = [trace for trace in drawn["data"] if trace["name"] == "cluster"]
    assert bars["y"] == pytest.approx([row["tok_s_per_gpu"] for row in doc.data["rows"]], rel=1e-5)


def test_odd_comparisons_keep_the_rules() -> None:
    require_doc(compare_doc(rackplan.compare(["hgx-h100"], "llama-3.1-8b", phase="prefill", context=2048)))
    require_doc(compare_doc(rackplan.compare(["hgx-h100"], "deepseek-v3")))
    sizes = compare_doc(rackplan.compare(["hgx-h100@16", "rubin-576@8"], "llama-3.1-8b", tok_s_user="none"))
    require_doc(sizes)
    assert any(note["text"].startswith("The clusters differ in size") for note in sizes.data["notes"])
    assert "rubin-576@8 is hypothetical" in json.dumps(sizes.data["notes"])


def test_a_lead_within_the_band_is_told_from_one_beyond_it() -> None:
    found = rackplan.compare(["hgx-h200", "gb300-nvl72@8"], "gpt-oss-120b", context=8192)
    first, second = compare_doc(found).data["rows"]
    band = max(first["band"], second["band"])
    assert second["tok_s_per_gpu_ratio"] > band > second["tok_s_per_usd_h_ratio"]
    sure = compare_doc(found).answer[-1]
    assert f"within {band:.2f}x of the prediction; no measured run is near it" in sure
    assert re.search("Per .*GPU.* the lead is larger than that. Per USD/h the lead is within that", sure)
