"""Why a plan costs what it costs: each part of the step, the memory, and what the numbers rest on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cost.calibration.errors import errors_in
from cost.calibration.residual import kinds_of, step_features
from cost.calibration.residual import residual as learned_residual
from cost.inputs.deployment import USABLE_HBM
from cost.inputs.machine import PEAK
from cost.step.fair_sharing import sharing_words
from cost.step.identities import Identities, identities
from cost.step.score import Score
from cost.step.step import token_wait_s
from cost.terms.registry import TERMS
from placement.analysis.levers import Levers, find_levers
from placement.plan import Plan
from placement.scoring import score_placement
from rackplan.schemas.plans import DetailsData, TermData
from rackplan.views.blocks import Block, Table, Text, figure_data
from rackplan.views.evidence import UsedFigure, kernel_notes, term_evidence, used_figures, weakest_figures
from rackplan.views.levers import MOST_NAMED, largest_words, lever_data
from rackplan.views.money import bill_table
from rackplan.views.settings import set_words
from rackplan.views.words import (
    band_words,
    cluster_doubts,
    coefficient_words,
    load_names,
    next_token,
    sentence,
    serving_words,
    what_if_words,
)
from topology.base.figures import Evidence
from topology.base.units import added, format_quantity, plural

LEAST_BOUND = 0.05
HBM_USES = {
    "weights": "weights",
    "kv_cache": "KV cache",
    "workspace": "workspace",
    "free": "free",
    "reserved": "reserved",
}
"""The uses of HBM as people say them."""
LEAST_WEIGHT = 0.005
"""Weight that would be written as 0.00."""


@dataclass(frozen=True)
class TermRow:
    """One part of the step.

    Attributes
    ----------
    seconds, share:
        Expected seconds, and the fraction of the step.
    peak_s:
        Seconds of the same part at data-sheet peaks, without delays of kernels.
    bound_by:
        The resources that bind it somewhere, the one that binds most of it first.
    evidence:
        The weakest coefficient behind it; None where it has none.
    """

    name: str
    seconds: float
    share: float
    peak_s: float
    bound_by: tuple[str, ...]
    evidence: Evidence | None


@dataclass(frozen=True, eq=False)
class Explanation:
    """A plan and what explains its score.

    ``peaks`` is the score of the same placement at data-sheet peaks, its parts one after another;
    ``figures`` are all that the score rests on, ``weakest`` those of the weakest kind; ``residual``
    is what measured runs near the plan took over the physics and how near they are (:func:`residual_of`), ``levers``
    what its levers would bring with the layout kept; None where they were not asked for.
    """

    plan: Plan
    verdict: str
    terms: tuple[TermRow, ...]
    peaks: Score
    figures: tuple[UsedFigure, ...]
    weakest: tuple[UsedFigure, ...]
    assumptions: tuple[str, ...]
    residual: tuple[float, float]
    identities: Identities
    levers: Levers | None = None

    @property
    def step_over_lower(self) -> float:
        """Expected step over the lower bound, at least 1."""
        return self.plan.score.step_s / self.plan.score.lower_step_s

    @property
    def left_bytes(self) -> float:
        """Usable bytes of HBM that nothing is in, on the fullest GPU."""
        return self.plan.score.hbm_bytes["free"]


def explain_plan(plan: Plan, *, levers: bool = False) -> Explanation:
    """Return the explanation of a plan that fits; ``levers``: with what its levers would bring."""
    score, peaks = plan.score, at_peaks(plan)
    rows = [
        TermRow(
            name,
            seconds,
            seconds / score.step_s,
            peaks.terms_s.get(name, 0.0),
            _bound_by(score, name),
            term_evidence(plan, name),
        )
        for name, seconds in largest_first(score.terms_s)
    ]
    figures = used_figures(plan)
    return Explanation(
        plan,
        verdict(plan),
        tuple(rows),
        peaks,
        tuple(figures),
        tuple(weakest_figures(figures)),
        tuple(assumptions(plan)),
        residual_of(plan),
        identities(plan.deployment, plan.layout, score),
        find_levers(plan, free=False) if levers else None,
    )


def residual_of(plan: Plan) -> tuple[float, float]:
    """Return what measured runs near the plan took over the physics, and how near they are: factor and weight.

    A plan is one phase, so it is compared with pools that decode apart. Nothing measured is like prefill alone,
    several pipeline stages, half batches that overlap, a what-if, several chips or coefficients of the user's.
    """
    deployment, layout, score = plan.deployment, plan.layout, plan.score
    workload = deployment.workload
    chips = {domain.gpu.name for domain in deployment.cluster.spec.domains}
    alike = workload.decodes and layout.stages == 1 and not workload.overlap and not score.what_if
    if not alike or len(chips) > 1 or deployment.efficiency is not None:
        return 1.0, 0.0
    kind = kinds_of("disaggregated", deployment.engine, chips.pop())
    features = step_features(
        score.terms_s,
        batch=score.batch * layout.tp,
        tp=layout.tp,
        attention_dp=layout.attention_dp,
        hidden=deployment.model.hidden,
        queries=1.0 + workload.draft_tokens,
    )
    factor, weight = learned_residual(kind, features)
    return float(factor[0]), float(weight[0])


def residual_words(found: tuple[float, float]) -> str:
    """Return what measured runs near a plan say, in words."""
    factor, weight = found
    if weight < LEAST_WEIGHT:
        return "no measured run is near"
    return (
        f"measured runs near this one took {factor:.2f} times the physics (weight {weight:.2f}; learned, not applied "
        "to the figures above)"
    )


def at_peaks(plan: Plan) -> Score:
    """Return the score of the same placement with every kernel at its data-sheet peak and without delay."""
    deployment = replace(plan.deployment, efficiency=PEAK)
    return score_placement(deployment, plan.layout, plan.experts, plan.loads, plan.split, plan.unlike)[0]


def verdict(plan: Plan) -> str:
    """Return the plan in one sentence: that it fits, how fast it is, what binds."""
    score, deployment = plan.score, plan.deployment
    share = score.limits_s[score.bound_by] / score.step_s
    tokens = deployment.workload.token_word
    band = band_words(score.tok_s_per_gpu, errors_in(plan.deployment, plan.layout))
    text = (
        f"{deployment.model.name} fits {deployment.cluster.name} ({plural(len(deployment.cluster.gpus), 'GPU')}): "
        f"{score.tok_s_per_gpu:,.0f} {tokens} tok/s/GPU{band} at {score.tok_s_per_user:,.1f} {tokens} tok/s/user; "
        f"a step takes {score.step_s * 1e3:,.2f} ms, {score.step_s / score.lower_step_s:.1f} times its lower bound; "
        f"{score.bound_by} binds ({share:.0%} of the step)."
    )
    doubt = cluster_doubts(deployment.cluster)
    text += f" {doubt}." if doubt else ""
    if score.what_if:
        text += f" A what-if: {score.what_if.replace('_', ' ')}."
    if plan.interrupted:
        text += " The search was interrupted: this is the best so far."
    return text


def cache_note(plan: Plan) -> str:
    """Return how pipeline stages change what a GPU holds: weights shrink, the cache does not."""
    stages = plan.layout.stages
    if stages == 1:
        return (
            "KV per GPU would not shrink with pipeline stages: with more of them each GPU has fewer layers, "
            "and more sequences are in flight in the same proportion. Stages save weights only."
        )
    return (
        f"KV per GPU does not shrink with stages: each GPU holds about 1/{stages} of the layers, for {stages} "
        f"micro-batches in flight. The {stages} stages save weights only."
    )


def wait_note(plan: Plan) -> str:
    """Return how long a request waits for its next token, as requests join at step boundaries."""
    mean, longest = token_wait_s(plan.score.step_s)
    return (
        f"A request waits at most two steps for its {next_token(plan.deployment.workload)}: {longest * 1e3:,.2f} ms, "
        f"{mean * 1e3:,.2f} ms on average, once there is a place for it (requests join at step boundaries)."
    )


def parts_note(found: Explanation) -> str:
    """Return what those parts of the step are whose names do not say it; empty where there is none."""
    said = (
        f"{row.name.replace('_', ' ')}: {TERMS[row.name].meaning}"
        for row in found.terms
        if TERMS[row.name].meaning
    )
    return sentence("; ".join(said))


def _bound_by(score: Score, term: str) -> tuple[str, ...]:
    """The resources that bind ``term``, most of it first; one that binds less than a twentieth is left out."""
    mine = {limit: seconds for (name, limit), seconds in score.parts_s.items() if name == term}
    least = LEAST_BOUND * added(mine.values())
    return tuple(sorted((limit for limit in mine if mine[limit] >= least), key=lambda limit: -mine[limit]))


def assumptions(plan: Plan) -> list[str]:
    """What a careful reader should know, in the order of weight."""
    deployment, loads = plan.deployment, plan.loads
    found = []
    if loads is not None and loads.synthetic:
        found.append(f"Expert loads are synthetic ({load_names(loads.names)}): nobody measured them.")
    doubt = cluster_doubts(deployment.cluster)
    found += [f"{doubt}."] if doubt else []
    figures = set_words(deployment.cluster)
    found += [f"Set by the user: {figures}."] if figures else []
    found.append(
        f"An engine may fill {USABLE_HBM:.0%} of the HBM that the driver reports; the rest is reserved."
    )
    what = "has {} of context at the costed step" if deployment.workload.decodes else "is a prompt of {}"
    found.append(f"Every sequence {what.format(plural(deployment.workload.context, 'token'))}.")
    found += map(sentence, serving_words(deployment.workload, deployment.engine))
    supposed = what_if_words(deployment)
    found += [f"What if: {supposed}."] if supposed else []
    found += dict.fromkeys(
        f"Coefficients: {coefficient_words(deployment.machine(stage).efficiency, deployment.workload.phase)}."
        for stages in plan.layout.replicas
        for stage in stages
    )
    found += [f"All-to-all: {note}." for note in kernel_notes(plan)]
    shared = sharing_words(deployment, plan.layout.replicas[0])
    found += [f"Left out of the model: {part}." for part in deployment.model.omitted]
    found += map(
        sentence, filter(None, (*deployment.notes, deployment.fabric_note, shared, *deployment.model.notes))
    )
    found += [f"Loads: {note}." for note in (loads.notes if loads is not None else ()) if note]
    return [text.replace("..", ".") if text.endswith("..") else text for text in found]


def details_blocks(found: Explanation) -> list[list[Block]]:
    """Return the whole explanation, a list for each part: verdict, step, memory, figures, assumptions."""
    plan, score = found.plan, found.plan.score
    step = (
        f"Expected step {score.step_s * 1e3:,.2f} ms, lower bound {score.lower_step_s * 1e3:,.2f} ms (pure "
        f"roofline: no schedule of this layout is faster), ratio {found.step_over_lower:.2f}."
    )
    layout = plan.layout.describe(moe=plan.deployment.model.moe is not None)
    left = (
        f"Left on the fullest GPU: {found.left_bytes / 1e9:,.1f} GB. Batch {score.batch} sequences per GPU; the "
        f"largest that fits is {score.max_batch}. {cache_note(plan)}"
    )
    groups = {
        group: [used for used in found.figures if used.group == group] for group in ("kernels", "machine")
    }
    sources = list(dict.fromkeys(used.figure.source for group in groups.values() for used in group))
    numbered = [f"[{number}] {source}" for number, source in enumerate(sources, 1)]
    blocks: list[Block] = [
        Text(found.verdict),
        Text(step),
        Text(wait_note(plan)),
        term_table(found),
        Text(parts_note(found)),
        limit_table(found),
        Text(residual_words(found.residual), "Residual"),
        Text(
            f"Layout: {layout}; {plan.layout.gpus_used} of {plural(len(plan.deployment.cluster.gpus), 'GPU')} in use."
        ),
        memory_table(score),
        Text(left),
        identity_table(found.identities, plan.layout.stages),
        bill_table(plan.totals),
        _figure_table("What kernels reach, as the expected step uses it", groups["kernels"], sources),
        _figure_table("The machine", groups["machine"], sources),
        Text("\n".join(["Sources:", *numbered])),
        Text(weakest_note(found)),
        Text("\n".join(["Assumptions:", *(f"- {text}" for text in found.assumptions)])),
        Text("" if found.levers is None else largest_words(found.levers)),
    ]
    return [[block] for block in blocks if not isinstance(block, Text) or block.text]


def term_table(found: Explanation) -> Table:
    """Return the parts of the step: time, share, time at peak, what binds, evidence."""
    return Table.of(
        found.terms,
        ("part of the step", lambda row: row.name.replace("_", " ")),
        ("ms", lambda row: f"{row.seconds * 1e3:,.3f}"),
        ("share", lambda row: f"{row.share:.1%}"),
        ("ms at peak", lambda row: f"{row.peak_s * 1e3:,.3f}"),
        ("bound by", lambda row: ", ".join(row.bound_by) or "-"),
        ("evidence", lambda row: row.evidence.label if row.evidence is not None else "-"),
        title="Parts of the step",
        words=(0, 4, 5),
        ruled=True,
    )


def limit_table(found: Explanation) -> Table:
    """Return the resources that the step waits for: time, share, time busy at peak."""
    score = found.plan.score
    busy = {name: f"{seconds * 1e3:,.3f}" for name, seconds in score.floor_s.items()}
    return Table.of(
        largest_first(score.limits_s),
        ("resource", lambda limit: limit[0]),
        ("ms", lambda limit: f"{limit[1] * 1e3:,.3f}"),
        ("share", lambda limit: f"{limit[1] / score.step_s:.1%}"),
        ("ms busy at peak", lambda limit: busy.get(limit[0], "-")),
        title="What the step waits for",
        ruled=True,
    )


def memory_table(score: Score) -> Table:
    """Return the uses of HBM on the fullest GPU."""
    parts = score.hbm_bytes
    total = added(parts.values())
    return Table.of(
        [*((HBM_USES.get(name, name), amount) for name, amount in parts.items()), ("in all", total)],
        ("use", lambda part: part[0]),
        ("bytes", lambda part: f"{part[1]:,.0f}"),
        ("GB", lambda part: f"{part[1] / 1e9:,.2f}"),
        ("share", lambda part: f"{part[1] / total:.1%}"),
        title="HBM of the fullest GPU",
        ruled=True,
    )


def identity_table(found: Identities, stages: int) -> Table:
    """Return the identities of the blackboard for the plan's model, one a row."""
    price, one_s, two_s = found.output_over_input, found.one_domain_s, found.two_domains_s
    rows = [
        (
            "balancing batch",
            f"{found.balancing_batch:,.0f} tokens a step",
            f"computing takes as long as reading all weights; the plan has {found.step_tokens:,.0f} a replica",
        ),
        (
            "output over input",
            "-" if price is None else f"{price:.1f} x",
            "price of an output token over that of an input token, on the same GPUs",
        ),
        *(
            (
                f"{tier.name} drains in",
                _drain_text(tier.drain_s),
                "keeps contexts wanted again after about as long",
            )
            for tier in found.tiers
        ),
        (
            "pipeline bubble",
            f"{found.bubble:.1%}",
            f"of the step, waiting for the slowest of {plural(stages, 'stage')}",
        ),
        (
            "over two domains",
            "-" if one_s is None or two_s is None else f"{two_s * 1e3:,.2f} ms",
            "no fabric joins domains"
            if one_s is None or two_s is None
            else f"half of the EP group in each; {one_s * 1e3:,.2f} ms in one ({two_s / one_s:.2f} x)",
        ),
    ]
    return Table.of(
        rows,
        ("rule of thumb", lambda row: row[0]),
        ("value", lambda row: row[1]),
        ("what it says", lambda row: row[2]),
        title="The blackboard, for this model (even loads)",
        words=(0, 2),
        ruled=True,
    )


