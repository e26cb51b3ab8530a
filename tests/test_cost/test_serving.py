"""Paths of caches between engines; limits that nobody asked for give way, and printed reaches can be asked for."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cost.inputs.deployment import Deployment
from cost.inputs.workload import Workload
from cost.resolve import resolve_model
from cost.serving.cache_path import OUT_REACH, UP_REACH, kv_path, prompt_cache_bytes
from cost.serving.limits import rounded_down, rounded_up
from topology import InputError, build_cluster, resolve_cluster


def deployment(cluster: str, model: str = "deepseek-r1", kv_dtype: str = "bf16") -> Deployment:
    return Deployment(resolve_cluster(cluster), resolve_model(model), Workload(kv_dtype=kv_dtype))


def test_bytes_of_a_prompt_by_hand() -> None:
    # (512 + 64) elements in each of 61 layers: 70,272 bytes a token in BF16, whatever tensor parallelism replicates
    assert prompt_cache_bytes(deployment("gb200-nvl72"), 1024) == 70_272 * 1024
    assert prompt_cache_bytes(deployment("gb200-nvl72", kv_dtype="fp8"), 1024) < 0.6 * 70_272 * 1024
    # 80 layers of 8 heads of 128, keys and values: 327,680 bytes a token
    assert prompt_cache_bytes(deployment("hgx-h100", "llama-3.1-70b"), 10) == 3_276_800


def test_one_domain_sends_over_its_links_and_several_over_nics() -> None:
    rack = deployment("gb200-nvl72")
    inside = kv_path(rack, rack)
    assert inside.name == "nvlink5"
    assert inside.bytes_per_s == pytest.approx(UP_REACH.value * 900e9)
    assert inside.latency_s == pytest.approx(1e-6)
    assert inside.seconds(48e9, 1) == pytest.approx(1e-6 + 1, rel=0.01)
    assert inside.seconds(48e9, 4) == pytest.approx(1e-6 + 0.25, rel=0.01)  # side by side
    hosts = deployment("hgx-h100@16")
    across = kv_path(hosts, hosts)
    assert across.name == "ib-ndr400"
    assert across.bytes_per_s == pytest.approx(OUT_REACH.value * 50e9)
    assert across.latency_s == pytest.approx(8e-6)
    assert OUT_REACH.value == 190 / 400


def test_two_clusters_take_the_slower_nics() -> None:
    rack, slow = deployment("gb200-nvl72"), deployment("hgx-h20")
    path = kv_path(rack, slow)
    assert path.bytes_per_s == pytest.approx(OUT_REACH.value * 25e9)
    assert path.bytes_per_s == kv_path(slow, rack).bytes_per_s
    spec = replace(slow.cluster.spec, scale_out=None)
    with pytest.raises(InputError, match="no `fabric:`"):
        kv_path(rack, replace(slow, cluster=build_cluster(spec)))


@given(st.floats(1e-6, 1e9))
def test_printed_reaches_can_be_asked_for(value: float) -> None:
    up, down = (float(text(value).replace(",", "")) for text in (rounded_up, rounded_down))
    assert down * (1 - 1e-11) <= value <= up * (1 + 1e-11)
    assert up - down <= value * 1.0001e-3
    assert (rounded_up(1234.56), rounded_down(1234.56)) == ("1,235", "1,234")
