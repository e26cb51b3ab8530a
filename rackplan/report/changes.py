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
from rackplan.report import notes, plan
from rackplan.report.doc import Block, Chart, Doc, Late, Layer, Note, Record, Row, Shape, Table
from rackplan.report.fields import said
from topology.base.errors import input_name
from topology.base.units import plural

_MOVED = "moves moved copies bytes transfer_s busiest_link"
MOVED = Record.of(
    "",
    f"{_MOVED} balancedness_before balancedness_restored balancedness_fresh fresh_moves needed_moves buffers lost "
    "lost_gpus lost_copies faulty_links",
    shown="moves moved bytes transfer_s busiest_link balancedness_before balancedness_restored balancedness_fresh "
    "fresh_moves buffers",
    tiles="moves moved bytes transfer_s",
)
SOURCES = Table.of("sources", "plan distance bytes", "Where the copies come from", shown="distance bytes")
FRONT = Table.of(
    "front",
    "moves moved bytes balancedness max_over_mean meets_limit",
    "Balance against moves (each row is a placement)",
    most=9,
    even=True,
)
REPLAN = Shape("replan", "A re-plan: what moves, and what that gives.", (MOVED, SOURCES, FRONT, *plan.TABLES))
SAME = Record.of("", "same", most=0)
PLANS = Table.of(
    "plans",
    f"plan {plan.PLANNED} workers tp ep moe_tp attention_dp stages redundant gap",
    "Plans",
    across=True,
    change=True,
    shown="plan cluster model layout batch tok_s_per_gpu tok_s_per_user step_s bound_by balancedness redundant "
    "usd_per_million_tokens power_w",
)
CHANGED = Table.of(
    "changed", "plan input before after", "Inputs that differ from those of the first plan", most=5
)
PARTS = Table.of(
    "step_changes", "plan part first_step_s step_s change_share", "Parts of the step beside the first"
)
MEMORY = Table.of("memory_changes", "plan use first_bytes bytes change_share", "HBM beside the first plan")
CHANGE_OVER = Table.of("change_over", f"plan {_MOVED} copies_left", "To change over from the first plan")
LAYERS = Table.of("moved_layers", "plan layer moves bytes", "Layers", most=0)
FINDINGS = Table.of("findings", "plan finding", "Only of one plan", most=None)
SCORE = Shape(
    "score",
    "A plan scored again; of several, one beside the other.",
    (*plan.TABLES, plan.LEVERS, SAME, PLANS, CHANGED, PARTS, MEMORY, CHANGE_OVER, SOURCES, LAYERS, FINDINGS),
)
_DISTANCES = {"across": "other racks, over the scale-out network", "storage": "storage: no copy is left"}


def replan_doc(found: Replanned, options: ReplanOptions | None = None) -> Doc:
    """Return the document of a re-plan made with these options."""
    after, asked = found.plan, options or ReplanOptions()
    row, planned = _moved_row(found, asked), plan.plan_doc(found.plan)
    missed, rate, *_, accuracy = plan.plan_sentences(after, plan.plan_row(after))
    front, several = FRONT(_front(found)), len(found.front) > 1
    mine = FRONT([_point(found, found.moves, found.after, after.proof.objective)])
    lines = [Layer("line", front, "moves", "balancedness", name="front")]
    lines.append(Layer("star", mine, "moves", "balancedness", name="this re-plan"))
    root = next(block for block in planned.blocks if isinstance(block, Record))
    others = [block for block in planned.blocks if block is not root]
    return Doc(
        REPLAN,
        f"Re-plan of {after.deployment.model.name} on {after.deployment.cluster.name}",
        [missed, _moves_sentence(row), _balance_sentence(found), "" if missed else rate],
        [
            Note(_lost_words(found, asked)),
            MOVED(row),
            SOURCES(_sources("", found.transfer)),
            Late(lambda: _pictures(found)),
            *([Chart("Balance against moves", lines)] * several),
            replace(
                root, shown="layout tok_s_per_gpu tok_s_per_user step_s usd_per_million_tokens balancedness"
            ),
            *others,
            Note(accuracy),
            *(Note(notes.sentence(text)) for text in (after.deployment.fabric_note, *after.notes)),
            Note(_rule(found, asked), kind="method"),
        ],
        [replace(front, most=9 * several), *planned.details],
        frame=lambda: _steps(found),
    )


def _moved_row(found: Replanned, options: ReplanOptions) -> Row:
    return MOVED.row(
        found,
        moved=found.moves / found.copies,
        transfer_s=found.transfer.seconds,
        busiest_link=found.transfer.bottleneck,
        balancedness_before=found.before,
        balancedness_restored=found.restored,
        balancedness_fresh=found.fresh,
        needed_moves=found.needed,
        buffers=sum(step.buffer for step in found.steps),
        lost=list(options.lost),
        faulty_links=len(found.faults),
    )


