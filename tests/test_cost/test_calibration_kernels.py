"""Published kernel rates, each a quotient of its rate and a peak; chips nobody measured, brought down to them."""

import copy
from functools import reduce
from operator import getitem

import pytest
import yaml

from cost.calibration.kernels import (
    PATH,
    PREFILL,
    UNMEASURED,
    KernelFigures,
    UnmeasuredChips,
    architecture_of,
    architectures,
    brought_down,
    derate,
    kernel_rates,
    published_best,
    unmeasured,
)
from cost.calibration.serving import calibrated, calibrated_chips
from topology.base.errors import InputError, MissingFigureError
from topology.base.figures import Evidence
from topology.base.schema import validated
from topology.catalog import gpu_names, load_gpu

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


# --- chips that nobody measured

FILE = yaml.safe_load(UNMEASURED.read_text(encoding="utf-8"))


def test_every_chip_of_the_catalog_is_measured_or_has_a_measured_chip_stand_in():
    assert not set(calibrated_chips()) & set(unmeasured().chips)
    assert {*calibrated_chips(), *unmeasured().chips} <= set(gpu_names())
    published = [gpu for gpu in map(load_gpu, gpu_names()) if gpu.multiplies("bf16")]
    assert {calibrated(gpu).chip for gpu in published} <= set(calibrated_chips())


def test_a_published_rate_goes_before_what_is_assumed():
    reach = derate("tpu-v7")
    assert reach["hbm.cache"].kind is Evidence.MEASURED
    assert reach["hbm.cache"].text == "0.860"
    assert reach["gemm.bf16"].text == "0.574"  # its own, not TPU v5p's 0.654
    assert reach["attention.decode.bf16"].kind is Evidence.ASSUMED
    assert reach["attention.decode.bf16"].source.startswith("as tpu-v5p: no rate")
    of_measured = derate("mi455x")["gemm.fp8"]
    assert of_measured.value == pytest.approx(2997 / 5000)
    assert of_measured.kind is Evidence.ASSUMED
    assert of_measured.source.startswith("as mi355x: ROCm/aiter")


@pytest.mark.parametrize("chip", unmeasured().chips)
@pytest.mark.parametrize("stand_in", ["h200-sxm", "gb200", "h20-sxm"])
def test_coefficients_never_pass_what_kernels_reach(chip, stand_in):
    fitted = calibrated(load_gpu(stand_in)).table
    table = brought_down(fitted, stand_in, chip)
    reach = derate(chip)
    assert set(table) == set(fitted)
    for name, figure in table.items():
        if name in reach:
            assert 0 < figure.value <= reach[name].value, name
            assert figure.kind is Evidence.ASSUMED
            assert stand_in in figure.source
            assert chip in figure.source
        else:
            assert figure is fitted[name]


def test_a_fraction_falls_by_the_ratio_of_the_kernels():
    fitted = calibrated(load_gpu("gb200")).table
    table = brought_down(fitted, "gb200", "mi455x")
    for name, here in (("gemm.bf16", 1565 / 2500), ("gemm.fp8", 2997 / 5000)):
        there = published_best("blackwell", name, chip="gb200").value
        assert table[name].value == pytest.approx(min(here, fitted[name].value * here / there)), name
    assert table["gemm.fp8"].value <= derate("mi455x")["gemm.fp8"].value


def test_nothing_is_assumed_of_what_was_published():
    for chip, given in unmeasured().chips.items():
        for name in given.fractions:
            with pytest.raises(MissingFigureError):
                published_best(
                    architecture_of(chip),
                    name,
                    chip=chip,
                    peak="bf16_flop_per_s" if name == "attention.prefill" else "",
                )


@pytest.mark.parametrize(
    ("path", "change", "message"),
    [
        ("mi455x", {"speed": 1}, "mi455x: speed: unknown key"),
        ("mi455x", {"neighbour": "h300"}, "neighbour: 'h300' is not a GPU in the catalog; did you mean"),
        (
            "tpu-v7 fractions",
            {"gemm.bf61": {}},
            r"not a fraction of a chip's peak; did you mean gemm\.bf16",
        ),
        (
            "trainium2 fractions hbm.cache",
            {"value": 1.2},
            r"value: 1\.2 must be less than or equal to 1",
        ),
        ("trainium2 fractions hbm.cache", {"kind": "measured"}, "'measured' must be 'assumed'"),
        (
            "trainium2 fractions hbm.cache",
            {"source": "hearsay"},
            "'hearsay' is not among the file's sources",
        ),
        ("", {"mi301x": {"fractions": {}}}, "'mi301x' is not a GPU in the catalog; did you mean"),
        ("trainium2", {"fractions": {}}, r"trainium2: nothing on .*hbm\.cache"),
    ],
)
def test_files_that_cannot_be_are_refused(path, change, message):
    data = copy.deepcopy(FILE)
    reduce(getitem, path.split(), data["chips"]).update(change)
    with pytest.raises(InputError, match=message):
        validated(UnmeasuredChips, data, "unmeasured.yaml").reach()
