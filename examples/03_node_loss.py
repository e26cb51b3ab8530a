"""A node dies: what is lost at once, what a re-plan restores, how much it moves, and what more copies would save."""

from __future__ import annotations

import rackplan

MODEL, CLUSTER = "deepseek-v3", "gb200-nvl72"

plan = rackplan.plan(MODEL, CLUSTER, phase="decode", time_limit_s=0)
print(f"Before      {plan.score.tok_s_per_gpu * 72:,.0f} output tokens/s of 72 GPUs")
for loss in plan.failures.what_if:
    print(
        f"  lose a {loss.unit:5s} {loss.tokens_lost_mean:6.1%} of the tokens find no expert until it is restored; "
        f"worst: {loss.worst}"
    )

after = rackplan.replan(plan, lost="d0.n3")
left = len(after.plan.deployment.cluster.gpus)
print(
    f"Re-plan     {after.moves:,} of {after.copies:,} copies move, {after.bytes / 1e9:.0f} GB; "
    f"a fresh plan would move {after.fresh_moves:,}"
)
print(f"After       {after.plan.score.tok_s_per_gpu * left:,.0f} output tokens/s of {left} GPUs")

# More moves buy more balance: each point is a placement that can be asked for with max_moves.
for point in after.front[1:4]:
    print(f"  {point.moves:,} moves: balancedness {point.balancedness:.3f}")

# Twice as many copies, those of an expert in different nodes: HBM for safety.
apart = rackplan.plan(MODEL, CLUSTER, phase="decode", redundant=320, spread="node", time_limit_s=0)
node = next(loss for loss in apart.failures.what_if if loss.unit == "node")
price = 1 - apart.score.tok_s_per_gpu / plan.score.tok_s_per_gpu
print(
    f"With two copies of each it takes {node.tokens_lost_mean:.1%} of the tokens, for {price:.1%} of the throughput"
)
