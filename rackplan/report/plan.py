"""Documents of plans: what was planned, scored again or imported."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from cost.serving.serving import ONE_POOL, TWO_POOLS
from cost.step.identities import identities
from cost.step.step import token_wait_s
from cost.terms.registry import TERMS
from cost.terms.work import COMPUTE, FIXED, HBM, IMBALANCE
from placement.analysis.evidence import term_evidence, used_figures, weakest_figures
from placement.analysis.levers import Levers
from placement.analysis.peaks import at_peaks
from placement.plan import BaselineScore, Plan
from placement.plans.findings import WhatIf
from placement.plans.writing import layout_part
from placement.under_load import first_token_s
from rackplan.report import notes, shared
from rackplan.report.doc import Block, Chart, Doc, Late, Layer, Note, Picture, Record, Row, Shape, Table
from rackplan.report.fields import said, usd
from topology.base.errors import input_name
from topology.base.units import added, mean_of, plural

_OF_PLAN = "origin limit_s over_limit passed_over tok_s_per_user"
_OF_SCORE = "batch max_batch step_s lower_step_s tokens_per_step bound_by what_if"
_OF_REQUESTS = "serving isl osl tpot_s ttft_s tpot_limit_s ttft_limit_s"
_NEAR = "measured_factor measured_runs low_tok_s_per_gpu high_tok_s_per_gpu"
PLANNED = (
    f"cluster model phase context layout kv_tokens prefill_s goal evidence balancedness {_OF_REQUESTS} {_OF_SCORE} "
    f"{_OF_PLAN} {_NEAR} {shared.TOTALS} {shared.USED}"
)
"""What a plan gives, costs and draws."""
_SHOWN = (
    "tok_s_per_gpu tok_s_per_user step_s lower_step_s usd_per_million_tokens layout batch kv_tokens balancedness "
    "bound_by tok_s requests_per_s ttft_s usd_per_hour power_w goal"
)
_TILES = (
    "tok_s_per_gpu tok_s_per_user step_s lower_step_s usd_per_million_tokens batch kv_tokens balancedness"
)
ROOT = Record.of("", PLANNED, shown=_SHOWN, tiles=_TILES)
_WIDTHS = "tp ep moe_tp attention_dp stages"
_POOL = "role layout workers gpus_per_worker batch counted_tokens tok_s step_s"
POOLS = Table.of("pools", f"{_POOL} model gpus gap {_WIDTHS}", "Pools", shown=_POOL)
WAYS = Table.of("ways", "serving tok_s_per_gpu", "One pool or two, before experts are placed")
TURNS = Table.of("turns", "serving from_tok_s_per_user to_tok_s_per_user", "Which way is ahead")
IDLE = Table.of("idle", "gpu_ids reason", "Idle GPUs", most=0)
_MODEL = "total_params active_params precision kv_dtype"
SETUP = Record.of(
    "setup", f"{_MODEL} serving_options recipe experts slots redundant loads constraints supposed", "Setup"
)
PROOF = Record.of(
    "proof", "status objective bound gap objective_of interrupted search", "Proof of the placement"
)
ORDER = Record.of("order", "status step_s bound_s gap in_turn_s search", "Proof of the order of stages")
_ROOFLINE = "step_tokens balancing_batch output_over_input bubble_share one_domain_s two_domains_s"
IDENTITIES = Record.of("identities", f"{_ROOFLINE} mean_wait_ms longest_wait_ms", "What a roofline says")
CACHES = Table.of("cache_tiers", "tier drain_s bytes bytes_per_s source", "Memories that can keep contexts")
LEVERS = Table.of("levers", "lever change to gain batch tok_s_per_gpu", "Largest levers, layout kept")
ASSUMED = Table.of("assumptions", "assumption", "Assumptions", most=None)
FILES = Table.of("files", "name file", "What was written", most=0)
ENGINE = Record.of("", "engine_balancedness")
_FRONT = "layout batch tok_s_per_user tok_s_per_gpu step_s bound_by"
FRONT = Table.of("frontier", _FRONT)
_REACH = "domains_per_token nodes_per_token gpus_per_token"
_SENT = "scale_up_bytes_per_step scale_out_bytes_per_step"
_LOST = "tok_s_per_gpu balancedness tokens_lost"
_RESOURCES = {COMPUTE: "compute_s", HBM: "hbm_s", FIXED: "fixed_s", IMBALANCE: "stage_wait_s"}
_BINDING = 0.05
"""Part of a time from which a resource is named among those that bind it."""
_HALF = 0.05
"""How far from a half is about half."""
Rows = Iterable[Row]


def plan_doc(plan: Plan, shape: Shape | None = None, levers: Levers | None = None) -> Doc:
    """Return the document of a plan, with the largest of its ``levers`` where they were computed."""
    row, doubts = plan_row(plan), _doubts(plan)
    largest = levers.largest if levers else ()
    kept = [{**vars(lever.layout_kept), **vars(lever), "lever": lever.name} for lever in largest]
    return Doc(
        shape or PLAN,
        notes.title_words(plan),
        plan_sentences(plan, row),
        [*doubts, shared.set_table(plan.deployment.cluster.whole), ROOT(row), *_pools(plan), *_missing(plan)],
        [Late(lambda: list(_seen(plan))), *plan_details(plan), *([LEVERS(kept)] * (levers is not None))],
        frame=lambda: slots(plan),
    )


def imported_plan_doc(plan: Plan, engine_balancedness: float | None) -> Doc:
    """Return the document of an imported plan; its balancedness as the engine splits tokens, where that is known."""
    own = ENGINE({"engine_balancedness": engine_balancedness})
    return plan_doc(plan, IMPORT_PLAN).with_blocks(own, *(Note(notes.sentence(text)) for text in plan.notes))


def with_files(doc: Doc, files: Mapping[str, str]) -> Doc:
    """Return a document with the files that were written, by what they are, and what to do with them next."""
    command = f"rackplan what-if {Path(files['plan']).parent}" if "plan" in files else ""
    written = Note(", ".join(files.values()), kind="written")
    return doc.with_blocks(
        FILES({"name": name, "file": file} for name, file in files.items()),
        written,
        Note(command, kind="next"),
    )


def sides(plan: Plan) -> list[tuple[str, Plan]]:
    """Return the pools of a plan by their role, prefill before decode."""
    beside = [] if plan.prefill is None else [("prefill", plan.prefill)]
    return [*beside, (plan.deployment.workload.phase, plan)]


def _short(plan: Plan) -> str:
    return plan.layout.short(moe=plan.deployment.model.moe is not None)


def plan_row(plan: Plan) -> dict[str, Any]:
    """Return the fields of :data:`PLANNED`."""
    score, totals, work = plan.score, plan.totals, plan.deployment.workload
    near = plan.deployment.near_runs(plan.layout, score.batch)
    both, limit_s = work.phase == "both", plan.limit_s
    row: dict[str, Any] = {
        "cluster": plan.deployment.cluster.whole.name,
        "model": plan.deployment.model.name,
        "phase": totals.phase,
        "context": work.context,
        "layout": "; ".join(_short(side) for _, side in sides(plan)),
        "kv_tokens": score.max_batch * plan.layout.gpus_used * work.context,
        "prefill_s": score.prefill_s or None,
        "goal": plan.service_level,
        "evidence": score.evidence.label,
        "balancedness": mean_of(plan.balancedness.values()) if plan.balancedness else None,
        "serving": ONE_POOL if both else f"{work.phase} alone",
        "isl": work.prompt if both else None,
        "osl": work.answer if both else None,
        "tpot_s": score.tpot_s if work.decodes else None,
        "ttft_s": score.step_s + score.prefill_s if both else None if work.decodes else first_token_s(plan),
        "tpot_limit_s": limit_s if work.decodes else None,
        "ttft_limit_s": None if work.decodes else limit_s,
    }
    if plan.requests is not None:
        row |= {key: getattr(plan.requests, key) for key in _OF_REQUESTS.split()}
    row |= zip(_NEAR.split(), (*near, *shared.band_of(totals.tok_s_per_gpu, plan.errors)), strict=True)
    row |= {key: getattr(score, key) for key in _OF_SCORE.split()}
    row |= {key: getattr(plan, key) for key in _OF_PLAN.split()}
    return {**row, **shared.totals_row(totals)}


def plan_sentences(plan: Plan, row: Row) -> list[str]:
    """Return what a plan gives at which price, what its step waits for, how sure that is; a missed limit first."""
    price, tokens = row["usd_per_million_tokens"], row["counted_tokens"]
    alone = "" if row["phase"] == "both" else f" ({row['phase']} alone)"
    cost = (
        "; its price is unknown"
        if price is None
        else f", for {usd(price)} USD per million {tokens} tokens{alone}"
    )
    speed = f" at {said(row, 'tok_s_per_user')}"
    if row["phase"] == "prefill":
        speed = f" (a prompt alone has its first token after {said(row, 'ttft_s')})"
    missed = notes.sentence(notes.limit_words(plan))
    if plan.requests is not None and plan.requests.missed:
        each = (
            f"{name} {value:.3g} s, limit {limit:g} s"
            for name, (value, limit) in plan.requests.missed.items()
        )
        missed = f"Misses its limits: {'; '.join(each)}."
    share = plan.score.limits_s[plan.score.bound_by] / plan.score.step_s
    part = "about half" if abs(share - 0.5) < _HALF else f"{share:.0%}"
    return [
        missed,
        f"{said(row, 'tok_s_per_gpu', tokens)}{speed}{cost}.",
        "" if missed else f"A step takes {said(row, 'step_s')}, {part} of it for {row['bound_by']}.",
        shared.accuracy_sentence(plan.errors),
    ]


def _doubts(plan: Plan) -> Iterator[Note]:
    """Yield what makes the figures of a plan uncertain."""
    yield Note("The search was interrupted: this is the best plan so far." * plan.interrupted, kind="warning")
    yield Note(shared.doubt_sentence(plan.deployment.cluster.whole), kind="warning")


def _missing(plan: Plan) -> Iterator[Note]:
    """Yield why figures are null, and what was left out."""
    whole = plan.requests
    yield from shared.missing_notes(plan.totals)
    if (report := plan.by_traffic) is not None:
        traced = plan.traffic is not None and plan.traffic.independent is not None
        unknown = "" if traced or not report.traces else "; this score takes experts as chosen independently"
        yield Note(f"Which experts tokens choose together is from {report.known}{unknown}.")
    if plan.totals.requests_per_s is None:
        options = f"{input_name('isl')} and {input_name('osl')}"
        yield Note(
            f"One phase alone is planned; give {options} for whole requests.", "requests_per_s", "missing"
        )
    if whole is not None:
        yield from (Note(notes.sentence(text)) for text in whole.left_out)
        two = TWO_POOLS in whole.priced_tok_s_per_gpu
        yield Note("" if two else f"No two pools: {whole.refused or 'no layout meets the limits'}.")


def _pools(plan: Plan) -> Iterator[Table]:
    """Yield pools, ways of serving, and idle GPUs."""
    whole, both, cluster = plan.requests, sides(plan), plan.deployment.cluster.whole
    rows = [pool_row(role, side) for role, side in both]
    if whole is not None:
        rate = whole.totals.requests_per_s or 0.0
        for row, pool in zip(rows, whole.pools, strict=True):
            tok_s = rate * (whole.isl if pool.role == "prefill" else whole.osl)
            row |= {"batch": pool.batch, "step_s": pool.step_s, "tok_s": tok_s}
    yield POOLS(rows, most=12 * (len(both) > 1))
    ways, turns = (whole.priced_tok_s_per_gpu, whole.turns) if whole else ({}, ())
    yield WAYS({"serving": name, "tok_s_per_gpu": rate} for name, rate in ways.items())
    keys = [field.key for field in TURNS.fields]
    yield TURNS((dict(zip(keys, turn, strict=True)) for turn in turns), most=12 * (len(turns) > 1))
    used = {gpu for _, side in both for row in _replicas(side) for gpu in row["gpu_ids"]}
    ids = [gpu.id for gpu in cluster.gpus if gpu.id not in used]
    reason = f"The replicas take {len(used):,} of {plural(len(cluster.gpus), 'GPU')}."
    yield IDLE([{"gpu_ids": ids, "reason": reason}] * bool(ids))


def pool_row(role: str, plan: Plan) -> dict[str, Any]:
    """Return a row of :data:`POOLS`."""
    layout, score = plan.layout, plan.score
    return {
        **layout_part(plan),
        "role": role,
        "model": plan.deployment.model.name,
        "layout": _short(plan),
        "gpus": layout.gpus_used,
        "workers": len(layout.replicas),
        "gpus_per_worker": layout.gpus_used / len(layout.replicas),
        "batch": score.batch,
        "counted_tokens": score.tokens,
        "tok_s": score.tok_s_per_gpu_used * layout.gpus_used,
        "step_s": score.step_s,
        "gap": plan.proof.gap if plan.balancedness else None,
    }


def plan_details(plan: Plan) -> Iterator[Block]:
    """Yield all that is known of a plan besides its summary; tables have a row's pool where there are two."""
    several, order, behind = plan.prefill is not None, plan.order, used_figures(plan)
    told = {}
    for table, make in OF_POOLS:
        rows = [{"pool": role, **row} for role, side in sides(plan) for row in make(side)]
        shown = table.shown or " ".join(field.key for field in table.fields[1:])
        told[table.key] = table(
            rows, shown=f"pool {shown}" if several else shown, per="pool" if several else ""
        )
    yield told.pop("step")
    meant = (f"{_words(name)}: {TERMS[name].meaning}" for name in plan.score.terms_s if TERMS[name].meaning)
    yield Note(notes.sentence("; ".join(meant)), kind="method")
    measured = notes.measured_words(plan)
    yield Note(measured and f"Correction by measured runs: {measured}.", "measured_factor")
    yield SETUP(_setup(plan))
    proof = {
        "objective_of": f"largest over mean GPU load{notes.worst_words(plan)}",
        "interrupted": plan.interrupted,
    }
    yield PROOF(PROOF.row(plan.proof, **proof, search=plan.search) if plan.balancedness else None)
    if order is not None:
        bounds = {"step_s": order.objective, "bound_s": order.bound, "in_turn_s": order.in_turn}
        yield ORDER(ORDER.row(order, **bounds))
    yield from told.values()
    if (copies := told["redundancy"]).rows:
        line = Layer("line", copies, "redundant", "tok_s_per_gpu", text="mark")
        yield Chart("Throughput against copies", [line])
    yield from _roofline(plan)
    yield shared.BILL(shared.bill_rows("", plan.totals), per="")
    yield shared.ACCURACY(map(shared.accuracy_row, plan.errors))
    yield shared.ACCURACY_METHOD
    figures = shared.FIGURES(
        shared.figure_row(used.figure, used.of or used.group, used.name) for used in behind
    )
    yield figures
    yield Late(lambda: [replace(figures, most=None)])
    weakest = ", ".join(figure.title for figure in weakest_figures(behind))
    yield Note(f"The weakest figures are {plan.score.evidence.label}: {weakest}.", "evidence")
    yield ASSUMED({"assumption": text} for text in notes.assumptions(plan))


