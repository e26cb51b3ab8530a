"""More is never worse: chips with better figures, generations, GPUs, service levels, contexts, batches.

Where every chip has the same coefficients, any loss would be one of structure: layouts, batches or kernels that the
better machine does not get.
"""

from __future__ import annotations

import math
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import rackplan
from cost.calibration.serving import calibrated
from cost.inputs.deployment import Deployment
from cost.inputs.machine import COEFFICIENTS, Efficiency
from cost.inputs.workload import Workload
from cost.layouts import best_at, sweep
from cost.model import Model
from cost.resolve import resolve_model
from helpers import few_layers
from topology import Evidence, Figure, load_domain, resolve_cluster
from topology.base.errors import InputError
from topology.changes.overrides import overrides
from topology.cluster import Cluster

CHIPS = ("hgx-h100", "hgx-h200", "hgx-b200", "gb200-nvl72", "mi300x", "vr-nvl72")
DENSE, LATENT, PLAIN = "llama-3.1-70b", "deepseek-v3", "mixtral-8x22b"
GROUPED, SPARSE = "gpt-oss-120b", "deepseek-v3.2"
"""Dense; latent attention in FP8; experts in BF16; in FP4; sparse attention."""
FIGURES = (
    "gpu.flop_per_s",
    "gpu.fp8_flop_per_s",
    "gpu.hbm_bytes",
    "gpu.hbm_bytes_per_s",
    "scale-up.link_bytes_per_s",
    "scale-up.latency_s",
    "scale-out.link_bytes_per_s",
)
ROUNDED = 1 - 1e-9


@cache
def neutral() -> Efficiency:
    """The same coefficients for every chip: geometric means over the measured ones."""
    measured = [
        calibrated(load_domain(name).gpu) for name in ("hgx-h100", "hgx-h200", "hgx-b200", "gb200-nvl72")
    ]
    table = {}
    for name in COEFFICIENTS:
        value = math.exp(np.mean([math.log(efficiency[name]) for efficiency in measured]))
        table[name] = Figure(value, "1", Evidence.ASSUMED, "mean over chips", f"{value:.3g}")
    return Efficiency(table, "any chip")


@pytest.mark.wide
@given(
    st.sampled_from([f"{chip}@16" for chip in CHIPS] + ["hgx-h800@24", "gb200-nvl72@72", "cm384@32"]),
    st.sampled_from(FIGURES),
    st.floats(1.0, 4.0),
    st.sampled_from([DENSE, LATENT, PLAIN, GROUPED, SPARSE]),
    st.sampled_from(["decode", "prefill"]),
    st.integers(100, 40_000),
)
@example(
    "vr-nvl72@16", "gpu.fp8_flop_per_s", 2.0, LATENT, "decode", 13_904
)  # a layout that leaves a GPU idle
@settings(max_examples=12)
def test_a_cluster_with_any_figure_better_is_never_slower_at_any_speed(
    chip: str, figure: str, factor: float, model: str, phase: str, context: int
) -> None:
    cluster = resolve_cluster(chip)
    try:
        (better,) = overrides([cluster], [f"{figure}={1 / factor if 'latency' in figure else factor}x"])
    except InputError:
        return  # a chip without FP8
    what = few_layers(model, 16) if model in (DENSE, LATENT, PLAIN) else resolve_model(model)
    workload = Workload(context=context, phase=phase)
    was, now = (sweep(Deployment(where, what, workload, neutral())) for where in (cluster, better))
    for row in was.frontier().tolist():
        at = best_at(now, was.tok_s_per_user[row] * ROUNDED)
        assert at is not None, was.label(row)
        assert now.tok_s_per_gpu[at] >= was.tok_s_per_gpu[row] * ROUNDED, was.label(row)


def rates(
    clusters: list[str], model: str, speeds: tuple[int, ...] = (20, 60, 100, 160), **asked: object
) -> np.ndarray:
    """tok/s/GPU, ``[clusters, speeds]``; 0 out of reach."""
    swept = rackplan.compare(clusters, model, tok_s_user=list(speeds), **asked)
    return np.array([row.tok_s_per_gpu or 0.0 for row in swept.rows]).reshape(len(clusters), len(speeds))


