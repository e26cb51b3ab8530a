"""Public configurations behind rows: joined by key, widths, image and date; drafts without a number; caches."""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from cost.validation import recipes
from cost.validation.point import Point, Pool
from cost.validation.recipes import (
    Label,
    label_of,
    launched_cache,
    plain_image,
    unstated_drafts,
    with_unstated_drafts,
)
from cost.validation.silicon import Recorded, fits_engine, fits_pools, fits_total

TP, DP = Pool(tp=8, ep=8), Pool(attention_dp=8, ep=8)
KEY = ("b200", "trtllm", "deepseek-r1", "fp8", 1024, 512, 64)
"""Of the rows that ``recipe_table`` makes where they do not say otherwise."""
SPLIT = {"prefill_workers": "2", "prefill_gpus": "4", "prefill_ep": "4", "prefill_dp": "yes", "dp": "yes"}


def label(fits=lambda _: True, *, key=KEY, disaggregated=False, **more) -> Label:
    return label_of(key, fits, disaggregated=disaggregated, **more)


# --- joining


@pytest.mark.parametrize(
    ("place", "other"),
    [(0, "h200"), (1, "sglang"), (2, "kimi-k2"), (3, "fp4"), (4, 8192), (5, 1024), (6, 128)],
)
def test_every_part_of_the_key_counts(recipe_table, place, other):
    recipe_table({"drafts": "2", "batch": "512"})
    assert label() == Label(True, 2, TP, None, 512)
    key = tuple(other if i == place else part for i, part in enumerate(KEY))
    assert label(key=key) == Label(known=False)


def test_each_of_the_requests_of_a_row_is_a_key(recipe_table):
    recipe_table({})
    assert [label(key=(*KEY[:6], n)).known for n in (32, 64, 3264)] == [True, True, False]


def test_one_pool_and_two_are_never_taken_for_each_other(recipe_table):
    recipe_table(SPLIT | {"drafts": "1"})
    assert label() == Label(known=False)
    both = label(disaggregated=True)
    assert (both.pool, both.prefill_pool) == (DP, Pool(attention_dp=4, ep=4, workers=2))


def test_what_configurations_do_not_agree_on_stays_open(recipe_table):
    recipe_table({"drafts": "1"}, {"drafts": "3"})
    assert label() == Label(True, None, TP)
    assert label(drafting=False) == Label(known=False)
    recipe_table({"drafts": "1"}, {"drafts": "none"})
    assert label(drafting=False) == Label(True, 0, TP)


def test_only_layouts_that_fit_are_taken(recipe_table):
    recipe_table({"gpus": "4", "ep": "1", "drafts": "1"}, {"drafts": "2"})
    wide = label(lambda recipe: recipe.pool.gpus == 8)
    assert (wide.pool, wide.drafts) == (TP, 2)
    assert label(lambda _: False) == Label(known=True)
    recipe_table({"drafts": "2"}, {"gpus": "4", "drafts": "2"})
    assert label(lambda _: False) == Label(True, 2), "what all agree on holds without a layout"


def test_of_several_layouts_the_middle_one_by_size(recipe_table):
    recipe_table(*({"gpus": n, "ep": "1"} for n in ("16", "2", "4")))
    assert label().pool == Pool(tp=4, moe_tp=4)


def test_the_image_goes_before_the_date(recipe_table):
    later = {"first": "2026-03-10", "last": "2026-04-10", "drafts": "3"}
    recipe_table({"drafts": "1", "image": "release:1.1.0"}, later | {"image": "release:1.2.0"})
    day = date(2026, 3, 20)
    assert label(day=day).drafts == 3
    assert label(day=day, image="release:1.1.0").drafts == 1
    assert label(day=day, image="release:9").drafts == 3, "an image that nobody lists says nothing"
    assert label().drafts is None


