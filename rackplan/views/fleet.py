"""View of a fleet: pools, totals, idle GPUs with reasons, and the proof."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from pydantic.dataclasses import dataclass

from cost.serving.pools import POOL_DERATE
from cost.serving.supply import ProofData
from cost.step.score import Score
from placement.analysis.evidence import deployment_figures
from placement.fleet.fleet import Fleet, Pool
from placement.fleet.options import BOTH, DECODE, PREFILL
from rackplan.report.notes import (
    accuracy_words,
    band_words,
    chip_words,
    cluster_doubts,
    recipe_lines,
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
    sections,
)
from rackplan.views.data import LEFT_OUT, Maybe, SetFigureData, taken
from rackplan.views.forward import headline, machine_words
from rackplan.views.money import rate_words, totals_blocks
from rackplan.views.provenance import Row, deployment_rows, figures_section, inputs_section
from rackplan.views.settings import set_blocks, set_data, set_words
from rackplan.views.words import limit_blocks, what_if_blocks
from topology.base.units import plural
from topology.cluster import Cluster
from topology.draw import Overlay

BAR, AROUND = 46, 130
"""Pixels of a bar, and of a chart of bars around them."""
MOST_KEY = 12
"""Pools that the drawing names."""
MOST_RUNS = 4
"""Runs of domains that are named in a row of the table."""


@dataclass(frozen=True, kw_only=True)
class ShareData:
    """A model of a fleet.

    Attributes
    ----------
    model, share:
        Its name, and its part of the requests.
    """

    model: str
    share: float


@dataclass(frozen=True, kw_only=True)
class FleetInputsData:
    """Request of a fleet.

    Attributes
    ----------
    models:
        With their shares.
    isl, osl, context:
        Tokens of a prompt and of an answer, or in each sequence where decode alone is served.
    tok_s, utilization, spares:
        Output tokens a second (null: as many as there are), mean over peak, and domains kept for failures.
    tpot_s, ttft_s:
        Longest time per token and to the first one; null: no limit.
    price_basis:
        Whose price of a GPU-hour.
    """

    models: list[ShareData]
    isl: int | None
    osl: int | None
    context: int | None
    tok_s: float | None
    utilization: float
    spares: int
    tpot_s: float | None
    ttft_s: float | None
    price_basis: str


@dataclass(frozen=True, kw_only=True)
class PlacedData:
    """A replica with experts placed for given loads.

    Attributes
    ----------
    batch, tok_s, step_s, limit_s, over_limit:
        Of its plan (the last two as in the ``score`` of a plan).
    """

    batch: float
    tok_s: float
    step_s: float
    limit_s: float | None
    over_limit: float | None


@dataclass(frozen=True, kw_only=True)
class ReplicaData:
    """A replica.

    Attributes
    ----------
    gpus, stages:
        Ids of its GPUs, and those of each pipeline stage.
    """

    gpus: list[str]
    stages: list[list[str]]


@dataclass(frozen=True, kw_only=True)
class FleetPoolData:
    """Replicas of a shape.

    Attributes
    ----------
    role, model:
        ``decode``, ``prefill`` or ``both``, and of which model.
    plan, no_plan:
        File of the plan of one (null: none was written), and why there is none.
    layout, gpus_per_replica, gpu:
        Of each replica.
    batch, step_s, tok_s, tok_s_per_replica, requests_per_s, share:
        Sequences per GPU in use on average and the step at its requests; tokens of all and of one at most, requests
        that it serves (null: decode alone), and their part of a phase.
    placed:
        With experts placed under loads; null: no plan was made.
    replicas:
        Where each lies.
    """

    role: str
    model: str
    plan: str | None
    no_plan: str | None
    layout: str
    gpus_per_replica: int
    gpu: str
    batch: float
    step_s: float
    tok_s: float
    tok_s_per_replica: float
    requests_per_s: float | None
    share: float
    placed: PlacedData | None
    replicas: list[ReplicaData]


@dataclass(frozen=True, kw_only=True)
class FleetTotalsData:
    """Throughput, cost and power of a fleet.

    Attributes
    ----------
    gpus, gpus_used, gpus_idle, gpus_broken, gpus_paid:
        That work, in use, idle, out of service, and paid for.
    tok_s, tok_s_per_gpu, tok_s_per_gpu_used:
        Output tokens of all, over GPUs that work, over those in use.
    input_tok_s, requests_per_s:
        Null where decode alone is served.
    usd_per_hour, usd_per_million_tokens, power_w, tok_s_per_mw:
        Null where there is no figure.
    """

    gpus: int
    gpus_used: int
    gpus_idle: int
    gpus_broken: int
    tok_s: float
    tok_s_per_gpu: float
    tok_s_per_gpu_used: float
    input_tok_s: float | None
    requests_per_s: float | None
    gpus_paid: int
    usd_per_hour: float | None
    usd_per_million_tokens: float | None
    power_w: float | None
    tok_s_per_mw: float | None


@dataclass(frozen=True, kw_only=True)
class FleetProofData(ProofData):
    """Proof of a fleet.

    Attributes
    ----------
    of, search:
        What objective and bound are of, and what ran.
    interrupted:
        Whether Ctrl-C ended the search: it is the best so far.
    """

    of: str
    search: str
    interrupted: bool


@dataclass(frozen=True, kw_only=True)
class IdleData:
    """GPUs without work.

    Attributes
    ----------
    gpus, reason:
        Their ids, and why.
    """

    gpus: list[str]
    reason: str


@dataclass(frozen=True, kw_only=True)
class UniformData:
    """The best fleet of one layout for each pool, of one pool or two.

    Attributes
    ----------
    tok_s, gpus_used, layout:
        What it gives, on how many, in which layout.
    """

    tok_s: float
    gpus_used: int
    layout: str


@dataclass(frozen=True, kw_only=True)
class FleetPrinted:
    """Output of ``rackplan fleet``: replicas of different shapes.

    Attributes
    ----------
    cluster, goal, inputs:
        Where, what is best, and what was asked.
    pools, totals:
        Replicas by shape, and what they come to.
    missing:
        What has no figure, and how to give it.
    proof:
        What is proven.
    idle, broken:
        GPUs without work, and ids of those out of service.
    uniform:
        The best of one layout; null: not compared.
    notes:
        What a reader should know.
    set:
        The figures that were set by the user; absent where none was.
    """

    cluster: str
    set: Maybe[list[SetFigureData]] = LEFT_OUT
    goal: str
    inputs: FleetInputsData
    pools: list[FleetPoolData]
    totals: FleetTotalsData
    missing: list[str]
    proof: FleetProofData
    idle: list[IdleData]
    broken: list[str]
    uniform: UniformData | None
    notes: list[str]


@dataclass(frozen=True, kw_only=True)
class FleetFileData(FleetPrinted):
    """``fleet.json``: output of ``rackplan fleet`` and its inputs.

    Attributes
    ----------
    command, sha256:
        The command line, and digests of the files that were read, by name.
    """

    command: str
    sha256: dict[str, str]


def fleet_title(fleet: Fleet) -> str:
    """Return models, cluster and lengths."""
    names = [f"{decode.model.name} {share:.0%}" for (decode, _), share in models_of(fleet)]
    models = names[0].rpartition(" ")[0] if len(names) == 1 else " + ".join(names)
    gpus = plural(len(fleet.cluster.gpus), "GPU")
    return f"Fleet for {models} on {fleet.cluster.name} ({gpus}), {lengths_words(fleet)}"


def fleet_view(fleet: Fleet, files: Mapping[str, str]) -> View:
    """Return the result of ``rackplan fleet``; ``files``: the files written, by kind."""
    written = labelled("Written", ", ".join(files.values()))
    return View([*fleet_blocks(fleet), *written], fleet_data(fleet))


def fleet_blocks(
    fleet: Fleet,
    *,
    drawing: str = "",
    command: str = "",
    sha256: Mapping[str, str] | None = None,
) -> list[Block]:
    """Return a fleet as shown on a terminal and in the report.

    Only the report has ``drawing``, the SVG file of the cluster with the pools on it, and ``command`` and the digests
    ``sha256`` of its inputs.
    """
    first = fleet.traffic.deployments[0][0]
    return sections(
        _pool_limits(fleet),
        [Heading(fleet_title(fleet)), Page(lambda: _summary(fleet)), *_answer(fleet)],
        [
            *labelled("Note", *fleet.notes),
            *what_if_blocks(first),
            *set_blocks("Set", fleet.cluster),
            *labelled("Status", cluster_doubts(fleet.cluster)),
        ],
        [
            Details(
                sections(
                    [Heading("Pools", 2), pool_table(fleet)],
                    [*_idle(fleet), *_compared(fleet), *labelled("Search", fleet.search)],
                    [
                        *_derates(fleet),
                        *labelled("Recipe", *recipe_lines(*(one for one, *_ in fleet.traffic.deployments))),
                        *labelled("Plans", *_plan_words(fleet)),
                    ],
                )
            ),
            Page(lambda: _pictures(fleet, drawing)),
            Page(lambda: inputs_section(command, _inputs(fleet), sha256)),
            Page(lambda: _figures(fleet)),
        ],
    )


def _answer(fleet: Fleet) -> list[Block]:
    """Return pools, throughput, speed, cost, limits and proof."""
    roles = dict.fromkeys(pool.role for pool in fleet.pools)
    name = {(BOTH,): "One pool", (PREFILL, DECODE): "Two pools"}.get(tuple(roles), "Pools")
    idle, more = len(fleet.cluster.gpus) - fleet.gpus_used, "; and others" * (len(fleet.idle) > 1)
    words = f"{plural(idle, 'GPU')}: {fleet.idle[0].reason}{more}" if idle else ""
    return [
        *labelled(name, _pools_words(fleet)),
        *_together(fleet),
        *labelled("Speed", _speed_words(fleet)),
        *totals_blocks(fleet.totals),
        *labelled("Idle", words),
        *labelled("Limits", f"met: {_limit_words(fleet)}"),
        *labelled("Goal", _proof_words(fleet)),
    ]


def _pools_words(fleet: Fleet) -> str:
    """Return the replicas of each role, grouped by layout."""
    found: dict[str, dict[str, int]] = {}
    for pool in fleet.pools:
        what = "both phases" if pool.role == BOTH else pool.role
        model = f" of {_model(fleet, pool)}" * (len(fleet.traffic.shares) > 1)
        each = f"{plural(pool.column.shape.gpus, 'GPU')} ({pool_layout(fleet, pool)})"
        of = found.setdefault(what + model, {})
        of[each] = of.get(each, 0) + len(pool.replicas)
    return "; ".join(
        f"{what} on {', '.join(f'{many} x {each}' for each, many in of.items())}"
        for what, of in found.items()
    )


def _speed_words(fleet: Fleet) -> str:
    """Return the speed of the slowest users, and the time to their first token."""
    traffic = fleet.traffic
    decoding = [pool for pool in fleet.pools if pool.role != PREFILL]
    speed = min(
        traffic.deployment(pool.model, pool.role).workload.tokens_per_step / pool.step_s for pool in decoding
    )
    first = [
        pool.column.step_s + pool.column.besides_s for pool in fleet.pools if PREFILL in pool.column.phases
    ]
    soon = f"; first token within {max(first):,.2f} s, queueing excluded" if first else ""
    return f"{speed:,.1f} tok/s/user or more{soon}"


def _summary(fleet: Fleet) -> list[Block]:
    """Return the headline and the GPUs by pool; with a required rate, for the GPUs in use."""
    totals = fleet.totals
    used = None if totals.gpus == len(fleet.cluster.gpus) else fleet.used()
    requests = "" if totals.requests_per_s is None else f", {rate_words(totals.requests_per_s)} requests/s"
    answer = f"{rate_words(totals.tok_s)} {totals.tokens} tok/s{requests} at {_speed_words(fleet)}"
    machine, doubts = machine_words(fleet.cluster, used), cluster_doubts(fleet.cluster)
    return [*headline(answer, machine, totals, fleet.errors, doubts), _gpus(fleet)]


def _pool_names(fleet: Fleet) -> list[str]:
    return [f"P{number} {pool.role}" for number, pool in enumerate(fleet.pools)]


def _gpus(fleet: Fleet) -> Chart:
    from rackplan.views.charts import gpus_chart

    idle = len(fleet.cluster.gpus) - fleet.gpus_used
    counts = [(name, pool.gpus) for name, pool in zip(_pool_names(fleet), fleet.pools, strict=True)]
    counts += [("idle", idle)] if idle else []
    spoken = ", ".join(f"{name} {count:,}" for name, count in counts)
    return Chart("gpus", gpus_chart(counts), f"GPUs by pool: {spoken}", BAR + AROUND)


def _pictures(fleet: Fleet, drawing: str) -> list[Block]:
    """Return the pools on the cluster, and step and HBM of each kind of replica with placed experts."""
    from rackplan.views.charts import memories_chart, steps_chart

    names = _pool_names(fleet)
    blocks: list[Block] = [Heading("GPUs by pool", 2), Drawing(drawing)] if drawing else []
    made = [
        (pool.role, name, one.plan.score)
        for name, pool, one in zip(names, fleet.pools, fleet.plans, strict=False)
        if one.plan is not None
    ]
    if not made:
        return blocks
    blocks.append(Heading("Step time and HBM use by kind of replica", 2))
    for role in dict.fromkeys(role for role, *_ in made):  # a prompt takes far longer than a token
        mine = [(name, score) for each, name, score in made if each == role]
        spoken = "; ".join(f"{name} {score.step_s * 1e3:,.1f} ms" for name, score in mine)
        steps = steps_chart([(name, score.terms_s) for name, score in mine])
        high = BAR * len(mine) + AROUND
        blocks.append(Chart(f"steps-{role}", steps, f"Steps of {role} by part: {spoken}", high))
    held = memories_chart([(name, score.hbm_bytes) for _, name, score in made])
    says = "HBM of the fullest GPU of each kind of replica by use"
    parts = dict.fromkeys(term for *_, score in made for term in score.terms_s)
    table = Table.of(
        parts,
        ("part of the step, ms", lambda part: part.replace("_", " ")),
        *((name, partial(_part_ms, score)) for _, name, score in made),
    )
    return [
        *blocks,
        Chart("memories", held, says, BAR * len(made) + AROUND),
        Page([table], fold="Steps as a table"),
    ]


def _part_ms(score: Score, part: str) -> str:
    return f"{score.terms_s.get(part, 0.0) * 1e3:,.2f}"


def _inputs(fleet: Fleet) -> list[Row]:
    traffic, options = fleet.traffic, fleet.options
    rows: list[Row] = []
    for (decode, _), share in models_of(fleet):
        known = deployment_rows(decode, None)
        rows += [row for row in known if row[0] in ("model", "config.json", "precision")]
        rows.append(("share of requests", f"{share:.1%}"))
    lengths = f"{traffic.isl:,} + {traffic.osl:,}" if traffic.isl else "decode only"
    limits = [
        f"{limit * 1e3:g} ms {word}"
        for limit, word in ((traffic.tpot_s, "per token"), (traffic.ttft_s, "to first token"))
        if limit is not None
    ]
    changed = set_words(fleet.cluster)
    return [
        *rows,
        ("cluster", f"{fleet.cluster.name}: {plural(len(fleet.cluster.gpus), 'GPU')}"),
        *([("set", changed)] if changed else []),
        ("tokens of prompt and answer", lengths),
        ("limits", "; ".join(limits) or "none"),
        ("goal", options.wanted),
        ("required tok/s", "maximum" if options.tok_s is None else f"{options.tok_s:,.0f}"),
        ("utilization", f"{options.utilization:g}"),
        ("spares", f"{options.spares}"),
        ("seed", f"{options.seed}"),
        ("price basis", fleet.totals.price_basis),
    ]


def _figures(fleet: Fleet) -> list[Block]:
    deployments = [one for pair, _ in models_of(fleet) for one in pair if one is not None]
    used = [figure for one in deployments for figure in deployment_figures(one)]
    errors = fleet.errors
    near = [sentence(text) for text in (*map(chip_words, errors), accuracy_words(errors)) if text]
    return figures_section(used, [fleet.totals], near, list(fleet.notes))


def fleet_overlay(fleet: Fleet) -> Overlay:
    """Return the pool of each GPU, for the drawing of the cluster."""
    count = len(fleet.cluster.gpus)
    tags, labels = [""] * count, [""] * count
    key = []
    for number, pool in enumerate(fleet.pools):
        for place, replica in enumerate(pool.replicas):
            for gpu in replica.gpus:
                tags[gpu], labels[gpu] = f"P{number}", f"r{place}" if place < 1000 else ""
        each = f"{pool_layout(fleet, pool)} of {plural(pool.column.shape.gpus, 'GPU')}"
        key.append(f"P{number}: {pool.role}, {len(pool.replicas)} x {each}")
    more = ["..."] if len(key) > MOST_KEY else []
    return Overlay(values=None, labels=labels, legend="", tags=tags, key=key[:MOST_KEY] + more)


def _pool_limits(fleet: Fleet) -> list[Block]:
    """Return the limits that plans of pools exceed."""
    made = [(number, one.plan) for number, one in enumerate(fleet.plans) if one.plan is not None]
    return [block for number, plan in made for block in limit_blocks(plan, f"Plan {number}")]


def fleet_data(fleet: Fleet) -> FleetPrinted:
    """Return the fleet as data."""
    traffic, options, cluster, totals = fleet.traffic, fleet.options, fleet.cluster, fleet.totals
    healthy, both = len(cluster.gpus), traffic.isl > 0
    requests_per_s = fleet.requests_per_s if both else None
    return FleetPrinted(
        cluster=cluster.name,
        **set_data(cluster),
        goal=options.wanted,
        inputs=taken(
            FleetInputsData,
            traffic,
            models=[
                ShareData(model=decode.model.name, share=share) for (decode, _), share in models_of(fleet)
            ],
            isl=traffic.isl if both else None,
            osl=traffic.osl if both else None,
            context=None if both else traffic.deployments[0][0].workload.context,
            tok_s=options.tok_s,
            utilization=options.utilization,
            spares=options.spares,
            price_basis=totals.price_basis,
        ),
        pools=[_pool_data(fleet, number) for number in range(len(fleet.pools))],
        totals=taken(
            FleetTotalsData,
            totals,
            gpus=healthy,
            gpus_used=fleet.gpus_used,
            gpus_idle=healthy - fleet.gpus_used,
            gpus_broken=len(_broken(cluster)),
            tok_s=fleet.tok_s,
            tok_s_per_gpu=fleet.tok_s / healthy,
            tok_s_per_gpu_used=fleet.tok_s / fleet.gpus_used,
            input_tok_s=fleet.requests_per_s * traffic.isl if both else None,
            requests_per_s=requests_per_s,
            gpus_paid=totals.gpus,
        ),
        missing=list(totals.missing),
        proof=taken(
            FleetProofData,
            fleet.proof,
            of=fleet.unit,
            search=fleet.search,
            interrupted=fleet.interrupted,
        ),
        idle=[IdleData(gpus=_gpu_ids(cluster, one.gpus), reason=one.reason) for one in fleet.idle],
        broken=_broken(cluster),
        uniform=None
        if fleet.uniform is None
        else taken(UniformData, fleet.uniform, layout=fleet.uniform.label),
        notes=list(fleet.notes),
    )


def plan_name(number: int) -> str:
    """Return the file of the plan of a pool, inside the folder of the fleet."""
    return f"plan-{number}/plan.json"


def _pool_data(fleet: Fleet, number: int) -> FleetPoolData:
    pool, cluster = fleet.pools[number], fleet.cluster
    made, column = pool.plan, pool.column
    found = made.plan if made else None
    placed = None
    if found is not None:
        placed = taken(
            PlacedData,
            found,
            batch=found.deployment.workload.batch,
            tok_s=column.tok_s,
            step_s=found.score.step_s,
        )
    return FleetPoolData(
        role=pool.role,
        model=_model(fleet, pool),
        plan=None if found is None else plan_name(number),
        no_plan=made.reason if made and found is None else None,
        layout=pool_layout(fleet, pool),
        gpus_per_replica=column.shape.gpus,
        gpu=_gpu_names(fleet, pool),
        batch=fleet.batch(pool),
        step_s=pool.step_s,
        tok_s=pool.tok_s,
        tok_s_per_replica=column.tok_s,
        requests_per_s=fleet.requests_per_s * pool.share if fleet.traffic.isl else None,
        share=pool.share,
        placed=placed,
        replicas=[
            ReplicaData(
                gpus=_gpu_ids(cluster, replica.gpus),
                stages=[_gpu_ids(cluster, stage) for stage in replica.stages],
            )
            for replica in pool.replicas
        ],
    )


def _gpu_ids(cluster: Cluster, gpus: Iterable[int]) -> list[str]:
    return [cluster.gpus[gpu].id for gpu in gpus]


def models_of(fleet: Fleet) -> list[Any]:
    """Return the deployments of each model with its share of the requests."""
    return list(zip(fleet.traffic.deployments, fleet.traffic.shares, strict=True))


def _model(fleet: Fleet, pool: Pool) -> str:
    return fleet.traffic.deployments[pool.model][0].model.name


def pool_layout(fleet: Fleet, pool: Pool) -> str:
    """Return the layout of a pool's replicas in a few letters."""
    moe = fleet.traffic.deployments[pool.model][0].model.moe is not None
    return pool.column.label(moe=moe)


