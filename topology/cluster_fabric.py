"""The fabric of a cluster file: its NICs, its kind, and the switches that a design of that kind has.

What the file does not say follows a reference design where there is one; otherwise it is asked for by name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import ceil

from topology.catalog import find_scale_out, load_scale_out
from topology.cluster_domains import stand_in_latency
from topology.cluster_gpus import user_figure
from topology.errors import InputError
from topology.fabrics import FABRICS, check_scale_out, uplinks_of_leaf, uplinks_of_spine
from topology.plausible import check_nic
from topology.reading import Fields
from topology.spec import DomainSpec, FabricSpec, ScaleOutSpec

_REFERENCE = "hgx-h100"  # pods and spines of inline domains follow this reference design
# Ports of the switch that a NIC of this rate is usually cabled to: Quantum-2 (64 x 400 Gb/s) and Quantum-X800
# (144 x 800 Gb/s), NVIDIA's product pages.
_RADIX = {50e9: 64, 100e9: 144}


def read_fabric(
    fields: Fields, parts: Sequence[object], domains: Sequence[DomainSpec]
) -> ScaleOutSpec | None:
    """Return the fabric between domains: the file's, else the one design that all parts share.

    Raises
    ------
    InputError
        If several domains have no fabric in common, or the file's cannot be cabled.
    """
    named = [part for part in parts if isinstance(part, str)]
    designs = {find_scale_out(part) for part in named}
    if "fabric" not in fields:
        shared = next(iter(designs)) if len(designs) == 1 and len(named) == len(parts) else None
        if shared is None and len(domains) > 1:
            raise InputError(
                f"{fields.where}: its domains have no fabric in common, so it needs the key `fabric`, "
                "like {kind: rail, nic: 400 Gb/s, oversubscription: 1}."
            )
        return shared
    row = fields.sub("fabric")
    kind = row.text("kind")
    if kind not in FABRICS:
        raise InputError(f"{row.at('kind')}: {kind!r} is not one of {', '.join(FABRICS)}.")
    blank = _blank(row, kind)
    design = find_scale_out(named[0]) if named else None
    scale_out = _READERS[kind](row, blank, domains, design)
    check_nic(row, scale_out, parts)
    row.done()
    return check_scale_out(scale_out, row.where)


def _blank(row: Fields, kind: str) -> ScaleOutSpec:
    """Return the NICs and oversubscription of a fabric, its switches still to come."""
    nic = user_figure(row, "nic", "byte/s", row.where)
    tiers = _oversubscription(row, kind)
    return ScaleOutSpec(
        kind=kind,
        fabric=FabricSpec(
            f"{kind} {row.text('nic')}", "scale-out", nic, stand_in_latency(row, scale_up=False)
        ),
        nic_links_per_gpu=row.count("nics_per_gpu") if "nics_per_gpu" in row else 1,
        nodes_per_pod=1,
        spines=1,
        oversubscription=tiers[0],
        core_oversubscription=tiers[1] if kind == "fat-tree" else 1.0,
    )


def _oversubscription(row: Fields, kind: str) -> tuple[float, float]:
    """Return the oversubscription of leaves and of spines; one number is that of the leaves."""
    if "oversubscription" not in row:
        return 1.0, 1.0
    value = row.get("oversubscription")
    if not isinstance(value, list):
        return row.number("oversubscription"), 1.0
    tiers = 2 if kind == "fat-tree" else 1
    if len(value) != tiers:
        raise InputError(
            f"{row.at('oversubscription')}: {value!r} has {len(value)} entries; {kind} is oversubscribed at {tiers} "
            f"tier{'s' * (tiers > 1)} (fat-tree: leaves, then spines)."
        )
    numbers = row.numbers("oversubscription")
    return numbers[0], numbers[1] if tiers == 2 else 1.0


def _rail(
    row: Fields, blank: ScaleOutSpec, _domains: Sequence[DomainSpec], design: ScaleOutSpec | None
) -> ScaleOutSpec:
    """GPU i of every host on leaf i; pods and spines as in the first part's design, if it is one of rails."""
    if design is None or design.kind != "rail":
        design = load_scale_out(_REFERENCE)
    per_pod = row.count("nodes_per_pod") if "nodes_per_pod" in row else design.nodes_per_pod
    rails = replace(blank, nodes_per_pod=per_pod)
    if "spines" in row:
        return replace(rails, spines=row.count("spines"))
    # fewer uplinks than the design's spines: one to each of as many
    return replace(rails, spines=min(design.spines, uplinks_of_leaf(rails, row.where)))


def _leaf_spine(
    row: Fields, blank: ScaleOutSpec, domains: Sequence[DomainSpec], _design: ScaleOutSpec | None
) -> ScaleOutSpec:
    """All GPUs of a host on one leaf; as few spines as have the ports."""
    radix = _Radix(row, blank)
    width, hosts = _largest_host(domains), _hosts(domains)
    per_leaf = (
        row.count("nodes_per_leaf") if "nodes_per_leaf" in row else _nodes_per_leaf(radix, blank, width)
    )
    one = replace(blank, nodes_per_pod=per_leaf)
    uplinks = uplinks_of_leaf(one, row.where, width)
    leaves = ceil(hosts / per_leaf)
    if "spines" in row:
        return replace(one, spines=row.count("spines"))
    spines = _fewest(uplinks, lambda each: leaves * each <= radix.ports)
    if spines is None:
        raise InputError(
            f"{row.where}: {leaves} leaves need {leaves} ports of each spine, and one has {radix.ports}; use `kind: "
            "fat-tree`, or say how many planes there are, like `spines: 4`."
        )
    return replace(one, spines=spines)


