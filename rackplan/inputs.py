"""Resolve request fields into models, clusters, loads, prices, plans and deployments."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rackplan.requests import (
    CONTEXT,
    DEFAULT_LOADS,
    ClusterLike,
    Lines,
    Loads,
    ModelLike,
    Money,
    PlanLike,
    Pricing,
    Request,
    split_share,
)
from topology.base.errors import InputError, input_name
from topology.base.plausible import wrong_figure, wrong_power
from topology.base.units import amount
from topology.base.values import plain

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cost.calibration.correction import Correction
    from cost.experts.loads import ExpertLoads
    from cost.inputs.deployment import Deployment
    from cost.model import Model
    from cost.money.prices import PriceBook
    from placement.plan import Plan
    from topology.cluster import Cluster

_PROGRESS_BYTES = 2**24
"""Size of files (bytes) from which reading shows progress."""
OF_EXPERTS = ("ep", "redundant", "loads", "routing", "spread", "split", "quota_slots", "objective")
"""Fields without effect for a model without routed experts."""


def model_of(model: ModelLike, weights: str | None = None) -> Model:
    """Return a model by name, file, content of a ``config.json``, or as given.

    Raises
    ------
    InputError
        If it cannot be read, or weights have no such format.
    """
    from cost.resolve import resolve_model

    return resolve_model(model, weights=weights)


def cluster_of(cluster: ClusterLike, settings: Lines = ()) -> Cluster:
    """Return a cluster by name, file, content of a cluster YAML, or as given, with the ``settings`` applied.

    Raises
    ------
    InputError
        As :func:`clusters_of`.
    """
    return clusters_of([cluster], settings)[0]


def clusters_of(clusters: Sequence[ClusterLike], settings: Lines = ()) -> list[Cluster]:
    """Return several clusters, each with the ``settings`` that apply to its parts.

    Raises
    ------
    InputError
        If one cannot be built, a setting cannot be read or used, or none has the part that it is of.
    """
    from topology.changes.overrides import overrides
    from topology.files.resolve import resolve_cluster

    resolved = [resolve_cluster(cluster) for cluster in clusters]
    return overrides(resolved, settings) if settings else resolved


def refuse_twice(names: Sequence[str], field: str, instead: str) -> None:
    """Reject a name that is given twice.

    Raises
    ------
    InputError
        If there is one, and what to do ``instead``.
    """
    for number, name in enumerate(names):
        if name in names[:number]:
            raise InputError(f"duplicate; {instead}.", field=field, value=name)


def compared_clusters(
    clusters: Sequence[ClusterLike], gpus: int | None, settings: Lines = ()
) -> list[Cluster]:
    """Return clusters to compare: names without ``@GPUS`` with ``gpus`` GPUs, else as many as the largest has.

    Those with ``@GPUS``, files and objects are as large as they are.

    Raises
    ------
    InputError
        As :func:`clusters_of`, or if one has another number of GPUs than asked for.
    """
    from topology.catalog import cluster_names
    from topology.files.resolve import cluster_called

    named = [cluster_called(str(entry)) if isinstance(entry, str | Path) else entry for entry in clusters]
    sides = clusters_of(named)
    count = gpus if gpus is not None else max(len(side.gpus) for side in sides)
    sized = [
        f"{entry}@{count}"
        if isinstance(entry, str) and entry in cluster_names() and len(side.gpus) != count
        else entry
        for entry, side in zip(named, sides, strict=True)
    ]
    compared = clusters_of(sized, settings)
    for side in compared:
        if gpus is not None and len(side.gpus) != gpus:
            raise InputError(
                f"{side.name} has {len(side.gpus)} GPUs; leave {input_name('gpus')} or its @GPUS out.",
                field="gpus",
                value=gpus,
            )
    return compared


def plan_of(plan: PlanLike, settings: Lines = ()) -> Plan:
    """Return a plan (read from a file if necessary), scored with ``settings`` applied to its cluster.

    Raises
    ------
    InputError
        If it cannot be read, or a setting cannot be read or used.
    InfeasibleError
        If the plan's batch no longer fits in HBM.
    """
    from placement.plan import Plan
    from placement.plans.reading import read_plan

    original = plan if isinstance(plan, Plan) else read_plan(plan)
    if not settings:
        return original
    from placement.pools import each_pool
    from placement.scoring import on_cluster
    from topology.changes.overrides import overrides

    return each_pool(
        original, lambda pool: on_cluster(pool, overrides([pool.deployment.cluster], settings)[0])
    )


def book_of(money: Money, *clusters: Cluster, stored: PriceBook | None = None) -> PriceBook:
    """Return the prices and powers; given ones must be for GPUs of ``clusters``.

    ``stored`` is that of a plan, which stands where nothing is given.

    Raises
    ------
    InputError
        If one is of no GPU of theirs, is a duplicate, or is no number above 0.
    """
    from cost.money.kv_memory import AUTO, KvMemory, sizes_of
    from cost.money.network import NETWORK
    from cost.money.prices import PriceBook, gpu_named

    def read(
        values: Mapping[str, str | float] | None, field: str, unit: str, example: str
    ) -> dict[str, float]:
        by_gpu: dict[str, float] = {}
        for name, figure in (values or {}).items():
            text = f"{name}={figure}"
            try:
                gpu = name if name in NETWORK else gpu_named(name, clusters)
            except InputError as error:
                raise InputError(str(error), field=field, value=text) from None
            if gpu in by_gpu:
                raise InputError(f"duplicate {gpu}; leave one out.", field=field, value=text)
            by_gpu[gpu] = amount(str(figure), f"{input_name(field)} {text}", unit)
            if not math.isfinite(by_gpu[gpu]) or by_gpu[gpu] <= 0:
                raise InputError(f"expected a number above 0, like {example}.", field=field, value=text)
        return by_gpu

    prices = read(money.prices, "prices", "USD/h", "gb200=3.10")
    powers = read(money.powers, "powers", "W", "gb200=1900")
    for field, figures, unit in (("prices", prices, "USD/h"), ("powers", powers, "W")):
        for gpu, value in figures.items():
            if gpu not in NETWORK and (problem := _wrong(unit, gpu, value)):
                raise InputError(problem, field=field, value=f"{gpu}={value:g}")
    stored = stored or PriceBook()
    basis = stored.basis if money.price_basis is None else money.price_basis
    own, tiers = tuple(getattr(money, "tiers", ())), getattr(money, "kv_tier", ())
    memory = KvMemory(
        sizes_of(tiers) if tiers and [*tiers] != [AUTO] else stored.memory.sizes, own or stored.memory.figures
    )
    book = PriceBook(basis, {**stored.prices, **prices}, {**stored.powers, **powers}, memory)
    for cluster in clusters:
        book.check(cluster)
    return book


def _wrong(unit: str, gpu: str, value: float) -> str:
    """Return what is wrong with a price or an all-in power of one GPU."""
    from topology.catalog import gpu_names, load_gpu

    if unit == "USD/h":
        return wrong_figure("usd_per_h", value)
    chip = load_gpu(gpu).figures.get("power_w") if gpu in gpu_names() else None
    return wrong_power(value, chip.value if chip is not None and chip.published else None)


def priced(money: Money, plan: Plan, *clusters: Cluster) -> Plan:
    """Return a plan with given prices and powers (for its GPUs or those of ``clusters``), else with its own.

    Raises
    ------
    InputError
        As :func:`book_of`.
    """
    from placement.pools import each_pool

    prices = book_of(money, plan.deployment.cluster.whole, *clusters, stored=plan.deployment.prices)
    return each_pool(plan, lambda pool: replace(pool, deployment=replace(pool.deployment, prices=prices)))


def deployment_of(request: Pricing, model: ModelLike, cluster: Cluster, *clusters: Cluster) -> Deployment:
    """Return the deployment: given options, else those of the recipe, and the measured accept length.

    Prices and powers may be of GPUs of ``clusters`` too.

    Raises
    ------
    InputError
        If options cannot be combined, or no run with so many drafts was measured.
    """
    from cost.calibration.serving import accept_length
    from cost.inputs.deployment import Deployment
    from cost.inputs.workload import Workload
    from cost.layouts.contexts import require_contexts
    from cost.recipe import published_recipe, recipe_words

    resolved = model_of(model, request.weights)
    recipe, source = None, ""
    if request.recipe == "usual":
        recipe, source = published_recipe([domain.gpu.name for domain in cluster.spec.domains], resolved)
        if recipe is not None and resolved.weights_override is None:
            resolved = model_of(resolved, recipe.narrowed(resolved))
    usual = recipe or Workload()
    phase, context = getattr(request, "phase", None) or "decode", getattr(request, "context", None)
    phase = "decode" if phase == "both" else phase  # lengths say what one pool does
    drafts = request.draft_tokens
    if drafts is None:
        drafts = usual.draft_tokens if phase == "decode" else 0
    work = Workload(
        context=CONTEXT if context is None else context,
        batch=getattr(request, "batch", 0),
        kv_dtype=usual.kv_dtype if request.kv_dtype is None else request.kv_dtype,
        phase=phase,
        draft_tokens=drafts,
        accept_length=accept_length(drafts) if request.accept_length is None else request.accept_length,
        overlap=usual.overlap if request.overlap is None else request.overlap,
        sparse_attention=str(request.sparse_attention),
        quota_slots=int(getattr(request, "split", "") == "quota")
        and (getattr(request, "quota_slots", None) or 1),
    )
    if source:
        source = f"{recipe_words(resolved, work)} ({'usual' if recipe else 'the checkpoint'}; {source})"
    if resolved.moe is None:
        for name in filter(request.given, OF_EXPERTS):
            raise request.refuse(name, f"{resolved.name} is dense and has no routed experts")
    prices = book_of(request, cluster, *clusters)
    deployment = Deployment(
        cluster,
        resolved,
        work,
        engine=request.engine,
        mem_util=request.mem_util,
        max_seqs=request.max_seqs,
        correction=correction_of(request),
        prices=prices,
        any_shape=request.any_shape,
        dcp=getattr(request, "dcp", None),
        pcp=getattr(request, "pcp", None),
        recipe=source,
    )
    require_contexts(deployment)
    return deployment


def deployments_of(request: Pricing, model: ModelLike, sides: Sequence[Cluster]) -> list[Deployment]:
    """Return the deployments on several clusters, each with its own recipe."""
    shared = model_of(model, request.weights)  # made once: sides share it
    return [deployment_of(request, shared, side, *sides) for side in sides]


def correction_of(request: Pricing) -> Correction:
    """Return the correction by measured runs: the built-in ones plus those of ``--runs``.

    Raises
    ------
    InputError
        If the file cannot be read, or none of its rows has the time of a decode step.
    """
    from cost.calibration.correction import correction_with

    if request.runs is None:
        return correction_with(physics=request.physics)
    from cost.validation.read import read_measurements
    from cost.validation.runs import with_own_runs

    return with_own_runs(read_measurements(request.runs), request.runs.name, physics=request.physics)


def loads_of(
    model: Model,
    loads: Loads | None = None,
    routing: Sequence[str] = (),
    *,
    seed: int = 0,
    windows: int | None = None,
) -> ExpertLoads | None:
    """Return the given loads for ``model``, or the default synthetic ones; None without experts.

    Traces of ``routing`` say which experts are chosen together, and imply the loads where none are given.
    ``windows`` is the largest number of scenarios that one recording becomes, None for the usual one.

    Raises
    ------
    InputError
        If a file cannot be used, or loads are given for a model without experts.
    """
    from cost.experts.loads import ExpertLoads, read_loads, routed_loads
    from cost.experts.traces.counts import Wanted
    from cost.experts.traces.windows import MAX_WINDOWS

    if isinstance(loads, ExpertLoads):
        shape = (len(model.moe_layers), model.moe.experts if model.moe else 0)
        if loads.tokens.shape[1:] != shape:
            raise InputError(
                f"the loads have {loads.tokens.shape[1]} layers of {loads.tokens.shape[2]} experts; {model.name} "
                f"has {shape[0]} of {shape[1]}.",
                field="loads",
            )
        return loads
    texts, moe = several(loads), model.moe
    if moe is None:
        for field, values in (("loads", texts), ("routing", routing)):
            if values:
                example = values[0] if isinstance(values[0], str) else "an array"
                raise InputError(
                    f"{model.name} has no routed experts; leave it out.", field=field, value=example
                )
        return None
    expert_loads = None
    needs = Wanted(tuple(model.moe_layers), len(model.layers), moe.experts, moe.top_k)
    if texts or not routing:
        with reading_progress(text for text in texts if isinstance(text, str)) as on_progress:
            expert_loads = read_loads(
                texts or [DEFAULT_LOADS],
                needs,
                seed=seed,
                windows=MAX_WINDOWS if windows is None else windows,
                on_progress=on_progress,
            )
    if not routing:
        return expert_loads
    from cost.experts.traces.open import read_routing

    with reading_progress(routing) as on_progress:
        return routed_loads(read_routing(routing, needs, on_progress=on_progress), expert_loads)


def several(loads: Any) -> list[str | NDArray[Any]]:
    """Return loads in the form of :func:`cost.experts.loads.read_loads`; nested lists become one array.

    Raises
    ------
    InputError
        If rows have different lengths.
    """
    import numpy as np

    if loads is None:
        return []
    items = loads if isinstance(loads, list | tuple) else [loads]
    if items and not any(isinstance(item, str | Path) or hasattr(item, "shape") for item in items):
        items = [loads]
    try:
        return [str(item) if isinstance(item, str | Path) else np.asarray(item) for item in items]
    except ValueError:
        raise InputError(
            "its rows have different lengths; give tokens as [layers, experts].", field="loads"
        ) from None


@contextmanager
def reading_progress(texts: Iterable[str]) -> Iterator[Callable[[str, float], None] | None]:
    """Yield a progress callback for reading files on a terminal; None if all ``texts`` are short."""
    from rackplan.progress import progress

    if not any(_bytes_below(Path(text)) > _PROGRESS_BYTES for text in texts):
        yield None
        return
    with progress() as reporter:
        reporter.stage("opening recordings")
        yield lambda path, fraction: reporter.stage(f"reading {Path(path).name}, {fraction:.0%}")


def _bytes_below(path: Path) -> int:
    """Return the size of a file, or of the files in a folder; 0 where there is none."""
    try:
        files = list(path.iterdir()) if path.is_dir() else [path]
        return sum(file.stat().st_size for file in files if file.is_file())
    except (OSError, ValueError):
        return 0


_SHARE_ROUNDING = 0.005
"""Shares whose sum differs from 1 by less than this were rounded."""


def shares_of(models: Any) -> tuple[list[tuple[Any, float]], list[str]]:
    """Return models with normalized request shares, and notes on the normalization.

    ``models`` is a model, a mapping of names to shares, or texts such as ``NAME:0.7``.

    Raises
    ------
    InputError
        If a share is no number above 0, one model has none beside others that have, or one is given twice.
    """
    if isinstance(models, Mapping) and all(isinstance(entry, int | float) for entry in models.values()):
        pairs: list[tuple[Any, float | None]] = list(plain(dict(models)).items())
    elif isinstance(models, list | tuple):
        pairs = [split_share(entry) for entry in models]
    else:
        pairs = [split_share(models) if isinstance(models, str) else (models, None)]
    if not pairs:
        raise InputError(
            "expected models with shares of requests above 0, like {'kimi-k2': 0.3}.", field="model"
        )
    for name, share in pairs:
        if share is not None and not (math.isfinite(share) and share > 0):
            raise InputError(
                "expected a share of requests above 0, like 0.7.",
                field="model",
                value=f"{name}:{share:g}",
            )
    shares = [share for _, share in pairs if share is not None]
    if not shares:
        even = f"no shares were given: the {len(pairs)} models receive equal shares of requests"
        return [(name, 1 / len(pairs)) for name, _ in pairs], [even] if len(pairs) > 1 else []
    if len(shares) < len(pairs):
        without = next(name for name, share in pairs if share is None)
        raise InputError(
            f"give every model a share of requests, like {without}:0.3.", field="model", value=without
        )
    total = math.fsum(shares)
    notes = (
        [f"the shares add up to {total:g} and were normalized"] if abs(total - 1) > _SHARE_ROUNDING else []
    )
    return [(name, (share or 0.0) / total) for name, share in pairs], notes


def notes_of(request: Request) -> list[str]:
    """Return notes on the request: interpreted cluster names, sequences beyond the model's limit."""
    from topology.files.resolve import cluster_remark

    notes: list[str] = []
    for name in ("cluster", "prefill_cluster", "clusters"):
        value = getattr(request, name, None)
        clusters = value if isinstance(value, list | tuple) else [value]
        notes += [cluster_remark(cluster) for cluster in clusters if isinstance(cluster, str)]
    tokens, lengths = getattr(request, "context", None), getattr(request, "whole", None)
    if lengths is not None:
        tokens = max(map(sum, zip(lengths.isl, lengths.osl, strict=True)))
    named = getattr(request, "model", None) or getattr(request, "models", None)
    if tokens is not None and named is not None:
        models = (model_of(name, getattr(request, "weights", None)) for name, _ in shares_of(named)[0])
        notes += [model.beyond(tokens) for model in models]
    return [note for note in notes if note]


def plan_notes(plan: Plan) -> list[str]:
    """Return notes on a plan that was read: wrong figures in its file, sequences beyond the model's limit."""
    notes = [plan.differences, plan.deployment.model.beyond(plan.deployment.workload.context)]
    return [note for note in notes if note]
