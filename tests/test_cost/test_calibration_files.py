"""Coefficients, kernels, errors and recipes that ship: what is read of them, whose a chip takes, and broken files."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

import helpers
from cost.calibration import alltoall, errors, kernels, serving
from cost.calibration.alltoall import KernelTable
from cost.calibration.errors import ErrorTable
from cost.calibration.first_token import FirstTokenCalibration
from cost.calibration.kernels import KernelFigures, UnmeasuredChips
from cost.calibration.serving import Calibration
from cost.inputs.deployment import Deployment
from cost.inputs.machine import COEFFICIENTS, PEAK, stage_rates
from cost.inputs.workload import StepShape, Workload
from cost.recipe import ANY_MODEL, Recipes, published_recipe
from cost.recipe import PATH as RECIPES
from cost.resolve import resolve_model
from cost.terms.experts import even_expert_work
from helpers import error_of
from topology import resolve_cluster
from topology.base.errors import InputError, MissingFigureError
from topology.base.figures import Evidence
from topology.base.schema import validated
from topology.catalog import gpu_names, load_gpu


def shipped(path: Path | str) -> Any:
    return yaml.safe_load(Path(path).read_text(encoding="utf-8"))


KERNELS, RATES, BORROWED, SERVING, ERRORS = map(
    shipped, (alltoall.PATH, kernels.PATH, kernels.UNMEASURED, serving.PATH, errors.PATH)
)
FIRST_TOKEN = {
    "source": "test",
    "fit": {"rows": 10},
    "fixed_s": {"any": 0.1, "vllm": 0.2},
    "two_pools_s": 0.3,
    "band": {"aggregated": 2.0, "disaggregated": 3.0},
}
RECIPE = {"chips": ["gb200"], "models": ["deepseek-r1"], "source": "a"}


# --- broken files


def read(table: Any, data: Any) -> None:
    """Read a file, with what is found wrong when it is first used."""
    if table is Recipes:
        data = {"sources": {"a": "A"}, "like": {}, "recipes": [RECIPE | data]}
    file = validated(table, data, "errors.yaml")
    if table is KernelTable:
        file.kernels_by_name()
    elif table is UnmeasuredChips:
        assert file.reach


in_kernels, in_rates, in_borrowed, in_serving, in_errors = (
    partial(helpers.changed, data) for data in (KERNELS, RATES, BORROWED, SERVING, ERRORS)
)
DEEPEP, CELL = ("kernels", "deepep-ll"), ("chips", "gb200", "engines", "any")
HBM_CACHE = ("families", 0, "curves", "hbm.cache")
FIRST_RATE = ("kernels", 0)


@pytest.mark.parametrize(
    ("table", "data", "words"),
    [
        (KernelTable, in_kernels(*DEEPEP, "family", to="per-token"), "per-token"),
        (KernelTable, in_kernels(*DEEPEP, "dispatch", "out", to="normal-copies"), "byte/s"),
        (KernelTable, in_kernels(*DEEPEP, "dispatch", "beta", to="ib"), "no such coefficient"),
        (KernelTable, in_kernels("shared", "ib", "value", to=1.2), "not a fraction"),
        (KernelTable, in_kernels("shared", "low-latency-dispatch", "value", to="3 GB/s"), "is needed here"),
        (KernelFigures, in_rates(*FIRST_RATE, "peak", to="power"), "kernels[0]: peak: 'power' is not a peak"),
        (KernelFigures, in_rates(*FIRST_RATE, "kind", to="assumed"), "'assumed' must be 'measured'"),
        (UnmeasuredChips, in_borrowed("chips", "mi455x", "neighbour", to="h300"), "'h300' is not a GPU"),
        (UnmeasuredChips, in_borrowed("chips", "mi301x", to={"fractions": {}}), "'mi301x' is not a GPU"),
        (UnmeasuredChips, in_borrowed("chips", "tpu-v7", "fractions", "gemm.bf61", to={}), "not a fraction"),
        (UnmeasuredChips, in_borrowed("chips", "trainium2", "fractions", to={}), "trainium2: nothing on"),
        (Calibration, in_serving(*HBM_CACHE, to=[]), "hbm.cache: expected pairs"),
        (Calibration, in_serving(*HBM_CACHE, to=[[1e12, 0.0]]), "hbm.cache[0][1]: 0.0 must be greater"),
        (Calibration, in_serving(*HBM_CACHE, to=[[1e12, 1.5]]), "1.5 is not a fraction of a peak"),
        (Calibration, in_serving(*HBM_CACHE, to=[[1e12, 0.5], [2e12, 0.24]]), "a higher figure"),
        (Calibration, in_serving("families", 0, "curves", "hbm.cash", to=[[1e12, 0.5]]), "'hbm.cash' is not"),
        (Calibration, in_serving(*HBM_CACHE), "hbm.cache is missing"),
        (Calibration, in_serving("families", 0, "delays", "vllm", "engine.share"), "vllm: engine.share"),
        (ErrorTable, in_errors(*CELL), "any: is missing"),
        (ErrorTable, in_errors("chips", to={"h20-sxm": ERRORS["chips"]["h20-sxm"]}), "none has 20 rows"),
        (ErrorTable, [], "errors.yaml"),
        (FirstTokenCalibration, FIRST_TOKEN | {"band": {"aggregated": 2.0}}, "aggregated and disaggregated"),
        (FirstTokenCalibration, FIRST_TOKEN | {"fixed_s": {"vllm": 0.1}}, "any is missing"),
        (Calibration, in_serving("shared", "links.hop", to=1.5), "links.hop: 1.5 is not a fraction"),
        (Recipes, {"models": ["deepseek-r9"]}, "is not a model"),
        (Recipes, {"weights": "expert=fp8"}, "there is no class of weights 'expert'"),
        (Recipes, {"kv_dtype": "fp5"}, "is not a format of the KV cache"),
        (Recipes, {"source": "hearsay"}, "'hearsay' is not among the file's sources"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_broken_files_are_refused_in_one_line(table: Any, data: Any, words: str) -> None:
    with pytest.raises(InputError, match=re.escape(words)) as refused:
        read(table, data)
    assert "\n" not in str(refused.value)


# --- kernels of the all-to-all


@pytest.mark.parametrize(
    ("spelling", "few", "many"),
    [
        ("normal V1 (RDMA once per node then NVLink forward)", "deepep-normal", "deepep-normal"),
        ("NVLinkOneSided post-quant dispatch", "nvlink-one-sided", "nvlink-one-sided"),
        ("FusedDispatch/FusedCombine", "ub-fused", "ub-fused"),
        ("DeepEP-CX7", "deepep-ll-v1", "deepep-normal-unpack"),
        ("DeepEP", "deepep-ll", "deepep-normal"),
    ],
)
def test_kernels_as_their_sources_call_them(spelling: str, few: str, many: str) -> None:
    assert alltoall.find_kernel(spelling.upper(), tokens=128).kernel.name == few
    assert alltoall.find_kernel(spelling, tokens=4096).kernel.name == many


@pytest.mark.parametrize(
    ("phase", "fabric", "crosses", "family", "name"),
    [
        ("prefill", "nvlink4", True, "per-node", "deepep-normal"),
        ("prefill", "nvlink5", False, "per-node", "elastic-v2"),
        ("decode", "nvlink5", False, "per-rank", "nvlink-one-sided"),
        ("decode", "nvlink4", True, "per-copy", "deepep-ll"),
        ("decode", "ub-910c", False, "per-copy", "ub-fused"),
    ],
)
def test_kernels_by_phase_and_fabric(phase: Any, fabric: str, crosses: bool, family: str, name: str) -> None:
    kernel = alltoall.default_kernel(phase, up_fabric=fabric, crosses=crosses)
    assert (kernel.family, kernel.name) == (family, name)
    assert kernel.stand_in(fabric) == ""
    assert "not measured on ici-v5p" in kernel.stand_in("ici-v5p")


def test_every_kernel_has_evidence_and_unknown_ones_are_refused() -> None:
    for kernel in alltoall.load_kernels().values():
        for leg in (kernel.dispatch, kernel.combine):
            for figure in leg.figures().values():
                assert figure.source
                assert figure.kind in {Evidence.DERIVED, Evidence.ASSUMED}
                assert figure.value > 0
        if any(figure.kind is Evidence.DERIVED for figure in kernel.dispatch.figures().values()):
            assert kernel.fit.get("median_error", 0.0) <= 0.06
    with pytest.raises(InputError, match="pplx-efa"):
        alltoall.find_kernel("carrier pigeon")
    with pytest.raises(InputError, match="across domains"):
        alltoall.find_kernel("per-rank", up_fabric="nvlink5", crosses=True)


# --- rates of kernels, and chips that nobody measured


def test_published_values_are_rates_over_peaks() -> None:
    figures = kernels.kernel_rates()
    for rate in figures.kernels:
        assert figures.fraction(rate).value == pytest.approx(rate.value, abs=0.00051)
        assert (rate.peak == "hbm_bytes_per_s") == rate.coefficient.startswith("hbm.")
        assert rate.coefficient not in figures.without.get(kernels.architecture_of(rate.chip), {})
    largest = kernels.published_best
    assert largest("hopper", "gemm.fp8").value == pytest.approx(1550 / 1979)  # DeepGEMM on H800
    assert largest("hopper", "attention.decode.bf16", chip="h800-sxm").value == pytest.approx(660 / 989.5)
    assert largest("blackwell", "gemm.fp4", chip="gb300").value == pytest.approx(6462.7 / 15000)
    with pytest.raises(MissingFigureError, match=r"ascend has no gemm\.fp8: no FP8 units"):
        kernels.published_best("ascend", "gemm.fp8")
    assert not kernels.architecture_of("rubin")
    plain, ultra = (serving.calibrated(load_gpu(name)).table for name in ("gb200", "gb300"))
    assert ultra[kernels.PREFILL].value / plain[kernels.PREFILL].value == pytest.approx(2096 / 1812)


@pytest.mark.parametrize("stand_in", ["h200-sxm", "gb200", "h20-sxm"])
def test_borrowed_coefficients_never_pass_what_kernels_reach(stand_in: str) -> None:
    fitted = serving.calibrated(load_gpu(stand_in)).table
    for chip in kernels.unmeasured().chips:
        table, reach = kernels.brought_down(fitted, stand_in, chip), kernels.derate(chip)
        assert set(table) == set(fitted)
        for name, figure in table.items():
            if name not in reach:
                assert figure is fitted[name]
                continue
            assert 0 < figure.value <= reach[name].value, name
            assert figure.kind is Evidence.ASSUMED
            assert stand_in in figure.source


def test_a_borrowed_fraction_falls_by_the_ratio_of_the_kernels() -> None:
    fitted = serving.calibrated(load_gpu("gb200")).table
    table = kernels.brought_down(fitted, "gb200", "mi455x")
    for name, own in (("gemm.bf16", 1565 / 2500), ("gemm.fp8", 2997 / 5000)):
        lent = kernels.published_best("blackwell", name, chip="gb200").value
        assert table[name].value == pytest.approx(min(own, fitted[name].value * own / lent)), name


# --- coefficients of a chip


@pytest.mark.parametrize("engine", ["", *serving.engine_names()])
def test_measured_chips_have_every_coefficient(engine: str) -> None:
    for chip in serving.calibrated_chips():
        assert kernels.architecture_of(chip)
        efficiency = serving.calibrated(load_gpu(chip), engine)
        measured = engine in next(f["delays"] for f in SERVING["families"] if chip in f["chips"])
        assert (efficiency.chip, efficiency.stand_in_for) == (chip, "")
        assert efficiency.engine == (engine if measured else serving.ANY_ENGINE)
        assert list(efficiency.figures()) == list(COEFFICIENTS)
        for name, figure in efficiency.figures().items():
            assert figure.kind is Evidence.DERIVED
            assert figure.source
            assert figure.unit == ("s" if name.startswith("delay.") else "1")


def test_every_other_chip_takes_those_of_a_measured_one_and_says_so() -> None:
    measured, lenders = set(serving.calibrated_chips()), {}
    assert not measured & set(kernels.unmeasured().chips)
    for name in set(gpu_names()) - measured - {"rubin-ultra", "mi440x"}:
        efficiency = serving.calibrated(load_gpu(name))
        lenders[name] = efficiency.chip
        assert efficiency.stand_in_for == name
        for coefficient, figure in efficiency.figures().items():
            assert figure.kind is Evidence.ASSUMED
            assert efficiency.chip in figure.source
            assert name in figure.source or coefficient in (kernels.derate(name) or {})
    assert set(lenders.values()) <= measured
    # by `unmeasured.yaml`, or nearest in flop/s and HBM
    assert [lenders[name] for name in ("tpu-v5p", "tpu-v7", "vr200")] == ["ascend-910c", "b200-sxm", "gb200"]
    assert [lenders[name] for name in ("l40s", "h200-nvl", "mi350x")] == ["h100-sxm", "h200-sxm", "mi355x"]
    with pytest.raises(MissingFigureError):
        serving.calibrated(load_gpu("rubin-ultra"))


def test_engines_and_drafts() -> None:
    assert serving.require_engine("") == serving.ANY_ENGINE
    assert serving.require_engine("TensorRT-LLM") == serving.require_engine(" TRTLLM ") == "trtllm"
    with pytest.raises(InputError, match=r"`engine` ollama: measured engines are .*sglang"):
        serving.calibrated(load_gpu("h100-sxm"), "ollama")
    lengths = [serving.accept_length(drafts) for drafts in range(serving.MAX_DRAFTS + 1)]
    assert lengths == [1.0, *(SERVING["shared"][f"accept.{drafts}"] for drafts in (1, 2, 3))]
    assert lengths == sorted(lengths)
    with pytest.raises(MissingFigureError, match=r"`draft_tokens` 4: .*1 to 3 drafts"):
        serving.accept_length(4)


def test_int4_experts_are_slower_on_chips_that_were_measured_so() -> None:
    kimi = resolve_model("kimi-k2.5")
    rates = stage_rates(resolve_cluster("mi300x"), [0], kimi.precision.values())
    shape = StepShape(sequences=64.0)
    work = even_expert_work(kimi.moe, shape, weights=kimi.precision["experts"], rates=rates)
    cdna, hopper = serving.calibrated(load_gpu("mi300x")), serving.calibrated(load_gpu("h200-sxm"))
    assert hopper["experts.int4"] == 1.0
    assert cdna["experts.int4"] < serving.calibrated(load_gpu("mi355x"))["experts.int4"] < 1.0
    for chip in (cdna, hopper):
        assert work.seconds(chip)[1] == pytest.approx(
            work.memory_s / (chip["experts.int4"] * chip["hbm.experts"])
        )
    packed = replace(work, units=(work.units[0]._replace(unpacking=""),))
    assert packed.seconds(cdna)[1] < work.seconds(cdna)[1]


# --- errors


def test_too_few_rows_of_an_engine_give_way_to_all_and_say_so() -> None:
    few = ERRORS["chips"]["gb200"]["engines"]["vllm"]["rows"]
    assert few < errors.MIN_ROWS
    error = error_of("gb200", "vllm")
    assert (error.engine, error.note) == (errors.EACH_ENGINE, f"since {few} rows for vllm are too few")
    assert error.rows == ERRORS["chips"]["gb200"]["engines"]["any"]["rows"]
    assert not error.borrowed
    assert error_of("gb300", "sglang").note == "since 0 rows for sglang are too few"
    assert errors.error_behind(PEAK) is None, "coefficients of other origin have no error"
    assert errors.error_behind(replace(serving.calibrated(load_gpu("gb200")), chip="mine")) is None


@pytest.mark.parametrize("chip", ["mi455x", "tpu-v5p"])
def test_an_unmeasured_chip_takes_the_widest_band(chip: str) -> None:
    served = {
        name: row["engines"]["any"] for name, row in ERRORS["chips"].items() if row["rows_of"] == "served"
    }
    worst = max(served, key=lambda name: served[name]["left_out"]["band"])
    error = error_of(chip)
    assert (error.chip, error.stand_in_for, error.borrowed) == (
        serving.calibrated(load_gpu(chip)).chip,
        chip,
        True,
    )
    assert (error.left_out_chip, error.band) == (worst, served[worst]["left_out"]["band"])


def test_a_cluster_of_two_chips_has_two_errors(tmp_path: Path) -> None:
    file = tmp_path / "mixed.yaml"
    file.write_text("name: mixed\ndomains:\n- {part: hgx-h100}\n- {part: hgx-h200}\n- {part: hgx-h100}\n"
                    "fabric: {kind: rail, nic: 400 Gb/s}\n")  # fmt: skip
    rows = errors.errors_in(Deployment(resolve_cluster(str(file)), resolve_model("llama-3.1-8b"), Workload()))
    assert [error.chip for error in rows] == ["h100-sxm", "h200-sxm"]
    data = errors.error_to_dict(rows)
    assert data["band"] == max(error.band for error in rows) == errors.widest(rows).band
    assert [row["chip"] for row in data["each"]] == ["h100-sxm", "h200-sxm"]
    assert "each" not in errors.error_to_dict(rows[:1])
    assert errors.error_to_dict(()) is None


# --- recipes of published runs


def test_a_recipe_says_where_it_is_from_and_a_chip_whose_it_takes() -> None:
    r1 = resolve_model("deepseek-r1")
    recipe, _ = published_recipe(["gb300"], r1)
    assert (recipe.narrowed(r1), recipe.kv_dtype, recipe.draft_tokens) == ("nvfp4,attention=fp8", "fp8", 3)
    kimi = resolve_model("kimi-k2.5")  # INT4 experts: a recipe of any model makes no weights wider
    assert published_recipe(["h100-sxm"], kimi)[0].narrowed(kimi) is None
    assert published_recipe(["gb200"], r1)[1].startswith("InferenceX dsr1-fp4-")
    assert published_recipe(["rubin"], r1)[1].startswith("as on gb300: InferenceX dsr1-fp4-")
    assert published_recipe(["tpu-v7"], r1) == (None, "no public run of deepseek-r1 on tpu-v7")
    assert published_recipe(["h100-sxm", "gb200"], r1) == (None, "h100-sxm, gb200 have different ones")
    table = validated(Recipes, shipped(RECIPES), "recipes.yaml")
    assert {recipe.source for recipe in table.recipes} == set(table.sources)
    for recipe in table.recipes:
        assert recipe.draft_tokens <= serving.MAX_DRAFTS
        assert recipe.draft_tokens == 0 or not {*ANY_MODEL} & {*recipe.models}
