"""A first plan: DeepSeek-V3 on one GB200 NVL72 rack; whether it fits, how fast it is, what it costs, how good it is.

``time_limit_s=0`` takes the fast path alone: the same answer every time. Leave it out for a second or ten of search.
"""

from __future__ import annotations

import rackplan

plan = rackplan.plan("deepseek-v3", "gb200-nvl72", phase="decode", tpot_ms=50, time_limit_s=0)

score, totals = plan.score, plan.totals
low, high = plan.band or (score.tok_s_per_gpu,) * 2
print(f"Fits        {score.hbm_bytes['free'] / 1e9:.0f} GB of HBM are left on the fullest GPU")
print(f"Serves      {score.tok_s_per_gpu:,.0f} output tokens/s a GPU, {score.tok_s_per_user:.1f} a user")
print(f"            ({low:,.0f} to {high:,.0f}: where 80 % of measured runs are)")
print(
    f"Costs       {totals.usd_per_million_tokens:.3f} USD per million output tokens, {totals.power_w / 1e3:.0f} kW"
)
share = score.limits_s[score.bound_by] / score.step_s
print(f"Waits for   {score.bound_by}, {share:.0%} of a step of {score.step_s * 1e3:.1f} ms")

# Experts: how even is the load, how much better could any placement be, and what would others have made of it?
balance = sum(plan.balancedness.values()) / len(plan.balancedness)
print(
    f"Balance     {balance:.4f} of 1; no placement of these copies is more than {plan.proof.gap:.2%} better"
)
for name, rival in plan.baselines.items():
    if rival.score:
        print(f"  {name:18s} {rival.score.tok_s_per_gpu / score.tok_s_per_gpu - 1:+.1%} throughput")

print(f"Report      {rackplan.write_report(plan, 'first-plan.html')}")