def _words(key: str) -> str:
    return "KV cache" if key == "kv_cache" else key.replace("_", " ")


def largest_first(parts: Mapping[str, float]) -> list[tuple[str, float]]:
    """Return the parts above zero, the largest first."""
    return sorted(((name, value) for name, value in parts.items() if value > 0), key=lambda item: -item[1])


def _parts(plan: Plan) -> Rows:
    """Yield the parts of the step, the largest first, each by what bounds it."""
    score, peaks, out = plan.score, at_peaks(plan), plan.deployment.cluster.spec.scale_out
    known = _RESOURCES | ({} if out is None else {out.fabric.name: "scale_out_s"})
    for name, seconds in largest_first(score.terms_s):
        limits = {limit: bound_s for (part, limit), bound_s in score.parts_s.items() if part == name}
        row: dict[str, Any] = dict.fromkeys([*_RESOURCES.values(), "scale_up_s", "scale_out_s"], 0.0)
        for limit, bound_s in limits.items():
            row[known.get(limit, "scale_up_s")] += bound_s
        row["bound_by"] = ", ".join(limit for limit, s in largest_first(limits) if s >= _BINDING * seconds)
        row["evidence"] = None if (kind := term_evidence(plan, name)) is None else kind.label
        share, peak_s = seconds / score.step_s, peaks.terms_s.get(name, 0.0)
        yield row | {"part": _words(name), "step_s": seconds, "step_share": share, "peak_s": peak_s}


