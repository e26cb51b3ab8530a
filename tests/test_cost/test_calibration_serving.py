"""Calibrated coefficients: a chip's own, a neighbour's marked as such, engines, and files that are refused."""

import copy
import math
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from cost.calibration import serving
from cost.calibration.serving import (
    ANY_ENGINE,
    calibrated,
    calibrated_chips,
    engine_names,
    fit_errors,
    read_calibration,
    require_engine,
)
from cost.efficiency import COEFFICIENTS, is_fraction
from topology import load_domain
from topology.catalog_files import gpu_names, load_gpu
from topology.errors import InputError, MissingFigureError
from topology.figures import Evidence

SHIPPED = yaml.safe_load(Path(serving.PATH).read_text(encoding="utf-8"))


@pytest.mark.parametrize("chip", calibrated_chips())
@pytest.mark.parametrize("engine", ["", *engine_names()])
def test_measured_chips_have_their_own_coefficients(chip, engine):
    found = calibrated(load_gpu(chip), engine)
    assert (found.chip, found.engine, found.stand_in_for) == (chip, engine or ANY_ENGINE, "")
    assert list(found.figures()) == list(COEFFICIENTS)
    assert not found.ideal
    for name, figure in found.figures().items():
        assert figure.kind is Evidence.DERIVED
        assert figure.source
        assert figure.unit == ("s" if name.startswith("delay.") else "1")
        if is_fraction(name):
            assert 0 < figure.value <= 1, name
        elif name in {"overlap", "prefill_share"}:
            assert 0 <= figure.value <= 1, name
        else:
            assert 0 <= figure.value < (1.0 if figure.unit == "s" else 1e6), name


def test_delays_are_told_in_microseconds():
    figure = calibrated(load_gpu(calibrated_chips()[0])).figures()["delay.layer"]
    assert figure.text == f"{figure.value * 1e6:.3g} us"


def nearest(gpu):
    """The measured chip nearest in the logarithms of flop/s and bytes/s, found again from the file."""

    def distance(name):
        chip = SHIPPED["chips"][name]
        return math.hypot(
            math.log(gpu.dense_flop_per_s("bf16") / chip["bf16_flop_per_s"]),
            math.log(gpu.hbm_bytes_per_s / chip["hbm_bytes_per_s"]),
        )

    return min(SHIPPED["chips"], key=distance)


def test_other_chips_take_the_nearest_and_say_so():
    seen = 0
    for name in sorted(set(gpu_names()) - set(calibrated_chips())):
        gpu = load_gpu(name)
        try:
            neighbour = nearest(gpu)
        except MissingFigureError:
            continue
        found = calibrated(gpu)
        assert (found.chip, found.stand_in_for) == (neighbour, name)
        for figure in found.figures().values():
            assert figure.kind is Evidence.ASSUMED
            assert name in figure.source
            assert neighbour in figure.source
        assert {n: f.value for n, f in found.figures().items()} == {
            n: f.value for n, f in calibrated(load_gpu(neighbour)).figures().items()
        }
        seen += 1
    assert seen > 3


def test_changed_figures_of_a_known_chip_change_no_neighbour():
    name = next(name for name in gpu_names() if name not in calibrated_chips())
    gpu, neighbours = load_gpu(name), set()
    for factor in (0.01, 100.0):
        figures = {
            key: replace(figure, value=factor * figure.value) if "per_s" in key else figure
            for key, figure in gpu.figures.items()
        }
        assert calibrated(replace(gpu, figures=figures)) is calibrated(gpu)
        unknown = replace(gpu, name=f"mine, times {factor}", figures=figures)
        assert calibrated(unknown).chip == nearest(unknown)
        neighbours.add(nearest(unknown))
    assert len(neighbours) == 2


def test_engines_are_known_by_their_names():
    assert require_engine("") == ANY_ENGINE
    assert require_engine(" SGLang ") == "sglang"
    assert require_engine("TensorRT-LLM") == require_engine("trtllm") == "trtllm"
    gpu = load_domain("hgx-h100").gpu
    for engine in ("ollama", "none", "sg lang"):
        with pytest.raises(InputError, match=f"^--engine {engine}: measured are .*sglang") as refused:
            calibrated(gpu, engine)
        assert "\n" not in str(refused.value)


def test_the_fit_says_how_far_off_it_is():
    errors = fit_errors()
    assert errors["rows"] >= 1
    assert all(math.isfinite(value) and value >= 0 for value in errors.values())


def changed(*path, to=None):
    """The shipped file with one place changed, or removed."""
    data = copy.deepcopy(SHIPPED)
    place = data
    for key in path[:-1]:
        place = place[key]
    if to is None:
        del place[path[-1]]
    else:
        place[path[-1]] = to
    return data


CHIP = next(iter(SHIPPED["chips"]))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (changed("source"), "source"),
        (changed("fit"), "fit"),
        (changed("shared"), "shared"),
        (changed("chips", CHIP, "engines"), "engines"),
        (changed("chips", CHIP, "bf16_flop_per_s"), "bf16_flop_per_s"),
        (changed("chips", CHIP, "fractions"), "fractions"),
        (changed("chips", CHIP, "fractions", "hbm.cache", to="fast"), "hbm.cache"),
        (changed("chips", CHIP, "fractions", "hbm.cache", to=True), "hbm.cache"),
        (changed("chips", CHIP, "engines", ANY_ENGINE, "delay.layer", to=[1]), "delay.layer"),
        (changed("more", to=1), "more"),
        (changed("chips", CHIP, "more", to=1), "more"),
        ([], "calibration"),
        (None, "calibration"),
        ("text", "calibration"),
    ],
    ids=str,
)
def test_broken_files_are_refused(data, words):
    with pytest.raises(InputError) as refused:
        read_calibration(data)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("data", "missing"),
    [
        (changed("chips", CHIP, "fractions", "hbm.cache"), "hbm.cache"),
        (changed("shared", "overlap"), "overlap"),
        (changed("chips", CHIP, "engines", ANY_ENGINE, "delay.layer"), "delay.layer"),
    ],
)
def test_a_coefficient_that_is_missing_is_not_made_up(data, missing):
    with pytest.raises(InputError, match=rf"{CHIP}.*{missing} is missing"):
        read_calibration(data).efficiency(CHIP, ANY_ENGINE)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (changed("chips", CHIP, "engines", "sglang"), "sglang"),
        (changed("chips", CHIP, "engines", ANY_ENGINE), ANY_ENGINE),
        (changed("chips", CHIP, "fractions", "hbm.cache", to=1.5), "hbm.cache"),
        (changed("chips", CHIP, "fractions", "hbm.cache", to=0.0), "hbm.cache"),
        (changed("chips", CHIP, "fractions", "hbm.cash", to=0.5), "hbm.cash"),
    ],
)
def test_what_does_not_fit_together_is_refused(data, words):
    with pytest.raises(InputError, match=words):
        read_calibration(data)
