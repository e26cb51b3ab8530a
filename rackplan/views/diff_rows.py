"""What two plans have side by side: inputs, layout, predictions, memory and costs, a row for each thing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import groupby
from json import dumps
from typing import Any

from placement.plan import Plan
from rackplan.views.explain import HBM_USES
from rackplan.views.money import dollars, rate_words, watts
from topology.base.units import format_quantity
from topology.changes.overrides import figures_of, quantity_text
from topology.spec import Fault

_ALIKE = 1e-9
"""Relative difference of numbers that are the same: of other rounding."""
_MANY = 9.0
"""The change that is written as a factor."""
_SHOWN = 1e-3
"""The least change that is written as a number."""
_RUN_ALONE = ("seed", "time_limit_s", "alike")
"""Options of the search: they are inputs, and no difference of what is served."""
_WORDS = ("name", "title", "source", "text", "status")
"""Keys of a cluster that no cost depends on."""


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
        near = self._numbers and math.isclose(self.first, self.second, rel_tol=_ALIKE)
        return near or bool(self.first == self.second)

    @property
    def _numbers(self) -> bool:
        return all(isinstance(value, int | float) for value in (self.first, self.second))

    @property
    def cells(self) -> tuple[str, str, str, str]:
        """Name, both values, and the change."""
        return self.name, self._written(self.first), self._written(self.second), self._change()

    def _written(self, value: Any) -> str:
        return "-" if value is None else self.write(value)

    def _change(self) -> str:
        if self.same:
            return "="
        if not self._numbers or isinstance(self.first, bool) or not self.sized or not self.first:
            return ""
        change = self.second / self.first - 1
        if change >= _MANY:
            return f"x{self.second / self.first:,.0f}"
        return f"{change:+.1%}" if abs(change) >= _SHOWN / 2 else f"<{_SHOWN:.1%}"


def _row(
    key: str, name: str, values: Sequence[Any], write: Callable[[Any], str] = str, *, sized: bool = True
) -> Row:
    return Row(key, name, values[0], values[1], write, sized)


def row_data(rows: Iterable[Row]) -> dict[str, dict[str, Any]]:
    """Return rows as data by their keys."""
    return {row.key: {"first": row.first, "second": row.second, "same": row.same} for row in rows}


def input_rows(first: Plan, second: Plan, *data: Mapping[str, Any]) -> list[Row]:
    """Return all inputs of both plans, flat; a digest stands for what is too long to show."""
    both = list(zip((first, second), data, strict=True))
    figures = _common_figures(first, second)
    machines = [_hardware(plan) | own for plan, own in zip((first, second), figures, strict=True)]
    hardware = _rows(*machines)
    served = _rows(*[_served(*one) for one in both])
    alike = {row.key for row in (*hardware, *served) if row.same}
    digests = [_digests(*one) for one in both]
    if "model" in alike:
        served += _rows(*[_config(plan) for plan in (first, second)])
    told = {
        "loads_digest": {"loads"} <= alike,
        "cluster_digest": all(row.same for row in hardware if row.key != "cluster"),
    }
    shown = [{key: text for key, text in one.items() if told[key]} for one in digests]
    return [*hardware, *served, *_rows(*shown)]


def _rows(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[Row]:
    """Return a row for each key of either."""
    keys = dict.fromkeys([*first, *second])
    return [Row(key, _named(key), first.get(key), second.get(key), _plain) for key in keys]


def _named(key: str) -> str:
    if "." in key:
        return key
    return f"{key.removesuffix('_s').replace('_', ' ')} (s)" if key.endswith("_s") else key.replace("_", " ")


def _hardware(plan: Plan) -> dict[str, Any]:
    spec = plan.deployment.cluster.spec
    runs = [
        (name, len(list(run)))
        for name, run in groupby(spec.domains, lambda one: f"{one.gpus} {one.gpu.name}")
    ]
    up = [format_quantity(one.scale_up_bytes_per_s, "byte/s") for one in spec.domains if spec.raw is None]
    out = spec.scale_out
    return {
        "cluster": plan.deployment.cluster.name,
        "domains": ", ".join(f"{count} x {name}" for name, count in runs),
        "gpus": len(plan.deployment.cluster.gpus),
        "scale_up": ", ".join(dict.fromkeys(up)) or None,
        "scale_out": None
        if out is None
        else f"{out.kind}, {format_quantity(out.scale_out_bytes_per_s, 'byte/s')}, "
        f"oversubscription {out.total_oversubscription:g}" + f", {out.planes} planes" * (out.planes > 1),
        "broken": ", ".join(_broken(fault) for fault in spec.faults) or None,
    }


def _broken(fault: Fault) -> str:
    name = fault.gpu or " to ".join(fault.link or ())
    if fault.cabled_to is not None:
        return f"{name}, cabled to {fault.cabled_to}"
    return f"{name} at {fault.factor:g}" if fault.factor else name


def _served(plan: Plan, data: Mapping[str, Any]) -> dict[str, Any]:
    inputs, loads = data["inputs"], plan.loads
    model = plan.deployment.model
    return {
        "model": model.name,
        "weights": ", ".join(dict.fromkeys(model.precision.values())),
        **{key: value for key, value in inputs["workload"].items() if key != "batch"},
        "loads": None if loads is None else ", ".join(loads.names),
        **{key: value for key, value in data["request"].items() if key not in _RUN_ALONE},
        **{key if key != "basis" else "price_basis": value for key, value in inputs["prices"].items()},
    }


def _digests(plan: Plan, data: Mapping[str, Any]) -> dict[str, str]:
    """Return digests of what is too long to show."""
    loads = plan.loads
    found = {"cluster_digest": _json_digest(_bare(data["inputs"]["cluster"]))}
    return found if loads is None else found | {"loads_digest": _digest(loads.tokens.tobytes())}


def _config(plan: Plan) -> dict[str, Any]:
    """Return the keys of the model's config, of lists and tables a digest."""
    return {
        f"config.{key}": _json_digest(value) if isinstance(value, Mapping | list | tuple) else value
        for key, value in plan.deployment.model.config.items()
        if key != "rackplan"
    }


