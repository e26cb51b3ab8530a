"""Documents of plans: what was planned, scored again or imported."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cost.layouts.contexts import copies_words
from cost.recipe import OtherRecipe
from cost.serving.serving import ONE_POOL, TWO_POOLS
from cost.step.identities import identities
from cost.step.step import token_wait_s
from cost.terms.registry import TERMS
from placement.analysis.evidence import used_figures, weakest_figures
from placement.analysis.levers import Levers
from placement.plan import Idle, Plan
from placement.plans.writing import layout_part
from placement.pools import named_pools
from placement.under_load import first_token_s
from rackplan.report import notes, shared
from rackplan.report.doc import Block, Chart, Doc, Late, Layer, Note, Record, Row, Shape, Table
from rackplan.report.fields import FIELDS, phrase, usd
from rackplan.report.findings import OF_POOLS, replicas
from rackplan.report.pictures.plan import plan_pictures
from topology.base.errors import input_name
from topology.base.units import mean_of, plural

_OF_REQUESTS = "serving isl osl tpot_s ttft_s tpot_limit_s ttft_limit_s inside_share"
PLANNED = (
    f"cluster model phase context layout {shared.CACHE} prefill_s goal evidence balancedness {_OF_REQUESTS} batch "
    "max_batch step_s lower_step_s tokens_per_step bound_by what_if origin limit_s over_limit passed_over "
    "tok_s_per_user measured_factor measured_runs low_tok_s_per_gpu high_tok_s_per_gpu "
    f"{shared.TOTALS} {shared.USED}"
)
"""What a plan gives, costs and draws."""
ROOT = Record.of(
    "",
    PLANNED,
    shown="tok_s_per_gpu tok_s_per_user step_s lower_step_s usd_per_million_tokens layout batch "
    "balancedness bound_by tok_s requests_per_s ttft_s usd_per_hour power_w goal",
    tiles="tok_s_per_gpu tok_s_per_user step_s lower_step_s usd_per_million_tokens batch kv_tokens balancedness",
)
POOLS = shared.pools(
    "batch counted_tokens tok_s step_s | pool model gap tp ep moe_tp dcp pcp attention_dp stages"
)
WAYS = Table.of("ways", "serving tok_s_per_gpu", "One pool or two, before experts are placed")
IDLE = Table.of("idle", "count reason | gpu_ids", "Idle GPUs")
MODELS = Table.of("models", "model requests_share requests_per_s", "Models")
DECISION = Record.of(
    "decision", "decided status objective bound gap objective_of search", "What else could be decided"
)
SETUP = Record.of(
    "setup",
    "total_params active_params precision kv_dtype serving_options recipe experts slots redundant loads constraints "
    "supposed",
    "Setup",
)
PROOF = Record.of(
    "proof", "status objective bound gap objective_of interrupted search", "Proof of the placement"
)
ORDER = Record.of("order", "status step_s bound_s gap in_turn_s search", "Proof of the order of stages")
IDENTITIES = Record.of(
    "identities",
    "step_tokens balancing_batch output_over_input bubble_share one_domain_s two_domains_s mean_wait_ms "
    "longest_wait_ms",
    "What a roofline says",
)
CACHES = Table.of("cache_tiers", "tier drain_s bytes bytes_per_s source", "Memories that can keep contexts")
LEVERS = Table.of("levers", "lever change to gain batch tok_s_per_gpu", "Largest levers, layout kept")
ASSUMED = Table.of("assumptions", "assumption", "Assumptions", max_rows=None)
FILES = Table.of("files", "name file", "What was written", max_rows=0)
ENGINE = Record.of("", "engine_balancedness")
MAX_SUMMARY_POOLS = 2
"""Pools with which the ways of serving are in the summary; of more they are details."""
_ROLES = ("prefill", "both", "decode")
"""Pools in the order in which they are told."""
_HALF_TOLERANCE = 0.05
"""How far from a half is about half."""


def plan_doc(
    plan: Plan, shape: Shape | None = None, levers: Levers | None = None, gains: Sequence[OtherRecipe] = ()
) -> Doc:
    """Return the document of a plan, with the largest of its ``levers`` where they were computed.

    ``gains`` is what the other recipe would bring with its layout and batch.
    """
    row, cluster = plan_row(plan), plan.deployment.cluster.whole
    largest = levers.largest if levers else ()
    rows = [{**vars(lever.layout_kept), **vars(lever), "lever": lever.name} for lever in largest]
    return Doc(
        shape or PLAN,
        notes.title_words(plan),
        plan_sentences(plan, row, gains),
        [
            Note(
                "The search was interrupted: this is the best plan so far." * plan.interrupted, kind="warning"
            ),
            Note(shared.doubt_sentence(cluster), kind="warning"),
            shared.set_table(cluster),
            ROOT(row),
            shared.cache_note(plan.score.cache),
            *_contexts(plan),
            *_pools(plan),
            *_missing(plan),
        ],
        [
            Late(lambda: list(plan_pictures(plan, sides(plan)))),
            *plan_details(plan),
            *([LEVERS(rows)] * (levers is not None)),
        ],
        frame=lambda: slots(plan),
    )


def imported_plan_doc(plan: Plan, engine_balancedness: float | None) -> Doc:
    """Return the document of an imported plan; its balancedness as the engine splits tokens, where that is known."""
    engine = ENGINE({"engine_balancedness": engine_balancedness})
    return plan_doc(plan, IMPORT_PLAN).with_blocks(
        engine, *(Note(notes.sentence(text)) for text in plan.notes)
    )


def with_files(doc: Doc, files: Mapping[str, str]) -> Doc:
    """Return a document with the files that were written, by what they are, and what to do with them next."""
    command = f"rackplan what-if {Path(files['plan']).parent}" if "plan" in files else ""
    table = FILES({"name": name, "file": file} for name, file in files.items())
    return doc.with_blocks(table, Note(", ".join(files.values()), kind="written"), Note(command, kind="next"))


def sides(plan: Plan) -> list[tuple[str, Plan]]:
    """Return the pools of a plan by their names, prefill before decode."""
    named = zip(named_pools(plan), plan.pools, strict=True)
    return sorted(named, key=lambda side: _ROLES.index(side[1].role))


def _short(plan: Plan) -> str:
    return plan.layout.short(moe=plan.deployment.model.moe is not None)


def plan_row(plan: Plan) -> dict[str, Any]:
    """Return the fields of :data:`PLANNED`."""
    score, totals, work = plan.score, plan.totals, plan.deployment.workload
    both_phases, limit_s = work.phase == "both", plan.limit_s
    row: dict[str, Any] = {
        **ROOT.row(plan, score),
        "cluster": plan.deployment.cluster.whole.name,
        "model": plan.deployment.model.name,
        "phase": totals.phase,
        "context": work.context,
        "layout": "; ".join(_short(side) for _, side in sides(plan)),
        **shared.cache_row(score.cache),
        "prefill_s": score.prefill_s or None,
        "goal": plan.service_level,
        "evidence": score.evidence.label,
        "balancedness": mean_of(plan.balancedness.values()) if plan.balancedness else None,
        "serving": ONE_POOL if both_phases else f"{work.phase} alone",
        "isl": work.prompt if both_phases else None,
        "osl": work.answer if both_phases else None,
        "tpot_s": score.tpot_s if work.decodes else None,
        "ttft_s": score.step_s + score.prefill_s
        if both_phases
        else None
        if work.decodes
        else first_token_s(plan),
        "tpot_limit_s": limit_s if work.decodes else None,
        "ttft_limit_s": None if work.decodes else limit_s,
        "inside_share": None,
    }
    if plan.requests is not None:
        row |= {key: getattr(plan.requests, key) for key in _OF_REQUESTS.split()}
    row |= shared.near_row(plan.near)
    row |= shared.totals_row(totals)
    return row | shared.band_row(totals.tok_s_per_gpu, plan.errors)


def plan_sentences(plan: Plan, row: Row, gains: Sequence[OtherRecipe] = ()) -> list[str]:
    """Return what a plan gives at which price, what its step waits for, how sure that is; a missed limit first.

    What the other recipe would bring with the same layout and batch stands in place of what a step waits for.
    """
    price, tokens = row["usd_per_million_tokens"], row["counted_tokens"]
    alone = "" if row["phase"] == "both" else f" ({row['phase']} alone)"
    paid = "" if price is None else f"{usd(price)} USD per million {tokens} tokens{alone}"
    cost = f", for {paid}" if paid else "; its price is unknown"
    speed = f" at {phrase(row, 'tok_s_per_user')}"
    if row["phase"] == "prefill":
        speed = f" (a prompt alone has its first token after {phrase(row, 'ttft_s')})"
    missed = notes.sentence(notes.limit_words(plan))
    if plan.requests is not None and plan.requests.missed:
        limits = plan.requests.missed.items()
        over = (f"{name} {value:.3g} s, limit {limit:g} s" for name, (value, limit) in limits)
        missed = f"Misses its limits: {'; '.join(over)}."
    share = plan.score.limits_s[plan.score.bound_by] / plan.score.step_s
    part = "about half" if abs(share - 0.5) < _HALF_TOLERANCE else f"{share:.0%}"
    least = f" (lower bound {phrase(row, 'lower_step_s')})"
    step_words = f"A step takes {phrase(row, 'step_s')}{least}, {part} of it for {row['bound_by']}."
    for gain in gains:
        whose = notes.sentence(shared.whose_recipe(gain.recipe))[:-1]
        rate = FIELDS["tok_s_per_gpu"].phrase(gain.tok_s_per_gpu, tokens)
        step_words = (
            f"{whose} ({gain.words}), the same layout and batch give {rate}, {gain.ratio:.2f}x as much."
        )
    return [
        missed,
        f"{phrase(row, 'tok_s_per_gpu', tokens)}{speed}{cost}.",
        "" if missed else step_words,
        shared.accuracy_sentence(plan.errors),
    ]


def _contexts(plan: Plan) -> Iterator[Note]:
    """Yield where tensor parallelism copies the cache, and which engines have a plan's context parallelism."""
    for _, side in sides(plan):
        if side.deployment.workload.decodes:
            words = copies_words(side.deployment.model, side.layout.tp, side.layout.dcp)
            yield Note(notes.sentence(words), "dcp")
        yield Note(notes.sentence(notes.context_words(side.layout)), "dcp" if side.layout.dcp > 1 else "pcp")


