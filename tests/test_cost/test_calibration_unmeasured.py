"""Chips that nobody measured: what their kernels reach, and a neighbour's coefficients brought down to it."""

import copy

import pytest
import yaml

from cost.calibration.kernels import (
    UNMEASURED,
    brought_down,
    derate,
    published_best,
    read_unmeasured,
    unmeasured_chips,
)
from cost.calibration.serving import calibrated, calibrated_chips
from topology.base.errors import InputError
from topology.base.figures import Evidence
from topology.catalog import gpu_names, load_gpu

SHIPPED = yaml.safe_load(UNMEASURED.read_text(encoding="utf-8"))
NOT_YET = {"rubin", "rubin-ultra", "gb300", "lecture"}  # no kernel ran, or a measured chip's sibling


def test_every_chip_is_measured_or_derated_or_not_to_be_had():
    assert not set(calibrated_chips()) & set(unmeasured_chips())
    assert {*calibrated_chips(), *unmeasured_chips(), *NOT_YET} == set(gpu_names())


def test_a_published_rate_goes_before_what_is_assumed():
    reach = derate("mi325x")
    assert reach["gemm.fp8"].kind is Evidence.MEASURED
    assert reach["gemm.fp8"].value == pytest.approx(1519 / 2614)
    assert reach["hbm.experts"].text == "0.721"  # its own, not MI300X's 0.815
    assert reach["experts.fp8"].kind is Evidence.ASSUMED
    assert reach["experts.fp8"].source.startswith("as mi300x: ROCm/aiter")


@pytest.mark.parametrize("chip", unmeasured_chips())
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
    table = brought_down(fitted, "gb200", "mi355x")
    for name, here in (("gemm.bf16", 1565 / 2500), ("gemm.fp8", derate("mi355x")["gemm.fp8"].value)):
        there = published_best("blackwell", name, chip="gb200").value
        assert table[name].value == pytest.approx(min(here, fitted[name].value * here / there)), name
    assert table["gemm.fp8"].value < derate("mi355x")["gemm.fp8"].value


@pytest.mark.parametrize(
    ("chip", "change", "message"),
    [
        ("mi300x", {"like": "mi355x"}, r"like: 'mi355x' doesn't stand above mi300x"),
        ("mi300x", {"speed": 1}, "unknown key `speed`"),
        ("mi300x", {"neighbour": "h300"}, "neighbour: no such GPU in the catalog; did you mean"),
        ("tpu-v6e", {"like": None}, "like"),
        (
            "tpu-v7",
            {"fractions": {"gemm.bf61": {}}},
            r"no fraction of a chip's peak; did you mean gemm\.bf16",
        ),
        ("mi355x", {"fractions": {"hbm.cache": {}}}, "a rate was published"),
    ],
)
def test_chips_that_cannot_be_are_refused(chip, change, message):
    data = copy.deepcopy(SHIPPED)
    data["chips"][chip].update(change)
    with pytest.raises(InputError, match=message):
        read_unmeasured(data)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"value": 1.2}, r"1\.2 must be a number greater than zero, at most 1"),
        ({"kind": "measured"}, "without a rate it is assumed, not measured"),
        ({"source": "hearsay"}, "'hearsay' is not among the file's sources"),
    ],
)
def test_fractions_that_cannot_be_are_refused(change, message):
    data = copy.deepcopy(SHIPPED)
    data["chips"]["trainium2"]["fractions"]["hbm.cache"].update(change)
    with pytest.raises(InputError, match=message):
        read_unmeasured(data)


def test_unknown_chips_and_gaps_are_refused():
    data = copy.deepcopy(SHIPPED)
    data["chips"]["mi301x"] = {"fractions": {}}
    with pytest.raises(InputError, match="mi301x: no such GPU in the catalog; did you mean"):
        read_unmeasured(data)
    data = copy.deepcopy(SHIPPED)
    del data["chips"]["trainium2"]["fractions"]["hbm.cache"]
    with pytest.raises(InputError, match=r"trainium2: nothing on hbm\.cache"):
        read_unmeasured(data)