def _drain_text(seconds: float) -> str:
    """Return a time from milliseconds to hours in its usual unit."""
    if seconds < 120:
        return format_quantity(seconds, "s", 3)
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"


def figure_text(used: UsedFigure) -> str:
    """Return the value of a figure as its source says it, else as we know it."""
    figure = used.figure
    return figure.text or (f"{figure.value:g} {figure.unit}" if figure.published else "-")


def weakest_note(found: Explanation) -> str:
    """Return the weakest kind of evidence, and the figures that are of it."""
    named = ", ".join(used.title for used in found.weakest)
    return f"Weakest evidence: {found.plan.score.evidence.label} ({named})."


def _figure_table(title: str, figures: Sequence[UsedFigure], sources: Sequence[str]) -> Table:
    """Return figures; a source is its number among ``sources``, since one stands behind many."""
    return Table.of(
        figures,
        ("figure", lambda used: used.title),
        ("value", figure_text),
        ("kind", lambda used: used.figure.kind.label),
        ("source", lambda used: f"[{sources.index(used.figure.source) + 1}]"),
        title=title,
        words=(0, 2, 3),
        ruled=True,
    )


def largest_first(parts: Mapping[str, float]) -> list[tuple[str, float]]:
    """Return the parts above zero, the largest first."""
    return sorted(((name, value) for name, value in parts.items() if value > 0), key=lambda item: -item[1])


