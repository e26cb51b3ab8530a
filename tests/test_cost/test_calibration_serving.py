"""Calibrated coefficients: read off curves, a neighbour's marked as such, engines, and files that are refused."""

import math
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

import helpers
from cost.calibration import serving
from cost.calibration.kernels import derate
from cost.calibration.serving import (
    ANY_ENGINE,
    MAX_DRAFTS,
    Calibration,
    Tables,
    accept_length,
    calibrated,
    calibrated_chips,
    engine_names,
    peak_of,
    require_engine,
)
from cost.inputs.machine import COEFFICIENTS, is_fraction, stage_rates
from cost.inputs.workload import StepShape
from cost.resolve import resolve_model
from cost.terms.experts import even_expert_work
from topology import load_domain, resolve_cluster
from topology.base.errors import InputError, MissingFigureError
from topology.base.figures import Evidence
from topology.base.schema import validated
from topology.catalog import gpu_names, load_gpu

SHIPPED = yaml.safe_load(Path(serving.PATH).read_text(encoding="utf-8"))
ENGINES = (ANY_ENGINE, *engine_names())


@pytest.mark.parametrize("chip", calibrated_chips())
@pytest.mark.parametrize("engine", ["", *engine_names()])
def test_measured_chips_have_every_coefficient(chip, engine):
    found = calibrated(load_gpu(chip), engine)
    measured = engine in next(f["delays"] for f in SHIPPED["families"] if chip in f["chips"])
    assert (found.chip, found.engine, found.stand_in_for) == (chip, engine if measured else ANY_ENGINE, "")
    assert list(found.figures()) == list(COEFFICIENTS)
    assert not found.ideal
    for name, figure in found.figures().items():
        assert figure.kind is Evidence.DERIVED
        assert figure.source
        assert figure.unit == ("s" if name.startswith("delay.") else "1")
        if is_fraction(name):
            assert 0 < figure.value <= 1, name
        elif name.startswith(("overlap", "prompts.first", "prompts.uneven", "engine.share")):
            assert 0 <= figure.value <= 1, name
        elif name == "accept.unrecorded":
            assert 1 <= figure.value <= 1 + MAX_DRAFTS
        elif name.startswith("accept."):
            assert 1 <= figure.value <= 1 + int(name[-1]), name
        else:
            assert 0 <= figure.value < (1.0 if figure.unit == "s" else 1e6), name


STAND_INS = {
    "h100-sxm": (
        "a100-sxm a100-sxm-40gb a100-pcie a100-pcie-40gb gaudi3 gh200 h100-pcie h100-nvl l4 l40s maia-200 tpu-v5e "
        "tpu-v6e trainium2 trainium3"
    ),
    "h200-sxm": "h200-nvl",
    "h20-sxm": "h20-sxm-141gb",
    "b200-sxm": "rtx-pro-6000 tpu-v7 tpu-8t tpu-8i",
    "gb200": "gb200-nvl4 lecture mi455x rubin vr200",
    "mi355x": "mi350x",
    "mi300x": "mi250x",
    "ascend-910c": "tpu-v5p ascend-950dt",
}
"""Of each measured chip, those that take its coefficients: by `unmeasured.yaml`, or nearest in flop/s and HBM."""


@pytest.mark.parametrize(("neighbour", "chips"), STAND_INS.items())
def test_other_chips_take_the_nearest_and_say_so(neighbour, chips):
    for name in chips.split():
        found = calibrated(load_gpu(name))
        assert (found.chip, found.stand_in_for) == (neighbour, name)
        for figure in found.figures().values():
            assert figure.kind is Evidence.ASSUMED
            assert neighbour in figure.source
        for coefficient in set(COEFFICIENTS) - set(derate(name) or {}):
            assert name in found.figures()[coefficient].source


def test_every_chip_with_figures_takes_those_of_a_measured_one():
    taken = {*calibrated_chips(), *" ".join(STAND_INS.values()).split()}
    assert set(gpu_names()) - taken == {"rubin-ultra", "mi440x"}
    for name in ("rubin-ultra", "mi440x"):
        with pytest.raises(MissingFigureError):
            calibrated(load_gpu(name))


def test_engines_are_known_by_their_names():
    assert require_engine("") == ANY_ENGINE
    assert require_engine(" SGLang ") == "sglang"
    assert require_engine("TensorRT-LLM") == require_engine("trtllm") == "trtllm"
    gpu = load_domain("hgx-h100").gpu
    for engine in ("ollama", "none", "sg lang"):
        with pytest.raises(InputError, match=f"^`engine` {engine}: measured engines are .*sglang") as refused:
            calibrated(gpu, engine)
        assert "\n" not in str(refused.value)


def test_tokens_that_drafts_yield():
    assert accept_length(0) == 1.0
    lengths = [accept_length(drafts) for drafts in range(MAX_DRAFTS + 1)]
    assert lengths == sorted(lengths)
    assert lengths[1:] == [SHIPPED["shared"][f"accept.{drafts}"] for drafts in (1, 2, 3)]
    with pytest.raises(MissingFigureError, match=r"`draft_tokens` 4: .*1 to 3 drafts; give `accept_length`"):
        accept_length(4)