def _gpu_names(fleet: Fleet, pool: Pool) -> str:
    names = dict.fromkeys(fleet.cluster.domain_of(gpu).gpu.name for gpu in pool.replicas[0].gpus)
    return " + ".join(names)


def lengths_words(fleet: Fleet) -> str:
    """Return prompt and answer lengths in words."""
    traffic = fleet.traffic
    if traffic.isl:
        return f"prompts of {traffic.isl:,} and answers of {plural(traffic.osl, 'token')}"
    return f"decode at {plural(traffic.deployments[0][0].workload.context, 'token')} of context"


def pool_table(fleet: Fleet) -> Table:
    """Return a row for each pool, as wide as a terminal."""
    several, kinds = len(fleet.traffic.shares) > 1, len({d.gpu.name for d in fleet.cluster.spec.domains}) > 1
    columns: list[tuple[str, Any]] = [("pool", lambda pool: pool.role)]
    if several:
        columns.append(("model", lambda pool: _model(fleet, pool)))
    columns += [
        ("replicas", lambda pool: f"{len(pool.replicas)} x {pool.column.shape.gpus}"),
        ("layout", lambda pool: pool_layout(fleet, pool)),
    ]
    if kinds:
        columns.append(("GPU", lambda pool: _gpu_names(fleet, pool)))
    columns += [
        ("batch", lambda pool: f"{fleet.batch(pool):.4g}"),
        ("tok/s", lambda pool: f"{pool.tok_s:,.0f}"),
        ("share", lambda pool: f"{pool.share:.1%}"),
        ("step ms", lambda pool: f"{pool.step_s * 1e3:,.1f}"),
        ("domains", lambda pool: _where(fleet.cluster, pool)),
    ]
    table = Table.of(fleet.pools, *columns)
    if any(one.plan is not None for one in fleet.plans):
        names = [str(number) if one.plan else "-" for number, one in enumerate(fleet.plans)]
        rows = [(*row, name) for row, name in zip(table.rows, names, strict=True)]
        table = replace(table, columns=[*table.columns, "plan"], rows=rows)
    return table.narrowed()


