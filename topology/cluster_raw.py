"""Nodes and links of a cluster file, written out one by one."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from topology.catalog import fabric_names, load_fabric
from topology.cluster_domains import stand_in_latency
from topology.cluster_gpus import user_figure
from topology.errors import InputError
from topology.plausible import check_raw_links
from topology.raw import check_raw
from topology.reading import Fields, nearest
from topology.spec import FabricSpec, GpuSpec, RawLink, RawNode, RawTopology
from topology.units import format_quantity

_SCALE_UP = ({"gpu"}, {"gpu", "switch"}, {"switch"})


def read_raw(fields: Fields, gpus: Callable[[str, str], GpuSpec]) -> RawTopology:
    """Return the nodes and links of a file; what they must satisfy is checked in :mod:`topology.raw`.

    Raises
    ------
    InputError
        If a key is missing, unknown or of the wrong type, or a rate cannot be.
    """
    nodes = tuple(_node(row, gpus) for row in fields.subs("nodes"))
    kinds = {node.id: node.kind for node in nodes}
    rows = fields.subs("links") if fields.get("links", []) != [] else []
    raw = RawTopology(nodes, tuple(_link(row, kinds) for row in rows))
    check_raw(raw, fields.where)
    if not fields.flag("rate_checked"):
        check_raw_links(raw, fields.where)
    return raw


def _node(row: Fields, gpus: Callable[[str, str], GpuSpec]) -> RawNode:
    """Return one node."""
    names = {key: row.text(key) if key in row else None for key in ("domain", "node", "rack")}
    node = RawNode(
        id=row.text("id"),
        kind=row.text("kind"),
        rail=row.count("rail", least=0) if "rail" in row else None,
        gpu=gpus(row.text("gpu"), row.where) if "gpu" in row else None,
        **names,
    )
    row.done()
    return node


def _link(row: Fields, kinds: Mapping[str, str]) -> RawLink:
    """Return one link: of a fabric of the catalog, or with a rate of its own."""
    ends = row.texts("between")
    if len(ends) != 2:
        raise InputError(f"{row.at('between')}: must be the ids of its two ends, like [g0, s0].")
    named = row.text("fabric") if "fabric" in row else None
    known = load_fabric(named) if named in fabric_names() else None
    if "rate" not in row and known is None:
        unknown = f" (the catalog has no fabric {named!r}; {nearest(named, fabric_names())})" if named else ""
        raise InputError(
            f"{row.where}: link {list(ends)}: needs its `rate` per direction, like 50 GB/s, or the `fabric` of a "
            f"catalog entry{unknown}."
        )
    if known is not None:
        rate = user_figure(row, "rate", "byte/s", row.where) if "rate" in row else known.link_bytes_per_s
        latency = user_figure(row, "latency", "s", row.where) if "latency" in row else known.latency_s
        fabric = FabricSpec(known.name, known.kind, rate, latency)
    else:
        rate = user_figure(row, "rate", "byte/s", row.where)
        scale_up = {kinds.get(end) for end in ends} in _SCALE_UP
        name = named or f"{'scale-up' if scale_up else 'link'} {format_quantity(rate.value, 'byte/s')}"
        fabric = FabricSpec(name, "link", rate, stand_in_latency(row, scale_up=scale_up))
    count = row.count("count") if "count" in row else 1
    row.done()
    return RawLink((ends[0], ends[1]), fabric, count)