@pytest.mark.parametrize(
    ("day", "drafts"),
    [
        # first 10 January, last 10 February: run from 20 December (21 days before) to 17 February (7 after)
        (date(2025, 12, 20), 1),
        (date(2026, 2, 17), 1),
        (date(2026, 4, 1), 3),
        # the second may have run from 1 March on: 17 February and 1 March are 12 days apart
        (date(2026, 2, 22), 1),
        (date(2026, 2, 23), None),
        (date(2026, 2, 24), 3),
    ],
)
def test_the_nearest_in_time_is_taken(recipe_table, day, drafts):
    recipe_table({"drafts": "1"}, {"drafts": "3", "first": "2026-03-22", "last": "2026-04-10"})
    assert label(day=day).drafts == drafts


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("nvcr.io#nvidia/ai-dynamo/tensorrtllm-runtime:0.8.1", "tensorrtllm:0.8.1"),
        ("lmsysorg/sglang:v0.5.6-cu129-amd64", "sglang:v0.5.6-cu129"),
        ("vllm/vllm-openai:v0.18.0@sha256:abc", "vllm-openai:v0.18.0"),
        (" sglang:v0.5.6 ", "sglang:v0.5.6"),
    ],
)
def test_images_without_registry_platform_and_digest(name, plain):
    assert plain_image(name) == plain


def test_the_shipped_table_can_be_read_whole():
    found = [recipe for same in recipes._recipes().values() for recipe in same]
    assert len(found) > 1872
    for recipe in found:
        assert recipe.first <= recipe.last
        assert recipe.drafts is None or 0 <= recipe.drafts <= 3
        for pool in filter(None, (recipe.pool, recipe.prefill_pool)):
            assert pool.workers >= 1
            assert pool.tp * pool.attention_dp == pool.ep * pool.moe_tp


# --- widths


@pytest.mark.parametrize(
    ("cells", "pool"),
    [
        ({"gpus": "8", "ep": "4"}, Pool(tp=8, ep=4, moe_tp=2)),
        ({"gpus": "8", "ep": "1", "dp": "yes"}, Pool(attention_dp=8, moe_tp=8)),
        ({"gpus": "1", "ep": "32", "dp": "yes"}, Pool(attention_dp=32, ep=32)),  # the experts' width alone
        ({"gpus": "8", "ep": "8", "dp": "yes", "slots": "288"}, Pool(attention_dp=8, ep=8, slots=288)),
        ({"gpus": "4", "ep": "", "workers": "3"}, Pool(tp=4, moe_tp=4, workers=3)),
    ],
)
def test_pools_of_recorded_widths(recipe_table, cells, pool):
    recipe_table(cells)
    assert label().pool == pool


def packer():
    folder = str(Path(__file__).parents[2] / "benchmarks" / "calibration")
    sys.path.insert(0, folder)
    try:
        import pack_recipes
    finally:
        sys.path.remove(folder)
    return pack_recipes


def test_placeholder_widths_are_those_of_a_later_version_or_of_its_nodes():
    pack = packer()
    row = {
        "precision": "fp8",
        "isl": "8192",
        "prefill_workers": "6",
        "workers": "1",
        "prefill_ep": "1",
        "ep": "1",
    }
    for other, filled in (
        ({"prefill_ep": "4", "ep": "48"}, ("4", "48")),
        (None, ("8", "24")),
    ):
        cells = dict(row)
        pack._fill(cells, other)
        assert (cells["prefill_ep"], cells["ep"]) == filled
    nobody = row | {"precision": "fp4"}
    pack._fill(nobody, None)
    assert (nobody["prefill_ep"], nobody["ep"]) == ("1", "1")


def recipe(pool, prefill=None):
    day = date(2026, 1, 1)
    return recipes.Recipe(pool, prefill, 0, True, 0, "", day, day)


def test_which_widths_fit_an_engine():
    plain = Recorded(tp=8, attention_dp=1, moe_tp=1, ep=8)
    assert fits_engine(plain, TP, recipe(TP))
    assert fits_engine(plain, TP, recipe(DP)), "its widths say nothing of data-parallel attention"
    assert not fits_engine(plain, TP, recipe(Pool(tp=8, moe_tp=8)))
    assert not fits_engine(plain, TP, recipe(Pool(tp=4, ep=4)))
    assert fits_engine(replace(plain, tp=1, attention_dp=8), DP, recipe(DP))
    assert not fits_engine(replace(plain, tp=1, attention_dp=8), DP, recipe(TP))


