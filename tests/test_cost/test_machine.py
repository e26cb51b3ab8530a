"""Rates and kernels of a stage: the slowest GPU's, from the catalog's figures; what is checked of a deployment."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cost.calibration.serving import calibrated_chips
from cost.inputs.deployment import Deployment
from cost.inputs.layout import StageSpec
from cost.inputs.machine import Unit, stage_rates
from cost.inputs.workload import Workload
from cost.resolve import resolve_model
from topology import ClusterSpec, MissingFigureError, build_cluster, resolve_cluster
from topology.base.errors import InputError
from topology.catalog import load_gpu


def test_hgx_h100_from_its_links():
    cluster = resolve_cluster("hgx-h100@16")
    rates = stage_rates(cluster, range(16), ["fp8", "bf16"])
    assert rates.flop_per_s == {"fp8": 1979e12, "bf16": 989.5e12}  # dense: half of what the data sheet prints
    assert rates.hbm_bytes_per_s == 3.35e12
    assert rates.up_bytes_per_s == 450e9  # 18 links of 25 GB/s, one direction
    assert rates.out_bytes_per_s == 50e9  # 400 Gb/s
    assert (rates.up_fabric, rates.out_fabric) == ("nvlink4", "ib-ndr400")
    # GPU, switch, GPU: 2 links of 0.5 us; GPU, leaf, spine, leaf, GPU: 4 of 2 us
    assert (rates.up_latency_s, rates.out_latency_s) == (1e-6, 8e-6)
    assert rates.notes == ()


def test_each_rate_is_the_smallest_among_the_gpus(toy):
    slow_chip = toy.domain(chip=toy.gpu(hbm=4e9, bf16=1e13, hbm_rate=2e12, name="big"))
    slow_link = toy.domain(link=1e9)
    cluster = toy.cluster(slow_chip, slow_link)
    both = stage_rates(cluster, range(8), ["bf16"])
    assert both.flop_per_s["bf16"] == 1e13
    assert (both.hbm_bytes_per_s, both.up_bytes_per_s) == (1e12, 1e10)
    alone = stage_rates(cluster, range(4), ["bf16"])
    assert (alone.hbm_bytes_per_s, alone.up_bytes_per_s) == (2e12, 1e11)


def test_what_a_chip_cannot_multiply_runs_wider_and_says_so(toy):
    cluster = toy.cluster(toy.domain(), toy.domain(chip=toy.gpu(fp8=0, name="old")))
    rates = stage_rates(cluster, range(8), ["fp8", "nvfp4", "bf16"])
    assert rates.flop_per_s == {"fp8": 1e14, "nvfp4": 1e14, "bf16": 1e14}
    assert "old has no fp8 peak: fp8 weights multiply at bf16" in rates.notes
    assert "toy has no fp4 peak: nvfp4 weights multiply at fp8" in rates.notes
    assert stage_rates(cluster, range(4), ["fp8"]).flop_per_s == {"fp8": 2e14}


def test_a_missing_figure_raises_and_is_not_filled_in(toy):
    chip = toy.gpu()
    kept = {key: value for key, value in chip.figures.items() if key != "hbm_bytes_per_s"}
    cluster = toy.cluster(toy.domain(chip=type(chip)("bare", "bare", "none", "made up", 1, kept)))
    with pytest.raises(MissingFigureError, match="bare: the catalog has no hbm_bytes_per_s"):
        stage_rates(cluster, range(4), ["bf16"])


def test_without_a_fabric_between_domains_there_is_no_rate(toy):
    rates = stage_rates(toy.cluster(4, out=0), range(4), ["bf16"])
    assert (rates.out_bytes_per_s, rates.out_fabric) == (0.0, "")
    with pytest.raises(InputError, match="no `fabric:` connects them"):
        rates.require_scale_out()
    stage_rates(toy.cluster(4), range(4), ["bf16"]).require_scale_out()


def test_oversubscription_divides_the_rate_between_domains():
    cluster = resolve_cluster("hgx-h100@16")
    out = replace(cluster.spec.scale_out, oversubscription=4.0)
    slower = build_cluster(replace(cluster.spec, scale_out=out))
    assert stage_rates(slower, range(16), ["bf16"]).out_bytes_per_s == 50e9 / 4


def test_wider_units_and_their_peaks_over_the_made_for_one(toy):
    # 200 Tflop/s in FP8, 100 in BF16; the other chip has BF16 alone
    one = stage_rates(toy.cluster(4), range(4), ["fp8", "bf16", "nvfp4"])
    assert one.wider == {"fp8": (("bf16", 0.5),), "bf16": (), "nvfp4": (("bf16", 0.5),)}
    assert one.units("experts", "fp8") == (Unit("experts.fp8", (("experts.bf16", 0.5),)),)
    old = toy.gpu(fp8=0, bf16=5e13, name="old")
    both = stage_rates(toy.cluster(4, toy.domain(4, chip=old)), range(8), ["fp8"])
    assert both.wider == {"fp8": ()}


# --- deployments


def test_a_cluster_without_gpus_is_refused(toy):
    with pytest.raises(InputError, match="cluster none: it has no GPU"):
        Deployment(build_cluster(ClusterSpec("none", (), None)), toy.model(), Workload())


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
