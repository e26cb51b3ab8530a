"""Price one point (a layout, a sweep, a plan or a fleet) and return the figures of its row.

What points of a process share (models, clusters, layouts that differ in nothing but their batch) is made once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from cost.inputs.deployment import Deployment
from cost.inputs.layout import Layout
from cost.layouts import Sweep
from cost.model import Model
from cost.money.bill import Totals
from cost.money.prices import gpu_named
from cost.serving.result import Pools, sweeps_of
from cost.step.score import Score
from placement.layouts.choose import batch_within
from placement.layouts.fitting import Fitted
from placement.layouts.given import given_layout
from rackplan import answers, inputs
from rackplan.report.sweep import configuration_rows
from rackplan.requests import LayoutRequest, Money, make
from rackplan.studies.options import FIGURE, KINDS, OF_GPU, Kind, Value, fields_of
from rackplan.studies.rows import Row
from topology.base.errors import InfeasibleError, InputError, input_name
from topology.catalog.spelled import find_gpu
from topology.changes.domain_size import with_domain_gpus
from topology.cluster import Cluster

_KEPT = 64
_STEP = "step_s lower_step_s tok_s_per_gpu tok_s_per_gpu_used tok_s_per_user bound_by"
_TOTALS = "tok_s gpus gpus_idle usd_per_million_tokens usd_per_hour tok_s_per_mw power_w"
"""Figures that have the same name in results and in rows."""


def price(kind: Kind, options: Mapping[str, Value]) -> Row:
    """Return the figures of a point, by column.

    Raises
    ------
    InputError
        If what the options ask for cannot be.
    InfeasibleError
        If nothing fits, or nothing keeps the limits.
    """
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    row = {"score": _score, "sweep": _sweep, "plan": _plan}[kind](given)
    if (size := given.get("domain_gpus")) is not None:
        said = f"scale-up domains of {size} GPUs (`domain_gpus`) with unchanged links per GPU"
        row["notes"] = "; ".join(filter(None, (said, row["notes"])))
    return row


def _request(kind: Kind, given: Mapping[str, Any], **more: Any) -> Any:
    """Return the request of a point with its cluster, model and prices; ``more`` are fields besides."""
    cluster, fields = _cluster(given, "cluster"), fields_of(kind)
    asked = {fields[name]: value for name, value in given.items() if name in fields}
    prices, powers = (_by_gpu(given, name, cluster) for name in OF_GPU)
    if isinstance(given["model"], str):  # else several with their shares
        asked["model"] = _model(given["model"], asked.pop("weights", None))
    if "price_more" in given:
        book = inputs.book_of(make(Money, price_basis=given.get("price_basis"), prices=prices), cluster)
        gpus = [domain.gpu for domain in cluster.spec.domains]
        prices = {**book.prices, **{gpu.name: book.price(gpu).value + given["price_more"] for gpu in gpus}}
    own = {"cluster": cluster, "settings": (), "prices": prices, "powers": powers}
    return make(KINDS[kind], **{**asked, **own, **more})


def _by_gpu(given: Mapping[str, Any], name: str, cluster: Cluster) -> dict[str, float]:
    """Return figures by GPU (``price``, ``price.GPU``), without GPUs that only other clusters of the study have."""
    figures = {**(given.get(name) or {}), **_below(given, f"{name}.")}
    for gpu in list(figures):
        try:
            gpu_named(gpu, [cluster])
        except InputError:
            if find_gpu(gpu) is not None:
                del figures[gpu]
    return figures


def _cluster(given: Mapping[str, Any], name: str) -> Cluster:
    """Return the cluster of a point with the requested domain size and figures."""
    texts = given.get("set") or []
    settings = [texts] if isinstance(texts, str) else list(texts)
    settings += [f"{figure}={value}" for figure, value in _below(given, FIGURE).items()]
    return _built(given[name], given.get("domain_gpus"), tuple(settings))


def _below(given: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Return the options with a prefix by the rest of their names."""
    return {name.removeprefix(prefix): value for name, value in given.items() if name.startswith(prefix)}


@lru_cache(_KEPT)
def _built(name: str, size: int | None, settings: tuple[str, ...]) -> Cluster:
    if settings:
        return inputs.clusters_of([_built(name, size, ())], settings)[0]
    cluster = inputs.cluster_of(name)
    return cluster if size is None else with_domain_gpus(cluster, size)


@lru_cache(_KEPT)
def _model(name: str, weights: str | None) -> Model:
    return inputs.model_of(name, weights)


def _score(given: Mapping[str, Any]) -> Row:
    """Price one layout with balanced experts, at a batch or at the largest one that meets the limit."""
    request: LayoutRequest = _request("score", given)
    own = {"tpot_ms"} if (request.stages or 1) > 1 else {"tpot_ms", "batch"}  # layers are split at a batch
    deployment, fit = _fit(json.dumps({name: value for name, value in given.items() if name not in own}))
    limit_s = request.tpot_s if isinstance(request.tpot_s, float) else None
    batch = request.batch or batch_within(fit.scorer, fit.batch, limit_s)
    score = fit.scorer.at(batch or fit.least_batch)
    if limit_s is not None and score.tpot_s > limit_s:
        at = f"at {input_name('batch')} {batch}" if batch else "even with one sequence a group"
        raise InfeasibleError(
            f"time per token is {score.tpot_s * 1e3:.4g} ms {at}.",
            field="tpot_ms",
            value=f"{limit_s * 1e3:g}",
        )
    return _scored(deployment, fit.layout, score)


