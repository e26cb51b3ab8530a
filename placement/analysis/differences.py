"""Two plans side by side: inputs that differ, and each figure of both."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import groupby
from json import dumps
from typing import Any

from placement.plan import Plan
from placement.plans.writing import plan_to_dict
from topology.base.units import format_quantity
from topology.changes.overrides import figures_of, quantity_text
from topology.spec import Fault

_ROUNDING = 1e-9
"""Relative difference attributed to rounding."""
_SEARCH = ("seed", "time_limit_s", "alike")
"""Search options: inputs without effect on the prediction."""
_WORDS = ("name", "title", "source", "text", "status")
"""Cluster keys without effect on cost."""

Facts = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class ComparedData:
    """A figure of both plans.

    Attributes
    ----------
    first, second, same:
        Of each plan (null: it has none), and whether they are the same.
    """

    first: Any
    second: Any
    same: bool


@dataclass(frozen=True)
class Differences:
    """Two plans side by side.

    Attributes
    ----------
    placed:
        Whether GPUs hold the same layers and experts.
    inputs:
        Inputs that differ, by name.
    layout, predictions, terms_s, hbm_bytes, cost:
        By figure: the layout, what is predicted, parts of the step, memory of the fullest GPU by use, money and power
        of the cluster.
    """

    placed: bool
    inputs: dict[str, ComparedData]
    layout: dict[str, ComparedData]
    predictions: dict[str, ComparedData]
    terms_s: dict[str, ComparedData]
    hbm_bytes: dict[str, ComparedData]
    cost: dict[str, ComparedData]

    @property
    def figures(self) -> bool:
        """Whether layout and all predictions are the same."""
        parts = (self.layout, self.predictions, self.terms_s, self.hbm_bytes, self.cost)
        return all(figure.same for part in parts for figure in part.values())

    @property
    def none(self) -> bool:
        """Whether there is no difference."""
        return self.placed and self.figures and not self.inputs


def differences(left: Plan, right: Plan) -> Differences:
    """Return two plans side by side, as their files have them."""
    plans = (left, right)
    data = [plan_to_dict(plan) for plan in plans]
    layout = _compared(*map(_layout, plans, data))
    scores = [document["score"] for document in data]
    steps = [score["terms_s"] for score in scores]
    padded = [dict.fromkeys({**steps[0], **steps[1]}, 0.0) | step for step in steps]
    largest = sorted(padded[0], key=lambda name: -max(step[name] for step in padded))
    predictions = _compared(*map(_predictions, data))
    costs = _compared(*(_costs(score["totals"]) for score in scores))
    if layout["layers"].same:
        del layout["layers"]
    if predictions["balancedness_mean"].first is predictions["balancedness_mean"].second is None:
        del predictions["balancedness_mean"], predictions["gap"]
    if list(costs) == ["price_basis"]:
        del costs["price_basis"]
    return Differences(
        placed=all(data[0][key] == data[1][key] for key in ("experts", "stages")),
        inputs=_unlike_inputs(plans, data),
        layout=layout,
        predictions=predictions,
        terms_s=_compared(*({name: step[name] for name in largest} for step in padded)),
        hbm_bytes=_compared(
            *({**score["hbm_bytes"], "max_batch_per_gpu": score["max_batch_per_gpu"]} for score in scores)
        ),
        cost=costs,
    )


def _compared(left: Facts, right: Facts) -> dict[str, ComparedData]:
    """Return the values of two mappings for each key of either; null if missing in one."""
    return {
        key: ComparedData(first=left_value, second=right_value, same=_same(left_value, right_value))
        for key in dict.fromkeys([*left, *right])
        for left_value, right_value in [(left.get(key), right.get(key))]
    }


def _same(left: Any, right: Any) -> bool:
    numbers = all(isinstance(value, int | float) for value in (left, right))
    return bool(left == right) or (numbers and math.isclose(left, right, rel_tol=_ROUNDING))


def _layout(plan: Plan, data: Facts) -> Facts:
    """Return how a model is split."""
    keys = ("replicas", "stages", "ep", "tp", "dcp", "pcp", "attention_dp", "batch_per_gpu", "gpus_used")
    copies = max((part.slots - part.experts for part in plan.experts if part is not None), default=None)
    return {
        **{key: data["layout"][key] for key in keys},
        "layers": ", ".join(f"{run.layers.start}-{run.layers.stop - 1}" for run in plan.layout.replicas[0]),
        **({} if copies is None else {"redundant": copies}),
    }


def _predictions(data: Facts) -> Facts:
    score = data["score"]
    keys = ("tokens", "tok_s_per_gpu", "tok_s_per_gpu_used", "tok_s_per_user")
    return {
        **{key: score[key] for key in keys},
        "tok_s": score["totals"]["tok_s"],
        **{key: score[key] for key in ("step_s", "lower_step_s", "bound_by", "balancedness_mean")},
        "gap": data["proof"]["gap"],
    }


def _costs(totals: Facts) -> Facts:
    """Return dollars and watts that have a figure."""
    keys = ("usd_per_million_tokens", "usd_per_hour", "power_w", "tok_s_per_mw", "requests_per_s")
    known = {key: totals[key] for key in keys if totals[key] is not None}
    return known | {"price_basis": totals["price_basis"]}


def _unlike_inputs(plans: Sequence[Plan], data: Sequence[Facts]) -> dict[str, ComparedData]:
    """Return the inputs that differ; where no figure shown differs, a digest represents values too long to show."""
    figures = [list(figures_of(plan.deployment.cluster.spec)) for plan in plans]
    common = {part for part, *_ in figures[0]} & {part for part, *_ in figures[1]}
    machines = [
        _hardware(plan)
        | {
            f"{part}.{name}": quantity_text(figure.value, figure.unit)
            for part, name, figure in plan_figures
            if part in common and figure.published
        }
        for plan, plan_figures in zip(plans, figures, strict=True)
    ]
    hardware = _compared(*machines)
    served = _compared(*map(_served, plans, data))
    compared = hardware | served
    if served["model"].same:
        compared |= _compared(*map(_config, plans))
    if all(entry.same for key, entry in hardware.items() if key != "cluster"):
        bare = [_digest(_bare(entry["inputs"]["cluster"])) for entry in data]
        compared |= _compared(*({"cluster_digest": entry} for entry in bare))
    if served["loads"].same:
        tokens = (None if plan.loads is None else _hash(plan.loads.tokens.tobytes()) for plan in plans)
        compared |= _compared(*({"loads_digest": entry} for entry in tokens))
    return {key: entry for key, entry in compared.items() if not entry.same}


def _hardware(plan: Plan) -> Facts:
    spec = plan.deployment.cluster.spec
    runs = groupby(f"{domain.gpus} {domain.gpu.name}" for domain in spec.domains)
    up = [
        format_quantity(domain.scale_up_bytes_per_s, "byte/s") for domain in spec.domains if spec.raw is None
    ]
    out = spec.scale_out
    return {
        "cluster": plan.deployment.cluster.name,
        "domains": ", ".join(f"{len(list(run))} x {name}" for name, run in runs),
        "gpus": len(plan.deployment.cluster.gpus),
        "scale_up": ", ".join(dict.fromkeys(up)) or None,
        "scale_out": None
        if out is None
        else f"{out.kind}, {format_quantity(out.scale_out_bytes_per_s, 'byte/s')}, "
        f"oversubscription {out.total_oversubscription:g}" + f", {out.planes} planes" * (out.planes > 1),
        "broken": ", ".join(map(_broken, spec.faults)) or None,
    }


def _broken(fault: Fault) -> str:
    name = fault.gpu or " to ".join(fault.link or ())
    if fault.cabled_to is not None:
        return f"{name}, cabled to {fault.cabled_to}"
    return f"{name} at {fault.factor:g}" if fault.factor else name


def _served(plan: Plan, data: Facts) -> Facts:
    inputs, loads, model = data["inputs"], plan.loads, plan.deployment.model
    return {
        "model": model.name,
        "weights": ", ".join(dict.fromkeys(model.precision.values())),
        **{key: value for key, value in inputs["workload"].items() if key != "batch"},
        "loads": None if loads is None else ", ".join(loads.names),
        **{key: value for key, value in data["request"].items() if key not in _SEARCH},
        **{key if key != "basis" else "price_basis": value for key, value in inputs["prices"].items()},
    }


def _config(plan: Plan) -> Facts:
    """Return the keys of the model's config, of lists and tables a digest."""
    return {
        f"config.{key}": _digest(value) if isinstance(value, Mapping | list | tuple) else value
        for key, value in plan.deployment.model.config.items()
        if key != "rackplan"
    }


def _bare(value: Any) -> Any:
    """Return data of a cluster without its words: names, titles and sources."""
    if isinstance(value, Mapping):
        return {key: _bare(item) for key, item in value.items() if key not in _WORDS}
    return [_bare(item) for item in value] if isinstance(value, list) else value


def _digest(value: Any) -> str:
    return _hash(dumps(value, sort_keys=True, default=str).encode())


def _hash(content: bytes) -> str:
    return sha256(content).hexdigest()[:12]