def _where(cluster: Cluster, pool: Pool) -> str:
    """Return the domains of a pool as runs: ``d0-d7``."""
    domains = sorted({cluster.gpus[gpu].domain for replica in pool.replicas for gpu in replica.gpus})
    runs: list[list[int]] = []
    for domain in domains:
        if runs and runs[-1][-1] == domain - 1:
            runs[-1].append(domain)
        else:
            runs.append([domain])
    words = [f"d{run[0]}-d{run[-1]}" if len(run) > 1 else f"d{run[0]}" for run in runs]
    return ",".join(words[:MOST_RUNS]) + ",..." * (len(words) > MOST_RUNS)


def _together(fleet: Fleet) -> list[Block]:
    healthy, used = len(fleet.cluster.gpus), fleet.gpus_used
    rate = fleet.tok_s / healthy
    text = f"{rate:,.0f} output tok/s/GPU{band_words(rate, fleet.errors)} over the {healthy:,} working GPUs"
    text += f", {fleet.tok_s / used:,.0f} over the {used:,} in use" if used < healthy else ", none idle"
    options = fleet.options
    if options.tok_s is not None:
        text += f"; required: {options.tok_s:,.0f} output tok/s"
        if options.utilization < 1:
            text += f" on average, {options.peak_tok_s:,.0f} at peak (utilization {options.utilization:g})"
    return labelled("Throughput", text)


