"""The machine: specifications, catalog, graphs and drawings.

Names are loaded on first use, so that importing this package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from topology.base.errors import (
        InfeasibleError,
        InputError,
        MissingFigureError,
        NoAnswerError,
        RackplanError,
    )
    from topology.base.figures import UNPUBLISHED, Evidence, Figure, weakest
    from topology.base.units import format_quantity, parse_quantity
    from topology.build import build_cluster, raw_cluster_spec
    from topology.catalog import (
        cluster_names,
        fabric_names,
        find_scale_out,
        gpu_names,
        load_domain,
        load_fabric,
        load_gpu,
        load_scale_out,
    )
    from topology.cluster import Cluster, ClusterSpec, ClusterView, Gpu
    from topology.draw import Overlay, draw_cluster
    from topology.fabrics.fabric import ScaleOutSpec
    from topology.files.cluster_data import cluster_from_dict, cluster_to_dict, spec_from_dict, spec_to_dict
    from topology.files.resolve import resolve_cluster
    from topology.spec import FabricSpec, Fault, GpuSpec, RawLink, RawNode, RawTopology
    from topology.structures.domain import DomainSpec

__all__ = [
    "UNPUBLISHED",
    "Cluster",
    "ClusterSpec",
    "ClusterView",
    "DomainSpec",
    "Evidence",
    "FabricSpec",
    "Fault",
    "Figure",
    "Gpu",
    "GpuSpec",
    "InfeasibleError",
    "InputError",
    "MissingFigureError",
    "NoAnswerError",
    "Overlay",
    "RackplanError",
    "RawLink",
    "RawNode",
    "RawTopology",
    "ScaleOutSpec",
    "build_cluster",
    "cluster_from_dict",
    "cluster_names",
    "cluster_to_dict",
    "draw_cluster",
    "fabric_names",
    "find_scale_out",
    "format_quantity",
    "gpu_names",
    "load_domain",
    "load_fabric",
    "load_gpu",
    "load_scale_out",
    "parse_quantity",
    "raw_cluster_spec",
    "resolve_cluster",
    "spec_from_dict",
    "spec_to_dict",
    "weakest",
]

_MODULES = {
    "build": "build_cluster raw_cluster_spec",
    "catalog": "cluster_names fabric_names find_scale_out gpu_names load_domain load_fabric load_gpu load_scale_out",
    "cluster": "Cluster ClusterSpec ClusterView Gpu",
    "files.cluster_data": "cluster_from_dict cluster_to_dict spec_from_dict spec_to_dict",
    "draw": "Overlay draw_cluster",
    "base.errors": "InfeasibleError InputError MissingFigureError NoAnswerError RackplanError",
    "base.figures": "UNPUBLISHED Evidence Figure weakest",
    "files.resolve": "resolve_cluster",
    "fabrics.fabric": "ScaleOutSpec",
    "spec": "FabricSpec Fault GpuSpec RawLink RawNode RawTopology",
    "structures.domain": "DomainSpec",
    "base.units": "format_quantity parse_quantity",
}
_HOME = {name: module for module, names in _MODULES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    """Load a public name from the module it lives in."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
