"""The page of a sweep: what one of its configurations comes to, all of them as points, where their steps go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cost.calibration.errors import errors_in
from cost.layouts import Sweep, best_at
from cost.money.bill import Totals
from cost.serving.pools import RateMatch
from cost.step.score import Score
from placement.layouts.fitting import fitted_layouts
from placement.layouts.shapes import TP_WIDTHS
from placement.options import USUAL_TPOT
from rackplan.views.blocks import Block, Chart, Drawing, Heading, Page, Table, Text
from rackplan.views.charts import memories_chart, pareto_chart, pools_chart, steps_chart
from rackplan.views.evidence import deployment_figures
from rackplan.views.forward import machine_words, summary, summary_blocks
from rackplan.views.measured import measured_points
from rackplan.views.money import dollars, totals_blocks
from rackplan.views.pareto import HEIGHT, frontier_fold, measured_fold, note, says
from rackplan.views.points import sweep_points
from rackplan.views.provenance import Row, deployment_rows, figures_section, inputs_section, terminal_fold
from rackplan.views.settings import set_words
from rackplan.views.sweep import Pools, sweep_view
from rackplan.views.words import chip_words, cluster_doubts, factor_words, phase_words, sentence
from topology.base.units import plural

MOST_BARS = 8
"""Speeds whose steps are drawn."""
BAR, AROUND = 40, 130


@dataclass(frozen=True)
class _Best:
    """The best configuration of a sweep at a speed per user; None: as much throughput as there is."""

    speed: float | None
    index: int


def sweep_page(
    sweeps: Sequence[Sweep],
    pools: Pools | None,
    targets: Sequence[float],
    *,
    command: str,
    drawings: Mapping[str, str] | None = None,
) -> list[Block]:
    """Return the page of a sweep, and of the pools that were matched; ``drawings``: SVG files by cluster."""
    first = sweeps[0]
    deployment = first.deployment
    chosen = _chosen(first)
    pictures = [Page([Drawing(svg)], fold=name) for name, svg in (drawings or {}).items()]
    errors = errors_in(deployment) if pools is None else pools.errors
    near = f"{sentence('; '.join(map(chip_words, errors)))} Of throughput {factor_words(errors)}."
    figures = [used for one in sweeps for used in deployment_figures(one.deployment)]
    bills = [pools.bill] if pools is not None else [deployment.bill]
    doubt = cluster_doubts(deployment.cluster)
    return [
        Heading(f"Every layout of {deployment.model.name} on {deployment.cluster.name}"),
        *_summary(first, pools, chosen),
        Text(_verdict(first, pools), style="verdict"),
        *([Text(f"{doubt}.", style="verdict")] if doubt else []),
        *_at_speeds(first, targets),
        *_pools(pools),
        *(block for found in sweeps for block in _pareto(found, chosen if found is first else None)),
        *_steps(first, targets, chosen),
        *([Heading("The cluster", 2), *pictures] if pictures else []),
        *_costs(first, pools, chosen),
        *inputs_section(command, _inputs(sweeps, targets)),
        *figures_section(figures, bills, [near] if errors else [], []),
        *([terminal_fold(sweep_view(sweeps, pools, targets))] if len(first) else []),
    ]


def _chosen(found: Sweep) -> _Best | None:
    """Return the configuration that stands for a sweep: the best at the usual speed, else the most throughput."""
    if not len(found):
        return None
    usual = 1 / USUAL_TPOT.value
    index = best_at(found, usual) if found.deployment.workload.decodes else None
    return _Best(None, int(found.frontier()[0])) if index is None else _Best(usual, index)


def _summary(found: Sweep, pools: Pools | None, chosen: _Best | None) -> list[Block]:
    """Return what is sent on: the pools where there are some, else the configuration that stands for the sweep."""
    cluster = found.deployment.cluster
    if pools is not None:
        best = pools.matches.best()
        if best is None:
            return [Text("No pair of pools keeps the limits.", style="forward")]
        sides = dict.fromkeys((cluster, pools.prefill.deployment.cluster))
        machines = " and ".join(map(machine_words, sides))
        bound = f"{pools.decode.bound(best.decode)} (decode), {pools.prefill.bound(best.prefill)} (prefill)"
        return summary_blocks(summary(machines, pools.totals(best), pools.errors, bound))
    if chosen is None:
        return [Text("No layout fits.", style="forward")]
    errors, totals = errors_in(found.deployment), found.totals(chosen.index)
    speed = f"{chosen.speed:g} tok/s/user" if chosen.speed else "as much throughput as fits"
    rows = summary(machine_words(cluster), totals, errors, found.bound(chosen.index))
    return summary_blocks([*rows, ("Speed", speed)])


def _verdict(found: Sweep, pools: Pools | None) -> str:
    workload = found.deployment.workload
    if not len(found):
        lacks = f"{found.shortage_bytes / 1e9:.1f} GB per GPU"
        return f"HBM capacity binds: the layout nearest to fitting one sequence lacks {lacks}."
    edge = found.frontier()
    tokens = workload.token_word
    most, fast = int(edge[0]), int(edge[-1])
    text = (
        f"{len(found):,} configurations of {phase_words(workload)}: from {found.tok_s_per_gpu[most]:,.0f} {tokens} "
        f"tok/s/GPU at {found.tok_s_per_user[most]:,.1f} tok/s/user ({found.label(most)}) to "
        f"{found.tok_s_per_gpu[fast]:,.0f} at {found.tok_s_per_user[fast]:,.1f} ({found.label(fast)})."
    )
    best = None if pools is None else pools.matches.best()
    if best is not None:
        text += (
            f" Both phases: {best.output_tok_s_per_gpu:,.0f} output tok/s/GPU at {best.tok_s_per_user:,.1f} "
            f"tok/s/user, {plural(best.prefill_gpus, 'GPU')} that prefill and {best.decode_gpus} that decode, "
            f"TTFT {best.ttft_s:,.2f} s."
        )
    return text


def _bests(found: Sweep, targets: Sequence[float]) -> list[_Best]:
    return (
        [_Best(target, index) for target in targets if (index := best_at(found, target)) is not None]
        if len(found)
        else []
    )


def _at_speeds(found: Sweep, targets: Sequence[float]) -> list[Block]:
    """Return the best at each speed, narrow enough for a phone."""
    rows = _bests(found, targets)
    if not rows:
        return []

    def usd(one: _Best) -> str:
        each = found.totals(one.index).usd_per_million_tokens
        return "-" if each is None else dollars(each)

    return [
        Table.of(
            rows,
            ("at tok/s/user", lambda one: f"{one.speed:g}"),
            ("tok/s/GPU", lambda one: f"{found.tok_s_per_gpu[one.index]:,.0f}"),
            ("$/Mtok", usd),
            ("layout", lambda one: found.label(one.index)),
            words=(3,),
        )
    ]


def _pareto(found: Sweep, chosen: _Best | None) -> list[Block]:
    workload = found.deployment.workload
    tokens = workload.token_word
    points = sweep_points(found)
    measured = measured_points(found.deployment) if workload.decodes else []
    mark, star = None, ""
    if chosen is not None:
        mark = (found.label(chosen.index), sweep_points(found.rows([chosen.index]))[0])
        star = (
            "the star is the best at the usual speed" if chosen.speed else "the star has the most throughput"
        )
    chart = pareto_chart(points, tokens, mark, measured, word="best")
    name = "pareto" if workload.decodes else "pareto-prefill"
    return [
        Heading(f"Throughput against speed per user, {workload.phase}", 2),
        Chart(name, chart, says(points, tokens), HEIGHT),
        Text(note(tokens, star, measured), style="note"),
        frontier_fold(points),
        *measured_fold(measured),
    ]


def _steps(found: Sweep, targets: Sequence[float], chosen: _Best | None) -> list[Block]:
    """Return where steps go, from the slowest speed to the fastest; and HBM of the configuration that is chosen."""
    if chosen is None:
        return []
    shown = list({one.index: one for one in [chosen, *_bests(found, targets)]}.values())
    shown = sorted(shown, key=lambda one: float(found.tok_s_per_user[one.index]))[:MOST_BARS]
    told = found.rows([one.index for one in shown])
    bars = [
        (
            f"{told.tok_s_per_user[at]:,.0f} tok/s/user",
            {name: float(seconds[at]) for name, seconds in told.terms_s.items()},
        )
        for at in range(len(told))
    ]
    names = list(dict.fromkeys(name for _, parts in bars for name, seconds in parts.items() if seconds > 0))
    table = Table(
        ("part of the step, ms", *(f"{told.tok_s_per_user[at]:,.0f} tok/s/user" for at in range(len(told)))),
        [
            (name.replace("_", " "), *(f"{parts.get(name, 0.0) * 1e3:,.2f}" for _, parts in bars))
            for name in names
        ],
    )
    spoken = "; ".join(
        f"{told.step_s[at] * 1e3:,.1f} ms at {told.tok_s_per_user[at]:,.0f} tok/s/user"
        for at in range(len(told))
    )
    score = score_at(found, chosen.index)
    height = BAR * len(bars) + AROUND
    memory: list[Block] = []
    if score is not None:
        word = found.label(chosen.index)
        memory = [
            Chart(
                "memories", memories_chart([(word, score.hbm_bytes)]), f"HBM of {word} by use", BAR + AROUND
            )
        ]
    return [
        Heading("Where a step goes" + ", and what fills HBM" * bool(memory), 2),
        Chart("steps", steps_chart(bars), f"Steps of the best layouts by part: {spoken}", height),
        *memory,
        Page([table], fold="The steps as a table"),
    ]


def score_at(found: Sweep, index: int) -> Score | None:
    """Return the score of a configuration with balanced experts; None of one that no plan may have."""
    cut = found.moe_tp[index] != 1 or found.batch[index] < 1 or found.tp[index] not in TP_WIDTHS
    if cut:
        return None
    deployment = found.deployment.with_batch(int(found.batch[index]))
    arrangement = found.variants[found.layout[index]].arrangement
    offered = fitted_layouts(deployment, None, "gpu", [arrangement])
    fit = next((one for one in offered if one.layout.tp == int(found.tp[index])), None)
    return None if fit is None else fit.scorer.at(fit.batch)


def _pools(pools: Pools | None) -> list[Block]:
    """Return matched pools: the best pairs at each speed."""
    if pools is None or not len(pools.matches):
        return []
    matches = pools.matches
    rows = [matches.row(int(index)) for index in matches.frontier()]
    best = matches.best()

    def usd(row: RateMatch) -> str:
        each = pools.totals(row).usd_per_million_tokens
        return "-" if each is None else dollars(each)

    table = Table.of(
        rows,
        ("tok/s/user", lambda row: f"{row.tok_s_per_user:,.1f}"),
        ("output tok/s/GPU", lambda row: f"{row.output_tok_s_per_gpu:,.0f}"),
        ("$/Mtok", usd),
        ("P:D", lambda row: f"{row.prefill_gpus}:{row.decode_gpus}"),
        ("TTFT s", lambda row: f"{row.ttft_s:,.2f}"),
        words=(3,),
    )
    chart = pools_chart(rows, best, measured_points(pools.decode.deployment, ("disaggregated",)))
    return [
        Heading(f"Both phases: prompts of {matches.isl:,.0f} and answers of {matches.osl:,.0f} tokens", 2),
        Chart("pools", chart, "Output tok/s/GPU of matched pools against tok/s/user", HEIGHT),
        Page([table], fold="The pairs of pools as a table"),
    ]


def _costs(found: Sweep, pools: Pools | None, chosen: _Best | None) -> list[Block]:
    best = None if pools is None else pools.matches.best()
    totals: Totals | None = None
    if pools is not None and best is not None:
        totals = pools.totals(best)
    elif chosen is not None:
        totals = found.totals(chosen.index)
    return [] if totals is None else [Heading("What it costs", 2), *totals_blocks(totals)]


def _inputs(sweeps: Sequence[Sweep], targets: Sequence[float]) -> list[Row]:
    rows = [
        *deployment_rows(sweeps[0].deployment, None)[:-2],
        *(("also swept", phase_words(found.deployment.workload)) for found in sweeps[1:]),
        ("experts", "as balanced as --imbalance says; no loads are taken"),
        ("price basis", sweeps[0].deployment.bill.price_basis),
        ("GPUs", plural(len(sweeps[0].deployment.cluster.gpus), "GPU")),
    ]
    changed = set_words(*(found.deployment.cluster for found in sweeps))
    if changed:
        rows.append(("set", changed))
    if targets:
        rows.append(("speeds", ", ".join(f"{target:g}" for target in targets)))
    return rows
