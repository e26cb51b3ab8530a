"""Our format of measured points: what is read, what is refused, and what the page words of it."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from cost.validation.read import (
    COLUMNS,
    AllToAll,
    Pool,
    read_measurements,
    shipped_files,
)
from topology.base.errors import InputError

PAGE = (Path(__file__).parents[2] / "docs" / "trust.md").read_text()
EXAMPLES = re.findall(r"^```csv\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)

DECODE = {"id": "a", "quantity": "tok_s_per_gpu", "measured": "100", "phase": "decode"}
DECODE |= {"model": "deepseek-v3", "cluster": "hgx-h100"}
DECODE |= {"attention_dp": "16", "batch_per_gpu": "8", "context": "4000"}
ALLTOALL = {"id": "b", "quantity": "dispatch_us", "measured": "118", "phase": "alltoall", "cluster": "H800"}
ALLTOALL |= {"ep": "16", "kernel": "DeepEP LL", "tokens_per_gpu": "128"}
SERVED = {"phase": "disagg", "isl": "1000", "osl": "100", "prefill_tp": "4"}


def read(folder, **cells):
    """The one point of a file with these cells."""
    path = folder / "points.csv"
    path.write_text(",".join(cells) + "\n" + ",".join(f'"{cell}"' for cell in cells.values()) + "\n")
    (point,) = read_measurements(path)
    return point


def refusal(folder, **cells):
    with pytest.raises(InputError) as caught:
        read(folder, **cells)
    return str(caught.value)


EVERY_COLUMN = {
    "id": "x", "source": "there", "quantity": "tok_s_per_gpu", "measured": "812.5", "phase": "disaggregated",
    "model": "deepseek-v3", "cluster": "hgx-h100", "gpus": "96", "gpus_per_domain": "4", "engine": "sglang",
    "engine_version": "0.5.9", "date": "2026-04-17", "saturated": "yes", "weights": "nvfp4", "experts_dtype": "fp8",
    "kv_dtype": "fp8", "tp": "2", "ep": "4", "moe_tp": "2", "attention_dp": "4", "stages": "3", "slots": "288",
    "workers": "3", "prefill_tp": "4", "prefill_ep": "8", "prefill_moe_tp": "1", "prefill_attention_dp": "2",
    "prefill_stages": "2", "prefill_workers": "5", "batch_per_gpu": "7.5", "concurrency": "640", "isl": "1000",
    "tokens_per_gpu": "512", "osl": "200", "context": "1100", "cache_hit": "0.25", "overlap": "yes",
    "draft_tokens": "2", "accept_length": "1.7", "imbalance": "1.3", "kernel": "per-rank", "token_kind": "total",
    "link_gb_s": "400", "nic_gb_s": "25", "pair": "ab", "notes": "é, of a table",
}  # fmt: skip


def test_every_column_is_read(tmp_path):
    point = read(tmp_path, **EVERY_COLUMN)
    assert point.pool == Pool(tp=2, attention_dp=4, ep=4, moe_tp=2, stages=3, workers=3, slots=288)
    assert point.prefill_pool == Pool(tp=4, attention_dp=2, ep=8, stages=2, workers=5)
    assert (point.batch, point.tokens, point.up_bytes_per_s, point.out_bytes_per_s) == (7.5, 512, 400e9, 25e9)
    assert point.overlap is point.saturated is True
    pools = {name for name in EVERY_COLUMN if name in vars(point.pool) or name.startswith("prefill_")}
    converted = {"batch_per_gpu", "tokens_per_gpu", "link_gb_s", "nic_gb_s", "overlap", "saturated"}
    for name in set(EVERY_COLUMN) - pools - converted:
        value = getattr(point, name)
        assert value == type(value)(EVERY_COLUMN[name]), name
    elsewhere = {"hidden", "experts", "top_k", "groups", "topk_groups", "dispatch_dtype", "combine_dtype"}
    assert set(COLUMNS) - set(EVERY_COLUMN) == elsewhere | {"tpot_limit_ms"}


def test_shipped_files_and_examples_of_the_page_are_read(tmp_path):
    for path in shipped_files():
        assert all(point.source for point in read_measurements(path))
    assert EXAMPLES
    for text in EXAMPLES:
        (tmp_path / "points.csv").write_text(text)
        points = read_measurements(tmp_path / "points.csv")
        assert len(points) == len(text.splitlines()) - 1
        for point in (point for point in points if point.phase != "alltoall" and not point.pool.best):
            assert point.pool.tp * point.pool.attention_dp == point.pool.ep * point.pool.moe_tp


@pytest.mark.parametrize(
    ("cells", "pool"),
    [
        ({"ep": "72"}, Pool(attention_dp=72, ep=72)),
        ({"tp": "4", "attention_dp": "4"}, Pool(tp=4, attention_dp=4, ep=16)),
        ({"attention_dp": "8", "moe_tp": "2"}, Pool(attention_dp=8, ep=4, moe_tp=2)),
        ({"tp": "8", "ep": "2"}, Pool(tp=8, ep=2, moe_tp=4)),
        ({}, Pool(tp=0, attention_dp=0, ep=0, moe_tp=0)),
    ],
)
def test_blank_widths_follow_from_the_others(tmp_path, cells, pool):
    row = {name: cell for name, cell in DECODE.items() if name != "attention_dp"}
    assert read(tmp_path, **row, **cells).pool == pool


@pytest.mark.parametrize(
    ("column", "text", "name", "value"),
    [
        ("cluster", "H20 96GB", "cluster", "hgx-h20"),
        ("model", "acme/Foo-9B", "model", "acme/Foo-9B"),
        ("cluster", "NVIDIA GB200 NVL72", "cluster", "gb200-nvl72"),
        ("model", "Kimi-K2 (384 experts)", "model", "kimi-k2"),
        ("model", "nvidia/DeepSeek-R1-0528-NVFP4-v2", "weights", "nvfp4"),
        ("weights", "FP8_block", "weights", "fp8"),
        ("phase", " Decode ", "phase", "decode"),
        ("draft_tokens", "2", "accept_length", 0.0),  # as calibrated
        ("quantity", "TPOT", "quantity", "tpot_ms"),
        ("measured", "1,234.5", "measured", 1234.5),
        ("engine", "SGLang", "engine", "sglang"),
        ("batch_per_gpu", "largest", "batch", math.inf),
        ("attention_dp", "best", "pool", Pool(tp=0, attention_dp=0, ep=0, moe_tp=0, workers=0, best=True)),
        ("draft_tokens", "unknown", "drafts_recorded", False),
    ],
)
def test_spellings(tmp_path, column, text, name, value):
    assert getattr(read(tmp_path, **(DECODE | {column: text})), name) == value


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"measured": "-3"}, "column measured: -3 must be a number greater than zero"),
        ({"measured": "5e-324"}, "row 2, column measured: '5e-324' is too small for a measurement"),
        ({"tp": "1.5"}, "column tp: 1.5 must be a whole number"),
        ({"cache_hit": "56.3"}, "column cache_hit: 56.3 must be a number from 0 to 1"),
        ({"draft_tokens": "5"}, "column accept_length: it is blank; 5 draft tokens"),
        ({"quantity": "dispatch_us"}, "dispatch_us does not go with phase decode"),
        ({"batch_per_gpu": "largest", "concurrency": "64"}, "'largest' and concurrency 64: give one of them"),
        ({"phase": "prefill", "batch_per_gpu": "largest"}, "does not apply to phase prefill"),
        ({"attention_dp": "best", "stages": "2"}, "column stages: widths that are 'best' are chosen for one"),
        ({"tp": "4", "ep": "6"}, "column ep: ep 6 x moe_tp"),
        ({"tpot_limit_ms": "50"}, "column tpot_limit_ms: it limits what the model chooses"),
        ({"batch_size": "3"}, "unknown column 'batch_size'; did you mean"),
    ],
)
def test_refusals_name_row_and_column(tmp_path, change, words):
    message = refusal(tmp_path, **(DECODE | change))
    assert words in message
    assert "points.csv" in message
    assert "\n" not in message


def test_alltoall_has_the_shape_of_a_layer(tmp_path):
    shape = {"hidden": "4096", "experts": "128", "top_k": "4", "combine_dtype": "FP8"}
    plain = read(tmp_path, **ALLTOALL, **shape)
    assert plain.alltoall == AllToAll("DeepEP LL", 128, 4096, 128, 4, "fp8", "fp8")
    assert plain.pool.ep == 16
    assert "column hidden: it is blank" in refusal(tmp_path, **ALLTOALL)
    assert "column ep: 1 must be a whole number from 2" in refusal(
        tmp_path, **(ALLTOALL | shape | {"ep": "1"})
    )


def test_files_that_are_none(tmp_path):
    path, header = tmp_path / "points.csv", "id,quantity,measured,phase,cluster\n"
    for text, words in (
        ("", "has no header"),
        ("id,quantity,measured,phase\n", "column cluster is missing"),
        ("id,ID,quantity,measured,phase,cluster\n", "duplicate column id"),
        (header + "a,tpot_ms,3\n", "row 2: 3 cells, but the header names 5"),
    ):
        path.write_text(text)
        with pytest.raises(InputError, match=words):
            read_measurements(path)
    with pytest.raises(InputError, match="cannot read it"):
        read_measurements(tmp_path / "none.csv")
