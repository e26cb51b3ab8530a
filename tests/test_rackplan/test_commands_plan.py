"""``plan``, ``replan`` and ``score``: what they write and say of a plan, and that they agree on it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rackplan
from helpers import PLAN, Run, error_of, plan_of
from placement.plans.reading import read_plan

WIDE = (*PLAN, "--cluster", "gb200-nvl72@8", "--batch", 8, "--ep", 8, "--tp", 1, "--loads", "zipf:1")
REPLAN = ("replan", "old/plan.json", "--loads", "new.npy", "-o", "next")


def written(folder: Path) -> Any:
    return json.loads((folder / "plan/plan.json").read_text())


@pytest.mark.usefixtures("few_joined", "no_speed_of_levels")
@pytest.mark.parametrize("cluster", ["gh200-nvl4@1", pytest.param("mi300x@2", marks=pytest.mark.wide)])
def test_a_part_of_a_host_is_planned_scored_and_sized(run: Run, cluster: str) -> None:
    data = run(*plan_of("gpt-oss-20b", cluster), "--json").data
    assert data["gpus"] == int(cluster.partition("@")[2])
    scored = run("score", "plan", "--json").data
    assert (scored["tok_s"], scored["usd_per_hour"]) == (data["tok_s"], data["usd_per_hour"])
    sized = run("size", "--model", "gpt-oss-20b", "--cluster", cluster, "--tok-s", "1M", "--json").data
    assert sized["gpus"] > 0


def test_options_and_prices_are_kept_and_may_be_others_later(run: Run, tmp_path: Path) -> None:
    np.save(tmp_path / "loads.npy", np.random.default_rng(0).random((32, 8)) + 0.1)
    options = (
        "--loads loads.npy --loads uniform --context 1000 --batch 5 --redundant 8 --kv-dtype fp8 --seed 7"
    )
    prices = "--price h100=2.5 --power h100-sxm=1.5kW --price-basis owner"
    assert run(*PLAN, *options.split(), *prices.split()).code == 0
    file = written(tmp_path)
    inputs = file["inputs"]
    asked = {"phase": "decode", "context": 1000, "batch": 5, "kv_dtype": "fp8"}
    assert asked.items() <= inputs["workload"].items()
    assert (inputs["seed"], len(inputs["loads"]["tokens"])) == (7, 2)
    assert sum(map(len, file["experts"]["layers"]["0"])) == 16 * file["layout"]["replicas"]
    assert inputs["sha256"] == {
        "loads.npy": hashlib.sha256((tmp_path / "loads.npy").read_bytes()).hexdigest()
    }
    assert inputs["command"].startswith("rackplan plan --phase decode --model mixtral-8x7b")
    kept = {"basis": "owner", "prices": {"h100-sxm": 2.5}, "powers": {"h100-sxm": 1500.0}}
    assert kept.items() <= inputs["prices"].items()
    data = run("score", "plan", "--json").data
    assert (data["usd_per_hour"], data["power_w"], data["price_basis"]) == (20, 12000, "owner")
    assert (data["price_evidence"], data["bill"][0]["each_usd_per_hour"]) == ("user", 2.5)
    dearer = run("score", "plan", "--price", "h100=5", "--json").data
    assert (dearer["usd_per_hour"], dearer["power_w"], dearer["price_basis"]) == (40, 12000, "owner")


def test_two_pools_are_two_plans_and_one_report(run: Run, tmp_path: Path) -> None:
    data = run(*plan_of("deepseek-v3", "hgx-h200@16", phase=None), "--json").data
    assert [row["role"] for row in data["pools"]] == ["prefill", "decode"]
    assert len({gpu for row in data["replicas"] for gpu in row["gpu_ids"]}) == 16
    file = written(tmp_path)
    assert [pool["role"] for pool in file["pools"]] == ["decode", "prefill"]
    for key in ("model", "layout", "stages", "experts"):
        assert file["pools"][0][key] == file[key]
    assert "Step of prefill" in (tmp_path / "plan/report.html").read_text()
    assert run("export", "plan", "--to", "sglang", "--launch", "lws", "-o", "e.json").code == 0
    assert (tmp_path / "e.prefill.json").exists()


def test_a_quota_of_slots_reaches_file_score_and_page(run: Run, tmp_path: Path) -> None:
    """A plan of single copies and a slot on each GPU: through its file and ``score``, and refused by an engine."""
    asked = (*PLAN, "--ep", 4, "--redundant", 0, "--loads", "zipf:0.5", "--split", "quota")
    assert run(*asked).code == 0
    file = written(tmp_path)
    assert (file["request"]["split"], file["inputs"]["workload"]["quota_slots"]) == ("quota", 1)
    scored = run("score", "plan", "--json").data
    assert scored["proof"]["objective"] == pytest.approx(file["proof"]["objective"])
    assert scored["step_s"] == pytest.approx(file["score"]["step_s"])
    assert "fetch" in {row["part"] for row in scored["step"]}
    rows = {row["placement"]: row["balancedness"] for row in scored["baselines"]}
    assert rows["rackplan"] > rows["lp split"] == pytest.approx(rows["even split"])
    refused = run("export", "plan", "--to", "sglang", "-o", "x.json")
    assert refused.code == 2
    assert "--split source" in refused.err
    assert run(*asked, "--quota-slots", 2).code == 0
    assert written(tmp_path)["score"]["hbm_bytes"]["buffers"] > file["score"]["hbm_bytes"]["buffers"]


def test_the_number_of_copies_is_chosen_from_a_curve(run: Run, tmp_path: Path) -> None:
    assert run(*WIDE, "--redundant", "auto", "--details").code == 0
    data = written(tmp_path)
    chosen = data["redundancy"]["chosen"]
    (entry,) = read_plan(tmp_path / "plan/plan.json").experts
    assert entry is not None
    assert data["request"]["redundant"] == entry.slots - 8 == chosen
    assert "Number of copies" in (tmp_path / "plan/report.html").read_text()


@pytest.fixture
def old(prepared: Run, few_layers: Callable[[str, int], Path], tmp_path: Path, short: None) -> Path:
    """A plan in ``old``, and other loads beside it; a short search."""
    prepared(*plan_of(few_layers("mixtral-8x7b", 3), to="old"), "--redundant", "16", "--batch", "8")
    np.save(tmp_path / "new.npy", np.random.default_rng(1).lognormal(4, 0.7, (3, 8)))
    return tmp_path


@pytest.mark.wide
def test_a_re_plan_writes_the_moves_that_lead_to_its_plan(run: Run, old: Path) -> None:
    result = run(*REPLAN, "--time-limit", "0", "--json")
    assert (result.code, result.err) == (0, "")
    files = sorted(path.name for path in (old / "next").iterdir())
    assert files == ["moves.json", "plan.json", "report.html", "topology.svg"]
    moves = json.loads((old / "next/moves.json").read_text())
    totals = moves["totals"]
    assert totals["moves"] == len(moves["moves"]) == result.data["moves"] > 0
    assert totals["bytes"] == pytest.approx(sum(step["bytes"] for step in moves["moves"]))
    plan = read_plan(old / "next/plan.json")
    assert not plan.differences
    assert np.mean(list(plan.balancedness.values())) == pytest.approx(totals["balancedness"]["after"])
    step, row = moves["moves"][0], plan.experts[0]
    assert row is not None
    gpu = [gpu.id for gpu in plan.deployment.cluster.gpus].index(step["gpu"])
    assert row.slot_expert[step["layer"], 3 * gpu + step["slot"]] == step["expert"]


def test_a_limit_that_is_exceeded_comes_first(run: Run, prepared: Run, tmp_path: Path) -> None:
    prepared(*PLAN)
    np.save(tmp_path / "skewed.npy", np.tile(np.array([[7.0] + [1.0] * 7]), (32, 1)))
    held = run("score", "plan", "--json").data
    assert (held["limit_s"], held["over_limit"]) == (0.05, None)
    slow = run("score", "plan", "--loads", "skewed.npy", "--set", "gpu.hbm_bytes_per_s=0.9x", "--json").data
    assert slow["over_limit"] == pytest.approx(slow["step_s"] / 0.05 - 1)
    assert slow["answer"][0].startswith(f"Misses its limit: {slow['step_s'] * 1e3:.1f} ms per token")


@pytest.mark.usefixtures("few_requests")
def test_a_plan_is_scored_varied_and_simulated_alike(run: Run, prepared: Run, tmp_path: Path) -> None:
    prepared(*PLAN)
    double = ("--set", "h100.hbm_bytes_per_s=2x")
    fast = run("score", "plan", *double, "--json").data
    assert fast["step_s"] < written(tmp_path)["score"]["step_s"]
    assert [row["shown"] for row in fast["set"]] == ["6.7 TB/s"]
    links = run("score", "plan", "--set", "nvlink4.link_bytes_per_s=2x", "--json").data["assumptions"]
    assert "each of a GPU's 18 links: 900 GB/s in total" in str(links)
    pair = run("score", "plan", "plan", "--json").data["plans"]
    assert [row["plan"] for row in pair] == ["plan", "plan (2)"]
    assert run("what-if", "plan", *double, "--json").data["step_s"] == pytest.approx(fast["step_s"])
    result = run(
        "simulate", "plan", "--req-s", "1", "--json"
    )  # of decode alone: the usual requests are taken
    assert (result.data["isl"], result.data["osl"], result.data["serving"]) == (8192, 1024, "one pool")
    assert "(default)" in result.err


def test_sparse_attention_is_kept_and_said_to_be_a_what_if(run: Run, tmp_path: Path) -> None:
    asked = ("--context", 65_536, "--batch", 4, "--sparse-attention", "sqrt")
    assert "a query reads 256 of 65,536" in run(*plan_of("llama-3.1-8b"), *asked, "--details").out
    file = written(tmp_path)
    assert file["inputs"]["workload"]["sparse_attention"] == "sqrt"
    assert file["score"]["evidence"] == "assumed"
    scored = run("score", "plan", "--json").data
    assert (scored["step_s"], scored["what_if"]) == (file["score"]["step_s"], "sparse_attention sqrt")


def test_an_unmeasured_chip_names_its_stand_in() -> None:
    plan = rackplan.plan("llama-3.1-8b", "tpu-v7@2x2x2", phase="decode", time_limit_s=0, tp=8, stages=1)
    (calibration, *_) = plan.errors
    assert (calibration.chip, calibration.stand_in_for) == (error_of("tpu-v7").chip, "tpu-v7")
