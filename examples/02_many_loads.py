"""Many loads, one plan: by day users chat, by night batch jobs run, and other experts are hot.

A plan for one load is poor under the other; a plan for both gives up little of either.
"""

from __future__ import annotations

import numpy as np

import rackplan

MODEL, CLUSTER = "qwen3-235b-a22b", "hgx-h200@32"

# Two recordings, tokens [layers, experts]: night shares a third of its popularity with day.
model = rackplan.resolve_model(MODEL)
rng = np.random.default_rng(7)
shape = (len(model.moe_layers), model.moe.experts)
popular = rng.normal(size=(2, *shape))
loads = {
    "day": np.exp(0.6 * popular[0]) * 1e4,
    "night": np.exp(0.6 * (popular[0] / 3 + popular[1] * np.sqrt(8) / 3)) * 1e4,
}


def balance(plan: rackplan.Plan) -> float:
    """Mean over max GPU load, the mean over layers: 1 is even, 0.5 keeps the busiest GPU twice as long."""
    return float(np.mean(list(plan.balancedness.values())))


plans = {f"for {name}": [one] for name, one in loads.items()} | {"for both": list(loads.values())}
print(f"{'':12s}" + "".join(f"{name:>10s}" for name in loads) + "   tok/s/GPU, the worse of both")
for name, given in plans.items():
    plan = rackplan.plan(MODEL, CLUSTER, phase="decode", loads=given, redundant=32, time_limit_s=0)
    under = [rackplan.score(plan, loads=one) for one in loads.values()]
    worse = min(one.score.tok_s_per_gpu for one in under)
    print(f"{name:12s}" + "".join(f"{balance(one):10.3f}" for one in under) + f"{worse:12,.0f}")
