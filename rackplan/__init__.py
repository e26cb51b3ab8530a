"""Placement plans for large models on real clusters: what goes where, how good that is, what a step costs.

>>> import rackplan
>>> cluster = rackplan.resolve_cluster("hgx-h100@16")
>>> len(cluster.gpus)
16
"""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cost.assignment import Assignment
    from cost.deployment import Deployment
    from cost.loads import ExpertLoads, read_loads
    from cost.model import Model
    from cost.resolve import model_from_config, model_names, resolve_model
    from cost.score import Score
    from cost.workload import Workload
    from placement.compare import compare_clusters
    from placement.options import PlanOptions
    from placement.plan import Plan
    from placement.plan_file import plan_to_dict, read_plan
    from placement.planner import make_plan
    from placement.scoring import score_placement
    from placement.verify import verify_plan
    from topology import Cluster, InfeasibleError, InputError, RackplanError, cluster_names, resolve_cluster
    from topology.draw import draw_cluster

__all__ = [
    "Assignment",
    "Cluster",
    "Deployment",
    "ExpertLoads",
    "InfeasibleError",
    "InputError",
    "Model",
    "Plan",
    "PlanOptions",
    "RackplanError",
    "Score",
    "Workload",
    "__version__",
    "cluster_names",
    "compare_clusters",
    "draw_cluster",
    "make_plan",
    "model_from_config",
    "model_names",
    "plan_to_dict",
    "read_loads",
    "read_plan",
    "resolve_cluster",
    "resolve_model",
    "score_placement",
    "verify_plan",
]

__version__ = "0.1.0"

_HOMES = {
    "cost.assignment": ("Assignment",),
    "cost.loads": ("ExpertLoads", "read_loads"),
    "cost.model": ("Model",),
    "cost.resolve": ("model_from_config", "model_names", "resolve_model"),
    "cost.score": ("Score",),
    "cost.deployment": ("Deployment",),
    "cost.workload": ("Workload",),
    "placement.compare": ("compare_clusters",),
    "placement.options": ("PlanOptions",),
    "placement.plan": ("Plan",),
    "placement.plan_file": ("plan_to_dict", "read_plan"),
    "placement.planner": ("make_plan",),
    "placement.scoring": ("score_placement",),
    "placement.verify": ("verify_plan",),
    "topology": (
        "Cluster",
        "InfeasibleError",
        "InputError",
        "RackplanError",
        "cluster_names",
        "resolve_cluster",
    ),
    "topology.draw": ("draw_cluster",),
}
_RENAMED = {"Setting": "Deployment"}
"""Names of version 0.1; they go with the version after next."""
_HOME = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    """Load a public name from the module it lives in, on first use."""
    if name in _RENAMED:
        warnings.warn(f"rackplan.{name} is now rackplan.{_RENAMED[name]}.", DeprecationWarning, stacklevel=2)
        name = _RENAMED[name]
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    """List the public names too, those not loaded yet with them."""
    return sorted({*globals(), *__all__})
