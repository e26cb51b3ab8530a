"""Attention and experts on different GPUs: the pipeline by hand, and what must hold of any sweep of it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from cost.afd import MICRO_BATCHES, AfdShape, AfdSweep, LayerTimes, afd_layer, afd_sweep, ping_pong_seconds
from cost.deployment import USABLE_HBM, Deployment
from cost.layout import StageSpec
from cost.layouts import best_at
from cost.machine import PEAK
from cost.model import Model, MoeFfn
from cost.resolve import resolve_model
from cost.workload import Workload
from topology import InputError, build_cluster, resolve_cluster


@cache
def swept(cluster: str = "gb200-nvl72", imbalance: float | None = 1.0, drafts: int = 0) -> AfdSweep:
    workload = Workload(context=1536, draft_tokens=drafts, accept_length=1.0 + drafts / 2)
    where = Deployment(resolve_cluster(cluster), resolve_model("deepseek-v3"), workload)
    return afd_sweep(where, imbalance=imbalance)


def test_ping_pong_by_hand() -> None:
    # equal sides of 10 ms, 2 ms each way: three micro-batches hide the links, two leave a round trip of 24 ms
    times = LayerTimes(10e-3, 10e-3, 2e-3, 2e-3)
    assert ping_pong_seconds(times, 3) == pytest.approx((30e-3, 14e-3))
    assert ping_pong_seconds(times, 2) == pytest.approx((24e-3, 10e-3))
    # equation 4 of MegaScale-Infer: (T_a + T_e + 2 T_c) + T_f (m L - 1) over L = 5 layers
    layer_s, fill_s = ping_pong_seconds(times, 3)
    assert 5 * layer_s + fill_s == pytest.approx(24e-3 + 10e-3 * (3 * 5 - 1))
    # links that are slower than both sides bind
    assert ping_pong_seconds(LayerTimes(1.0, 1.0, 3.0, 2.0), 3)[0] == 9.0


def test_a_layer_with_an_index_pays_for_it_on_the_attention_side() -> None:
    shape = AfdShape(np.array([8.0]), np.array([64.0]), 1.0, np.array([128.0]), 2.0)

    def seconds(**delays: float) -> LayerTimes:
        table = {name: replace(PEAK.table[name], value=value) for name, value in delays.items()}
        efficiency = replace(PEAK, table={**PEAK.table, **table})
        model = resolve_model("deepseek-v3.2")
        where = Deployment(resolve_cluster("gb200-nvl72"), model, Workload(context=1536), efficiency)
        machine = where.machine(StageSpec(tuple(range(72)), range(len(model.layers))))
        return afd_layer(where, machine, model.layers[-1], shape, queries=1.0)

    plain, index = seconds(), seconds(**{"delay.index_layer": 1e-3})
    assert index.attention_s - plain.attention_s == pytest.approx(1e-3)
    assert index.experts_s == pytest.approx(plain.experts_s)


def test_latent_experts_are_sent_narrow_vectors() -> None:
    latent = resolve_model("kimi-k3")
    layers = tuple(
        replace(layer, ffn=replace(layer.ffn, width=None)) if isinstance(layer.ffn, MoeFfn) else layer
        for layer in latent.layers
    )
    shape = AfdShape(np.array([8.0]), np.array([64.0]), 1.0, np.array([128.0]), 2.0)

    def combine_s(model: Model) -> float:
        where = Deployment(resolve_cluster("gb200-nvl72"), model, Workload(context=1536), PEAK)
        machine = where.machine(StageSpec(tuple(range(72)), range(len(model.layers))))
        return float(np.max(afd_layer(where, machine, model.layers[-1], shape, queries=1.0).combine_s))

    wide = combine_s(replace(latent, layers=layers))
    assert wide == pytest.approx(combine_s(latent) * latent.hidden / latent.expert_hidden)


def test_a_layer_at_peak_by_hand() -> None:
    where = Deployment(
        resolve_cluster("gb200-nvl72"), resolve_model("deepseek-v3"), Workload(context=1536), PEAK
    )
    model = where.model
    moe = model.moe
    assert moe is not None
    machine = where.machine(StageSpec(tuple(range(72)), range(len(model.layers))))
    shape = AfdShape(np.array([8.0]), np.array([64.0]), 1.0, np.array([128.0]), 2.0)
    times = afd_layer(where, machine, model.layers[-1], shape, queries=1.0)
    # 64 GPUs hold 4 experts each: a token reaches 8 of 256 on distinct GPUs but for doubles
    copies = times.dispatch_s[0] * 900e9 / (7168 + 4 * 7168 / 128) / 128
    assert 7 < copies < 8
    assert times.combine_s[0] == pytest.approx(128 * copies * 7168 * 2 / 900e9)
    # 8 * 128 tokens use 8 experts each; all 256 are read: 4 a GPU in FP8 at 8 TB/s
    flop = 2 * moe.expert_params * 8 * 128 * 8 / 64
    read = 4 * moe.expert_params
    assert times.experts_s[0] == pytest.approx(max(flop / 5e15, read / 8e12), rel=0.02)
    dense = afd_layer(where, machine, model.layers[0], shape, queries=1.0)
    assert dense.experts_s[0] == dense.dispatch_s[0] == 0 < dense.attention_s[0]


def test_what_is_swept() -> None:
    found = swept()
    assert len(found) > 1000
    attention = found.tp * found.attention_dp
    assert (attention + found.ep == found.gpus).all()
    assert (attention >= 1).all()
    assert (found.ep >= 1).all()
    assert set(found.micro_batches.tolist()) == set(MICRO_BATCHES)
    assert (found.gpus * found.replicas <= 72).all()
    assert (found.batch <= found.max_batch * (1 + 1e-12)).all()
    assert (found.lower_step_s <= found.step_s).all()
    assert sum(found.terms_s.values()) == pytest.approx(found.step_s)
    assert all((seconds >= -1e-12).all() for seconds in found.terms_s.values())
    # each attention group holds a whole number of sequences of every micro-batch
    each = found.batch * found.gpus / attention * found.tp / found.micro_batches
    assert np.abs(each - np.round(each)).max() < 1e-6
    # the fullest expert GPU of the fewest: 256 experts in 58 layers, one byte a weight and scales
    fewest = int(found.ep.min())
    moe = found.deployment.model.moe
    assert moe is not None
    held = -(-256 // fewest) * 58 * moe.expert_params
    assert held <= USABLE_HBM * 185 * 2**30 < -(-256 // (fewest - 1)) * 58 * moe.expert_params * 1.01
    index = int(found.frontier()[0])
    assert found.label(index).startswith(f"A{attention[index]} E{found.ep[index]} ")
    assert found.tok_s_per_gpu[index] == pytest.approx(
        found.batch[index] * found.gpus[index] * found.replicas[index] / found.step_s[index] / 72
    )


def test_groups_over_domains_send_over_nics() -> None:
    found = swept("hgx-h100@64")
    wide = found.gpus > 8
    assert wide.any()
    assert (found.ep[wide] % 8 == 0).all()
    assert "ib-ndr400" in found.limits
    fast = replace(
        found.deployment.cluster.spec.scale_out,
        fabric=replace(
            found.deployment.cluster.spec.scale_out.fabric,
            link_bytes_per_s=replace(
                found.deployment.cluster.spec.scale_out.fabric.link_bytes_per_s, value=100e9
            ),
        ),
    )
    cluster = build_cluster(replace(found.deployment.cluster.spec, scale_out=fast))
    faster = afd_sweep(Deployment(cluster, found.deployment.model, found.deployment.workload))
    assert (faster.step_s <= found.step_s * (1 + 1e-12)).all(), "a faster link is never slower"
    assert (faster.step_s[wide] < found.step_s[wide]).any()


def test_imbalance_slows_and_drafts_pay() -> None:
    even, skewed = swept(), swept(imbalance=1.5)
    assert (skewed.step_s >= even.step_s * (1 - 1e-12)).all()
    assert (skewed.step_s > even.step_s).any()
    at, drafted = best_at(even, 25.0), best_at(swept(drafts=1), 25.0)
    assert at is not None
    assert drafted is not None
    assert swept(drafts=1).tok_s_per_gpu[drafted] > even.tok_s_per_gpu[at]


def test_what_is_refused() -> None:
    where = Deployment(resolve_cluster("gb200-nvl72"), resolve_model("deepseek-v3"), Workload())
    with pytest.raises(InputError, match="only decode"):
        afd_sweep(replace(where, workload=Workload(phase="prefill")))
    with pytest.raises(InputError, match="no routed experts"):
        afd_sweep(replace(where, model=resolve_model("llama-3.1-8b")))
    with pytest.raises(InputError, match="`overlap`"):
        afd_sweep(replace(where, workload=Workload(overlap=True)))
    small = afd_sweep(Deployment(resolve_cluster("hgx-h100"), resolve_model("deepseek-v3"), Workload()))
    assert len(small) == 0
    assert small.shortage_bytes > 1e9
