"""``rackplan plan``: what it prints and writes of one phase and of whole requests, and what it leaves alone."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

import rackplan
from helpers import PLAN, Run, plan_of

ONE_POOL = (*plan_of("qwen3-30b-a3b", phase=None), "--isl", "1k", "--tpot-ms", "15")
TWO_POOLS = plan_of("deepseek-v3", "hgx-h200@16", phase=None)


def test_json_is_the_plan_without_its_bulk(run: Run, tmp_path: Path) -> None:
    result = run(*PLAN, "--json")
    assert (result.code, result.err) == (0, "")
    written = json.loads((tmp_path / "plan/plan.json").read_text())
    data = result.data
    for key in ("model", "cluster", "origin"):
        assert data[key] == written[key]
    for key in ("step_s", "lower_step_s", "tok_s_per_gpu", "tok_s_per_user", "bound_by", "evidence"):
        assert data[key] == written["score"][key]
    assert data["proof"]["gap"] == written["proof"]["gap"]
    assert [row["gpu_ids"] for row in data["replicas"]] == [stage["gpus"] for stage in written["stages"]]
    names = [row["file"] for row in data["files"]]
    assert names == ["plan/plan.json", "plan/report.html", "plan/topology.svg"]


@pytest.mark.parametrize(
    ("cluster", "asked"),
    [
        ("gh200-nvl4@1", "--tok-s 1M"),
        *(
            pytest.param(cluster, asked, marks=pytest.mark.wide)
            for cluster in ("gb200-nvl72@2", "mi300x@2", "cm384@8")
            for asked in ("--tok-s 1M", "--users 100")
        ),
    ],
)
@pytest.mark.usefixtures("few_joined", "no_speed_of_levels")
def test_a_part_of_a_host_is_planned(run: Run, cluster: str, asked: str) -> None:
    where = ("--model", "gpt-oss-20b", "--cluster", cluster)
    data = run(*plan_of("gpt-oss-20b", cluster), "--json").data
    assert data["gpus"] == int(cluster.partition("@")[2])
    scored = run("score", "plan", "--json").data
    assert (scored["tok_s"], scored["usd_per_hour"]) == (data["tok_s"], data["usd_per_hour"])
    assert run("draw", cluster, "-o", "part.svg").code == 0
    assert run("size", *where, *asked.split(), "--json").data["gpus"] > 0


def test_options_reach_the_plan(run: Run, tmp_path: Path) -> None:
    np.save(tmp_path / "loads.npy", np.random.default_rng(0).random((32, 8)) + 0.1)
    options = "--loads loads.npy --loads uniform --context 1000 --batch 5 --redundant 8"
    assert run(*PLAN, *options.split(), "--kv-dtype", "fp8", "--weights", "fp8", "--seed", 7).code == 0
    data = json.loads((tmp_path / "plan/plan.json").read_text())
    inputs = data["inputs"]
    plain = {
        "draft_tokens": 0,
        "accept_length": 1.0,
        "overlap": False,
        "sparse_attention": "",
        "quota_slots": 0,
    }
    assert inputs["workload"] == {"phase": "decode", "context": 1000, "batch": 5, "kv_dtype": "fp8", **plain}
    assert (inputs["model"]["weights"], inputs["seed"]) == ("fp8", 7)
    assert len(inputs["loads"]["tokens"]) == len(inputs["loads"]["names"]) == 2
    assert sum(map(len, data["experts"]["layers"]["0"])) == 16 * data["layout"]["replicas"]
    digest = hashlib.sha256((tmp_path / "loads.npy").read_bytes()).hexdigest()
    assert inputs["sha256"] == {"loads.npy": digest}
    assert inputs["command"].startswith("rackplan plan --phase decode --model mixtral-8x7b")


def test_a_plan_that_is_there_is_not_touched(run: Run, prepared: Run, tmp_path: Path) -> None:
    prepared(*PLAN)
    before = {path: path.read_bytes() for path in (tmp_path / "plan").iterdir()}
    assert run(*plan_of("deepseek-v3")).code == 3
    assert {path: path.read_bytes() for path in (tmp_path / "plan").iterdir()} == before


def test_two_pools_are_two_plans_and_one_report(run: Run, tmp_path: Path) -> None:
    data = run(*TWO_POOLS, "--json").data
    assert [row["role"] for row in data["pools"]] == ["prefill", "decode"]
    assert len({gpu for row in data["replicas"] for gpu in row["gpu_ids"]}) == 16
    file = json.loads((tmp_path / "plan/plan.json").read_text())
    assert [pool["role"] for pool in file["pools"]] == ["decode", "prefill"]
    for key in ("model", "layout", "stages", "experts"):
        assert file["pools"][0][key] == file[key]
    page = (tmp_path / "plan/report.html").read_text()
    assert "two pools: 8 GPUs prefill, 8 GPUs decode" in page
    assert "Step of prefill" in page
    assert run("export", "plan", "--to", "sglang", "--launch", "lws", "-o", "e.json").code == 0
    assert (tmp_path / "e.prefill.json").exists()
    data = run(*ONE_POOL, "--json").data
    assert (data["serving"], data["isl"], data["osl"], data["phase"]) == ("one pool", 1024, 1024, "both")
    assert (data["tpot_limit_s"], data["ttft_limit_s"]) == (0.015, 2.0)


@pytest.mark.wide
def test_python_has_the_page_of_both_pools(tmp_path: Path) -> None:
    plan = rackplan.plan("deepseek-v3", "hgx-h200@16", isl=8192, osl=1024, time_limit_s=0)
    assert len(plan.pools) == 2
    assert "Step of prefill" in rackplan.write_report(plan, tmp_path / "both.html").read_text()
    assert repr(plan).count("two pools") == 1


def test_a_quota_of_slots_reaches_file_score_and_page(run: Run, tmp_path: Path) -> None:
    """A plan of single copies and a slot on each GPU: through its file and ``score``, and refused by an engine."""
    asked = (*PLAN, "--ep", 4, "--redundant", 0, "--loads", "zipf:0.5", "--split", "quota")
    assert run(*asked).code == 0
    written = json.loads((tmp_path / "plan/plan.json").read_text())
    assert (written["request"]["split"], written["inputs"]["workload"]["quota_slots"]) == ("quota", 1)
    scored = run("score", "plan", "--json").data
    assert scored["proof"]["objective"] == pytest.approx(written["proof"]["objective"])
    assert scored["step_s"] == pytest.approx(written["score"]["step_s"])
    assert "fetch" in {row["part"] for row in scored["step"]}
    rows = {row["placement"]: row["balancedness"] for row in scored["baselines"]}
    assert rows["rackplan"] > rows["lp split"] == pytest.approx(rows["even split"])
    assert "1 slot of each GPU" in run("score", "plan", "--details").out
    refused = run("export", "plan", "--to", "sglang", "-o", "x.json")
    assert refused.code == 2
    assert all(words in refused.err for words in ("0.5.23", "UltraEP", "--split source"))
    assert run(*asked, "--quota-slots", 2).code == 0
    again = json.loads((tmp_path / "plan/plan.json").read_text())
    assert again["score"]["hbm_bytes"]["buffers"] > written["score"]["hbm_bytes"]["buffers"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("--quota-slots 1", "only --split quota"),
        ("--split quota --quota-slots 0", "1 slot or more"),
        ("--split quota --ep 1", "no expert has copies"),
    ],
)
def test_quota_slots_are_refused_where_nothing_fills_them(run: Run, given: str, words: str) -> None:
    result = run(*PLAN, *given.split())
    assert result.code == 2
    assert words in result.err
