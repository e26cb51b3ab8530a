"""Published kernel rates: each the quotient of its rate and a peak of the catalog, and what the largest are."""

import copy

import pytest
import yaml

from cost.calibration.kernels import PATH, architecture_of, architectures, published_best, read_kernel_rates
from cost.calibration.serving import calibrated_chips
from topology.base.errors import InputError, MissingFigureError

SHIPPED = yaml.safe_load(PATH.read_text(encoding="utf-8"))


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
    with pytest.raises(InputError, match=r"'delay\.layer' is no fraction"):
        published_best("hopper", "delay.layer")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"value": 0.9}, r"0\.9 is not 861\.2 TFLOP/s over 989\.5 TFLOP/s of h200-sxm: 0\.870"),
        ({"rate": "1400 TFLOP/s", "value": 1.415}, r"value: 1\.415 is not"),
        ({"rate": "861.2 TB/s"}, "is in byte/s, but flop/s is needed"),
        ({"peak": "hbm_bytes_per_s"}, r"no peak that gemm\.bf16 is a fraction of"),
        ({"peak": "fp4_flop_per_s"}, "the catalog has no fp4_flop_per_s of h200-sxm"),
        ({"chip": "h300"}, "'h300' is in no architecture"),
        ({"source": "hearsay"}, "'hearsay' is not among the file's sources"),
        ({"kind": "assumed"}, "a kernel's rate is measured, not assumed"),
        ({"coefficient": "links.hop"}, r"'links\.hop' is no fraction"),
        ({"coefficient": "gemm.fp16"}, r"'gemm\.fp16' is no fraction of a chip's peak"),
        ({"coefficient": "gemm.fp4"}, r"gemm\.fp4 has a rate, and stands under `without`"),
        ({"speed": 1}, "unknown key `speed`"),
    ],
)
def test_rows_that_cannot_be_are_refused(change, message):
    data = copy.deepcopy(SHIPPED)
    assert data["kernels"][0]["rate"] == "861.2 TFLOP/s"
    data["kernels"][0].update(change)
    with pytest.raises(InputError, match=message):
        read_kernel_rates(data)


def test_a_reason_for_an_architecture_that_is_not_there_is_refused():
    data = copy.deepcopy(SHIPPED)
    data["without"]["hoper"] = {"gemm.fp4": "no units"}
    with pytest.raises(InputError, match="hoper: no such architecture; did you mean hopper"):
        read_kernel_rates(data)
