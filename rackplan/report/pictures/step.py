"""Waterfall chart of the step by part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from xml.etree.ElementTree import Element

from cost.step.score import Score
from cost.terms.registry import TERMS
from placement.analysis.evidence import coefficients
from placement.analysis.peaks import at_peaks
from placement.plan import Plan
from rackplan.report.colours import NEUTRAL, by_resource, by_term
from rackplan.report.doc import Picture
from rackplan.report.pictures.svg import LINE, Look, Svg, percent, share_text
from topology.base.figures import weakest

COMPOSED = (
    "Parts run one after another, so their times add up. Within a kernel, compute and HBM reads overlap: "
    "sqrt(compute^2 + HBM^2), at achievable rates."
)
HALVES = (
    "Two half-batches overlap: communication counts only where compute does not hide it ({share:.0%} of "
    "the shorter one is hidden)."
)
"""How the cost model composes a step (:func:`cost.step.step.overlapped`)."""
_MAX_ORIGINS = 4
"""Coefficients that a line names."""
_HIDDEN = "hidden behind compute, not counted"
_OUTLINE: Look = {"fill": "none", "stroke": "currentColor", "stroke_width": 1.5}
_ROW, _BAR, _HIGH = 44, 21, 12
"""Pixels: from row to row, from the top of a row to its bar, of a bar."""


def step_picture(plan: Plan) -> Picture:
    """Return the waterfall of a plan, with its step at data-sheet peaks and the coefficients behind each part."""
    overlap = plan.deployment.workload.overlap
    machine = plan.deployment.machine(plan.layout.replicas[0][0])
    share = machine.efficiency["overlap"] if overlap else None
    return waterfall(plan.score, at_peaks(plan), origins(plan), hidden=share)


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
        The coefficients behind each part, in lines.
    hidden:
        In two half batches: the part of the shorter of computing and sending that stays hidden; None: one batch.
    """
    names = [name for name in dict.fromkeys((*TERMS, *score.terms_s)) if score.terms_s.get(name, 0.0) > 0]
    colours, resources = by_term(names), by_resource(score.limits_s)
    covered = score.hidden_s(hidden or 0.0)
    legend = _legend(score, resources, peaks=peaks is not None, hidden=bool(covered))
    drawn = Svg((len(names) + 1) * _ROW + len(legend) * LINE, "step")
    step, start = score.step_s, 0.0
    for row, name in enumerate(names):
        seconds, y = score.terms_s[name], row * _ROW + _BAR
        share = seconds / step
        limits = score.bounds_of(name)
        peak_s = 0.0 if peaks is None else peaks.terms_s.get(name, 0.0)
        words = name.replace("_", " ")
        value = f"{words}: {_ms(seconds)}, {share_text(share)}"
        group = drawn.group(
            [f"{value} of the step", *_term_lines(name, limits, peak_s, covered, origin or {})]
        )
        drawn.text(group, value, y - 6)
        if name in covered:  # under the parts before it
            size = min(covered[name] / step, start)
            look = {"fill": colours[name], "fill_opacity": 0.5, "class": "hidden"}
            drawn.bar(group, (start - size, size), y, _HIGH, look, hatched=True)
        drawn.bar(group, (start, share), y, _HIGH, {"fill": colours[name], "class": "term"})
        at = start
        for limit, bound_s in limits.items():
            strip = {"fill": resources[limit], "class": "limit"}
            drawn.bar(group, (at, bound_s / step), y + _HIGH, 4, strip)
            at += bound_s / step
        if peak_s > 0:
            drawn.bar(group, (start, peak_s / step), y, _HIGH, {**_OUTLINE, "class": "peak"})
        _lower(drawn, group, score, y)
        start += share
    _total(drawn, score, names, colours, hidden)
    for line, (words, square) in enumerate(legend):
        y = (len(names) + 1) * _ROW + 12 + line * LINE
        drawn.swatch(drawn.root, words, y, square, hatched=words == _HIDDEN)
    parts = ", ".join(f"{name.replace('_', ' ')} {score.terms_s[name] * 1e3:,.2f}" for name in names)
    says = f"The step by part, in ms: {parts}; total {step * 1e3:,.2f}"
    return Picture("step", says, str(drawn))


