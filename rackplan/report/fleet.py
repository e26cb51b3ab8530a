"""Document of a fleet: pools of replicas on a cluster, what they serve and cost, the proof, and idle GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from placement.fleet.fleet import Fleet, Pool
from placement.fleet.options import BOTH, PREFILL
from rackplan.report import notes, shared
from rackplan.report.doc import Block, Chart, Doc, Late, Layer, Note, Picture, Record, Row, Shape, Table
from rackplan.report.fields import FIELDS, said
from rackplan.report.pictures.overlay import fleet_overlay
from topology.base.units import plural
from topology.draw import cluster_svg

FLEET_ROOT = Record.of(
    "",
    "asked_tok_s tok_s requests_per_s tok_s_per_gpu tok_s_per_user ttft_s tpot_limit_s ttft_limit_s "
    "usd_per_million_tokens power_w tok_s_per_mw gpus_idle | cluster goal isl osl context utilization spares "
    f"{shared.TOTALS} {shared.USED} input_tok_s low_tok_s_per_gpu high_tok_s_per_gpu gpus_working gpus_broken broken",
    tiles="tok_s tok_s_per_gpu tok_s_per_user usd_per_million_tokens power_w",
)
MODELS = Table.of("models", "model requests_share", "Models")
POOLS = Table.of(
    "pools",
    "pool role model layout gpu_type workers gpus_per_worker batch tok_s step_s | gpus stage_gpus tok_s_per_replica "
    "requests_per_s requests_share plan no_plan over_limit",
    "Pools",
    most=8,
)
REPLICAS = Table.of("replicas", "pool replica gpu_ids", "Replicas", most=0)
IDLE = Table.of("idle", "count reason | gpu_ids", "Idle GPUs")
PROOF = Record.of("proof", "status objective bound gap objective_of search interrupted", "Proof")
UNIFORM = Record.of("uniform", "layout tok_s gpus_used gain", "Best of one layout, and the gain of the fleet")
_BY_POOL = Table.of("", "cluster pool gpus")
MADE = Record.of("", "command", most=0)
DIGESTS = Table.of("digests", "name sha256", "Files that were read", most=0)
_TABLES = (FLEET_ROOT, MODELS, POOLS, REPLICAS, IDLE, PROOF, UNIFORM, MADE, DIGESTS)
FLEET = Shape(
    "fleet",
    "Replicas of different shapes on a cluster; the file has also the command and what it read.",
    (*_TABLES, shared.ACCURACY, shared.BILL, shared.SET),
)


def fleet_doc(fleet: Fleet) -> Doc:
    """Return the document of ``rackplan fleet``."""
    cluster, traffic, best = fleet.cluster, fleet.traffic, fleet.uniform
    ids = [gpu.id for gpu in cluster.gpus]
    row, pools = _root(fleet), POOLS(_pool(fleet, number, pool) for number, pool in enumerate(fleet.pools))
    parts = [(cluster.name, f"{line['pool']} {line['role']}", line["gpus"]) for line in pools.rows]
    parts += [(cluster.name, "idle", len(ids) - fleet.gpus_used)] * (len(ids) > fleet.gpus_used)
    bars = Layer("bar", _BY_POOL(parts), "gpus", "cluster", "pool")
    models = [decode.model.name for decode, _ in traffic.deployments]
    lengths = notes.phase_words(traffic.deployments[0][0].workload)
    if traffic.isl:
        lengths = f"prompts of {traffic.isl:,} and answers of {plural(traffic.osl, 'token')}"
    alone = UNIFORM.row(best, layout=best.label, gain=fleet.tok_s / best.tok_s - 1) if best else None
    recipes = notes.recipe_lines(*(decode for decode, _ in traffic.deployments))
    return Doc(
        FLEET,
        f"Fleet for {' + '.join(models)} on {cluster.name}, {lengths}",
        [_served(fleet, row), shared.price_sentence(row), _proven(fleet)],
        [
            *_warnings(fleet),
            FLEET_ROOT(row),
            *shared.missing_notes(fleet.totals),
            shared.set_table(cluster),
            pools,
            Chart("GPUs by pool", [bars], stacked=True, height=176),
            Picture(
                "cluster",
                "The pool of each GPU",
                lambda: cluster_svg(cluster, fleet_overlay(fleet)),
                title="Pools on the cluster",
                scene=True,
            ),
            *(Note(notes.sentence(text)) for text in _remarks(fleet, row)),
            Note(shared.accuracy_sentence(fleet.errors)),
        ],
        [
            IDLE((len(idle.gpus), idle.reason, [ids[gpu] for gpu in idle.gpus]) for idle in fleet.idle),
            PROOF(PROOF.row(fleet.proof, fleet, objective_of=fleet.unit)),
            UNIFORM(alone),
            MODELS(zip(models, traffic.shares, strict=True)),
            REPLICAS(
                (f"P{number}", place, [ids[gpu] for gpu in replica.gpus])
                for number, pool in enumerate(fleet.pools)
                for place, replica in enumerate(pool.replicas)
            ),
            Late(lambda: list(_parts(fleet))),
            shared.BILL(shared.bill_rows(cluster.name, fleet.totals)),
            shared.ACCURACY(shared.accuracy_row(error, cluster.name) for error in fleet.errors),
            shared.ACCURACY_METHOD,
            *(Note(notes.sentence(text)) for text in recipes),
            shared.used_figures(*(one for pair in traffic.deployments for one in pair if one)),
        ],
        frame=lambda: pools.data,
    )


def plan_name(number: int) -> str:
    """Return the file of the plan of a pool, inside the folder of the fleet."""
    return f"plan-{number}/plan.json"


def _root(fleet: Fleet) -> Row:
    traffic, both, totals = fleet.traffic, fleet.traffic.isl > 0, shared.totals_row(fleet.totals)
    speeds = (
        traffic.deployment(pool.model, pool.role).workload.tokens_per_step / pool.step_s
        for pool in fleet.pools
        if pool.role != PREFILL
    )
    reading = [pool.column for pool in fleet.pools if PREFILL in pool.column.phases]
    broken = [fault.gpu for fault in fleet.cluster.spec.faults if fault.gpu is not None and not fault.factor]
    over_used = {"gpus_used": fleet.gpus_used, "tok_s_per_gpu_used": fleet.tok_s / fleet.gpus_used}
    return FLEET_ROOT.row(
        fleet.options,
        cluster=fleet.cluster.name,
        goal=fleet.options.wanted,
        isl=traffic.isl or None,
        osl=traffic.osl if both else None,
        context=None if both else traffic.deployments[0][0].workload.context,
        tpot_limit_s=traffic.tpot_s,
        ttft_limit_s=traffic.ttft_s,
        asked_tok_s=fleet.options.tok_s,
        input_tok_s=fleet.requests_per_s * traffic.isl if both else None,
        tok_s_per_user=min(speeds),
        ttft_s=max((column.step_s + column.besides_s for column in reading), default=None),
        gpus_working=len(fleet.cluster.gpus),
        gpus_broken=len(broken),
        broken=broken,
        **shared.band_row(totals["tok_s_per_gpu"], fleet.errors),
        **{**totals, **over_used},
    )


def _pool(fleet: Fleet, number: int, pool: Pool) -> Row:
    plan, shape, gpus = pool.plan and pool.plan.plan, pool.column.shape, pool.replicas[0].gpus
    return POOLS.row(
        pool,
        pool=f"P{number}",
        model=fleet.traffic.deployments[pool.model][0].model.name,
        layout=fleet.label(pool),
        workers=len(pool.replicas),
        gpus_per_worker=shape.gpus,
        stage_gpus=list(shape.sizes),
        gpu_type=" + ".join(dict.fromkeys(fleet.cluster.domain_of(gpu).gpu.name for gpu in gpus)),
        batch=fleet.batch(pool),
        tok_s_per_replica=pool.column.tok_s,
        requests_per_s=fleet.requests_per_s * pool.share if fleet.traffic.isl else None,
        requests_share=pool.share,
        plan=plan and plan_name(number),
        no_plan=pool.plan.reason if pool.plan and not plan else None,
        over_limit=plan and plan.over_limit,
    )


def _served(fleet: Fleet, row: Row) -> str:
    """Return what the fleet serves, on how much, and how fast."""
    used, asked, rate = fleet.gpus_used, row["asked_tok_s"], ""
    if row["requests_per_s"] is not None:
        rate = f" ({said(row, 'requests_per_s')})"
    if asked is not None:
        peak = f" on average, {row['utilization']:.0%} of the peak" if row["utilization"] < 1 else ""
        rate += f", where {asked:,.0f} are asked for{peak}"
    first = f", the first token within {said(row, 'ttft_s')}" if row["ttft_s"] else ""
    text = f"{plural(used, 'GPU')} serve{'s' * (used == 1)} {said(row, 'tok_s', 'output')}{rate}"
    return f"{text}; each user gets {said(row, 'tok_s_per_user')} or more{first}."


def _proven(fleet: Fleet) -> str:
    """Return how good the fleet is proven to be, and what is idle."""
    proof, most = fleet.proof, fleet.options.wanted == "throughput"
    text = f"It is proven that nothing {'serves more' if most else 'takes less'}"
    if proof.status != "OPTIMAL":
        than = f"{FIELDS['bound'].text(proof.bound)} {fleet.unit} (gap {proof.gap:.2%})"
        text = f"Nothing {'reaches more' if most else 'takes less'} than {than}"
    count = len(fleet.cluster.gpus) - fleet.gpus_used
    if not count:
        return f"{text}; no GPU is idle."
    idle = f"{plural(count, 'GPU')} {'is' if count == 1 else 'are'} idle"
    return f"{text}; {idle}: {fleet.idle[0].reason}{' and others' * (len(fleet.idle) > 1)}."


def _warnings(fleet: Fleet) -> Iterator[Note]:
    yield Note(shared.doubt_sentence(fleet.cluster), kind="warning")
    for number, made in enumerate(fleet.plans):
        if made.plan is None:
            yield Note(f"Pool P{number} has no plan of its experts: {made.reason}.", "no_plan")
        elif words := notes.limit_words(made.plan, f"The plan of pool P{number}"):
            yield Note(f"{words}.", "over_limit", "warning")


def _remarks(fleet: Fleet, row: Row) -> Iterator[str]:
    """Yield what was found, what nobody asked for, and what figures rest on."""
    traffic, (first, _), path = fleet.traffic, fleet.traffic.deployments[0], fleet.priced[0].path
    yield from fleet.notes
    if broken := row["gpus_broken"]:
        yield f"{plural(broken, 'GPU')} out of service {'is' if broken == 1 else 'are'} not counted"
    limits = (("tpot_s", traffic.tpot_s, "per token"), ("ttft_s", traffic.ttft_s, "to the first token"))
    usual = [f"{limit * 1e3:,g} ms {word}" for name, limit, word in limits if limit and name in traffic.usual]
    yield f"limits by default: {' and '.join(usual)}" if usual else ""
    yield from (*notes.serving_words(first.workload, first.engine), notes.what_if_words(first))
    if path is not None and any(pool.role != BOTH for pool in fleet.pools):
        rate = f"{path.bytes_per_s / 1e9:,.1f} GB/s per GPU ({path.reach.kind.label})"
        yield "two pools serve the rate of the slower one; tok/s of prefill are of input tokens"
        yield f"caches move over {path.name} at {rate}"


def _parts(fleet: Fleet) -> Iterator[Block]:
    """Yield step and memory of each kind of replica; by role, as a prompt takes far longer than a token."""
    pools = [
        (pool.role, f"P{n} {pool.role}", pool.plan and pool.plan.plan) for n, pool in enumerate(fleet.pools)
    ]
    for role in dict.fromkeys(role for role, _, _ in pools):
        scores = [(name, plan.score) for of, name, plan in pools if of == role and plan]
        yield shared.step_bars(((name, score.terms_s) for name, score in scores), "name")
        yield shared.memory_bars(scores, "name")
