"""What a specification must satisfy, whichever file it came from."""

from __future__ import annotations

from topology.errors import InputError
from topology.spec import ClusterSpec, DomainSpec, ScaleOutSpec

LARGEST_CLUSTER_GPUS = 1_000_000
LARGEST_MESH_GPUS = 256  # GPUs x GPUs links; nobody builds a full mesh as large
STRUCTURES = ("switch", "two-tier", "mesh", "torus")
FABRIC_KINDS = ("rail", "leaf-spine", "fat-tree", "dragonfly")


def check_domain(domain: DomainSpec, where: str) -> DomainSpec:
    """Return ``domain`` if it can be built.

    Raises
    ------
    InputError
        If its structure is not known or lacks what it needs, or its GPUs do not fill whole nodes.
    """
    if domain.structure == "raw":
        return domain
    if domain.structure not in STRUCTURES:
        raise InputError(
            f"{where}: structure {domain.structure!r} is not known; {', '.join(STRUCTURES)} are."
        )
    if domain.gpus % domain.gpus_per_node:
        raise InputError(
            f"{where}: {domain.gpus} GPUs do not fill whole nodes of {domain.gpus_per_node}; "
            f"use {_nearest_multiples(domain.gpus, domain.gpus_per_node)}."
        )
    if domain.structure == "torus":
        _check_torus(domain, where)
    elif domain.structure == "mesh":
        _check_mesh(domain, where)
    elif domain.gpus > 1 and not domain.links_per_switch:
        raise InputError(f"{where}: links_per_switch is empty, so its GPUs cannot reach each other.")
    elif domain.structure == "two-tier":
        _check_two_tier(domain, where)
    return domain


def _check_two_tier(domain: DomainSpec, where: str) -> None:
    """Check that the uplinks of each first-tier chip spread evenly."""
    if domain.upper_switches < 1:
        raise InputError(
            f"{where}: a two-tier domain needs `upper_switches`, chips of the second tier per plane."
        )
    for links in dict.fromkeys(domain.links_per_switch):
        uplinks = links * domain.gpus_per_node
        _check_even(uplinks, domain.upper_switches, "a first-tier chip", "`upper_switches`", where)


def _check_torus(domain: DomainSpec, where: str) -> None:
    """Check that shape, wrap and hosts of a torus agree."""
    shape = " x ".join(str(size) for size in domain.shape)
    count = 1
    for size in domain.shape:
        count *= size
    if not domain.shape or count != domain.gpus:
        raise InputError(
            f"{where}: the shape {shape or '[]'} has {count} places, but there are {domain.gpus} GPUs."
        )
    dimensions = len(domain.shape)
    if len(domain.wrap) != dimensions:
        raise InputError(f"{where}: wrap has {len(domain.wrap)} entries for {dimensions} dimensions.")
    if domain.dimension_fabrics and len(domain.dimension_fabrics) != dimensions:
        raise InputError(f"{where}: {len(domain.dimension_fabrics)} link rates for {dimensions} dimensions.")
    if domain.links_per_neighbour < 1:
        raise InputError(f"{where}: a torus needs at least one link to each neighbour.")
    in_node = 1
    for size in domain.node_shape:
        in_node *= size
    block = " x ".join(str(size) for size in domain.node_shape)
    if len(domain.node_shape) != dimensions or in_node != domain.gpus_per_node:
        raise InputError(
            f"{where}: node_shape {block or '[]'} is not {domain.gpus_per_node} GPUs in "
            f"{dimensions} dimensions."
        )
    if any(size % step for size, step in zip(domain.shape, domain.node_shape, strict=True)):
        raise InputError(
            f"{where}: hosts of {block} GPUs do not fill a torus of {shape}; each size must divide."
        )


def _check_mesh(domain: DomainSpec, where: str) -> None:
    """Check that a mesh has links, and few enough."""
    if domain.links_per_neighbour < 1:
        raise InputError(
            f"{where}: a mesh needs `links_per_peer`, links between each two GPUs, of at least one."
        )
    if domain.gpus > LARGEST_MESH_GPUS:
        raise InputError(
            f"{where}: a full mesh of {domain.gpus} GPUs; at most {LARGEST_MESH_GPUS} are supported in one."
        )


def check_scale_out(scale_out: ScaleOutSpec, where: str) -> ScaleOutSpec:
    """Return ``scale_out`` if it can be cabled.

    Raises
    ------
    InputError
        If its kind is not supported, or its oversubscription leaves no whole number of uplinks.
    """
    kind = scale_out.kind
    if kind == "raw":
        return scale_out
    if kind not in FABRIC_KINDS:
        raise InputError(f"{where}: fabric kind {kind!r} is not known; {', '.join(FABRIC_KINDS)} are.")
    if kind != "dragonfly" and scale_out.spines < 1:
        raise InputError(f"{where}: a {kind} fabric needs at least one spine.")
    if kind != "fat-tree" and (scale_out.cores or scale_out.core_oversubscription != 1):
        raise InputError(f"{where}: a {kind} fabric has no cores; only `fat-tree` has.")
    if scale_out.leaves_per_pod < 1 or scale_out.nodes_per_pod % scale_out.leaves_per_pod:
        raise InputError(
            f"{where}: {scale_out.nodes_per_pod} hosts of a pod do not fill {scale_out.leaves_per_pod} leaves evenly."
        )
    if kind == "rail":
        _check_reach(scale_out, uplinks_of_leaf(scale_out, where), where)
    return scale_out


