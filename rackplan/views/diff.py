"""Two plans side by side: differences, moves from one to the other, and findings of only one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic.dataclasses import dataclass

from placement.analysis.differences import ComparedData, Differences, differences
from placement.analysis.failures import TOP
from placement.migrate.moved import Moved, moved, why_not_counted
from placement.plan import Plan
from rackplan.report.notes import UNITS
from rackplan.views.blocks import Block, Heading, Items, Table, Text, View, labelled, sections
from rackplan.views.data import LEFT_OUT, Maybe, SetData, taken
from rackplan.views.explain import HBM_USES, assumptions
from rackplan.views.money import dollars, rate_words, watts
from rackplan.views.replan import links_words
from rackplan.views.settings import set_data, set_words
from topology.base.units import plural

_MANY = 9.0
"""Change from which a factor is shown instead of percent."""
_SHOWN = 1e-3
"""Smallest change shown as a number."""
_MOST_LAYERS = 9
"""Layers with the most moves listed on a terminal."""

Write = Callable[[Any], str]


@dataclass(frozen=True, kw_only=True)
class ComparedPlanData(SetData):
    """One of the plans compared.

    Attributes
    ----------
    file, model, cluster:
        The path as given, and names.
    """

    file: str
    model: str
    cluster: str


@dataclass(frozen=True, kw_only=True)
class MovedData:
    """Moves from one plan to the other.

    Attributes
    ----------
    moves, bytes, copies, left:
        Copies that a GPU must fetch, their weights, all copies, and copies of the first plan no longer needed.
    seconds, bottleneck, bytes_from:
        Of the transfer (null: a link's rate is not published), its busiest link, and bytes by how far they come.
    by_layer:
        Moves by id of the layer.
    """

    moves: int
    bytes: float
    copies: int
    left: int
    seconds: float | None
    bottleneck: str
    bytes_from: dict[str, float]
    by_layer: dict[str, int]


@dataclass(frozen=True, kw_only=True)
class FindingsData:
    """Findings of only one plan.

    Attributes
    ----------
    first, second:
        In sentences.
    """

    first: list[str]
    second: list[str]


@dataclass(frozen=True, kw_only=True)
class PredictionsData:
    """Predictions of both plans.

    Attributes
    ----------
    tokens, tok_s_per_gpu, tok_s_per_gpu_used, tok_s_per_user, tok_s:
        Which tokens are counted; over all GPUs, over those in use, of one user, and of the whole cluster.
    step_s, lower_step_s, bound_by:
        The expected step, the pure roofline, and what takes most of it.
    balancedness_mean, gap:
        Of the experts.
    terms_s:
        By part of the step.
    """

    tokens: ComparedData
    tok_s_per_gpu: ComparedData
    tok_s_per_gpu_used: ComparedData
    tok_s_per_user: ComparedData
    tok_s: ComparedData
    step_s: ComparedData
    lower_step_s: ComparedData
    bound_by: ComparedData
    balancedness_mean: Maybe[ComparedData] = LEFT_OUT
    gap: Maybe[ComparedData] = LEFT_OUT
    terms_s: dict[str, ComparedData]


@dataclass(frozen=True, kw_only=True)
class DiffResult:
    """Output of ``rackplan diff``: two plans side by side.

    Attributes
    ----------
    plans, same:
        Both, and whether they are the same in all that is compared.
    inputs:
        Inputs that differ, by name.
    layout, predictions, hbm_bytes, cost:
        By figure: the layout, what is predicted, memory of the fullest GPU by use, money and power of the cluster.
    moves, moves_missing:
        What moves from the first to the second; null where that means nothing, and why.
    findings:
        Of each alone.
    """

    plans: list[ComparedPlanData]
    same: bool
    inputs: dict[str, ComparedData]
    layout: dict[str, ComparedData]
    predictions: PredictionsData
    hbm_bytes: dict[str, ComparedData]
    cost: dict[str, ComparedData]
    moves: MovedData | None
    moves_missing: str | None
    findings: FindingsData


def diff_view(first: Plan, second: Plan, names: Sequence[str]) -> View:
    """Return the blocks and the data of ``rackplan diff``; ``names`` are those of the plans' files."""
    plans, unlike = (first, second), differences(first, second)
    why = why_not_counted(first, second)
    moves = None if why else moved(first, second)
    found = _result(plans, names, unlike, moves=moves, why=why)
    titles = dict.fromkeys(f"{one.model} on {one.cluster}" for one in found.plans)
    head = [
        Heading(f"Two plans: {' against '.join(titles)}"),
        *(
            block
            for label, one, plan in zip(("First", "Second"), found.plans, plans, strict=True)
            for block in labelled(label, one.file, _set(plan))
        ),
        Text(_verdict(unlike, same=found.same), "Verdict"),
    ]
    only = [
        [Text(f"Only in the {which}:"), Items(texts[:TOP], hanging=True)]
        for which, texts in vars(found.findings).items()
        if texts
    ]
    shown = [] if found.same else [*_tables(unlike), _moves(moves, why, first, second), *only]
    return View(sections(head, *shown), found)


def _result(
    plans: Sequence[Plan], names: Sequence[str], unlike: Differences, *, moves: Moved | None, why: str
) -> DiffResult:
    """Return the comparison of two plans."""
    findings = [_findings(plan) for plan in plans]
    alone = FindingsData(
        first=[text for text in findings[0] if text not in findings[1]],
        second=[text for text in findings[1] if text not in findings[0]],
    )
    return DiffResult(
        plans=[
            ComparedPlanData(
                file=str(name),
                model=plan.deployment.model.name,
                cluster=plan.deployment.cluster.name,
                **set_data(plan.deployment.cluster),
            )
            for name, plan in zip(names, plans, strict=True)
        ],
        same=unlike.none and not (alone.first or alone.second),
        inputs=unlike.inputs,
        layout=unlike.layout,
        predictions=PredictionsData(**unlike.predictions, terms_s=unlike.terms_s),
        hbm_bytes=unlike.hbm_bytes,
        cost=unlike.cost,
        moves=None if moves is None else _moves_data(moves),
        moves_missing=why or None,
        findings=alone,
    )


def _verdict(found: Differences, *, same: bool) -> str:
    """Return in a line where two plans differ; ``same``: nowhere, nor in what is found about them."""
    if same:
        return "the plans are identical in inputs, layout, placement and all predictions"
    count = len(found.inputs)
    differs = [
        (bool(count), f"{plural(count, 'input')} differ{'s' * (count == 1)}"),
        (not found.placed, "GPUs hold different layers or experts"),
        (not found.figures, "layout or predictions differ"),
    ]
    return "; ".join(text for so, text in differs if so) or "only findings differ"


def _tables(found: Differences) -> list[list[Block]]:
    """Return the tables of what is compared; figures of other tokens have no change."""
    predictions, costs = found.predictions, found.cost
    rates = predictions["tokens"].same
    money = rates and ("price_basis" not in costs or costs["price_basis"].same)
    return [
        _table("Inputs that differ", found.inputs, _input_words, changes=False),
        _table("Layout", found.layout, _words),
        _table("Predictions", predictions, _words, sized=rates),
        _table(
            "Parts of the step, ms",
            found.terms_s,
            lambda key: (key.replace("_", " "), _milliseconds),
            sized=rates,
        ),
        _table("HBM of the fullest GPU", found.hbm_bytes, _memory_words),
        _table("Cost and power of the cluster", costs, _words, sized=money),
    ]


def _set(plan: Plan) -> str:
    words = set_words(plan.deployment.cluster)
    return f"set: {words}" if words else ""


def _table(
    title: str,
    compared: Mapping[str, ComparedData],
    words: Callable[[str], tuple[str, Write]],
    *,
    changes: bool = True,
    sized: bool = True,
) -> list[Block]:
    """Return a table of both plans; nothing without rows.

    ``words``: the name of a key, and how its values are written.
    ``sized``: whether the second of two numbers is so much more or less than the first.
    """
    if not compared:
        return []
    rows = []
    for key, one in compared.items():
        name, write = words(key)
        values = ["-" if value is None else write(value) for value in (one.first, one.second)]
        rows.append([name, *values, *[_change(one, sized=sized and key != "gap")] * changes])
    columns = ["", "first", "second", *["change"] * changes]
    return [Table(columns, rows, f"{title}:", words=(0,), ruled=not changes)]


def _change(one: ComparedData, *, sized: bool) -> str:
    if one.same:
        return "="
    numbers = all(isinstance(value, int | float) for value in (one.first, one.second))
    if not (numbers and sized and one.first) or isinstance(one.first, bool):
        return ""
    change = one.second / one.first - 1
    if change >= _MANY:
        return f"x{one.second / one.first:,.0f}"
    return f"{change:+.1%}" if abs(change) >= _SHOWN / 2 else f"<{_SHOWN:.1%}"


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:,.3f}"