def _fat_tree(
    row: Fields, blank: ScaleOutSpec, domains: Sequence[DomainSpec], _design: ScaleOutSpec | None
) -> ScaleOutSpec:
    """Leaves and spines in pods under cores; sizes not given are those of the largest tree of that radix."""
    radix = _Radix(row, blank)
    width, hosts = _largest_host(domains), _hosts(domains)
    per_leaf = (
        row.count("nodes_per_leaf") if "nodes_per_leaf" in row else _nodes_per_leaf(radix, blank, width)
    )
    uplinks = uplinks_of_leaf(replace(blank, nodes_per_pod=per_leaf), row.where, width)
    spines = row.count("spines") if "spines" in row else uplinks
    over = blank.core_oversubscription
    leaves = (
        row.count("leaves_per_pod")
        if "leaves_per_pod" in row
        else _most_down(radix.ports, over, max(1, uplinks // spines))
    )
    tree = replace(blank, nodes_per_pod=per_leaf * leaves, leaves_per_pod=leaves, spines=spines)
    pods = ceil(hosts / tree.nodes_per_pod)
    if "cores" in row:
        cores = row.count("cores")
        if cores % spines:
            raise InputError(
                f"{row.at('cores')}: {cores} cores do not fill one group for each of {spines} spines."
            )
        return replace(tree, cores=cores // spines if pods > 1 else 0)
    if pods == 1:
        return tree
    core_links = uplinks_of_spine(tree, row.where, width)
    cores_each = _fewest(core_links, lambda each: pods * each <= radix.ports)
    if cores_each is None:
        raise InputError(
            f"{row.where}: {pods} pods need {pods} ports of each core, and one has {radix.ports}; use larger pods "
            "(`leaves_per_pod`) or switches (`radix`)."
        )
    return replace(tree, cores=cores_each)


def _dragonfly(
    row: Fields, blank: ScaleOutSpec, domains: Sequence[DomainSpec], _design: ScaleOutSpec | None
) -> ScaleOutSpec:
    """Groups of routers; sizes not given are balanced: p terminals, 2p routers, p global links (ISCA 2008)."""
    width = _largest_host(domains) * blank.nic_links_per_gpu
    if "nodes_per_router" in row:
        per_router = row.count("nodes_per_router")
    else:
        radix = _Radix(row, blank)
        per_router = (radix.ports + 1) // 4 // width  # ports = p + (2p - 1) + p
        if per_router < 1:
            raise InputError(
                f"{row.where}: a balanced router of {radix.ports} ports takes {(radix.ports + 1) // 4} NIC links, "
                f"and a host has {width}; give `nodes_per_router` or a larger `radix`."
            )
    routers = row.count("routers_per_group") if "routers_per_group" in row else 2 * per_router * width
    return replace(
        blank,
        nodes_per_pod=per_router * routers,
        leaves_per_pod=routers,
        spines=0,
        local_links=row.count("local_links") if "local_links" in row else 1,
    )


_READERS: dict[str, Callable[..., ScaleOutSpec]] = {
    "rail": _rail,
    "leaf-spine": _leaf_spine,
    "fat-tree": _fat_tree,
    "dragonfly": _dragonfly,
}


class _Radix:
    """Ports of a switch: given, or usual for the rate of the NIC; asked for where it is needed and neither."""

    def __init__(self, row: Fields, scale_out: ScaleOutSpec) -> None:
        self._given = row.count("radix") if "radix" in row else None
        self._rate = scale_out.fabric.link_bytes_per_s.value
        self._where = row.where

    @property
    def ports(self) -> int:
        """Ports of one switch at the rate of the NIC."""
        if self._given is not None:
            return self._given
        if self._rate not in _RADIX:
            raise InputError(
                f"{self._where}: needs the key `radix`, the ports of one switch at the rate of the NIC (64 for a "
                "switch of 64 x 400 Gb/s)."
            )
        return _RADIX[self._rate]


def _nodes_per_leaf(radix: _Radix, scale_out: ScaleOutSpec, gpus_per_node: int) -> int:
    """Return the most hosts that leave a leaf whole uplinks."""
    each = gpus_per_node * scale_out.nic_links_per_gpu
    return _most_down(radix.ports, scale_out.oversubscription, each)


def _most_down(ports: int, oversubscription: float, step: int) -> int:
    """Return how many bundles of ``step`` downlinks a switch of ``ports`` takes with whole uplinks above them."""
    for count in range(int(ports * oversubscription / (1 + oversubscription) + 1e-9) // step, 0, -1):
        uplinks = count * step / oversubscription
        if abs(uplinks - round(uplinks)) < 1e-6 * uplinks and round(uplinks) >= 1:
            return count
    raise InputError(
        f"fabric: a switch of {ports} ports has no room for {step} links down and whole links up at oversubscription "
        f"{oversubscription:g}; give a larger `radix`."
    )


def _fewest(links: int, fits: Callable[[int], bool]) -> int | None:
    """Return the fewest switches that ``links`` spread evenly over, with a number each that ``fits``."""
    return next((n for n in range(1, links + 1) if links % n == 0 and fits(links // n)), None)


def _largest_host(domains: Sequence[DomainSpec]) -> int:
    """Return the GPUs of the largest host."""
    return max(domain.gpus_per_node for domain in domains)


def _hosts(domains: Sequence[DomainSpec]) -> int:
    """Return the hosts of all domains."""
    return sum(domain.gpus // domain.gpus_per_node for domain in domains)
