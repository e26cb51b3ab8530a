"""Drafts of rows that do not say how many tokens they drafted."""

from __future__ import annotations

import pytest

from cost.validation.drafts import unstated_drafts


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
