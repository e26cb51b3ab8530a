"""Why one cluster is faster than another: figures are changed group by group, pricing each intermediate machine."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from cost.inputs.deployment import Deployment
from topology.base.figures import Evidence, Figure
from topology.build import rebuilt
from topology.changes.overrides import PEAKS
from topology.cluster import Cluster, ClusterSpec
from topology.spec import FabricSpec, GpuSpec
from topology.structures.domain import DomainSpec
from topology.structures.torus import TorusDomain

STEPS = ("formats", "HBM bandwidth", "HBM capacity", "flop/s", "domain", "fabric", "kernels")
"""What changes from one machine to the next, in this order.

Formats of weights and cache, drafts and overlap, and which units the chip has beside its BF16 one and how much faster
than that they are; bandwidth and capacity of HBM; the BF16 peak, with all others in proportion; size and structure of
the scale-up domain, its hosts and the tiers between domains; rates, latencies and kernels of links of both fabrics;
last, the chip's name. Fractions of peaks, delays and the correction by measured runs follow the name, so until then
they are those of the first chip (its fractions read off their curves at the new figures).
"""

MIN_FACTOR_CHANGE = 0.005
"""Factors closer to 1 than this count for nothing."""

Rates = Sequence[float | None]
"""tok/s/GPU at each speed per user; None where it is out of reach."""


@dataclass(frozen=True)
class Gain:
    """Ratio of tok/s/GPU of two clusters at the same speed per user, and its factors.

    Attributes
    ----------
    before, after:
        Names of the clusters.
    tok_s_per_user:
        The speed; None: as much throughput as fits.
    rates:
        tok/s/GPU of both; None where the speed is out of reach.
    factors:
        By each of :data:`STEPS`; their product is the gain. None: the machine with that change alone is priced
        nowhere, so the next factor is of both. Empty where there is no split.
    hardware:
        The largest ratio of any figure of their GPUs, links and domains.
    measured:
        Whether runs on the chips of both were measured: what kernels add is then measured too.
    reason:
        Why there is none; else empty.
    """

    before: str
    after: str
    tok_s_per_user: float | None
    rates: tuple[float | None, float | None]
    factors: Mapping[str, float | None]
    hardware: float = math.inf
    measured: bool = False
    reason: str = ""

    @property
    def gain(self) -> float | None:
        """The ratio; None if one of them does not reach the speed."""
        rate_before, rate_after = self.rates
        return rate_after / rate_before if rate_before and rate_after else None

    def counting(self) -> list[tuple[str, float]]:
        """Return the factors that differ from 1 with their names; merged factors have several names."""
        counting, merged = [], list[str]()
        for step, factor in self.factors.items():
            merged.append(f"{step} (measured)" if step == STEPS[-1] and self.measured else step)
            if factor is not None:
                if abs(factor - 1) >= MIN_FACTOR_CHANGE:
                    counting.append((" and ".join(merged), factor))
                merged = []
        return counting


def split_gains(
    before: Deployment,
    after: Deployment,
    targets: Sequence[float | None],
    rates: tuple[Rates, Rates],
    price: Callable[[Deployment], Rates],
) -> list[Gain]:
    """Return the gain from a cluster to another at each speed per user.

    Parameters
    ----------
    rates:
        What both reach at the ``targets``.
    price:
        Returns the same of a machine on the way.
    """
    names = before.cluster.name, after.cluster.name
    reason = next(filter(None, map(_no_split, (before.cluster, after.cluster))), "")
    ends = list(zip(targets, *rates, strict=True))
    hardware = hardware_ratio(before.cluster, after.cluster)
    ran = before.correction.chips
    measured = all(side.cluster.spec.domains[0].gpu.name in ran for side in (before, after))
    lines: list[Rates] = [rates[0]]
    if not reason and any(old and new for _, old, new in ends):
        current = before
        for cluster in _between(before.cluster, after.cluster):
            changed = replace(after, cluster=cluster)
            lines.append(lines[-1] if _same(current, changed) else price(changed))
            current = changed
        lines.append(lines[-1] if _same(current, after) else rates[1])
    gains = []
    for place, (target, old, new) in enumerate(ends):
        missing = "" if old and new else f"{names[bool(old)]} does not reach this speed"
        factors: dict[str, float | None] = {}
        known = lines[0][place] or 0.0
        for step, line in zip(STEPS, () if missing or reason else lines[1:], strict=False):
            rate = line[place]
            factors[step] = rate / known if rate else None
            known = rate or known
        gains.append(Gain(*names, target, (old, new), factors, hardware, measured, missing or reason))
    return gains


def hardware_ratio(before: Cluster, after: Cluster) -> float:
    """Return the largest ratio of a figure of two clusters: of a GPU, its links, and the GPUs of a domain."""
    (old, *_), (new, *_) = before.spec.domains, after.spec.domains
    names = [name for name in new.gpu.figures if name.startswith("hbm_bytes") or name.endswith(PEAKS)]
    pairs = [
        (old.gpu.figures[name].value, new.gpu.figures[name].value)
        for name in names
        if name in old.gpu.figures
    ]
    pairs += [(old.scale_up_bytes_per_s, new.scale_up_bytes_per_s), (old.gpus, new.gpus)]
    out = before.spec.scale_out, after.spec.scale_out
    if out[0] is not None and out[1] is not None:
        pairs.append((out[0].scale_out_bytes_per_s, out[1].scale_out_bytes_per_s))
    return max(new_value / old_value for old_value, new_value in pairs if old_value > 0)


def _no_split(cluster: Cluster) -> str:
    """Why the figures of a cluster cannot be changed by themselves; empty where they can."""
    if cluster.spec.raw is not None:
        return f"the links of {cluster.name} are listed one by one"
    if len({domain.gpu for domain in cluster.spec.domains}) > 1:
        return f"{cluster.name} has GPUs of several kinds"
    return ""


def _same(left: Deployment, right: Deployment) -> bool:
    """Whether both cost the same, whatever they are called."""
    specs = [replace(deployment.cluster.spec, name="") for deployment in (left, right)]
    return specs[0] == specs[1] and (left.model, left.workload) == (right.model, right.workload)


def _between(before: Cluster, after: Cluster) -> Iterator[Cluster]:
    """Yield the machines of all :data:`STEPS` but the last."""
    old, new = (cluster.spec.domains[0].gpu for cluster in (before, after))
    peaks = {name: figure for name, figure in new.figures.items() if name.endswith(PEAKS)}
    unscaled = {name: figure for name, figure in old.figures.items() if not name.endswith(PEAKS)}
    slower = old.dense_flop_per_s("bf16") / new.dense_flop_per_s("bf16")
    gpu = replace(old, figures=unscaled | {name: _times(figure, slower) for name, figure in peaks.items()})
    yield rebuilt(before, _with_gpu(before.spec, gpu))
    hbm = ({name: new.figure(name)} for name in ("hbm_bytes_per_s", "hbm_bytes"))
    for figures in (*hbm, peaks):
        gpu = replace(gpu, figures={**gpu.figures, **figures})
        yield rebuilt(before, _with_gpu(before.spec, gpu))
    final = _with_gpu(after.spec, gpu)
    yield rebuilt(after, _with_rates(final, before.spec))
    yield rebuilt(after, final)


def _with_gpu(spec: ClusterSpec, gpu: GpuSpec) -> ClusterSpec:
    return _changed(spec, lambda domain: replace(domain, gpu=gpu))


def _changed(spec: ClusterSpec, change: Callable[[DomainSpec], DomainSpec]) -> ClusterSpec:
    changed = {domain: change(domain) for domain in dict.fromkeys(spec.domains)}
    return replace(spec, domains=tuple(changed[domain] for domain in spec.domains))


def _with_rates(spec: ClusterSpec, old: ClusterSpec) -> ClusterSpec:
    """Return a cluster whose GPUs send as fast as those of ``old``, inside their domains and between them.

    Between domains that is what oversubscription leaves. What only one of both has stays as it is.
    """
    new_domain, old_domain = spec.domains[0], old.domains[0]
    up = _over(old_domain.scale_up_bytes_per_s, new_domain.scale_up_bytes_per_s)

    def change(domain: DomainSpec) -> DomainSpec:
        changed = replace(domain, fabric=_as_fast(domain.fabric, old_domain.fabric, up or 1.0))
        if not isinstance(changed, TorusDomain):
            return changed
        along = tuple(_as_fast(side, old_domain.fabric, up or 1.0) for side in changed.dimension_fabrics)
        return replace(changed, dimension_fabrics=along)

    tuned = spec if up is None else _changed(spec, change)
    sides = old.scale_out, spec.scale_out
    rates = [side.scale_out_bytes_per_s / side.total_oversubscription if side else 0.0 for side in sides]
    out = _over(*rates)
    if sides[0] is None or sides[1] is None or out is None:
        return tuned
    return replace(tuned, scale_out=replace(sides[1], fabric=_as_fast(sides[1].fabric, sides[0].fabric, out)))


def _over(rate: float, base: float) -> float | None:
    """Return a rate over another; None where either is not known, or nothing."""
    return rate / base if rate > 0 and base > 0 else None


def _as_fast(new: FabricSpec, old: FabricSpec, times: float) -> FabricSpec:
    """Return a link of the ``old`` fabric at so many times the rate of a ``new`` one."""
    return replace(old, link_bytes_per_s=_times(new.link_bytes_per_s, times))


def _times(figure: Figure, times: float) -> Figure:
    if times == 1:
        return figure
    return Figure(figure.value * times, figure.unit, Evidence.DERIVED, f"{times:.4g} x {figure.source}")
