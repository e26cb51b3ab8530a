"""Documents of changes: a re-plan, and plans side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from placement.analysis.differences import Differences, differences
from placement.migrate.migration import KNEE
from placement.migrate.moved import Moved, moved, why_not_counted
from placement.migrate.replan import Replanned, ReplanOptions
from placement.migrate.steps import Transfers
from placement.plan import Plan
from rackplan.report import notes, shared
from rackplan.report.doc import Chart, Doc, Late, Layer, Note, Record, Row, Shape, Table
from rackplan.report.fields import phrase
from rackplan.report.pictures.moves import moves_map
from rackplan.report.plan import LEVERS, PLANNED, TABLES, plan_doc, plan_row, plan_sentences, pool_row
from topology.base.errors import input_name
from topology.base.units import plural

_MOVED = "moves moved copies bytes transfer_s busiest_link"
_BALANCE = "balancedness_before balancedness_restored balancedness_fresh fresh_moves buffers"
MOVED = Record.of(
    "",
    f"{_MOVED} {_BALANCE} needed_moves least_moves least_layers lost lost_gpus lost_copies faulty_links",
    shown=f"moves moved bytes transfer_s busiest_link least_moves {_BALANCE}",
    tiles="moves moved bytes transfer_s",
)
SOURCES = Table.of("sources", "plan distance bytes", "Where the copies come from", shown="distance bytes")
_POINT = "moves moved bytes balancedness max_over_mean meets_limit"
FRONT = Table.of("front", _POINT, "Balance against moves (each row is a placement)", max_rows=9, even=True)
REPLAN = Shape("replan", "A re-plan: what moves, and what that gives.", (MOVED, SOURCES, FRONT, *TABLES))
SAME = Record.of("", "same", max_rows=0)
_PLAN = "plan cluster model layout batch tok_s_per_gpu tok_s_per_user step_s bound_by balancedness redundant "
PLANS = Table.of(
    "plans",
    f"plan {PLANNED} workers tp ep moe_tp dcp pcp attention_dp stages redundant gap",
    "Plans",
    across=True,
    change=True,
    shown=f"{_PLAN} usd_per_million_tokens power_w",
)
CHANGED = Table.of("changed", "plan input before after", "Inputs that differ from the first plan", max_rows=5)
PARTS = Table.of("step_changes", "plan part first_step_s step_s change_share", "Step against the first plan")
MEMORY = Table.of("memory_changes", "plan use first_bytes bytes change_share", "HBM against the first plan")
CHANGE_OVER = Table.of("change_over", f"plan {_MOVED} copies_left", "Moves from the first plan")
LAYERS = Table.of("moved_layers", "plan layer moves bytes", "Moves by layer", max_rows=0)
FINDINGS = Table.of("findings", "plan finding", "Findings that not all plans share", max_rows=None)
SCORE = Shape(
    "score",
    "A plan scored again; of several, one beside the other.",
    (*TABLES, LEVERS, SAME, PLANS, CHANGED, PARTS, MEMORY, CHANGE_OVER, SOURCES, LAYERS, FINDINGS),
)
_DISTANCES = {"across": "other racks, over the scale-out network", "storage": "storage: no copy is left"}


def replan_doc(replanned: Replanned, options: ReplanOptions | None = None) -> Doc:
    """Return the document of a re-plan that was made with these options."""
    plan, options, several = replanned.moved, options or ReplanOptions(), len(replanned.front) > 1
    row, planned = _moved_row(replanned, options), plan_doc(plan)
    missed, rate, *_, accuracy = plan_sentences(plan, plan_row(plan))
    front = FRONT(
        _point(replanned, point.moves, point.balancedness, point.objective) for point in replanned.front
    )
    chosen = FRONT([_point(replanned, replanned.moves, replanned.after, plan.proof.objective)])
    lines = [Layer("line", front, "moves", "balancedness", name="front")]
    lines.append(Layer("star", chosen, "moves", "balancedness", name="this re-plan"))
    sources = SOURCES(_sources("", replanned.transfer))
    near = Chart("", [Layer("bar", sources, "bytes", "distance")], alt="Bytes by distance", height=200)
    fields = "layout tok_s_per_gpu tok_s_per_user step_s usd_per_million_tokens balancedness"
    root = [replace(block, shown=fields) for block in planned.blocks if isinstance(block, Record)]
    return Doc(
        REPLAN,
        f"Re-plan of {plan.deployment.model.name} on {plan.deployment.cluster.name}",
        [missed, _moves_sentence(row), _balance_sentence(replanned), "" if missed else rate],
        [
            Note(_lost_words(replanned, options)),
            MOVED(row),
            sources,
            *([near] * (len(sources.rows) > 1)),
            Late(lambda: list(filter(None, [moves_map(replanned)]))),
            *([Chart("Balance against moves", lines)] * several),
            *root,
            *(block for block in planned.blocks if not isinstance(block, Record)),
            Note(accuracy),
            Note(notes.sentence(plan.deployment.fabric_note)),
            *(
                Note(notes.sentence(text), kind="warning" if " is idle: " in text else "note")
                for text in plan.notes
            ),
            Note(_rule(replanned, options), kind="method"),
        ],
        [replace(front, max_rows=9 * several), *planned.details],
        frame=lambda: _steps(replanned),
    )


def _moved_row(replanned: Replanned, options: ReplanOptions) -> Row:
    return MOVED.row(
        replanned,
        **_moving(replanned),
        balancedness_before=replanned.before,
        balancedness_restored=replanned.restored,
        balancedness_fresh=replanned.fresh,
        needed_moves=replanned.needed,
        least_moves=replanned.least.moves,
        least_layers=replanned.least.layers,
        buffers=sum(step.buffer for step in replanned.steps),
        lost=list(options.lost),
        faulty_links=len(replanned.faults),
    )


def _moving(moves: Replanned | Moved) -> dict[str, Any]:
    """Return what moves take, besides what they say themselves."""
    link = {"transfer_s": moves.transfer.seconds, "busiest_link": moves.transfer.bottleneck}
    return {"moved": moves.moves / moves.copies, **link}


def _moves_sentence(row: Row, to: str = "") -> str:
    """Return how many copies move, and how long that takes."""
    if not row["moves"]:
        return f"No copy moves{to}: every GPU has its experts already."
    long = (
        "for an unknown time" if row["transfer_s"] is None else f"{phrase(row, 'transfer_s')} over the links"
    )
    long = long if row["transfer_s"] != 0 else "all from storage"
    copies = f"{row['moves']:,} of {row['copies']:,} expert copies move"
    return f"{copies}{to} ({phrase(row, 'bytes')}, {long})."


def _balance_sentence(replanned: Replanned) -> str:
    turns = "is" if replanned.before is None else f"goes from {replanned.before:.3f} to"
    fresh = f"a fresh plan would move {plural(replanned.fresh_moves, 'copy')} for {replanned.fresh:.3f}"
    return f"Balancedness {turns} {replanned.after:.3f}; {fresh}."


def _lost_words(replanned: Replanned, options: ReplanOptions) -> str:
    """Return what failed and the copies lost with it; empty without failures."""
    slow = sum(fault.factor > 0 for fault in replanned.faults)
    counts = {
        f"{plural(replanned.lost_gpus, 'GPU')} with {plural(replanned.lost_copies, 'copy')}": replanned.lost_gpus,
        f"{plural(len(replanned.faults) - slow, 'link')} down": len(replanned.faults) - slow,
        f"{plural(slow, 'link')} slow": slow,
    }
    lost = "; ".join(words for words, count in counts.items() if count)
    return f"Lost: {lost} ({', '.join(options.lost) or 'as described'})." if lost else ""


def _rule(replanned: Replanned, options: ReplanOptions) -> str:
    budgets = f"{input_name('max_moves')}, {input_name('max_bytes')} or {input_name('horizon_s')}"
    if options.max_moves is not None or options.max_bytes is not None:
        return "The best balance within the budget of moves."
    if options.horizon_s is not None:
        return f"Every move that saves more time than it costs over {options.horizon_s:g} s of serving."
    if replanned.lost_gpus:
        return f"The fewest moves that restore every expert; {budgets} allow more."
    return f"The fewest moves within {KNEE:.0%} of a fresh plan's balancedness; {budgets} set a budget."


def _point(replanned: Replanned, moves: int, balancedness: float, objective: float) -> Row:
    meets = (
        None
        if replanned.moved.limit_s is None
        else replanned.meets is not None and moves >= replanned.meets.moves
    )
    row = {"moves": moves, "moved": moves / replanned.copies, "bytes": moves * replanned.bytes_per_move}
    return row | {"balancedness": balancedness, "max_over_mean": objective, "meets_limit": meets}


def _sources(name: str, transfer: Transfers) -> Iterator[Row]:
    """Yield bytes by how far they come."""
    for near, amount in transfer.bytes_by_distance.items():
        if amount:
            yield {"plan": name, "distance": _DISTANCES.get(near, f"the same {near}"), "bytes": amount}


def _steps(replanned: Replanned) -> list[dict[str, Any]]:
    """Return a row for each move, in order: GPUs by their ids, no ``source`` where it comes from storage."""
    ids = [gpu.id for gpu in replanned.moved.deployment.cluster.gpus]
    gpus = (
        (step, ids[step.gpu], None if step.source is None else ids[step.source]) for step in replanned.steps
    )
    return [
        {"layer": step.layer, "expert": step.expert, "gpu": gpu, "slot": step.slot, "source": source}
        | {"replaces": step.replaces, "bytes": replanned.expert_bytes[step.layer]}
        for step, gpu, source in gpus
    ]


def plans_doc(plans: Mapping[str, Plan]) -> Doc:
    """Return the document of several plans side by side, by name: each beside the first."""
    (base, old), *new_plans = plans.items()
    unlike = {name: differences(old, new) for name, new in new_plans}
    why = {name: why_not_counted(old, new) for name, new in new_plans}
    over = {name: moved(old, new) for name, new in new_plans if not why[name]}
    rows = [_plan_row(name, plan) for name, plan in plans.items()]
    moves = [
        CHANGE_OVER.row(moving, plan=name, copies_left=moving.left, **_moving(moving))
        for name, moving in over.items()
    ]
    alone = list(_unshared({name: _findings(plan) for name, plan in plans.items()}))
    same = all(difference.none for difference in unlike.values()) and not alone
    sources = (row for name, moving in over.items() for row in _sources(name, moving.transfer))
    uncounted = (f"Moves to {name} are not counted: {text}." for name, text in why.items() if text)
    titles = dict.fromkeys(f"{row['model']} on {row['cluster']}" for row in rows)
    to = f" from {base} to {moves[0]['plan']}" if moves and not same else ""
    return Doc(
        SCORE,
        f"{len(plans)} plans of {' and '.join(titles)}",
        [*_verdict(rows, unlike, same=same), _moves_sentence(moves[0], to) if to else ""],
        [
            SAME({"same": same}),
            PLANS(rows),
            CHANGED(_changed_inputs(unlike)),
            shared.step_bars(((name, plan.score.terms_s) for name, plan in plans.items()), "plan"),
            CHANGE_OVER(moves, max_rows=0 if same else 12),
            *(Note(text, "moves", "missing") for text in uncounted),
        ],
        [
            PARTS(_compared(unlike, "terms_s", "part", "step_s")),
            MEMORY(_compared(unlike, "hbm_bytes", "use", "bytes")),
            SOURCES(sources, shown=""),
            LAYERS(row for name, moving in over.items() for row in _moved_layers(name, moving)),
            FINDINGS(alone),
        ],
        frame=lambda: rows,
    )


def _plan_row(name: str, plan: Plan) -> Row:
    redundant = max((part.slots - part.experts for part in plan.experts if part is not None), default=None)
    return {**pool_row("", plan), **plan_row(plan), "plan": name, "redundant": redundant}


def _verdict(rows: Sequence[Row], unlike: Mapping[str, Differences], *, same: bool) -> Iterator[str]:
    """Yield which plan gives most, and in what the plans differ."""
    if same:
        yield "The plans are the same in inputs, layout, placement and all predictions."
        return
    base, best = rows[0], max(rows, key=lambda row: row["tok_s_per_gpu"])
    rival, tokens = rows[1] if best is base else base, {row["counted_tokens"] for row in rows}
    rate = phrase(best, "tok_s_per_gpu", best["counted_tokens"])
    ratio = best["tok_s_per_gpu"] / rival["tok_s_per_gpu"]
    lead = f", {ratio:.3g}x {rival['plan']}" if len(tokens) == 1 else ""
    yield f"{best['plan']} gives the most: {rate} at {phrase(best, 'tok_s_per_user')}{lead}."
    count = max(len(difference.inputs) for difference in unlike.values())
    inputs = f"{plural(count, 'input')} differ{'s' * (count == 1)}" if count else "the inputs are the same"
    placed = all(difference.placed for difference in unlike.values())
    yield notes.sentence(f"{inputs}{'' if placed else '; GPUs hold other layers or experts'}")


def _unshared(findings: Mapping[str, Sequence[str]]) -> Iterator[Row]:
    """Yield what is so of a plan, and not of all."""
    for name, texts in findings.items():
        for text in texts:
            if not all(text in listed for listed in findings.values()):
                yield {"plan": name, "finding": text}


def _findings(plan: Plan) -> list[str]:
    texts = [*notes.assumptions(plan), *(f"Missing: {text}" for text in plan.totals.missing)]
    texts += [f"Rejected: {plan.passed_over}."] * bool(plan.passed_over)
    if (failures := plan.failures) is not None and failures.experts_at_risk:
        lost = f"{plural(failures.experts_at_risk, 'expert')} ({failures.share_at_risk:.1%} of the tokens)"
        texts.append(f"A single {notes.UNITS[failures.spread]} failure loses every copy of {lost}.")
    return texts


def _changed_inputs(unlike: Mapping[str, Differences]) -> Iterator[Row]:
    for name, difference in unlike.items():
        for setting, pair in difference.inputs.items():
            old, new = _plain(pair.first), _plain(pair.second)
            yield {"plan": name, "input": setting, "before": old, "after": new}


def _plain(value: Any) -> str | None:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_plain(item)}" for key, item in value.items()) or "none"
    return None if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _compared(unlike: Mapping[str, Differences], of: str, key: str, figure: str) -> Iterator[Row]:
    """Yield figures of each plan beside those of the first."""
    for name, difference in unlike.items():
        for part, pair in getattr(difference, of).items():
            if part != "max_batch_per_gpu":
                old, new = pair.first or 0.0, pair.second or 0.0
                change = {"change_share": new / old - 1 if old else None}
                yield {"plan": name, key: shared.name_of(part), f"first_{figure}": old, figure: new, **change}


def _moved_layers(name: str, moving: Moved) -> Iterator[Row]:
    for layer, moves in moving.of_layer.items():
        yield {"plan": name, "layer": layer, "moves": moves, "bytes": moves * moving.expert_bytes[layer]}
