"""A sweep: what its best configurations come to, all of them as points, where their steps go; matched pools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from pydantic.dataclasses import dataclass

from cost.calibration.errors import errors_in
from cost.layouts import Sweep, best_at
from cost.serving.points import sweep_points
from cost.serving.result import SPEEDS, Pools, sweeps_of
from cost.step.score import Score
from cost.validation.measured import comparable_points
from placement.analysis.evidence import deployment_figures
from placement.layouts.price import fitted_row
from rackplan.report.notes import (
    accuracy_words,
    band_words,
    chip_words,
    cluster_doubts,
    phase_words,
    sentence,
)
from rackplan.views.blocks import (
    Block,
    Chart,
    Details,
    Drawing,
    Heading,
    Page,
    Table,
    Text,
    View,
    labelled,
    section,
    sections,
    thinned,
)
from rackplan.views.charts import memories_chart, pareto_chart, steps_chart
from rackplan.views.data import LEFT_OUT, Maybe
from rackplan.views.forward import headline, machine_words
from rackplan.views.layouts import (
    ConfigurationData,
    SweptData,
    configurations,
    swept_blocks,
    swept_data,
    swept_table,
)
from rackplan.views.money import totals_blocks
from rackplan.views.pareto import HEIGHT, beside_measured, note, says
from rackplan.views.pools import (
    MatchedData,
    matched_data,
    pools_answer,
    pools_details,
    pools_headline,
    pools_picture,
    speeds_table,
    tpot_words,
)
from rackplan.views.provenance import Row, deployment_rows, figures_section, inputs_section
from rackplan.views.settings import set_words
from rackplan.views.table_csv import csv_text
from topology.base.units import plural

MOST_POINTS = 1200
"""Maximum points shown besides the frontier, evenly spaced."""
MOST_BARS = 8
"""Speeds whose steps are drawn."""
BAR, AROUND = 40, 130
"""Pixels of a bar, and of what is around the bars."""


@dataclass(frozen=True, kw_only=True)
class SweepResult(SweptData):
    """What ``rackplan sweep`` prints, and writes to a ``.json``: all layouts at all batches.

    Attributes
    ----------
    model:
        Its name.
    limit_s, best:
        Of one phase: the longest time per output token (prefill: of a step; null: none), and the most throughput that
        keeps it; ``totals`` are of that.
    prefill, whole_requests:
        Of whole requests: the other phase alone, and both together.
    """

    model: str
    limit_s: Maybe[float | None] = LEFT_OUT
    best: Maybe[ConfigurationData] = LEFT_OUT
    prefill: Maybe[SweptData] = LEFT_OUT
    whole_requests: Maybe[MatchedData] = LEFT_OUT


def sweep_view(found: Sweep | Pools, speeds: Sequence[float] = SPEEDS) -> View:
    """Return the blocks and the data of ``rackplan sweep``; with the best layout at each of ``speeds`` per user."""
    first, *rest = sweeps_of(found)
    targets = speeds if first.deployment.workload.decodes else ()
    more: dict[str, Any] = {}
    if isinstance(found, Pools):
        more = {"prefill": SweptData(**swept_data(rest[0], [])), "whole_requests": matched_data(found)}
    elif first.best is not None:
        more = {"limit_s": first.limit_s, "best": configurations(first, [first.best])[0]}
    data = SweepResult(model=first.deployment.model.name, **swept_data(first, targets), **more)
    return View(sweep_blocks(found, speeds), data)


def sweep_csv(sweeps: Sequence[Sweep]) -> str:
    """Return all configurations, a row each; a part of the step that a sweep does not have stays empty."""
    columns = [found.columns() for found in sweeps]
    names = list(dict.fromkeys(name for one in columns for name in one))
    rows: list[tuple[object, ...]] = []
    for found, one in zip(sweeps, columns, strict=True):
        workload = found.deployment.workload
        head = (found.deployment.cluster.name, workload.phase, workload.context)
        values = [one[name].tolist() if name in one else [""] * len(found) for name in names]
        rows += [(*head, *row) for row in zip(*values, strict=True)]
    return csv_text(["cluster", "phase", "context", *names], rows)


def sweep_blocks(
    found: Sweep | Pools,
    speeds: Sequence[float] = SPEEDS,
    *,
    command: str = "",
    drawings: Mapping[str, str] | None = None,
) -> list[Block]:
    """Return what a terminal and the page show: the answer, the best at a few speeds, then each sweep in detail.

    Of a page alone are charts, ``command``, and ``drawings``: the SVG file of each cluster by its name.
    """
    sweeps = sweeps_of(found)
    first, pools = sweeps[0], found if isinstance(found, Pools) else None
    cluster, work = first.deployment.cluster, first.deployment.workload
    targets = speeds if work.decodes else ()
    title = f"{first.deployment.model.name} on {cluster.name} ({plural(len(cluster.gpus), 'GPU')})"
    what = phase_words(work) if pools is None else pools.serving.lengths.brief()
    parts: list[Sequence[Block]] = [
        [Heading(f"{title}, {what}"), Page(partial(_lead, first, pools))],
        _answer(first) if pools is None else pools_answer(pools),
    ]
    if len(first):
        table = speeds_table(pools) if pools is not None else swept_table(first, targets)
        parts.append([Heading("Best layouts", 2), table])
    more: list[Sequence[Block]] = [] if pools is None else [pools_details(pools)]
    for one in sweeps if len(first) else ():
        words = f"{phase_words(one.deployment.workload).capitalize()} on {one.deployment.cluster.name}"
        if pools is not None:
            more.append([*section(words, folded=True), Page(partial(_points, one))])
        more.append(swept_blocks(one, targets if one is first else ()))
    pictures = [Page([Drawing(svg)], fold=name) for name, svg in (drawings or {}).items()]
    parts.append([Details(sections(*more))])
    parts.append([Page(partial(_steps, first, targets))])
    parts.append([Page([Heading("Cluster", 2, folded=True), *pictures] if pictures else [])])
    parts.append([Page(partial(_grounds, sweeps, pools, targets, command))])
    return sections(*parts)


def _answer(found: Sweep) -> list[Block]:
    """Return the answer for one phase: the representative layout, its performance and cost."""
    index = found.best
    if index is None:
        return [Text(_verdict(found))]
    errors, one = errors_in(found.deployment), found.rows([index])
    rate, word = float(one.tok_s_per_gpu[0]), found.deployment.workload.token_word
    return [
        Text(
            f"{one.label(0)}, batch {one.batch[0]:.4g}: {rate:,.0f} {word} tok/s/GPU{band_words(rate, errors)} at "
            f"{one.tok_s_per_user[0]:,.1f} tok/s/user; {one.bound(0)} binds",
            "Best",
        ),
        *totals_blocks(found.totals(index)),
        Text(_verdict(found), "Range"),
        *labelled("Limits", _limits(found)),
    ]


def _limits(found: Sweep) -> str:
    """Return the limit that the best keeps; empty for prefill without."""
    if found.deployment.workload.decodes:
        return tpot_words(found.limit_s, default=found.limit_default)
    return "" if found.limit_s is None else f"{found.limit_s * 1e3:g} ms per prefill step"


def _lead(found: Sweep, pools: Pools | None) -> list[Block]:
    """Return the headline and its chart: all configurations, or both serving modes of whole requests."""
    if pools is not None:
        return [*pools_headline(pools), *pools_picture(pools)]
    cluster, index = found.deployment.cluster, found.best
    if index is None:
        return [Text(_verdict(found), style="forward")]
    one, word = found.rows([index]), found.deployment.workload.token_word
    asked = "the highest of all layouts" + f" within {_limits(found)}" * (found.limit_s is not None)
    answer = (
        f"{one.label(0)} reaches {one.tok_s_per_gpu[0]:,.0f} {word} tok/s/GPU at {one.tok_s_per_user[0]:,.1f} "
        f"tok/s/user, {asked}; {one.bound(0)} binds"
    )
    errors, doubts = errors_in(found.deployment), cluster_doubts(cluster)
    lead = headline(answer, machine_words(cluster), found.totals(index), errors, doubts)
    return [*lead, *_points(found, beside=True)]


def _verdict(found: Sweep) -> str:
    workload = found.deployment.workload
    if not len(found):
        lacks = f"{found.shortage_bytes / 1e9:.1f} GB per GPU"
        return f"HBM capacity binds: even the smallest layout lacks {lacks} for one sequence."
    edge = found.frontier()
    most, fast = (
        f"{found.tok_s_per_gpu[index]:,.0f} {workload.token_word} tok/s/GPU at {found.tok_s_per_user[index]:,.1f} "
        f"tok/s/user ({found.label(index)})"
        for index in (int(edge[0]), int(edge[-1]))
    )
    return f"{len(found):,} configurations of {phase_words(workload)}: from {most} to {fast}."


def _points(found: Sweep, *, beside: bool = False) -> list[Block]:
    """Return every configuration as a point; with ``beside``, also the panel of measured runs."""
    workload, index = found.deployment.workload, found.best
    edge = found.frontier().tolist() if len(found) else []
    some = found.rows(sorted({*edge, *thinned(range(len(found)), MOST_POINTS)}))
    tokens, points = workload.token_word, sweep_points(some)
    mark, star = None, ""
    if index is not None:
        mark = (found.label(index), sweep_points(found.rows([index]))[0])
        star = "the star has the highest throughput" + " within the limit" * (found.limit_s is not None)
    figure = pareto_chart(points, tokens, mark, comparable_points(found.deployment), word="best")
    chart = Chart(f"pareto-{workload.phase}".removesuffix("-decode"), figure, says(points, tokens), HEIGHT)
    shown = beside_measured(chart, [found.deployment]) if beside else [chart]
    return [*shown, Text(note(tokens, star), style="note")]


def _steps(found: Sweep, targets: Sequence[float]) -> list[Block]:
    """Return step time by part, from the slowest speed to the fastest, and HBM use of the chosen configuration."""
    chosen = found.best
    if chosen is None:
        return []
    best = [index for target in targets if (index := best_at(found, target)) is not None]
    which = sorted({chosen, *best}, key=lambda index: float(found.tok_s_per_user[index]))[:MOST_BARS]
    shown = found.rows(which)
    speeds = [f"{speed:,.0f} tok/s/user" for speed in shown.tok_s_per_user]
    bars = [
        (speed, {name: float(seconds[at]) for name, seconds in shown.terms_s.items()})
        for at, speed in enumerate(speeds)
    ]
    names = [name for name, seconds in shown.terms_s.items() if (seconds > 0).any()]
    table = Table(
        ("part of the step, ms", *speeds),
        [
            (name.replace("_", " "), *(f"{parts.get(name, 0.0) * 1e3:,.2f}" for _, parts in bars))
            for name in names
        ],
    )
    words = "; ".join(f"{shown.step_s[at] * 1e3:,.1f} ms at {speed}" for at, speed in enumerate(speeds))
    height = BAR * len(bars) + AROUND
    score, word = score_at(found, chosen), found.label(chosen)
    memory: list[Block] = []
    if score is not None:
        chart = memories_chart([(word, score.hbm_bytes)])
        memory = [Chart("memories", chart, f"HBM of {word} by use", BAR + AROUND)]
    return [
        Heading("Step time" + " and HBM use" * bool(memory), 2),
        Chart("steps", steps_chart(bars), f"Steps of the best layouts by part: {words}", height),
        *memory,
        Page([table], fold="Steps as a table"),
    ]


def score_at(found: Sweep, index: int) -> Score | None:
    """Return the score of a configuration with balanced experts; None of one that no plan may have."""
    fit = fitted_row(found, index)
    return None if fit is None else fit.scorer.at(fit.batch)


def _grounds(
    sweeps: Sequence[Sweep], pools: Pools | None, targets: Sequence[float], command: str
) -> list[Block]:
    """Return the command and every input, and every figure with its source."""
    deployment = sweeps[0].deployment
    errors = errors_in(deployment) if pools is None else pools.errors
    near = f"{sentence('; '.join(map(chip_words, errors)))} Throughput: {accuracy_words(errors)}."
    rows: list[Row] = [
        *deployment_rows(deployment, None)[:-2],
        *(("also swept", phase_words(found.deployment.workload)) for found in sweeps[1:]),
        ("experts", "balanced as set by --imbalance; no loads are used"),
        ("price basis", deployment.bill.price_basis),
        ("GPUs", plural(len(deployment.cluster.gpus), "GPU")),
        *(("set", words) for words in [set_words(*(one.deployment.cluster for one in sweeps))] if words),
        *(("speeds", ", ".join(f"{target:g}" for target in targets)) for _ in range(bool(targets))),
    ]
    figures = [used for one in sweeps for used in deployment_figures(one.deployment)]
    bills = [deployment.bill if pools is None else pools.bill]
    return [
        *inputs_section(command, rows),
        *figures_section(figures, bills, [near] if errors else [], []),
    ]
