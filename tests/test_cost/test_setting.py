"""The inputs of every cost: what is checked, and what is computed once."""

import pytest

from cost.layout import StageSpec
from cost.resolve import resolve_model
from cost.setting import Setting
from cost.workload import Workload
from topology import Cluster, ClusterSpec, resolve_cluster
from topology.errors import InputError


def test_kv_format_is_checked_at_once(toy):
    with pytest.raises(InputError, match="KV cache format 'fp7' is not known; choose one of bf16"):
        Setting(toy.cluster(4), toy.model(), Workload(kv_dtype="fp7"))


def test_a_cluster_without_gpus_is_refused(toy):
    with pytest.raises(InputError, match="cluster none: it has no GPU"):
        Setting(Cluster(ClusterSpec("none", (), None), ()), toy.model(), Workload())


def test_domains_of_a_stage(toy):
    setting = toy.setting(toy.cluster(2, 4))
    stage = StageSpec((5, 0, 2), range(1))
    assert setting.domains(stage).tolist() == [1, 0, 1]
    assert setting.domain_set(stage) == {0, 1}


def test_rates_are_those_of_the_stage_and_not_of_the_cluster(toy):
    setting = toy.setting(toy.cluster(toy.domain(2), toy.domain(2, link=1e9)))
    fast, slow = StageSpec((0, 1), range(1)), StageSpec((2, 3), range(1))
    assert setting.rates(fast).up_bytes_per_s == 1e11
    assert setting.rates(slow).up_bytes_per_s == 1e10
    assert setting.with_batch(7).rates(fast) is setting.rates(fast)


def test_another_batch_is_all_that_changes(toy):
    setting = toy.setting(toy.cluster(2), batch=1)
    other = setting.with_batch(9)
    assert (other.workload.batch, setting.workload.batch) == (9, 1)
    assert other.workload.context == setting.workload.context
    assert other.model is setting.model


def test_notes_say_what_runs_wider(toy):
    setting = Setting(resolve_cluster("hgx-h100"), toy.model(precision="nvfp4"), Workload())
    assert setting.notes == ("h100-sxm has no fp4 peak: nvfp4 weights multiply at fp8",)
    assert toy.setting(toy.cluster(2)).notes == ()


def test_a_torus_talks_slower_than_the_sum_of_its_links():
    where = Setting(resolve_cluster("tpu-v5p"), resolve_model("mixtral-8x7b"), Workload())
    rates = where.rates(StageSpec(tuple(range(64)), range(1)))
    assert rates.up_bytes_per_s == 600e9  # 6 links of 100 GB/s
    # a wrapped cube of 4: k / 8 of a node's bytes on each link, and 63 of 64 parts travel
    assert rates.alltoall_bytes_per_s == pytest.approx(100e9 * 8 / 4 * 63 / 64)


def test_behind_switches_all_links_carry_an_all_to_all():
    where = Setting(resolve_cluster("hgx-h100"), resolve_model("mixtral-8x7b"), Workload())
    rates = where.rates(StageSpec(tuple(range(8)), range(1)))
    assert rates.alltoall_bytes_per_s == rates.up_bytes_per_s == 450e9
