"""Rates of a stage: the slowest GPU's, from the catalog's own figures."""

from dataclasses import replace

import pytest

from cost.inputs.machine import stage_rates
from topology import MissingFigureError, build_cluster, resolve_cluster
from topology.base.errors import InputError


def test_hgx_h100_from_its_links():
    cluster = resolve_cluster("hgx-h100@16")
    rates = stage_rates(cluster, range(16), ["fp8", "bf16"])
    assert rates.flop_per_s == {"fp8": 1979e12, "bf16": 989.5e12}  # dense: half of what the data sheet prints
    assert rates.hbm_bytes_per_s == 3.35e12
    assert rates.hbm_bytes == 81_559 * 2**20  # as the driver reports it, not 80e9
    assert rates.up_bytes_per_s == 450e9  # 18 links of 25 GB/s, one direction
    assert rates.out_bytes_per_s == 50e9  # 400 Gb/s
    assert (rates.up_fabric, rates.out_fabric) == ("nvlink4", "ib-ndr400")
    # GPU, switch, GPU: 2 links of 0.5 us; GPU, leaf, spine, leaf, GPU: 4 of 2 us
    assert (rates.up_latency_s, rates.out_latency_s) == (1e-6, 8e-6)
    assert rates.notes == ()


def test_units_and_the_slowest_chip(toy):
    old = toy.domain(chip=toy.gpu(fp8=0, bf16=5e13, name="old"))
    both = stage_rates(toy.cluster(toy.domain(), old), range(8), ["fp8", "bf16"])
    assert (both.chip, both.unit) == ("old", {"fp8": "bf16", "bf16": "bf16"})
    alone = stage_rates(toy.cluster(toy.domain(), old), range(4), ["fp8", "bf16"])
    assert (alone.chip, alone.unit) == ("toy", {"fp8": "fp8", "bf16": "bf16"})


def test_each_rate_is_the_smallest_among_the_gpus(toy):
    slow_chip = toy.domain(chip=toy.gpu(hbm=4e9, bf16=1e13, hbm_rate=2e12, name="big"))
    slow_link = toy.domain(link=1e9)
    cluster = toy.cluster(slow_chip, slow_link)
    both = stage_rates(cluster, range(8), ["bf16"])
    assert both.flop_per_s["bf16"] == 1e13
    assert (both.hbm_bytes, both.hbm_bytes_per_s, both.up_bytes_per_s) == (1e9, 1e12, 1e10)
    alone = stage_rates(cluster, range(4), ["bf16"])
    assert (alone.hbm_bytes, alone.hbm_bytes_per_s, alone.up_bytes_per_s) == (4e9, 2e12, 1e11)


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
    assert one.fractions("experts", "fp8") == ("experts.fp8", (("experts.bf16", 0.5),))
    old = toy.gpu(fp8=0, bf16=5e13, name="old")
    both = stage_rates(toy.cluster(4, toy.domain(4, chip=old)), range(8), ["fp8"])
    assert both.wider == {"fp8": ()}
