"""Initial data of the page: opened plans, the settings of the first one, and the form."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from cost.calibration.serving import engine_names
from cost.dtypes import CACHE_DTYPES, DTYPES
from cost.inputs.workload import Workload
from cost.money.network import NETWORK
from cost.money.prices import PRICE_BASES, PriceBook
from cost.resolve import model_names, model_title
from cost.serving.serving import ONE_POOL
from placement.plan import Plan
from placement.plans.reading import PLAN_FILE, read_plan
from rackplan.serve.plans import PlanText
from rackplan.serve.pricing import cluster_of, model_of
from rackplan.serve.question import MAX_DRAFTS, MAX_TEXT, Question, Source
from topology.base.errors import InputError, RackplanError
from topology.base.reading import read_text
from topology.catalog import cluster_names
from topology.changes.overrides import figures_set, overrides
from topology.cluster import Cluster
from topology.files.cluster_data import cluster_to_dict

MAX_PLANS = 50
_SAID: Mapping[Any, str] = {"better": "the better mode", "decode": "decode only", "": "any measured"}
_CHOICES: Mapping[str, Sequence[Any]] = {
    "engine": ["", *engine_names()],
    "weights": list(DTYPES),
    "kv_dtype": list(CACHE_DTYPES),
    "draft_tokens": range(MAX_DRAFTS + 1),
    "price_basis": [name for name in PRICE_BASES if name != PriceBook.basis],
}
"""What fields of the form take, where their types do not say it."""
_ANSWER = 1024
"""Tokens per answer for a plan that has only a context."""


@dataclass(frozen=True)
class OpenPlan(PlanText):
    """A plan opened from the command line: folder name, text, and the command that made it."""

    name: str
    plan: Plan

    @classmethod
    def of(cls, path: Path) -> OpenPlan:
        """Read a plan file."""
        plan, text = read_plan(path), read_text(path, str(path))
        command = str(json.loads(text)["inputs"].get("command", ""))
        return cls(text, command, path.resolve().parent.name, plan)

    @property
    def asked(self) -> dict[str, Any]:
        """The page's settings for this plan: model, cluster, figures and formats."""
        deployment, limit = self.plan.deployment, self.plan.request
        work, prices = deployment.workload, deployment.prices
        model, weights = _model(self.plan)
        requests = self.plan.requests
        cluster, settings = _cluster(deployment.cluster.whole if self.plan.beside else deployment.cluster)
        osl = max(1, min(_ANSWER, 2 * (work.context - 1)))
        fields = {
            "serving": "decode" if work.decodes else "two pools",
            "isl": work.context - osl // 2 if work.decodes else work.context,
            "osl": osl if work.decodes else _ANSWER,
            "tpot_ms": _ms(limit.tpot_s),
            "ttft_ms": None if work.decodes else _ms(limit.ttft_s),
        }
        if work.phase == "both":
            fields |= {"serving": "one pool", "isl": round(work.prompt), "osl": round(work.answer)}
            fields["ttft_ms"] = _ms(limit.ttft_s)
        if requests is not None and requests.osl:
            serving = "one pool" if requests.serving == ONE_POOL else "two pools"
            fields |= {"serving": serving, "isl": requests.isl, "osl": requests.osl}
            fields["ttft_ms"] = None if "ttft_s" in requests.defaults else _ms(requests.ttft_limit_s)
        return fields | {
            "model": model,
            "clusters": [cluster],
            "weights": weights,
            "kv_dtype": None if work.kv_dtype == Workload.kv_dtype else work.kv_dtype,
            "draft_tokens": min(work.draft_tokens, MAX_DRAFTS) or None,
            "engine": deployment.engine,
            "mem_util": deployment.mem_util,
            "max_seqs": deployment.max_seqs,
            "settings": settings,
            "price_basis": None if prices.basis == PriceBook().basis else prices.basis,
            "prices": {name: usd for name, usd in prices.prices.items() if name not in NETWORK},
            "powers": {name: watts for name, watts in prices.powers.items() if name not in NETWORK},
        }