def _moves_sentence(row: Row, to: str = "") -> str:
    """Return how many copies move, and how long that takes."""
    if not row["moves"]:
        return f"No copy moves{to}: every GPU has its experts already."
    long = "for an unknown time" if row["transfer_s"] is None else f"{said(row, 'transfer_s')} over the links"
    copies = f"{row['moves']:,} of {row['copies']:,} expert copies move"
    return f"{copies}{to} ({said(row, 'bytes')}, {long})."


def _balance_sentence(found: Replanned) -> str:
    turns = "is" if found.before is None else f"goes from {found.before:.3f} to"
    fresh = f"a fresh plan would move {plural(found.fresh_moves, 'copy')} for {found.fresh:.3f}"
    return f"Balancedness {turns} {found.after:.3f}; {fresh}."


def _lost_words(found: Replanned, options: ReplanOptions) -> str:
    """Return what failed and the copies lost with it; empty without failures."""
    slow = sum(fault.factor > 0 for fault in found.faults)
    parts = [f"{plural(found.lost_gpus, 'GPU')} with {plural(found.lost_copies, 'copy')}"] * bool(
        found.lost_gpus
    )
    parts += [f"{plural(len(found.faults) - slow, 'link')} down"] * (len(found.faults) > slow)
    parts += [f"{plural(slow, 'link')} slow"] * bool(slow)
    named = f" ({', '.join(options.lost)})" if options.lost else ""
    return f"Lost: {'; '.join(parts)}{named}." if parts else ""


def _rule(found: Replanned, options: ReplanOptions) -> str:
    more = f"{input_name('max_moves')}, {input_name('max_bytes')} or {input_name('horizon_s')}"
    if options.max_moves is not None or options.max_bytes is not None:
        return "The best balance within the budget of moves."
    if options.horizon_s is not None:
        return f"Every move that saves more time than it costs over {options.horizon_s:g} s of serving."
    if found.lost_gpus:
        return f"The fewest moves that restore every expert; {more} allow more."
    return f"The fewest moves within {KNEE:.0%} of a fresh plan's balancedness; {more} set a budget."


def _point(found: Replanned, moves: int, balancedness: float, objective: float) -> Row:
    meets = None if found.plan.limit_s is None else found.meets is not None and moves >= found.meets.moves
    row = {"moves": moves, "moved": moves / found.copies, "bytes": moves * found.bytes_per_move}
    return row | {"balancedness": balancedness, "max_over_mean": objective, "meets_limit": meets}


def _front(found: Replanned) -> Iterator[Row]:
    return (_point(found, point.moves, point.balancedness, point.objective) for point in found.front)


def _sources(name: str, transfer: Transfers) -> Iterator[Row]:
    """Yield bytes by how far they come."""
    for near, amount in transfer.bytes_by_distance.items():
        if amount:
            yield {"plan": name, "distance": _DISTANCES.get(near, f"the same {near}"), "bytes": amount}


def _pictures(found: Replanned) -> list[Block]:
    from rackplan.report.pictures.moves import moves_pictures

    titles = {"sources": "Sources of the copies", "moves": "Where copies arrive"}
    return [replace(picture, title=titles[picture.key]) for picture in moves_pictures(found)]


def _steps(found: Replanned) -> list[dict[str, Any]]:
    """Return a row for each move, in order: GPUs by their ids, no ``source`` where it comes from storage."""
    gpus = found.plan.deployment.cluster.gpus
    return [
        {
            "layer": step.layer,
            "expert": step.expert,
            "gpu": gpus[step.gpu].id,
            "slot": step.slot,
            "source": None if step.source is None else gpus[step.source].id,
            "replaces": step.replaces,
            "bytes": found.expert_bytes[step.layer],
        }
        for step in found.steps
    ]