def _missing(plan: Plan) -> Iterator[Note]:
    """Yield why figures are null, and what was left out."""
    requests = plan.requests
    yield from shared.missing_notes(plan.totals)
    if (report := plan.by_traffic) is not None:
        traced = plan.traffic is not None and plan.traffic.independent is not None
        unknown = "" if traced or not report.traces else "; this score takes experts as chosen independently"
        yield Note(f"Which experts tokens choose together is from {report.known}{unknown}.")
    if plan.totals.requests_per_s is None:
        options = f"{input_name('phase')} and {input_name('context')}"
        text = f"One phase alone is planned; leave out {options} for whole requests."
        yield Note(text, "requests_per_s", "missing")
    if requests is not None:
        yield from (Note(notes.sentence(text)) for text in requests.left_out)
        priced = requests.priced_tok_s_per_gpu
        yield Note(
            ""
            if TWO_POOLS in priced or not priced
            else f"No two pools: {requests.refused or 'no layout meets the limits'}."
        )


def _pools(plan: Plan) -> Iterator[Block]:
    """Yield pools, ways of serving, and idle GPUs."""
    requests, pools, cluster = plan.requests, sides(plan), plan.deployment.cluster
    cluster = cluster.whole if plan.beside else cluster
    rows = [pool_row(side.role, side) | {"pool": name} for name, side in pools]
    if requests is not None:
        rate = requests.totals.tok_s / (requests.osl or 1)
        served = zip(requests.pools, requests.parts, strict=True)
        for row, (pool, part) in zip(
            rows, sorted(served, key=lambda entry: _ROLES.index(entry[0].role)), strict=True
        ):
            tokens = requests.isl if pool.role == "prefill" else requests.osl
            row |= {"batch": pool.batch, "step_s": pool.step_s, "tok_s": rate * part * (tokens or 1)}
    rows = [part for row, (_, side) in zip(rows, pools, strict=True) for part in _apart_rows(row, side)]
    models = "role model layout workers gpus gpus_per_worker batch counted_tokens tok_s step_s"
    shown = models if requests is not None and requests.shares else POOLS.shown
    yield POOLS(rows, max_rows=12 * (len(rows) > 1), shown=shown)
    ways, turns = (requests.priced_tok_s_per_gpu, requests.turns) if requests else ({}, ())
    max_ways = WAYS.max_rows if len(pools) <= MAX_SUMMARY_POOLS else 0
    yield WAYS(({"serving": name, "tok_s_per_gpu": rate} for name, rate in ways.items()), max_rows=max_ways)
    yield shared.TURNS(turns, max_rows=0)
    used = {gpu for _, side in pools for row in replicas(side) for gpu in row["gpu_ids"]}
    ids = tuple(gpu.id for gpu in cluster.gpus if gpu.id not in used)
    reason = f"the replicas take {len(used):,} of {plural(len(cluster.gpus), 'GPU')}"
    idle = plan.decision.idle if plan.decision else ()
    idle = idle or (Idle(ids, reason),) * bool(ids)
    yield IDLE((len(entry.gpu_ids), entry.reason, list(entry.gpu_ids)) for entry in idle)
    if requests is not None and requests.shares:
        yield MODELS(
            (name, share, share * (requests.totals.requests_per_s or 0.0) if requests.osl else None)
            for name, share in requests.shares.items()
        )
    if (
        requests is not None
        and requests.inside_share is not None
        and len({gpu.domain for gpu in cluster.gpus}) > 1
    ):
        how = f" ({requests.pairing})" if requests.pairing else ""
        text = f"{requests.inside_share:.0%} of the requests can keep their cache in a domain from prefill to decode"
        yield Note(f"{text}{how}.", "inside_share")
    yield from (Note(side.apart and f"{side.apart}.") for _, side in pools)
    if decision := plan.decision:
        yield Note(
            f"Nothing serves more than {decision.bound:,.0f} {decision.unit} (gap {decision.gap:.1%}): "
            f"{decision.search}."
        )


