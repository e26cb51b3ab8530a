"""Scripts of the calibration: steps laid side by side cost what the cost model says."""

from __future__ import annotations

import importlib
from dataclasses import replace
from types import ModuleType

import numpy as np
import pytest

from cost.calibration.serving import calibrated
from cost.inputs.machine import COEFFICIENTS
from cost.inputs.workload import with_imbalance
from cost.step.step import even_parts, priced
from cost.terms.registry import TERMS
from cost.validation.predict import group_points, machines
from cost.validation.read import Point, Pool
from helpers import ROOT

SCRIPTS = ROOT / "benchmarks" / "calibration"
pytestmark = pytest.mark.skipif(not SCRIPTS.is_dir(), reason="the benchmarks are not part of this copy")

BASE = Point(
    *("a", "test", "tpot_ms", 10.0, "decode", "hgx-h100", "deepseek-v3"),
    pool=Pool(tp=8, ep=8),
    context=3000,
    batch=24,
    isl=2000,
    osl=500,
)
POOLS = [
    Pool(tp=8, moe_tp=8),
    Pool(tp=8, ep=8),
    Pool(attention_dp=8, ep=8),
    Pool(tp=2, attention_dp=4, ep=4, moe_tp=2),
    Pool(attention_dp=32, ep=32, slots=288),
    Pool(tp=16, ep=16),
]
MACHINES = [
    {"cluster": "hgx-h100", "engine": "sglang"},
    {"cluster": "gb200-nvl72", "engine": "trtllm", "weights": "nvfp4"},
    {"cluster": "hgx-h20", "kv_dtype": "fp8"},
    {"cluster": "mi300x", "engine": "vllm", "experts_dtype": "int4-g32"},
]


def scripts_module(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return importlib.import_module(name)


def shapes_of(kind, group):
    """Decode, prefill, both mixed, and drafts, of the points of a group."""
    pool = with_imbalance(group.pool, "prefill" if kind == "prefill" else "decode")
    queries = 3.0 if kind == "drafts" else 1.0
    return replace(
        pool,
        sequences=np.zeros(len(group.index)) if kind == "prefill" else group.batch,
        queries=queries,
        prompt_tokens=np.zeros(len(group.index)) if kind in {"decode", "drafts"} else 4096.0 / pool.tp,
        prompt_length=group.requests.isl,
        prompt_share=1.0,
    )


@pytest.mark.parametrize("kind", ["decode", "prefill", "mixed", "drafts"])
@pytest.mark.parametrize("model", ["deepseek-v3", "qwen3-235b-a22b", "llama-3.1-70b"])
def test_a_stack_prices_as_the_cost_model_does(kind, model, monkeypatch):
    stack = scripts_module("stack", monkeypatch)
    pools = POOLS if model != "llama-3.1-70b" else [Pool(tp=8, moe_tp=8), Pool(), Pool(tp=16, moe_tp=16)]
    points = [
        replace(BASE, model=model, pool=pool, batch=batch, **where)
        for where in MACHINES
        for pool in pools
        for batch in (1, 200)
    ]
    groups, refused = group_points(points)
    assert not refused
    assert len(groups) == len(MACHINES)
    all_steps = stack.Stack(len(points))
    table = {name: np.zeros(len(points)) for name in COEFFICIENTS}
    wanted = np.zeros((2, len(points)))
    for group in groups:
        efficiency = calibrated(group.gpu, group.engine)
        machine = machines(group, efficiency)[kind == "prefill"]
        shape = shapes_of(kind, group)
        all_steps.add(group, shape, machine)
        for name in COEFFICIENTS:
            table[name][group.index] = efficiency[name]
        cost = priced(even_parts(group.model, shape, machine), machine.efficiency, machine.rates)
        sending = sum(
            (cost.terms_s.get(term, 0.0) for term in TERMS if TERMS[term].sends), np.zeros(len(group.index))
        )
        wanted[:, group.index] = cost.total_s - sending, sending
    computing, sending, _ = all_steps.seconds(table)
    assert computing == pytest.approx(wanted[0], rel=1e-9)
    assert sending == pytest.approx(wanted[1], rel=1e-9)
    assert np.any(sending > 0)
