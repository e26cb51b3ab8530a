"""A GPU that nobody makes: what twice the HBM bandwidth would be worth, and what a chip of your own."""

from __future__ import annotations

import rackplan

MODEL, RACK = "deepseek-v3", "gb200-nvl72"

plan = rackplan.plan(MODEL, RACK, phase="decode", time_limit_s=0)
print(f"Today       {plan.score.tok_s_per_gpu:,.0f} tok/s/GPU, {plan.score.bound_by} binds")

# Improve one parameter at a time, at the same speed per user.
for row in rackplan.what_if(plan).largest:
    print(f"  {row.name:20s}{row.change:10s}{row.gain:+.1%}")

# The same figure, planned anew: layout and batch may change too.
doubled = rackplan.plan(MODEL, RACK, phase="decode", settings={"gb200.hbm_bytes_per_s": "2x"}, time_limit_s=0)
print(f"HBM x2      {doubled.score.tok_s_per_gpu:,.0f} tok/s/GPU, then {doubled.score.bound_by} binds")

# A chip of your own, 72 in a rack. What kernels reach of it is taken from its nearest relative, and the plan says so.
rack = {
    "name": "mine-72",
    "gpus": {
        "mine": {
            "hbm_bytes": "288 GB",
            "hbm_bytes_per_s": "16 TB/s",
            "bf16_flop_per_s": "4 Pflop/s",
            "fp8_flop_per_s": "8 Pflop/s",
            "usd_per_h": "5 USD/h",
        }
    },
    "domains": [
        {
            "gpu": "mine",
            "gpus": 72,
            "gpus_per_node": 4,
            "structure": "switch",
            "links_per_switch": [1] * 18,
            "link": "100 GB/s",
        }
    ],
}
mine = rackplan.plan(MODEL, rack, phase="decode", prices={"mine": 5.0}, powers={"mine": 2500}, time_limit_s=0)
gain = mine.score.tok_s_per_gpu / plan.score.tok_s_per_gpu
print(
    f"Mine        {mine.score.tok_s_per_gpu:,.0f} tok/s/GPU, {gain:.2f} times today's; {mine.score.bound_by} binds"
)
print(f"Worth it    up to {gain * 3.3:.2f} USD an hour, where gb200 is 3.30, for the same dollars a token")
