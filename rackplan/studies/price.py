"""Price one point (a layout, a sweep or a plan) and return the figures of its row: those of the result's document.

What points of a process share (models, clusters, layouts that differ in nothing but their batch) is made once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from cost.inputs.deployment import Deployment
from cost.inputs.layout import Layout
from cost.layouts import Sweep
from cost.model import Model
from cost.money.prices import gpu_named
from cost.serving.result import sweeps_of
from placement.layouts.choose import batch_within
from placement.layouts.fitting import Fitted
from placement.layouts.given import given_layout
from rackplan import answers, inputs
from rackplan.report.plan import plan_row
from rackplan.report.shared import totals_row
from rackplan.report.sweep import sweep_doc
from rackplan.requests import LayoutRequest, Money, make
from rackplan.studies.spec import ENTRIES, KINDS, Kind, fields_of
from topology.base.errors import InfeasibleError, InputError, input_name
from topology.catalog.spelled import find_gpu
from topology.changes.domain_size import with_domain_gpus
from topology.cluster import Cluster

KEPT = 64
"""Clusters, models and layouts that a process keeps for its next points."""
_STEP = "batch step_s lower_step_s tok_s_per_gpu tok_s_per_user bound_by"
_Priced = tuple[list[str], dict[str, Any]]


def price(kind: Kind, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures of a point, by column and more.

    Raises
    ------
    InputError
        If what the options ask for cannot be.
    InfeasibleError
        If nothing fits, or nothing keeps the limits.
    """
    notes, figures = {"score": _score, "sweep": _sweep, "plan": _plan}[kind](options)
    if (size := options.get("domain_gpus")) is not None:
        notes.insert(0, f"scale-up domains of {size} GPUs (`domain_gpus`) with unchanged links per GPU")
    widths = {f"layout_{name}": figures.get(name) for name in ("ep", "tp", "stages", "replicas", "batch")}
    return {**figures, **widths, "notes": "; ".join(notes) or None}


def _request(kind: Kind, options: Mapping[str, Any]) -> Any:
    """Return the request of a point with its clusters, model and prices."""
    fields = fields_of(kind)
    entries: dict[str, dict[str, Any]] = {group: {} for group in ENTRIES}
    for name, value in options.items():
        group, _, entry = name.partition(".")
        if entry:
            entries[group][entry] = value
    texts = options.get("set") or []
    settings = [texts] if isinstance(texts, str) else list(texts)
    settings += [f"{figure}={value}" for figure, value in entries["set"].items()]
    request = {fields[name]: value for name, value in options.items() if name in fields} | {"settings": ()}
    for name in ("cluster", "prefill_cluster"):
        if name in options:
            request[name] = _cluster(options[name], options.get("domain_gpus"), tuple(settings))
    if isinstance(options["model"], str):  # else several with their shares
        request["model"] = _model(options["model"], request.pop("weights", None))
    cluster: Cluster = request["cluster"]
    for name in ("price", "power"):
        figures = {**(options.get(name) or {}), **entries[name]}
        request[fields[name]] = {gpu: value for gpu, value in figures.items() if _applies(gpu, cluster)}
    if "price_more" in options:
        own = make(Money, price_basis=options.get("price_basis"), prices=request["prices"])
        book = inputs.book_of(own, cluster)
        gpus = [domain.gpu for domain in cluster.spec.domains]
        dearer = {gpu.name: book.price(gpu).value + options["price_more"] for gpu in gpus}
        request["prices"] = {**book.prices, **dearer}
    return make(KINDS[kind], **request)


def _applies(gpu: str, cluster: Cluster) -> bool:
    """Return whether a figure of a GPU is for this cluster, and not for another of the study."""
    try:
        gpu_named(gpu, [cluster])
    except InputError:
        return find_gpu(gpu) is None  # an unknown one is refused with the request
    return True


