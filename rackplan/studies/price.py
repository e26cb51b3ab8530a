"""Price one point: a layout, a sweep, a plan or a fleet, as the figures of a row.

What points of a process share (models, clusters, what a deployment found of both) is made once and kept.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from rackplan.studies.options import FIGURE, NAMED_FILES, OF_GPU, Kind, Value
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

T = TypeVar("T")
Row = dict[str, Any]
NO_LIMIT = "none"
_MOST_KEPT = 64
_SERVED = [
    "phase",
    "context",
    "kv_dtype",
    "draft_tokens",
    "accept_length",
    "overlap",
    "sparse_attention",
    "engine",
    "price_basis",
]


class _Kept:
    """The last things that were made, by what they are made of."""

    def __init__(self) -> None:
        self._found: OrderedDict[str, Any] = OrderedDict()

    def once(self, make: Callable[[], T], *key: object) -> T:
        """Return what ``make`` made the last time that it was asked for under ``key``."""
        name = json.dumps(key, sort_keys=True)
        if name not in self._found:
            self._found[name] = make()
            if len(self._found) > _MOST_KEPT:
                self._found.popitem(last=False)
        self._found.move_to_end(name)
        found: T = self._found[name]
        return found


_KEPT = _Kept()


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
    asked: dict[str, Any] = {
        name: _located(value, path_of) if name in NAMED_FILES else value for name, value in options.items()
    }
    for name in OF_GPU:
        each = {one.partition(".")[2]: asked.pop(one) for one in list(asked) if one.startswith(f"{name}.")}
        if each:
            asked[name] = {**(asked.get(name) or {}), **each}
    row = {"score": _score, "sweep": _sweep, "plan": _plan, "fleet": _fleet}[kind](asked)
    if (size := asked.get("domain_gpus")) is not None:
        said = f"scale-up domains of {size} GPUs as asked (`domain_gpus`), the links of each GPU as they are"
        row["notes"] = "; ".join(filter(None, (said, row["notes"])))
    return row


def _located(value: Value, path_of: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return path_of(value)
    if isinstance(value, list):
        return [path_of(one) for one in value]
    return {path_of(name): share for name, share in value.items()} if isinstance(value, dict) else value


def _cluster(asked: Mapping[str, Any]) -> Cluster:
    """Return the cluster of a point, with domains of the size and figures as asked for."""
    from topology.changes.domain_size import with_domain_gpus
    from topology.changes.overrides import overrides
    from topology.files.resolve import resolve_cluster

    name, size = asked["cluster"], asked.get("domain_gpus")
    texts = asked.get("set") or []
    settings = [texts] if isinstance(texts, str) else list(texts)
    settings += [f"{key[len(FIGURE) :]}={value}" for key, value in asked.items() if key.startswith(FIGURE)]

    def sized() -> Cluster:
        found = resolve_cluster(name)
        return found if size is None else with_domain_gpus(found, size)

    whole = _KEPT.once(sized, "cluster", name, size)
    if not settings:
        return whole
    return _KEPT.once(
        lambda: overrides([whole], settings)[0],
        "cluster",
        name,
        size,
        settings,
    )


def _model(name: str, weights: str | None) -> Model:
    from cost.resolve import resolve_model

    return _KEPT.once(lambda: resolve_model(name, weights=weights), "model", name, weights)


def _of_here(figures: Mapping[str, float], cluster: Cluster) -> dict[str, float]:
    """Return figures by GPU without those of GPUs that other clusters of the study have."""
    from cost.money.prices import gpu_named
    from topology.catalog.spelled import find_gpu

    found = dict(figures)
    for name in figures:
        try:
            gpu_named(name, [cluster])
        except InputError:
            if find_gpu(name) is not None:
                del found[name]
    return found


def _money(asked: Mapping[str, Any], cluster: Cluster) -> dict[str, Any]:
    """Return prices and powers as the library takes them; ``price_more`` comes on top of what a GPU costs."""
    found = {name: _of_here(asked.get(name[:-1]) or {}, cluster) for name in ("prices", "powers")}
    more = asked.get("price_more")
    if more is not None:
        from rackplan.options import Money

        book = Money(
            price_basis=asked.get("price_basis"),
            price=[f"{gpu}={usd!r}" for gpu, usd in found["prices"].items()] or None,
        ).book(cluster)
        found["prices"] = dict(book.prices)
        for gpu in {domain.gpu.name: domain.gpu for domain in cluster.spec.domains}.values():
            found["prices"][gpu.name] = book.price(gpu).value + more
    return found


def _deployment(asked: Mapping[str, Any]) -> Deployment:
    """Return what is priced, at no batch."""
    from rackplan.library import make_deployment

    served = {name: asked[name] for name in _SERVED if name in asked}
    key = {name: value for name, value in asked.items() if name not in _NOT_DEPLOYED}

    def made() -> Deployment:
        where = _cluster(asked)
        return make_deployment(
            _model(asked["model"], asked.get("weights")), where, **served, **_money(asked, where)
        )

    return _KEPT.once(made, "deployment", key)


_NOT_DEPLOYED = frozenset(
    [
        "batch",
        "tpot_ms",
        "ttft_ms",
        "ep",
        "tp",
        "stages",
        "redundant",
        "prefix_hit",
        "loads",
        "routing",
        "goal",
        "spread",
        "objective",
        "split",
        "tolerance",
        "seed",
        "time_limit_s",
    ]
)


def _limit_s(asked: Mapping[str, Any], name: str) -> float | None:
    """Return a limit in seconds; None where there is none."""
    from rackplan.options import seconds

    limit = asked.get(name)
    return None if limit in (None, NO_LIMIT) else seconds(float(limit), input_name(name))


def _score(asked: Mapping[str, Any]) -> Row:
    """One layout with its experts balanced, at a batch, or at the largest that keeps the limit."""
    deployment = _deployment(asked)
    batch = asked.get("batch") or 0
    stages = asked.get("stages") or 1
    split_at = batch if stages > 1 else 0  # one stage has all layers at any batch
    shape = [asked.get(name) for name in ("ep", "tp", "redundant")]
    fit = _KEPT.once(
        lambda: _fitted(deployment.with_batch(split_at), stages, *shape),
        "fitted",
        {name: value for name, value in asked.items() if name not in _NOT_DEPLOYED},
        split_at,
        stages,
        shape,
    )
    limit_s = _limit_s(asked, "tpot_ms")
    if batch:
        found = fit.scorer.at(batch)
        if limit_s is not None and found.tpot_s > limit_s:
            raise InfeasibleError(
                f"a token takes {found.tpot_s * 1e3:.4g} ms at {input_name('batch')} {batch}.",
                field="tpot_ms",
                value=f"{limit_s * 1e3:g}",
            )
    else:
        found = fit.scorer.at(_largest(fit, limit_s))
    return _scored(deployment, fit.layout, found)


def _largest(fit: Fitted, limit_s: float | None) -> int:
    """Return the largest batch of a layout that keeps a limit on the time per token."""
    low, high = 1, fit.batch
    if limit_s is None or fit.scorer.at(high).tpot_s <= limit_s:
        return high
    if (least := fit.scorer.at(low).tpot_s) > limit_s:
        raise InfeasibleError(
            f"a token takes {least * 1e3:.4g} ms with one sequence per GPU.",
            field="tpot_ms",
            value=f"{limit_s * 1e3:g}",
        )
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fit.scorer.at(middle).tpot_s <= limit_s else (low, middle)
    return low


def _fitted(
    deployment: Deployment, stages: int, ep: int | None, tp: int | None, redundant: int | None
) -> Fitted:
    """Return one layout over the whole cluster: groups of ``ep`` GPUs, ``stages`` of them a replica."""
    from cost.layouts.candidates import arrangement_of, domain_gpus, equal_groups, replicas_of, widths_of
    from placement.layouts.fitting import Fitting, batch_that_fits, fitted, stage_slots
    from placement.layouts.shapes import Shape

    cluster, model = deployment.cluster, deployment.model
    if not 1 <= stages <= len(model.layers):
        raise InputError(
            f"{model.name} has {len(model.layers)} layers; expected 1 to as many.",
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
        able = f"it can be {', '.join(map(str, widths))}" if widths else "no width divides its heads"
        raise InputError(f"of {model.name} in groups of {ep} GPUs {able}.", field="tp", value=tp)
    shape = Shape(what.replicas, tp, what.alike, what)
    slots = stage_slots(deployment, shape, redundant)
    if slots is None:
        raise InputError(
            f"{ep} GPUs cannot hold the experts in that many slots.", field="redundant", value=redundant or 0
        )
    most = batch_that_fits(deployment, shape, slots)
    found = fitted(deployment, Fitting(shape, slots, most)) if most else None
    if found is None:
        wanted = (
            f"{input_name('batch')} {deployment.workload.batch}"
            if deployment.workload.batch
            else "one sequence per GPU"
        )
        raise InfeasibleError(
            f"HBM capacity binds: {wanted} of {model.name} does not fit on {cluster.name} in this layout; the "
            f"largest batch that fits is {most}."
        )
    return found


def _sweep(asked: Mapping[str, Any]) -> Row:
    """The layout of most tok/s/GPU among all that keep the limit."""
    from dataclasses import replace

    from rackplan.work import swept

    if asked.get("isl") is not None or asked.get("osl") is not None:
        return _matched(asked)
    if asked.get("prefill_cluster") is not None:
        raise InputError(
            f"`prefill_cluster`: it is of two pools; give {input_name('isl')} and {input_name('osl')} too."
        )
    deployment = _deployment(asked)
    limit_s, usual, notes = _sweep_limit(asked, deployment)
    each = deployment.workload.tokens_per_step
    speeds = [each / limit_s] if limit_s is not None and deployment.workload.decodes else []
    if asked.get("prefix_hit") is not None:
        deployment = replace(
            deployment, workload=replace(deployment.workload, prefix_hit=asked["prefix_hit"])
        )
    found = swept(deployment, speeds=speeds)
    best = _best(found, limit_s)
    if best is None:
        fastest = float(found.step_s.min()) / max(1.0, each) * 1e3
        said = f"{(limit_s or 0.0) * 1e3:g} ms: no layout is as fast; the fastest takes {fastest:.4g} ms"
        if not usual:
            raise InfeasibleError(f"{input_name(_limit_name(deployment))} {said}.")
        best, notes = _best(found, None), [f"no limit is kept: {said}"]
    return _swept(found, best or 0, notes)


def _matched(asked: Mapping[str, Any]) -> Row:
    """The pair of pools of most tok/s/GPU, one that prefills and one that decodes."""
    from rackplan.library import pools

    if asked.get("isl") is None or asked.get("osl") is None or "context" in asked or "phase" in asked:
        raise InputError(
            f"{input_name('isl')}, {input_name('osl')}: give both, and neither {input_name('context')} nor "
            f"{input_name('phase')}: these follow from them."
        )
    cluster = _cluster(asked)
    served = {name: asked[name] for name in (*_SERVED, "isl", "osl", "tpot_ms", "ttft_ms") if name in asked}
    options = {"prefix_hit": asked.get("prefix_hit") or 0.0}
    prefills = asked.get("prefill_cluster")
    found = pools(
        _model(asked["model"], asked.get("weights")),
        cluster,
        prefill_cluster=None if prefills is None else _cluster({**asked, "cluster": prefills}),
        options=options,
        **served,
        **_money(asked, cluster),
    )
    best = found.matches.best()
    if best is None:
        raise InfeasibleError(
            f"no pair of pools keeps the limits {input_name('tpot_ms')} and {input_name('ttft_ms')}."
        )
    labels = [f"{role} {side.label(at)} x{workers}" for role, side, at, workers in found.sides(best)]
    row = {
        "step_s": float(found.decode.step_s[best.decode]),
        "tok_s_per_gpu": best.output_tok_s_per_gpu,
        "tok_s_per_gpu_used": best.output_tok_s_per_gpu_used,
        "tok_s_per_user": best.tok_s_per_user,
        "requests_per_s": best.requests_per_s,
        "layout": "; ".join(labels),
        "layout_batch": float(found.decode.batch[best.decode]),
        "pools": 2,
        "configurations": len(found.decode) + len(found.prefill),
    }
    return row | _billed(found.totals(best), found.decode.deployment.notes)


def _limit_name(deployment: Deployment) -> str:
    return "tpot_ms" if deployment.workload.decodes else "ttft_ms"


def _sweep_limit(asked: Mapping[str, Any], deployment: Deployment) -> tuple[float | None, bool, list[str]]:
    """Return the limit on a sweep's step or token in seconds, whether nobody asked for it, and what is said of it."""
    from placement.options import USUAL_TPOT

    decodes = deployment.workload.decodes
    other = "ttft_ms" if decodes else "tpot_ms"
    if asked.get(other) is not None:
        raise InputError(
            f"a sweep of {deployment.workload.phase} is limited by {input_name(_limit_name(deployment))}.",
            field=other,
        )
    if asked.get(_limit_name(deployment)) is not None or not decodes:
        return _limit_s(asked, _limit_name(deployment)), False, []
    return USUAL_TPOT.value, True, []


