"""Rate x work = busy time: on rows of sweeps, of one pool and of two, and of plans against their simulation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import rackplan
from cost.calibration.correction import PHYSICS
from cost.inputs.workload import Workload
from cost.layouts import Sweep
from cost.serving.lengths import Lengths
from cost.serving.serving import ONE_POOL, Serving

QUESTIONS = [
    ("llama-3.1-8b", "hgx-h100", "vllm", 1024, 1024),
    ("llama-3.1-70b", "hgx-b200", "sglang", 8192, 512),
    ("qwen3-30b-a3b", "hgx-h200", "trtllm", 2048, 256),
    ("gpt-oss-120b", "hgx-h100", "", 512, 4096),
    ("deepseek-v3", "gb200-nvl72@16", "trtllm", 8192, 1024),
]


def serving_of(model, cluster, engine, isl, osl) -> Serving:
    deployment = rackplan.make_deployment(model, cluster, engine=engine)
    # what measured runs took over the physics differs by phase
    return Serving.of(replace(deployment, correction=PHYSICS), Lengths.of(isl, osl), imbalance=1.0)


def step_s(answer: Sweep, row: int, work: Workload, batch: float) -> float:
    """Seconds of a step of a row's layout under another workload."""
    layouts = answer.parts_of.layouts.under(replace(answer.deployment, workload=work))
    return float(layouts.price(answer.parts_of.layout[[row]], np.array([batch])).step_s[0])


@pytest.mark.parametrize(("model", "cluster", "engine", "isl", "osl"), QUESTIONS)
def test_engines_do_the_work_that_they_have_time_for(model, cluster, engine, isl, osl):
    serving = serving_of(model, cluster, engine, isl, osl)
    both, matches = serving.both, serving.ways()[ONE_POOL]
    random = np.random.default_rng(0)
    for at in random.choice(len(matches), min(20, len(matches)), replace=False).tolist():
        match = matches.row(at)
        row, batch = match.decode, match.step_batch
        work = both.deployment.workload
        decode_s = step_s(both, row, replace(work, phase="decode", prompt=0.0, answer=0.0), batch)
        whole_s = step_s(both, row, replace(work, prompt_share=1.0), batch)
        requests = batch * float(both.gpus[row])
        prompt_s = osl * (whole_s - decode_s) / requests
        each_s = match.requests_per_s / match.decode_workers
        assert prompt_s > 0 or both.stages[row] > 1  # layers are split for the whole step
        # decode steps are shared by all requests, a prompt is the work of one
        assert each_s * (osl * decode_s / requests + prompt_s) == pytest.approx(1.0, rel=1e-6)


@pytest.mark.parametrize(
    ("model", "cluster", "asked"),
    [
        ("llama-3.1-8b", "hgx-h100", {"isl": 2048, "osl": 512, "engine": "vllm"}),
        ("llama-3.1-405b", "hgx-h200@16", {"isl": 1024, "osl": 1024, "engine": "sglang", "weights": "fp8"}),
        ("qwen3-30b-a3b", "hgx-h200@16", {"isl": 8192, "osl": 1024, "engine": "trtllm"}),
        ("gpt-oss-120b", "hgx-h100", {"isl": 2048, "osl": 256, "engine": "trtllm"}),
    ],
)
def test_a_plan_keeps_its_promise_in_the_simulator(model, cluster, asked):
    plan = rackplan.plan(model, cluster, time_limit_s=0, tpot_ms=50, **asked)
    answer = plan.requests
    in_flight = answer.totals.requests_per_s * (answer.tpot_s * answer.osl + answer.ttft_s)
    simulation = rackplan.simulate(plan, concurrency=max(1, round(in_flight)))
    under, columns = simulation.found, simulation.columns()
    answered_s = columns["done_s"] - columns["first_s"]
    assert columns["tpot_s"] * (columns["osl"] - 1) == pytest.approx(answered_s)
    assert under.requests_per_s / answer.totals.requests_per_s == pytest.approx(1, abs=0.05)
    assert float(np.mean(under.tpot_s)) / answer.tpot_s == pytest.approx(1, abs=0.05)
