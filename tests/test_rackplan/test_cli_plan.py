"""``rackplan plan``: what it prints and writes, and what it refuses without writing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Run = Callable[..., Any]

MODEL, CLUSTER = ("--model", "mixtral-8x7b"), ("--cluster", "hgx-h100")
FAST, OUT = ("--time-limit", "0"), ("-o", "plan")
PLAN = ("plan", *MODEL, *CLUSTER, *FAST)


def test_json_is_the_plan_without_its_bulk(run: Run, tmp_path: Path) -> None:
    result = run(*PLAN, *OUT, "--json")
    assert (result.code, result.err) == (0, "")
    written = json.loads((tmp_path / "plan/plan.json").read_text())
    data = result.data
    for key in ("model", "cluster", "origin"):
        assert data[key] == written[key]
    for key in ("step_s", "lower_step_s", "tok_s_per_gpu", "tok_s_per_user", "bound_by", "evidence"):
        assert data[key] == written["score"][key]
    assert data["proof"]["gap"] == written["proof"]["gap"]
    assert [row["gpu_ids"] for row in data["replicas"]] == [stage["gpus"] for stage in written["stages"]]
    assert [row["file"] for row in data["files"]] == [
        "plan/plan.json",
        "plan/report.html",
        "plan/topology.svg",
    ]


@pytest.mark.parametrize(
    ("cluster", "asked"),
    [
        ("gh200-nvl4@1", "--tok-s 1M"),
        ("gb200-nvl72@2", "--users 100"),
        *(
            pytest.param(cluster, asked, marks=pytest.mark.wide)
            for cluster in ("hgx-h100@1", "mi300x@2", "hgx-a100@4", "cm384@8")
            for asked in ("--tok-s 1M", "--users 100")
        ),
    ],
)
@pytest.mark.usefixtures("few_joined", "no_speed_of_levels")
def test_a_part_of_a_host_is_planned(run: Run, cluster: str, asked: str) -> None:
    data = run("plan", "--model", "gpt-oss-20b", "--cluster", cluster, *FAST, *OUT, "--json").data
    assert data["gpus"] == int(cluster.partition("@")[2])
    scored = run("score", "plan", "--json").data
    assert (scored["tok_s"], scored["usd_per_hour"]) == (data["tok_s"], data["usd_per_hour"])
    assert run("draw", cluster, "-o", "part.svg").code == 0
    size = run("size", "--model", "gpt-oss-20b", "--cluster", cluster, *asked.split(), "--json")
    assert size.data["gpus"] > 0


def test_options_reach_the_plan(run: Run, tmp_path: Path) -> None:
    np.save(tmp_path / "loads.npy", np.random.default_rng(0).random((32, 8)) + 0.1)
    options = "--loads loads.npy --loads uniform --context 1000 --batch 5 --redundant 8"
    assert run(*PLAN, *OUT, *options.split(), "--kv-dtype", "fp8", "--weights", "fp8", "--seed", 7).code == 0
    data = json.loads((tmp_path / "plan/plan.json").read_text())
    inputs = data["inputs"]
    plain = {"draft_tokens": 0, "accept_length": 1.0, "overlap": False, "sparse_attention": ""}
    assert inputs["workload"] == {"phase": "decode", "context": 1000, "batch": 5, "kv_dtype": "fp8", **plain}
    assert (inputs["model"]["weights"], inputs["seed"]) == ("fp8", 7)
    assert len(inputs["loads"]["tokens"]) == len(inputs["loads"]["names"]) == 2
    assert sum(map(len, data["experts"]["layers"]["0"])) == 16 * data["layout"]["replicas"]
    digest = hashlib.sha256((tmp_path / "loads.npy").read_bytes()).hexdigest()
    assert inputs["sha256"] == {"loads.npy": digest}
    assert inputs["command"].startswith("rackplan plan --model mixtral-8x7b")


@pytest.mark.parametrize("args", [("--redundant", -1), ("--model", "deepseek-v3")])
def test_a_plan_that_is_there_is_not_touched(run: Run, args: tuple[object, ...], tmp_path: Path) -> None:
    assert run(*PLAN, *OUT).code == 0
    before = {path: path.read_bytes() for path in (tmp_path / "plan").iterdir()}
    assert run(*PLAN, *args, *OUT).code in {2, 3}
    assert {path: path.read_bytes() for path in (tmp_path / "plan").iterdir()} == before


@pytest.mark.wide
def test_the_best_is_taken_without_a_tolerance(run: Run) -> None:
    figures = [
        run(*PLAN, "--context", 512, "--tolerance", given, "-o", f"plan{given}", "--json").data[
            "tok_s_per_gpu"
        ]
        for given in ("0", "2%", "25")
    ]
    assert figures[0] >= figures[1] >= 0.98 * figures[0]
    assert figures[2] >= 0.75 * figures[0]
