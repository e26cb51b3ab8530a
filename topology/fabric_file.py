"""The fabric of a cluster file: its NICs, its kind, and the switches that a design of that kind has, both ways.

What the file does not say follows a reference design where there is one; otherwise it is asked for by name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from math import ceil

from topology.catalog import find_scale_out, load_domain, load_scale_out
from topology.errors import InputError
from topology.fabrics import FABRICS, check_scale_out, uplinks_of_leaf, uplinks_of_spine
from topology.fabrics.fabric import PORTS
from topology.figures import Evidence, Figure
from topology.plausible import check_nic
from topology.reading import Fields
from topology.spec import DomainSpec, FabricSpec, ScaleOutSpec
from topology.units import parse_quantity

_REFERENCE = (
    "hgx-h100"  # pods and spines of inline domains follow this design; its latencies say that they stand in
)


def user_figure(
    fields: Fields, key: str, unit: str, *, source: str | None = None, default: Figure | None = None
) -> Figure:
    """Return one figure that the file's owner vouches for, or the default where there is one and the key is not."""
    if default is not None and key not in fields:
        return default
    text = fields.text(key) if isinstance(fields.get(key), str) else fields.need(key)
    return given_figure(text, unit, fields.at(key), source or fields.where)


def given_figure(text: object, unit: str, where: str, source: str | None = None) -> Figure:
    """Return the figure that a user wrote at ``where``, in the file or option ``source`` (else ``where``)."""
    return Figure(parse_quantity(text, unit, where), unit, Evidence.USER, source or where, str(text))


def stand_in_latency(fields: Fields | None = None, *, scale_up: bool) -> Figure:
    """Return the latency of a hop: the file's, or the catalog's stand-in (which says that it is one)."""
    usual = (load_domain(_REFERENCE) if scale_up else load_scale_out(_REFERENCE)).fabric.latency_s
    return usual if fields is None else user_figure(fields, "latency", "s", default=usual)


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
    design = find_scale_out(named[0]) if named else None
    scale_out = _READERS[row.choice("kind", FABRICS)](_Asked(row, domains, design))
    check_nic(row, scale_out, parts)
    row.done()
    return check_scale_out(scale_out, row.where)