def _limits(plan: Plan) -> Rows:
    """Yield the resources that the step waits for, the most first, then those that are busy beside it."""
    score = plan.score
    for name in [
        *(name for name, _ in largest_first(score.limits_s)),
        *(score.floor_s.keys() - score.limits_s),
    ]:
        seconds, floor_s = score.limits_s.get(name, 0.0), score.floor_s.get(name, 0.0)
        yield {"resource": name, "step_s": seconds, "step_share": seconds / score.step_s, "floor_s": floor_s}


def _memory(plan: Plan) -> Rows:
    total = added(plan.score.hbm_bytes.values())
    for name, amount in plan.score.hbm_bytes.items():
        yield {"use": _words(name), "bytes": amount, "memory_share": amount / total}


def _setup(plan: Plan) -> Row:
    deployment, model, work = plan.deployment, plan.deployment.model, plan.deployment.workload
    held = next(filter(None, plan.experts), None)
    formats = ", ".join(f"{part} {dtype}" for part, dtype in model.precision.items())
    return {
        "total_params": model.total_params,
        "active_params": model.active_params,
        "experts": held and held.experts,
        "slots": held and held.slots,
        "redundant": held and held.slots - held.experts,
        "precision": f"{formats} ({model.precision_source})",
        "kv_dtype": work.kv_dtype,
        "serving_options": "; ".join(notes.serving_words(work, deployment.engine)),
        "recipe": "; ".join(notes.recipe_lines(deployment)),
        "loads": notes.load_names(plan.loads.names) if plan.loads else "",
        "constraints": notes.placement_words(plan),
        "supposed": notes.what_if_words(deployment),
    }


