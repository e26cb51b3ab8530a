"""Published points in words: what a text of parallelism says, and what a row makes of it."""

import csv
import math
from pathlib import Path

import pytest

from cost.validation.point import Pool
from cost.validation.predict import predict
from cost.validation.read import read_counted
from cost.validation.transcribed import TRANSCRIBED, Words, parallel_words
from topology.errors import InputError

TABLE = Path(__file__).parents[2].parent / "shared/data/serving_measurements/published_points.csv"
ROW = {
    "id": "a",
    "source": "blog",
    "model": "DeepSeek-V3/R1",
    "chip": "H100",
    "n_chips": "72",
    "domain_size": "8",
    "phase": "decode",
    "parallelism": "EP72 DP72",
    "weight_dtype": "fp8",
    "batch_per_gpu": "128",
    "isl_or_context": "4000",
    "tok_s_per_gpu": "2000",
}


def read(folder, **cells):
    path = folder / "words.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, TRANSCRIBED)
        writer.writeheader()
        writer.writerow(ROW | cells)
    points, rows = read_counted(path)
    assert rows == 1
    return points


def open_(**widths):
    return Pool(**({"tp": 0, "attention_dp": 0, "ep": 0, "moe_tp": 0, "workers": 0, "best": True} | widths))


@pytest.mark.parametrize(
    ("text", "gpus", "pool"),
    [
        ("EP72 DP72", 72, Pool(attention_dp=72, ep=72)),
        ("DEP32", 32, Pool(attention_dp=32, ep=32)),
        ("DEP8", 32, Pool(attention_dp=8, ep=8, workers=4)),
        ("TEP8", 8, Pool(tp=8, ep=8)),
        ("TP8", 8, Pool(tp=8, moe_tp=8)),
        ("TP8 single node", 8, Pool(tp=8, moe_tp=8)),
        ("EP32 TP1 TBO", 32, Pool(attention_dp=32, ep=32)),
        ("TP4 EP16", 16, Pool(tp=4, attention_dp=4, ep=16)),
        ("TP8 EP2", 8, Pool(tp=8, ep=2, moe_tp=4)),
        ("attention DP8 MoE EP8", 8, Pool(attention_dp=8, ep=8)),
        ("DP+EP 2 GPUs x 4 instances, weight offload", 2, Pool(attention_dp=2, ep=2, workers=4)),
        ("EP8", 32, open_(ep=8, moe_tp=1)),
        ("EP1", 32, open_(ep=1)),
        ("48 ranks large EP, fine-grained overlap", 48, open_(ep=48, moe_tp=1)),
        ("12 nodes x4 (large EP), no TBO", 48, open_(ep=48, moe_tp=1)),
        ("TP12", 12, open_()),  # does not divide the heads
        ("TP8", 28, open_()),  # does not divide the GPUs
        ("Wide-EP (<=EP32)", 0, open_()),
        ("somehow", 8, open_()),
        ("", 0, open_()),
    ],
)
def test_one_pool(text, gpus, pool):
    (words,) = parallel_words(text, gpus).values()
    assert words.pool(gpus) == pool


@pytest.mark.parametrize(
    ("text", "prefill", "decode"),
    [
        ("CTX 1xTP4 + GEN 4xTEP8", Words(tp=4, workers=1), Words(tp=8, ep=8, workers=4)),
        ("prefill 4 GPU TP4; decode 32 GPU EP8", Words(tp=4, gpus=4), Words(ep=8, gpus=32)),
        ("prefill 4x EP4; decode 1x EP32 DP32", Words(ep=4, workers=4), Words(dp=32, ep=32, workers=1)),
        ("GEN 2xDEP16, CTX 3 x DEP4", Words(dp=4, ep=4, workers=3), Words(dp=16, ep=16, workers=2)),
        ("PP prefill + Wide-EP decode (<=EP32)", Words(), Words()),
    ],
)
def test_two_pools(text, prefill, decode):
    assert parallel_words(text) == {"prefill": prefill, "decode": decode}


def test_a_plain_row(tmp_path):
    (point,) = read(tmp_path, notes="no MTP")
    assert (point.cluster, point.model, point.phase) == ("hgx-h100", "deepseek-v3", "decode")
    assert (point.gpus, point.batch, point.context, point.isl) == (72, 128, 4000, 0)
    assert (point.measured, point.pool, point.is_open) == (2000, Pool(attention_dp=72, ep=72), False)
    assert (point.draft_tokens, point.drafts_recorded, point.gpus_per_domain) == (0, True, 0)


def test_packages_of_two_dies_are_halved(tmp_path):
    cells = {
        "chip": "Ascend 910C (per NPU = 2 dies)",
        "n_chips": "160",
        "domain_size": "384",
        "tpot_ms": "49.4",
    }
    rate, tpot = read(tmp_path, **cells, parallelism="EP320 DP320 (256+32 redundant+32 shared)", osl="256")
    assert (rate.gpus, rate.batch, rate.measured, tpot.measured) == (320, 64, 1000, 49.4)
    assert (rate.pool.slots, rate.gpus_per_domain) == (320, 0)