def _apart_rows(row: dict[str, Any], plan: Plan) -> list[dict[str, Any]]:
    """Return a row of a pool; two of one whose attention runs apart from its experts, which have no sequences."""
    if not (held := plan.layout.pools_of(0)):
        return [row]
    names = plan.layout.short(moe=True).split()
    rows = []
    for (name, stage), layout in zip(held, (f"{names[0]} TP{row['tp']}", names[1]), strict=True):
        gpus, pool = len(stage.gpus), name if row["pool"] == row["role"] else f"{row['pool']} {name}"
        rows.append({**row, "role": name, "pool": pool, "layout": layout, "gpus_per_worker": gpus})
        rows[-1]["gpus"] = gpus * row["workers"]
    rows[0]["batch"] = row["batch"] * plan.layout.group_gpus / plan.layout.tp
    for key in ("batch", "tok_s", "tp", "attention_dp", *shared.CACHE.split()):
        rows[1][key] = None
    return rows


def pool_row(role: str, plan: Plan) -> dict[str, Any]:
    """Return a row of :data:`POOLS`."""
    layout, score, workers = plan.layout, plan.score, len(plan.layout.replicas)
    return {
        **layout_part(plan),
        **shared.pool_row(role, _short(plan), workers, layout.gpus_used / workers),
        **shared.cache_row(score.cache),
        "model": plan.deployment.model.name,
        "batch": score.batch,
        "counted_tokens": score.tokens,
        "tok_s": score.tok_s_per_gpu_used * layout.gpus_used,
        "step_s": score.step_s,
        "gap": plan.proof.gap if plan.balancedness else None,
    }


