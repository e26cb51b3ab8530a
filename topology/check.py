"""What a specification must satisfy, whichever file it came from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topology.errors import InputError

if TYPE_CHECKING:
    from topology.spec import ClusterSpec, DomainSpec, ScaleOutSpec

__all__ = ["LARGEST_CLUSTER_GPUS", "check_cluster", "check_domain", "check_scale_out", "uplinks_of_leaf"]

LARGEST_CLUSTER_GPUS = 1_000_000
_PLANNED_STRUCTURES = ("torus", "mesh", "fully-connected", "two-tier")
_PLANNED_FABRICS = ("leaf-spine", "fat-tree", "dragonfly")


def check_domain(domain: DomainSpec, where: str) -> DomainSpec:
    """Return ``domain`` if it can be built.

    Raises
    ------
    InputError
        If its structure is not supported, or its GPUs do not fill whole nodes.
    """
    if domain.structure != "switch":
        known = domain.structure in _PLANNED_STRUCTURES
        raise InputError(
            f"{where}: structure {domain.structure!r} is {'not supported yet' if known else 'not known'}; "
            "`switch` is."
        )
    if domain.gpus % domain.gpus_per_node:
        raise InputError(
            f"{where}: {domain.gpus} GPUs do not fill whole nodes of {domain.gpus_per_node}; "
            f"use {_nearest_multiples(domain.gpus, domain.gpus_per_node)}."
        )
    if domain.gpus > 1 and not domain.links_per_switch:
        raise InputError(f"{where}: links_per_switch is empty, so its GPUs cannot reach each other.")
    return domain


def check_scale_out(scale_out: ScaleOutSpec, where: str) -> ScaleOutSpec:
    """Return ``scale_out`` if it can be cabled.

    Raises
    ------
    InputError
        If its kind is not supported, or its oversubscription leaves no whole number of uplinks.
    """
    if scale_out.kind != "rail":
        known = scale_out.kind in _PLANNED_FABRICS
        raise InputError(
            f"{where}: fabric kind {scale_out.kind!r} is "
            f"{'not supported yet' if known else 'not known'}; `rail` is."
        )
    uplinks_of_leaf(scale_out, where)
    return scale_out


def uplinks_of_leaf(scale_out: ScaleOutSpec, where: str = "fabric") -> int:
    """Return the uplinks of one leaf: the downlinks of a full pod over the oversubscription.

    Raises
    ------
    InputError
        If that is not a whole number of at least one.
    """
    down = scale_out.nodes_per_pod * scale_out.nic_links_per_gpu
    uplinks = down / scale_out.oversubscription
    if uplinks < 1 - 1e-9 or abs(uplinks - round(uplinks)) > 1e-6 * uplinks:
        some = [
            f"{down / n:g}" for n in sorted({down, max(1, down // 2), max(1, down // 3), 1}, reverse=True)
        ]
        raise InputError(
            f"{where}: oversubscription {scale_out.oversubscription:g} leaves {uplinks:g} uplinks for {down} "
            f"downlinks of a leaf; it must be a whole number (for instance {', '.join(some)} do)."
        )
    return round(uplinks)


def check_cluster(spec: ClusterSpec, where: str) -> ClusterSpec:
    """Return ``spec`` if it is a cluster that can be built.

    Raises
    ------
    InputError
        If it has no domains, too many GPUs, or several domains with no fabric between them.
    """
    if not spec.domains:
        raise InputError(f"{where}: has no domains.")
    if spec.gpus > LARGEST_CLUSTER_GPUS:
        raise InputError(f"{where}: {spec.gpus} GPUs; at most {LARGEST_CLUSTER_GPUS} are supported.")
    if len(spec.domains) > 1 and spec.scale_out is None:
        raise InputError(f"{where}: has {len(spec.domains)} domains but no `fabric` between them.")
    return spec


def _nearest_multiples(count: int, step: int) -> str:
    """Return the nearest counts that fill whole nodes, in words."""
    below, above = count // step * step, -(-count // step) * step
    return f"{below} or {above}" if below else str(above)
