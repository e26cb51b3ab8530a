"""Explanation of a plan's cost: parts of the step, memory, and evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass as plain_dataclass

from pydantic.dataclasses import dataclass

from cost.calibration.errors import errors_in
from cost.inputs.deployment import USABLE_HBM
from cost.step.fair_sharing import sharing_words
from cost.step.identities import Identities, identities
from cost.step.score import Score
from cost.step.step import token_wait_s
from cost.terms.registry import TERMS
from placement.analysis.evidence import (
    UsedFigure,
    coefficients,
    kernel_notes,
    machine_figures,
    term_evidence,
    weakest_figures,
)
from placement.analysis.levers import Levers, find_levers
from placement.analysis.peaks import at_peaks
from placement.plan import Plan
from rackplan.report.notes import (
    MOST_NAMED,
    band_words,
    cluster_doubts,
    coefficient_words,
    largest_words,
    load_names,
    near_words,
    next_token,
    sentence,
    serving_words,
    what_if_words,
)
from rackplan.views.blocks import Block, Table, Text
from rackplan.views.data import LEFT_OUT, FigureData, Maybe, figure_data
from rackplan.views.levers import LeverData, lever_data
from rackplan.views.money import bill_table
from rackplan.views.settings import set_words
from topology.base.figures import UNPUBLISHED, Evidence, EvidenceLabel, Figure
from topology.base.units import added, format_quantity, plural

LEAST_BOUND = 0.05
"""Part of a term's time below which a resource is not named as binding it."""
HBM_USES = {"kv_cache": "KV cache"}
"""How uses of HBM are called where the key is not the word."""


@dataclass(frozen=True, kw_only=True)
class TermData:
    """A part of the step.

    Attributes
    ----------
    term, meaning:
        Its name, and what it is where that does not say it.
    seconds, share, peak_s:
        Its time, its part of the step, and its time at the peak of what it uses.
    bound_by, limits_s:
        What bounds it, the most first, and its time by that.
    evidence:
        The weakest kind of figure behind it.
    """

    term: str
    meaning: Maybe[str] = LEFT_OUT
    seconds: float
    share: float
    peak_s: float
    bound_by: list[str]
    limits_s: dict[str, float]
    evidence: EvidenceLabel | None


@dataclass(frozen=True, kw_only=True)
class LimitData:
    """A resource that bounds the step.

    Attributes
    ----------
    resource:
        Its name.
    seconds, share:
        The time that it bounds, and its part of the step.
    busy_at_peak_s:
        What it would take at its peak.
    """

    resource: str
    seconds: float
    share: float
    busy_at_peak_s: float


@dataclass(frozen=True, kw_only=True)
class MemoryPartData:
    """A use of the memory of the fullest GPU.

    Attributes
    ----------
    use, bytes, share:
        What it is, how much, and its part of the whole.
    """

    use: str
    bytes: float
    share: float


@dataclass(frozen=True, kw_only=True)
class MemoryData:
    """Memory of the fullest GPU.

    Attributes
    ----------
    parts:
        By use.
    left_bytes, max_batch_per_gpu:
        What is left, and the sequences per GPU that would fit.
    note:
        How the cache grows, in words.
    """

    parts: list[MemoryPartData]
    left_bytes: float
    max_batch_per_gpu: float
    note: str


@dataclass(frozen=True, kw_only=True)
class UsedFigureData(FigureData):
    """A figure that a step rests on.

    Attributes
    ----------
    group, of, name:
        ``machine``, ``kernels``, ``loads`` or ``what-if``; the part of it; the figure.
    """

    group: str
    of: str
    name: str


@dataclass(frozen=True, kw_only=True)
class WeakestData:
    """The weakest figures that a step rests on.

    Attributes
    ----------
    kind, figures:
        How they are known, and which they are.
    """

    kind: EvidenceLabel
    figures: list[str]


