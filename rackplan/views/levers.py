"""Gains of a plan's levers: the table of ``what-if``, and the largest ones in a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic.dataclasses import dataclass

from placement.analysis.lever import Lever, Reached, rate_of
from placement.analysis.levers import WORTH, Levers
from placement.plans.schema import LayoutPart
from placement.plans.writing import layout_part
from rackplan.report.notes import sentence, title_words
from rackplan.views.blocks import (
    Block,
    Chart,
    Details,
    Heading,
    Items,
    Page,
    Table,
    Text,
    View,
    labelled,
    sections,
)
from rackplan.views.data import LEFT_OUT, Maybe, SetData, taken
from rackplan.views.settings import set_blocks, set_data
from rackplan.views.words import limit_blocks

MOST_NAMED = 3
"""Levers that a sentence names."""
MOST_SHOWN = 5
"""Levers that are the answer, each at its largest change; the rest are details."""
_RATES = {
    "tok_s_per_gpu": "tok/s/GPU",
    "tok_s_per_gpu_used": "tok/s/GPU in use",
    "tok_s_per_user": "tok/s/user",
}
_WAYS = {"batch_kept": "same batch", "layout_kept": "same layout", "layout_free": "any layout"}


@dataclass(frozen=True, kw_only=True)
class LeverData:
    """A lever: a figure or choice changed by itself.

    Attributes
    ----------
    lever, kind, change, to:
        What is changed, of which kind (hardware, precision, workload, layout), by how much, and to what; absent where
        nothing is changed.
    batch_kept, layout_kept, layout_free:
        What is reached with batch and layout kept, with the layout kept, with the best layout; null where it cannot
        be, absent where it was not tried.
    reasons:
        Why it cannot be, by which of the three.
    note:
        What is odd about it.
    """

    lever: Maybe[str] = LEFT_OUT
    kind: Maybe[str] = LEFT_OUT
    change: Maybe[str] = LEFT_OUT
    to: Maybe[str] = LEFT_OUT
    batch_kept: Maybe[Reached | None] = LEFT_OUT
    layout_kept: Maybe[Reached | None] = LEFT_OUT
    layout_free: Maybe[Reached | None] = LEFT_OUT
    reasons: dict[str, str]
    note: Maybe[str] = LEFT_OUT


@dataclass(frozen=True, kw_only=True)
class PlanRateData:
    """Performance of the unchanged plan.

    Attributes
    ----------
    tok_s_per_gpu, tok_s_per_user, step_s, batch:
        Over all GPUs, of one user, its step, and its sequences per GPU in use.
    """

    tok_s_per_gpu: float
    tok_s_per_user: float
    step_s: float
    batch: float


@dataclass(frozen=True, kw_only=True)
class HeldData:
    """Limit that applies to every lever.

    Attributes
    ----------
    tpot_s, asked, words:
        The longest time per token, whether it was given, and in words; null: none.
    """

    tpot_s: float | None
    asked: bool
    words: str


@dataclass(frozen=True, kw_only=True)
class LeversResult(SetData):
    """Output of ``rackplan what-if``: the gain of each lever.

    Attributes
    ----------
    model, cluster, gpus:
        Names, and the GPUs of the cluster.
    phase, tokens:
        Which phase, and which tokens are counted.
    layout, plan:
        Of the plan, and what it reaches.
    gain_of:
        The rate that gains are of.
    held:
        The time per token that levers keep.
    unchanged, levers:
        Nothing pulled, and each lever.
    """

    model: str
    cluster: str
    gpus: int
    phase: str
    tokens: str
    layout: LayoutPart
    plan: PlanRateData
    gain_of: str
    held: HeldData
    unchanged: LeverData
    levers: list[LeverData]


def levers_view(found: Levers) -> View:
    """Return the blocks and the data of ``rackplan what-if``."""
    plan = found.plan
    deployment, score = plan.deployment, plan.score
    moe = deployment.model.moe is not None
    cluster = deployment.cluster
    own = plan.layout.short(moe=moe)
    now = (
        f"{score.tok_s_per_gpu:,.0f} {score.tokens} tok/s/GPU at {score.tok_s_per_user:,.1f} tok/s/user; "
        f"{own}, batch {score.batch:,}"
    )
    usable = [row for row in found.rows if any(isinstance(way, Reached) for way in _ways(row).values())]
    odd = [f"{_name(row)}: {row.note}." for row in usable if row.note]
    head = [
        *limit_blocks(plan),
        Heading(title_words(plan)),
        Page([Text(largest_words(found), style="forward")]),
        Text(now, "Plan"),
        *set_blocks("Set", cluster),
        Text(f"{level_words(found)}; one parameter changed at a time", "Limit"),
    ]
    unchanged = [
        *labelled("Unchanged", _unchanged_words(found)),
        *labelled("Note", sentence(deployment.model.beyond(deployment.workload.context)), *odd),
    ]
    others = [f"{_first(row)}: {which}" for row in usable if (which := _which(row)) not in ("", own)]
    legend = [
        Text(
            f"change of {_RATES[rate_of(plan)]} relative to the plan, largest first. same batch: layout "
            "and batch as in "
            "the plan; same layout: the largest batch (@) within the limit; any layout: the best layout at its "
            "largest batch with experts placed by the fast path, if better; flop/s: BF16. The effect of a "
            "narrower format on answer quality is not considered.",
            "Legend",
        ),
        *labelled("Layouts", "; ".join(others)),
    ]
    best = {row.name: row for row in reversed(usable) if row.gain >= WORTH}
    largest = [row for row in usable if best.get(row.name) is row][:MOST_SHOWN]
    rest = sections(unchanged, [_table(usable)], legend, _refusals(found.rows))
    return View(
        [
            *sections(
                head, [_table(largest)] if largest else [Text("No change improves throughput or speed.")]
            ),
            Page(lambda: _chart(found)),
            Details(rest),
        ],
        LeversResult(
            model=deployment.model.name,
            cluster=cluster.name,
            gpus=len(cluster.gpus),
            **set_data(cluster),
            phase=deployment.workload.phase,
            tokens=score.tokens,
            layout=layout_part(plan),
            plan=taken(PlanRateData, score),
            gain_of=rate_of(plan),
            held=taken(HeldData, found.level, words=level_words(found)),
            unchanged=lever_data(found.unchanged),
            levers=[lever_data(row) for row in found.rows],
        ),
    )


def _chart(found: Levers) -> list[Block]:
    from rackplan.views.data_charts import levers_chart

    gains = [(_name(row), row.gain) for row in found.largest]
    if not gains:
        return []
    words, rate = "; ".join(f"{name} {gain:+.1%}" for name, gain in gains), _RATES[rate_of(found.plan)]
    return [Chart("levers", levers_chart(gains, rate), words, 120 + 30 * len(gains))]


def level_words(found: Levers) -> str:
    """Return the limit that every change has to meet."""
    level = found.level
    if not found.plan.deployment.workload.decodes:
        return "prompts per GPU in a step"
    if rate_of(found.plan) == "tok_s_per_user":
        return "batch fixed, since the plan minimizes time per token"
    if level.tpot_s is None:
        return "memory only: there is no limit on the time per token, and the batch is the largest that fits"
    time = f"{level.tpot_s * 1e3:,.4g} ms per token"
    return f"{time}, as in the plan" if level.asked else f"{time}, the time of the plan"


def largest_words(found: Levers) -> str:
    """Return the largest levers at the same layout in one sentence."""
    rows = found.largest[:MOST_NAMED]
    if not rows:
        return "No change improves this layout."
    tenth = {row.name: row for row in found.rows if row.change == "+10%"}
    named = []
    for row in rows:
        to = f" ({row.to})" if row.to and row.kind != "precision" else ""
        text = f"{_name(row)}{to} {row.gain:+.1%}"
        less = tenth.get(row.name)
        if row.kind == "hardware" and row.change == "x2" and less is not None:
            text += f" (+10%: {less.gain:+.1%})"
        named.append(text)
    return (
        f"Largest levers at the same layout, in {_RATES[rate_of(found.plan)]} ({level_words(found)}): "
        f"{'; '.join(named)}."
    )


def lever_data(row: Lever) -> LeverData:
    """Return one lever as data; null where it is not possible, with the reason."""
    ways = _ways(row)
    given: dict[str, Any] = {
        way: found if isinstance(found, Reached) else None for way, found in ways.items()
    }
    if row.change:
        given |= {"lever": row.name, "kind": row.kind, "change": row.change, "to": row.to}
    return LeverData(
        **given,
        reasons={way: found for way, found in ways.items() if isinstance(found, str)},
        note=row.note or LEFT_OUT,
    )


def _ways(row: Lever) -> dict[str, Reached | str]:
    found = {way: getattr(row, way) for way in _WAYS}
    return {way: one for way, one in found.items() if one is not None}


def _name(row: Lever) -> str:
    if row.kind == "layout":
        return row.name
    if row.change == "half":
        return f"half the {row.name}"
    if row.kind == "precision":
        return f"{row.name} {row.to}"
    return f"{row.name} {row.change}"


def _unchanged_words(found: Levers) -> str:
    """Return what the plan's layout and the best layout reach without any change."""
    kept, free = found.unchanged.layout_kept, found.unchanged.layout_free
    own = found.plan.layout.short(moe=found.plan.deployment.model.moe is not None)
    texts = []
    if isinstance(kept, Reached) and kept.batch != found.plan.score.batch:
        texts.append(f"{own} at batch {kept.batch:,.4g}: {_percent(kept.gain)}")
    if free == kept:
        texts.append(f"no other layout is better than {own}")
    elif isinstance(free, Reached):
        texts.append(f"{free.layout} at batch {free.batch:,.4g}: {_percent(free.gain)}")
    return "; ".join(texts)


