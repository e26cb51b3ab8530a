"""Identities of the blackboard, against numbers worked out by hand and against the step they are made of."""

from __future__ import annotations

from pathlib import Path

import pytest

from cost import resolve_model
from cost.inputs.deployment import Deployment
from cost.inputs.layout import StageSpec
from cost.inputs.workload import Workload
from cost.step.identities import balancing_batch, cache_tiers, output_over_input, over_two_domains
from topology import InputError, load_gpu, resolve_cluster


def test_balancing_batch_is_flop_per_byte_times_total_over_active() -> None:
    model = resolve_model("deepseek-v3", weights="bf16")
    sparsity = model.total_params / model.active_params
    assert balancing_batch(model, load_gpu("lecture")) == pytest.approx(300 * sparsity)


def test_fp8_weights_balance_where_bf16_ones_do_on_a_chip_twice_as_fast_in_fp8() -> None:
    gpu = load_gpu("gb200")
    wide, narrow = (
        balancing_batch(resolve_model("deepseek-v3", weights=name), gpu) for name in ("bf16", "fp8")
    )
    assert narrow == pytest.approx(
        wide * gpu.dense_flop_per_s("fp8") / gpu.dense_flop_per_s("bf16") / 2, rel=0.01
    )


def test_tiers_drain_slower_one_below_the_other() -> None:
    drains = [tier.drain_s for tier in cache_tiers(load_gpu("h100-sxm"))]
    assert drains == sorted(drains)
    assert drains[1:] == pytest.approx([2**36 / 51.2e9, 15.36e12 / 13e9, 24e12 / 285e6])


@pytest.fixture
def rack() -> tuple[Deployment, StageSpec]:
    cluster, model = resolve_cluster("gb200-nvl72"), resolve_model("deepseek-v3")
    deployment = Deployment(cluster, model, Workload(context=4096))
    return deployment, StageSpec(tuple(range(72)), range(len(model.layers)))


def test_output_tokens_are_dearer_in_small_batches(rack: tuple[Deployment, StageSpec]) -> None:
    ratios = [output_over_input(*rack, 1, batch) for batch in (1, 16, 256)]
    assert ratios == sorted(ratios, reverse=True)
    assert ratios[-1] > 1


def test_two_domains_are_slower_than_one(rack: tuple[Deployment, StageSpec]) -> None:
    one_s, two_s = over_two_domains(*rack, 1, 128)
    assert two_s > 1.1 * one_s


def test_two_domains_need_a_fabric_between_them(tmp_path: Path) -> None:
    path = tmp_path / "one.yaml"
    switch = "structure: switch, links_per_switch: [5, 5, 4, 4], link: 25 GB/s"
    path.write_text(f"name: one\ndomains: [{{gpu: h100-sxm, gpus: 8, gpus_per_node: 8, {switch}}}]\n")
    cluster = resolve_cluster(str(path))
    model = resolve_model("mixtral-8x7b")
    stage = StageSpec(tuple(range(8)), range(len(model.layers)))
    with pytest.raises(InputError, match="no `fabric:` connects"):
        over_two_domains(Deployment(cluster, model, Workload(context=128)), stage, 1, 8)
