"""The machine: specifications, catalog, graphs and drawings.

Names are loaded on first use, so that importing this package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from topology.base.errors import InfeasibleError as InfeasibleError
    from topology.base.errors import InputError as InputError
    from topology.base.errors import MissingFigureError as MissingFigureError
    from topology.base.errors import NoAnswerError as NoAnswerError
    from topology.base.errors import RackplanError as RackplanError
    from topology.base.figures import UNPUBLISHED as UNPUBLISHED
    from topology.base.figures import Evidence as Evidence
    from topology.base.figures import Figure as Figure
    from topology.base.figures import weakest as weakest
    from topology.base.units import format_quantity as format_quantity
    from topology.base.units import parse_quantity as parse_quantity
    from topology.build import build_cluster as build_cluster
    from topology.build import raw_cluster_spec as raw_cluster_spec
    from topology.catalog import cluster_names as cluster_names
    from topology.catalog import fabric_names as fabric_names
    from topology.catalog import find_scale_out as find_scale_out
    from topology.catalog import gpu_names as gpu_names
    from topology.catalog import load_domain as load_domain
    from topology.catalog import load_fabric as load_fabric
    from topology.catalog import load_gpu as load_gpu
    from topology.catalog import load_scale_out as load_scale_out
    from topology.cluster import Cluster as Cluster
    from topology.cluster import ClusterSpec as ClusterSpec
    from topology.cluster import ClusterView as ClusterView
    from topology.cluster import Gpu as Gpu
    from topology.draw import Overlay as Overlay
    from topology.draw import draw_cluster as draw_cluster
    from topology.fabrics.fabric import ScaleOutSpec as ScaleOutSpec
    from topology.files.cluster_data import cluster_from_dict as cluster_from_dict
    from topology.files.cluster_data import cluster_to_dict as cluster_to_dict
    from topology.files.cluster_data import spec_from_dict as spec_from_dict
    from topology.files.cluster_data import spec_to_dict as spec_to_dict
    from topology.files.resolve import resolve_cluster as resolve_cluster
    from topology.spec import FabricSpec as FabricSpec
    from topology.spec import Fault as Fault
    from topology.spec import GpuSpec as GpuSpec
    from topology.spec import RawLink as RawLink
    from topology.spec import RawNode as RawNode
    from topology.spec import RawTopology as RawTopology
    from topology.structures.domain import DomainSpec as DomainSpec

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
__all__ = sorted(_HOME)  # noqa: PLE0605 - of one table


def __getattr__(name: str) -> object:
    """Load a public name from the module it lives in."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
