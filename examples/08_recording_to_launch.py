"""From a recording to a launch: what an engine counted becomes a plan, and the plan a file that SGLang loads."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

import rackplan

MODEL, CLUSTER = "qwen3-235b-a22b", "hgx-h200@16"

# A small recording, as an engine would have left it: three windows of tokens per expert. Yours comes from the engine.
model = rackplan.resolve_model(MODEL)
rng = np.random.default_rng(3)
popular = rng.lognormal(0, 0.63, (len(model.moe_layers), model.moe.experts))
windows = rng.poisson(200 * popular * rng.lognormal(0, 0.1, (3, *popular.shape)))
np.save("recording.npy", windows)

loads = rackplan.make_loads(MODEL, "recording.npy")
print(f"Recorded    {loads}")

# SGLang sends tokens by where they come from; a plan for that split is not the plan for an even one.
plan = rackplan.plan(MODEL, CLUSTER, phase="decode", loads=loads, split="source", time_limit_s=0)
print(f"Plan        {plan.score.tok_s_per_gpu:,.0f} tok/s/GPU, gap {plan.proof.gap:.1%}")

file = Path("sglang.json")
file.unlink(missing_ok=True)  # an export never overwrites
exported = rackplan.export(plan, "sglang", file)
rows = json.loads(file.read_text(encoding="utf-8"))["physical_to_logical_map"]
print(
    f"File        {file}: {len(rows)} layers of {len(rows[0])} slots, balancedness {exported.balancedness:.3f}"
)
print("Start with")
print("  " + "\n  ".join(exported.flags))
