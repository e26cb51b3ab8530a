"""Documents as they read (``goldens``), and odd ones that keep the rules."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rackplan
from cost.experts.traces.description import describe
from cost.inputs.deployment import Deployment
from cost.inputs.workload import Workload
from cost.principles.lecture import lecture
from cost.resolve import model_names, resolve_model
from cost.terms.registry import TERMS
from cost.validation.measured import published_runs
from cost.validation.predict import Prediction
from cost.validation.read import Point, read_measurements
from cost.validation.validation import validation
from goldens import require_doc, require_golden
from helpers import Run, few_layers, planned
from page_check import Page
from placement.analysis.levers import find_levers
from placement.engines.manifests.write import ExportRequest, deploy
from placement.engines.registry import ENGINES
from placement.plan import Plan
from rackplan.report.catalog import catalog_doc
from rackplan.report.changes import SCORE, plans_doc, replan_doc
from rackplan.report.charts import figure, leading
from rackplan.report.cluster import traffic_doc
from rackplan.report.compare import compare_doc
from rackplan.report.csv import table_csv
from rackplan.report.doc import Chart, Table
from rackplan.report.engines import exported_doc
from rackplan.report.frontier import measured_blocks
from rackplan.report.levers import levers_doc
from rackplan.report.loads import loads_doc
from rackplan.report.page import page
from rackplan.report.plan import plan_doc
from rackplan.report.principles import LECTURE, economics_doc, roofline_doc
from rackplan.report.replay import replay_doc
from rackplan.report.schema import NAMES
from rackplan.report.simulate import simulate_doc
from rackplan.report.size import size_doc
from rackplan.report.sweep import sweep_doc, sweep_rows
from rackplan.report.text import text
from rackplan.report.validate import frontiers_doc, validate_doc
from topology import cluster_names, gpu_names, resolve_cluster
from topology.routes import Router, fair_s, pattern_traffic


def test_a_plan_reads_as_it_did() -> None:
    require_golden("plan", plan_doc(planned("mixtral-8x7b", "hgx-h100", batch=64)))


def test_figures_are_those_of_the_plan() -> None:
    plan = planned("mixtral-8x7b", "hgx-h100", batch=64)
    doc = plan_doc(plan, SCORE, find_levers(plan, free=False))
    columns = ("compute_s", "hbm_s", "scale_up_s", "scale_out_s", "fixed_s", "stage_wait_s")
    for row in doc.data["step"]:
        assert sum(row[key] for key in columns) == pytest.approx(row["step_s"])
        assert row["peak_s"] <= row["step_s"]
    assert sum(row["step_share"] for row in doc.data["step"]) == pytest.approx(1)
    assert doc.data["limits_s"][0]["resource"] == doc.data["bound_by"]
    assert doc.data["levers"]
    assert len(doc.rows["slot"]) == 32 * 8 * len(plan.layout.replicas[0])
    assert leading(doc) is not None


def test_odd_plans() -> None:
    dense = plan_doc(planned("llama-3.1-8b", "hgx-h100"))
    require_doc(dense)
    assert (dense.data["balancedness"], dense.data["proof"], dense.data["layers"]) == (None, None, [])
    idle = plan_doc(planned("llama-3.1-8b", "hgx-h100", goal="gpus", batch=1))
    require_doc(idle)
    row = idle.data["idle"][0]
    assert len(row["gpu_ids"]) == idle.data["gpus"] - idle.data["gpus_used"]
    assert idle.data["usd_per_million_tokens"] > idle.data["usd_per_million_tokens_used"]
    free = plan_doc(planned("mixtral-8x7b", "lecture-8"))
    require_doc(free)
    assert any(note["about"] == "usd_per_hour" for note in free.data["notes"])
    grouped = plan_doc(
        rackplan.plan(few_layers("deepseek-v3", 6), "hgx-h100@16", phase="decode", ep=16, time_limit_s=0)
    )
    require_doc(grouped)
    assert {row["placement"] for row in grouped.data["by_traffic"]} >= {"balance only"}
    assert any("experts tokens choose together" in note["text"] for note in grouped.data["notes"])


pytestmark = pytest.mark.usefixtures("few_joined", "few_requests")
ENTRIES = (
    "gb200-nvl72@144",
    "rubin-ultra-nvl144",
    *cluster_names()[::7],
    *gpu_names()[::7],
    *model_names()[::9],
)


def test_entries_and_traffic_read_as_they_did() -> None:
    require_golden("catalog", catalog_doc("hgx-h100"))
    require_golden("catalog_model", catalog_doc("mixtral-8x7b"))
    cluster = resolve_cluster("gb200-nvl72@144")
    sent, router = pattern_traffic("all-to-all", 144, 1e9), Router(cluster)
    loads = router.loads(sent)
    require_golden("traffic", traffic_doc(cluster, sent, loads, fair_s(router, sent, loads)))


def test_lists_have_every_name(run: Run) -> None:
    for kind, names in (("gpus", gpu_names()), ("clusters", cluster_names()), ("models", model_names())):
        assert [row["name"] for row in run("catalog", kind, "--json").data[kind]] == list(names)
    assert [row["name"] for row in run("schema", "--json").data["schemas"]] == list(NAMES)


@pytest.mark.parametrize("name", ENTRIES)
def test_every_entry_holds_against_the_schema(run: Run, name: str) -> None:
    data = run("catalog", name, "--json").data
    assert data["name"] == name
    for row in data.get("figures", []):
        assert all(row[key] for key in ("part", "unit", "evidence", "source"))


def olmoe(loads: str = "lognormal:0.63", context: int = 4096) -> Plan:
    asked = {"loads": loads, "context": context, "batch": 16, "ep": 8, "tp": 1, "redundant": 8}
    return planned("olmoe-1b-7b", "hgx-h100", **asked)


def test_a_re_plan_and_plans_side_by_side_read_as_they_did() -> None:
    replanned = rackplan.replan(olmoe(), loads="zipf:1", time_limit_s=0)
    doc = replan_doc(replanned)
    require_golden("replan", doc)
    assert sum(row["bytes"] for row in doc.data["sources"]) == pytest.approx(replanned.bytes)
    assert len(doc.rows) == replanned.moves
    doc = plans_doc({"a": olmoe(), "b": olmoe("zipf:1", 2048)})
    require_golden("score-two", doc)
    over = doc.data["change_over"][0]
    assert over["moves"] == sum(row["moves"] for row in doc.data["moved_layers"]) > 0
    assert over["bytes"] == pytest.approx(sum(row["bytes"] for row in doc.data["sources"]))
    same = plans_doc({"a": olmoe(), "b": olmoe()}).data
    assert (same["same"], same["changed"], same["findings"]) == (True, [], [])


CLUSTERS = ["hgx-h100", "hgx-b200"]


def test_a_comparison_reads_as_it_did_and_its_charts_have_the_figures_of_the_rows() -> None:
    require_golden("compare", compare_doc(rackplan.compare(CLUSTERS, "llama-3.1-8b")))
    doc = compare_doc(rackplan.compare(CLUSTERS, "mixtral-8x7b", context=4096, tok_s_user=[25, 1e6]))
    require_doc(doc)
    text = page(doc)
    charts = Page(text).charts
    frontiers = charts["chart-throughput-against-speed-per-user"]["data"]
    parts = charts["chart-steps-by-part"]["data"]
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


def test_clusters_of_other_sizes_and_hypothetical_ones_are_told() -> None:
    doc = compare_doc(rackplan.compare(["hgx-h100@16", "rubin-576@8"], "llama-3.1-8b", tok_s_user="none"))
    require_doc(doc)
    notes = json.dumps(doc.data["notes"])
    assert "The clusters differ in size" in notes
    assert "rubin-576@8 is hypothetical" in notes


def test_a_lead_within_the_band_is_told_from_one_beyond_it() -> None:
    compared = rackplan.compare(["hgx-h200", "gb300-nvl72@8"], "gpt-oss-120b", context=8192)
    first, second = compare_doc(compared).data["rows"]
    band = max(first["band"], second["band"])
    assert second["tok_s_per_gpu_ratio"] > band > second["tok_s_per_usd_h_ratio"]
    sure = compare_doc(compared).answer[-1]
    assert re.search("Per .*GPU.* the lead is larger than that. Per USD/h the lead is within that", sure)


def test_exported_plans_read_as_they_did() -> None:
    plan = planned("mixtral-8x7b", "hgx-h100@16", ep=8, redundant=8, batch=4)
    require_golden("export", exported_doc(deploy(ExportRequest(ENGINES["sglang"], Path("x.json")), plan)))
    doc = exported_doc(deploy(ExportRequest(ENGINES["vllm"], Path("x.jsonl"), "lws"), plan), "text")
    require_doc(doc)
    assert doc.data["notes"][0]["kind"] == "warning"


def test_a_placement_of_an_engine_is_checked(run: Run, tmp_path: Path) -> None:
    rows = [[slot % 8 for slot in range(16)] for _ in range(32)]
    check = ("import-plan", "x.json", "--check", "--from", "sglang", "--model", "mixtral-8x7b", "--json")
    (tmp_path / "x.json").write_text(json.dumps({"physical_to_logical_map": rows}))
    data = run(*check, "--cluster", "hgx-h100", "--loads", "uniform").data
    assert (data["engine"], data["can_load"], data["is_right"]) == ("sglang", True, True)
    assert data["engine_balancedness"] == 1
    assert {finding["effect"] for finding in data["findings"]} == {"note"}
    rows[7] = [slot % 7 for slot in range(16)]
    (tmp_path / "x.json").write_text(json.dumps({"physical_to_logical_map": rows}))
    result = run(*check, "--ep", 8)
    assert result.code == 2
    assert (result.data["can_load"], result.data["is_right"]) == (True, False)
    assert {"where": "layer 7", "effect": "wrong"}.items() <= result.data["findings"][0].items()


def test_levers_of_a_sparse_model() -> None:
    plan = rackplan.plan("mixtral-8x7b", "hgx-h100", phase="decode", tpot_ms=20, time_limit_s=0)
    doc = levers_doc(rackplan.what_if(plan))
    require_golden("what-if", doc)
    data = doc.data
    assert all((row["gain"] is None) == (row["reason"] is not None) for row in data["reached"])
    ends = {(row["lever"], row["change"], row["way"]): row for row in data["reached"]}
    double = ends["HBM bandwidth", "x2", "same layout"]
    assert double["gain"] == pytest.approx(double["tok_s_per_gpu"] / data["tok_s_per_gpu"] - 1)
    assert ends[None, None, "same layout"]["gain"] == pytest.approx(0)


@pytest.mark.parametrize("asked", [{"phase": "prefill", "context": 2000}, {"goal": "latency"}])
def test_levers_of_other_plans(asked: dict[str, Any]) -> None:
    plan = rackplan.plan("llama-3.1-8b", "hgx-h100", **{"context": 4096, "time_limit_s": 0, **asked})
    doc = levers_doc(rackplan.what_if(plan))
    require_doc(doc)
    assert doc.data["gain_of"] == ("tok_s_per_user" if "goal" in asked else "tok_s_per_gpu")


def test_files_of_loads_read_as_they_did(run: Run) -> None:
    """Tokens choose experts e and e + 4: 4 of the 28 pairs of 8 experts, all equally often."""
    windows = np.random.default_rng(0).integers(1, 1000, (5, 32, 8))
    windows[1] = 0
    Path("day.json").write_text(json.dumps({"logical_count": windows.tolist()}))
    first = np.arange(400).reshape(-1, 1) % 4
    for name, chosen in (("pairs.npy", [first, first + 4]), ("single.npy", [first])):
        np.save(name, np.stack(chosen, axis=2))
    doc = loads_doc({name: describe(name, None) for name in ("day.json", "pairs.npy", "single.npy")})
    require_golden("loads", doc)
    pairs, single = doc.data["traces"]
    assert pairs["dependent_share"] == pytest.approx(1 - 4 / 28)
    assert single["dependent_share"] is None
    np.save("ids.npy", np.tile(np.arange(8, dtype=np.uint8), (64, 32, 1))[..., :2])
    assert run("loads", "ids.npy", "--json").data["traces"][0]["tokens"] == 64
    np.save("crowded.npy", np.where(np.arange(16) == 13, 21.0, 1.0).reshape(2, 8))
    notes = run("loads", "crowded.npy", "--json").data["notes"]
    assert any("expert 5 has 75.0% of the tokens of layer 1" in note["text"] for note in notes)


def test_a_blackboard_and_economics_read_as_they_did() -> None:
    doc = roofline_doc(rackplan.roofline("deepseek-v3", ["lecture-72", "gb200-nvl72"]))
    require_golden("roofline", doc)
    assert page(doc).count('id="chart-latency') == 2
    require_golden("economics", economics_doc(rackplan.economics()))


def test_every_figure_of_the_lecture_is_told() -> None:
    docs = roofline_doc(rackplan.roofline("deepseek-v3", "lecture-72")), economics_doc(rackplan.economics())
    told = {}
    for doc in docs:
        for table in doc.data.values():
            rows = table if isinstance(table, list) else []
            told |= next((row for row in rows if isinstance(row, dict) and row.get("cluster") == LECTURE), {})
    assert {key: figure.value for key, figure in lecture().items()}.items() <= told.items()


def test_a_replay_reads_as_it_did() -> None:
    rng = np.random.default_rng(3)
    windows = rng.poisson(1000 * rng.lognormal(0, 0.5, (5, 32, 8)))
    replayed = rackplan.replay(model="mixtral-8x7b", cluster="hgx-h100", loads=windows)
    runs = tuple(replace(run, cpu_s=0.25) for run in replayed.result.runs)  # another time another figure
    doc = replay_doc(replace(replayed, result=replace(replayed.result, runs=runs)))
    require_golden("replay", doc)
    assert ">Expert map<" in page(doc)


ASKED = {"model": "llama-3.1-8b", "cluster": "hgx-h100", "isl": 2000, "osl": 100}


def test_a_simulation_reads_as_it_did() -> None:
    doc = simulate_doc(rackplan.simulate(**ASKED, req_s=10))
    require_golden("simulate", doc)
    assert "Percentiles by request rate" in page(doc)


@pytest.mark.parametrize(
    "asked", [{"req_s": 400}, {"concurrency": 4, "osl": 1}, {"req_s": 1, "tpot_ms": "none"}]
)
def test_odd_loads_keep_the_rules(asked: dict[str, Any]) -> None:
    simulated = rackplan.simulate(**{**ASKED, **asked})
    doc = simulate_doc(simulated)
    require_doc(doc)
    warned = any(block.text for block in doc.all if getattr(block, "kind", "") == "warning")
    assert warned == simulated.overloaded
    assert simulated.plot().data


def test_a_size_reads_as_it_did() -> None:
    require_golden("size", size_doc(rackplan.size("mixtral-8x7b", "hgx-h100", req_s=200, spares=1)))


@pytest.mark.usefixtures("no_speed_of_levels")
def test_odd_sizes_keep_the_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rackplan.report.size.SPEEDS", 2)
    unpriced = size_doc(rackplan.size("llama-3.1-8b", "mi350x", tok_s="10k", context=4096))
    require_doc(unpriced)
    assert "have no known price" in " ".join(unpriced.answer)
    require_doc(size_doc(rackplan.size("mixtral-8x7b", "hgx-h100", users=1000, think_s=10, ttft_p99_ms=2000)))
    several = size_doc(rackplan.size("mixtral-8x7b", ["hgx-h100", "hgx-h200@4096"], usd_h=50, context=4096))
    require_doc(several)
    assert page(several).count('id="chart-') == 2


def test_sweeps_of_one_phase_and_of_whole_requests() -> None:
    doc = sweep_doc(rackplan.sweep("mixtral-8x7b", "hgx-h100", context=4096))
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
        ("mixtral-8x7b", "hgx-h100", {"phase": "prefill", "context": 4096, "prefix_hit": 0.5}),
        ("llama-3.1-8b", "hgx-h200", {"prefill_cluster": "hgx-h100", "isl": 900, "osl": 100}),
        ("llama-3.1-8b", "tpu-v5e@4x4", {"context": 4096, "sparse_attention": "512"}),
    ],
)
def test_odd_ones_keep_the_rules(model: str, cluster: str, asked: dict[str, Any]) -> None:
    doc = sweep_doc(rackplan.sweep(model, cluster, **asked), [30.0])
    require_doc(doc)
    data = doc.data
    assert data["tok_s_per_gpu"] == pytest.approx(data["tok_s"] / data["gpus"])
    assert max(map(len, text(doc).splitlines())) <= 100


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


HEADER = "id,quantity,measured,phase,model,cluster,attention_dp,batch_per_gpu,context,pair\n"
POINTS = (
    "one,tok_s_per_gpu,100,decode,deepseek-v3,hgx-h100,16,8,4000,x\n"
    "two,tok_s_per_gpu,200,decode,deepseek-v3,H200,16,16,4000,x\n"
    "two,tpot_ms,80,decode,deepseek-v3,H200,16,16,4000,\n"
    "lost,tpot_ms,80,decode,deepseek-v3,V100,16,16,4000,\n"
)


def made_up(points: Sequence[Point], **_: object) -> list[Prediction]:
    """A tenth too much for throughput, half for times."""
    return [Prediction(point.measured * (1.1 if "tok" in point.quantity else 0.5)) for point in points]


@pytest.fixture
def points_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of four rows, and a predictor that needs no model."""
    monkeypatch.setattr("cost.validation.predict.predict_serving", made_up)
    monkeypatch.setattr("cost.validation.predict.predict_alltoall", made_up)
    path = tmp_path / "points.csv"
    path.write_text(HEADER + POINTS)
    return path