def _replicas(plan: Plan) -> Rows:
    gpus = plan.deployment.cluster.gpus
    for replica, stages in enumerate(plan.layout.replicas):
        for number, stage in enumerate(stages):
            row = {"replica": replica, "stage": number, "gpu_ids": [gpus[gpu].id for gpu in stage.gpus]}
            yield row | {"first_layer": stage.layers.start, "last_layer": stage.layers.stop - 1}


def _pipeline(plan: Plan) -> Rows:
    """Yield the stages of the first replica with what each hands on; nothing where there is one."""
    stages = plan.layout.replicas[0]
    hops = notes.plan_hops(plan) if len(stages) > 1 else ()
    for number, (stage, hop) in enumerate(zip(stages, hops, strict=False)):
        row = {
            "first_layer": stage.layers.start,
            "last_layer": stage.layers.stop - 1,
            "gpus": len(stage.gpus),
        }
        place = notes.domain_words(plan.deployment.cluster, stage)
        yield row | vars(hop) | {"stage": number, "domain": place, "to_stage": (number + 1) % len(stages)}


def _baselines(plan: Plan) -> Rows:
    own = "imported" if plan.origin == "imported" else "rackplan"
    mine = {own: BaselineScore("", plan.balancedness, plan.score)} if plan.balancedness else {}
    for name, entry in {**mine, **plan.baselines}.items():
        row: dict[str, Any] = {"placement": notes.baseline_name(name), "reason": entry.reason}
        layers = list(entry.balancedness.values())
        row |= {
            "balancedness": mean_of(layers) if layers else None,
            "balancedness_worst": min(layers, default=None),
        }
        yield row | {key: getattr(entry.score, key, None) for key in ("step_s", "tok_s_per_gpu")}