@lru_cache(_KEPT)
def _fit(options: str) -> tuple[Deployment, Fitted]:
    """Return the layout of a point: ``options`` as JSON, without the batch if the layout is the same at any."""
    request: LayoutRequest = _request("score", json.loads(options))
    deployment, widths = answers.make_deployment(request), (request.ep, request.tp, request.stages)
    return deployment, given_layout(deployment, *widths, redundant=request.redundant)


def _sweep(given: Mapping[str, Any]) -> Row:
    """Price the best layout within the limit, or for whole requests the better of one pool and two."""
    prefill = "prefill_cluster"
    more = {prefill: _cluster(given, prefill)} if prefill in given else {}
    swept = answers.sweep(_request("sweep", given, **more))
    return _swept(swept) if isinstance(swept, Sweep) else _matched(swept)


def _swept(sweep: Sweep) -> Row:
    assert sweep.best is not None  # noqa: S101 - else it is refused
    (best,) = configuration_rows(sweep, [sweep.best])
    gone = sweep.limit_default and sweep.limit_s is None
    gave_way = ["no limit is met: the default is out of reach"] * gone
    return {
        **_laid_out(best),
        "configurations": len(sweep),
        **_billed(sweep.totals(sweep.best), [*sweep.deployment.notes, *gave_way]),
    }


def _laid_out(row: Row) -> Row:
    """Return the columns of a layout at a batch, of its figures by their own names."""
    widths = ("ep", "tp", "stages", "replicas", "batch")
    figures = {name: row[name] for name in ("layout", *_STEP.split())}
    return figures | {f"layout_{name}": row[name] for name in widths}


def _matched(pools: Pools) -> Row:
    best = pools.best
    assert best is not None  # noqa: S101 - else it is refused
    sides = pools.serving.sides(best)
    deployment = sides[-1][1].deployment
    return {
        "step_s": deployment.workload.tokens_per_step / best.tok_s_per_user,
        "tok_s_per_gpu": best.output_tok_s_per_gpu,
        "tok_s_per_gpu_used": best.output_tok_s_per_gpu_used,
        "tok_s_per_user": best.tok_s_per_user,
        "requests_per_s": best.requests_per_s,
        "layout": "; ".join(f"{role} {sweep.label(at)} x{workers}" for role, sweep, at, workers in sides),
        "layout_batch": best.batch,
        "pools": len(sides),
        "configurations": sum(map(len, sweeps_of(pools))),
        **_billed(pools.totals(best), deployment.notes),
    }


def _scored(deployment: Deployment, layout: Layout, score: Score) -> Row:
    gpus, moe = len(deployment.cluster.gpus), deployment.model.moe is not None
    totals = deployment.bill.totals(
        score.tok_s_per_gpu * gpus,
        score.tokens,
        gpus_idle=gpus - layout.gpus_used,
        phase=deployment.workload.phase,
    )
    widths = {"ep": layout.ep if moe else 1, "tp": layout.tp, "stages": layout.stages}
    more = {"layout": layout.short(moe=moe), "replicas": len(layout.replicas), "batch": float(score.batch)}
    row = _laid_out({**_figures(score, _STEP), **widths, **more})
    return row | _billed(totals, deployment.notes)


def _figures(result: object, names: str) -> Row:
    return {name: getattr(result, name) for name in names.split()}


def _billed(totals: Totals, notes: Iterable[str]) -> Row:
    """Return cost and power; unknown figures are null, and ``notes`` say why."""
    return {**_figures(totals, _TOTALS), "notes": "; ".join([*notes, *totals.missing]) or None}


def _plan(given: Mapping[str, Any]) -> Row:
    """Price a plan, made by the fast, reproducible path unless a time is given."""
    plan = answers.plan(_request("plan", {"time_limit_s": 0.0, **given}))
    balance, whole = list(plan.balancedness.values()), plan.requests
    row = _scored(plan.deployment, plan.layout, plan.score)
    if whole is not None:
        served = {
            "step_s": plan.step_s,
            "tok_s_per_gpu": plan.totals.tok_s_per_gpu,
            "tok_s_per_gpu_used": (plan.totals.used or plan.totals).tok_s_per_gpu,
            "tok_s_per_user": whole.tok_s_per_user,
            "requests_per_s": plan.totals.requests_per_s,
            "layout": "; ".join(f"{pool.role} {pool.layout}" for pool in whole.pools),
            "layout_batch": whole.pools[0].batch,
            "pools": len(whole.pools),
        }
        row |= served | _billed(plan.totals, plan.deployment.notes)
    return {
        **row,
        "balancedness": sum(balance) / len(balance) if balance else None,
        "proof": plan.proof.status,
        "gap": plan.proof.gap,
        "evidence": plan.score.evidence.label,
    }
