"""Price one point (a layout, a sweep, a plan or a fleet) and return the figures of its row.

What points of a process share (models, clusters, what a deployment found of both) is made once and kept.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from rackplan import answers, inputs, layouts
from rackplan.requests import (
    DeploymentRequest,
    FleetRequest,
    LayoutRequest,
    Money,
    PlanRequest,
    SweepRequest,
    make,
    options_of,
)
from rackplan.studies.options import FIGURE, KINDS, NAMED_FILES, OF_GPU, Kind, Value, fields_of
from topology.base.errors import InfeasibleError, InputError, input_name

if TYPE_CHECKING:
    from cost.inputs.deployment import Deployment
    from cost.inputs.layout import Layout
    from cost.layouts import Sweep
    from cost.model import Model
    from cost.money.bill import Totals
    from cost.step.score import Score
    from placement.fleet.fleet import Fleet
    from placement.layouts.fitting import Fitted
    from topology.cluster import Cluster

Row = dict[str, Any]
_KEPT = 64


def price(kind: Kind, options: Mapping[str, Value], path_of: Callable[[str], str]) -> Row:
    """Return the figures of a point, by column.

    Parameters
    ----------
    path_of:
        Where a file lies that an option names; other texts come back as they are.

    Raises
    ------
    InputError
        If what the options ask for cannot be.
    InfeasibleError
        If nothing fits, or nothing keeps the limits.
    """
    given: dict[str, Any] = {
        name: _located(value, path_of) if name in NAMED_FILES else value
        for name, value in options.items()
        if value is not None
    }
    row = {"score": _score, "sweep": _sweep, "plan": _plan, "fleet": _fleet}[kind](given)
    if (size := given.get("domain_gpus")) is not None:
        said = f"scale-up domains of {size} GPUs (`domain_gpus`) with unchanged links per GPU"
        row["notes"] = "; ".join(filter(None, (said, row["notes"])))
    return row


def _located(value: Value, path_of: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return path_of(value)
    if isinstance(value, list):
        return [path_of(one) for one in value]
    return {path_of(name): share for name, share in value.items()} if isinstance(value, dict) else value


def _request(kind: Kind, given: Mapping[str, Any], **own: Any) -> Any:
    """Return the request of a point with its cluster and prices; ``own`` are fields passed unchanged."""
    cluster, known = _cluster(given), fields_of(kind)
    asked = {known[name]: value for name, value in given.items() if name in known}
    money = {name: _of_here(given, name, cluster) for name in OF_GPU}
    asked |= {"cluster": cluster, "settings": (), "prices": money["price"], "powers": money["power"]} | own
    if kind != "fleet":
        asked["model"] = _model(given["model"], given.get("weights"))
        asked.pop("weights", None)
    if (more := given.get("price_more")) is not None:
        book = inputs.book_of(
            make(Money, price_basis=given.get("price_basis"), prices=money["price"]), cluster
        )
        gpus = {domain.gpu.name: domain.gpu for domain in cluster.spec.domains}
        asked["prices"] = {
            **book.prices,
            **{name: book.price(gpu).value + more for name, gpu in gpus.items()},
        }
    return make(KINDS[kind], **asked)


def _of_here(given: Mapping[str, Any], name: str, cluster: Cluster) -> dict[str, float]:
    """Return figures by GPU (``price``, ``price.GPU``), without GPUs that only other clusters of the study have."""
    from cost.money.prices import gpu_named
    from topology.catalog.spelled import find_gpu

    each = {one.partition(".")[2]: value for one, value in given.items() if one.startswith(f"{name}.")}
    found = {**(given.get(name) or {}), **each}
    for gpu in list(found):
        try:
            gpu_named(gpu, [cluster])
        except InputError:
            if find_gpu(gpu) is not None:
                del found[gpu]
    return found


def _cluster(given: Mapping[str, Any], name: str = "cluster") -> Cluster:
    """Return the cluster of a point with the requested domain size and figures."""
    texts = given.get("set") or []
    settings = [texts] if isinstance(texts, str) else list(texts)
    settings += [f"{key[len(FIGURE) :]}={value}" for key, value in given.items() if key.startswith(FIGURE)]
    return _built(given[name], given.get("domain_gpus"), tuple(settings))


@lru_cache(_KEPT)
def _built(name: str, size: int | None, settings: tuple[str, ...]) -> Cluster:
    from topology.changes.domain_size import with_domain_gpus

    if settings:
        return inputs.clusters_of([_built(name, size, ())], settings)[0]
    found = inputs.cluster_of(name)
    return found if size is None else with_domain_gpus(found, size)


@lru_cache(_KEPT)
def _model(name: str, weights: str | None) -> Model:
    return inputs.model_of(name, weights)


@cache
def _of_deployment() -> frozenset[str]:
    """Return the options of a deployment except its batch."""
    fields = options_of(DeploymentRequest)
    return frozenset(name for name, field in fields_of("score").items() if field in fields) - {"batch"}


def _key(given: Mapping[str, Any]) -> str:
    """Return the options of the deployment except its batch, as text."""
    own = _of_deployment()
    beside = ("domain_gpus", "price_more", FIGURE, *(f"{name}." for name in OF_GPU))
    return json.dumps(
        {name: one for name, one in given.items() if name in own or name.startswith(beside)}, sort_keys=True
    )


@lru_cache(_KEPT)
def _deployed(key: str) -> Deployment:
    """Return the cached deployment to price, without a batch."""
    return answers.make_deployment(_request("score", json.loads(key)))


def _score(given: Mapping[str, Any]) -> Row:
    """Price one layout with balanced experts, at a batch or at the largest one that meets the limit."""
    request: LayoutRequest = _request("score", given)
    batch, stages = request.batch, request.stages or 1
    split_at = batch if stages > 1 else 0  # one stage has all layers at any batch
    key = _key(given)
    deployment = _deployed(key)
    fit = _fit(key, split_at, stages, request.ep, request.tp, request.redundant)
    limit_s = request.tpot_s if isinstance(request.tpot_s, float) else None
    if batch:
        found = fit.scorer.at(batch)
        if limit_s is not None and found.tpot_s > limit_s:
            raise InfeasibleError(
                f"time per token is {found.tpot_s * 1e3:.4g} ms at {input_name('batch')} {batch}.",
                field="tpot_ms",
                value=f"{limit_s * 1e3:g}",
            )
    else:
        found = fit.scorer.at(_largest(fit, limit_s))
    return _scored(deployment, fit.layout, found)


@lru_cache(_KEPT)
def _fit(key: str, batch: float, *shape: Any) -> Fitted:
    return _fitted(_deployed(key).with_batch(batch), *shape)


def _largest(fit: Fitted, limit_s: float | None) -> float:
    """Return the largest batch of a layout that meets a limit on the time per token."""
    from placement.layouts.choose import batch_within

    batch = batch_within(fit.scorer, fit.batch, limit_s)
    if not batch and limit_s is not None:
        least_s = fit.scorer.at(fit.least_batch).tpot_s
        raise InfeasibleError(
            f"time per token is {least_s * 1e3:.4g} ms even with one sequence a group.",
            field="tpot_ms",
            value=f"{limit_s * 1e3:g}",
        )
    return batch


def _fitted(
    deployment: Deployment, stages: int, ep: int | None, tp: int | None, redundant: int | None
) -> Fitted:
    """Return one layout over the whole cluster with groups of ``ep`` GPUs, ``stages`` groups per replica."""
    from cost.layouts.candidates import arrangement_of, domain_gpus, equal_groups, replicas_of, widths_of
    from placement.layouts.fitting import Fitting, batch_that_fits, fitted, stage_slots
    from placement.layouts.shapes import Shape

    cluster, model = deployment.cluster, deployment.model
    if not 1 <= stages <= len(model.layers):
        raise InputError(
            f"{model.name} has {len(model.layers)} layers; expected 1 to {len(model.layers)} stages.",
            field="stages",
            value=stages,
        )
    if ep is None:
        ep = len(cluster.gpus) // stages if model.moe is not None else tp or 1
    groups = equal_groups(domain_gpus(cluster), ep) if ep >= 1 else []
    if len(groups) < stages:
        raise InputError(
            f"{input_name('ep')} {ep}, {input_name('stages')} {stages}: {cluster.name} has no {stages} "
            f"groups of {ep} GPUs."
        )
    what = arrangement_of(cluster, replicas_of(groups, stages))
    widths, _ = widths_of(model, what, cut_experts=False)
    tp = tp or (1 if model.moe is not None else ep)
    if tp not in widths:
        able = (
            f"possible widths are {', '.join(map(str, widths))}" if widths else "no width divides its heads"
        )
        raise InputError(f"for {model.name} in groups of {ep} GPUs {able}.", field="tp", value=tp)
    shape = Shape(what.replicas, tp, 1, what.alike, what)
    slots = stage_slots(deployment, shape, redundant)
    if slots is None:
        raise InputError(
            f"{ep} GPUs cannot divide that many slots evenly.", field="redundant", value=redundant or 0
        )
    most = batch_that_fits(deployment, shape, slots)
    found = fitted(deployment, Fitting(shape, slots, most)) if most else None
    if found is None:
        wanted = (
            f"{input_name('batch')} {deployment.workload.batch}"
            if deployment.workload.batch
            else "one sequence a group"
        )
        raise InfeasibleError(
            f"HBM capacity binds: {wanted} of {model.name} does not fit on {cluster.name} in this layout; the "
            f"largest batch that fits is {most}."
        )
    return found


def _sweep(given: dict[str, Any]) -> Row:
    """Price the layout with the highest tok/s/GPU of all that meet the limit."""
    if given.get("context") is None and given.get("phase") in (None, "both"):
        return _matched(given)
    named = "tpot_ms" if given.get("phase", "decode") == "decode" else "ttft_ms"
    other = {"tpot_ms": "ttft_ms", "ttft_ms": "tpot_ms"}[named]
    if other in given:
        raise InputError(
            f"a sweep of {given.get('phase', 'decode')} takes the limit {input_name(named)}.", field=other
        )
    request: SweepRequest = _request("sweep", given)
    deployment = _deployed(_key(given))
    priced = replace(deployment, workload=replace(deployment.workload, prefix_hit=request.prefix_hit))
    found = layouts.within_limit(layouts.swept(priced, speeds=request.speeds), request)
    assert found.best is not None  # noqa: S101 - else it is refused
    gave_way = found.limit_default and found.limit_s is None
    return _swept(found, found.best, ["no limit is met: the default is out of reach"] * gave_way)


def _matched(given: Mapping[str, Any]) -> Row:
    """Price the serving mode of whole requests with the highest tok/s/GPU: one pool or two."""
    from cost.serving.result import Pools, sweeps_of

    prefills = None if given.get("prefill_cluster") is None else _cluster(given, "prefill_cluster")
    found = answers.sweep(_request("sweep", given, prefill_cluster=prefills))
    assert isinstance(found, Pools)  # noqa: S101 - of whole requests
    best = found.best
    assert best is not None  # noqa: S101 - else it is refused
    sides = found.serving.sides(best)
    side = sides[-1][1]
    row = {
        "step_s": side.deployment.workload.tokens_per_step / best.tok_s_per_user,
        "tok_s_per_gpu": best.output_tok_s_per_gpu,
        "tok_s_per_gpu_used": best.output_tok_s_per_gpu_used,
        "tok_s_per_user": best.tok_s_per_user,
        "requests_per_s": best.requests_per_s,
        "layout": "; ".join(f"{role} {one.label(row)} x{workers}" for role, one, row, workers in sides),
        "layout_batch": best.batch,
        "pools": len(sides),
        "configurations": sum(len(one) for one in sweeps_of(found)),
    }
    return row | _billed(found.totals(best), side.deployment.notes)


def _swept(found: Sweep, best: int, notes: Sequence[str]) -> Row:
    row = {
        "step_s": float(found.step_s[best]),
        "lower_step_s": float(found.lower_step_s[best]),
        "tok_s_per_gpu": float(found.tok_s_per_gpu[best]),
        "tok_s_per_gpu_used": float(found.tok_s_per_gpu_used[best]),
        "tok_s_per_user": float(found.tok_s_per_user[best]),
        "layout": found.label(best),
        "layout_ep": int(found.ep[best]),
        "layout_tp": int(found.tp[best]),
        "layout_stages": int(found.stages[best]),
        "layout_replicas": int(found.replicas[best]),
        "layout_batch": float(found.batch[best]),
        "bound_by": found.bound(best),
        "configurations": len(found),
    }
    return row | _billed(found.totals(best), [*found.deployment.notes, *notes])


def _scored(deployment: Deployment, layout: Layout, score: Score) -> Row:
    gpus = len(deployment.cluster.gpus)
    totals = deployment.bill.totals(
        score.tok_s_per_gpu * gpus,
        score.tokens,
        gpus_idle=gpus - layout.gpus_used,
        phase=deployment.workload.phase,
    )
    row = {
        "step_s": score.step_s,
        "lower_step_s": score.lower_step_s,
        "tok_s_per_gpu": score.tok_s_per_gpu,
        "tok_s_per_gpu_used": score.tok_s_per_gpu_used,
        "tok_s_per_user": score.tok_s_per_user,
        "layout": layout.short(moe=deployment.model.moe is not None),
        "layout_ep": layout.ep if deployment.model.moe is not None else 1,
        "layout_tp": layout.tp,
        "layout_stages": layout.stages,
        "layout_replicas": len(layout.replicas),
        "layout_batch": float(score.batch),
        "bound_by": score.bound_by,
    }
    return row | _billed(totals, deployment.notes)


def _billed(totals: Totals, notes: Sequence[str]) -> Row:
    """Return cost and power; unknown figures are null, and ``notes`` say why."""
    return {
        "tok_s": totals.tok_s,
        "gpus": totals.gpus,
        "gpus_idle": totals.gpus_idle,
        "usd_per_million_tokens": totals.usd_per_million_tokens,
        "usd_per_hour": totals.usd_per_hour,
        "tok_s_per_mw": totals.tok_s_per_mw,
        "power_w": totals.power_w,
        "notes": "; ".join([*notes, *totals.missing]) or None,
    }


def _plan(given: Mapping[str, Any]) -> Row:
    """Price a plan, made by the fast, reproducible path unless a time is given."""
    request: PlanRequest = _request("plan", {"time_limit_s": 0.0, **given})
    found = answers.plan(request)
    row = _scored(found.deployment, found.layout, found.score)
    balance = list(found.balancedness.values())
    row["balancedness"] = sum(balance) / len(balance) if balance else None
    row["proof"], row["gap"] = found.proof.status, found.proof.gap
    row["evidence"] = found.score.evidence.label
    return row


def _fleet(given: Mapping[str, Any]) -> Row:
    """Price a fleet: pools of replicas of different shapes."""
    from placement.fleet.options import PREFILL

    request: FleetRequest = _request("fleet", given)
    cluster: Any = request.cluster
    found = answers.fleet(request)
    totals = found.totals
    decoding = max((pool for pool in found.pools if pool.role != PREFILL), key=lambda pool: pool.gpus)
    kinds = [pool.column.label(moe=_moe(found, pool.model)) for pool in found.pools]
    return {
        "tok_s": found.tok_s,
        "tok_s_per_gpu": found.tok_s / len(cluster.gpus),
        "tok_s_per_gpu_used": found.tok_s / max(1, found.gpus_used),
        "tok_s_per_user": decoding.column.tok_s / decoding.column.batch / decoding.column.shape.gpus,
        "step_s": decoding.column.step_s,
        "requests_per_s": found.requests_per_s,
        "gpus": len(cluster.gpus),
        "gpus_idle": len(cluster.gpus) - found.gpus_used,
        "pools": len(found.pools),
        "layout": "; ".join(
            f"{pool.role} {label} x{len(pool.replicas)}"
            for pool, label in zip(found.pools, kinds, strict=True)
        ),
        "layout_batch": float(decoding.column.batch),
        "proof": found.proof.status,
        "gap": found.proof.gap,
        "notes": "; ".join([*found.notes, *totals.missing]) or None,
        **{
            name: getattr(totals, name)
            for name in ("usd_per_million_tokens", "usd_per_hour", "tok_s_per_mw", "power_w")
        },
    }


def _moe(fleet: Fleet, model: int) -> bool:
    return fleet.traffic.deployments[model][0].model.moe is not None