def plans_doc(plans: Mapping[str, Plan]) -> Doc:
    """Return the document of several plans side by side, by name: each beside the first."""
    (first, old), *others = plans.items()
    unlike = {name: differences(old, new) for name, new in others}
    why = {name: why_not_counted(old, new) for name, new in others}
    over = {name: moved(old, new) for name, new in others if not why[name]}
    rows, moves = (
        [_plan_row(name, one) for name, one in plans.items()],
        list(map(_change_over, over, over.values())),
    )
    alone = _findings(plans)
    same = all(difference.none for difference in unlike.values()) and not alone
    stacks = Table.of("", "plan part step_s")(
        {"plan": name, "part": _words(part), "step_s": seconds}
        for name, one in plans.items()
        for part, seconds in one.score.terms_s.items()
    )
    bars = Layer("bar", stacks, "step_s", "plan", "part")
    parts = PARTS(_compared(unlike, "terms_s", "part", ("first_step_s", "step_s")))
    lengths = LAYERS(
        {"plan": name, "layer": layer, "moves": count, "bytes": count * found.expert_bytes[layer]}
        for name, found in over.items()
        for layer, count in found.of_layer.items()
    )
    memory = MEMORY(_compared(unlike, "hbm_bytes", "use", ("first_bytes", "bytes")))
    sources = SOURCES(
        (row for name, found in over.items() for row in _sources(name, found.transfer)), shown=""
    )
    change_over = (
        "" if not over or same else _moves_sentence(moves[0], f" from {first} to {moves[0]['plan']}")
    )
    titles = dict.fromkeys(f"{row['model']} on {row['cluster']}" for row in rows)
    return Doc(
        SCORE,
        f"{len(plans)} plans of {' and '.join(titles)}",
        [*_verdict(rows, unlike, same=same), change_over],
        [
            SAME({"same": same}),
            PLANS(rows),
            CHANGED(_changed(unlike)),
            Chart("Steps by part", [bars], stacked=True, height=120 + 50 * len(plans)),
            CHANGE_OVER(moves, most=0 if same else 12),
            *(
                Note(f"Moves to {name} are not counted: {text}.", "moves", "missing")
                for name, text in why.items()
                if text
            ),
        ],
        [parts, memory, sources, lengths, FINDINGS({"plan": name, "finding": text} for name, text in alone)],
        frame=lambda: rows,
    )


def _plan_row(name: str, one: Plan) -> Row:
    slots = [part.slots - part.experts for part in one.experts if part is not None]
    pool = plan.pool_row("", one)
    return {**pool, **plan.plan_row(one), "plan": name, "redundant": max(slots, default=None)}


def _words(key: str) -> str:
    return "KV cache" if key == "kv_cache" else key.replace("_", " ")


def _verdict(rows: Sequence[Row], unlike: Mapping[str, Differences], *, same: bool) -> Iterator[str]:
    """Yield which plan gives most, and in what the plans differ."""
    if same:
        yield "The plans are the same in inputs, layout, placement and all predictions."
        return
    first, best = rows[0], max(rows, key=lambda row: row["tok_s_per_gpu"])
    other = rows[1] if best is first else first
    rate, ratio = (
        said(best, "tok_s_per_gpu", best["counted_tokens"]),
        best["tok_s_per_gpu"] / other["tok_s_per_gpu"],
    )
    yield f"{best['plan']} gives the most: {rate} at {said(best, 'tok_s_per_user')}, {ratio:.3g}x {other['plan']}."
    count = max(len(difference.inputs) for difference in unlike.values())
    placed = (
        ""
        if all(difference.placed for difference in unlike.values())
        else "GPUs hold other layers or experts"
    )
    inputs = f"{plural(count, 'input')} differ{'s' * (count == 1)}" if count else "the inputs are the same"
    yield notes.sentence("; ".join(filter(None, (inputs, placed))))


def _findings(plans: Mapping[str, Plan]) -> list[tuple[str, str]]:
    """Return what is so of some of the plans alone."""
    found = {name: _of_plan(one) for name, one in plans.items()}
    return [
        (name, text)
        for name, texts in found.items()
        for text in texts
        if not all(text in others for others in found.values())
    ]


def _of_plan(one: Plan) -> list[str]:
    texts = notes.assumptions(one)
    texts += [f"Rejected: {one.passed_over}."] * bool(one.passed_over)
    if (failures := one.failures) is not None and failures.experts_at_risk:
        lost = f"{plural(failures.experts_at_risk, 'expert')} ({failures.share_at_risk:.1%} of the tokens)"
        texts.append(f"A single {notes.UNITS[failures.spread]} failure loses every copy of {lost}.")
    return [*texts, *(f"Missing: {text}" for text in one.totals.missing)]


def _changed(unlike: Mapping[str, Differences]) -> Iterator[Row]:
    for name, difference in unlike.items():
        for setting, pair in difference.inputs.items():
            yield {
                "plan": name,
                "input": setting,
                "before": _plain(pair.first),
                "after": _plain(pair.second),
            }


def _plain(value: Any) -> str | None:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_plain(item)}" for key, item in value.items()) or "none"
    return None if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _compared(unlike: Mapping[str, Differences], of: str, key: str, keys: tuple[str, str]) -> Iterator[Row]:
    """Yield figures of each plan beside those of the first."""
    for name, difference in unlike.items():
        for figure, pair in getattr(difference, of).items():
            if figure == "max_batch_per_gpu":
                continue
            old, new = pair.first or 0.0, pair.second or 0.0
            row = {"plan": name, key: _words(figure), keys[0]: old, keys[1]: new}
            yield row | {"change_share": new / old - 1 if old else None}


def _change_over(name: str, found: Moved) -> Row:
    transfer = {"transfer_s": found.transfer.seconds, "busiest_link": found.transfer.bottleneck}
    return CHANGE_OVER.row(
        found, plan=name, moved=found.moves / found.copies, copies_left=found.left, **transfer
    )