def _gigabytes(value: float) -> str:
    return f"{value / 1e9:,.1f}" if value >= 1e10 else f"{value / 1e9:.3g}"


def _rate(value: float) -> str:
    return f"{value:,.1f}" if value < 1000 else f"{value:,.0f}"


_NAMED: Mapping[str, tuple[str, Write]] = {
    "stages": ("pipeline stages", str),
    "ep": ("EP group (GPUs)", str),
    "tp": ("TP width", str),
    "attention_dp": ("attention DP", str),
    "batch_per_gpu": ("batch per GPU", str),
    "gpus_used": ("GPUs in use", str),
    "layers": ("layers of stages", str),
    "redundant": ("redundant copies per layer", str),
    "tokens": ("tokens counted", str),
    "tok_s_per_gpu": ("tok/s/GPU", _rate),
    "tok_s_per_gpu_used": ("tok/s/GPU in use", _rate),
    "tok_s_per_user": ("tok/s/user", _rate),
    "tok_s": ("total tok/s", _rate),
    "step_s": ("step ms", _milliseconds),
    "lower_step_s": ("lower bound ms", _milliseconds),
    "balancedness_mean": ("balancedness", lambda value: f"{value:.4f}"),
    "gap": ("proven gap", lambda value: f"{value:.2%}"),
    "usd_per_million_tokens": ("USD per million tokens", dollars),
    "usd_per_hour": ("USD per hour", dollars),
    "power_w": ("power", watts),
    "tok_s_per_mw": ("tok/s per MW", rate_words),
    "requests_per_s": ("requests/s", rate_words),
    "max_batch_per_gpu": ("sequences per GPU that fit", lambda value: f"{value:,}"),
}
"""Display names of keys, and formats of their values."""