def _ms(seconds: float | str | None) -> float | str | None:
    return float(f"{seconds * 1e3:.9g}") if isinstance(seconds, float) else seconds


def _model(plan: Plan) -> tuple[dict[str, str], str | None]:
    """Return a plan's model by its name in the catalog, where that is the same one, else its config; its weights."""
    model = plan.deployment.model
    weights = model.weights_override
    try:
        same = model_of(Source(name=model.name), weights).config == model.config
    except RackplanError:
        same = False
    if same:
        return {"name": model.name}, weights
    return {"name": f"{model.name}.json", "text": json.dumps(model.config)}, weights


def _cluster(cluster: Cluster) -> tuple[dict[str, str], str]:
    """Return a cluster by its name in the catalog with the figures that were set, else as its plan file has it."""
    figures = {f"{part}.{name}": f"{figure.value!r}" for part, name, figure in figures_set(cluster.spec)}
    settings = [f"{figure}={value}" for figure, value in figures.items()]
    data = cluster_to_dict(cluster)
    text = json.dumps(data, separators=(",", ":"))
    try:
        rebuilt = overrides([cluster_of(Source(name=cluster.name))], settings)[0]
        same = _values(cluster_to_dict(rebuilt)) == _values(data)
    except RackplanError:
        same = False
    if same:
        return {"name": cluster.name}, "; ".join(settings)
    if len(text) > MAX_TEXT:
        return {"name": cluster.name}, ""  # which the page refuses beside its field
    return {"name": f"{cluster.name}.json", "text": text}, ""


def _values(data: Any) -> Any:
    """Return plain data with the values of its figures alone, without where they are from."""
    if isinstance(data, dict):
        figure = {"value", "unit", "kind", "source"} <= data.keys()
        return data["value"] if figure else {key: _values(value) for key, value in data.items()}
    return [_values(item) for item in data] if isinstance(data, list) else data


@dataclass(frozen=True)
class Opened:
    """Plans opened from the command line."""

    plans: tuple[OpenPlan, ...] = ()

    @classmethod
    def of(cls, path: Path | None) -> Opened:
        """Return the plan of a file, of a folder of results, or all plans of the folders in a folder.

        Raises
        ------
        InputError
            If there is none.
        """
        if path is None:
            return cls()
        if path.is_dir() and not (path / PLAN_FILE).is_file():
            paths = sorted(path.glob(f"*/{PLAN_FILE}"))[:MAX_PLANS]
            if not paths:
                raise InputError(f"{path}: neither this folder nor its subfolders contain a {PLAN_FILE}.")
            return cls(tuple(OpenPlan.of(plan_path) for plan_path in paths))
        return cls((OpenPlan.of(path / PLAN_FILE if path.is_dir() else path),))

    @cached_property
    def start(self) -> dict[str, Any]:
        """Initial data of the page: names, the form, and the settings of the first plan."""
        defaults = Question().model_dump(mode="json") | {
            "settings": "",
            "prices": {},
            "powers": {},
            "factors": {},
        }
        return {
            "models": [{"name": name, "title": model_title(name)} for name in model_names()],
            "clusters": list(cluster_names()),
            "fields": _fields(),
            "asked": defaults | (self.plans[0].asked if self.plans else {}),
            "defaults": defaults,
            "basis": PriceBook().basis,
            "plans": [plan.name for plan in self.plans],
        }


def _fields() -> list[dict[str, Any]]:
    """Return the fields of the form, as :class:`Question` describes them."""
    fields = []
    for name, field in Question.model_fields.items():
        if field.title:
            example = "".join(field.examples or ())
            values = _CHOICES.get(name) or get_args(field.annotation) * (
                get_origin(field.annotation) is Literal
            )
            choices = [[value, _SAID.get(value, str(value))] for value in values]
            if choices and field.default is None:
                choices.insert(0, [None, example])
            shown = {"title": field.title, "hint": "" if choices else field.description, "example": example}
            fields.append({"name": name, **shown, "choices": choices or None})
    return fields