def plan_details(plan: Plan) -> Iterator[Block]:
    """Yield all that is known of a plan besides its summary; tables have a row's pool where there are two."""
    several, order, behind = bool(plan.beside), plan.order, used_figures(plan)
    tables = {}
    for table, make in OF_POOLS:
        rows = [{"pool": role, **row} for role, side in sides(plan) for row in make(side)]
        keys = table.shown or " ".join(field.key for field in table.fields[1:])
        look = {"shown": f"pool {keys}", "per": "pool"} if several else {"shown": keys}
        tables[table.key] = table(rows, **look)
    yield tables.pop("step")
    meant = (
        f"{shared.name_of(name)}: {TERMS[name].meaning}" for name in plan.score.terms_s if TERMS[name].meaning
    )
    yield Note(notes.sentence("; ".join(meant)), kind="method")
    for role, side in sides(plan):
        for name, held in side.score.hbm_of.items() or [(role * several, side.score.hbm_bytes)]:
            yield Note(f"{name}{': ' * bool(name)}{shared.hbm_words(held)}.")
    measured = notes.measured_words(plan)
    apart = " (no run has attention apart: of runs with both on these GPUs)" * (plan.layout.apart is not None)
    yield Note(measured and f"Correction by measured runs: {measured}{apart}.", "measured_factor")
    yield SETUP(_setup(plan))
    proof = {**vars(plan.proof), "objective_of": f"largest over mean GPU load{notes.worst_words(plan)}"}
    proof |= {"interrupted": plan.interrupted, "search": plan.search}
    yield PROOF(proof if plan.balancedness else None)
    decision = plan.decision
    words = {"decided": decision.what, "objective_of": decision.unit} if decision else {}
    yield DECISION(DECISION.row(decision, **words) if decision else None)
    bounds = {"step_s": order.objective, "bound_s": order.bound, "in_turn_s": order.in_turn} if order else {}
    yield ORDER(ORDER.row(order, **bounds) if order else None)
    yield from tables.values()
    if (copies := tables["redundancy"]).rows:
        line = Layer("line", copies, "redundant", "tok_s_per_gpu", text="mark")
        yield Chart("Throughput against copies", [line])
    yield from _roofline(plan)
    yield shared.BILL(shared.bill_rows(plan.deployment.cluster.whole.name, plan.totals))
    yield shared.ACCURACY(map(shared.accuracy_row, plan.errors))
    yield shared.ACCURACY_METHOD
    yield from shared.figure_blocks(behind)
    weakest = ", ".join(figure.title for figure in weakest_figures(behind))
    yield Note(f"The weakest figures are {plan.score.evidence.label}: {weakest}.", "evidence")
    yield ASSUMED({"assumption": text} for text in notes.assumptions(plan))


