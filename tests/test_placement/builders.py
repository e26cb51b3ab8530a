"""What tests of placement build again and again: loads of a model, clusters that differ, a plan through its file."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cost.experts.loads import ExpertLoads, read_loads
from cost.experts.traces.counts import Wanted
from cost.inputs.deployment import Deployment
from cost.inputs.workload import Workload
from cost.model import Model
from cost.resolve import resolve_model
from helpers import few_layers
from placement.options import PlanOptions
from placement.plan import Plan
from placement.planner import make_plan
from placement.plans.reading import plan_of_text
from placement.plans.writing import plan_to_dict, plan_to_json
from topology import Cluster, build_cluster, resolve_cluster
from topology.spec import Fault


def loads_for(model: Model, *texts: str, seed: int = 0) -> ExpertLoads | None:
    """Loads of the experts of a model, uniform unless told otherwise; None where it has no experts."""
    if model.moe is None:
        return None
    wanted = Wanted(tuple(model.moe_layers), len(model.layers), model.moe.experts)
    return read_loads(list(texts) or ["uniform"], wanted, seed=seed)


def deployed(model: str, cluster: str | Cluster, layers: int = 0, **workload: Any) -> Deployment:
    """A model of the catalog, cut to its first ``layers`` unless 0, on a cluster or one of the catalog."""
    cut = few_layers(model, layers) if layers else resolve_model(model)
    where = resolve_cluster(cluster) if isinstance(cluster, str) else cluster
    return Deployment(where, cut, Workload(**workload))


def quick(deployment: Deployment, loads: str | ExpertLoads = "uniform", **asked: Any) -> Plan:
    """The first plan that a search finds."""
    known = loads_for(deployment.model, loads) if isinstance(loads, str) else loads
    return make_plan(deployment, known, PlanOptions(**{"time_limit_s": 0.0, **asked}))


def joined(*names: str, broken: tuple[str, ...] = ()) -> Cluster:
    """The domains of several clusters side by side on the fabric of the first, without the GPUs that are broken."""
    specs = [resolve_cluster(name).spec for name in names]
    domains = tuple(domain for spec in specs for domain in spec.domains)
    faults = tuple(Fault(gpu=gpu) for gpu in broken)
    return build_cluster(replace(specs[0], name="joined", domains=domains, faults=faults))


def reread(plan: Plan) -> Plan:
    """The plan as it comes back from its own file."""
    return plan_of_text(plan_to_json(plan_to_dict(plan)), "plan.json")
