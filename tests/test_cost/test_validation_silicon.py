"""The silicon sample: its traps, each as a row, and the file itself where it is at hand."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

import pytest

from cost.validation.point import Pool
from cost.validation.predict import predict
from cost.validation.read import read_measurements
from topology.errors import InputError

SAMPLE = Path(__file__).parents[2].parent / "shared/data/serving_measurements/silicon_calibration.csv"
SIDE = ("num_workers", "tp_size", "pp_size", "attention_dp_size", "moe_tp_size", "moe_ep_size")
COLUMNS = (
    "id,silicon_data_source,backend,backend_version,model_path,system,precision,mode,isl,osl,gemm_quant_mode,"
    "moe_quant_mode,batch_size,tp_size,pp_size,attention_dp_size,moe_tp_size,moe_ep_size,prefill_batch_size,"
    + ",".join(f"prefill_{name}" for name in SIDE)
    + ",decode_batch_size,"
    + ",".join(f"decode_{name}" for name in SIDE)
    + ",silicon_ttft_ms,silicon_tpot_ms"
).split(",")
BASE = {
    "id": "row",
    "silicon_data_source": "db; silicon_concurrency=64; measured=2026",
    "backend": "trtllm",
    "backend_version": "1.0",
    "model_path": "deepseek-ai/DeepSeek-R1",
    "system": "b200_sxm",
    "precision": "fp8",
    "mode": "agg",
    "isl": "1024",
    "osl": "512",
    "gemm_quant_mode": "fp8",
    "moe_quant_mode": "fp8_block",
    "batch_size": "64",
    "tp_size": "8",
    "pp_size": "1",
    "moe_tp_size": "1",
    "moe_ep_size": "8",
    "silicon_ttft_ms": "300.5",
    "silicon_tpot_ms": "17.25",
}


def widths(tp, dp, moe_tp, ep, side=""):
    names = ("tp_size", "attention_dp_size", "moe_tp_size", "moe_ep_size")
    return {f"{side}{name}": str(value) for name, value in zip(names, (tp, dp, moe_tp, ep), strict=True)}


def write(folder, *rows, columns=COLUMNS) -> Path:
    path = folder / "sample.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    return path


def read(folder, **cells):
    """The TPOT point of a file of one row."""
    tpot, ttft = read_measurements(write(folder, BASE | cells))
    assert (tpot.quantity, ttft.quantity, tpot.id) == ("tpot_ms", "ttft_ms", ttft.id)
    return tpot


def served(folder, concurrency, prefill, decode, **cells):
    """The point of a disaggregated row; each side is its widths and, where it is stated, its workers."""
    both = {}
    for side, (four, workers) in (("prefill_", prefill), ("decode_", decode)):
        both |= widths(*four, side) | {f"{side}num_workers": workers}
    blank = dict.fromkeys(("tp_size", "pp_size", "moe_tp_size", "moe_ep_size", "batch_size"), "")
    source = {"silicon_data_source": f"db; silicon_concurrency={concurrency}"}
    return read(folder, **(blank | both | source | {"mode": "disagg"} | cells))


def test_a_row_gives_two_points(tmp_path):
    tpot, ttft = read_measurements(write(tmp_path, BASE))
    assert (tpot.measured, ttft.measured) == (17.25, 300.5)
    assert (tpot.model, tpot.cluster, tpot.phase) == ("deepseek-r1", "hgx-b200", "aggregated")
    assert (tpot.concurrency, tpot.isl, tpot.osl, tpot.engine) == (64, 1024, 512, "trtllm")
    assert tpot.pool == Pool(tp=8, ep=8)
    assert tpot.notes == ""


@pytest.mark.parametrize(
    ("recorded", "ran"),
    [
        ((64, 1, 8, 8), Pool(tp=8, ep=8)),
        ((16, "", 4, 4), Pool(tp=4, ep=4)),
        ((1, 64, 8, 8), Pool(attention_dp=8, ep=8)),
        ((1, 16, 4, 4), Pool(attention_dp=4, ep=4)),
        ((4, 4, 1, 16), Pool(tp=4, ep=4)),
        ((2, 2, 1, 4), Pool(tp=2, ep=2)),
        ((4, 1, 2, 2), Pool(tp=2, ep=2)),
        ((8, 1, 8, 1), Pool(tp=8, moe_tp=8)),
        ((1, 8, 1, 8), Pool(attention_dp=8, ep=8)),
        ((1, 1, 2, 1), Pool(attention_dp=2, moe_tp=2)),
        ((4, 1, 1, 0), Pool(tp=4, moe_tp=4)),
    ],
)
def test_aggregated_layouts(tmp_path, recorded, ran):
    assert read(tmp_path, **widths(*recorded)).pool == ran


def test_widths_of_logs_are_what_ran(tmp_path):
    cells = widths(4, 1, 2, 2) | {"silicon_data_source": "x-gap-analysis/data; silicon_concurrency=16"}
    assert read(tmp_path, **cells, batch_size="16").pool == Pool(tp=4, ep=2, moe_tp=2)
    assert read(tmp_path, **cells, batch_size="4").pool == Pool(attention_dp=4, ep=2, moe_tp=2)


def test_the_batch_of_a_rank_tells_data_parallel_attention(tmp_path):
    cells = widths(8, "", 1, 8)
    assert read(tmp_path, **cells, batch_size="8").pool == Pool(attention_dp=8, ep=8)
    assert read(tmp_path, **cells, batch_size="16").pool == Pool(tp=8, ep=8)


def test_dense_models_have_one_width(tmp_path):
    # 64 requests: engines of a batch of 16 are four; no number of engines holds 48 each
    for batch, workers in (("16", 4), ("64", 1), ("48", 1)):
        point = read(tmp_path, **widths(4, 1, 1, 1), model_path="Qwen/Qwen3-32B", batch_size=batch)
        assert point.pool == Pool(tp=4, moe_tp=4, workers=workers)


def test_layouts_that_are_a_total(tmp_path):
    point = read(
        tmp_path, **widths(48, 1, 48, 1), system="gb200", silicon_data_source="silicon_concurrency=1075"
    )
    assert point.phase == "disaggregated"
    assert point.pool == Pool(attention_dp=32, ep=32)
    assert point.prefill_pool == Pool(attention_dp=4, ep=4, workers=4)
    assert "the whole deployment" in point.notes
    point = read(tmp_path, **widths(28, 1, 28, 1), silicon_data_source="silicon_concurrency=12")
    assert point.pool == Pool(tp=8, ep=8, workers=3)
    assert point.prefill_pool == Pool(attention_dp=4, ep=4)


@pytest.mark.parametrize(
    ("concurrency", "prefill", "decode", "pools"),
    [
        (
            1024,
            ((1, 8, 1, 8), "5"),
            ((1, 32, 1, 32), "1"),
            (Pool(attention_dp=8, ep=8, workers=5), Pool(attention_dp=32, ep=32)),
        ),
        (
            1024,
            ((1, 4, 4, 1), "10"),
            ((1, 32, 32, 1), "1"),
            (Pool(attention_dp=4, ep=4, workers=10), Pool(attention_dp=32, ep=32)),
        ),
        (
            2048,
            ((4, 1, 1, 4), ""),
            ((32, 1, 8, 4), ""),
            (Pool(tp=4, ep=4, workers=0), Pool(attention_dp=32, ep=32)),
        ),
        (
            44,
            ((4, 1, 1, 4), ""),
            ((8, 1, 2, 4), ""),
            (Pool(tp=4, ep=4, workers=0), Pool(tp=8, ep=8, workers=4)),
        ),
        (
            4096,
            ((4, 1, 1, 4), ""),
            ((8, 1, 2, 4), ""),
            (Pool(tp=4, ep=4, workers=0), Pool(attention_dp=8, ep=8, workers=2)),
        ),
        (
            16,
            ((8, 1, 8, 1), ""),
            ((8, 1, 8, 1), ""),
            (Pool(tp=8, moe_tp=8, workers=0), Pool(tp=8, moe_tp=8, workers=4)),
        ),
        (
            512,
            ((24, 1, 24, 1), ""),
            ((24, 1, 24, 1), ""),
            (Pool(attention_dp=4, ep=4, workers=2), Pool(attention_dp=16, ep=16)),
        ),
        (
            64,
            ((1, 1, 1, 1), ""),
            ((1, 1, 1, 1), ""),
            (Pool(attention_dp=4, ep=4, workers=0), Pool(tp=4, moe_tp=4, workers=2)),
        ),
        (
            512,
            ((1, 1, 1, 1), ""),
            ((1, 1, 1, 1), ""),
            (Pool(attention_dp=8, ep=8, workers=0), Pool(attention_dp=32, ep=32)),
        ),
    ],
)
def test_disaggregated_layouts(tmp_path, concurrency, prefill, decode, pools):
    point = served(tmp_path, concurrency, prefill, decode)
    assert (point.prefill_pool, point.pool) == pools
    assert point.phase == "disaggregated"
    assert (point.notes == "") == (decode[1] != "")


def test_a_prefill_pool_of_one_gpu_stays_one(tmp_path):
    point = served(
        tmp_path, 32, ((1, 1, 1, 1), ""), ((4, 1, 4, 1), ""), model_path="openai/gpt-oss-120b", system="gb200"
    )
    assert (point.prefill_pool, point.pool) == (Pool(workers=0), Pool(tp=4, moe_tp=4, workers=4))


@pytest.mark.parametrize(
    ("model", "quantised", "formats"),
    [
        ("deepseek-ai/DeepSeek-R1", ("fp8", "fp8", "fp8_block"), ("", "")),
        ("deepseek-ai/DeepSeek-R1", ("fp4", "nvfp4", "nvfp4"), ("nvfp4", "")),
        ("nvidia/DeepSeek-R1-NVFP4", ("", "", ""), ("nvfp4", "")),
        ("nvidia/DeepSeek-V3.1-NVFP4", ("fp4", "nvfp4", "nvfp4"), ("", "")),
        ("openai/gpt-oss-120b", ("fp4", "nvfp4", "nvfp4"), ("", "")),
        ("moonshotai/Kimi-K2.5", ("int4", "int4_wo", "int4_wo"), ("", "")),
        ("moonshotai/Kimi-K2.5", ("fp4", "nvfp4", "nvfp4"), ("nvfp4", "")),
        ("meta-llama/Llama-3.1-8B-Instruct", ("", "", ""), ("", "")),
        ("meta-llama/Llama-3.1-70B", ("fp8", "fp8", "fp8"), ("fp8", "")),
        ("Qwen/Qwen3.5-397B-A17B", ("bf16", "", ""), ("", "")),
        ("Qwen/Qwen3-235B-A22B-FP8", ("fp8", "fp8_block", "fp8_block"), ("fp8", "")),
        ("zai-org/GLM-5-FP8", ("fp8", "fp8", "fp8_block"), ("fp8", "")),
    ],
)
def test_precision(tmp_path, model, quantised, formats):
    names = ("precision", "gemm_quant_mode", "moe_quant_mode")
    point = read(tmp_path, model_path=model, **dict(zip(names, quantised, strict=True)))
    assert (point.weights, point.experts_dtype) == formats


def test_concurrency_that_is_not_stated_follows_from_the_batch(tmp_path):
    assert read(tmp_path, silicon_data_source="nothing", batch_size="24").concurrency == 24


def test_drafts_are_not_recorded_in_dated_dumps(tmp_path):
    dated = {"silicon_data_source": "source_file=2026-03-25.csv; silicon_concurrency=8"}
    assert not read(tmp_path, **dated).drafts_recorded
    pools = ((8, 1, 8, 1), ""), ((8, 1, 8, 1), "")
    assert not served(tmp_path, 8, *pools, **dated).drafts_recorded
    assert read(tmp_path, **dated, model_path="openai/gpt-oss-120b").drafts_recorded
    assert read(tmp_path, silicon_data_source="db-dump; silicon_concurrency=8").drafts_recorded


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"silicon_tpot_ms": "nan"}, "row 2, column silicon_tpot_ms: 'nan' must be a number"),
        ({"silicon_tpot_ms": "fast"}, "column silicon_tpot_ms: 'fast'"),
        ({"silicon_ttft_ms": ""}, "column silicon_ttft_ms: it is blank"),
        ({"silicon_ttft_ms": "-1"}, "column silicon_ttft_ms: -1"),
        ({"isl": "1k"}, "column isl: '1k'"),
        ({"tp_size": "2.5"}, "column tp_size: 2.5 must be a whole number"),
        ({"mode": "serve"}, "column mode: unknown value 'serve'"),
        ({"model_path": ""}, "column model_path: it is blank"),
        (
            {"silicon_data_source": "dump;measured=2025-13-01"},
            "column silicon_data_source: 2025-13-01 is no date",
        ),
    ],
)
def test_refusals_name_row_and_column(tmp_path, change, says):
    with pytest.raises(InputError) as caught:
        read(tmp_path, **change)
    assert says in str(caught.value)


def test_a_missing_column_is_named(tmp_path):
    path = write(tmp_path, BASE, columns=[name for name in COLUMNS if name != "moe_ep_size"])
    with pytest.raises(
        InputError, match="the column moe_ep_size is missing; such a file has id, silicon_data_source"
    ):
        read_measurements(path)


def test_chips_models_and_formats_that_nobody_knows_have_a_reason(tmp_path):
    rows = [
        BASE | {"system": "l40s"},
        BASE | {"model_path": "acme/Foo-9B"},
        BASE | {"gemm_quant_mode": "fp3"},
    ]
    points = read_measurements(write(tmp_path, *rows))
    reasons = [found.reason for found in predict(points, {})]
    assert ["'l40s'" in reasons[0], "acme/Foo-9B" in reasons[2], "'fp3'" in reasons[4]] == [True] * 3
    assert all(found.value is None for found in predict(points, {}))


# --- with a public configuration of the row's key


SPLIT = {"prefill_workers": "2", "prefill_gpus": "4", "prefill_ep": "4", "prefill_dp": "yes", "dp": "yes"}
TP, DP = Pool(tp=8, ep=8), Pool(attention_dp=8, ep=8)
SOURCE = "dump/2026-01-20; silicon_concurrency=64; measured=2026-01-20"


def test_a_row_takes_layout_and_drafts_of_its_configuration(recipe_table, tmp_path):
    recipe_table({"dp": "yes", "drafts": "1"})
    point = read(tmp_path, silicon_data_source=SOURCE)
    assert (point.pool, point.draft_tokens, point.drafts_recorded, point.accept_length) == (DP, 1, True, 0.0)
    assert "public configuration" in point.notes
    recipe_table({"drafts": "none"})
    point = read(tmp_path, silicon_data_source=SOURCE)
    assert (point.pool, point.draft_tokens, point.drafts_recorded, point.accept_length) == (TP, 0, True, 1.0)


def test_a_row_without_a_configuration_is_read_as_it_stands(recipe_table, tmp_path):
    recipe_table({"requests": "8"})
    point = read(tmp_path, silicon_data_source=SOURCE)
    assert (point.pool, point.draft_tokens, point.drafts_recorded) == (TP, 0, False)
    assert point.notes == ""


def test_a_model_of_another_name_with_the_same_shapes_is_the_same_run(recipe_table, tmp_path):
    recipe_table({"drafts": "2"})
    assert read(tmp_path, silicon_data_source=SOURCE, model_path="deepseek-ai/DeepSeek-V3").draft_tokens == 2


def test_the_image_and_the_day_of_a_row_are_used(recipe_table, tmp_path):
    old = {"image": "release:1.1.0", "drafts": "1"}
    recipe_table(old, {"image": "release:1.2.0", "drafts": "3", "first": "2026-03-10", "last": "2026-04-10"})
    source = "x; silicon_concurrency=64; measured={}{}"
    assert read(tmp_path, silicon_data_source=source.format("2026-03-20", "")).draft_tokens == 3
    image = "; nvcr.io/nvidia/tensorrt-llm/release:1.1.0"
    assert read(tmp_path, silicon_data_source=source.format("2026-03-20", image)).draft_tokens == 1


def test_logs_and_dumps_without_drafting_runs_take_none(recipe_table, tmp_path):
    recipe_table({"dp": "yes", "drafts": "1"})
    log = read(tmp_path, silicon_data_source="x-gap-analysis; silicon_concurrency=64")
    assert (log.pool, log.draft_tokens, log.in_step, log.kv_dtype) == (TP, 0, True, "")
    dump = read(tmp_path, silicon_data_source="db-dump; silicon_concurrency=64")
    assert (dump.draft_tokens, dump.drafts_recorded, dump.in_step, dump.kv_dtype) == (0, True, False, "fp8")


def test_two_pools_take_both_layouts(recipe_table, tmp_path):
    recipe_table(SPLIT | {"drafts": "2"})
    sides = ((1, 4, 1, 4), "2"), ((8, 1, 1, 8), "1")
    point = served(tmp_path, 64, *sides, silicon_data_source=SOURCE)
    assert (point.pool, point.prefill_pool) == (DP, Pool(attention_dp=4, ep=4, workers=2))
    assert point.draft_tokens == 2
    # 48 GPUs in all are not the 8 + 2 x 4 of the configuration, 20 are those of 8 + 3 x 4
    point = read(tmp_path, **widths(48, 1, 48, 1), silicon_data_source=SOURCE)
    assert point.pool == Pool(attention_dp=32, ep=32)
    recipe_table(SPLIT | {"prefill_workers": "3"})
    point = read(tmp_path, **widths(20, 1, 20, 1), silicon_data_source=SOURCE)
    assert (point.pool, point.prefill_pool) == (DP, Pool(attention_dp=4, ep=4, workers=3))


def test_caches_are_as_launched_for_the_format_that_ran(tmp_path):
    cells = {"backend": "sglang", "model_path": "Qwen/Qwen3.5-397B-A17B"}
    for quantised, kv in ((("bf16", "", ""), "bf16"), (("fp8", "fp8", "fp8_block"), "fp8")):
        names = ("precision", "gemm_quant_mode", "moe_quant_mode")
        assert read(tmp_path, **cells, **dict(zip(names, quantised, strict=True))).kv_dtype == kv


@pytest.mark.skipif(not SAMPLE.exists(), reason="the silicon sample is not at hand")
def test_the_calibration_part():
    points = read_measurements(SAMPLE)
    assert Counter(point.quantity for point in points) == {"tpot_ms": 2704, "ttft_ms": 2704}
    assert all(point.concurrency > 0 for point in points)
    for point in points:
        for pool in filter(None, (point.pool, point.prefill_pool)):
            assert pool.tp * pool.attention_dp == pool.ep * pool.moe_tp
            assert pool.gpus_per_worker & (pool.gpus_per_worker - 1) == 0 or pool.gpus_per_worker in (24, 48)
    silent = {point.cluster for point in points} - {"gb200-nvl72"}
    assert silent == {"hgx-h100", "hgx-h200", "hgx-b200", "hgx-b300"}