@pytest.mark.parametrize(
    ("notes", "drafts", "accepted", "recorded"),
    [
        ("no MTP; fine", 0, 1.0, True),
        ("no spec decode", 0, 1.0, True),
        ("", 0, 1.0, True),
        ("MTP on", 1, 0.0, True),  # as many as engines run so, accepted as calibrated
        ("MTP: 1 draft step, accept length 1.8-1.9", 1, 1.85, True),
        ("MTP 2 steps (3 draft tokens, accept 2.4-2.7)", 3, 2.55, True),
        ("MTP 1 draft token, 70% acceptance assumed", 1, 1.7, True),
        ("SIMULATED MTP (2 tokens/step, 60% acceptance assumed)", 1, 1.6, True),
        ("MTP; accept length 2.37@mtp3", 3, 2.37, True),
        ("MTP state not recorded", 0, 1.0, False),
    ],
)
def test_drafts(tmp_path, notes, drafts, accepted, recorded):
    (point,) = read(tmp_path, notes=notes)
    assert (point.draft_tokens, point.drafts_recorded) == (drafts, recorded)
    assert point.accept_length == pytest.approx(accepted)


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ({"parallelism": "EP72 DP72 TBO"}, {"overlap": True}),
        ({"parallelism": "EP72 DP72, no TBO"}, {"overlap": False}),
        ({"parallelism": "EP72 DP72 EPLB(288 slots)"}, {"pool": Pool(attention_dp=72, ep=72, slots=288)}),
        ({"parallelism": "EP72 DP72 (32 redundant)"}, {"pool": Pool(attention_dp=72, ep=72, slots=288)}),
        ({"parallelism": "EP72 DP72 DeepEP-LL SBO"}, {"kernel": "DeepEP LL", "overlap": False}),
        ({"notes": "perfectly balanced routing simulated"}, {"imbalance": 1.0}),
        ({"notes": "4x400G NIC/node (half of H800)"}, {"out_bytes_per_s": 25e9}),
        ({"domain_size": "4"}, {"gpus_per_domain": 4}),
        ({"batch_per_gpu": "", "notes": "TPS/user ~20"}, {"batch": math.inf, "tpot_limit_ms": 50.0}),
        ({"batch_per_gpu": "", "tpot_ms": "50"}, {"batch": math.inf, "tpot_limit_ms": 50.0}),
        ({"batch_per_gpu": "", "notes": "concurrency 1,024"}, {"batch": 0.0, "concurrency": 1024}),
        ({"batch_per_gpu": "", "notes": "concurrency up to ~50/GPU"}, {"concurrency": 3600}),
        ({"batch_per_gpu": "", "notes": "batch cap 36 (H200) / 20 (H100) req/GPU"}, {"batch": 20.0}),
        ({"isl_or_context": ""}, {"context": 4096.0}),
        ({"phase": "prefill", "batch_per_gpu": "16384"}, {"tokens": 16384.0, "batch": 0.0, "isl": 4000}),
        (
            {"phase": "prefill", "notes": "INCL. 56.3% cache hits"},
            {"cache_hit": 0.563, "token_kind": "input_cached"},
        ),
        (
            {"phase": "e2e", "notes": "dynamo-trt; TOTAL (in+out)"},
            {"phase": "disaggregated", "token_kind": "total"},
        ),
        ({"phase": "e2e", "notes": "vllm"}, {"phase": "aggregated", "engine": "vllm"}),
        ({"weight_dtype": "fp4"}, {"weights": "nvfp4"}),
        ({"weight_dtype": "fp4", "chip": "MI355X"}, {"weights": "mxfp4"}),
        ({"weight_dtype": "fp4", "model": "DeepSeek-V4-Pro 1.6T"}, {"weights": ""}),
    ],
)
def test_what_cells_and_notes_say(tmp_path, cells, expected):
    (point,) = read(tmp_path, **cells)
    assert {name: getattr(point, name) for name in expected} == pytest.approx(expected)


@pytest.mark.parametrize(
    "notes",
    [
        "MTP, accept length 1.2.3",
        "MTP, acceptance ..5",
        "..% cache hit incl",
        "TPOT<=..ms",
        f"concurrency {'9' * 5000}, {'9' * 5000} slots, batch cap {'9' * 5000} (H800)",
    ],
)
def test_odd_numbers_in_words_are_read_or_left(tmp_path, notes):
    (point,) = read(tmp_path, notes=notes)
    assert point.measured > 0


def test_a_row_without_a_figure_gives_none(tmp_path):
    assert read(tmp_path, tok_s_per_gpu="") == []


@pytest.mark.parametrize(
    ("cells", "says"),
    [
        ({"phase": "training"}, "column phase: unknown value 'training'"),
        ({"n_chips": "many"}, "row 2, column n_chips: 'many' must be a whole number"),
        ({"model": ""}, "column model: it is blank"),
    ],
)
def test_bad_rows(tmp_path, cells, says):
    with pytest.raises(InputError, match=says):
        read(tmp_path, **cells)


def test_a_format_that_nobody_knows_is_not_predicted(tmp_path):
    (found,) = predict(read(tmp_path, weight_dtype="fp5"))
    assert found.value is None
    assert "fp5" in found.reason


def test_a_missing_column(tmp_path):
    path = tmp_path / "words.csv"
    path.write_text("id,parallelism,isl_or_context,tok_s_per_gpu\n")
    with pytest.raises(InputError, match="the column source is missing"):
        read_counted(path)


@pytest.mark.wide
@pytest.mark.skipif(not TABLE.is_file(), reason="the table of published points is absent")
def test_every_figure_of_the_table_is_predicted():
    points, rows = read_counted(TABLE)
    assert (rows, len(points)) == (47, 66)
    assert [point.id for point, one in zip(points, predict(points), strict=True) if one.value is None] == []