def _lost(plan: Plan) -> tuple[WhatIf, ...]:
    return plan.failures.what_if if plan.failures else ()


def _losses(plan: Plan) -> Rows:
    for row in _lost(plan):
        for values in zip(*vars(row.each).values(), strict=True):
            yield {
                "failure": notes.UNITS[row.unit],
                **dict(zip(("name", *_LOST.split()), values, strict=True)),
            }


def _risk(plan: Plan) -> Rows:
    if failures := plan.failures:
        keys = ("experts", "apart", "together", "single", "missing")
        counts = {key: getattr(failures.copies, key, None) for key in keys}
        yield {
            **vars(failures),
            **counts,
            "failure": notes.UNITS[failures.spread],
            "reason": counts["missing"],
        }


def _copies(plan: Plan) -> Rows:
    if curve := plan.redundancy:
        for point in curve.points:
            marks = ("chosen" * (point == curve.best), "knee" * (point == curve.knee_point))
            yield {**vars(point), "mark": ", ".join(filter(None, marks))}


def _by_traffic(plan: Plan) -> Rows:
    names = {"balance": "balance only", "traffic": "fewest domains"}
    for row in plan.by_traffic.rows if plan.by_traffic else ():
        name = names.get(row.placement, notes.baseline_name(row.placement))
        chosen = plan.by_traffic is not None and row is plan.by_traffic.after
        yield {**vars(row), "placement": name, "mark": "chosen" * chosen, **_sent(row.bytes_per_step)}