@dataclass(frozen=True, kw_only=True)
class MeasuredData:
    """Correction by nearby measured runs, included in the plan's figures.

    Attributes
    ----------
    factor, runs:
        The factor on the step, and how many runs are near.
    """

    factor: float
    runs: int


@dataclass(frozen=True, kw_only=True)
class DetailsData:
    """A plan part by part.

    Attributes
    ----------
    verdict:
        In a sentence what bounds the step.
    step_over_lower:
        The step over the pure roofline.
    mean_wait_ms, longest_wait_ms:
        What a request with a place waits for its next token.
    terms, limits:
        Parts of the step, and resources that bound it, largest first.
    memory:
        Of the fullest GPU.
    figures, weakest:
        Figures that the step rests on, each with its source, and the weakest of them.
    assumptions:
        In sentences.
    measured:
        What measured runs near it took over the physics.
    identities:
        What a roofline says of the model on this machine.
    levers:
        The largest levers; null where they were not computed.
    """

    verdict: str
    step_over_lower: float
    mean_wait_ms: float
    longest_wait_ms: float
    terms: list[TermData]
    limits: list[LimitData]
    memory: MemoryData
    figures: list[UsedFigureData]
    weakest: WeakestData
    assumptions: list[str]
    measured: MeasuredData
    identities: Identities
    levers: list[LeverData] | None


@plain_dataclass(frozen=True, eq=False)
class Explanation:
    """A plan and what explains its score.

    Attributes
    ----------
    peaks:
        The score of the same placement at data-sheet peaks, its parts one after another.
    figures:
        All that the score rests on.
    levers:
        What its levers would bring with the layout kept; None where they were not computed.
    """

    plan: Plan
    data: DetailsData
    peaks: Score
    figures: tuple[UsedFigure, ...]
    levers: Levers | None = None


def explain_plan(plan: Plan, *, levers: bool = False) -> Explanation:
    """Return the explanation of a plan; ``levers``: with the gains of its levers."""
    score, figures = plan.score, tuple(used_figures(plan))
    peaks = at_peaks(plan)
    mean_s, longest_s = token_wait_s(score.step_s)
    total = added(score.hbm_bytes.values())
    factor, runs = plan.deployment.near_runs(plan.layout, plan.score.batch)
    found = find_levers(plan, free=False) if levers else None
    data = DetailsData(
        verdict=verdict(plan),
        step_over_lower=score.step_s / score.lower_step_s,
        mean_wait_ms=mean_s * 1e3,
        longest_wait_ms=longest_s * 1e3,
        terms=[_term(plan, peaks, name, seconds) for name, seconds in largest_first(score.terms_s)],
        limits=[
            LimitData(
                resource=name,
                seconds=seconds,
                share=seconds / score.step_s,
                busy_at_peak_s=score.floor_s.get(name, 0.0),
            )
            for name, seconds in largest_first(score.limits_s)
        ],
        memory=MemoryData(
            parts=[
                MemoryPartData(use=name, bytes=amount, share=amount / total)
                for name, amount in score.hbm_bytes.items()
            ],
            left_bytes=score.hbm_bytes["free"],
            max_batch_per_gpu=score.max_batch,
            note=cache_note(plan),
        ),
        figures=[
            UsedFigureData(**figure_data(used.figure, group=used.group, of=used.of, name=used.name))
            for used in figures
        ],
        weakest=WeakestData(
            kind=score.evidence.label, figures=[used.title for used in weakest_figures(figures)]
        ),
        assumptions=assumptions(plan),
        measured=MeasuredData(factor=factor, runs=runs),
        identities=identities(plan.deployment, plan.layout, score),
        levers=None if found is None else [lever_data(row) for row in found.largest[:MOST_NAMED]],
    )
    return Explanation(plan, data, peaks, figures, found)


