"""Plans, sweeps and comparisons in one line of Python: what the commands do, with objects in place of text.

Names of models and clusters mean what they mean on the command line; a :class:`Model`, a :class:`Cluster`, an array
of loads are taken as they are. Figures have SI units as the names say (``tpot_ms`` milliseconds).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar, Unpack

import numpy as np

from rackplan.asked import asked, plain, positive
from rackplan.calls import recorded
from topology.base.errors import InputError, input_name
from topology.base.reading import shown

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cost.experts.dispatch import DispatchPolicy
    from cost.experts.loads import ExpertLoads
    from cost.inputs.deployment import Deployment
    from cost.layouts import Sweep
    from cost.model import Model
    from cost.serving.sizing import Size
    from placement.analysis.levers import Levers
    from placement.budget import Cancel
    from placement.engines.export import Exported
    from placement.fleet.fleet import Fleet
    from placement.fleet.options import FleetOptions
    from placement.migrate.replan import Replanned, ReplanOptions
    from placement.options import Goal, Objective, Spread
    from placement.plan import Plan
    from placement.progress import Progress
    from rackplan.replaying import ReplayOptions
    from rackplan.views.compare import Comparison
    from rackplan.views.pools import Pools
    from rackplan.views.replay import Replayed
    from rackplan.views.validate import Validation
    from topology.cluster import Cluster

    Hear = Callable[[Progress], object]
    """Who hears how far a plan is."""
    ModelLike = str | Path | Model | Mapping[str, object]
    """A name or ``config.json`` as for ``--model``, a model, or the content of such a file."""
    ClusterLike = str | Path | Cluster | Mapping[str, object]
    """A name or YAML as for ``--cluster``, a cluster, or the content of such a YAML."""
    Traces = str | Path | Sequence[str | Path]
    """As for ``--routing``."""
    Loads = str | Path | NDArray[np.float64] | ExpertLoads | Sequence[str | Path | NDArray[np.float64]]
    """As for ``--loads``, or tokens ``[layers, experts]`` or ``[scenarios, layers, experts]``."""

Chosen = TypeVar("Chosen")
NO_LIMIT: Literal["none"] = "none"


class Served(TypedDict, total=False):
    """What is served and how it is priced: keywords of every function here that takes a model and a cluster.

    Attributes
    ----------
    phase:
        ``decode`` or ``prefill``.
    context, batch:
        Tokens already in each sequence (prefill: of each prompt), and sequences per GPU in use (0: the most that fit
        and are fast enough).
    weights, kv_dtype:
        Formats of the weights (None: the checkpoint's own) and of the KV cache.
    draft_tokens, accept_length:
        Tokens that each sequence drafts in a step, and tokens that a step then yields (None: as measured).
    overlap:
        Two half batches take turns at computing and sending.
    sparse_attention, engine:
        The what-if of :class:`cost.inputs.workload.Workload`; the engine whose fixed delays count.
    settings:
        Figures of your own by part and figure: ``{"gb200.hbm_bytes_per_s": "2x"}``.
    price_basis, prices, powers:
        Whose price of a GPU-hour; your own in USD, and all-in watts, by GPU: ``{"gb200": 3.10}``.
    """

    phase: str
    context: int
    batch: int
    weights: str | None
    kv_dtype: str
    draft_tokens: int
    accept_length: float | None
    overlap: bool
    sparse_attention: str | int
    engine: str
    settings: Mapping[str, str | float]
    price_basis: str | None
    prices: Mapping[str, float | str]
    powers: Mapping[str, float | str]


class Watched(TypedDict, total=False):
    """How long work is watched and ended.

    Attributes
    ----------
    on_progress:
        Called with a :class:`placement.progress.Progress` at each stage, and a few times a second while experts are
        placed.
    cancel:
        A ``threading.Event``, or a function that says so: the best so far is finished the fast way, and its
        ``interrupted`` is true; before there is any, a :class:`placement.budget.CancelledError` is raised.
    """

    on_progress: Hear | None
    cancel: Cancel | None


class Asked(Served, Watched, total=False):
    """What is asked of a plan besides: fields of :class:`placement.options.PlanOptions`, limits in milliseconds."""

    goal: Goal
    tpot_ms: float | Literal["none"] | None
    ttft_ms: float | None
    redundant: int | Literal["auto"] | None
    ep: int | None
    tp: int | None
    stages: int | None
    tolerance: float
    spread: Spread
    objective: Objective
    split: DispatchPolicy
    time_limit_s: float | None
    seed: int


class Limited(Served, total=False):
    """What is served, and the longest time per output token and to the first one, in milliseconds."""

    tpot_ms: float | Literal["none"] | None
    ttft_ms: float | Literal["none"] | None


class Requests(Limited, total=False):
    """What a fleet serves: tokens of a prompt and of an answer (both phases, in pools), and limits in milliseconds.

    Limits that are not given are the usual ones.
    """

    isl: int
    osl: int


class Wished(Requests, total=False):
    """What is asked of a fleet besides: fields of :class:`placement.fleet.options.FleetOptions`."""

    goal: str | None
    tok_s: float | None
    utilization: float
    spares: int
    time_limit_s: float | None
    seed: int


class Moves(Watched, total=False):
    """What is asked of a re-plan: fields of :class:`placement.migrate.replan.ReplanOptions`; None: as in the plan."""

    max_moves: int | None
    max_bytes: float | None
    horizon_s: float | None
    time_limit_s: float
    seed: int


@asked
def make_deployment(model: ModelLike, cluster: ClusterLike, **served: Unpack[Served]) -> Deployment:
    """Return what is priced: a model on a cluster under a workload.

    Raises
    ------
    InputError
        If a name means nothing, or figures cannot be used together.
    """
    given: dict[str, Any] = dict(served)
    return _priced(model, [make_cluster(cluster, settings=given.pop("settings", None))], given)


def _priced(model: Any, clusters: Sequence[Cluster], given: dict[str, Any]) -> Deployment:
    """Return what is priced on the first of ``clusters``; prices and powers may be of GPUs of the others too."""
    from rackplan.options import Pricing, Serving

    for ours, theirs in (("prices", "price"), ("powers", "power")):
        figures = given.pop(ours, None)
        given[theirs] = [f"{gpu}={value}" for gpu, value in figures.items()] if figures else None
    given["sparse_attention"] = str(given.get("sparse_attention", ""))
    names = {one.name for one in fields(Serving)}
    serving = Serving(**{name: value for name, value in given.items() if name in names})
    pricing = Pricing(**{name: value for name, value in given.items() if name not in names})
    return pricing.deployment(_model(model), clusters[0], serving, *clusters[1:])


def _clusters(clusters: Sequence[Any], settings: Mapping[str, str | float] | None) -> list[Cluster]:
    """Return several clusters, each with those of ``settings`` whose part it has."""
    from topology.changes.overrides import overrides

    found = [make_cluster(one) for one in clusters]
    lines = _lines(settings)
    return overrides(found, lines) if lines else found


def _lines(settings: Mapping[str, str | float] | None) -> list[str] | None:
    return [f"{part}={value}" for part, value in settings.items()] if settings else None


@asked
def make_cluster(cluster: ClusterLike, *, settings: Mapping[str, str | float] | None = None) -> Cluster:
    """Return a cluster by name or file, from the content of a cluster YAML, or one that is made, with ``settings``.

    >>> import rackplan
    >>> own = {"domains": [{"gpu": "mine", "gpus": 8, "gpus_per_node": 8, "structure": "mesh",
    ...                     "link": "100 GB/s"}],
    ...        "gpus": {"mine": {"hbm_bytes": "288 GB", "hbm_bytes_per_s": "16 TB/s"}}}
    >>> len(rackplan.make_cluster(own).gpus)
    8

    Raises
    ------
    InputError
        If it cannot be built, or a setting cannot be read or used.
    """
    from topology.changes.overrides import overrides
    from topology.cluster import Cluster
    from topology.files.resolve import cluster_from, resolve_cluster

    if isinstance(cluster, Cluster):
        found = cluster
    elif isinstance(cluster, Mapping):
        found = cluster_from(plain(dict(cluster)))
    elif isinstance(cluster, str | Path):
        found = resolve_cluster(str(cluster))
    else:
        raise InputError(
            "expected a name, a YAML file, what such a file holds, or a Cluster.",
            field="cluster",
            value=shown(cluster),
        )
    lines = _lines(settings)
    return overrides([found], lines)[0] if lines else found


@asked
def make_loads(
    model: ModelLike, loads: Loads | None = None, *, routing: Traces = (), seed: int = 0
) -> ExpertLoads | None:
    """Return loads for ``model``: files, generators or arrays, the default synthetic ones; None without experts.

    Raises
    ------
    InputError
        If some cannot be used, or the model has no experts.
    """
    from cost.experts.loads import ExpertLoads
    from cost.resolve import resolve_model
    from rackplan.options import model_loads

    found = _model(model)
    of = resolve_model(found) if isinstance(found, str) else found
    if isinstance(loads, ExpertLoads):
        wanted = (len(of.moe_layers), of.moe.experts if of.moe else 0)
        if loads.tokens.shape[1:] != wanted:
            raise InputError(
                f"they are of {loads.tokens.shape[1]} layers of {loads.tokens.shape[2]} experts; {of.name} "
                f"has {wanted[0]} of {wanted[1]}.",
                field="loads",
            )
        return loads
    traces = [routing] if isinstance(routing, str | Path) else routing
    if not isinstance(traces, Sequence) or not all(isinstance(one, str | Path) for one in traces):
        raise InputError(f"`routing` {shown(routing)}: expected the path of a trace, or several.")
    return model_loads(of, _several(loads), seed, routing=[str(one) for one in traces])


def _several(loads: Any) -> list[str | NDArray[Any]]:
    """Return loads as :func:`cost.experts.loads.read_loads` takes them; nested lists of numbers are one array."""
    if loads is None:
        return []
    each = loads if isinstance(loads, list | tuple) else [loads]
    if each and not any(isinstance(one, str | Path) or hasattr(one, "shape") for one in each):
        each = [loads]
    try:
        return [str(one) if isinstance(one, str | Path) else np.asarray(one) for one in each]
    except ValueError:
        raise InputError(
            "its rows have different lengths; give tokens of [layers, experts].", field="loads"
        ) from None


def _model(model: Any) -> str | Model:
    """Return a model, made of the content of its config if need be, or its name."""
    from cost.config.build import model_from_config
    from cost.model import Model

    if isinstance(model, Model):
        return model
    if isinstance(model, Mapping):
        return model_from_config(model, name=str(model.get("_name_or_path") or "model"))
    if not isinstance(model, str | Path):
        raise InputError(
            "expected a name, a config.json, what such a file holds, or a Model.",
            field="model",
            value=shown(model),
        )
    return str(model)


@recorded
@asked
def plan(
    model: ModelLike,
    cluster: ClusterLike,
    *,
    loads: Loads | None = None,
    routing: Traces = (),
    **asked: Unpack[Asked],
) -> Plan:
    """Return a plan: what goes where, how close to the best possible that is, and what a step costs.

    >>> import rackplan
    >>> rackplan.plan("deepseek-v3", "gb200-nvl72", time_limit_s=0).layout.ep
    72

    Parameters
    ----------
    loads, routing:
        Tokens per expert, and traces of tokens; None for the default synthetic ones.
    asked:
        What is served (:class:`Served`), what is asked of the plan (:class:`Asked`), and who hears how far it is
        (:class:`Watched`).

    Raises
    ------
    InputError
        If something given cannot be used.
    InfeasibleError
        If no layout fits: which limit binds, and what would fit.
    CancelledError
        If ``cancel`` says so before there is a plan.
    """
    from placement.options import PlanOptions
    from placement.planner import make_plan
    from placement.progress import ProgressReporter

    given: dict[str, Any] = dict(asked)
    told, cancel = ProgressReporter(given.pop("on_progress", None)), given.pop("cancel", None)
    for name in ("tpot", "ttft"):
        given[f"{name}_s"] = _limit_s(given.pop(f"{name}_ms", None), f"{name}_ms")
    names = {one.name for one in fields(PlanOptions)}
    options = PlanOptions(**{name: given.pop(name) for name in list(given) if name in names})
    priced = make_deployment(model, cluster, **given)
    found = make_loads(priced.model, loads, routing=routing, seed=options.seed)
    return make_plan(priced, found, options, on_progress=told.layers, on_stage=told.stage, cancel=cancel)


@recorded
@asked
def score(plan: Plan | str | Path, *, loads: Loads | None = None, routing: Traces = ()) -> Plan:
    """Return a plan scored again from its assignment alone, under its loads or others.

    Raises
    ------
    InputError
        If the plan cannot be read, or the loads do not fit its model.
    """
    from placement.scoring import with_loads

    scored = _plan(plan)
    if loads is None and not routing:
        return with_loads(scored, scored.loads) if scored.loads is not None else scored
    other = make_loads(scored.deployment.model, loads, routing=routing)
    return scored if other is None else with_loads(scored, other)


@recorded
@asked
def replan(
    plan: Plan | str | Path,
    *,
    loads: Loads | None = None,
    routing: Traces = (),
    lost: str | Sequence[str] = (),
    cluster: ClusterLike | None = None,
    options: ReplanOptions | None = None,
    **asked: Unpack[Moves],
) -> Replanned:
    """Return a plan for other loads, or without what is ``lost``, that moves few copies; and the moves in order.

    What is asked (:class:`Moves`) stands before what ``options`` say.

    Raises
    ------
    InputError
        If the plan, the loads or a name of what is lost cannot be used.
    InfeasibleError
        If what is left cannot hold the experts, or the budget is too small to restore them.
    """
    from placement.migrate.replan import ReplanOptions, replan_plan
    from placement.progress import ProgressReporter

    given: dict[str, Any] = dict(asked)
    on_progress, cancel = given.pop("on_progress", None), given.pop("cancel", None)
    wanted = replace(_options(options, ReplanOptions), **given)
    parts = (lost,) if isinstance(lost, str) else lost
    if not isinstance(parts, Sequence) or not all(isinstance(one, str) for one in parts):
        raise InputError(
            "expected the id of a GPU, node, rack or link, or several.", field="lost", value=shown(lost)
        )
    if parts:
        wanted = replace(wanted, lost=tuple(parts))
    old = _plan(plan)
    other = (
        None if loads is None and not routing else make_loads(old.deployment.model, loads, routing=routing)
    )
    now, told = None if cluster is None else make_cluster(cluster), ProgressReporter(on_progress)
    told.stage("re-planning")
    return replan_plan(old, other, wanted, cluster=now, on_progress=told.moves, cancel=cancel)


@recorded
@asked
def sweep(
    model: ModelLike,
    cluster: ClusterLike,
    *,
    prefix_hit: float = 0.0,
    **served: Unpack[Served],
) -> Sweep:
    """Return every parallel layout at every batch, priced; of both phases together see :func:`pools`.

    ``prefix_hit``: part of each prompt that a cache holds already.

    Raises
    ------
    InputError
        If something given cannot be used.
    InfeasibleError
        If nothing fits.
    """
    from rackplan.work import swept

    priced = make_deployment(model, cluster, **served)
    priced = replace(priced, workload=replace(priced.workload, prefix_hit=prefix_hit))
    return swept(priced)


@recorded
@asked
def pools(
    model: ModelLike,
    cluster: ClusterLike,
    *,
    isl: int,
    osl: int,
    prefill_cluster: ClusterLike | None = None,
    options: Mapping[str, object] | None = None,
    **served: Unpack[Limited],
) -> Pools:
    """Return a pool that prefills and one that decodes, matched so that neither waits for the other.

    Parameters
    ----------
    isl, osl:
        Tokens of a prompt and of an answer.
    prefill_cluster:
        GPUs that prefill; None: a part of ``cluster``.
    options:
        More fields of :class:`rackplan.work.BothPhases`: ``prefix_hit``.

    Raises
    ------
    InputError
        If something given cannot be used.
    InfeasibleError
        If a pool does not fit.
    """
    from cost.serving.pools import TTFT_LIMIT
    from rackplan.work import BothPhases, matched

    given: dict[str, Any] = {**served, **(options or {}), "isl": isl, "osl": osl}
    limits = {f"{name}_s": _limit_s(given.pop(f"{name}_ms", None), f"{name}_ms") for name in ("tpot", "ttft")}
    usual = limits["ttft_s"] is None
    given |= {name: None if limit == NO_LIMIT else limit for name, limit in limits.items()}
    given |= {"ttft_usual": usual, "ttft_s": TTFT_LIMIT.value if usual else given["ttft_s"]}
    names = {one.name for one in fields(BothPhases)}
    wanted = BothPhases(**{name: given.pop(name) for name in list(given) if name in names})
    settings = given.pop("settings", None)
    sides = _clusters([cluster, *([] if prefill_cluster is None else [prefill_cluster])], settings)
    return matched(_priced(model, sides, given), sides[-1], wanted)


@recorded
@asked
def compare(
    clusters: Sequence[ClusterLike],
    model: ModelLike,
    *,
    tok_s_user: float | Sequence[float] | Literal["none"] | None = None,
    gpus: int | None = None,
    loads: Loads | None = None,
    seed: int = 0,
    **served: Unpack[Served],
) -> Comparison:
    """Return the best that each cluster does for one model, at speeds per user (None: the usual one).

    Clusters by name have ``gpus`` GPUs, or as many as the largest of them.

    Raises
    ------
    InputError
        If something given cannot be used.
    """
    from placement.options import PlanOptions
    from rackplan.options import equal_clusters
    from rackplan.work import compared

    if isinstance(clusters, str | Path) or not isinstance(clusters, Sequence):
        raise InputError(
            f"`clusters` {shown(clusters)}: expected a list, like ['hgx-h200', 'gb200-nvl72']; the model is second."
        )
    if not clusters:
        raise InputError("`clusters`: none given; name at least one.")
    named = all(isinstance(one, str | Path) for one in clusters)
    given: dict[str, Any] = dict(served)
    settings = given.pop("settings", None)
    sides = (
        equal_clusters([str(one) for one in clusters], gpus, _lines(settings))
        if named
        else _clusters(clusters, settings)
    )
    first = _priced(model, sides, given)
    free = isinstance(tok_s_user, str) and tok_s_user == NO_LIMIT
    speeds: Any = [] if tok_s_user is None or free else tok_s_user
    targets = [positive(one, "tok_s_user") for one in plain(list(speeds) if np.ndim(speeds) else [speeds])]
    wanted = PlanOptions(time_limit_s=0.0, seed=seed, tpot_s=NO_LIMIT if free else None)
    found = make_loads(first.model, loads, seed=seed)
    return compared([replace(first, cluster=side) for side in sides], found, wanted, targets)


@recorded
@asked
def fleet(
    models: ModelLike | Mapping[str, float],
    cluster: ClusterLike,
    *,
    options: FleetOptions | None = None,
    **asked: Unpack[Wished],
) -> Fleet:
    """Return replicas of different shapes for a whole cluster, of one model or several with shares of the requests.

    What is asked (:class:`Wished`) stands before what ``options`` say.

    Raises
    ------
    InputError
        If something given cannot be used.
    InfeasibleError
        If nothing fits, or nothing serves what ``options`` ask for.
    """
    from placement.fleet.fleet import make_fleet
    from placement.fleet.options import FleetOptions, Traffic

    shares: list[tuple[Any, float]] = (
        list(plain(dict(models)).items()) if isinstance(models, Mapping) else [(models, 1.0)]
    )
    if not shares or not all(isinstance(share, int | float) and 0 < share < math.inf for _, share in shares):
        raise InputError(
            "`models`: expected models with shares of the requests above 0, like {'kimi-k2': 0.3}."
        )
    total = math.fsum(share for _, share in shares)
    given: dict[str, Any] = dict(asked)
    names = given.keys() & {one.name for one in fields(FleetOptions)}
    wanted = replace(_options(options, FleetOptions), **{name: given.pop(name) for name in sorted(names)})
    rest, lengths, limits, usual = _requests(given)
    where = make_cluster(cluster, settings=rest.pop("settings", None))
    priced = [make_deployment(model, where, **rest) for model, _ in shares]
    each = [share / total for _, share in shares]
    traffic = Traffic.of(priced, each, lengths, limits, usual=usual)
    return make_fleet(where, traffic, wanted)


@recorded
@asked
def size(
    model: ModelLike,
    cluster: ClusterLike,
    *,
    tok_s: float | str,
    utilization: float = 1.0,
    spares: int = 0,
    **served: Unpack[Requests],
) -> Size:
    """Return how many of ``cluster`` serve ``tok_s`` output tokens per second, and what they cost and draw.

    ``tok_s`` may be a text like ``200M``.

    Raises
    ------
    InputError
        If something given cannot be used.
    InfeasibleError
        If the model does not fit, or nothing keeps the limits.
    """
    from cost.serving.lengths import Lengths
    from cost.serving.sizing import Demand
    from rackplan.options import tokens_per_s
    from rackplan.work import sized

    rest, both, limits, usual = _requests(served)
    priced = make_deployment(model, cluster, **rest)
    lengths = None if both is None else Lengths.of(*both)
    tpot_s, ttft_s = limits[0], limits[1] if both else None
    rate = tokens_per_s(tok_s, input_name("tok_s")) if isinstance(tok_s, str) else tok_s
    wanted = Demand(tok_s=rate, utilization=utilization, spares=spares, tpot_s=tpot_s, ttft_s=ttft_s)
    return sized(priced, wanted, usual, lengths=lengths)[0]


@recorded
@asked
def replay(
    plan: Plan | str | Path | None = None,
    *,
    loads: Loads,
    model: ModelLike | None = None,
    cluster: ClusterLike | None = None,
    scenarios: Loads | None = None,
    options: ReplayOptions | None = None,
    **watched: Unpack[Watched],
) -> Replayed:
    """Return what balancers make of recorded loads: each plans on what it has seen and is scored on what comes next.

    Parameters
    ----------
    plan:
        What runs first; None: a plan that is made for ``model`` on ``cluster``.
    loads:
        Two windows or more in order: recordings, or tokens ``[windows, layers, experts]``.
    scenarios:
        Stored loads that are known beforehand.

    Raises
    ------
    InputError
        If something given cannot be used, or there are fewer than two windows.
    InfeasibleError
        If no plan fits.
    """
    from placement.progress import ProgressReporter
    from rackplan.options import model_loads
    from rackplan.replaying import Replay, ReplayOptions, deployment_of, stored

    wanted, given = options or ReplayOptions(), None if plan is None else _plan(plan)
    named = None if model is None else _model(model)
    machine = None if cluster is None else make_cluster(cluster)
    where = deployment_of(given, named, machine, make_deployment)
    windows = wanted.windows_of(where.model, _several(loads))
    beforehand = None if scenarios is None else model_loads(where.model, _several(scenarios), wanted.seed)
    path = str(plan) if isinstance(plan, str | Path) else ""
    ready = Replay(given, path, where, windows, stored(given, beforehand), wanted)
    return ready.run(ProgressReporter(watched.get("on_progress")).stage, watched.get("cancel"))


@recorded
@asked
def what_if(plan: Plan | str | Path, *, settings: Mapping[str, str | float] | None = None) -> Levers:
    """Return what each lever of a plan would bring alone, the largest first.

    Raises
    ------
    InputError
        If the plan cannot be read, or a setting cannot be read or used.
    """
    from placement.analysis.levers import find_levers
    from rackplan.options import with_settings

    lines = [f"{part}={value}" for part, value in (settings or {}).items()]
    return find_levers(with_settings(_plan(plan), lines or None))


@recorded
@asked
def validate(path: str | Path, *, residual: bool = True) -> Validation:
    """Return measured points of a CSV (docs/calibration.md) beside what is predicted for each, and how far off.

    Parameters
    ----------
    residual:
        Whether predictions have the correction that was learned from measured runs near them.

    Raises
    ------
    InputError
        If the file cannot be read.
    """
    from cost.validation.read import read_measurements
    from rackplan.views.validate import validation

    return validation(Path(path).name, read_measurements(path), residual=residual)


@asked
def draw(cluster: ClusterLike | Plan, path: str | Path, *, level: str = "auto") -> Path:
    """Draw a cluster, or the cluster of a plan with the plan on it, as .svg, .png or .pdf; return the path.

    Raises
    ------
    InputError
        If it cannot be drawn or written.
    """
    from placement.plan import Plan
    from rackplan.results import draw_on

    draw_on(cluster if isinstance(cluster, Plan) else make_cluster(cluster), Path(path), level)
    return Path(path)


@asked
def export(plan: Plan | str | Path, to: str, path: str | Path) -> Exported:
    """Write a plan in the form that the engine ``to`` loads; a file that exists is left alone.

    Raises
    ------
    InputError
        If the engine would reject or misread it, or the file exists or cannot be written.
    """
    from placement.engines.export import export_plan
    from placement.engines.registry import require_engine
    from topology.base.files import require_new, write_new

    target = Path(path)
    require_new(target)
    exported = export_plan(_plan(plan), require_engine(to, "to"), str(target))
    write_new({target: exported.text.encode()})
    return exported


@asked
def write_report(
    result: Plan | Comparison | Replanned | Sweep | Pools | Fleet | Replayed, path: str | Path
) -> Path:
    """Write the self-contained page of a result; return its path.

    Raises
    ------
    InputError
        If there is no page of such a result, or it cannot be written.
    """
    from rackplan.results import page_of
    from topology.base.files import write_whole

    write_whole(Path(path), page_of(result).encode())
    return Path(path)


def _limit_s(limit: Any, name: str) -> Any:
    """Return a limit given in milliseconds in seconds; what is no number as it is."""
    return positive(limit, name) / 1e3 if isinstance(limit, int | float) else limit


def _requests(
    served: Mapping[str, Any],
) -> tuple[dict[str, Any], tuple[int, int] | None, tuple[float | None, float | None], frozenset[str]]:
    """Return what is served, both lengths, both limits in seconds (None: no limit), and which of them are usual."""
    from cost.serving.pools import TTFT_LIMIT
    from placement.options import USUAL_TPOT
    from rackplan.options import seconds

    given: dict[str, Any] = dict(served)
    isl, osl = given.pop("isl", None), given.pop("osl", None)
    if (isl is None) != (osl is None):
        raise InputError(f"{input_name('isl')} and {input_name('osl')}: give both, or neither.")
    limits: list[float | None] = []
    usual = set()
    for name, figure in (("tpot", USUAL_TPOT), ("ttft", TTFT_LIMIT)):
        limit = given.pop(f"{name}_ms", None)
        if limit is None:
            usual.add(f"{name}_s")
            limits.append(figure.value)
        else:
            limits.append(None if limit == NO_LIMIT else seconds(float(limit), input_name(f"{name}_ms")))
    lengths = None if isl is None else (isl, osl)
    return given, lengths, (limits[0], limits[1]), frozenset(usual)


def _options(given: Chosen | None, kind: type[Chosen]) -> Chosen:
    """Return options as given, or the default ones.

    Raises
    ------
    InputError
        If they are of another kind.
    """
    if given is None:
        return kind()
    if not isinstance(given, kind):
        raise InputError(f"`options` {shown(given)}: expected {kind.__name__}; single ones are keywords.")
    return given


def _plan(plan: Plan | str | Path) -> Plan:
    """Return a plan, read where it is a file."""
    from placement.plan import Plan
    from placement.plans.reading import read_plan

    if isinstance(plan, Plan):
        return plan
    if not isinstance(plan, str | Path):
        raise InputError(f"`plan` {shown(plan)}: expected a plan, its plan.json, or the folder of one.")
    return read_plan(Path(plan))
