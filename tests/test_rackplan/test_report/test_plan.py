"""Documents of plans as they read, and their figures by key."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import rackplan
from cost.terms.pipeline import BUBBLE, HOPS
from goldens import require_doc, require_golden
from helpers import few_layers, planned
from placement.analysis.levers import find_levers
from placement.plan import OrderProof
from rackplan.report.changes import SCORE
from rackplan.report.charts import leading
from rackplan.report.plan import plan_doc


def test_a_plan_reads_as_it_did() -> None:
    require_golden("plan", plan_doc(planned("mixtral-8x7b", "hgx-h100", batch=64)))


def test_figures_are_those_of_the_plan() -> None:
    plan = planned("mixtral-8x7b", "hgx-h100", batch=64)
    doc = plan_doc(plan, SCORE, find_levers(plan, free=False))
    data, score = json.loads(json.dumps(doc.data)), plan.score
    assert (data["step_s"], data["tok_s"]) == (score.step_s, plan.totals.tok_s)
    assert {row["part"].replace(" ", "_"): row["step_s"] for row in data["step"]} == score.terms_s
    columns = ("compute_s", "hbm_s", "scale_up_s", "scale_out_s", "fixed_s", "stage_wait_s")
    for row in data["step"]:
        assert sum(row[key] for key in columns) == pytest.approx(row["step_s"])
        assert row["peak_s"] <= row["step_s"]
    assert sum(row["step_share"] for row in data["step"]) == pytest.approx(1)
    limits = {row["resource"]: row for row in data["limits_s"]}
    assert {name: limits[name]["step_s"] for name in score.limits_s} == score.limits_s
    assert {name: limits[name]["floor_s"] for name in score.floor_s} == score.floor_s
    assert data["limits_s"][0]["resource"] == data["bound_by"]
    assert [row["bytes"] for row in data["memory"]] == list(score.hbm_bytes.values())
    assert {row["layer"]: row["balancedness"] for row in data["layers"]} == plan.balancedness
    assert [row["placement"] for row in data["baselines"]][:3] == ["rackplan", "linear", "EPLB global"]
    assert data["proof"]["gap"] == plan.proof.gap
    cache = score.cache
    assert [data[f"{end}kv_tokens"] for end in ("low_", "", "high_")] == [cache.low, cache.tokens, cache.high]
    assert data["kv_sequences"] == round(score.max_batch * 8)
    assert cache.low < cache.tokens < cache.high
    assert data["identities"]["longest_wait_ms"] == pytest.approx(2000 * score.step_s)
    assert data["identities"]["two_domains_s"] > data["identities"]["one_domain_s"]
    assert [row["tier"] for row in data["cache_tiers"]] == ["hbm", "ddr5", "flash", "disk"]
    assert all(row["source"] for row in data["figures"])
    assert data["levers"]
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


def test_a_pipeline_over_two_racks() -> None:
    model, asked = few_layers("llama-3.1-8b", 6), {"stages": 2, "tp": 1, "batch": 10, "phase": "decode"}
    plan = rackplan.plan(model, "gb200-nvl72@144", time_limit_s=0, **asked)
    hops = plan_doc(plan).data["pipeline"]
    # 10 sequences on each of 2 GPUs, half of them in a micro-batch, BF16 vectors of 4,096; sampled int32 back
    assert [hop["bytes"] for hop in hops] == [10 * 4096 * 2, 10 * 4]
    assert sum(hop["seconds"] for hop in hops) == pytest.approx(plan.score.terms_s[HOPS.name])
    assert (hops[0]["domain"], hops[1]["to_stage"]) == ("d0", 0)
    rate = plan.deployment.rates(plan.layout.replicas[0][0]).up_bytes_per_s
    assert [hop["bytes_per_s"] for hop in hops] == pytest.approx([rate] * 2)
    waits = sum(row["stage_wait_s"] for row in plan_doc(plan).data["step"])
    assert waits == pytest.approx(plan.score.terms_s[BUBBLE.name])
    ordered = plan_doc(replace(plan, order=OrderProof("OPTIMAL", 0.1, 0.09, 0.1, in_turn=0.12)))
    require_doc(ordered)
    assert (ordered.data["order"]["bound_s"], ordered.data["order"]["in_turn_s"]) == (0.09, 0.12)
