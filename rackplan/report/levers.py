"""Document of a plan's levers: what each change by itself would bring, and why some are not possible."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter

from placement.analysis.lever import Lever, Reached, rate_of
from placement.analysis.levers import MIN_SHOWN_GAIN, Levers
from rackplan.report.doc import Chart, Doc, Layer, Note, Record, Row, Shape, Table
from rackplan.report.fields import FIELDS, phrase
from rackplan.report.notes import limit_words, sentence, title_words
from rackplan.report.shared import SET, set_table

MAX_SHOWN, MAX_NAMED = 5, 3
"""Levers in the first table, each at its largest change, and in the answer; the others are details."""
WAYS = ("batch_kept", "layout_kept", "layout_free")
_GAINS = "lever change to batch_kept layout_kept"
ROOT = Record.of(
    "",
    "layout batch tok_s_per_gpu tok_s_per_user step_s tpot_limit_s | model cluster gpus phase counted_tokens "
    "gpus_used tok_s_per_gpu_used gain_of limit_asked",
    tiles="tok_s_per_gpu tok_s_per_user step_s",
)
LARGEST = Table.of(
    "largest", f"{_GAINS} layout_free layout | layout_kept_batch lever_kind gain", "Largest gains"
)
CHANGES = Table.of(
    "levers",
    f"{_GAINS} layout_kept_batch layout_free | layout lever_kind gain remark",
    "All levers",
    max_rows=None,
)
REACHED = Table.of(
    "reached",
    "lever change way tok_s_per_gpu tok_s_per_gpu_used tok_s_per_user step_s batch layout gain reason",
    "What each change reaches; without a lever the plan itself",
    max_rows=0,
)
REFUSED = Table.of("refused", "lever change way reason", "Not possible", max_rows=None)
WHAT_IF = Shape(
    "what-if", "The gain of each lever of a plan.", (ROOT, LARGEST, CHANGES, REACHED, REFUSED, SET)
)


def levers_doc(levers: Levers) -> Doc:
    """Return the document of ``rackplan what-if``."""
    plan, deployment = levers.plan, levers.plan.deployment
    score, rate = plan.score, FIELDS[rate_of(plan)].label
    row = ROOT.row(
        score,
        plan.layout,
        deployment.workload,
        model=deployment.model.name,
        cluster=deployment.cluster.name,
        gpus=len(deployment.cluster.gpus),
        counted_tokens=score.tokens,
        layout=plan.layout.short(moe=deployment.model.moe is not None),
        gain_of=rate_of(plan),
        tpot_limit_s=levers.level.tpot_s,
        limit_asked=levers.level.asked,
    )
    usable = [lever for lever in levers.rows if any(_reached(lever).values())]
    best = {lever.name: lever for lever in reversed(usable) if lever.gain >= MIN_SHOWN_GAIN}
    largest = [lever for lever in usable if best.get(lever.name) is lever][:MAX_SHOWN]
    table, chart = CHANGES(map(_row, usable)), LARGEST(map(_row, levers.largest))
    reached = REACHED(line for lever in (levers.unchanged, *levers.rows) for line in _lines(lever))
    notes = [deployment.model.beyond(deployment.workload.context)]
    notes += [f"{_name(lever)}: {lever.note}" for lever in usable if lever.note]
    notes += [] if largest else ["no change improves throughput or speed"]
    return Doc(
        WHAT_IF,
        f"What-if: {title_words(plan)}",
        [
            _largest(levers, rate),
            f"The plan gives {phrase(row, 'tok_s_per_gpu', score.tokens)} at {phrase(row, 'tok_s_per_user')}.",
            f"{_limit(levers)}; one parameter is changed at a time.",
        ],
        [
            Note(sentence(limit_words(plan)), "tpot_limit_s", "warning"),
            ROOT(row),
            set_table(deployment.cluster),
            LARGEST(map(_row, largest)),
            Chart("", [Layer("bar", chart, "gain", "lever")], alt=f"Gains in {rate}", height=330),
            *(Note(sentence(text)) for text in notes),
        ],
        [
            table,
            reached,
            REFUSED(_refused(line for line in reached.rows if line["reason"])),
            Note(
                f"Gains are changes of {rate}, each at the largest batch within the limit where the batch is free; "
                "in any layout experts are placed by the fast path. What narrower formats do to answers is left out.",
                kind="method",
            ),
        ],
        frame=lambda: table.data,
    )


def _reached(lever: Lever) -> dict[str, Reached | None]:
    """Return what a lever reaches each way; None where it cannot be, or nobody looked."""
    ends = ((way, getattr(lever, way)) for way in WAYS)
    return {way: end if isinstance(end, Reached) else None for way, end in ends}


def _row(lever: Lever) -> Row:
    ends = _reached(lever)
    fixed, free = ends["layout_kept"], ends["layout_free"]
    return CHANGES.row(
        lever,
        **{way: end and end.gain for way, end in ends.items()},
        lever=lever.name,
        layout_kept_batch=fixed and fixed.batch,
        layout=free.layout if free and free != fixed else None,
        lever_kind=lever.kind,
        gain=lever.gain if fixed or free else None,
        remark=lever.note or None,
    )


def _lines(lever: Lever) -> Iterator[Row]:
    """Yield what a lever reaches each way that was looked at, or why it cannot be."""
    named = {"lever": lever.name if lever.change else None, "change": lever.change or None}
    for way in WAYS:
        end = getattr(lever, way)
        if end is not None:
            reason = end if isinstance(end, str) else None
            yield REACHED.row(end, None, **named, way=FIELDS[way].label, reason=reason)


def _refused(lines: Iterable[Row]) -> Iterator[tuple[str, ...]]:
    """Yield why changes are not possible, a reason once for all ways in which it holds."""
    for (lever, change, reason), alike in groupby(lines, itemgetter("lever", "change", "reason")):
        yield lever, change, ", ".join(line["way"] for line in alike), reason


def _name(lever: Lever) -> str:
    """Return a lever with its change: ``half the context``, ``HBM bandwidth x2``."""
    if lever.change == "half":
        return f"half the {lever.name}"
    change = {"layout": "", "precision": lever.to}.get(lever.kind, lever.change)
    return f"{lever.name} {change}".rstrip()


def _largest(levers: Levers, rate: str) -> str:
    """Return the largest levers at the same layout."""
    named = []
    tenth = {lever.name: lever for lever in levers.rows if lever.change == "+10%"}
    for lever in levers.largest[:MAX_NAMED]:
        to = f" ({lever.to})" if lever.to and lever.kind != "precision" else ""
        smaller = tenth.get(lever.name) if lever.kind == "hardware" and lever.change == "x2" else None
        beside = f" (+10%: {smaller.gain:+.1%})" if smaller else ""
        named.append(f"{_name(lever)}{to} {lever.gain:+.1%}{beside}")
    if not named:
        return "No change improves this layout."
    return f"At the same layout these gain most, in {rate}: {'; '.join(named)}."


def _limit(levers: Levers) -> str:
    """Return the limit that every change has to meet."""
    level = levers.level
    if not levers.plan.deployment.workload.decodes:
        return "Prompts per GPU in a step stay as they are"
    if rate_of(levers.plan) == "tok_s_per_user":
        return "The batch is fixed, since the plan minimizes time per token"
    if level.tpot_s is None:
        return "Memory alone limits: no time per token is, and the batch is the largest that fits"
    whose = "as in the plan" if level.asked else "the time of the plan"
    return f"{level.tpot_s * 1e3:,.4g} ms per token are kept, {whose}"