def test_better_chips_give_more_at_every_speed() -> None:
    swept = rates(["hgx-h100@8", "hgx-h200@8", "hgx-b200@8"], "gpt-oss-120b")
    assert (np.diff(swept, axis=0) >= -1e-3 * swept[1:]).all()
    assert (swept[:, 0] > 0).all()


def test_a_larger_domain_is_never_behind() -> None:
    swept = rates(["lecture-8@72", "lecture-72@72"], "deepseek-v3", (20, 60))
    assert (swept[1] >= swept[0] * (1 - 1e-3)).all()
    assert swept[1, 1] > 1.05 * swept[0, 1]


@pytest.mark.wide
@pytest.mark.parametrize("engine", ["", "sglang"])
@pytest.mark.parametrize("model", ["deepseek-v3", "kimi-k2", "llama-3.1-70b"])
def test_every_generation_gives_more_at_every_speed(model: str, engine: str) -> None:
    asked = {"engine": engine} if engine else {}
    for family in (
        ["hgx-h100@72", "hgx-h200@72", "hgx-b200@72", "gb200-nvl72@72", "gb300-nvl72@72"],
        ["gb200-nvl72@72", "vr-nvl72@72"],
        ["mi300x@72", "mi325x@72", "mi355x@72"],
    ):
        swept = rates(family, model, tuple(range(10, 201, 10)), **asked)
        assert (np.diff(swept, axis=0) >= -1e-3 * swept[:-1]).all(), family


MODELS = {"dense": "llama-3.1-70b", "latent": "deepseek-v3", "grouped": "qwen3-235b-a22b"}
SPEEDS = (20.0, 50.0)
HOST, RACK = "hgx-h200", "gb200-nvl72"


def best(cluster: Cluster, model: str, context: int = 4096) -> list[float]:
    """Output tok/s of the whole cluster as fast as it goes, and at each of SPEEDS; 0 where nothing is so fast."""
    deployment = Deployment(cluster, cut(model), Workload(context=context))
    swept = sweep(deployment, cut_experts=False, speeds=SPEEDS)
    places = [best_at(swept, speed) for speed in (0.0, *SPEEDS)]
    return [0.0 if place is None else float(swept.tok_s[place]) for place in places]


@cache
def cut(name: str) -> Model:
    """The model with few layers, whose splits are quick to price; latent attention whole, as few hosts hold it."""
    return resolve_model(name) if name == MODELS["latent"] else few_layers(name, 24)


@pytest.mark.wide
@pytest.mark.parametrize(
    ("model", "sizes"),
    [
        (MODELS["dense"], [f"{HOST}@{8 * hosts}" for hosts in (1, 3, 4, 5, 7, 8)]),
        (MODELS["latent"], [f"{HOST}@{8 * hosts}" for hosts in (1, 2, 3, 5)]),
        (MODELS["grouped"], [f"{RACK}@{n}" for n in (8, 24, 36, 72)]),
    ],
    ids=str,
)
def test_more_gpus_never_give_fewer_tokens(model: str, sizes: list[str]) -> None:
    for before, after in pairwise(best(resolve_cluster(name), model) for name in sizes):
        assert all(b >= a * ROUNDED for a, b in zip(before, after, strict=True)), (before, after)


@pytest.mark.wide
@given(
    cluster=st.sampled_from([f"{HOST}@32", f"{HOST}@48", f"{RACK}@36", "tpu-v5p@2x2x4"]),
    model=st.sampled_from([*MODELS.values()]),
    context=st.integers(500, 20_000),
    drafts=st.booleans(),
    imbalance=st.sampled_from([1.0, 1.6, None]),
)
@settings(max_examples=8)
def test_no_layout_is_faster_with_more_sequences(cluster, model, context, drafts, imbalance):
    workload = Workload(context=context, draft_tokens=int(drafts), accept_length=1.0 + 0.5 * drafts)
    swept = sweep(Deployment(resolve_cluster(cluster), cut(model), workload), imbalance=imbalance)
    arrangement = np.array([swept.variants[variant].number for variant in swept.layout])
    order = np.lexsort((swept.batch, swept.moe_tp, swept.tp, arrangement))
    keys = np.stack([arrangement, swept.tp, swept.moe_tp])[:, order]
    same, step_s = np.all(np.diff(keys, axis=1) == 0, axis=0), swept.step_s[order]
    assert same.any()
    assert np.all((step_s[1:] >= step_s[:-1] * ROUNDED)[same])
