"""What operators deploy: stages and replicas that fill nodes, widths that engines take, and what there is instead."""

from dataclasses import replace

import numpy as np
import pytest

from cost.experts.loads import ExpertLoads, read_loads
from cost.inputs.deployment import NONE_DEPLOYABLE, Deployment
from cost.inputs.workload import Workload
from cost.layouts import Sweep, best_at, sweep
from cost.layouts.candidates import candidates
from cost.layouts.deployable import deployable_stage, is_power_of_two
from cost.resolve import resolve_model
from placement.fleet.shapes import domain_classes, shapes_of
from placement.options import PlanOptions
from placement.planner import make_plan
from placement.plans.reading import plan_of_text
from placement.plans.writing import plan_to_dict, plan_to_json
from topology import Cluster, build_cluster, resolve_cluster
from topology.spec import Fault


def broken(cluster: str, gpu: str) -> Cluster:
    """A cluster without a GPU."""
    return build_cluster(replace(resolve_cluster(cluster).spec, faults=(Fault(gpu=gpu),)))


def uniform(deployment: Deployment) -> ExpertLoads:
    """Experts that are all used equally often."""
    model = deployment.model
    assert model.moe is not None
    size = {"layers": len(model.layers), "experts": model.moe.experts, "seed": 0}
    return read_loads(["uniform"], moe_layers=model.moe_layers, **size)


def swept(model: str, cluster: str, *, any_shape: bool = False, context: int = 4096) -> Sweep:
    where = resolve_cluster(cluster)
    return sweep(Deployment(where, resolve_model(model), Workload(context=context), any_shape=any_shape))


@pytest.mark.parametrize(
    ("node", "domain", "sizes"),
    [
        (8, 8, [1, 2, 4, 8, 16, 24]),
        (4, 72, [1, 2, 4, 8, 12, 16, 24, 32, 36, 48, 64, 72]),
        (16, 768, [1, 2, 4, 8, 16, 32, 48, 64, 96]),
        (6, 6, [1, 2, 4, 6, 12, 18, 24]),
    ],
)
def test_a_stage_fills_nodes_evenly(node: int, domain: int, sizes: list[int]) -> None:
    able = [size for size in range(1, sizes[-1] + 1) if deployable_stage(size, node=node, domain=domain)]
    assert able == sizes


@pytest.mark.parametrize(
    ("model", "cluster"),
    [("deepseek-v3", "hgx-h200@32"), ("qwen3-30b-a3b", "cm384@192"), ("qwen3-8b", "tpu-v6e")],
)
def test_every_row_of_a_sweep_is_deployable(model: str, cluster: str) -> None:
    found = swept(model, cluster)
    spec = found.deployment.cluster.spec.domains[0]
    for size in np.unique(found.gpus // found.stages).tolist():
        assert deployable_stage(size, node=spec.gpus_per_node, domain=spec.gpus)
    assert all(map(is_power_of_two, {*found.tp.tolist(), *found.moe_tp.tolist()}))
    # a batch is at least one sequence a replica
    assert (found.batch * found.gpus >= 1 - 1e-9).all()
    any_shape = swept(model, cluster, any_shape=True)
    assert len(any_shape) >= len(found)
    for speed in (0.0, 20.0, 50.0):
        one, other = best_at(found, speed), best_at(any_shape, speed)
        assert one is None or other is not None
        if one is not None and other is not None:
            assert any_shape.tok_s[other] >= found.tok_s[one] * (1 - 1e-12)


def test_groups_stay_out_of_a_host_that_lost_a_gpu() -> None:
    where = broken("gb200-nvl72", "d0.n3.g1")
    for what in candidates(where, resolve_model("deepseek-v3"), any_shape=False).always:
        for stage in (stage for stages in what.replicas for stage in stages):
            nodes = [where.gpus[gpu].node for gpu in stage]
            each = {nodes.count(node) for node in nodes}
            assert len(each) == 1
            assert each == {4} or len(set(nodes)) == 1
            assert len(stage) < 4 or "d0.n3" not in nodes


def test_any_shape_where_no_deployable_layout_fits() -> None:
    """Experts of 438 GB need seven of the eight GPUs of a host, which has seven left."""
    deployment = Deployment(broken("hgx-h100", "d0.n0.g1"), resolve_model("qwen3-235b-a22b"), Workload())
    found = sweep(deployment)
    assert set(found.gpus.tolist()) == {7}
    assert found.deployment.notes[-1] == NONE_DEPLOYABLE
    loads = uniform(deployment)
    plan = make_plan(deployment, loads, PlanOptions(time_limit_s=0.0))
    assert plan.layout.gpus_used == 7
    assert plan.deployment.notes[-1] == NONE_DEPLOYABLE


def test_what_is_asked_of_a_plan_is_obeyed_whatever_its_shape() -> None:
    deployment = Deployment(resolve_cluster("gb200-nvl72"), resolve_model("qwen3-30b-a3b"), Workload())
    loads = uniform(deployment)
    plan = make_plan(deployment, loads, PlanOptions(time_limit_s=0.0, ep=9, stages=2))
    assert (plan.layout.ep, plan.layout.stages) == (9, 2)
    assert NONE_DEPLOYABLE not in plan.deployment.notes
    read = plan_of_text(plan_to_json(plan_to_dict(plan)), "plan")
    assert read.deployment.any_shape


@pytest.mark.parametrize("model", ["kimi-k2", "glm-5"])
def test_a_domain_of_512_is_never_behind_one_of_72(model: str) -> None:
    small, large = swept(model, "lecture-72@512"), swept(model, "lecture-512")
    for speed in (0.0, 10.0, 20.0, 25.0, 30.0, 40.0, 50.0):
        one, other = best_at(small, speed), best_at(large, speed)
        assert one is not None
        assert other is not None
        assert large.tok_s_per_gpu[other] >= small.tok_s_per_gpu[one] * (1 - 1e-9)


def test_shapes_of_a_fleet_are_deployable() -> None:
    where = resolve_cluster("gb200-nvl72@144")
    few = shapes_of(where, domain_classes(where), most_stages=61)
    every = shapes_of(where, domain_classes(where), most_stages=61, any_shape=True)
    assert set(few) < set(every)
    for shape in few:
        assert all(deployable_stage(size, node=4, domain=72) for size in shape.sizes)
    assert not any(shape.sizes == (3, 3) for shape in few)
    assert any(shape.sizes == (3, 3) for shape in every)
