"""The page of a fleet: what it comes to, its pools on the cluster, step and HBM of each replica, the proof."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from placement.fleet.fleet import Fleet, Pool
from placement.fleet.plans import PoolPlan
from placement.plan import Plan
from rackplan.views.blocks import Block, Chart, Drawing, Heading, Items, Page, Table, Text
from rackplan.views.charts import gpus_chart, memories_chart, steps_chart
from rackplan.views.evidence import deployment_figures
from rackplan.views.fleet import (
    fleet_errors,
    fleet_title,
    fleet_totals,
    fleet_view,
    ground_blocks,
    models_of,
    pool_layout,
    pool_limit_blocks,
)
from rackplan.views.forward import forward, machine_words, rests_words, totals_line
from rackplan.views.money import totals_blocks
from rackplan.views.provenance import Row, deployment_rows, figures_section, inputs_section, terminal_fold
from rackplan.views.settings import set_words
from rackplan.views.words import chip_words, cluster_doubts, factor_words, sentence
from topology.base.units import plural
from topology.draw import Overlay

BAR, AROUND = 46, 130
MOST_KEY = 12
"""Pools that the drawing names."""


def fleet_page(
    fleet: Fleet,
    plans: Sequence[PoolPlan],
    *,
    command: str,
    sha256: Mapping[str, str] | None = None,
    drawing: str = "",
) -> list[Block]:
    """Return the page of a fleet; ``plans``: of each pool, none where none were made."""
    errors = fleet_errors(fleet)
    near = f"{sentence('; '.join(map(chip_words, errors)))} Of throughput {factor_words(errors)}."
    doubt = cluster_doubts(fleet.cluster)
    deployments = [one for pair, _ in models_of(fleet) for one in pair if one is not None]
    figures = [used for one in deployments for used in deployment_figures(one)]
    totals = fleet_totals(fleet)
    return [
        Heading(fleet_title(fleet)),
        *pool_limit_blocks(plans),
        forward(_line(fleet, plans)),
        Text(f"{plural(len(fleet.pools), 'pool')}: {_pools_words(fleet)}.", style="verdict"),
        *([Text(f"{doubt}.", style="verdict")] if doubt else []),
        _pools(fleet),
        Heading("Which GPUs do what", 2),
        Chart("gpus", gpus_chart(_counts(fleet)), f"GPUs by pool: {_counts_words(fleet)}", BAR + AROUND),
        *([Drawing(drawing)] if drawing else []),
        *_steps(fleet, plans),
        Heading("What it gives, and how near that is to the best", 2),
        *ground_blocks(fleet),
        Heading("What it costs", 2),
        *totals_blocks(totals),
        *inputs_section(command, _inputs(fleet), sha256),
        *figures_section(figures, [totals], [near] if errors else [], list(fleet.notes)),
        terminal_fold(fleet_view(fleet, plans, {})),
    ]


def fleet_overlay(fleet: Fleet) -> Overlay:
    """Return the pool of each GPU, for the drawing of the cluster."""
    count = len(fleet.cluster.gpus)
    tags, labels = [""] * count, [""] * count
    for number, pool in enumerate(fleet.pools):
        for place, replica in enumerate(pool.replicas):
            for gpu in replica.gpus:
                tags[gpu], labels[gpu] = f"P{number}", f"r{place}" if place < 1000 else ""
    key = [f"P{number}: {_pool_words(fleet, pool)}" for number, pool in enumerate(fleet.pools)]
    return Overlay(
        values=None,
        labels=labels,
        legend="",
        tags=tags,
        key=key[:MOST_KEY] + (["..."] if len(key) > MOST_KEY else []),
    )


def _line(fleet: Fleet, plans: Sequence[PoolPlan]) -> str:
    """Return the line that is sent on: of the GPUs in use and the spares where that many were asked for."""
    errors, totals = fleet_errors(fleet), fleet_totals(fleet)
    used = None if totals.gpus == len(fleet.cluster.gpus) else fleet.used()
    binding: dict[str, dict[str, None]] = {}
    for one, pool in zip(plans, fleet.pools, strict=False):
        if one.plan is not None:
            binding.setdefault(pool.role, {})[one.plan.score.bound_by] = None
    bound = [f"{' and '.join(names)} bind{'s' * (len(names) == 1)} {role}" for role, names in binding.items()]
    why = " and ".join([*([", ".join(bound)] if bound else []), rests_words(errors)])
    return f"{machine_words(fleet.cluster, used)}, {totals_line(totals, errors)}, because {why}."


def _pool_words(fleet: Fleet, pool: Pool) -> str:
    layout, each = pool_layout(fleet, pool), plural(pool.column.shape.gpus, "GPU")
    return f"{pool.role}, {len(pool.replicas)} x {layout} of {each}"


def _pools_words(fleet: Fleet) -> str:
    several = len(fleet.traffic.shares) > 1
    names = [decode.model.name for (decode, _), _ in models_of(fleet)]
    return "; ".join(
        (f"{names[pool.model]} " if several else "") + _pool_words(fleet, pool) for pool in fleet.pools
    )


def _pools(fleet: Fleet) -> Table:
    """Return the pools, narrow enough for a phone."""
    return Table.of(
        fleet.pools,
        ("pool", lambda pool: pool.role),
        ("layout", lambda pool: pool_layout(fleet, pool)),
        ("replicas", lambda pool: f"{len(pool.replicas)} x {pool.column.shape.gpus}"),
        ("tok/s", lambda pool: f"{pool.tok_s:,.0f}"),
        ("step ms", lambda pool: f"{pool.column.step_s * 1e3:,.1f}"),
        words=(0, 1),
    )


def _counts(fleet: Fleet) -> list[tuple[str, int]]:
    """Return the GPUs of each pool, and those in none."""
    idle = len(fleet.cluster.gpus) - fleet.gpus_used
    counts = [(f"P{number} {pool.role}", pool.gpus) for number, pool in enumerate(fleet.pools)]
    return [*counts, *([("idle", idle)] if idle else [])]


def _counts_words(fleet: Fleet) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in _counts(fleet))


def _steps(fleet: Fleet, plans: Sequence[PoolPlan]) -> list[Block]:
    """Return the step and HBM of each kind of replica with its experts placed; why one has none."""
    missing = [
        f"No plan of pool {number}: {one.reason}" for number, one in enumerate(plans) if one.plan is None
    ]
    made: list[tuple[str, Plan]] = [
        (f"P{number} {pool.role}", one.plan)
        for number, (one, pool) in enumerate(zip(plans, fleet.pools, strict=False))
        if one.plan is not None
    ]
    if not made:
        return [Items(missing)] if missing else []
    names = list(dict.fromkeys(term for _, plan in made for term in plan.score.terms_s))
    table = Table(
        ("part of the step, ms", *(name for name, _ in made)),
        [
            (name.replace("_", " "), *(f"{plan.score.terms_s.get(name, 0.0) * 1e3:,.2f}" for _, plan in made))
            for name in names
        ],
    )
    charts: list[Block] = []
    for role in dict.fromkeys(
        name.partition(" ")[2] for name, _ in made
    ):  # a prompt takes far longer than a token
        mine = [(name, plan.score) for name, plan in made if name.endswith(f" {role}")]
        spoken = "; ".join(f"{name} {score.step_s * 1e3:,.1f} ms" for name, score in mine)
        steps = steps_chart([(name, score.terms_s) for name, score in mine])
        charts.append(
            Chart(f"steps-{role}", steps, f"Steps of {role} by part: {spoken}", BAR * len(mine) + AROUND)
        )
    held = memories_chart([(name, plan.score.hbm_bytes) for name, plan in made])
    return [
        Heading("The step and HBM of each kind of replica", 2),
        *charts,
        Chart(
            "memories",
            held,
            "HBM of the fullest GPU of each kind of replica by use",
            BAR * len(made) + AROUND,
        ),
        Page([table], fold="The steps as a table"),
        Items(missing),
    ]


def _inputs(fleet: Fleet) -> list[Row]:
    traffic, asked = fleet.traffic, fleet.options
    rows: list[Row] = []
    for (decode, _), share in models_of(fleet):
        rows += [
            row for row in deployment_rows(decode, None) if row[0] in ("model", "config.json", "precision")
        ]
        rows.append(("share of the requests", f"{share:.1%}"))
    lengths = f"{traffic.isl:,} + {traffic.osl:,}" if traffic.isl else "decode alone"
    limits = [
        f"{limit * 1e3:g} ms {word}"
        for limit, word in ((traffic.tpot_s, "a token"), (traffic.ttft_s, "to the first token"))
        if limit is not None
    ]
    changed = set_words(fleet.cluster)
    return [
        *rows,
        ("cluster", f"{fleet.cluster.name}: {plural(len(fleet.cluster.gpus), 'GPU')}"),
        *([("set", changed)] if changed else []),
        ("tokens of prompt and answer", lengths),
        ("limits", "; ".join(limits) or "none"),
        ("goal", asked.wanted),
        ("tok/s asked for", "as many as there are" if asked.tok_s is None else f"{asked.tok_s:,.0f}"),
        ("utilization", f"{asked.utilization:g}"),
        ("spares", f"{asked.spares}"),
        ("seed", f"{asked.seed}"),
        ("price basis", fleet_totals(fleet).price_basis),
    ]
