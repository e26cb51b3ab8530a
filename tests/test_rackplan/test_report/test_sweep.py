"""Documents of sweeps: of one phase and of whole requests, their CSV file, and measured runs beside a frontier."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest

import rackplan
from cost.inputs.deployment import Deployment
from cost.inputs.workload import Workload
from cost.layouts import sweep
from cost.resolve import resolve_model
from cost.terms.registry import TERMS
from cost.validation.measured import published_runs
from goldens import require_doc, require_golden
from rackplan.report.charts import figure
from rackplan.report.csv import table_csv
from rackplan.report.doc import Chart, Table
from rackplan.report.frontier import measured_blocks
from rackplan.report.page import page
from rackplan.report.sweep import sweep_doc, sweep_rows
from rackplan.report.text import text
from topology import resolve_cluster


def test_one_phase_and_whole_requests() -> None:
    found = rackplan.sweep("mixtral-8x7b", "hgx-h100", context=4096)
    doc = sweep_doc(found)
    require_golden("sweep", doc)
    assert "HBM of the fullest GPU" in page(doc)
    whole = rackplan.sweep("mixtral-8x7b", "hgx-h100")
    require_golden("sweep-requests", sweep_doc(whole))
    rows = list(csv.DictReader(io.StringIO(table_csv(sweep_rows(whole)))))
    assert {row["phase"] for row in rows} == {"decode", "prefill", "both"}
    for row in rows[:: len(rows) // 50]:
        parts = sum(float(row[f"{term}_s"]) for term in TERMS)
        assert parts == pytest.approx(float(row["step_s"]))
        assert float(row["longest_wait_ms"]) == pytest.approx(2000 * float(row["step_s"]))


@pytest.mark.parametrize(
    ("model", "cluster", "asked"),
    [
        ("llama-3.1-8b", "hgx-h100", {"context": 4096, "tpot_ms": "none"}),
        ("mixtral-8x7b", "hgx-h100", {"phase": "prefill", "context": 4096, "prefix_hit": 0.5}),
        ("llama-3.1-8b", "hgx-h200", {"prefill_cluster": "hgx-h100", "isl": 900, "osl": 100}),
        ("llama-3.1-8b", "tpu-v5e@4x4", {"context": 4096, "sparse_attention": "512"}),
        ("llama-3.1-8b", "tpu-v5p@4x4x4", {"context": 4096}),
    ],
)
def test_odd_ones_keep_the_rules(model: str, cluster: str, asked: dict[str, Any]) -> None:
    doc = sweep_doc(rackplan.sweep(model, cluster, **asked), [30.0])
    require_doc(doc)
    data = doc.data
    assert data["tok_s_per_gpu"] == pytest.approx(data["tok_s"] / data["gpus"])
    assert max(map(len, text(doc).splitlines())) <= 100


def test_nothing_fits_and_the_page_says_so() -> None:
    found = sweep(Deployment(resolve_cluster("hgx-h100"), resolve_model("deepseek-v3"), Workload()))
    doc = sweep_doc(found)
    require_doc(doc)
    assert "lacks" in doc.answer[0]
    assert doc.answer[0] in page(doc)


def test_each_measured_run_stands_beside_its_prediction() -> None:
    question = Deployment(resolve_cluster("gb200-nvl72"), resolve_model("deepseek-v3"), Workload())
    chart, note, runs = measured_blocks([question])
    assert isinstance(chart, Chart)
    band, diagonal, dots = figure(chart).data
    assert f"{len(published_runs(question))} published runs" in getattr(note, "text", "")
    rows = getattr(runs, "rows", [])
    pairs = [(row["predicted_tok_s_per_gpu"], row["measured_tok_s_per_gpu"]) for row in rows]
    assert sorted(zip(dots.x, dots.y, strict=True)) == sorted(pairs)
    assert list(diagonal.x) == list(diagonal.y)
    assert band.y[0] / band.x[0] == pytest.approx(band.x[-1] / band.y[-1])
    alone = Deployment(resolve_cluster("hgx-h200"), resolve_model("mixtral-8x7b"), Workload())
    assert not any(isinstance(block, Chart) for block in measured_blocks([alone]))


@pytest.mark.parametrize("name", ["=1+1", "+1", "-x", "@SUM(A1)", "\t=1", "\r=1"])
def test_text_of_others_is_no_formula(name: str) -> None:
    written = table_csv(Table.of("", "cluster gpus")([(name, -1.5)]))
    rows = list(csv.reader(io.StringIO(written, newline="")))
    assert rows == [["cluster", "gpus"], ["'" + name.replace("\r", " "), "-1.5"]]
    steps = Table.of("", "cluster step_s")([("a@72", 1e-3), ("", None)])
    assert table_csv(steps) == "cluster,step_s\na@72,0.001\n,\n"