def _idle(fleet: Fleet) -> list[Block]:
    broken = len(_broken(fleet.cluster))
    words = [f"{plural(len(one.gpus), 'GPU')}: {one.reason}" for one in fleet.idle]
    out = f"{plural(broken, 'GPU')} out of service, not counted above" if broken else ""
    return [*labelled("Idle", *(words or ["none"])), *labelled("Broken", out)]


def _broken(cluster: Cluster) -> list[str]:
    return [fault.gpu for fault in cluster.spec.faults if fault.gpu is not None and fault.factor == 0]


def _compared(fleet: Fleet) -> list[Block]:
    best = fleet.uniform
    if best is None:
        return []
    gain = round(fleet.tok_s / best.tok_s - 1, 4) + 0.0  # no minus before nothing
    text = f"{best.label}: {best.tok_s:,.0f} output tok/s on {plural(best.gpus_used, 'GPU')}; this fleet {gain:+.1%}"
    return labelled("Uniform", text)


def _proof_words(fleet: Fleet) -> str:
    proof = fleet.proof
    word = "at most" if fleet.options.wanted == "throughput" else "at least"
    most = f", {word} {_figure(proof.bound)}" * (proof.status != "OPTIMAL")
    figure = f"{_figure(proof.objective)} {fleet.unit}"
    return f"{fleet.options.wanted}: {figure}, {proof.status}{most}, gap {proof.gap:.2%}"


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:,.4g}"