def _words(key: str) -> tuple[str, Write]:
    return _NAMED.get(key, (key.replace("_", " "), str))


def _memory_words(key: str) -> tuple[str, Write]:
    return _NAMED.get(key, (f"{HBM_USES.get(key, key)} GB", _gigabytes))


def _input_words(key: str) -> tuple[str, Write]:
    if "." in key:
        return key, _plain
    bare = key.removesuffix("_s").replace("_", " ")
    return f"{bare} (s)" if key.endswith("_s") else bare, _plain


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_plain(item)}" for key, item in value.items()) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value) or "none"


def _moves(found: Moved | None, why: str, first: Plan, second: Plan) -> list[Block]:
    """Return what must be fetched to go from the first plan to the second, or why that is unknown."""
    if found is None:
        return labelled("Moves", f"not counted: {why}")
    if not found.moves:
        left = f"; {plural(found.left, 'copy')} no longer needed" if found.left else ""
        return labelled("Moves", f"none: every GPU already has its experts{left}")
    text = (
        f"{found.moves:,} of {plural(found.copies, 'copy')} ({found.moves / found.copies:.1%}) to get from "
        f"the first to the second plan, {found.bytes / 1e9:,.1f} GB; {plural(found.left, 'copy')} of the "
        "first plan no longer needed"
    )
    near = "GPUs are matched by id; `rackplan replan` finds a placement close to the first plan"
    rest = "attention, shared and dense weights of GPUs that change stage or TP group are not counted"
    stages = [
        (plan.layout.tp, [stage.layers for stage in plan.layout.replicas[0]]) for plan in (first, second)
    ]
    layers = sorted(found.of_layer.items(), key=lambda item: (-item[1], item[0]))
    some = [item for item in layers if item[1]]
    table = Table.of(
        some[:_MOST_LAYERS],
        ("layer", lambda item: str(item[0])),
        ("copies", lambda item: f"{item[1]:,}"),
        ("GB", lambda item: f"{item[1] * found.expert_bytes[item[0]] / 1e9:,.2f}"),
        title=f"Layers with the most moves ({len(some)} of {len(layers)}):",
    )
    links = links_words(found.transfer, found.moves)
    return [*labelled("Moves", text, links, near, rest if stages[0] != stages[1] else ""), table]


def _moves_data(found: Moved) -> MovedData:
    return taken(
        MovedData,
        found,
        seconds=found.transfer.seconds,
        bottleneck=found.transfer.bottleneck,
        bytes_from=found.transfer.bytes_by_distance,
        by_layer={str(layer): moves for layer, moves in found.of_layer.items()},
    )


def _findings(plan: Plan) -> list[str]:
    """Return what is found about a plan, in sentences."""
    found = list(assumptions(plan))
    if plan.passed_over:
        found.append(f"Rejected: {plan.passed_over}.")
    failures = plan.failures
    if failures is not None and failures.experts_at_risk:
        found.append(
            f"A single {UNITS[failures.spread]} failure loses every copy of "
            f"{plural(failures.experts_at_risk, 'expert')} ({failures.share_at_risk:.1%} of the tokens)."
        )
    return [*found, *(f"Missing: {text}" for text in plan.totals.missing)]
