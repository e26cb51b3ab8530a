"""Runs of InferenceX read as points: layouts, formats, drafts, dates, and runs whose requests queue."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "calibration"))
from inferencex import read_inferencex

HEAD = (
    "model,hardware,framework,image,precision,spec_method,disagg,is_multinode,prefill_tp,prefill_ep,"
    "prefill_dp_attention,prefill_num_workers,num_prefill_gpu,decode_tp,decode_ep,decode_dp_attention,"
    "decode_num_workers,num_decode_gpu,isl,osl,conc,tput_per_gpu,median_tpot_s,median_ttft_s,date\n"
)
ROWS = (
    "dsr1,mi355x,sglang,l/sglang:v0.5.9-rocm,fp4,none,False,False,8,1,False,0,8,8,1,False,0,8,1024,8192,4,60,0.0184,0.2,2026-03-06",
    "dsr1,gb200,dynamo-trt,,fp8,mtp,True,True,4,4,True,2,8,1,16,True,1,16,1024,1024,512,900,0.02,16.1,2026-05-06",
    "gptoss120b,mi300x,vllm,,fp4,none,False,False,2,1,False,0,2,2,1,False,0,2,1024,1024,8,60,0.01,0.2,2025-11-06",
)


def test_rows_are_points(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(HEAD + "\n".join(ROWS))
    one, two, three = read_inferencex(path, "tpot_ms")
    assert (one.cluster, one.engine, one.engine_version, one.date) == (
        "mi355x",
        "sglang",
        "0.5.9",
        "2026-03-06",
    )
    assert (one.weights, one.measured, one.pool.tp, one.pool.moe_tp) == ("mxfp4", pytest.approx(18.4), 8, 8)
    assert (two.phase, two.engine, two.pool.attention_dp, two.pool.ep) == ("disaggregated", "trtllm", 16, 16)
    assert (two.prefill_pool.workers, two.prefill_pool.gpus, two.draft_tokens > 0) == (2, 8, True)
    assert (one.saturated, two.saturated) == (False, True)
    assert three.weights == ""  # its own format
    assert [p.measured for p in read_inferencex(path, "tok_s_per_gpu")] == [60, 900, 60]