def test_int4_experts_are_slower_on_chips_that_were_measured_so():
    kimi = resolve_model("kimi-k2.5")
    rates = stage_rates(resolve_cluster("mi300x"), [0], kimi.precision.values())
    work = even_expert_work(
        kimi.moe, StepShape(sequences=64.0), weights=kimi.precision["experts"], rates=rates
    )
    cdna, hopper = calibrated(load_gpu("mi300x")), calibrated(load_gpu("h200-sxm"))
    assert hopper["experts.int4"] == 1.0
    assert cdna["experts.int4"] < calibrated(load_gpu("mi355x"))["experts.int4"] < 1.0
    assert work.seconds(cdna)[1] == pytest.approx(
        work.memory_s / (cdna["experts.int4"] * cdna["hbm.experts"])
    )
    assert work.seconds(hopper)[1] == pytest.approx(work.memory_s / hopper["hbm.experts"])
    assert (
        replace(work, units=(work.units[0]._replace(unpacking=""),)).seconds(cdna)[1] < work.seconds(cdna)[1]
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_no_coefficient_is_worse_on_a_later_chip_of_a_family(engine):
    each = [(gpu := load_gpu(name), calibrated(gpu, engine)) for name in ("mi300x", "mi325x", "mi355x")]
    for (before, slow), (after, fast) in pairwise(each):
        for name in SHIPPED["families"][1]["curves"]:
            if not name.endswith(".fp4"):
                assert peak_of(after, name) * fast[name] >= peak_of(before, name) * slow[name] * (1 - 1e-9), (
                    name
                )
        for name in SHIPPED["families"][1]["delays"][ANY_ENGINE]:
            assert fast[name] <= slow[name] * (1 + 1e-9), name


def test_a_chip_reads_its_own_figures_off_the_curves():
    h200 = load_gpu("h200-sxm")
    made = Tables(
        curves={
            "gemm.bf16": [(1e12, 1.0), (1e18, 1e-3)],
            "hbm.cache": [(4.8e12, 0.5)],
            "gemm.fp4": [(9e15, 0.25)],
        },
        delays={
            "any": {"delay.layer": [(989.5e12, 3e-5), (2250e12, 1e-5)], "engine.share": [(989.5e12, 0.1)]}
        },
        shared={"columns.gemm": 600.0, "columns.experts": 60.0, "overlap": 0.6},
    )
    found = made.of(h200, "any")
    # rates 1e12 and 1e15 at peaks 1e12 and 1e18: the rate grows as the square root of the peak
    assert found["gemm.bf16"] == pytest.approx(math.sqrt(1e12 * 989.5e12) / 989.5e12)
    assert found["hbm.cache"] == pytest.approx(0.5)
    assert found["gemm.fp4"] == pytest.approx(0.25)  # no such units: never used, the first point's
    assert found["delay.layer"] == pytest.approx(3e-5)
    assert found["engine.share"] == pytest.approx(0.1), "a share of time, no delay"
    assert (found["columns.gemm"], found["columns.experts"]) == (600.0, 60.0), "the same on every chip"
    assert found["overlap"] == 0.6


# --- files


changed = partial(helpers.changed, SHIPPED)
in_family = partial(helpers.changed, SHIPPED, "families", 0)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (changed("source"), "source"),
        (in_family("chips", to=[]), "chips: "),
        (in_family("curves", "hbm.cache", to="fast"), "curves: hbm.cache"),
        (in_family("curves", "hbm.cache", to=[]), "hbm.cache: expected pairs"),
        (
            in_family("curves", "hbm.cache", to=[[1e12, 0.0]]),
            "hbm.cache[0][1]: 0.0 must be greater than 0",
        ),
        (in_family("curves", "hbm.cache", to=[[2e12, 0.5], [1e12, 0.5]]), "figures rising"),
        (in_family("curves", "hbm.cache", to=[[1e12, 1.5]]), "hbm.cache: 1.5 is not a fraction of a peak"),
        (in_family("curves", "hbm.cache", to=[[1e12, 0.5], [2e12, 0.24]]), "hbm.cache: a higher figure"),
        (
            in_family("curves", "hbm.cash", to=[[1e12, 0.5]]),
            "'hbm.cash' is not a coefficient; did you mean hbm.cache",
        ),
        (changed("shared", "links.hop", to=1.5), "links.hop: 1.5 is not a fraction"),
        (changed("more", to=1), "more"),
        ([], "serving.yaml"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_broken_files_are_refused(data, words):
    with pytest.raises(InputError) as refused:
        validated(Calibration, data, "serving.yaml")
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("data", "missing"),
    [
        (in_family("curves", "hbm.cache"), "hbm.cache"),
        (in_family("delays", "vllm", "engine.share"), "vllm: engine.share"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_coefficient_that_is_missing_is_not_made_up(data, missing):
    first = SHIPPED["families"][0]["chips"][0]
    with pytest.raises(InputError, match=rf"^serving.yaml: {first}: engine .*{missing} is missing"):
        validated(Calibration, data, "serving.yaml")