class _Asked:
    """What a fabric is asked to be: its row of the file, the hosts it joins, and the design of the first part."""

    def __init__(self, row: Fields, domains: Sequence[DomainSpec], design: ScaleOutSpec | None) -> None:
        self.row = row
        self.where = row.where
        self.design = design
        self.gpus_per_node = max(domain.gpus_per_node for domain in domains)
        self.hosts = sum(domain.nodes for domain in domains)
        kind = row.text("kind")
        nic = user_figure(row, "nic", "byte/s")
        leaves, spines = self._oversubscription(kind)
        self.blank = ScaleOutSpec(  # its switches still to come
            kind=kind,
            fabric=FabricSpec(
                f"{kind} {row.text('nic')}", "scale-out", nic, stand_in_latency(row, scale_up=False)
            ),
            nic_links_per_gpu=row.count("nics_per_gpu", 1),
            nodes_per_pod=1,
            spines=1,
            oversubscription=leaves,
            core_oversubscription=spines,
        )
        self._radix = row.count("radix", 0)

    def _oversubscription(self, kind: str) -> tuple[float, float]:
        """Return the oversubscription of leaves and of spines; one number is that of the leaves."""
        value = self.row.get("oversubscription")
        if not isinstance(value, list):
            return self.row.number("oversubscription", 1.0), 1.0
        tiers = 2 if kind == "fat-tree" else 1
        if len(value) != tiers:
            raise InputError(
                f"{self.row.at('oversubscription')}: {value!r} has {len(value)} entries; {kind} is oversubscribed at "
                f"{tiers} tier{'s' * (tiers > 1)} (fat-tree: leaves, then spines)."
            )
        numbers = self.row.numbers("oversubscription")
        return numbers[0], numbers[1] if tiers == 2 else 1.0

    @property
    def ports(self) -> int:
        """Ports of one switch: given, or usual for the rate of the NIC; asked for where it is needed and neither."""
        rate = self.blank.fabric.link_bytes_per_s.value
        if not self._radix and rate not in PORTS:
            raise InputError(
                f"{self.where}: needs the key `radix`, the ports of one switch at the rate of the NIC (64 for a "
                "switch of 64 x 400 Gb/s)."
            )
        return self._radix or PORTS[rate]

    @cached_property
    def nodes_per_leaf(self) -> int:
        """Hosts on one leaf: given, or the most that leave whole uplinks."""
        if "nodes_per_leaf" in self.row:
            return self.row.count("nodes_per_leaf")
        each = self.gpus_per_node * self.blank.nic_links_per_gpu
        return self.most_down(self.blank.oversubscription, each)

    def most_down(self, oversubscription: float, step: int) -> int:
        """Return how many bundles of ``step`` downlinks a switch takes with whole uplinks above them."""
        for count in range(int(self.ports * oversubscription / (1 + oversubscription) + 1e-9) // step, 0, -1):
            uplinks = count * step / oversubscription
            if abs(uplinks - round(uplinks)) < 1e-6 * uplinks and round(uplinks) >= 1:
                return count
        raise InputError(
            f"fabric: a switch of {self.ports} ports has no room for {step} links down and whole links up at "
            f"oversubscription {oversubscription:g}; give a larger `radix`."
        )

    def fewest(self, links: int, below: int, what: str, above: str, remedy: str) -> int:
        """Return the fewest switches with ports for as many ``links`` from each of ``below``, spread evenly."""
        for count in range(1, links + 1):
            if links % count == 0 and below * (links // count) <= self.ports:
                return count
        raise InputError(
            f"{self.where}: {below} {what} need {below} ports of each {above}, and one has {self.ports}; {remedy}."
        )


def _rail(asked: _Asked) -> ScaleOutSpec:
    """GPU i of every host on leaf i; pods and spines as in the first part's design, if it is one of rails."""
    design = asked.design
    if design is None or design.kind != "rail":
        design = load_scale_out(_REFERENCE)
    rails = replace(asked.blank, nodes_per_pod=asked.row.count("nodes_per_pod", design.nodes_per_pod))
    if "spines" in asked.row:
        return replace(rails, spines=asked.row.count("spines"))
    # fewer uplinks than the design's spines: one to each of as many
    return replace(rails, spines=min(design.spines, uplinks_of_leaf(rails, asked.where)))


def _leaf_spine(asked: _Asked) -> ScaleOutSpec:
    """All GPUs of a host on one leaf; as few spines as have the ports."""
    one = replace(asked.blank, nodes_per_pod=asked.nodes_per_leaf)
    uplinks = uplinks_of_leaf(one, asked.where, asked.gpus_per_node)
    leaves = ceil(asked.hosts / asked.nodes_per_leaf)
    if "spines" in asked.row:
        return replace(one, spines=asked.row.count("spines"))
    remedy = "use `kind: fat-tree`, or say how many planes there are, like `spines: 4`"
    return replace(one, spines=asked.fewest(uplinks, leaves, "leaves", "spine", remedy))


def _fat_tree(asked: _Asked) -> ScaleOutSpec:
    """Leaves and spines in pods under cores; sizes not given are those of the largest tree of that radix."""
    row, per_leaf = asked.row, asked.nodes_per_leaf
    uplinks = uplinks_of_leaf(replace(asked.blank, nodes_per_pod=per_leaf), asked.where, asked.gpus_per_node)
    spines = row.count("spines", uplinks)
    if "leaves_per_pod" in row:
        leaves = row.count("leaves_per_pod")
    else:
        leaves = asked.most_down(asked.blank.core_oversubscription, max(1, uplinks // spines))
    tree = replace(asked.blank, nodes_per_pod=per_leaf * leaves, leaves_per_pod=leaves, spines=spines)
    pods = ceil(asked.hosts / tree.nodes_per_pod)
    if "cores" in row:
        cores = row.count("cores")
        if cores % spines:
            row.fail("cores", f"{cores} cores do not fill one group for each of {spines} spines.")
        return replace(tree, cores=cores // spines if pods > 1 else 0)
    if pods == 1:
        return tree
    links = uplinks_of_spine(tree, asked.where, asked.gpus_per_node)
    remedy = "use larger pods (`leaves_per_pod`) or switches (`radix`)"
    return replace(tree, cores=asked.fewest(links, pods, "pods", "core", remedy))


def _dragonfly(asked: _Asked) -> ScaleOutSpec:
    """Groups of routers; sizes not given are balanced: p terminals, 2p routers, p global links (ISCA 2008)."""
    row, width = asked.row, asked.gpus_per_node * asked.blank.nic_links_per_gpu
    if "nodes_per_router" in row:
        per_router = row.count("nodes_per_router")
    else:
        per_router = (asked.ports + 1) // 4 // width  # ports = p + (2p - 1) + p
        if per_router < 1:
            raise InputError(
                f"{asked.where}: a balanced router of {asked.ports} ports takes {(asked.ports + 1) // 4} NIC links, "
                f"and a host has {width}; give `nodes_per_router` or a larger `radix`."
            )
    routers = row.count("routers_per_group", 2 * per_router * width)
    return replace(
        asked.blank,
        nodes_per_pod=per_router * routers,
        leaves_per_pod=routers,
        spines=0,
        local_links=row.count("local_links", 1),
    )


_READERS: dict[str, Callable[[_Asked], ScaleOutSpec]] = {
    "rail": _rail,
    "leaf-spine": _leaf_spine,
    "fat-tree": _fat_tree,
    "dragonfly": _dragonfly,
}


def switch_keys(out: ScaleOutSpec) -> dict[str, object]:
    """Return how the switches of a fabric are cabled, in the keys that :func:`read_fabric` reads.

    Raises
    ------
    InputError
        If its kind is not one that a file can say.
    """
    row: dict[str, object] = {"oversubscription": out.oversubscription}
    if out.kind == "rail":
        return row | {"nodes_per_pod": out.nodes_per_pod, "spines": out.spines}
    if out.kind == "leaf-spine":
        return row | {"nodes_per_leaf": out.nodes_per_leaf, "spines": out.spines}
    if out.kind == "fat-tree":
        row["oversubscription"] = [out.oversubscription, out.core_oversubscription]
        row |= {"nodes_per_leaf": out.nodes_per_leaf, "leaves_per_pod": out.leaves_per_pod}
        return row | {"spines": out.spines} | ({"cores": out.cores * out.spines} if out.cores else {})
    if out.kind == "dragonfly":
        row |= {"nodes_per_router": out.nodes_per_leaf, "routers_per_group": out.leaves_per_pod}
        return row | {"local_links": out.local_links}
    raise InputError(f"a fabric of the kind {out.kind} cannot be written as a cluster YAML.")
