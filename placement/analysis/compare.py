"""One model on several clusters: the best of each at the same speed per user, over all its GPUs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from cost.calibration.errors import ErrorOf, errors_in
from cost.experts.loads import ExpertLoads
from cost.inputs.deployment import Deployment
from cost.inputs.layout import Layout
from cost.inputs.machine import NO_RUNS, NearRuns
from cost.layouts import best_at, sweep
from cost.memory.stages import NO_CACHE, CacheRoom
from cost.serving.lengths import Lengths
from cost.serving.limits import LimitError, out_of_reach, relax_default_limits, rounded_down, rounded_up
from cost.serving.pools import RateMatch
from cost.serving.serving import Serving, way_of
from cost.serving.token_prices import TokenShares, token_shares
from cost.step.score import Score
from cost.step.step import near_runs
from placement.experts.placing import Known
from placement.layouts.choose import choose_layout
from placement.layouts.fitting import Fitted, fitted_layouts
from placement.layouts.price import fitted_row, plan_rows
from placement.layouts.refuse import fastest_step_s
from placement.layouts.shapes import Shape
from placement.options import USUAL_TPOT, PlanOptions, ServiceLevel
from placement.whole import Limits, pool_shapes, pools_of
from topology.base.errors import InfeasibleError
from topology.base.figures import Evidence, EvidenceLabel
from topology.cluster import Cluster

PoolFit = tuple[Deployment, list[Fitted], PlanOptions]
"""A pool as :func:`placement.planner.make_plan` takes it: its GPUs, its layout of each number of copies, options."""
PoolLayout = tuple[Deployment, Layout]
"""The GPUs of a pool with its batch, and how the model is spread over them."""
USUAL_TOK_S = 1 / USUAL_TPOT.value
"""Speed per user to compare at where nobody says."""


@dataclass(frozen=True)
class CompareRow:
    """The best result of one cluster.

    Attributes
    ----------
    target_tok_s_per_user:
        The speed asked for or usual; None for "as much throughput as fits".
    tok_s_per_user, tok_s_per_gpu, step_s, batch, bound_by, layout, evidence:
        What was reached, in output tokens (prefill: input) over all GPUs of the cluster; None where nothing
        reaches the target. A ``batch`` below 1 is that many sequences for each GPU of a tensor-parallel group:
        experts are then taken as perfectly balanced, since so few tokens use few of them.
    reason:
        Why there is nothing.
    status:
        Whether the cluster's kind is shipping, announced, hypothetical...
    errors:
        How far off figures on each chip of the cluster may be.
    near:
        What measured runs near it say; the factor is in the figures.
    terms_s:
        Seconds of the step by part; of two pools of that which decodes.
    score:
        What the figures are taken from; None where nothing is reached, for batches below 1 and for whole requests.
    cache:
        What the KV cache of a replica holds, of the pool that decodes.
    serving, requests_per_s, ttft_s:
        Of whole requests: ``one pool`` or ``two pools``, requests served by the cluster, and the time to the first
        token without waiting.
    instead:
        Of whole requests: throughput per GPU of the other way within the same limits; None: it keeps them nowhere.
    loaded_requests_per_s:
        The most requests per second of the cluster that 99 of 100 keep their limits at; None: none, or nobody asked.
    layouts, pools:
        Make the layouts of the row, and the same to be planned, of the pool that decodes, or the only one, first.
        There is none of rows that reach nothing; ``pools`` raises InfeasibleError where no plan has such a layout.
    lengths, shares:
        Of whole requests: with the hits of this cluster's caches, and what makes the parts of the GPU time by kind of
        token.
    """

    cluster: str
    gpus: int
    target_tok_s_per_user: float | None
    tok_s_per_user: float | None = None
    tok_s_per_gpu: float | None = None
    step_s: float | None = None
    batch: float | None = None
    bound_by: str | None = None
    layout: str | None = None
    evidence: EvidenceLabel | None = None
    reason: str = ""
    status: str = ""
    errors: tuple[ErrorOf, ...] = ()
    near: NearRuns = NO_RUNS
    terms_s: Mapping[str, float] = field(default_factory=dict, repr=False)
    score: Score | None = field(default=None, repr=False)
    cache: CacheRoom = NO_CACHE
    serving: str | None = None
    requests_per_s: float | None = None
    ttft_s: float | None = None
    instead: float | None = None
    loaded_requests_per_s: float | None = None
    layouts: Callable[[], list[PoolLayout]] = field(default=list, repr=False, compare=False)
    pools: Callable[[], list[PoolFit]] = field(default=list, repr=False, compare=False)
    lengths: Lengths | None = None
    shares: Callable[[], TokenShares] | None = field(default=None, repr=False, compare=False)

    def times(self, scale: float) -> CompareRow:
        """Return the row scaled to a multiple of its GPUs."""
        requests = self.requests_per_s and self.requests_per_s * scale
        loaded = self.loaded_requests_per_s and self.loaded_requests_per_s * scale
        gpus = round(self.gpus * scale)
        return replace(self, gpus=gpus, requests_per_s=requests, loaded_requests_per_s=loaded)


def compare_clusters(
    deployments: Sequence[Deployment],
    loads: ExpertLoads | None,
    options: PlanOptions,
    targets: Sequence[float] = (),
    *,
    on_progress: Callable[[str], None] | None = None,
) -> list[CompareRow]:
    """Return a row per cluster and target for one model and phase; formats and drafts may differ by cluster.

    Without a target it is the usual speed (:data:`placement.options.USUAL_TPOT`) where any cluster is as fast and no
    batch is asked for; else a row per cluster is its best plan. Experts are placed by the fast path, so rows are
    reproducible. ``on_progress`` is told the name of each cluster as its turn comes.
    """
    level = options.service_level(deployments[0].workload)
    usual = not targets and level.usual
    fits: list[tuple[Deployment, list[Fitted]]] = []
    known: Known = {}  # of all clusters: equal groups have equal placements wherever they are

    def within(level: ServiceLevel) -> list[CompareRow]:
        rows: list[CompareRow] = []
        for number, deployment in enumerate(deployments):
            if number == len(fits):
                if on_progress is not None:
                    on_progress(deployment.cluster.name)
                fits.append((deployment, fitted_layouts(deployment, options.copies, options.spread)))
            at = (USUAL_TOK_S,) if usual and level.limit_s is not None else targets or (None,)
            rows += [_row(*fits[number], loads, options, known, target) for target in at]
        if usual and level.limit_s is not None and all(row.tok_s_per_gpu is None for row in rows):
            raise LimitError("limit_s", rows[0].reason)
        return rows

    return relax_default_limits(within, level, {"limit_s"} if usual else ())[0]


def compare_serving(
    deployments: Sequence[Deployment],
    serving_of: Callable[[Deployment], Serving],
    targets: Sequence[float],
    *,
    usual: bool = False,
    loaded: Callable[[Serving, float | None], RateMatch | None] = lambda _serving, _speed: None,
) -> list[CompareRow]:
    """Return a row per cluster and target for whole requests, with the better of one pool and two.

    ``loaded``: how a cluster serves most at a speed per user while 99 of 100 requests keep their limits, None where
    that is not asked for; InfeasibleError where they keep them at no rate.

    Without targets a row per cluster is its most throughput; so it is where the target is the ``usual`` one and
    nothing reaches it. Experts are loaded as usual for their width.
    """
    servings: list[tuple[Deployment, Serving | str]] = []
    for deployment in deployments:
        try:
            servings.append((deployment, serving_of(deployment)))
        except InfeasibleError as error:
            servings.append((deployment, str(error)))
    at: Sequence[float | None] = targets or (None,)
    rows = [_serving_row(*side, target, loaded) for side in servings for target in at]
    if usual and all(row.tok_s_per_gpu is None for row in rows):
        rows = [_serving_row(*side, None, loaded) for side in servings]
    return rows


def _serving_row(
    deployment: Deployment,
    serving: Serving | str,
    target: float | None,
    loaded: Callable[[Serving, float | None], RateMatch | None],
) -> CompareRow:
    cluster = deployment.cluster
    status, errors = cluster_status(cluster), errors_in(deployment)
    empty = CompareRow(cluster.name, len(cluster.gpus), target, status=status, errors=errors)
    if isinstance(serving, str):
        return replace(empty, reason=serving)
    matches = list(serving.bests(None if target is None else 1 / target).values())
    if not matches:
        return replace(empty, reason=_no_serving(deployment, serving, target))
    try:
        under_load = loaded(serving, target)
    except InfeasibleError as error:
        return replace(empty, reason=str(error))
    best = under_load or matches[0]
    _, side, row, _ = serving.sides(best)[-1]
    near = near_runs(side.deployment, side.layout_of(row), best.batch)
    at = np.array([best.batch])
    priced = side.run([row], at, at)
    return replace(
        empty,
        errors=errors_in(side.deployment, near=near),
        tok_s_per_user=best.tok_s_per_user,
        tok_s_per_gpu=best.output_tok_s_per_gpu,
        step_s=side.deployment.workload.tokens_per_step / best.tok_s_per_user,
        batch=best.batch,
        bound_by=priced.bound(0),
        terms_s={name: float(seconds[0]) for name, seconds in priced.terms_s.items()},
        layout=serving.label(best),
        evidence=Evidence.ASSUMED.label,  # what of pools' rates counts as served
        near=near,
        cache=side.cache(row),
        serving=way_of(best),
        requests_per_s=best.requests_per_s,
        ttft_s=best.ttft_s,
        instead=matches[1].output_tok_s_per_gpu if len(matches) > 1 and under_load is None else None,
        loaded_requests_per_s=None if under_load is None else under_load.requests_per_s,
        layouts=partial(_serving_layouts, serving, best),
        pools=partial(_serving_pools, serving, best),
        shares=partial(token_shares, serving, best),
        lengths=serving.lengths,
    )


def _serving_layouts(serving: Serving, best: RateMatch) -> list[PoolLayout]:
    """Return the pools of a match as they are priced."""
    shapes = pool_shapes(serving, best, PlanOptions(), Limits(None, None))
    return [(deployment, shape.split(ranges)) for deployment, shape, ranges, _ in shapes]


def _serving_pools(serving: Serving, best: RateMatch) -> list[PoolFit]:
    """Return the pools of a match at their own batches, as their plans take them."""
    for role, side, row, _ in serving.sides(best):
        if not plan_rows(side)[row]:
            raise InfeasibleError(
                f"no plan has the layout {side.worker_label(row)} of {role}: its experts are not placed."
            )
    return list(pools_of(serving, best, PlanOptions(time_limit_s=0.0), Limits(None, None)))


def _no_serving(deployment: Deployment, serving: Serving, target: float | None) -> str:
    fastest_s = serving.fastest_ttft_s
    if serving.ttft_s is not None and fastest_s > serving.ttft_s:
        fastest = f"the fastest first token takes {rounded_up(fastest_s * 1e3)} ms"
        return str(out_of_reach("ttft_s", "ttft_ms", serving.ttft_s, deployment.cluster.name, fastest))
    fastest_tok_s = max((row.tok_s_per_user for row in serving.frontier()), default=0.0)
    return _too_slow(deployment, target or 0.0, fastest_tok_s)


def cluster_status(cluster: Cluster) -> str:
    """Return the catalog status of each kind of domain."""
    return ", ".join(dict.fromkeys(domain.status for domain in cluster.spec.domains))


def _row(
    deployment: Deployment,
    layouts: Sequence[Fitted],
    loads: ExpertLoads | None,
    options: PlanOptions,
    known: Known,
    target: float | None,
) -> CompareRow:
    cluster = deployment.cluster
    status, errors = cluster_status(cluster), errors_in(deployment)
    empty = CompareRow(cluster.name, len(cluster.gpus), target, status=status, errors=errors)
    # the fastest, not the simplest among alike: a faster machine must never come out slower
    row_options = replace(options, tolerance=0.0)
    if target is not None and deployment.workload.decodes:
        row_options = replace(row_options, tpot_s=1.0 / target)
    elif target is not None:
        row_options = replace(row_options, ttft_s=deployment.workload.context / target)
    try:
        placed = choose_layout(deployment, loads, row_options, layouts, known)
    except InfeasibleError as error:
        if target is None or not layouts:
            return replace(empty, reason=str(error))
        return _fewer_than_gpus(deployment, empty, 1.0 / fastest_step_s(layouts))
    if target is not None and not placed.meets:
        return _fewer_than_gpus(deployment, empty, placed.score.tok_s_per_user)
    score, layout = placed.score, placed.candidate.layout
    near = near_runs(deployment, layout, score.batch)
    return replace(
        empty,
        near=near,
        errors=errors_in(deployment, layout, near=near),
        terms_s=score.terms_s,
        tok_s_per_user=score.tok_s_per_user,
        tok_s_per_gpu=score.tok_s_per_gpu,
        step_s=score.step_s,
        batch=score.batch,
        bound_by=score.bound_by,
        layout=layout.short(moe=deployment.model.moe is not None),
        evidence=score.evidence.label,
        score=score,
        cache=score.cache,
        layouts=lambda: [(deployment.with_batch(score.batch), layout)],
        pools=lambda: [(deployment, [placed.candidate.fitted], row_options)],
    )


def _fewer_than_gpus(deployment: Deployment, empty: CompareRow, fastest: float) -> CompareRow:
    """The best with fewer sequences than GPUs, where one a GPU is too slow; a reason if that is too.

    ``fastest``: tok/s/user with one sequence a GPU, and all that there is where fewer cannot be asked for.
    """
    target, workload = empty.target_tok_s_per_user, deployment.workload
    if target is None or workload.batch or not workload.decodes:
        return replace(empty, reason=_too_slow(deployment, target or 0.0, fastest))
    swept = sweep(deployment, cut_experts=False)
    index = best_at(swept, target)
    if index is None:
        fastest = max(fastest, float(swept.tok_s_per_user.max(initial=0.0)))
        return replace(empty, reason=_too_slow(deployment, target, fastest))

    def layouts() -> list[PoolLayout]:
        variant = swept.variants[swept.layout[index]]
        shape = Shape(variant.arrangement.replicas, **swept.widths_of(index))
        return [(deployment.with_batch(float(swept.batch[index])), shape.split(variant.ranges))]

    def pools() -> list[PoolFit]:
        fit, at_batch = fitted_row(swept, index), deployment.with_batch(float(swept.batch[index]))
        if fit is None:
            raise InfeasibleError(f"no plan has the layout {swept.label(index)}: its experts are not placed.")
        return [(at_batch, [fit], PlanOptions(time_limit_s=0.0))]

    return replace(
        empty,
        tok_s_per_user=float(swept.tok_s_per_user[index]),
        tok_s_per_gpu=float(swept.tok_s_per_gpu[index]),
        step_s=float(swept.step_s[index]),
        batch=float(swept.batch[index]),
        bound_by=swept.rows([index]).bound(0),
        layout=swept.label(index),
        cache=swept.cache(index),
        evidence=Evidence.ASSUMED.label,
        layouts=layouts,
        pools=pools,
    )


def _too_slow(deployment: Deployment, target: float, fastest: float) -> str:
    return (
        f"{target:g} tok/s/user is out of reach on {deployment.cluster.name}: the fastest "
        f"layout gives {rounded_down(fastest)}; ask for at most that."
    )
