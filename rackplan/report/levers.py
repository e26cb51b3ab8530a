"""Document of a plan's levers: what each change by itself would bring, and why some are not possible."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from placement.analysis.lever import Reached, rate_of
from placement.analysis.levers import WORTH
from rackplan.report.doc import Chart, Doc, Layer, Note, Record, Row, Shape, Table
from rackplan.report.fields import FIELDS, said
from rackplan.report.notes import largest_words, level_words, lever_name, limit_words, sentence, title_words
from rackplan.report.shared import SET, set_table

if TYPE_CHECKING:
    from placement.analysis.lever import Lever
    from placement.analysis.levers import Levers

MOST_SHOWN = 5
"""Levers that are the answer, each at its largest change; the rest are details."""
WAYS = ("batch_kept", "layout_kept", "layout_free")
_GAINS = f"lever change to {' '.join(WAYS[:2])} layout_kept_batch layout_free"
ROOT = Record.of(
    "",
    "model cluster gpus phase counted_tokens layout gpus_used batch tok_s_per_gpu tok_s_per_gpu_used tok_s_per_user "
    "step_s gain_of tpot_limit_s limit_asked",
    shown="layout batch tok_s_per_gpu tok_s_per_user step_s tpot_limit_s",
    tiles="tok_s_per_gpu tok_s_per_user step_s",
)
LARGEST = Table.of(
    "largest",
    f"{_GAINS} layout lever_kind gain",
    "Largest gains",
    shown=f"lever change to {' '.join(WAYS)} layout",
)
EVERY = Table.of("levers", f"{_GAINS} layout lever_kind gain remark", "All levers", shown=_GAINS, most=None)
REACHED = Table.of(
    "reached",
    "lever change way tok_s_per_gpu tok_s_per_gpu_used tok_s_per_user step_s batch layout gain reason",
    "What each change reaches; without a lever the plan itself",
    most=0,
)
REFUSED = Table.of("refused", "lever change way reason", "Not possible", most=None)
WHAT_IF = Shape("what-if", "The gain of each lever of a plan.", (ROOT, LARGEST, EVERY, REACHED, REFUSED, SET))


def levers_doc(levers: Levers) -> Doc:
    """Return the document of ``rackplan what-if``."""
    plan, deployment = levers.plan, levers.plan.deployment
    score, rate = plan.score, FIELDS[rate_of(plan)].label
    row = ROOT.row(
        score,
        model=deployment.model.name,
        cluster=deployment.cluster.name,
        gpus=len(deployment.cluster.gpus),
        phase=deployment.workload.phase,
        counted_tokens=score.tokens,
        layout=plan.layout.short(moe=deployment.model.moe is not None),
        gpus_used=plan.layout.gpus_used,
        gain_of=rate_of(plan),
        tpot_limit_s=levers.level.tpot_s,
        limit_asked=levers.level.asked,
    )
    usable = [
        lever for lever in levers.rows if any(isinstance(end, Reached) for end in _ends(lever).values())
    ]
    best = {lever.name: lever for lever in reversed(usable) if lever.gain >= WORTH}
    largest = [lever for lever in usable if best.get(lever.name) is lever][:MOST_SHOWN]
    every, top = EVERY(_row(lever) for lever in usable), LARGEST(_row(lever) for lever in largest)
    chart = LARGEST(_row(lever) for lever in levers.largest)
    reached = REACHED(line for lever in (levers.unchanged, *levers.rows) for line in _lines(lever))
    limit, notes = limit_words(plan), [deployment.model.beyond(deployment.workload.context)]
    notes += [f"{lever_name(lever)}: {lever.note}" for lever in usable if lever.note]
    if not largest:
        notes.append("no change improves throughput or speed")
    return Doc(
        WHAT_IF,
        f"What-if: {title_words(plan)}",
        [
            largest_words(levers),
            f"The plan gives {said(row, 'tok_s_per_gpu', score.tokens)} at {said(row, 'tok_s_per_user')}.",
            f"{sentence(level_words(levers))[:-1]}; one parameter is changed at a time.",
        ],
        [
            *([Note(f"{limit}.", "tpot_limit_s", "warning")] if limit else []),
            ROOT(row),
            set_table(deployment.cluster),
            top,
            Chart("", [Layer("bar", chart, "gain", "lever")], alt=f"Gains in {rate}", height=330),
            *(Note(sentence(text)) for text in notes),
        ],
        [
            every,
            reached,
            REFUSED(_refused(reached.rows)),
            Note(
                f"Gains are changes of {rate} relative to the plan. Same batch: layout and batch as in the plan; "
                "same layout: its largest batch within the limit; any layout: the best one at its largest batch, "
                "experts placed by the fast path. Flop/s are BF16. What narrower formats do to answers is left out.",
                kind="method",
            ),
        ],
        frame=lambda: every.data,
    )


def _ends(lever: Lever) -> dict[str, Reached | str]:
    """Return what a lever reaches each way that was looked at, or why it cannot be."""
    ends = ((way, getattr(lever, way)) for way in WAYS)
    return {way: end for way, end in ends if end is not None}


def _row(lever: Lever) -> Row:
    ends = {way: end for way, end in _ends(lever).items() if isinstance(end, Reached)}
    kept, free = ends.get("layout_kept"), ends.get("layout_free")
    return {
        "lever": lever.name,
        "change": lever.change,
        "to": lever.to,
        **{way: ends[way].gain if way in ends else None for way in WAYS},
        "layout_kept_batch": kept and kept.batch,
        "layout": free.layout if free and free != kept else None,
        "lever_kind": lever.kind,
        "gain": lever.gain if ends.keys() & WAYS[1:] else None,
        "remark": lever.note or None,
    }


def _lines(lever: Lever) -> list[Row]:
    empty: dict[str, Any] = dict.fromkeys(field.key for field in REACHED.fields)
    named = {"lever": lever.name if lever.change else None, "change": lever.change or None}
    return [
        {
            **empty,
            **named,
            "way": FIELDS[way].label,
            **(vars(end) if isinstance(end, Reached) else {"reason": end}),
        }
        for way, end in _ends(lever).items()
    ]


def _refused(rows: Sequence[Row]) -> Iterator[Row]:
    """Yield why changes are not possible, a reason once for all ways in which it holds."""
    refused = [line for line in rows if line["reason"]]
    for key, lines in groupby(refused, lambda line: (line["lever"], line["change"], line["reason"])):
        yield {
            "lever": key[0],
            "change": key[1],
            "way": ", ".join(line["way"] for line in lines),
            "reason": key[2],
        }
