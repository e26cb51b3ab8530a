"""Specifications as plain JSON-able data, both ways by the one schema: the dataclasses of :mod:`topology.spec`.

Reading is strict and names the place; what comes in is checked as what a builder would be given.
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from itertools import groupby
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from topology.base.errors import InputError
from topology.base.figures import UNPUBLISHED, Evidence, Figure
from topology.base.reading import Fields, shown
from topology.build import build_cluster, check_cluster, raw_cluster_spec
from topology.cluster import Cluster, ClusterView
from topology.fabrics import check_scale_out
from topology.spec import ClusterSpec, DomainSpec, FabricSpec, Fault, GpuSpec, RawTopology, ScaleOutSpec
from topology.structures import check_domain

_T = TypeVar("_T")
_UNITS = ("byte", "byte/s", "flop/s", "s", "W", "1", "USD/h", "kg", "m")
Tables = Mapping[str, list[Any]]
"""Values that many parts of a raw graph share, written once: GPU types and fabrics."""


def spec_to_dict(spec: ClusterSpec) -> dict[str, Any]:
    """Return ``spec`` as plain data; equal domains in a row are written once, with their count."""
    data: dict[str, Any] = plain(spec)
    return data


def spec_from_dict(data: Mapping[str, Any], where: str = "cluster") -> ClusterSpec:
    """Return the specification that :func:`spec_to_dict` wrote.

    Raises
    ------
    InputError
        If a key is missing or unknown, or a value cannot be.
    """
    given = Fields(data, where)
    if given.get("raw") is not None:
        for key in ("domains", "scale_out"):  # they follow from the graph
            given.get(key)
        faults = tuple(_entry(Fault, row, None) for row in given.subs("faults", empty=True))
        spec = raw_cluster_spec(given.text("name"), _read_raw(given.sub("raw")), faults, where)
        given.done()
        return spec
    return check_cluster(read(ClusterSpec, given), where)


def cluster_to_dict(cluster: Cluster) -> dict[str, Any]:
    """Return a cluster as plain data: its specification, of a view with its name and GPUs."""
    data = spec_to_dict(cluster.spec)
    if isinstance(cluster, ClusterView):
        data["view"] = {"name": cluster.name, "gpus": list(cluster.ids)}
    return data


def cluster_from_dict(data: Mapping[str, Any], where: str = "cluster") -> Cluster:
    """Return the cluster that :func:`cluster_to_dict` wrote.

    Raises
    ------
    InputError
        If a key is missing or unknown, or a value cannot be.
    """
    whole = build_cluster(spec_from_dict({key: data[key] for key in data if key != "view"}, where))
    if "view" not in data:
        return whole
    view = Fields(data, where).sub("view")
    found = ClusterView(whole, view.texts("gpus"), view.text("name"))
    view.done()
    return found


def plain(value: Any, tables: Tables | None = None) -> Any:
    """Return a specification, or a part of one, as plain data; fields of another structure are left out."""
    if isinstance(value, RawTopology):
        tables = {"gpus": [], "fabrics": []}
        graph = _plain_fields(value, tables)
        return {**{name: [plain(one) for one in table] for name, table in tables.items()}, **graph}
    if is_dataclass(value):
        return _plain_fields(value, tables)
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [plain(item, tables) for item in value]
    if isinstance(value, Evidence):
        return value.label
    return None if isinstance(value, float) and math.isnan(value) else value


def _plain_fields(value: Any, tables: Tables | None) -> dict[str, Any]:
    """Return the fields of a dataclass by name."""
    data: dict[str, Any] = {}
    for field, _, owner in _schema(type(value)):
        rule, item = field.metadata, getattr(value, field.name)
        foreign = owner and getattr(value, owner) not in rule[owner]
        if foreign or (rule.get("brief") and item == field.default):
            continue
        if "table" in rule and tables is not None:
            table = tables[rule["table"]]
            if item not in table:
                table.append(item)
            data[field.name] = table.index(item)
        elif rule.get("repeated"):
            runs = [list(run) for _, run in groupby(item)]
            data[field.name] = [{"count": len(run), **plain(run[0])} for run in runs]
        else:
            data[field.name] = plain(item, tables)
    return data


_SCHEMAS: dict[Any, list[tuple[Field[Any], Any, str]]] = {}


def _schema(kind: Any) -> list[tuple[Field[Any], Any, str]]:
    """Return each field of a dataclass that files have, its type, and the field that says whether it is there."""
    if kind not in _SCHEMAS:
        hints = get_type_hints(kind)
        _SCHEMAS[kind] = [
            (
                field,
                hints[field.name],
                next((key for key in ("structure", "kind") if key in field.metadata), ""),
            )
            for field in fields(kind)
            if not field.metadata.get("inside")
        ]
    return _SCHEMAS[kind]


def read(kind: type[_T], given: Fields, tables: Tables | None = None, **known: Any) -> _T:
    """Return a dataclass, such as those of :mod:`topology.spec`, from the keys of ``given``; no other may be there.

    Parameters
    ----------
    kind:
        The class.
    given:
        The mapping to read.
    tables:
        What the numbers of shared values stand for.
    known:
        Fields that are not read.

    Raises
    ------
    InputError
        If a key is missing or unknown, or a value is of the wrong type or cannot be.
    """
    values = dict(known)
    for field, hint, owner in _schema(kind):
        rule, name = field.metadata, field.name
        if name in values or (owner and values[owner] not in rule[owner]):
            continue
        needed = field.default is MISSING or (owner and not rule.get("brief"))
        if needed or name in given:
            values[name] = _value(hint, given, name, rule, tables)
    given.done()
    found = kind(**values)
    for sort, check in _CHECKS.items():
        if isinstance(found, sort):
            check(found, given)
    return found


def _value(hint: Any, given: Fields, key: str, rule: Mapping[str, Any], tables: Tables | None) -> Any:
    """Return the value of one field by its type."""
    if isinstance(hint, types.UnionType):
        if given.get(key) is None:
            return None
        hint = next(part for part in get_args(hint) if part is not types.NoneType)
    if "table" in rule and tables is not None:
        table = tables[rule["table"]]
        return table[given.count(key, least=0, most=len(table) - 1)]
    if hint in (int, float):
        limits = {name: rule[name] for name in ("least", "most") if name in rule}
        return given.count(key, **limits) if hint is int else given.number(key, **limits)
    if hint in _READERS:
        return _READERS[hint](given, key)
    if get_origin(hint) is tuple:
        found: list[Any] = []
        for row in given.subs(key, empty=not rule.get("repeated")):
            count = row.count("count") if rule.get("repeated") else 1
            found += [_entry(get_args(hint)[0], row, tables)] * count
        return tuple(found)
    return _entry(hint, given.sub(key), tables)


def _entry(hint: Any, given: Fields, tables: Tables | None) -> Any:
    """Return what a whole mapping says."""
    if get_origin(hint) is Mapping:
        return {name: _entry(get_args(hint)[1], given.sub(name), tables) for name in given.names()}
    if hint not in _PARTS:
        return read(hint, given, tables)
    found = _PARTS[hint](given)
    given.done()
    return found


def _read_figure(given: Fields) -> Figure:
    unit = given.choice("unit", _UNITS)
    value = UNPUBLISHED if given.get("value", 0) is None else given.number("value")
    text = given.get("text", "")
    if not isinstance(text, str):
        given.fail("text", f"{shown(text)} must be a text.")
    return Figure(value, unit, given.evidence(), given.text("source"), text)


def read_fault(given: Fields) -> Fault:
    """Return a GPU or a link that is down (no factor, or 0), runs at a part of its rates or ends elsewhere.

    Raises
    ------
    InputError
        If neither or both are named, the factor is not from 0 to 1, or a GPU is cabled elsewhere.
    """
    if ("gpu" in given) == ("link" in given):
        raise InputError(
            f"{given.where}: needs one of `gpu: ID`, `node: ID`, `link: [A, B]`, `nic: ID`, `switch: ID`, "
            "`leaf: ID`, `spine: ID` and `plane: N`."
        )
    gpu = given.text("gpu") if "gpu" in given else None
    link = None if gpu is not None else given.pair("link", "like [d0.n0.g1, d0.s3]")
    if link is not None and link[0] == link[1]:
        given.fail("link", "must have two ends that differ.")
    if "cabled_to" not in given:
        return Fault(gpu, link, read_factor(given))
    if link is None or given.get("factor", 1) != 1:
        given.fail("cabled_to", "is for a whole link; one that is slow too needs an entry with its new ends.")
    return Fault(gpu, link, 1.0, given.text("cabled_to"))


def read_factor(given: Fields) -> float:
    """Return the part of its rate that something broken has left; 0 where nothing is said."""
    factor = given.get("factor", 0)
    if isinstance(factor, bool) or factor != 0:
        factor = given.number("factor")
    if factor > 1:
        given.fail(
            "factor",
            f"{factor:g} must be above 0 and at most 1, the part of its rate that is left "
            "(leave it out for what is down).",
        )
    return float(factor)


def _read_raw(given: Fields) -> RawTopology:
    kinds = {"gpus": GpuSpec, "fabrics": FabricSpec}
    tables = {
        key: [_entry(kind, row, None) for row in given.subs(key, empty=True)] for key, kind in kinds.items()
    }
    return read(RawTopology, given, tables)


def _check_domain(domain: DomainSpec, given: Fields) -> None:
    if domain.structure == "raw":
        given.fail("structure", "a raw domain needs the graph that it is in, under `raw`.")
    check_domain(domain, given.where)


def _check_scale_out(scale_out: ScaleOutSpec, given: Fields) -> None:
    if scale_out.kind == "raw":
        given.fail("kind", "a raw fabric needs the graph that it is in, under `raw`.")
    check_scale_out(scale_out, given.where)


_READERS: Mapping[Any, Callable[[Fields, str], Any]] = {
    str: Fields.text,
    bool: Fields.flag,
    tuple[str, ...]: Fields.texts,
    tuple[bool, ...]: Fields.flags,
    tuple[int, ...]: lambda given, key: () if given.need(key) == [] else given.counts(key),
    tuple[str, str]: Fields.pair,
    tuple[float, ...]: Fields.numbers,
    tuple[float, float]: lambda given, key: given.numbers(key, 2),
}
_PARTS: Mapping[type, Callable[[Fields], Any]] = {Figure: _read_figure, Fault: read_fault}
_CHECKS: Mapping[type, Callable[[Any, Fields], None]] = {
    DomainSpec: _check_domain,
    ScaleOutSpec: _check_scale_out,
}
