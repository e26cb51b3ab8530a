"""The inputs of every cost: what is checked, and what is computed once."""

import pytest

from cost.calibration.serving import calibrated_chips
from cost.inputs.deployment import Deployment
from cost.inputs.layout import StageSpec
from cost.inputs.workload import Workload
from cost.resolve import resolve_model
from topology import ClusterSpec, build_cluster, resolve_cluster
from topology.base.errors import InputError
from topology.catalog import load_gpu


def test_a_cluster_without_gpus_is_refused(toy):
    with pytest.raises(InputError, match="cluster none: it has no GPU"):
        Deployment(build_cluster(ClusterSpec("none", (), None)), toy.model(), Workload())


def test_domains_of_a_stage(toy):
    deployment = toy.deployment(toy.cluster(2, 4))
    stage = StageSpec((5, 0, 2), range(1))
    assert deployment.domains(stage).tolist() == [1, 0, 1]
    assert deployment.domain_set(stage) == {0, 1}


def test_rates_are_those_of_the_stage_and_not_of_the_cluster(toy):
    deployment = toy.deployment(toy.cluster(toy.domain(2), toy.domain(2, link=1e9)))
    fast, slow = StageSpec((0, 1), range(1)), StageSpec((2, 3), range(1))
    assert deployment.rates(fast).up_bytes_per_s == 1e11
    assert deployment.rates(slow).up_bytes_per_s == 1e10
    assert deployment.with_batch(7).rates(fast) is deployment.rates(fast)


def test_another_batch_is_all_that_changes(toy):
    deployment = toy.deployment(toy.cluster(2), batch=1)
    other = deployment.with_batch(9)
    assert (other.workload.batch, deployment.workload.batch) == (9, 1)
    assert other.workload.context == deployment.workload.context
    assert other.model is deployment.model


def test_an_engine_that_nobody_measured_is_refused_at_once(toy):
    with pytest.raises(InputError, match="`engine` nobody: measured engines are"):
        Deployment(toy.cluster(4), toy.model(), Workload(), engine="nobody")


def test_a_stage_runs_at_the_pace_of_its_slowest_chip(toy):
    names = [name for name in calibrated_chips() if name in {"h100-sxm", "h200-sxm", "b200", "gb200"}][:2]
    domains = [toy.domain(2, chip=load_gpu(name)) for name in names]
    where = Deployment(toy.cluster(*domains), toy.model(), Workload())
    slow, fast = sorted(
        (0, 1), key=lambda i: (domains[i].gpu.dense_flop_per_s("bf16"), domains[i].gpu.hbm_bytes_per_s)
    )
    both, alone = StageSpec((0, 1, 2, 3), range(1)), StageSpec((2 * fast, 2 * fast + 1), range(1))
    assert where.machine(both).efficiency.chip == names[slow]
    assert where.machine(alone).efficiency.chip == names[fast]
    assert where.kernels_reach().chip == names[0]
    given = Deployment(where.cluster, where.model, where.workload, toy.coefficients())
    assert given.machine(both).efficiency is given.kernels_reach() is given.efficiency


def test_the_kernel_of_a_stage(toy):
    model = toy.model(dense=1, moe=2)
    where = Deployment(toy.cluster(4, 4), model, Workload())
    inside, across = StageSpec((0, 1, 2, 3), range(3)), StageSpec(tuple(range(8)), range(3))
    machine = where.machine(across)
    assert where.kernel(inside) is where.machine(inside).kernels.inside
    assert where.kernel(across) is machine.kernels.across
    assert where.kernel(StageSpec((0, 1, 2, 3), range(1))) is None, "it has no experts"
    assert where.kernel(StageSpec((0,), range(3))) is None, "it has one GPU"
    assert where.kernel(inside, tp=4) is None, "one attention group has every token"
    assert Deployment(where.cluster, model, Workload(), toy.coefficients()).kernel(inside) is None


def test_prefill_has_kernels_of_its_own(toy):
    decode, prefill = (
        Deployment(toy.cluster(4, 4), toy.model(), Workload(phase=phase)) for phase in ("decode", "prefill")
    )
    stage = StageSpec(tuple(range(8)), range(3))
    assert (decode.kernel(stage).family, prefill.kernel(stage).family) == ("per-copy", "per-node")


def test_a_torus_talks_slower_than_the_sum_of_its_links():
    where = Deployment(resolve_cluster("tpu-v5p"), resolve_model("mixtral-8x7b"), Workload())
    rates = where.rates(StageSpec(tuple(range(64)), range(1)))
    assert rates.up_bytes_per_s == 600e9  # 6 links of 100 GB/s
    # a wrapped cube of 4: k / 8 of a node's bytes on each link, and 63 of 64 parts travel
    assert rates.alltoall_bytes_per_s == pytest.approx(100e9 * 8 / 4 * 63 / 64)


def test_behind_switches_all_links_carry_an_all_to_all():
    where = Deployment(resolve_cluster("hgx-h100"), resolve_model("mixtral-8x7b"), Workload())
    rates = where.rates(StageSpec(tuple(range(8)), range(1)))
    assert rates.alltoall_bytes_per_s == rates.up_bytes_per_s == 450e9