def _json_digest(value: Any) -> str:
    return _digest(dumps(value, sort_keys=True, default=str).encode())


def _bare(value: Any) -> Any:
    """Return data of a cluster without its words: names, titles and sources."""
    if isinstance(value, Mapping):
        return {key: _bare(item) for key, item in value.items() if key not in _WORDS}
    return [_bare(item) for item in value] if isinstance(value, list) else value


def _common_figures(first: Plan, second: Plan) -> list[dict[str, str]]:
    """Return the figures of parts that both clusters have; of parts of one alone `domains` says enough."""
    both = [list(figures_of(plan.deployment.cluster.spec)) for plan in (first, second)]
    common = set.intersection(*({part for part, *_ in one} for one in both))
    return [
        {
            f"{part}.{name}": quantity_text(figure.value, figure.unit)
            for part, name, figure in one
            if part in common and figure.published
        }
        for one in both
    ]


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


def layout_rows(first: Plan, second: Plan, *data: Mapping[str, Any]) -> list[Row]:
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


def prediction_rows(*data: Mapping[str, Any]) -> list[Row]:
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


def term_rows(*data: Mapping[str, Any]) -> list[Row]:
    """Return the parts of both steps, the largest of either first."""
    both = [one["score"]["terms_s"] for one in data]
    taken = {name: [terms.get(name, 0.0) for terms in both] for name in dict.fromkeys([*both[0], *both[1]])}
    alike = data[0]["score"]["tokens"] == data[1]["score"]["tokens"]
    return [
        _row(name, name.replace("_", " "), seconds, _milliseconds, sized=alike)
        for name, seconds in sorted(taken.items(), key=lambda item: -max(item[1]))
    ]


def memory_rows(*data: Mapping[str, Any]) -> list[Row]:
    """Return what fills the HBM of both, and how many sequences fit."""
    both = [one["score"]["hbm_bytes"] for one in data]
    uses = dict.fromkeys([*both[0], *both[1]])
    rows = [
        _row(use, f"{HBM_USES.get(use, use)} GB", [one.get(use) for one in both], _gigabytes) for use in uses
    ]
    most = [one["score"]["max_batch_per_gpu"] for one in data]
    return [*rows, _row("max_batch_per_gpu", "sequences per GPU that fit", most)]


def cost_rows(*data: Mapping[str, Any]) -> list[Row]:
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


def _rate(value: float) -> str:
    return f"{value:,.1f}" if value < 1000 else f"{value:,.0f}"


def _milliseconds(value: float) -> str:
    return f"{value * 1e3:,.3f}"


def _gigabytes(value: float) -> str:
    return f"{value / 1e9:,.1f}" if value >= 1e10 else f"{value / 1e9:.3g}"


def _four(value: float) -> str:
    return f"{value:.4f}"


def _percent(value: float) -> str:
    return f"{value:.2%}"