def _setup(plan: Plan) -> Row:
    deployment, model, work = plan.deployment, plan.deployment.model, plan.deployment.workload
    held = next(filter(None, plan.experts), None)
    parts: dict[str, list[str]] = {}
    for part, form in model.precision.items():
        parts.setdefault(form, []).append(part)
    formats = "; ".join(f"{form} {', '.join(names)}" for form, names in parts.items())
    return SETUP.row(
        model,
        experts=held and held.experts,
        slots=held and held.slots,
        redundant=held and held.slots - held.experts,
        precision=f"{formats} ({model.precision_source})",
        kv_dtype=work.kv_dtype,
        serving_options="; ".join(notes.serving_words(work, deployment.engine)),
        recipe="; ".join(notes.recipe_lines(deployment)),
        loads=notes.load_names(plan.loads.names) if plan.loads else "",
        constraints=notes.placement_words(plan),
        supposed=notes.what_if_words(deployment),
    )


def _roofline(plan: Plan) -> Iterator[Table]:
    if plan.layout.apart is not None:
        return  # they are of GPUs that have both
    figures = identities(plan.deployment, plan.layout, plan.score)
    mean_s, most_s = token_wait_s(plan.score.step_s)
    waits = {"mean_wait_ms": mean_s * 1e3, "longest_wait_ms": most_s * 1e3}
    yield IDENTITIES(IDENTITIES.row(figures, bubble_share=figures.bubble, **waits))
    rates = [(tier, tier.capacity_bytes.value, tier.bytes_per_s) for tier in figures.tiers]
    yield CACHES(
        CACHES.row(tier, tier=tier.name, bytes=size, bytes_per_s=rate.value, source=rate.source)
        for tier, size, rate in rates
    )


TABLES = (
    *(table for table, _ in OF_POOLS),
    *(
        ROOT,
        POOLS,
        WAYS,
        shared.TURNS,
        IDLE,
        MODELS,
        DECISION,
        SETUP,
        PROOF,
        ORDER,
        IDENTITIES,
        CACHES,
        ASSUMED,
        FILES,
    ),
    *(shared.SET, shared.BILL, shared.ACCURACY, shared.FIGURES),
)
"""Of every plan."""
PLAN = Shape("plan", "A plan: its layout, the predicted step, the placement's proof, what it costs.", TABLES)
IMPORT_PLAN = Shape("import-plan", "An imported plan.", (*TABLES, ENGINE))


def slots(plan: Plan) -> dict[str, Any]:
    """Return a row for each slot of the first replica: its layer, GPU and expert, and how many copies that has."""
    parts: list[tuple[Any, ...]] = []
    model, ids = plan.deployment.model, np.array([gpu.id for gpu in plan.deployment.cluster.gpus])
    for stage, (place, experts) in enumerate(zip(plan.layout.replicas[0], plan.experts, strict=True)):
        if experts is None:
            continue
        layers = [layer for layer in model.moe_layers if layer in place.layers]
        rows, count = experts.slot_expert.shape
        gpus = np.tile(ids[np.array(place.gpus)[experts.slot_gpu]], rows)
        copies = np.take_along_axis(experts.copies, experts.slot_expert.astype(np.int64), axis=1)
        held = (experts.slot_expert.ravel(), copies.ravel())
        where = (np.full(rows * count, stage), np.repeat(layers, count), np.tile(np.arange(count), rows))
        parts.append((*where, gpus, *held))
    columns = zip(*parts, strict=True) if parts else ([[]],) * 6
    names = ("stage", "layer", "slot", "gpu", "expert", "copies")
    return {name: np.concatenate(column) for name, column in zip(names, columns, strict=True)}
