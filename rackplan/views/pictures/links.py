"""How busy each fabric is in a step: its links at their rate, and what the step waits for them."""

from __future__ import annotations

from typing import Any

from placement.plan import Plan
from rackplan.views.blocks import Picture
from rackplan.views.charts import by_resource
from topology.base.errors import RackplanError
from topology.base.figures import Figure
from topology.base.units import format_quantity
from topology.routes import link_loads, pattern_traffic

MOST_ROUTED = 4608
"""GPUs of a cluster whose tiers are told apart: of more, routing takes seconds."""


def link_bars(plan: Plan) -> Picture:
    """Return a bar for each fabric of the cluster: seconds that its busiest GPU's links are busy, of the step.

    Fabrics that nothing of a step crosses are there too, idle.
    """
    score, spec = plan.score, plan.deployment.cluster.spec
    fabrics: dict[str, tuple[str, Figure, list[str]]] = {}
    for stages in plan.layout.replicas[:1]:
        for stage in stages:
            rates = plan.deployment.rates(stage)
            for index in plan.deployment.domain_set(stage):
                fabric = spec.domains[index].fabric
                rate = format_quantity(rates.up_bytes_per_s, "byte/s")
                lines = [f"scale-up: {rate} of a GPU, each way"]
                fabrics.setdefault(rates.up_fabric, ("scale-up", fabric.link_bytes_per_s, lines))
            out = spec.scale_out
            if out is not None:
                share = (
                    "" if out.total_oversubscription == 1 else f", {out.total_oversubscription:g} to 1 above"
                )
                rate = format_quantity(out.scale_out_bytes_per_s, "byte/s")
                lines = [f"scale-out: {rate} of a GPU, each way{share}"]
                fabrics.setdefault(out.fabric.name, ("scale-out", out.fabric.link_bytes_per_s, lines))
    colours = by_resource([*fabrics, *score.limits_s])
    sent = {} if plan.traffic is None else plan.traffic.bytes_per_step
    links: list[dict[str, Any]] = []
    for name, (kind, figure, lines) in fabrics.items():
        parts = [
            f"{term.replace('_', ' ')} {seconds * 1e3:,.3f} ms"
            for (term, limit), seconds in score.parts_s.items()
            if limit == name and seconds > 0
        ]
        idle = not score.floor_s.get(name) and not score.limits_s.get(name)
        links.append(
            {
                "name": f"{name} ({kind})",
                "seconds": score.floor_s.get(name, 0.0),
                "waited_s": score.limits_s.get(name, 0.0),
                "bytes": sent.get(name, 0.0),
                "colour": colours[name],
                "tiers": _tiers(plan, name, score.floor_s.get(name, 0.0)) if kind == "scale-out" else [],
                "lines": [
                    *([f"waits: {', '.join(parts)}"] if parts else []),
                    *lines,
                    *(["nothing of a step crosses it"] if idle else []),
                    (
                        f"rate of a link: {figure.text or format_quantity(figure.value, 'byte/s')} "
                        f"({figure.kind.label}: {figure.source})"
                    ),
                ],
            }
        )
    says = "; ".join(
        f"{link['name']} busy {link['seconds'] / score.step_s:.1%} of the step, waited for "
        f"{link['waited_s'] / score.step_s:.1%}"
        for link in links
    )
    return Picture("links", "links", {"step_s": score.step_s, "links": links}, says)


def _tiers(plan: Plan, fabric: str, busy_s: float) -> list[dict[str, Any]]:
    """Return seconds that each tier of a scale-out fabric is busy, where experts of a stage lie in several domains.

    As an even all-to-all has them whose busiest tier is busy for ``busy_s``, as the step says of the fabric.
    """
    cluster = plan.deployment.cluster
    stages = [stage for stage in plan.layout.replicas[0] if len(plan.deployment.domain_set(stage)) > 1]
    if not busy_s or not stages or len(cluster.gpus) > MOST_ROUTED:
        return []
    try:
        traffic = pattern_traffic("all-to-all", len(cluster.gpus), 1.0, stages[0].gpus)
        tiers = link_loads(cluster, traffic).tiers
    except RackplanError:  # a rate on the way is not published, or there is no route
        return []
    out = {name: load.seconds for name, load in tiers.items() if name.startswith(f"{fabric} ")}
    most = max(out.values(), default=0.0)
    return [{"name": name, "seconds": busy_s * value / most} for name, value in out.items()] if most else []
