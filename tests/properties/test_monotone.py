"""More is never worse over the catalog: GPUs, looser service levels, shorter contexts."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost.inputs.deployment import Deployment
from cost.inputs.workload import Workload
from cost.layouts import best_at, sweep
from cost.model import Model
from cost.resolve import resolve_model
from cost.serving.lengths import serving_workloads
from cost.serving.pools import match_rates
from helpers import few_layers
from topology import resolve_cluster
from topology.cluster import Cluster

pytestmark = pytest.mark.wide

MODELS = {"dense": "llama-3.1-70b", "latent": "deepseek-v3", "grouped": "qwen3-235b-a22b"}
SPEEDS = (20.0, 50.0)
ROUNDED = 1 - 1e-9
HOST, RACK = "hgx-h200", "gb200-nvl72"


def best(cluster: Cluster, model: str, context: int = 4096) -> list[float]:
    """Output tok/s of the whole cluster as fast as it goes, and at each of SPEEDS; 0 where nothing is so fast."""
    deployment = Deployment(cluster, cut(model), Workload(context=context))
    found = sweep(deployment, cut_experts=False, speeds=SPEEDS)
    places = [best_at(found, speed) for speed in (0.0, *SPEEDS)]
    return [0.0 if place is None else float(found.tok_s[place]) for place in places]


@cache
def cut(name: str) -> Model:
    """The model with few layers, whose splits are quick to price; latent attention whole, as few hosts hold it."""
    return resolve_model(name) if name == MODELS["latent"] else few_layers(name, 24)


def assert_never_fewer(rows: list[list[float]]) -> None:
    for before, after in pairwise(rows):
        assert all(b >= a * ROUNDED for a, b in zip(before, after, strict=True)), (before, after)


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
    assert_never_fewer([best(resolve_cluster(name), model) for name in sizes])


@pytest.mark.parametrize(
    ("model", "sizes"),
    [
        (MODELS["latent"], ["hgx-h100@104", "hgx-h100@112"]),  # 13 stages of a host
        (MODELS["grouped"], [f"{HOST}@112", f"{HOST}@120"]),  # experts over 14 of 15 hosts
    ],
    ids=str,
)
def test_a_layout_of_fewer_gpus_is_still_there(model: str, sizes: list[str]) -> None:
    """Of any shape: a stage on each of 13 hosts is deployable on 13 hosts, and not on 14."""
    whole, workload = resolve_model(model), Workload(context=4096)
    found = [
        sweep(Deployment(resolve_cluster(at), whole, workload, any_shape=True), speeds=SPEEDS) for at in sizes
    ]
    for speed in (0.0, *SPEEDS):
        rows = [best_at(one, speed) for one in found]
        less, more = (
            0.0 if at is None else float(one.tok_s[at]) for one, at in zip(found, rows, strict=True)
        )
        assert more >= less * ROUNDED


def test_pools_of_more_gpus_serve_no_fewer_requests() -> None:
    """Experts over 13 hosts beside a pool on the others, though alone they would leave hosts idle."""
    decoding, prefilling = serving_workloads(Workload(), 4096, 1024)
    model, rates = resolve_model(MODELS["grouped"]), []
    for gpus in (120, 128):
        there = resolve_cluster(f"hgx-h100@{gpus}")
        decode = sweep(Deployment(there, model, decoding), speeds=(50.0,))
        best = match_rates(
            decode, sweep(Deployment(there, model, prefilling)), osl=1024, ttft_s=2, tpot_s=0.02
        )
        found = best.best()
        assert found is not None
        rates.append(found.requests_per_s)
    assert rates[1] >= rates[0] * ROUNDED


@settings(max_examples=6)
@given(st.sampled_from([f"{HOST}@16", f"{RACK}@36"]), st.sampled_from(sorted(MODELS.values())), st.data())
def test_looser_service_levels_and_shorter_contexts_are_never_slower(
    name: str, model: str, data: st.DataObject
) -> None:
    short = data.draw(st.integers(1, 50_000))
    long = data.draw(st.integers(short, 100_000))
    rows = [best(resolve_cluster(name), model, context) for context in (long, short)]
    assert_never_fewer(rows)
    for row in rows:
        assert row == sorted(row, reverse=True)


@given(
    cluster=st.sampled_from([f"{HOST}@32", f"{HOST}@48", f"{RACK}@36", "tpu-v5p@2x2x4"]),
    model=st.sampled_from([*MODELS.values()]),
    context=st.integers(500, 20_000),
    drafts=st.booleans(),
    imbalance=st.sampled_from([1.0, 1.6, None]),
)
@settings(max_examples=8)
def test_no_layout_is_faster_with_more_sequences(
    cluster: str, model: str, context: int, drafts: bool, imbalance: float | None
) -> None:
    workload = Workload(context=context, draft_tokens=int(drafts), accept_length=1.0 + 0.5 * drafts)
    found = sweep(Deployment(resolve_cluster(cluster), cut(model), workload), imbalance=imbalance)
    arrangement = np.array([found.variants[variant].number for variant in found.layout])
    order = np.lexsort((found.batch, found.moe_tp, found.tp, arrangement))
    keys = np.stack([arrangement, found.tp, found.moe_tp])[:, order]
    same, step_s = np.all(np.diff(keys, axis=1) == 0, axis=0), found.step_s[order]
    assert same.any()
    assert np.all((step_s[1:] >= step_s[:-1] * ROUNDED)[same])