def _total(
    drawn: Svg, score: Score, names: Sequence[str], colours: Mapping[str, str], hidden: float | None
) -> None:
    """Add the row of the whole step."""
    y, start = len(names) * _ROW + _BAR, 0.0
    token = (
        f"{_ms(score.step_s / score.tokens_per_step)} per output token" if score.tokens_per_step > 1 else ""
    )
    lower = _ms(score.lower_step_s)
    group = drawn.group(
        [
            f"step: {_ms(score.step_s)}, the sum of its parts",
            token,
            f"lower bound {lower} for any schedule of this layout (all resources at peak, fully overlapped)",
            COMPOSED + ("" if hidden is None else f" {HALVES.format(share=hidden)}"),
        ]
    )
    drawn.text(group, f"step: {_ms(score.step_s)}", y - 6, {"font_weight": 600})
    for name in names:
        share = score.terms_s[name] / score.step_s
        drawn.bar(group, (start, share), y, _HIGH, {"fill": colours[name]})
        start += share
    _lower(drawn, group, score, y)


def _lower(drawn: Svg, group: Element, score: Score, y: float) -> None:
    """Add the lower bound to a row, dotted."""
    x = percent(score.lower_step_s / score.step_s)
    place = {"x1": x, "x2": x, "y1": y - 3, "y2": y + _HIGH + 5}
    drawn.add(group, "line", {**_OUTLINE, "stroke_dasharray": "2 2", **place})


def _legend(
    score: Score, resources: Mapping[str, str], *, peaks: bool, hidden: bool
) -> list[tuple[str, Look]]:
    """Return the lines of the legend: words, and how the square before them looks."""
    lines: list[tuple[str, Look]] = [(_HIDDEN, {"fill": NEUTRAL})] if hidden else []
    lines += [("at data-sheet peaks", _OUTLINE)] if peaks else []
    lines.append((f"lower bound {_ms(score.lower_step_s)}", {**_OUTLINE, "stroke_dasharray": "2 2"}))
    bound = [name for name in resources if score.limits_s.get(name, 0.0) > 0 and name]
    return lines + [(f"strip below a bar: bound by {name}", {"fill": resources[name]}) for name in bound]


def _term_lines(
    name: str,
    limits: Mapping[str, float],
    peak_s: float,
    covered: Mapping[str, float],
    origin: Mapping[str, Sequence[str]],
) -> list[str]:
    """Return what is known of a part: what it is, its formula, what binds it, where its coefficients come from."""
    term = TERMS.get(name)
    return [
        term.meaning if term else "",
        f"= {term.formula}" if term and term.formula else "",
        f"{_ms(covered[name])} more hidden behind compute" if name in covered else "",
        f"bound by {', '.join(f'{limit} {_ms(seconds)}' for limit, seconds in limits.items())}"
        if limits
        else "",
        f"at data-sheet peaks {_ms(peak_s)}" if peak_s > 0 else "",
        *origin.get(name, ()),
    ]


def _ms(seconds: float) -> str:
    value = seconds * 1e3
    return f"{value:,.{1 if value >= 100 else 2 if value >= 1 else 3}f} ms"


def origins(plan: Plan) -> dict[str, list[str]]:
    """Return the coefficients behind each part of the step: values, the weakest kind, the sources, in lines."""
    known = coefficients(plan)
    lines = {}
    for name in plan.score.terms_s:
        behind = TERMS[name].behind
        used = [coefficient for coefficient in known if behind and coefficient.name.startswith(behind)]
        if not used:
            continue
        values = [f"{coefficient.name} {coefficient.shown}" for coefficient in used[:_MAX_ORIGINS]]
        more_values = f" and {len(used) - _MAX_ORIGINS} more" if len(used) > _MAX_ORIGINS else ""
        kind = weakest(coefficient.figure.kind for coefficient in used).label
        sources = list(dict.fromkeys(coefficient.figure.source for coefficient in used))
        more_sources = f"; {len(sources) - 1} more sources" if len(sources) > 1 else ""
        lines[name] = [
            f"from {', '.join(values)}{more_values} ({kind})",
            f"source: {sources[0]}{more_sources}",
        ]
    return lines
