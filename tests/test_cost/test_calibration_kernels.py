"""Published kernel rates: each the quotient of its rate and a peak of the catalog, and what the largest are."""

import copy

import pytest
import yaml

from cost.calibration.kernels import (
    PATH,
    PREFILL,
    KernelFigures,
    architecture_of,
    architectures,
    kernel_rates,
    published_best,
)
from cost.calibration.serving import calibrated, calibrated_chips
from topology.base.errors import InputError, MissingFigureError
from topology.base.schema import validated
from topology.catalog import load_gpu

SHIPPED = yaml.safe_load(PATH.read_text(encoding="utf-8"))


def test_prompts_are_faster_on_gb300_by_what_kernels_reach():
    plain, ultra = (calibrated(load_gpu(name)).table for name in ("gb200", "gb300"))
    assert ultra[PREFILL].value / plain[PREFILL].value == pytest.approx((2096 / 2500) / (1812 / 2500))
    other = {name for name in plain if plain[name].value != ultra[name].value}
    assert other == {PREFILL, "gemm.fp4", "experts.fp4"}  # as many flop/s of other peaks


@pytest.mark.parametrize("chip", calibrated_chips())
def test_every_calibrated_chip_has_an_architecture(chip):
    assert architecture_of(chip) in architectures()


@pytest.mark.parametrize(
    ("architecture", "coefficient", "narrow", "value"),
    [
        ("hopper", "gemm.fp8", {}, 1550 / 1979),  # DeepGEMM on H800
        ("hopper", "attention.decode.bf16", {}, 668 / 989.5),
        ("hopper", "attention.decode.fp8", {}, 791 / 1979),
        ("hopper", "attention.decode.bf16", {"chip": "h800-sxm"}, 660 / 989.5),  # FlashMLA
        ("hopper", "attention.prefill", {}, 840 / 989.5),  # FlashAttention-3
        ("blackwell", "attention.prefill", {"chip": "b200-sxm"}, 1613 / 2250),  # FlashAttention-4
        ("blackwell", "gemm.fp4", {}, 5702 / 9000),
        ("blackwell", "gemm.fp4", {"chip": "gb300"}, 6462.7 / 15000),
        ("ascend", "hbm.cache", {}, 1346 / 1600),
    ],
)
def test_the_largest_is_found(architecture, coefficient, narrow, value):
    assert published_best(architecture, coefficient, **narrow).value == pytest.approx(value)


def test_what_nobody_published_is_an_error_that_says_so():
    with pytest.raises(MissingFigureError, match=r"ascend has no gemm\.fp8: no FP8 units"):
        published_best("ascend", "gemm.fp8")
    with pytest.raises(MissingFigureError, match=r"hopper-h20: no published rate of hbm\.experts is in"):
        published_best("hopper-h20", "hbm.experts")
    with pytest.raises(MissingFigureError, match=r"gemm\.fp8 on gb200 over bf16_flop_per_s"):
        published_best("blackwell", "gemm.fp8", chip="gb200", peak="bf16_flop_per_s")
    with pytest.raises(MissingFigureError, match="rubin: no published rate"):
        architecture_of("rubin")


def test_unknown_names_are_refused():
    with pytest.raises(InputError, match="did you mean hopper"):
        published_best("hoper", "gemm.fp8")
    with pytest.raises(InputError, match=r"'delay\.layer' is not a fraction"):
        published_best("hopper", "delay.layer")


@pytest.mark.parametrize("rate", kernel_rates().kernels, ids=lambda rate: f"{rate.chip} {rate.coefficient}")
def test_a_value_is_its_rate_over_the_peak(rate):
    figures = kernel_rates()
    assert figures.fraction(rate).value == pytest.approx(rate.value, abs=0.00051)
    assert (rate.peak == "hbm_bytes_per_s") == rate.coefficient.startswith("hbm.")
    assert rate.coefficient not in figures.without.get(architecture_of(rate.chip), {})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"peak": "power"}, "kernels\\[0\\]: peak: 'power' is not a peak"),
        ({"chip": "h300"}, "'h300' is not a GPU in the catalog; did you mean"),
        ({"kind": "assumed"}, "kind: 'assumed' must be 'measured'"),
        ({"value": 1.4}, "value: 1.4 must be less than or equal to 1"),
        ({"coefficient": "links.hop"}, r"'links\.hop' is not a"),
        ({"speed": 1}, "speed: unknown key"),
    ],
)
def test_rows_that_cannot_be_are_refused(change, message):
    data = copy.deepcopy(SHIPPED)
    data["kernels"][0].update(change)
    with pytest.raises(InputError, match=message):
        validated(KernelFigures, data, "kernels.yaml")
