"""Two plans side by side: inputs, layout, predictions, memory, costs, what moves, and findings of one alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import groupby
from json import dumps
from typing import Any

from placement.failures import TOP
from placement.migrate.moved import Moved, moved, why_not_counted
from placement.plan import Plan
from placement.plan_file import plan_to_dict
from rackplan.views.blocks import Block, Heading, Items, Table, Text, View, labelled, picked, sections
from rackplan.views.explain import HBM_USES, assumptions
from rackplan.views.money import dollars, rate_words, watts
from rackplan.views.replan import links_words
from rackplan.views.words import UNITS
from topology.figures import Figure
from topology.units import format_quantity

SCHEMA_VERSION = 1
_ALIKE = 1e-9
"""Relative difference of numbers that are the same: of other rounding."""
_MANY = 9.0
"""The change that is written as a factor."""
_SHOWN = 1e-3
"""The least change that is written as a number."""
_MOST_LAYERS = 9
"""Layers that a terminal lists, those with most moves."""
_RUN_ALONE = ("seed", "time_limit_s", "alike")
"""Options of the search: they are inputs, and no difference of what is served."""


@dataclass(frozen=True)
class Row:
    """One thing of both plans: its key in the data, its name, what it is in each, and how it is written."""

    key: str
    name: str
    first: Any
    second: Any
    write: Callable[[Any], str] = str
    sized: bool = True
    """Whether the second is so much more or less than the first."""

    @property
    def same(self) -> bool:
        """Whether both plans have the same."""
        if isinstance(self.first, float) or isinstance(self.second, float):
            both = self.first is not None and self.second is not None
            return (
                both and math.isclose(self.first, self.second, rel_tol=_ALIKE)
            ) or self.first == self.second
        return bool(self.first == self.second)

    @property
    def cells(self) -> tuple[str, str, str, str]:
        """Name, both values, and the change."""
        return self.name, self._written(self.first), self._written(self.second), self._change()

    def _written(self, value: Any) -> str:
        return "-" if value is None else self.write(value)

    def _change(self) -> str:
        if self.same:
            return "="
        numbers = all(isinstance(value, int | float) for value in (self.first, self.second))
        if not numbers or isinstance(self.first, bool) or not self.sized or not self.first:
            return ""
        change = self.second / self.first - 1
        if change >= _MANY:
            return f"x{self.second / self.first:,.0f}"
        return f"{change:+.1%}" if abs(change) >= _SHOWN / 2 else f"<{_SHOWN:.1%}"


def _row(
    key: str, name: str, values: Sequence[Any], write: Callable[[Any], str] = str, *, sized: bool = True
) -> Row:
    return Row(key, name, values[0], values[1], write, sized)


def diff_view(first: Plan, second: Plan, names: Sequence[str]) -> View:
    """Return what ``rackplan diff`` says of two plans; ``names`` are those of their files."""
    data = [plan_to_dict(plan) for plan in (first, second)]
    inputs = _inputs(first, second, *data)
    layout, predictions, terms = _layout(first, second, *data), _predictions(*data), _terms(*data)
    memory, costs = _memory(*data), _costs(*data)
    why = why_not_counted(first, second)
    moves = None if why else moved(first, second)
    findings = _findings(first), _findings(second)
    alone = tuple(
        [text for text in ours if text not in theirs] for ours, theirs in (findings, findings[::-1])
    )
    unlike = [row for row in inputs if not row.same]
    compared = [*layout, *predictions, *terms, *memory, *costs]
    placed = data[0]["experts"] == data[1]["experts"] and data[0]["stages"] == data[1]["stages"]
    same = placed and not unlike and not any(alone) and all(row.same for row in compared)
    title = f"{_title(first)}, against {_title(second)}" if _title(first) != _title(second) else _title(first)
    head = [
        Heading(f"Two plans: {title}"),
        Text(str(names[0]), "First"),
        Text(str(names[1]), "Second"),
        Text(_verdict(unlike, compared, placed=placed, same=same), "Verdict"),
    ]
    tables = [
        _table("Inputs that differ", unlike, changes=False),
        _table("Layout", layout),
        _table("Predictions", predictions),
        _table("Parts of the step, ms", terms),
        _table("HBM of the fullest GPU", memory),
        _table("Cost and power of the cluster", costs),
    ]
    shown = [] if same else [*tables, _moves(moves, why, first, second), *_alone(alone)]
    return View(
        sections(head, *shown),
        {
            "schema_version": SCHEMA_VERSION,
            "plans": [
                {
                    "file": str(name),
                    "model": plan.deployment.model.name,
                    "cluster": plan.deployment.cluster.name,
                }
                for name, plan in zip(names, (first, second), strict=True)
            ],
            "same": same,
            "inputs": _pairs(unlike),
            "layout": _pairs(layout),
            "predictions": {**_pairs(predictions), "terms_s": _pairs(terms)},
            "hbm_bytes": _pairs(memory),
            "cost": _pairs(costs),
            "moves": None if moves is None else _moves_data(moves),
            "moves_missing": why or None,
            "findings": {"first": list(alone[0]), "second": list(alone[1])},
        },
    )


def _title(plan: Plan) -> str:
    return f"{plan.deployment.model.name} on {plan.deployment.cluster.name}"


def _verdict(unlike: Sequence[Row], compared: Sequence[Row], *, placed: bool, same: bool) -> str:
    """Return in a sentence whether, and in what, the plans differ."""
    if same:
        return "the plans are the same: inputs, layout, placement and every prediction"
    parts = (
        [f"{len(unlike)} input{'s' * (len(unlike) != 1)} differ{'s' * (len(unlike) == 1)}"] if unlike else []
    )
    parts += [] if placed else ["other GPUs hold other layers or experts"]
    parts += [] if all(row.same for row in compared) else ["layout or predictions differ"]
    return "; ".join(parts or ["only what is found about them differs"])


def _table(title: str, rows: Sequence[Row], *, changes: bool = True) -> list[Block]:
    """Return a table of both plans; nothing without rows."""
    if not rows:
        return []
    columns = ("", "first", "second", "change")[: 4 if changes else 3]
    return [
        Table(
            columns, [row.cells[: len(columns)] for row in rows], f"{title}:", words=(0,), ruled=not changes
        )
    ]


def _pairs(rows: Iterable[Row]) -> dict[str, dict[str, Any]]:
    return {row.key: {"first": row.first, "second": row.second, "same": row.same} for row in rows}


def _inputs(first: Plan, second: Plan, *data: Mapping[str, Any]) -> list[Row]:
    """Return all inputs of both plans, flat."""
    flat = [_flat_inputs(plan, one) for plan, one in zip((first, second), data, strict=True)]
    figures = [_figures(plan) for plan in (first, second)]
    for own, one in zip(flat, figures, strict=True):  # of parts of one alone `domains` says enough
        own.update({name: text for name, text in one.items() if all(name in other for other in figures)})
    names = dict.fromkeys([*flat[0], *flat[1]])
    return [
        Row(
            name,
            name if "." in name else name.replace("_", " "),
            flat[0].get(name),
            flat[1].get(name),
            _plain,
        )
        for name in names
    ]


def _flat_inputs(plan: Plan, data: Mapping[str, Any]) -> dict[str, Any]:
    deployment, inputs = plan.deployment, data["inputs"]
    spec, model = deployment.cluster.spec, deployment.model
    loads = plan.loads
    options = {key: value for key, value in inputs["options"].items() if key not in _RUN_ALONE}
    runs = [
        (name, len(list(run)))
        for name, run in groupby(spec.domains, lambda one: f"{one.gpus} {one.gpu.name}")
    ]
    return {
        "model": model.name,
        "model_digest": _digest(dumps({**model.config, "rackplan": None}, sort_keys=True).encode()),
        "weights": ", ".join(dict.fromkeys(model.precision.values())),
        "cluster": deployment.cluster.name,
        "domains": ", ".join(f"{count} x {name}" for name, count in runs),
        "gpus": len(deployment.cluster.gpus),
        "faults": len(spec.faults),
        **{key: value for key, value in inputs["workload"].items() if key != "batch"},
        "loads": None if loads is None else ", ".join(loads.names),
        **({} if loads is None else {"loads_digest": _digest(loads.tokens.tobytes())}),
        **options,
        **{key if key != "basis" else "price_basis": value for key, value in inputs["prices"].items()},
    }


def _figures(plan: Plan) -> dict[str, str]:
    """Return the figures of GPUs and links that a cluster rests on, as written."""
    found: dict[str, str] = {}

    def add(name: str, figures: Mapping[str, Figure]) -> None:
        for key, figure in figures.items():
            if figure.published:
                found[f"{name}.{key}"] = format_quantity(figure.value, figure.unit)

    spec = plan.deployment.cluster.spec
    for domain in spec.domains:
        add(domain.gpu.name, domain.gpu.figures)
        add(domain.fabric.name, picked(domain.fabric, "link_bytes_per_s latency_s"))
    if spec.scale_out is not None:
        add(spec.scale_out.fabric.name, picked(spec.scale_out.fabric, "link_bytes_per_s latency_s"))
    return found


def _digest(content: bytes) -> str:
    return sha256(content).hexdigest()[:12]


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_plain(item)}" for key, item in value.items()) or "none"
    if isinstance(value, float):
        return f"{value:g}"
    return str(value) or "none"


def _layout(first: Plan, second: Plan, *data: Mapping[str, Any]) -> list[Row]:
    """Return how both models are cut."""
    named = {
        "replicas": "replicas",
        "stages": "pipeline stages",
        "ep": "EP group (GPUs)",
        "tp": "TP width",
        "attention_dp": "attention DP",
        "batch_per_gpu": "batch per GPU",
        "gpus_used": "GPUs in use",
    }
    rows = [_row(key, words, [one["layout"][key] for one in data]) for key, words in named.items()]
    copies = [_redundant(plan) for plan in (first, second)]
    runs = [", ".join(f"{one.layers.start}-{one.layers.stop - 1}" for one in plan.layout.replicas[0])
            for plan in (first, second)]  # fmt: skip
    if runs[0] != runs[1]:
        rows.append(_row("layers", "layers of stages", runs))
    return (
        [*rows, _row("redundant", "redundant copies per layer", copies)] if copies != [None, None] else rows
    )


def _redundant(plan: Plan) -> int | None:
    found = [part.slots - part.experts for part in plan.experts if part is not None]
    return max(found, default=None)


def _predictions(*data: Mapping[str, Any]) -> list[Row]:
    """Return what both are predicted to do."""
    scores = [
        one["score"] | {"tok_s": one["score"]["totals"]["tok_s"], "gap": one["proof"]["gap"]} for one in data
    ]
    alike = scores[0]["tokens"] == scores[1]["tokens"]
    placed = any(score["balancedness_mean"] is not None for score in scores)
    named: list[tuple[str, str, Callable[[Any], str], bool]] = [
        ("tokens", "tokens counted", str, True),
        ("tok_s_per_gpu", "tok/s/GPU", _rate, alike),
        ("tok_s_per_gpu_used", "tok/s/GPU in use", _rate, alike),
        ("tok_s_per_user", "tok/s/user", _rate, alike),
        ("tok_s", "tok/s of the cluster", _rate, alike),
        ("step_s", "step ms", _milliseconds, alike),
        ("lower_step_s", "lower bound ms", _milliseconds, alike),
        ("bound_by", "bound by", str, True),
    ]
    if placed:
        named += [("balancedness_mean", "balancedness", _four, True), ("gap", "proven gap", _percent, False)]
    return [
        _row(key, words, [score[key] for score in scores], write, sized=sized)
        for key, words, write, sized in named
    ]


def _terms(*data: Mapping[str, Any]) -> list[Row]:
    """Return the parts of both steps, the largest of either first."""
    both = [one["score"]["terms_s"] for one in data]
    taken = {name: [terms.get(name, 0.0) for terms in both] for name in dict.fromkeys([*both[0], *both[1]])}
    alike = data[0]["score"]["tokens"] == data[1]["score"]["tokens"]
    return [
        _row(name, name.replace("_", " "), seconds, _milliseconds, sized=alike)
        for name, seconds in sorted(taken.items(), key=lambda item: -max(item[1]))
    ]


def _memory(*data: Mapping[str, Any]) -> list[Row]:
    both = [one["score"]["hbm_bytes"] for one in data]
    uses = dict.fromkeys([*both[0], *both[1]])
    rows = [
        _row(use, f"{HBM_USES.get(use, use)} GB", [one.get(use) for one in both], _gigabytes) for use in uses
    ]
    most = [one["score"]["max_batch_per_gpu"] for one in data]
    return [*rows, _row("max_batch_per_gpu", "sequences per GPU that fit", most)]


def _costs(*data: Mapping[str, Any]) -> list[Row]:
    """Return dollars and watts where either has a figure."""
    totals = [one["score"]["totals"] for one in data]
    alike = (
        totals[0]["tokens"] == totals[1]["tokens"] and totals[0]["price_basis"] == totals[1]["price_basis"]
    )
    rows = [
        _row(key, words, [one[key] for one in totals], write, sized=alike)
        for key, words, write in (
            ("usd_per_million_tokens", "USD per million tokens", dollars),
            ("usd_per_hour", "USD per hour", dollars),
            ("power_w", "power", watts),
            ("tok_s_per_mw", "tok/s per MW", rate_words),
            ("requests_per_s", "requests/s", rate_words),
        )
    ]
    rows = [row for row in rows if (row.first, row.second) != (None, None)]
    return [*rows, _row("price_basis", "price basis", [one["price_basis"] for one in totals])] if rows else []


def _moves(found: Moved | None, why: str, first: Plan, second: Plan) -> list[Block]:
    """Return what must be fetched to go from the first plan to the second, or why nobody can say."""
    if found is None:
        return labelled("Moves", f"not counted: {why}")
    if not found.moves:
        left = f"; {found.left:,} copies are no longer needed" if found.left else ""
        return labelled("Moves", f"nothing: every GPU has its experts already{left}")
    text = (
        f"{found.moves:,} of {found.copies:,} copies ({found.moves / found.copies:.1%}) to go from the first to the "
        f"second, {found.bytes / 1e9:,.1f} GB; {found.left:,} copies of the first are no longer needed"
    )
    near = (
        "GPUs are the same where their ids are; `rackplan replan` finds a placement that lies near the first"
    )
    rest = "attention, shared and dense weights of GPUs that change stage or TP group are not in it"
    ours, theirs = (
        (plan.layout.tp, [[stage.layers for stage in replica] for replica in plan.layout.replicas[:1]])
        for plan in (first, second)
    )
    most = sorted(found.of_layer.items(), key=lambda item: (-item[1], item[0]))
    shown = [item for item in most if item[1]][:_MOST_LAYERS]
    table = Table.of(
        shown,
        ("layer", lambda item: str(item[0])),
        ("copies", lambda item: f"{item[1]:,}"),
        ("GB", lambda item: f"{item[1] * found.expert_bytes[item[0]] / 1e9:,.2f}"),
        title=f"Layers with most moves ({sum(moves > 0 for _, moves in most)} of {len(most)} have some):",
    )
    return [
        *labelled(
            "Moves", text, links_words(found.transfer, found.moves), near, rest if ours != theirs else ""
        ),
        table,
    ]


def _moves_data(found: Moved) -> dict[str, Any]:
    return {
        **picked(found, "moves bytes copies left"),
        **picked(found.transfer, "seconds bottleneck"),
        "bytes_from": dict(found.transfer.bytes_by_distance),
        "by_layer": {str(layer): moves for layer, moves in found.of_layer.items()},
    }


def _findings(plan: Plan) -> list[str]:
    """Return what is found about a plan, in sentences."""
    found = list(assumptions(plan))
    if plan.passed_over:
        found.append(f"Passed over: {plan.passed_over}.")
    failures = plan.failures
    if failures is not None and failures.experts_at_risk:
        found.append(
            f"One {UNITS[failures.spread]} that fails takes all copies of {failures.experts_at_risk:,} experts, with "
            f"{failures.share_at_risk:.1%} of the tokens."
        )
    found += [f"Missing: {text}" for text in plan.totals.bill.left_out]
    return found


def _alone(alone: Sequence[Sequence[str]]) -> list[list[Block]]:
    """Return the findings of one plan alone."""
    return [
        [Text(f"Only of the {which}:"), Items(texts[:TOP], hanging=True)]
        for which, texts in zip(("first", "second"), alone, strict=True)
        if texts
    ]


def _rate(value: float) -> str:
    return f"{value:,.1f}" if value < 1000 else f"{value:,.0f}"


def _milliseconds(value: float) -> str:
    return f"{value * 1e3:,.3f}"


def _gigabytes(value: float) -> str:
    return f"{value / 1e9:,.1f}"


def _four(value: float) -> str:
    return f"{value:.4f}"


def _percent(value: float) -> str:
    return f"{value:.2%}"