def _table(rows: Sequence[Lever]) -> Table:
    return Table.of(
        rows,
        ("lever", _first),
        ("to", lambda row: "" if row.kind == "precision" else row.to.removesuffix(" BF16")),
        (_WAYS["batch_kept"], lambda row: _gain(row.batch_kept)),
        (_WAYS["layout_kept"], lambda row: _gain(row.layout_kept, batch=True)),
        (_WAYS["layout_free"], lambda row: _gain(row.layout_free)),
        words=(0, 1),
        indent=0,
    )


def _first(row: Lever) -> str:
    return _name(row) if row.kind != "layout" else f"{row.name}, {row.change}"


def _gain(found: Reached | str | None, *, batch: bool = False) -> str:
    if not isinstance(found, Reached):
        return "-"
    gain = _percent(found.gain)
    return f"{gain} @{found.batch:,.4g}" if batch else gain


def _percent(gain: float) -> str:
    text = f"{gain:+.1%}"
    return text[1:] if text[1:] == "0.0%" else text


def _which(row: Lever) -> str:
    """Return the best layout where it differs from the plan's, even if only in the split."""
    free, kept = row.layout_free, row.layout_kept
    return free.layout if isinstance(free, Reached) and free != kept else ""


def _refusals(rows: Sequence[Lever]) -> list[Block]:
    """Return why a change is not possible, each reason once."""
    changes: dict[tuple[str, str, str], list[str]] = {}
    for row in rows:
        reasons: dict[str, list[str]] = {}
        for way, found in _ways(row).items():
            if isinstance(found, str):
                reasons.setdefault(found, []).append(_WAYS[way])
        for reason, ways in reasons.items():
            where = "" if len(ways) == len(_ways(row)) else f", {' and '.join(ways)}"
            changes.setdefault((row.name, where, reason), []).append(_first(row))
    said = [f"{' and '.join(names)}{where}: {reason}" for (_, where, reason), names in changes.items()]
    return [Text("Not possible:"), Items(said, hanging=True)] if said else []
