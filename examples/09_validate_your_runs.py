"""How far off it is on your machines: what you measured beside what is predicted; then trust the rest by as much."""

from __future__ import annotations

from pathlib import Path

import rackplan

# One row is one figure; docs/trust.md has all columns. Put your own runs here: these six are of InferenceX,
# run 26306422380 of May 2026, DeepSeek-R1 in NVFP4, 1,024 tokens in and out.
COLUMNS = (
    "id,quantity,measured,phase,model,cluster,gpus,engine,weights,tp,ep,attention_dp,workers,prefill_ep,"
    "prefill_attention_dp,prefill_workers,concurrency,isl,osl,draft_tokens"
)
RUNS = """
b200-25,tpot_ms,4.45,disaggregated,deepseek-r1,hgx-b200,44,trtllm,nvfp4,8,8,,5,4,4,,25,1024,1024,3
b200-180,tpot_ms,7.91,disaggregated,deepseek-r1,hgx-b200,44,trtllm,nvfp4,8,8,,5,4,4,,180,1024,1024,3
b200-1214,tpot_ms,13.51,disaggregated,deepseek-r1,hgx-b200,20,trtllm,nvfp4,1,8,8,2,4,4,,1214,1024,1024,2
b200-4968,tpot_ms,17.75,disaggregated,deepseek-r1,hgx-b200,44,trtllm,nvfp4,1,8,8,4,4,4,3,4968,1024,1024,1
gb200-4301,tpot_ms,23.1,disaggregated,deepseek-r1,gb200-nvl72,24,trtllm,nvfp4,1,16,16,1,8,8,,4301,1024,1024,1
gb200-16130,tpot_ms,56.11,disaggregated,deepseek-r1,gb200-nvl72,32,trtllm,nvfp4,1,4,4,5,4,4,3,16130,1024,1024,1
"""

Path("runs.csv").write_text(COLUMNS + RUNS, encoding="utf-8")
found = rackplan.validate("runs.csv")
print(f"{'run':14s}{'measured':>10s}{'predicted':>11s}")
for point, told in zip(found.points, found.predictions, strict=True):
    off = told.value / point.measured - 1
    print(f"{point.id:14s}{point.measured:7.1f} ms{told.value:8.1f} ms  {off:+.0%}")

errors = found.errors["tpot_ms"]
inside = errors.within_20_percent
print(f"Median error {errors.median_abs_error:.0%}, bias {errors.bias:+.0%}, {inside:.0%} within 20 %")
factor = max(
    max(told.value / point.measured, point.measured / told.value)
    for point, told in zip(found.points, found.predictions, strict=True)
)
print(f"Plan with a margin of {factor:.2f} until more runs say otherwise")