def _limit_words(fleet: Fleet) -> str:
    """Return the limits that the fleet meets; plans that exceed them are shown first."""
    traffic = fleet.traffic
    limits = [("tpot_s", traffic.tpot_s, "per token")]
    if traffic.isl:
        limits.append(("ttft_s", traffic.ttft_s, "to first token"))
    return "; ".join(
        f"no limit on time {word}"
        if limit_s is None
        else f"{limit_s * 1e3:,g} ms {word}" + " (default)" * (name in traffic.usual)
        for name, limit_s, word in limits
    )


def _derates(fleet: Fleet) -> list[Block]:
    traffic, parts = fleet.traffic, list[Block]()
    path = fleet.priced[0].path
    if path is not None and any(pool.role != BOTH for pool in fleet.pools):
        parts += labelled(
            "Derate",
            f"two pools serve {POOL_DERATE.value:g} of the rate of the slower pool "
            f"({POOL_DERATE.kind.label}); caches move over {path.name} at {path.bytes_per_s / 1e9:,.1f} GB/s "
            f"per GPU ({path.reach.kind.label})",
        )
    words = (
        "output tokens for decode, input tokens for prefill" if PREFILL in traffic.phases else "output tokens"
    )
    shares = "" if len(traffic.phases) == 1 else "; shares are per phase"
    return [*parts, Text(f"tok/s of all replicas of a pool before derating: {words}{shares}.", "Table")]


def _plan_words(fleet: Fleet) -> list[str]:
    made = sum(one.plan is not None for one in fleet.plans)
    words = [f"{made} kinds of replicas, each with placed experts" if made > 1 else "1 kind"] if made else []
    return words + [
        f"no plan for pool {number}: {one.reason}"
        for number, one in enumerate(fleet.plans)
        if one.plan is None
    ]
