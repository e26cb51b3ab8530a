"""The calibration script that reads the silicon sample: layouts as they ran, where the file is at hand."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from cost.validation.point import Pool

SCRIPTS = Path(__file__).parents[2] / "benchmarks" / "calibration"
SAMPLE = Path(__file__).parents[2].parent / "shared/data/serving_measurements/silicon_calibration.csv"
pytestmark = pytest.mark.skipif(not SCRIPTS.is_dir(), reason="the benchmarks are not part of this copy")


@pytest.fixture
def silicon(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return importlib.import_module("silicon")


COLUMNS = (
    "id,silicon_data_source,backend,backend_version,model_path,system,precision,mode,isl,osl,gemm_quant_mode,"
    "moe_quant_mode,batch_size,tp_size,pp_size,attention_dp_size,moe_tp_size,moe_ep_size,silicon_ttft_ms,"
    "silicon_tpot_ms"
)


@pytest.mark.parametrize(
    ("widths", "ran"),
    [
        ((8, 1, 1, 8), Pool(tp=8, ep=8)),
        ((64, 1, 8, 8), Pool(tp=8, ep=8)),
        ((1, 64, 8, 8), Pool(attention_dp=8, ep=8)),
        ((4, 4, 1, 16), Pool(tp=4, ep=4)),
        ((8, 1, 8, 1), Pool(tp=8, moe_tp=8)),
    ],
)
def test_aggregated_layouts(silicon, tmp_path, widths, ran):
    tp, dp, moe_tp, ep = widths
    path = tmp_path / "sample.csv"
    row = (
        "a,db; silicon_concurrency=64,trtllm,1.0,deepseek-ai/DeepSeek-R1,h200_sxm,fp8,agg,333,444,fp8_block,"
        f"fp8_block,0,{tp},1,{dp},{moe_tp},{ep},300.5,17.25"
    )
    path.write_text(f"{COLUMNS}\n{row}\n", encoding="utf-8")
    (point,) = silicon.read_silicon(path, "tpot_ms")
    assert (point.pool, point.measured, point.concurrency, point.cluster) == (ran, 17.25, 64, "hgx-h200")


@pytest.mark.skipif(not SAMPLE.exists(), reason="the silicon sample is not at hand")
def test_the_calibration_part(silicon):
    points = silicon.read_silicon(SAMPLE, "tpot_ms")
    assert len(points) == 2704
    assert sum(point.drafts_recorded for point in points) >= 2300
    for point in points:
        assert point.concurrency > 0
        for pool in filter(None, (point.pool, point.prefill_pool)):
            assert pool.tp * pool.attention_dp == pool.ep * pool.moe_tp
            assert pool.gpus_per_worker & (pool.gpus_per_worker - 1) == 0 or pool.gpus_per_worker in (24, 48)