def _check_reach(scale_out: ScaleOutSpec, uplinks: int, where: str) -> None:
    """Refuse leaves that cannot reach every spine: two of them might share none."""
    if uplinks < scale_out.spines:
        raise InputError(
            f"{where}: a leaf has {uplinks} uplinks, too few for one to each of {scale_out.spines} spines; use at "
            f"most `spines: {uplinks}`."
        )


def uplinks_of_leaf(scale_out: ScaleOutSpec, where: str = "fabric", gpus_per_node: int = 1) -> int:
    """Return the uplinks of one leaf: the downlinks of a full set of hosts over the oversubscription.

    ``gpus_per_node`` is that of the largest host; a leaf of a rail fabric takes one GPU of each host.

    Raises
    ------
    InputError
        If that is not a whole number of at least one.
    """
    each = 1 if scale_out.kind == "rail" else gpus_per_node
    down = scale_out.nodes_per_leaf * each * scale_out.nic_links_per_gpu
    what = "a router" if scale_out.kind == "dragonfly" else "a leaf"
    return _uplinks(down, scale_out.oversubscription, what, where)


def uplinks_of_spine(scale_out: ScaleOutSpec, where: str = "fabric", gpus_per_node: int = 1) -> int:
    """Return the uplinks of one spine of a fat tree: its downlinks in a full pod over its oversubscription.

    Raises
    ------
    InputError
        If that is not a whole number of at least one.
    """
    uplinks = uplinks_of_leaf(scale_out, where, gpus_per_node)
    _check_even(uplinks, scale_out.spines, "a leaf", "spines of a pod", where)
    down = scale_out.leaves_per_pod * uplinks // scale_out.spines
    up = _uplinks(down, scale_out.core_oversubscription, "a spine", where)
    if scale_out.cores:
        _check_even(up, scale_out.cores, "a spine", "cores above it", where)
    return up


def _check_even(uplinks: int, above: int, what: str, others: str, where: str) -> None:
    """Refuse uplinks that do not spread evenly: some switches would then share no switch above them."""
    if uplinks % above:
        raise InputError(
            f"{where}: {uplinks} uplinks of {what} do not spread evenly over {above} {others}; use a "
            f"divisor of {uplinks}."
        )


def _uplinks(down: int, oversubscription: float, what: str, where: str) -> int:
    """Return ``down`` over ``oversubscription`` if that is a whole number."""
    uplinks = down / oversubscription
    if uplinks < 1 - 1e-9 or abs(uplinks - round(uplinks)) > 1e-6 * uplinks:
        some = [
            f"{down / n:g}" for n in sorted({down, max(1, down // 2), max(1, down // 3), 1}, reverse=True)
        ]
        raise InputError(
            f"{where}: oversubscription {oversubscription:g} leaves {uplinks:g} uplinks for {down} "
            f"downlinks of {what}; it must be a whole number (for instance {', '.join(some)} do)."
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
    if spec.scale_out is not None and spec.scale_out.kind not in ("rail", "raw"):
        largest = max(domain.gpus_per_node for domain in spec.domains)
        uplinks = uplinks_of_leaf(spec.scale_out, f"{where}: fabric", largest)
        if spec.scale_out.kind == "leaf-spine":
            _check_reach(spec.scale_out, uplinks, f"{where}: fabric")
        if spec.scale_out.kind == "dragonfly":
            _check_groups(spec, spec.scale_out, uplinks, f"{where}: fabric")
        if spec.scale_out.kind == "fat-tree":
            uplinks_of_spine(spec.scale_out, f"{where}: fabric", largest)
    return spec


def _check_groups(spec: ClusterSpec, scale_out: ScaleOutSpec, uplinks: int, where: str) -> None:
    """Refuse a dragonfly with more groups than a group has global links for."""
    hosts = sum(domain.gpus // domain.gpus_per_node for domain in spec.domains)
    groups, ports = -(-hosts // scale_out.nodes_per_pod), scale_out.leaves_per_pod * uplinks
    if groups - 1 > ports:
        raise InputError(
            f"{where}: a dragonfly of {groups} groups needs {groups - 1} global links from each, and a group has "
            f"{ports}; use larger groups (`routers_per_group`) or less oversubscription."
        )


def _nearest_multiples(count: int, step: int) -> str:
    """Return the nearest counts that fill whole nodes, in words."""
    below, above = count // step * step, -(-count // step) * step
    return f"{below} or {above}" if below else str(above)
