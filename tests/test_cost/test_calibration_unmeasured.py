"""Chips that nobody measured: what their kernels reach, and a neighbour's coefficients brought down to it."""

import copy

import pytest
import yaml

from cost.calibration.kernels import (
    UNMEASURED,
    UnmeasuredChips,
    architecture_of,
    brought_down,
    derate,
    published_best,
    unmeasured,
)
from cost.calibration.serving import calibrated, calibrated_chips
from topology.base.errors import InputError, MissingFigureError
from topology.base.figures import Evidence
from topology.base.schema import validated
from topology.catalog import gpu_names, load_gpu

SHIPPED = yaml.safe_load(UNMEASURED.read_text(encoding="utf-8"))


def test_every_chip_of_the_catalog_is_measured_or_has_a_measured_chip_stand_in():
    assert not set(calibrated_chips()) & set(unmeasured().chips)
    assert {*calibrated_chips(), *unmeasured().chips} <= set(gpu_names())
    published = [gpu for gpu in map(load_gpu, gpu_names()) if gpu.figures]
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
    assert table["gemm.fp8"].value < derate("mi455x")["gemm.fp8"].value


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
        (("mi455x",), {"speed": 1}, "mi455x: speed: unknown key"),
        (("mi455x",), {"neighbour": "h300"}, "neighbour: 'h300' is not a GPU in the catalog; did you mean"),
        (
            ("tpu-v7", "fractions"),
            {"gemm.bf61": {}},
            r"not a fraction of a chip's peak; did you mean gemm\.bf16",
        ),
        (
            ("trainium2", "fractions", "hbm.cache"),
            {"value": 1.2},
            r"value: 1\.2 must be less than or equal to 1",
        ),
        (("trainium2", "fractions", "hbm.cache"), {"kind": "measured"}, "'measured' must be 'assumed'"),
        (
            ("trainium2", "fractions", "hbm.cache"),
            {"source": "hearsay"},
            "'hearsay' is not among the file's sources",
        ),
        ((), {"mi301x": {"fractions": {}}}, "'mi301x' is not a GPU in the catalog; did you mean"),
        (("trainium2",), {"fractions": {}}, r"trainium2: nothing on .*hbm\.cache"),
    ],
)
def test_files_that_cannot_be_are_refused(path, change, message):
    data = copy.deepcopy(SHIPPED)
    entry = data["chips"]
    for key in path:
        entry = entry[key]
    entry.update(change)
    with pytest.raises(InputError, match=message):
        validated(UnmeasuredChips, data, "unmeasured.yaml").reach()