def _term(plan: Plan, peaks: Score, name: str, seconds: float) -> TermData:
    limits_s = {limit: s for (term, limit), s in plan.score.parts_s.items() if term == name}
    least = LEAST_BOUND * added(limits_s.values())
    evidence = term_evidence(plan, name)
    return TermData(
        term=name,
        meaning=TERMS[name].meaning or LEFT_OUT,
        seconds=seconds,
        share=seconds / plan.score.step_s,
        peak_s=peaks.terms_s.get(name, 0.0),
        bound_by=sorted((one for one in limits_s if limits_s[one] >= least), key=lambda one: -limits_s[one]),
        limits_s=limits_s,
        evidence=None if evidence is None else evidence.label,
    )


def used_figures(plan: Plan) -> list[UsedFigure]:
    """Return all figures; synthetic loads and what-if assumptions count as assumed figures without a value."""
    figures = [*machine_figures(plan), *coefficients(plan)]
    if plan.loads is not None and plan.loads.synthetic:
        assumed = Figure(UNPUBLISHED, "1", Evidence.ASSUMED, "synthetic; pass measured loads with --loads")
        figures.append(UsedFigure("loads", "", load_names(plan.loads.names), assumed))
    if plan.score.what_if:
        supposed = Figure(UNPUBLISHED, "1", Evidence.ASSUMED, "what-if, neither trained nor measured")
        figures.append(UsedFigure("what-if", "", plan.score.what_if, supposed))
    return figures


def verdict(plan: Plan) -> str:
    """Return the plan in a sentence: cluster, speed and bottleneck."""
    score, deployment = plan.score, plan.deployment
    tokens = deployment.workload.token_word
    band = band_words(score.tok_s_per_gpu, errors_in(plan.deployment, plan.layout))
    more = [
        cluster_doubts(deployment.cluster),
        f"What-if: {score.what_if.replace('_', ' ')}" if score.what_if else "",
        "The search was interrupted; this is the best plan so far" if plan.interrupted else "",
    ]
    text = (
        f"{deployment.model.name} fits {deployment.cluster.name} ({plural(len(deployment.cluster.gpus), 'GPU')}): "
        f"{score.tok_s_per_gpu:,.0f} {tokens} tok/s/GPU{band} at {score.tok_s_per_user:,.1f} {tokens} tok/s/user; "
        f"a step takes {score.step_s * 1e3:,.2f} ms, {score.step_s / score.lower_step_s:.1f}x its lower bound; "
        f"{score.bound_by} binds ({score.limits_s[score.bound_by] / score.step_s:.0%} of the step)"
    )
    return " ".join(f"{one}." for one in (text, *more) if one)


def cache_note(plan: Plan) -> str:
    """Return how pipeline stages change HBM use: less for weights, the same for the cache."""
    return (
        f"{plural(plan.layout.stages, 'pipeline stage')}; more stages would reduce the weights per GPU but not the "
        "KV cache: a stage has fewer layers and proportionally more sequences in flight."
    )


def parts_note(found: Explanation) -> str:
    """Return explanations of step parts whose names are not self-explanatory; empty if there are none."""
    rows = (row for row in found.data.terms if row.meaning is not LEFT_OUT)
    return sentence("; ".join(f"{row.term.replace('_', ' ')}: {row.meaning}" for row in rows))