def _sent(by_fabric: Mapping[str, float]) -> Row:
    return dict(zip(_SENT.split(), [*by_fabric.values(), None, None], strict=False))


def _tokens(plan: Plan) -> Rows:
    """Yield where tokens go as traced, beside what independent choices would give: means, and of each layer."""
    kinds = {"as traced": plan.traffic, "if independent": plan.traffic and plan.traffic.independent}
    known = {name: traffic for name, traffic in kinds.items() if traffic is not None}
    for name, traffic in known.items():
        mean = {key: getattr(traffic, key) for key in _REACH.split()}
        yield {
            "routing": name,
            "layer": None,
            "tokens": traffic.tokens,
            **mean,
            **_sent(traffic.bytes_per_step),
        }
    for name, traffic in known.items():
        for layer, gpus in traffic.gpus.items():
            reach = dict(
                zip(_REACH.split(), (traffic.domains[layer], traffic.nodes[layer], gpus), strict=True)
            )
            yield {"routing": name, "layer": layer, "tokens": None, **reach, **_sent({})}


def _roofline(plan: Plan) -> Iterator[Table]:
    found, waits = identities(plan.deployment, plan.layout, plan.score), token_wait_s(plan.score.step_s)
    waited = {"mean_wait_ms": waits[0] * 1e3, "longest_wait_ms": waits[1] * 1e3}
    yield IDENTITIES(IDENTITIES.row(found, bubble_share=found.bubble, **waited))
    yield CACHES(
        {
            "tier": tier.name,
            "drain_s": tier.drain_s,
            "bytes": tier.capacity_bytes.value,
            "bytes_per_s": tier.bytes_per_s.value,
            "source": tier.bytes_per_s.source,
        }
        for tier in found.tiers
    )


_STEP = "compute_s hbm_s scale_up_s scale_out_s fixed_s stage_wait_s"
_STEP_SHOWN = "part step_s step_share peak_s bound_by evidence"
_TOKENS_LOST = "tokens_lost_mean tokens_lost_most"
_FAILED = f"tok_s_per_gpu_mean tok_s_per_gpu_worst balancedness_mean balancedness_worst {_TOKENS_LOST}"
_CURVE = "redundant slots_per_gpu balancedness batch max_batch tok_s_per_gpu tpot_s expert_bytes mark"
_STAGE = "stage first_layer last_layer"
_PLACED = "placement balancedness balancedness_worst step_s tok_s_per_gpu reason"
_OF_POOLS: tuple[tuple[str, str, str, dict[str, Any], Callable[[Plan], Rows]], ...] = (
    ("step", f"{_STEP_SHOWN} {_STEP}", "Parts of the step", {"shown": _STEP_SHOWN}, _parts),
    ("limits_s", "resource step_s step_share floor_s", "What the step waits for", {}, _limits),
    ("memory", "use bytes memory_share", "Uses of HBM", {}, _memory),
    ("replicas", f"replica {_STAGE} gpu_ids", "GPUs of each stage of each replica", {"most": 0}, _replicas),
    ("pipeline", f"{_STAGE} domain gpus to_stage bytes seconds fabric", "Stages", {}, _pipeline),
    ("baselines", _PLACED, "Placements under the same loads, layout and batch", {}, _baselines),
    ("layers", "layer balancedness", "Balancedness by layer", {"most": 0},
     lambda plan: ({"layer": layer, "balancedness": value} for layer, value in plan.balancedness.items())),
    ("scenarios", "scenario in_sample left_out worst_layer", "Balance by load", {},
     lambda plan: ({**vars(row), "scenario": row.name} for row in (plan.scenarios.rows if plan.scenarios else ()))),
    ("failures", f"failure count tried {_FAILED} experts_lost_most worst_case", "After losing any one", {},
     lambda plan: ({**vars(row), "failure": notes.UNITS[row.unit], "count": row.choices, "worst_case": row.worst}
                   for row in _lost(plan))),
    ("losses", f"failure name {_LOST}", "Each loss tried", {"most": 0}, _losses),
    ("risk", "failure experts_at_risk share_at_risk experts apart together single reason", "Experts at risk",
     {"shown": "failure experts_at_risk share_at_risk reason"}, _risk),
    ("at_risk", "layer expert copies share within", "The heaviest of them", {"most": 5},
     lambda plan: ({**vars(row), "within": row.domain} for row in (plan.failures.experts if plan.failures else ()))),
    ("layers_at_risk", "layer experts share worst_case worst_experts worst_share", "Layers at risk", {"most": 0},
     lambda plan: ({**vars(row), "worst_case": row.worst}
                   for row in (plan.failures.layers if plan.failures else ()))),
    ("redundancy", _CURVE, "Number of copies", {}, _copies),
    ("by_traffic", f"placement mark step_s balancedness {_REACH} {_SENT}", "Placements by step", {}, _by_traffic),
    ("token_traffic", f"routing tokens layer {_REACH} {_SENT}", "Token traffic", {"most": 2}, _tokens),
)  # fmt: skip
OF_POOLS = tuple(
    (Table.of(key, f"pool {keys}", title, **look), make) for key, keys, title, look, make in _OF_POOLS
)
"""Tables with the pool of each row, and what yields the rest of the rows of one pool."""
TABLES = (
    *(table for table, _ in OF_POOLS),
    *(ROOT, POOLS, WAYS, TURNS, IDLE, SETUP, PROOF, ORDER, IDENTITIES, CACHES, ASSUMED, FILES),
    *(shared.SET, shared.BILL, shared.ACCURACY, shared.FIGURES),
)
"""Of every plan."""
PLAN = Shape("plan", "A plan: its layout, the predicted step, the placement's proof, what it costs.", TABLES)
IMPORT_PLAN = Shape("import-plan", "An imported plan.", (*TABLES, ENGINE))


