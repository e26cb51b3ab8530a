"""Document of a fleet: pools of replicas on a cluster, what they serve and cost, the proof, and idle GPUs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from cost.serving.pools import POOL_DERATE
from placement.fleet.options import BOTH, PREFILL
from rackplan.report import notes, shared
from rackplan.report.doc import Block, Chart, Doc, Late, Layer, Note, Picture, Record, Row, Shape, Table
from rackplan.report.fields import said
from rackplan.report.pictures.overlay import fleet_overlay, pool_layout
from topology.base.units import plural
from topology.draw import cluster_svg

if TYPE_CHECKING:
    from placement.fleet.fleet import Fleet, Pool

FLEET_ROOT = Record.of(
    "",
    f"cluster goal isl osl context tpot_limit_s ttft_limit_s asked_tok_s utilization spares {shared.TOTALS} "
    f"{shared.USED} input_tok_s tok_s_per_user ttft_s low_tok_s_per_gpu high_tok_s_per_gpu gpus_working "
    "gpus_broken broken",
    shown="asked_tok_s tok_s requests_per_s tok_s_per_gpu tok_s_per_user ttft_s tpot_limit_s ttft_limit_s "
    "usd_per_million_tokens power_w tok_s_per_mw gpus_idle",
    tiles="tok_s tok_s_per_gpu tok_s_per_user usd_per_million_tokens power_w",
)
MODELS = Table.of("models", "model requests_share", "Models")
POOLS = Table.of(
    "pools",
    "pool role model layout gpus workers gpus_per_worker stage_gpus gpu_type batch tok_s tok_s_per_replica "
    "requests_per_s requests_share step_s plan no_plan over_limit",
    "Pools",
    most=8,
    shown="pool role model layout gpu_type workers gpus_per_worker batch tok_s step_s",
)
REPLICAS = Table.of("replicas", "pool replica gpu_ids", "Replicas", most=0)
IDLE = Table.of("idle", "count reason gpu_ids", "Idle GPUs", shown="count reason")
PROOF = Record.of("proof", "status objective bound gap objective_of search interrupted", "Proof")
UNIFORM = Record.of("uniform", "layout tok_s gpus_used gain", "Best of one layout, and the gain of the fleet")
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
    shares = [(pair[0], share) for pair, share in zip(traffic.deployments, traffic.shares, strict=True)]
    idle = [(len(one.gpus), one.reason, [ids[gpu] for gpu in one.gpus]) for one in fleet.idle]
    uniform = None
    if best is not None:
        uniform = UNIFORM.row(best, layout=best.label, gain=fleet.tok_s / best.tok_s - 1)
    return Doc(
        FLEET,
        _title(fleet),
        [_served(fleet, row), shared.price_sentence(row), _proven(fleet)],
        [
            *_warnings(fleet),
            FLEET_ROOT(row),
            *shared.missing_notes(fleet.totals),
            shared.set_table(cluster),
            pools,
            _bars("GPUs by pool", ("cluster", "pool", "gpus"), parts),
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
            IDLE({"count": count, "reason": reason, "gpu_ids": gpus} for count, reason, gpus in idle),
            PROOF(PROOF.row(fleet, objective_of=fleet.unit, **vars(fleet.proof))),
            UNIFORM(uniform),
            MODELS({"model": decode.model.name, "requests_share": share} for decode, share in shares),
            REPLICAS(
                {"pool": f"P{number}", "replica": place, "gpu_ids": [ids[gpu] for gpu in replica.gpus]}
                for number, pool in enumerate(fleet.pools)
                for place, replica in enumerate(pool.replicas)
            ),
            Late(lambda: list(_parts(fleet))),
            shared.BILL(shared.bill_rows(cluster.name, fleet.totals)),
            shared.ACCURACY(shared.accuracy_row(error, cluster.name) for error in fleet.errors),
            shared.ACCURACY_METHOD,
            *(Note(notes.sentence(text)) for text in notes.recipe_lines(*(decode for decode, _ in shares))),
            shared.used_figures(*(one for pair in traffic.deployments for one in pair if one)),
        ],
        frame=lambda: pools.data,
    )


def plan_name(number: int) -> str:
    """Return the file of the plan of a pool, inside the folder of the fleet."""
    return f"plan-{number}/plan.json"


def _root(fleet: Fleet) -> Row:
    traffic, both = fleet.traffic, fleet.traffic.isl > 0
    totals = shared.totals_row(fleet.totals)
    decoding = [
        (pool, traffic.deployment(pool.model, pool.role)) for pool in fleet.pools if pool.role != PREFILL
    ]
    reading = [pool.column for pool in fleet.pools if PREFILL in pool.column.phases]
    low, high = shared.band_of(totals["tok_s_per_gpu"], fleet.errors)
    broken = [fault.gpu for fault in fleet.cluster.spec.faults if fault.gpu is not None and fault.factor == 0]
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
        tok_s_per_user=min(served.workload.tokens_per_step / pool.step_s for pool, served in decoding),
        ttft_s=max((column.step_s + column.besides_s for column in reading), default=None),
        low_tok_s_per_gpu=low,
        high_tok_s_per_gpu=high,
        gpus_working=len(fleet.cluster.gpus),
        gpus_broken=len(broken),
        broken=broken,
        **{**totals, **over_used},
    )


def _pool(fleet: Fleet, number: int, pool: Pool) -> Row:
    plan, shape, gpus = pool.plan and pool.plan.plan, pool.column.shape, pool.replicas[0].gpus
    return POOLS.row(
        pool,
        pool=f"P{number}",
        model=fleet.traffic.deployments[pool.model][0].model.name,
        layout=pool_layout(fleet, pool),
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


def _title(fleet: Fleet) -> str:
    traffic, (first, _) = fleet.traffic, fleet.traffic.deployments[0]
    names = " + ".join(pair[0].model.name for pair in traffic.deployments)
    lengths = f"prompts of {traffic.isl:,} and answers of {plural(traffic.osl, 'token')}"
    lengths = lengths if traffic.isl else f"decode at {plural(first.workload.context, 'token')} of context"
    return f"Fleet for {names} on {fleet.cluster.name}, {lengths}"


def _served(fleet: Fleet, row: Row) -> str:
    """Return what the fleet serves, on how much, and how fast."""
    text = (
        f"{plural(fleet.gpus_used, 'GPU')} serve{'s' * (fleet.gpus_used == 1)} {said(row, 'tok_s', 'output')}"
    )
    if row["requests_per_s"] is not None:
        text += f" ({said(row, 'requests_per_s')})"
    if row["asked_tok_s"] is not None:
        peak = f" on average, {row['utilization']:.0%} of the peak" if row["utilization"] < 1 else ""
        text += f", where {row['asked_tok_s']:,.0f} are asked for{peak}"
    text += f"; each user gets {said(row, 'tok_s_per_user')} or more"
    return f"{text}, the first token within {said(row, 'ttft_s')}." if row["ttft_s"] else f"{text}."


def _proven(fleet: Fleet) -> str:
    """Return how good the fleet is proven to be, and what is idle."""
    proof, most = fleet.proof, fleet.options.wanted == "throughput"
    text = f"It is proven that nothing {'serves more' if most else 'takes less'}"
    if proof.status != "OPTIMAL":
        bound = f"{proof.bound:,.0f}" if proof.bound >= 1000 else f"{proof.bound:,.4g}"
        text = f"Nothing {'reaches more' if most else 'takes less'} than {bound} {fleet.unit} (gap {proof.gap:.2%})"
    count = len(fleet.cluster.gpus) - fleet.gpus_used
    if not count:
        return f"{text}; no GPU is idle."
    more = " and others" * (len(fleet.idle) > 1)
    return (
        f"{text}; {plural(count, 'GPU')} {'is' if count == 1 else 'are'} idle: {fleet.idle[0].reason}{more}."
    )


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
        yield (
            f"two pools serve {POOL_DERATE.value:g} of the rate of the slower one ({POOL_DERATE.kind.label}; "
            f"a pool's own tok/s is before that, in prefill of input tokens); caches move over {path.name} at "
            f"{path.bytes_per_s / 1e9:,.1f} GB/s per GPU ({path.reach.kind.label})"
        )


def _parts(fleet: Fleet) -> Iterator[Block]:
    """Yield step and memory of each kind of replica; steps by role, as a prompt takes far longer than a token."""
    made = [
        (f"P{n} {pool.role}", pool.role, pool.plan.plan) for n, pool in enumerate(fleet.pools) if pool.plan
    ]
    scores = [(name, role, plan.score) for name, role, plan in made if plan is not None]
    for role in dict.fromkeys(role for _, role, _ in scores):
        mine = [(name, score) for name, kind, score in scores if kind == role]
        times = [
            (name, part.replace("_", " "), time)
            for name, score in mine
            for part, time in score.terms_s.items()
        ]
        yield _bars(f"Step{f' of {role}' * (role != BOTH)} by part", ("pool", "part", "step_s"), times)
    held = [
        (name, use.replace("kv_cache", "KV cache"), size)
        for name, _, score in scores
        for use, size in score.hbm_bytes.items()
    ]
    if held:
        yield _bars("HBM of the fullest GPU by use", ("pool", "use", "bytes"), held)


def _bars(title: str, keys: tuple[str, str, str], rows: Iterable[tuple[str, str, float]]) -> Chart:
    """Return stacked bars: where they are, the parts, and how long those are."""
    table = Table.of("", " ".join(keys))(dict(zip(keys, row, strict=True)) for row in rows)
    places = len({row[keys[0]] for row in table.rows})
    return Chart(
        title, [Layer("bar", table, keys[2], keys[0], keys[1])], stacked=True, height=130 + 46 * places
    )
