"""Drafts of rows that do not say how many tokens they drafted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cost.validation.drafts import unstated_drafts, with_unstated_drafts
from cost.validation.point import Point, Pool

DP = Pool(attention_dp=8, ep=8)


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