def _best(found: Sweep, limit_s: float | None) -> int | None:
    import numpy as np

    each = found.deployment.workload.tokens_per_step if found.deployment.workload.decodes else 1.0
    within = np.arange(len(found))
    if limit_s is not None:
        within = np.flatnonzero(found.step_s <= limit_s * max(1.0, each))
    return int(within[np.argmax(found.tok_s_per_gpu[within])]) if len(within) else None


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
    """Return what GPUs cost and draw; what has no figure is null, and ``notes`` say why."""
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


def _plan(asked: Mapping[str, Any]) -> Row:
    """A plan, made the fast and reproducible way where no time is given."""
    from dataclasses import fields, replace

    from placement.options import PlanOptions
    from placement.planner import make_plan
    from rackplan.library import make_loads

    names = {one.name for one in fields(PlanOptions)}
    given = {name: value for name, value in asked.items() if name in names}
    for name in ("tpot", "ttft"):
        limit = asked.get(f"{name}_ms")
        if limit is not None:
            given[f"{name}_s"] = limit if limit == NO_LIMIT else _limit_s(asked, f"{name}_ms")
    if given.get("ttft_s") == NO_LIMIT:
        given["ttft_s"] = None
    options = PlanOptions(**{"time_limit_s": 0.0, **given})
    deployment = _deployment(asked).with_batch(asked.get("batch") or 0)
    loads = make_loads(
        deployment.model, asked.get("loads"), routing=asked.get("routing") or (), seed=options.seed
    )
    found = make_plan(replace(deployment), loads, options)
    row = _scored(found.deployment, found.layout, found.score)
    balance = list(found.balancedness.values())
    row["balancedness"] = sum(balance) / len(balance) if balance else None
    row["proof"], row["gap"] = found.proof.status, found.proof.gap
    row["evidence"] = found.score.evidence.label
    return row


