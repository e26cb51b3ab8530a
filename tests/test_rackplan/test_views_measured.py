"""Runs that others measured, as dots."""

from __future__ import annotations

import pytest

import rackplan
from rackplan.views.measured import POOLS, measured_points


def dots(model: str, cluster: str, **more):
    return {one.id: one for one in measured_points(rackplan.make_deployment(model, cluster), **more)}


def test_a_decode_run_has_the_speed_of_its_batch():
    run = dots("deepseek-v3", "gb200-nvl72")["sgl-gb200p2-decode-nvfp4-b768"]
    assert run.tok_s_per_gpu == 12047.4
    assert run.tok_s_per_user == pytest.approx(12047.4 / 768)
    assert run.words == "deepseek-v3 on 48 gb200, decode, 2,000 tokens of context, nvfp4"


def test_both_pools_count_output_tokens_and_the_time_a_token():
    run = dots("deepseek-r1", "gb200-nvl72@144", phases=POOLS)["ix-gb200-dsr1fp4-c4301"]
    assert run.tok_s_per_gpu == pytest.approx(12659.7 / 2)  # as many tokens in as out
    assert run.tok_s_per_user == pytest.approx(1e3 / 23.1)
    assert run.drafts == 1
