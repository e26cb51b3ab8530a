"""A cluster of your own: a box of eight H100 at your price; then one of them gets hot and slows down to 70 %.

The mapping is what a cluster YAML holds (docs/catalog.md); ``rackplan import`` writes one from what your tools print.
"""

from __future__ import annotations

import rackplan

MODEL = "qwen3-30b-a3b"
box = {
    "name": "box",
    "domains": [{"part": "hgx-h100", "count": 1}],
    "prices": {"h100-sxm": "1.90 USD/h"},
}
slow = "d0.n0.g1"
hot = {**box, "broken": [{"gpu": slow, "factor": 0.7}]}


def shares(plan: rackplan.Plan) -> dict[str, float]:
    """Tokens of all layers that the experts of each GPU of the first replica take, over the mean."""
    experts = plan.experts[0]
    tokens = plan.loads.tokens[0] / experts.copies
    found: dict[str, float] = {}
    for slot, gpu in enumerate(experts.slot_gpu):
        name = plan.deployment.cluster.gpus[plan.layout.replicas[0][0].gpus[gpu]].id
        taken = tokens[range(len(tokens)), experts.slot_expert[:, slot]].sum()
        found[name] = found.get(name, 0.0) + float(taken)
    mean = sum(found.values()) / len(found)
    return {name: one / mean for name, one in found.items()}


for name, content in (("as bought", box), ("one hot", hot)):
    plan = rackplan.plan(MODEL, content, phase="decode", ep=8, redundant=32, time_limit_s=0)
    score, layout = plan.score, plan.layout
    print(
        f"{name:10s}{score.tok_s_per_gpu:7,.0f} tok/s/GPU, "
        f"{plan.totals.usd_per_million_tokens:.4f} USD per million tokens, "
        f"EP{layout.ep} TP{layout.tp}, {score.bound_by} binds"
    )
print(
    f"The hot GPU gets {shares(plan)[slow]:.0%} of the mean load; balancedness {min(plan.balancedness.values()):.3f}"
)
print(f"Picture   {rackplan.draw(plan, 'box.svg')}")