def assumptions(plan: Plan) -> list[str]:
    """Return the assumptions of a plan, most important first."""
    deployment, loads = plan.deployment, plan.loads
    workload, model = deployment.workload, deployment.model
    what = "has {} of context in the costed step" if workload.decodes else "is a prompt of {}"
    coefficients = (
        coefficient_words(deployment.machine(stage).efficiency, deployment)
        for stages in plan.layout.replicas
        for stage in stages
    )
    rows: list[tuple[str, str | None]] = [
        ("", f"Expert loads are synthetic; pass measured loads with --loads ({load_names(loads.names)})")
        if loads is not None and loads.synthetic
        else ("", ""),
        ("", cluster_doubts(deployment.cluster)),
        ("Set by the user: ", set_words(deployment.cluster)),
        ("", f"Engines may use {USABLE_HBM:.0%} of the HBM reported by the driver; the rest is reserved"),
        ("", f"Every sequence {what.format(plural(workload.context, 'token'))}"),
        *(("", text) for text in serving_words(workload, deployment.engine)),
        ("What if: ", what_if_words(deployment)),
        *(("Coefficients: ", text) for text in dict.fromkeys(coefficients)),
        *(("All-to-all: ", text) for text in kernel_notes(plan)),
        *(("Not modelled: ", text) for text in model.omitted),
        *(("", text) for text in deployment.notes),
        ("", deployment.fabric_note),
        ("", sharing_words(deployment, plan.layout.replicas[0])),
        *(("", text) for text in model.notes),
        *(("Loads: ", text) for text in (loads.notes if loads is not None else ())),
    ]
    return [sentence(f"{label}{text.removesuffix('.')}") for label, text in rows if text]


def details_blocks(found: Explanation) -> list[list[Block]]:
    """Return the whole explanation, a list for each part: verdict, step, memory, figures, assumptions."""
    plan, score, data = found.plan, found.plan.score, found.data
    used = [one for group in ("kernels", "machine") for one in found.figures if one.group == group]
    sources = list(dict.fromkeys(one.figure.source for one in used))
    wait = (
        f"after at most two steps: {data.longest_wait_ms:,.2f} ms, {data.mean_wait_ms:,.2f} ms on average "
        "(requests join "
        "at step boundaries)"
    )
    left = f"{data.memory.left_bytes / 1e9:,.1f} GB left; batch {score.batch} per GPU, {score.max_batch} fit"
    layout = plan.layout.describe(moe=plan.deployment.model.moe is not None)
    numbered = [f"[{number}] {source}" for number, source in enumerate(sources, 1)]
    named = ""
    if found.levers is not None:
        every = " `rackplan what-if` lists all of them." * bool(found.levers.largest)
        named = largest_words(found.levers) + every
    parts: list[list[Block]] = [
        [Text(data.verdict)],
        [
            Text(
                f"expected {score.step_s * 1e3:,.2f} ms, lower bound {score.lower_step_s * 1e3:,.2f} ms (pure "
                f"roofline), ratio {data.step_over_lower:.2f}",
                "Step",
            ),
            Text(wait, next_token(plan.deployment.workload).capitalize()),
            Text(near_words(data.measured.factor, data.measured.runs), "Measured"),
            Text(
                f"{layout}; {plan.layout.gpus_used} of {plural(len(plan.deployment.cluster.gpus), 'GPU')} in use",
                "Layout",
            ),
        ],
        [term_table(found)],
        [Text(parts_note(found))],
        [limit_table(found)],
        [memory_table(score), Text(left, "HBM"), Text(data.memory.note, "")],
        [identity_table(data.identities, plan.layout.stages)],
        [bill_table(plan.totals)],
        [_figure_table(used, sources)],
        [Text("\n".join(["Sources:", *numbered]))],
        [Text(weakest_note(found))],
        [Text("\n".join(["Assumptions:", *(f"- {text}" for text in data.assumptions)]))],
        [Text(named)],
    ]
    return [part for part in parts if not (isinstance(part[0], Text) and not part[0].text)]


def term_table(found: Explanation) -> Table:
    """Return the parts of the step: time, share, time at peak, what binds, evidence."""
    return Table.of(
        found.data.terms,
        ("part of the step", lambda row: row.term.replace("_", " ")),
        ("ms", lambda row: f"{row.seconds * 1e3:,.3f}"),
        ("share", lambda row: f"{row.share:.1%}"),
        ("ms at peak", lambda row: f"{row.peak_s * 1e3:,.3f}"),
        ("bound by", lambda row: ", ".join(row.bound_by) or "-"),
        ("evidence", lambda row: row.evidence or "-"),
        title="Parts of the step",
        words=(0, 4, 5),
        ruled=True,
    )


