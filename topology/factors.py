"""In what two clusters differ, factor by factor, and the clusters between the two, which nobody makes."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from topology.errors import InputError
from topology.figures import Evidence, Figure
from topology.spec import ClusterSpec, DomainSpec, FabricSpec, GpuSpec, ScaleOutSpec
from topology.structures import structure_of
from topology.units import format_quantity, plural

HBM_RATE, HBM_ROOM, PEAKS = "HBM bandwidth", "HBM capacity", "flop/s"
SCALE_UP, DOMAIN, SCALE_OUT, CHIP = "scale-up rate", "domain size", "scale-out rate", "kernels"
FACTORS = (HBM_RATE, HBM_ROOM, PEAKS, SCALE_UP, DOMAIN, SCALE_OUT, CHIP)
"""What is moved one after the other. ``kernels`` is the rest of a chip: what its kernels reach of the figures."""
_PEAK = "_flop_per_s"


@dataclass(frozen=True)
class Factor:
    """One thing in which two clusters differ: its name (:data:`FACTORS`), and what each of them has, in words."""

    name: str
    before: str
    after: str


def differences(first: ClusterSpec, second: ClusterSpec) -> tuple[Factor, ...]:
    """Return what differs between two clusters, in the order of :data:`FACTORS`.

    Between domains there is a rate to move only where both have one and one of them several domains; where one has
    none, the fabric between domains comes and goes with the size of the domains.

    Raises
    ------
    InputError
        If a cluster is a raw graph, has something broken or several kinds of domains: no factor of it can be moved
        alone.
    """
    for spec in (first, second):
        _require_one_kind(spec)
    found = []
    for name in FACTORS:
        if name == SCALE_OUT and not _moves_scale_out(first, second):
            continue
        before, after = (_FACETS[name](spec) for spec in (first, second))
        if before[0] != after[0]:
            found.append(Factor(name, before[1], after[1]))
    return tuple(found)


def between(first: ClusterSpec, second: ClusterSpec, taken: Collection[str]) -> ClusterSpec:
    """Return ``first`` with those factors of ``second`` that are ``taken``; with all that differ, ``second``.

    Rates are moved, cabling is not: links of a domain and of the fabric between domains are as many as the cluster
    has whose domains they are, at the rate that gives each GPU what it has in the other.

    Raises
    ------
    InputError
        As :func:`differences`, or if there is nothing that a rate could be moved to.
    """
    names = {factor.name for factor in differences(first, second)}
    if not names & set(taken):
        return first
    if names <= set(taken):
        return second

    def of(name: str) -> ClusterSpec:
        return second if name in taken and name in names else first

    base, gpu = of(DOMAIN), _gpu(of)
    rates = of(SCALE_UP)
    made: dict[int, DomainSpec] = {}  # equal domains stay one object, as costs tell them by that
    for domain in base.domains:
        if id(domain) not in made:
            moved = domain if rates is base else _at_scale_up(domain, base, rates)
            made[id(domain)] = replace(moved, gpu=gpu, status="hypothetical")
    out, wanted = base.scale_out, of(SCALE_OUT).scale_out
    if SCALE_OUT in names and of(SCALE_OUT) is not base and out is not None and wanted is not None:
        out = _at_scale_out(out, wanted)
    words = ", ".join(name for name in FACTORS if name in taken and name in names)
    return replace(
        base,
        name=f"{first.name} with {words} of {second.name}",
        domains=tuple(made[id(domain)] for domain in base.domains),
        scale_out=out,
    )


def _require_one_kind(spec: ClusterSpec) -> None:
    if spec.raw is not None:
        why = "it is a graph written out, whose links have no common rate to move"
    elif spec.faults:
        why = "parts of it are broken, and those would have to move too; leave `broken` out"
    elif len(kinds := {(one.gpu.name, one.part, one.structure) for one in spec.domains}) > 1:
        named = ", ".join(sorted(f"{gpu} in {part}" for gpu, part, _ in kinds))
        why = f"its domains are of several kinds ({named})"
    else:
        return
    raise InputError(f"{spec.name}: no factor of it can be moved alone: {why}.")


def _moves_scale_out(first: ClusterSpec, second: ClusterSpec) -> bool:
    both = first.scale_out is not None and second.scale_out is not None
    return both and max(len(first.domains), len(second.domains)) > 1


def _whole(spec: ClusterSpec) -> DomainSpec:
    """Return a full domain."""
    return max(spec.domains, key=lambda domain: domain.gpus)


def _figure(name: str, spec: ClusterSpec) -> tuple[object, str]:
    figure = _whole(spec).gpu.figures.get(name)
    if figure is None:
        return None, "not published"
    return figure.value, format_quantity(figure.value, figure.unit)


def _peaks(spec: ClusterSpec) -> tuple[object, str]:
    found = {k: f.value for k, f in _whole(spec).gpu.figures.items() if k.endswith(_PEAK)}
    words = (
        f"{key.removesuffix(_PEAK).upper()} {format_quantity(value, 'flop/s')}"
        for key, value in found.items()
    )
    return found, ", ".join(words)


def _plain(rate: float) -> float:
    """Return a rate without what multiplying and dividing left in its last digits."""
    return float(f"{rate:.12g}")


def _scale_up(spec: ClusterSpec) -> tuple[object, str]:
    domain = _whole(spec)
    rate, fabric = domain.scale_up_bytes_per_s, domain.fabric
    return (
        _plain(rate),
        fabric.name,
        fabric.latency_s.value,
    ), f"{format_quantity(rate, 'byte/s')} ({fabric.name})"


def _domain(spec: ClusterSpec) -> tuple[object, str]:
    domain = _whole(spec)
    every = [(one.structure, one.gpus, one.gpus_per_node, one.shape, one.wrap) for one in spec.domains]
    many = f"{plural(len(spec.domains), 'domain')} of {domain.gpus}"
    return every, many + structure_of(domain).brief(domain)


def _scale_out(spec: ClusterSpec) -> tuple[object, str]:
    out = spec.scale_out
    if out is None:
        return None, "none"
    rate, fabric = out.scale_out_bytes_per_s / out.total_oversubscription, out.fabric
    return (
        _plain(rate),
        fabric.name,
        fabric.latency_s.value,
    ), f"{format_quantity(rate, 'byte/s')} ({fabric.name})"


def _chip(spec: ClusterSpec) -> tuple[object, str]:
    name = _whole(spec).gpu.name
    return name, f"as on {name}"


_FACETS: dict[str, Callable[[ClusterSpec], tuple[object, str]]] = {
    HBM_RATE: lambda spec: _figure("hbm_bytes_per_s", spec),
    HBM_ROOM: lambda spec: _figure("hbm_bytes", spec),
    PEAKS: _peaks,
    SCALE_UP: _scale_up,
    DOMAIN: _domain,
    SCALE_OUT: _scale_out,
    CHIP: _chip,
}
"""Of each factor, what a cluster has: to compare, and in words."""


def _gpu(of: Callable[[str], ClusterSpec]) -> GpuSpec:
    """Return the chip whose kernels are taken, with the figures that are."""
    chip = _whole(of(CHIP)).gpu
    figures = dict(chip.figures)
    peaks = dict.fromkeys([*chip.figures, *_whole(of(PEAKS)).gpu.figures])
    moved = {"hbm_bytes_per_s": HBM_RATE, "hbm_bytes": HBM_ROOM}
    moved |= {key: PEAKS for key in peaks if key.endswith(_PEAK)}
    for key, factor in moved.items():
        source = of(factor)
        figure = _whole(source).gpu.figures.get(key)
        if figure is None:
            figures.pop(key, None)
        elif figure is not chip.figures.get(key):
            figures[key] = _supposed(figure, source.name)
    return replace(chip, figures=figures, status="hypothetical")


def _supposed(figure: Figure, cluster: str, value: float | None = None) -> Figure:
    """Return a figure of ``cluster`` as supposed of another."""
    kind = max(figure.kind, Evidence.USER)
    source = f"supposed: as of {cluster} ({figure.source})"
    if value is None:
        return replace(figure, kind=kind, source=source)
    return replace(figure, value=value, kind=kind, source=source, text="")


def _at(fabric: FabricSpec, value: float, cluster: str) -> FabricSpec:
    """Return a fabric of ``cluster`` whose links have the rate ``value``."""
    return replace(fabric, link_bytes_per_s=_supposed(fabric.link_bytes_per_s, cluster, value))


def _at_scale_up(domain: DomainSpec, base: ClusterSpec, rates: ClusterSpec) -> DomainSpec:
    """Return a domain of ``base`` at the rate of a GPU in ``rates``, over its own links."""
    own, wanted = _whole(base).scale_up_bytes_per_s, _whole(rates)
    if not own > 0:
        raise InputError(f"{base.name}: its GPUs have no links inside a domain whose rate could be moved.")
    factor = wanted.scale_up_bytes_per_s / own

    def moved(fabric: FabricSpec) -> FabricSpec:
        return _at(wanted.fabric, fabric.link_bytes_per_s.value * factor, rates.name)

    return replace(
        domain, fabric=moved(domain.fabric), dimension_fabrics=tuple(map(moved, domain.dimension_fabrics))
    )


def _at_scale_out(own: ScaleOutSpec, wanted: ScaleOutSpec) -> ScaleOutSpec:
    """Return a network with its own cabling at the rate of another."""
    rate = wanted.scale_out_bytes_per_s / wanted.total_oversubscription
    link = rate * own.total_oversubscription / own.nic_links_per_gpu
    return replace(own, fabric=_at(wanted.fabric, link, wanted.fabric.name))