def test_which_pools_fit_a_total_or_two_sides():
    both = recipe(Pool(attention_dp=32, ep=32), Pool(attention_dp=4, ep=4, workers=4))
    assert fits_total(48, both)
    assert not fits_total(44, both)
    assert not fits_total(32, recipe(Pool(attention_dp=32, ep=32)))
    four, wide = Recorded(1, 4, 1, 4, workers=4), Recorded(1, 32, 1, 32, workers=1)
    assert fits_pools(four, wide, both)
    assert fits_pools(replace(four, workers=0), wide, both), "workers that were not recorded"
    assert not fits_pools(replace(four, workers=3), wide, both)
    assert not fits_pools(four, replace(wide, attention_dp=16, ep=16), both)
    assert not fits_pools(four, wide, recipe(Pool(attention_dp=32, ep=32)))
    lost, total = Recorded(1, 1, 1, 1), Recorded(48, 1, 48, 1)
    assert fits_pools(lost, lost, both)
    assert fits_pools(total, total, both)
    assert not fits_pools(replace(total, tp=44, moe_tp=44), replace(total, tp=44, moe_tp=44), both)


# --- drafts without a number


@pytest.mark.parametrize(
    ("engine", "model", "each", "data_parallel", "disaggregated", "drafts"),
    [
        ("sglang", "deepseek-r1", 500, True, True, 2),
        ("sglang", "qwen3.5-397b-a17b", 1, False, False, 3),
        ("vllm", "glm-5", 1, False, False, 2),
        ("trtllm", "deepseek-r1", 1000, False, False, 3),
        ("trtllm", "deepseek-r1", 1, True, False, 1),
        ("trtllm", "deepseek-r1", 25, True, True, 3),
        ("trtllm", "deepseek-r1", 25.1, True, True, 2),
        ("trtllm", "deepseek-r1", 60, True, True, 2),
        ("trtllm", "deepseek-r1", 61, True, True, 1),
        ("", "deepseek-r1", 61, True, True, 1),
    ],
)
def test_drafts_without_a_number(engine, model, each, data_parallel, disaggregated, drafts):
    found = unstated_drafts(
        engine, model, each=each, data_parallel=data_parallel, disaggregated=disaggregated
    )
    assert found == drafts


def test_drafts_of_a_configuration_without_a_number(recipe_table):
    # 64 requests over 8 ranks: 8 each, so three are drafted with two pools, one with one
    recipe_table({"drafts": "mtp", "dp": "yes"})
    assert label().drafts == 1
    recipe_table(SPLIT | {"drafts": "mtp"})
    assert label(disaggregated=True).drafts == 3


def test_drafts_of_a_point_without_a_number():
    point = Point(
        *("a", "test", "tpot_ms", 10.0, "disaggregated", "gb200-nvl72", "deepseek-r1"),
        pool=replace(DP, workers=2),
        prefill_pool=DP,
        concurrency=16 * 40,
        accept_length=0.0,
        engine="trtllm",
    )
    found = with_unstated_drafts(point)
    assert (found.draft_tokens, found.accept_length) == (2, 0.0)
    # a batch of 8 a GPU is as many on a rank of one
    small = with_unstated_drafts(replace(point, concurrency=0, batch=8.0, accept_length=4.0))
    assert (small.draft_tokens, small.accept_length) == (3, 4.0)
    assert with_unstated_drafts(replace(point, accept_length=3.6)).accept_length == 3.0, "two drafts and one"


# --- caches


@pytest.mark.parametrize(
    ("cluster", "engine", "model", "weights", "kv"),
    [
        ("hgx-h200", "trtllm", "llama-3.1-70b", "bf16", "fp8"),
        ("hgx-b200", "sglang", "deepseek-r1", "nvfp4", "fp8"),
        ("hgx-h200", "sglang", "deepseek-r1", "fp8", "bf16"),
        ("hgx-h200", "sglang", "qwen3.5-397b-a17b", "fp8", "fp8"),
        ("hgx-h200", "sglang", "qwen3.5-397b-a17b", "bf16", "bf16"),
        ("gb200-nvl72", "vllm", "gpt-oss-120b", "", "fp8"),
        ("hgx-h100", "vllm", "gpt-oss-120b", "", "bf16"),
        ("hgx-h200", "vllm", "minimax-m2.5", "fp8", "fp8"),
        ("hgx-h100", "vllm", "minimax-m2.5", "fp8", "bf16"),
        ("hgx-b200", "vllm", "kimi-k2.5", "nvfp4", "fp8"),
        ("hgx-b200", "vllm", "kimi-k2.5", "int4", "bf16"),
        ("hgx-h200", "vllm", "llama-3.1-70b", "fp8", "bf16"),
    ],
)
def test_caches_as_launched(cluster, engine, model, weights, kv):
    assert launched_cache(cluster, engine, model, weights) == kv