def limit_table(found: Explanation) -> Table:
    """Return the resources that the step waits for: time, share, time busy at peak."""
    return Table.of(
        found.data.limits,
        ("resource", lambda row: row.resource),
        ("ms", lambda row: f"{row.seconds * 1e3:,.3f}"),
        ("share", lambda row: f"{row.share:.1%}"),
        ("ms at peak", lambda row: f"{row.busy_at_peak_s * 1e3:,.3f}" if row.busy_at_peak_s else "-"),
        title="Bottlenecks of the step",
        ruled=True,
    )


def memory_table(score: Score) -> Table:
    """Return the uses of HBM on the fullest GPU."""
    total = added(score.hbm_bytes.values())
    return Table.of(
        [*score.hbm_bytes.items(), ("total", total)],
        ("use", lambda part: HBM_USES.get(part[0], part[0])),
        ("bytes", lambda part: f"{part[1]:,.0f}"),
        ("GB", lambda part: f"{part[1] / 1e9:,.2f}"),
        ("share", lambda part: f"{part[1] / total:.1%}"),
        title="HBM of the fullest GPU",
        ruled=True,
    )


def identity_table(found: Identities, stages: int) -> Table:
    """Return the identities of a roofline for the plan's model, one a row."""
    price, one_s, two_s = found.output_over_input, found.one_domain_s, found.two_domains_s
    over, where = "-", "no fabric connects domains"
    if one_s is not None and two_s is not None:
        over = f"{two_s * 1e3:,.2f} ms"
        where = (
            f"half of the EP group in each domain; {one_s * 1e3:,.2f} ms in one domain ({two_s / one_s:.2f}x)"
        )
    rows = [
        (
            "balancing batch",
            f"{found.balancing_batch:,.0f} tokens per step",
            f"compute time equals the time to read all weights; the plan has {found.step_tokens:,.0f} per replica",
        ),
        (
            "output over input",
            "-" if price is None else f"{price:.1f}x",
            "price ratio of output and input tokens on the same GPUs",
        ),
        *(
            (
                f"{tier.name} drain time",
                _drain(tier.drain_s),
                "holds contexts that are reused sooner than this",
            )
            for tier in found.tiers
        ),
        (
            "pipeline bubble",
            f"{found.bubble:.1%}",
            f"time waiting for the slowest of {plural(stages, 'stage')}",
        ),
        ("EP over two domains", over, where),
    ]
    return Table(
        ("rule of thumb", "value", "meaning"),
        rows,
        "Roofline identities of this model (even loads)",
        words=(0, 2),
        ruled=True,
    )


def _drain(seconds: float) -> str:
    """Return a time from milliseconds to hours in its usual unit."""
    if seconds < 120:
        return format_quantity(seconds, "s", 3)
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"


def figure_text(used: UsedFigure) -> str:
    """Return the value of a figure as printed by its source, else in SI units."""
    figure = used.figure
    return figure.text or (f"{figure.value:g} {figure.unit}" if figure.published else "-")


def weakest_note(found: Explanation) -> str:
    """Return the weakest kind of evidence and the figures of that kind."""
    return f"Weakest evidence: {found.data.weakest.kind} ({', '.join(found.data.weakest.figures)})."


def _figure_table(figures: Sequence[UsedFigure], sources: Sequence[str]) -> Table:
    """Return figures of kernels and machine; a source is shown by its number in ``sources``."""
    return Table.of(
        figures,
        ("figure", lambda used: used.title),
        ("value", figure_text),
        ("kind", lambda used: used.figure.kind.label),
        ("source", lambda used: f"[{sources.index(used.figure.source) + 1}]"),
        title="Kernel and machine figures",
        words=(0, 2, 3),
        ruled=True,
    )


def largest_first(parts: Mapping[str, float]) -> list[tuple[str, float]]:
    """Return the parts above zero, the largest first."""
    return sorted(((name, value) for name, value in parts.items() if value > 0), key=lambda item: -item[1])
