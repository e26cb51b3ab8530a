"""The step as a waterfall: each part from where the one before ends, up to the step's time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cost.step.score import Score
from cost.terms.pipeline import BUBBLE, HOPS
from cost.terms.registry import TERMS
from placement.plan import Plan
from rackplan.views.blocks import Picture
from rackplan.views.charts import by_resource, by_term
from rackplan.views.evidence import coefficients
from rackplan.views.explain import Explanation, figure_text
from topology.base.figures import weakest
from topology.base.units import added

COMPOSED = (
    "Parts follow one another, so they add up. In a kernel computing and reading HBM run at once: "
    "sqrt(compute^2 + HBM^2), at what kernels reach of the peaks."
)
HALVES = (
    "Two half batches take turns: what they send is counted as far as computing does not hide it "
    "({share:.0%} of the shorter of the two stays hidden)."
)
"""How the cost model composes a step (:func:`cost.step.step.overlapped`)."""
_MOST_ORIGINS = 4


def step_picture(found: Explanation) -> Picture:
    """Return the waterfall of an explained plan, with the coefficients behind each part."""
    plan = found.plan
    overlap = plan.deployment.workload.overlap
    machine = plan.deployment.machine(plan.layout.replicas[0][0])
    share = machine.efficiency["overlap"] if overlap else None
    return waterfall(plan.score, found.peaks, origins(plan), hidden=share)


def waterfall(
    score: Score,
    peaks: Score | None = None,
    origin: Mapping[str, Sequence[str]] | None = None,
    *,
    hidden: float | None = None,
) -> Picture:
    """Return the step of a score as a waterfall, in the order in which the cost model composes it.

    Parameters
    ----------
    peaks:
        The same placement at data-sheet peaks; None leaves the outlines out.
    origin:
        What stands behind each part, in lines.
    hidden:
        In two half batches: the part of the shorter of computing and sending that stays hidden; None: one batch.
    """
    order = {name: place for place, name in enumerate(TERMS)}
    names = sorted(score.terms_s, key=lambda name: order.get(name, len(order)))
    colours, peak = by_term(names), {} if peaks is None else peaks.terms_s
    terms = [
        _term(score, name, colours[name], peak.get(name, 0.0), origin or {})
        for name in names
        if score.terms_s[name] > 0
    ]
    for term, seconds in hidden_s(score, hidden or 0.0).items():
        next(one for one in terms if one["name"] == term)["hidden_s"] = seconds
    data = {
        "step_s": score.step_s,
        "lower_step_s": score.lower_step_s,
        "tokens_per_step": score.tokens_per_step,
        "terms": terms,
        "resources": by_resource(score.limits_s),
        "composed": COMPOSED + ("" if hidden is None else f" {HALVES.format(share=hidden)}"),
    }
    parts = ", ".join(f"{term['words']} {term['seconds'] * 1e3:,.2f}" for term in terms)
    says = f"The step by part, in ms: {parts}; in all {score.step_s * 1e3:,.2f}"
    return Picture("waterfall", "step", data, says)


def hidden_s(score: Score, share: float) -> dict[str, float]:
    """Return seconds of sending that computing hides in a step of two half batches on one stage, by part.

    ``share`` of the shorter of computing and sending stays hidden (:func:`cost.step.step.overlapped`), so
    that of ``S`` seconds of sending ``S - share * min(S, C)`` are seen beside ``C`` of computing; pipelines
    are left out.
    """
    sends = {name: s for name, s in score.terms_s.items() if s > 0 and name in TERMS and TERMS[name].sends}
    seen = added(sends.values())
    if not 0 < share < 1 or not seen or {HOPS.name, BUBBLE.name} & set(score.terms_s):
        return {}
    computing = score.step_s - seen
    sending = seen / (1 - share)
    if sending > computing:
        sending = seen + share * computing
    return {name: seconds * (sending - seen) / seen for name, seconds in sends.items()}


def _term(
    score: Score, name: str, colour: str, peak_s: float, origin: Mapping[str, Sequence[str]]
) -> dict[str, Any]:
    term = TERMS.get(name)
    limits = [
        (limit, seconds) for (part, limit), seconds in score.parts_s.items() if part == name and seconds > 0
    ]
    return {
        "name": name,
        "words": name.replace("_", " "),
        "seconds": score.terms_s[name],
        "colour": colour,
        "peak_s": peak_s,
        "meaning": term.meaning if term else "",
        "formula": term.formula if term else "",
        "limits": sorted(limits, key=lambda limit: -limit[1]),
        "origin": list(origin.get(name, ())),
    }


def origins(plan: Plan) -> dict[str, list[str]]:
    """Return the coefficients behind each part of the step: values, the weakest kind, the sources, in lines."""
    known = coefficients(plan)
    found = {}
    for name in plan.score.terms_s:
        behind = TERMS[name].behind
        used = [one for one in known if behind and one.name.startswith(behind)]
        if not used:
            continue
        values = [f"{one.name} {figure_text(one)}" for one in used[:_MOST_ORIGINS]]
        more = f" and {len(used) - _MOST_ORIGINS} more" if len(used) > _MOST_ORIGINS else ""
        kind = weakest(one.figure.kind for one in used).label
        sources = list(dict.fromkeys(one.figure.source for one in used))
        left = f"; {len(sources) - 1} more sources" if len(sources) > 1 else ""
        found[name] = [f"from {', '.join(values)}{more} ({kind})", f"source: {sources[0]}{left}"]
    return found