def _term_data(row: TermRow, limits_s: Mapping[str, float]) -> TermData:
    data: TermData = {
        "term": row.name,
        "seconds": row.seconds,
        "share": row.share,
        "peak_s": row.peak_s,
        "bound_by": list(row.bound_by),
        "limits_s": dict(limits_s),
        "evidence": row.evidence.label if row.evidence is not None else None,
    }
    if TERMS[row.name].meaning:
        data["meaning"] = TERMS[row.name].meaning
    return data


def details_data(found: Explanation) -> DetailsData:
    """Return an explanation as JSON-able data; seconds and bytes."""
    plan, score = found.plan, found.plan.score
    mean, longest = token_wait_s(score.step_s)
    total = added(score.hbm_bytes.values())
    return {
        "verdict": found.verdict,
        "step_over_lower": found.step_over_lower,
        "mean_wait_ms": mean * 1e3,
        "longest_wait_ms": longest * 1e3,
        "terms": [
            _term_data(row, {limit: s for (name, limit), s in score.parts_s.items() if name == row.name})
            for row in found.terms
        ],
        "limits": [
            {
                "resource": name,
                "seconds": seconds,
                "share": seconds / score.step_s,
                "busy_at_peak_s": score.floor_s.get(name, 0.0),
            }
            for name, seconds in largest_first(score.limits_s)
        ],
        "memory": {
            "parts": [
                {"use": name, "bytes": amount, "share": amount / total}
                for name, amount in score.hbm_bytes.items()
            ],
            "left_bytes": found.left_bytes,
            "max_batch_per_gpu": score.max_batch,
            "note": cache_note(plan),
        },
        "figures": [
            {"group": used.group, "of": used.of, "name": used.name, **figure_data(used.figure)}
            for used in found.figures
        ],
        "weakest": {
            "kind": score.evidence.label,
            "figures": [used.title for used in found.weakest],
        },
        "assumptions": list(found.assumptions),
        "residual": {"factor": found.residual[0], "weight": found.residual[1]},
        "identities": found.identities.to_dict(),
        "levers": (
            None if found.levers is None else [lever_data(row) for row in found.levers.largest[:MOST_NAMED]]
        ),
    }
