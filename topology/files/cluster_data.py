"""Clusters as plain JSON-able data, both ways: what a plan file keeps of one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from topology.base.schema import Spec, Text, plain, spec, validated
from topology.build import build_cluster, check_cluster, raw_cluster_spec
from topology.cluster import Cluster, ClusterSpec, ClusterView
from topology.spec import Fault, RawTopology


@spec
class _Graph(Spec):
    """A raw graph, whose domains follow from it."""

    name: Text
    raw: RawTopology
    faults: tuple[Fault, ...] = ()


@spec
class _View(Spec):
    """Some GPUs of a cluster."""

    name: Text
    gpus: tuple[Text, ...]


def spec_to_dict(spec: ClusterSpec) -> dict[str, Any]:
    """Return ``spec`` as plain data; of a raw graph without its domains, which follow from it."""
    data: dict[str, Any] = plain(spec)
    return data if spec.raw is None else {key: data[key] for key in ("name", "raw", "faults")}


def spec_from_dict(data: Mapping[str, Any], where: str = "cluster") -> ClusterSpec:
    """Return the specification that :func:`spec_to_dict` wrote.

    Raises
    ------
    InputError
        If a key is missing or unknown, or a value cannot be.
    """
    if data.get("raw") is None:
        return check_cluster(validated(ClusterSpec, data, where), where)
    graph = validated(_Graph, data, where)
    return raw_cluster_spec(graph.name, graph.raw, graph.faults, where)


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
    cluster = build_cluster(spec_from_dict({key: data[key] for key in data if key != "view"}, where))
    if "view" not in data:
        return cluster
    view = validated(_View, data["view"], f"{where}: view")
    return ClusterView(cluster, view.gpus, view.name)