def test_points_read_as_they_did(points_file: Path) -> None:
    validated = validation("points.csv", read_measurements(points_file))
    require_golden("validate", validate_doc([validated]))
    assert len(validated.to_frame()) == 4
    assert validated.plot().layout.xaxis.type == "log"


def test_the_learned_correction_is_switched_off(run: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "served.csv"
    head = (
        "id,quantity,measured,phase,model,cluster,engine,weights,tp,moe_tp,concurrency,isl,osl,draft_tokens\n"
    )
    rows = [
        f"{name},tpot_ms,9,aggregated,llama-3.1-70b,hgx-h200,trtllm,fp8,8,8,16,1000,200,{drafts}\n"
        for name, drafts in (("told", "0"), ("untold", "unknown"))
    ]
    path.write_text(head + "".join(rows))
    on, off = run("validate", path, "--json").data, run("validate", path, "--physics", "--json").data
    assert (on["quantities"][0]["corrected"], off["quantities"][0]["corrected"]) == (True, False)
    assert on["points"][0]["predicted"] != off["points"][0]["predicted"]
    assert on["points"][1]["predicted"] == off["points"][1]["predicted"]


def test_frontiers_beside_layouts_that_are_chosen(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    head = "id,quantity,measured,phase,model,cluster,weights,tp,concurrency,isl,osl\n"
    runs = (("fast", "tpot_ms", 9, 8), ("fast", "ttft_ms", 90, 8), ("slow", "tpot_ms", 12, 64),
            ("slow", "ttft_ms", 200, 64), ("half", "tpot_ms", 9, 4))  # fmt: skip
    rows = (
        f"{name},{what},{value},aggregated,llama-3.1-70b,H200,fp8,8,{n},1024,1024\n"
        for name, what, value, n in runs
    )
    path.write_text(head + "".join(rows))
    doc = frontiers_doc({"runs.csv": read_measurements(path)}, physics=False)
    require_golden("frontiers", doc)
    require_doc(frontiers_doc({"none.csv": []}, physics=False))