def _fleet(asked: Mapping[str, Any]) -> Row:
    """A fleet: pools of replicas of different shapes."""
    from placement.fleet.options import PREFILL, FleetOptions
    from rackplan.library import fleet
    from rackplan.options import name_and_share
    from rackplan.views.fleet import fleet_data

    cluster = _cluster(asked)
    served = {name: asked[name] for name in _SERVED if name in asked}
    for name in ("isl", "osl", "tpot_ms", "ttft_ms", "weights"):
        if asked.get(name) is not None:
            served[name] = asked[name]
    if "isl" in served and "context" in served:
        raise InputError(
            f"the lengths are {input_name('isl')} and {input_name('osl')} already; leave one out.",
            field="context",
        )
    own = ["goal", "tok_s", "utilization", "spares", "time_limit_s", "seed"]
    options = FleetOptions(**{name: asked[name] for name in own if asked.get(name) is not None})
    models = asked["model"]
    if isinstance(models, str):
        name, share = name_and_share(models)
        models = {name: 1.0 if share is None else share}
    found = fleet(models, cluster, options=options, **served, **_money(asked, cluster))
    data = fleet_data(found, [])
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
        "notes": "; ".join([*found.notes, *data["missing"]]) or None,
        **{
            name: data["totals"][name]
            for name in ("usd_per_million_tokens", "usd_per_hour", "tok_s_per_mw", "power_w")
        },
    }


def _moe(fleet: Fleet, model: int) -> bool:
    return fleet.traffic.deployments[model][0].model.moe is not None
