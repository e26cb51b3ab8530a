"""Bytes of stored weights, and the unit that multiplies them."""

import pytest

from cost.dtypes import bytes_per_param, cache_bytes_per_element, dtype, multiply_dtype
from topology.base.errors import InputError, MissingFigureError
from topology.base.figures import Evidence, Figure
from topology.spec import GpuSpec


def gpu(*units: str) -> GpuSpec:
    figures = {f"{unit}_flop_per_s": Figure(1e15, "flop/s", Evidence.ASSUMED, "test") for unit in units}
    return GpuSpec("chip", "Chip", "maker", "test", 1, figures)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("bf16", 2),
        ("fp16", 2),
        ("fp32", 4),
        ("fp8", 1 + 4 / 16384),
        ("mxfp4", 0.53125),
        ("nvfp4", 0.5625),
        ("mxfp8", 1.03125),
        ("int8", 1),
        ("int4-g32", 0.5625),
        ("int4-g128", 0.515625),
        ("int4-g128-zp", 0.51953125),
        ("int4", 0.515625),
        ("fp4", 0.5625),
        ("BFloat16", 2),
    ],
)
def test_bytes_with_scales(name, expected):
    assert bytes_per_param(name) == expected


@pytest.mark.parametrize(
    ("name", "units", "unit", "noted"),
    [
        ("bf16", ("bf16",), "bf16", False),
        ("fp8", ("bf16", "fp8"), "fp8", False),
        ("fp8", ("bf16",), "bf16", True),
        ("nvfp4", ("bf16", "fp8", "fp4"), "fp4", False),
        ("nvfp4", ("bf16", "fp8"), "fp8", True),
        ("mxfp4", ("bf16",), "bf16", True),
        ("int4-g32", ("bf16", "fp8", "fp4"), "bf16", True),
        ("nvfp4-a16", ("bf16", "fp8", "fp4"), "bf16", True),
        ("fp32", ("bf16",), "bf16", False),
    ],
)
def test_falls_back_to_the_next_wider_unit_and_says_so(name, units, unit, noted):
    found, note = multiply_dtype(name, gpu(*units))
    assert found == unit
    assert (note is not None) == noted
    if note:
        assert name in note


def test_no_unit_at_all_is_a_missing_figure():
    with pytest.raises(MissingFigureError, match="chip: the catalog has no dense peak for bf16"):
        multiply_dtype("bf16", gpu("fp8"))


@pytest.mark.parametrize("name", ["fp9", "", "nvfp4*0.5", "nvfp4*half+bf16*0.5", "what*0.5+bf16*0.5"])
def test_unknown_formats_are_one_line(name):
    with pytest.raises(InputError, match="`weights` ") as caught:
        dtype(name)
    assert "\n" not in str(caught.value)


def test_cache_formats():
    assert [cache_bytes_per_element(name) for name in ("bf16", "FP8", "float16", "fp32")] == [2, 1, 2, 4]
    with pytest.raises(InputError, match="`kv_dtype` 'nvfp4': no format of the KV cache; choose one of bf16"):
        cache_bytes_per_element("nvfp4")
