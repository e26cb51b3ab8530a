"""A raw graph as plain JSON-able data: GPU types and fabrics once, nodes and links by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from topology.errors import InputError
from topology.reading import Fields
from topology.spec import FabricSpec, GpuSpec, RawLink, RawNode, RawTopology
from topology.spec_parts import fabric_to_dict, gpu_to_dict, read_fabric_dict, read_gpu_dict

_T = TypeVar("_T")
_PLACES = ("domain", "node", "rack")


def raw_to_dict(raw: RawTopology) -> dict[str, Any]:
    """Return a raw graph as plain data."""
    gpus: dict[int, GpuSpec] = {id(node.gpu): node.gpu for node in raw.nodes if node.gpu is not None}
    kinds = _unlike(list(gpus.values()))
    fabrics = _unlike([link.fabric for link in raw.links])
    return {
        "gpus": [gpu_to_dict(gpu) for gpu in kinds],
        "fabrics": [fabric_to_dict(fabric) for fabric in fabrics],
        "nodes": [_node_to_dict(node, kinds) for node in raw.nodes],
        "links": [
            {"between": list(link.between), "fabric": fabrics.index(link.fabric), "count": link.count}
            for link in raw.links
        ],
    }


def read_raw_dict(fields: Fields) -> RawTopology:
    """Return the raw graph that :func:`raw_to_dict` wrote.

    Raises
    ------
    InputError
        If a key is missing or unknown, or a value cannot be.
    """
    gpus = [read_gpu_dict(row) for row in fields.subs("gpus")]
    fabrics = [read_fabric_dict(row) for row in fields.subs("fabrics")] if fields.get("fabrics") else []
    nodes = tuple(_node(row, gpus) for row in fields.subs("nodes"))
    rows = fields.subs("links") if fields.get("links") else []
    raw = RawTopology(nodes, tuple(_link(row, fabrics) for row in rows))
    fields.done()
    return raw


def _unlike(values: Sequence[_T]) -> list[_T]:
    """Return the values that differ, in order (a GPU holds a mapping, so it cannot be hashed)."""
    found: list[_T] = []
    for value in values:
        if value not in found:
            found.append(value)
    return found


def _node_to_dict(node: RawNode, gpus: list[GpuSpec]) -> dict[str, Any]:
    """Return one node as plain data, without what it does not say."""
    data: dict[str, Any] = {"id": node.id, "kind": node.kind}
    data.update({key: getattr(node, key) for key in (*_PLACES, "rail") if getattr(node, key) is not None})
    if node.gpu is not None:
        data["gpu"] = gpus.index(node.gpu)
    return data


def _node(fields: Fields, gpus: list[GpuSpec]) -> RawNode:
    """Read one node."""
    places = {key: fields.text(key) if key in fields else None for key in _PLACES}
    node = RawNode(
        id=fields.text("id"),
        kind=fields.text("kind"),
        rail=fields.count("rail", least=0) if "rail" in fields else None,
        gpu=gpus[fields.count("gpu", least=0, most=len(gpus) - 1)] if "gpu" in fields else None,
        **places,
    )
    fields.done()
    return node


def _link(fields: Fields, fabrics: list[FabricSpec]) -> RawLink:
    """Read one link."""
    ends = fields.texts("between")
    if len(ends) != 2:
        raise InputError(f"{fields.at('between')}: must be the ids of its two ends.")
    fabric = fabrics[fields.count("fabric", least=0, most=len(fabrics) - 1)]
    link = RawLink((ends[0], ends[1]), fabric, fields.count("count"))
    fields.done()
    return link