@lru_cache(KEPT)
def _cluster(name: str, size: int | None, settings: tuple[str, ...]) -> Cluster:
    if settings:
        return inputs.clusters_of([_cluster(name, size, ())], settings)[0]
    cluster = inputs.cluster_of(name)
    return cluster if size is None else with_domain_gpus(cluster, size)


@lru_cache(KEPT)
def _model(name: str, weights: str | None) -> Model:
    return inputs.model_of(name, weights)


def forget() -> None:
    """Drop what was kept: names of files may be others in the next study."""
    for kept in (_cluster, _model, _fit):
        kept.cache_clear()


def _widths(layout: Layout) -> dict[str, int]:
    return {"ep": layout.ep, "tp": layout.tp, "stages": layout.stages, "replicas": len(layout.replicas)}


def _score(options: Mapping[str, Any]) -> _Priced:
    """Price one layout with balanced experts, at a batch or at the largest one that meets the limit."""
    request: LayoutRequest = _request("score", options)
    own = {"tpot_ms"} if (request.stages or 1) > 1 else {"tpot_ms", "batch"}  # layers are split at a batch
    shared = {name: value for name, value in options.items() if name not in own}
    deployment, fit = _fit(json.dumps(shared))
    limit_s = request.tpot_s if isinstance(request.tpot_s, float) else None
    batch = request.batch or batch_within(fit.scorer, fit.batch, limit_s)
    score = fit.scorer.at(batch or fit.least_batch)
    if limit_s is not None and score.tpot_s > limit_s:
        at = f"at {input_name('batch')} {batch}" if batch else "even with one sequence a group"
        why = f"time per token is {score.tpot_s * 1e3:.4g} ms {at}."
        raise InfeasibleError(why, field="tpot_ms", value=f"{limit_s * 1e3:g}")
    gpus, phase = len(deployment.cluster.gpus), deployment.workload.phase
    idle = gpus - fit.layout.gpus_used
    totals = deployment.bill.totals(score.tok_s_per_gpu * gpus, score.tokens, gpus_idle=idle, phase=phase)
    step = {name: getattr(score, name) for name in _STEP.split()}
    layout = {"layout": fit.layout.short(moe=deployment.model.moe is not None), **_widths(fit.layout)}
    return [*deployment.notes, *totals.missing], {**totals_row(totals), **step, **layout}


@lru_cache(KEPT)
def _fit(options: str) -> tuple[Deployment, Fitted]:
    """Return the layout of a point: ``options`` as JSON, without the batch if the layout is the same at any."""
    request: LayoutRequest = _request("score", json.loads(options))
    deployment, widths = answers.make_deployment(request), (request.ep, request.tp, request.stages)
    return deployment, given_layout(deployment, *widths, redundant=request.redundant)


def _sweep(options: Mapping[str, Any]) -> _Priced:
    """Price the best layout within the limit, or for whole requests the better of one pool and two."""
    result = answers.sweep(_request("sweep", options))
    best: Any = result.best  # there: else it is refused
    figures = {**sweep_doc(result).row, "configurations": sum(map(len, sweeps_of(result)))}
    notes = [*sweeps_of(result)[0].deployment.notes, *result.totals(best).missing]
    if not isinstance(result, Sweep):
        figures |= {"batch": best.batch, "pools": len(result.serving.sides(best))}
    elif result.limit_default and result.limit_s is None:
        notes.append("no limit is met: the default is out of reach")
    return notes, figures


def _plan(options: Mapping[str, Any]) -> _Priced:
    """Price a plan, made by the fast, reproducible path unless a time is given."""
    plan = answers.plan(_request("plan", {"time_limit_s": 0.0, **options}))
    proof = {"proof": plan.proof.status, "gap": plan.proof.gap, "pools": len(plan.pools)}
    figures = {**_widths(plan.layout), **plan_row(plan), **proof}
    return [*plan.deployment.notes, *plan.totals.missing], figures
