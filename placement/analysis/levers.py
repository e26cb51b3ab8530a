"""What-if: change one lever of a plan at a time, and score it at the same service level.

A lever is scored three ways. With the batch kept, the plan's own placement runs its own batch on what changed. With
the layout kept, the placement stays and the batch is the largest within the service level. With the layout free, the
best layout of the sweep (:mod:`cost.layouts`) runs at its own largest batch, its experts placed the fast way.

A lever is a function that yields its changes, and one entry of :data:`LEVERS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from cost.config.build import model_from_config
from cost.dtypes import bytes_per_param, cache_bytes_per_element, multiply_dtype
from cost.inputs.deployment import Deployment
from placement.analysis.bench import Bench
from placement.analysis.layouts import more_or_fewer_copies, other_widths
from placement.analysis.lever import Lever, Reached, ServiceLevel
from placement.plan import Plan
from placement.progress import Say, silent
from topology.base.errors import InputError
from topology.base.shown import Shown
from topology.base.units import format_quantity
from topology.changes.overrides import PEAKS, overrides
from topology.cluster import Cluster

MIN_SHOWN_GAIN = 5e-4
"""Gain below which a lever does nothing that anybody would see."""
FACTORS = {"+10%": 1.1, "x2": 2.0}
"""By how much figures of the machine are changed."""
_FIGURES = (
    ("HBM bandwidth", "gpu", "hbm_bytes_per_s"),
    ("HBM capacity", "gpu", "hbm_bytes"),
    ("flop/s", "gpu", PEAKS),
    ("scale-up bandwidth", "scale-up", "link_bytes_per_s"),
    ("scale-out bandwidth", "scale-out", "link_bytes_per_s"),
)
_WEIGHTS = ("bf16", "fp8", "fp4")
_CACHES = ("bf16", "fp8")


@dataclass(frozen=True, eq=False, repr=False)
class Levers(Shown):
    """The levers of a plan, the largest gain first.

    ``unchanged`` is the plan under no change.
    """

    plan: Plan
    level: ServiceLevel
    unchanged: Lever
    rows: tuple[Lever, ...]

    def brief(self) -> str:
        """Return the plan and the gains of its largest levers."""
        gains = (f"{row.name} {row.change}".rstrip() + f" {row.gain:+.1%}" for row in self.largest)
        return f"of {self.plan.deployment.brief()}: {', '.join(gains) or 'none gains anything'}"

    @property
    def largest(self) -> list[Lever]:
        """The best change of each lever (except layouts) with a gain at the same layout, largest first."""
        best: dict[str, Lever] = {}
        for row in self.rows:
            if row.kind != "layout" and isinstance(row.layout_kept, Reached) and row.gain >= MIN_SHOWN_GAIN:
                best.setdefault(row.name, row)
        return list(best.values())


def find_levers(plan: Plan, *, free: bool = True, on_stage: Say | None = None) -> Levers:
    """Return the gain of each lever.

    Parameters
    ----------
    free:
        Also look at other layouts: those levers, and each lever with the layout free.
    on_stage:
        Called with what is looked at.
    """
    bench = Bench(plan, free=free)
    say = on_stage or silent
    rows: list[Lever] = []
    for number, (part, levers) in enumerate(LEVERS.items(), 1):
        stage = f"changing the {part}, {number} of {len(LEVERS)}"
        say(stage)
        for lever in levers:
            for row in lever(bench):
                rows.append(row)
                say(f"{stage}: {row.name} {row.change}")
    rows.sort(key=lambda row: (-row.gain, row.name, row.change))
    return Levers(plan, bench.level, bench.unchanged(), tuple(rows))


def figures(bench: Bench) -> Iterator[Lever]:
    """Yield each figure of the machine raised by each of :data:`FACTORS`."""
    deployment = bench.plan.deployment
    cluster = deployment.cluster
    for name, part, figure in _FIGURES:
        why = ""
        if part == "scale-out" and len({gpu.domain for gpu in cluster.gpus}) < 2:
            why = "the cluster is a single domain without scale-out traffic"
        elif part == "scale-up" and all(domain.gpus == 1 for domain in cluster.spec.domains):
            why = "no two GPUs share a domain"
        for change, factor in FACTORS.items():
            trial: Deployment | str = why
            to = ""
            try:
                if not why:
                    (changed,) = overrides([cluster], [f"{part}.{figure}={factor:g}x"])
                    trial, to = (replace(deployment, cluster=changed), _figure_words(changed, part, figure))
            except InputError as error:
                trial = str(error)
            yield bench.row(name, "hardware", change, to, trial)


def _figure_words(cluster: Cluster, part: str, figure: str) -> str:
    """Return a figure that was changed, as of every GPU; empty where GPUs differ in it."""
    spec = cluster.spec
    if part == "scale-out":
        rates = {0.0 if spec.scale_out is None else spec.scale_out.scale_out_bytes_per_s}
    elif part == "scale-up":
        rates = {domain.scale_up_bytes_per_s for domain in spec.domains}
    elif figure == PEAKS:
        rates = {domain.gpu.dense_flop_per_s("bf16") for domain in spec.domains}
    else:
        rates = {domain.gpu.figure(figure).value for domain in spec.domains}
    unit = {"hbm_bytes": "byte", PEAKS: "flop/s"}.get(figure, "byte/s")
    text = format_quantity(next(iter(rates)), unit) if len(rates) == 1 else ""
    return f"{text} BF16" if text and figure == PEAKS else text


def batch(bench: Bench) -> Iterator[Lever]:
    """Yield other batches."""
    plan = bench.plan
    for change, size in bench.batches.items():
        held = bench.at(plan.deployment, plan.layout, plan.experts, size)
        best = bench.best_of(bench.base, held, batch=size) if bench.free else None
        yield Lever("batch", "workload", change, f"{size:,} from {plan.score.batch:,}", held, held, best)


def context(bench: Bench) -> Iterator[Lever]:
    """Yield half the context, a tenth more, and twice; of both phases with prompts and answers that much longer."""
    deployment = bench.plan.deployment
    work = deployment.workload
    base = work.context
    for change, length in {"half": base // 2, "+10%": round(1.1 * base), "x2": 2 * base}.items():
        if length < 1 or length == base:
            continue
        lengthened: Deployment | str
        try:
            by = length / base
            longer = replace(work, context=length, prompt=by * work.prompt, answer=by * work.answer)
            lengthened = replace(deployment, workload=longer)
            odd = lengthened.model.beyond(length)
        except InputError as error:
            lengthened, odd = str(error), ""
        yield replace(bench.row("context", "workload", change, f"{length:,} tokens", lengthened), note=odd)


def weights(bench: Bench) -> Iterator[Lever]:
    """Yield the next narrower and wider format of the weights."""
    deployment = bench.plan.deployment
    model = deployment.model
    dtype_now = model.precision[model.main_weights]
    formats = [_stored_as(name, deployment) for name in _WEIGHTS]
    sizes = {dtype: bytes_per_param(dtype) for dtype in formats}
    for change, dtype in _next(bytes_per_param(dtype_now), sizes).items():
        recast: Deployment | str
        try:
            changed = model_from_config(dict(model.config), name=model.name, weights=dtype)
            recast = replace(deployment, model=changed)
        except InputError as error:
            recast = str(error)
        yield bench.row("weights", "precision", change, f"{dtype} from {dtype_now}", recast)


def cache(bench: Bench) -> Iterator[Lever]:
    """Yield the next narrower and wider format of the KV cache."""
    deployment = bench.plan.deployment
    dtype_now = deployment.workload.kv_dtype
    sizes = {name: cache_bytes_per_element(name) for name in _CACHES}
    for change, name in _next(cache_bytes_per_element(dtype_now), sizes).items():
        recast = replace(deployment, workload=replace(deployment.workload, kv_dtype=name))
        yield bench.row("KV cache", "precision", change, f"{name} from {dtype_now}", recast)


def _next(size: float, sizes: Mapping[str, float]) -> dict[str, str]:
    """Return the next ``narrower`` and ``wider`` of formats by their bytes, where there are such."""
    near = 0.1  # scales of blocks add to the bytes of a format
    narrower = [name for name in sizes if sizes[name] < size * (1 - near)]
    wider = [name for name in sizes if sizes[name] > size * (1 + near)]
    neighbours = {"narrower": max(narrower, key=sizes.__getitem__)} if narrower else {}
    return neighbours | ({"wider": min(wider, key=sizes.__getitem__)} if wider else {})


def _stored_as(name: str, deployment: Deployment) -> str:
    """Return the format of weights that a width is stored in: of FP4 the one that the chip multiplies."""
    if name != "fp4":
        return name
    gpus = [domain.gpu for domain in deployment.cluster.spec.domains]
    native = all(gpu.vendor == "NVIDIA" and multiply_dtype("nvfp4", gpu)[0] == "fp4" for gpu in gpus)
    return "nvfp4" if native else "mxfp4"


def widths(bench: Bench) -> Iterator[Lever]:
    """Yield the next widths and numbers of stages."""
    plan = bench.plan
    for name, of, value, placed in other_widths(plan) if bench.free else ():
        current = getattr(plan.layout, of)
        held, grown = bench.placed(placed)
        which = getattr(bench.base, of) == value
        if isinstance(grown, Reached) and not which.any():
            continue  # it fits, but is not deployable: one pool for both phases over several nodes, say
        best = bench.best_of(bench.base, grown, which=which)
        yield Lever(name, "layout", _step(current, value), f"{value} from {current}", held, grown, best)


def copies(bench: Bench) -> Iterator[Lever]:
    """Yield one slot fewer and one more on each GPU."""
    for count, current, placed in more_or_fewer_copies(bench.plan) if bench.free else ():
        held, grown = bench.placed(placed)
        best = bench.freed(bench.plan.deployment, grown, copies=count)
        yield Lever("copies", "layout", _step(current, count), f"{count} from {current}", held, grown, best)


def _step(current: int, value: int) -> str:
    return "next up" if value > current else "next down"


LEVERS: Mapping[str, tuple[Callable[[Bench], Iterator[Lever]], ...]] = {
    "machine": (figures,),
    "workload": (batch, context, weights, cache),
    "layout": (widths, copies),
}
"""All levers, by what they change."""
