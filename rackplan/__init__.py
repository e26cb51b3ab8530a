"""Placement plans for large models on real clusters, with a proven gap and predicted step time and cost.

>>> import rackplan
>>> plan = rackplan.plan("deepseek-v3", "gb200-nvl72", phase="decode", time_limit_s=0)
>>> plan.layout.gpus_used, plan.layout.tp
(72, 1)
>>> rackplan.make_cluster("hgx-h100@16")
<Cluster hgx-h100@16: 16 GPUs in 2 domains>
"""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from topology.base.shown import Shown

if TYPE_CHECKING:
    from cost.config.build import model_from_config as model_from_config
    from cost.experts.assignment import Assignment as Assignment
    from cost.experts.loads import ExpertLoads as ExpertLoads
    from cost.experts.loads import read_loads as read_loads
    from cost.inputs.deployment import Deployment as Deployment
    from cost.inputs.workload import Workload as Workload
    from cost.layouts import Sweep as Sweep
    from cost.model import Model as Model
    from cost.money.prices import PriceBook as PriceBook
    from cost.principles.economics import Economics as Economics
    from cost.principles.roofline import Rooflines as Rooflines
    from cost.queueing.result import Simulated as Simulated
    from cost.resolve import model_names as model_names
    from cost.resolve import resolve_model as resolve_model
    from cost.serving.result import Pools as Pools
    from cost.serving.sizes import Sizes as Sizes
    from cost.serving.sizing import Size as Size
    from cost.step.score import Score as Score
    from cost.validation.validation import Validation as Validation
    from placement.analysis.compare import compare_clusters as compare_clusters
    from placement.analysis.comparison import Comparison as Comparison
    from placement.analysis.levers import Levers as Levers
    from placement.analysis.levers import find_levers as find_levers
    from placement.budget import CancelledError as CancelledError
    from placement.engines.export import Exported as Exported
    from placement.migrate.replan import Replanned as Replanned
    from placement.online.replayed import Replayed as Replayed
    from placement.options import PlanOptions as PlanOptions
    from placement.plan import Plan as Plan
    from placement.planner import make_plan as make_plan
    from placement.plans.reading import read_plan as read_plan
    from placement.plans.writing import plan_to_dict as plan_to_dict
    from placement.progress import Progress as Progress
    from placement.scoring import score_placement as score_placement
    from placement.verify import verify_plan as verify_plan
    from rackplan.library import compare as compare
    from rackplan.library import draw as draw
    from rackplan.library import economics as economics
    from rackplan.library import export as export
    from rackplan.library import make_cluster as make_cluster
    from rackplan.library import make_deployment as make_deployment
    from rackplan.library import make_loads as make_loads
    from rackplan.library import plan as plan
    from rackplan.library import replan as replan
    from rackplan.library import replay as replay
    from rackplan.library import roofline as roofline
    from rackplan.library import score as score
    from rackplan.library import simulate as simulate
    from rackplan.library import size as size
    from rackplan.library import study as study
    from rackplan.library import sweep as sweep
    from rackplan.library import validate as validate
    from rackplan.library import what_if as what_if
    from rackplan.library import write_report as write_report
    from rackplan.studies.run import StudyResult as StudyResult
    from topology import Cluster as Cluster
    from topology import InfeasibleError as InfeasibleError
    from topology import InputError as InputError
    from topology import RackplanError as RackplanError
    from topology import cluster_names as cluster_names
    from topology import resolve_cluster as resolve_cluster
    from topology.changes.overrides import overrides as overrides
    from topology.draw import draw_cluster as draw_cluster

__version__ = "0.1.0"

_PUBLIC = re.compile(r"^    from (\S+) import (\w+) as \2$", re.MULTILINE)
_HOME = {name: home for home, name in _PUBLIC.findall(Path(__file__).read_text(encoding="utf-8"))}
"""The module of each public name: those that type checkers import above."""
Shown.renderer = "rackplan.report.results"
__all__ = sorted([*_HOME, "__version__"])  # noqa: PLE0605 - of one table


def __getattr__(name: str) -> object:
    """Load a public name from the module it lives in, on first use."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    """List the public names alone, those not loaded yet with them."""
    return __all__