def _seen(plan: Plan) -> Iterator[Block]:
    """Yield what a page shows of a plan: its place among all layouts, step, memory, cluster, experts, failures."""
    from rackplan.report.pictures.experts import expert_map
    from rackplan.report.pictures.memory import memory_picture
    from rackplan.report.pictures.overlay import plan_overlay
    from rackplan.report.pictures.step import step_picture
    from rackplan.report.pictures.strips import balance_picture, failures_picture
    from topology.draw import cluster_svg

    yield from _front(plan)
    for role, side in sides(plan):
        of, key = ("", "") if side is plan else (f" of {role}", f"-{role}")
        for picture, title in (
            (step_picture(side), "Step"),
            (memory_picture(side), "HBM of the fullest GPU"),
        ):
            yield replace(picture, title=f"{title}{of}", key=f"{picture.key}{key}")
    cluster, experts = plan.deployment.cluster, expert_map(plan)
    svg = cluster_svg(cluster, plan_overlay(plan))
    yield Picture("cluster", f"{cluster.name} with the plan on it", svg, title="Cluster and plan", scene=True)
    if experts is not None:
        yield replace(experts, title="Expert map")
    layers = {
        "plan": plan.balancedness,
        **{name: entry.balancedness for name, entry in plan.baselines.items()},
    }
    if plan.balancedness:
        drawn = {notes.baseline_name(name): values for name, values in layers.items() if values}
        yield replace(balance_picture(drawn), title="Balance of each layer")
    if plan.failures is not None and plan.failures.what_if:
        yield replace(failures_picture(plan.failures, plan.score.tok_s_per_gpu), title="After a failure")


def _front(plan: Plan) -> Iterator[Block]:
    """Yield the plan among all layouts, with measured runs at its conditions."""
    from cost.serving.points import frontier, layout_points
    from cost.validation.measured import comparable_points

    points, runs = layout_points(plan.deployment, plan.request.copies), comparable_points(plan.deployment)
    mine = {key: getattr(plan.score, key) for key in _FRONT.split()[1:]}
    published = ({**dict.fromkeys(_FRONT.split()), **vars(run), "layout": run.words} for run in runs)
    marks: tuple[tuple[Any, str, Rows], ...] = (
        ("point", "other layouts", map(vars, points)),
        ("line", "frontier", map(vars, frontier(points))),
        ("ring", "measured runs", published),
        ("star", "this plan", [{**mine, "layout": _short(plan)}]),
    )
    layers = [
        Layer(mark, FRONT(rows), "tok_s_per_user", "tok_s_per_gpu", name=name) for mark, name, rows in marks
    ]
    yield Chart("Throughput against speed per user", layers, log="xy", height=460)
    yield Note("Experts are taken as perfectly balanced, but in the plan.", kind="method")


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
