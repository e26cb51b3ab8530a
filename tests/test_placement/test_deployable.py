"""What operators deploy: stages and replicas that fill nodes, and layouts that are legal by construction."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost.config.build import model_from_config
from cost.inputs.deployment import NONE_DEPLOYABLE, Deployment
from cost.inputs.workload import Workload
from cost.layouts import Sweep, best_at, sweep
from cost.layouts.candidates import MAX_STAGES, candidates
from cost.layouts.deployable import deployable_stage, is_power_of_two
from cost.model import Model
from cost.resolve import resolve_model
from helpers import few_layers
from placement.fleet.shapes import domain_classes, shapes_of
from placement.layouts.shapes import Shape, enumerate_shapes
from placement.options import PlanOptions
from placement.planner import make_plan
from test_placement.builders import joined, loads_for, reread
from topology import build_cluster, load_domain, load_scale_out, resolve_cluster
from topology.cluster import Cluster, ClusterSpec


def swept(model: str, cluster: str, *, any_shape: bool = False, context: int = 4096) -> Sweep:
    where = resolve_cluster(cluster)
    return sweep(Deployment(where, resolve_model(model), Workload(context=context), any_shape=any_shape))


@pytest.mark.parametrize(
    ("node", "domain", "sizes"),
    [
        (8, 8, [1, 2, 4, 8, 16, 24]),
        (4, 72, [1, 2, 4, 8, 12, 16, 24, 32, 36, 40, 48, 56, 64, 72]),
        (16, 768, [1, 2, 4, 8, 16, 32, 48, 64, 80, 96]),
        (6, 6, [1, 2, 4, 6, 12, 18, 24]),
    ],
)
def test_a_stage_fills_nodes_evenly(node: int, domain: int, sizes: list[int]) -> None:
    able = [size for size in range(1, sizes[-1] + 1) if deployable_stage(size, node=node, domain=domain)]
    assert able == sizes


@pytest.mark.parametrize(
    ("model", "cluster"),
    [("deepseek-v3", "hgx-h200@32"), ("qwen3-30b-a3b", "cm384@96"), ("qwen3-8b", "tpu-v6e")],
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
    where = joined("gb200-nvl72", broken=("d0.n3.g1",))
    for what in candidates(where, resolve_model("deepseek-v3"), any_shape=False).always:
        for stage in (stage for stages in what.replicas for stage in stages):
            nodes = [where.gpus[gpu].node for gpu in stage]
            each = {nodes.count(node) for node in nodes}
            assert len(each) == 1
            assert each == {4} or len(set(nodes)) == 1
            assert len(stage) < 4 or "d0.n3" not in nodes


def test_any_shape_where_no_deployable_layout_fits() -> None:
    """Experts of 438 GB need seven of the eight GPUs of a host, which has seven left."""
    seven, model = joined("hgx-h100", broken=("d0.n0.g1",)), resolve_model("qwen3-235b-a22b")
    deployment = Deployment(seven, model, Workload(), engine="vllm", mem_util=0.98)
    found = sweep(deployment)
    assert set(found.gpus.tolist()) == {7}
    assert found.deployment.notes[-1] == NONE_DEPLOYABLE
    plan = make_plan(deployment, loads_for(model), PlanOptions(time_limit_s=0.0))
    assert plan.layout.gpus_used == 7
    assert plan.deployment.notes[-1] == NONE_DEPLOYABLE


def test_what_is_asked_of_a_plan_is_obeyed_whatever_its_shape() -> None:
    model = few_layers("qwen3-30b-a3b", 4)
    deployment = Deployment(resolve_cluster("gb200-nvl72@36"), model, Workload())
    plan = make_plan(deployment, loads_for(model), PlanOptions(time_limit_s=0.0, ep=9, stages=2))
    assert (plan.layout.ep, plan.layout.stages) == (9, 2)
    assert NONE_DEPLOYABLE not in plan.deployment.notes
    assert reread(plan).deployment.any_shape


@pytest.mark.parametrize("model", ["kimi-k2", pytest.param("glm-5", marks=pytest.mark.wide)])
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


# --- layouts offered

MOE, DENSE = resolve_model("deepseek-v3"), resolve_model("llama-3.1-8b")


def cut_cluster(*sizes: int) -> Cluster:
    """Domains of these sizes, made from NVL72's GPUs one a node."""
    domain = replace(load_domain("gb200-nvl72"), gpus_per_node=1)
    domains = tuple(replace(domain, gpus=size) for size in sizes)
    return build_cluster(ClusterSpec("cut", domains, load_scale_out("gb200-nvl72")))


def members(cluster: Cluster) -> dict[int, set[int]]:
    found: dict[int, set[int]] = {}
    for index, gpu in enumerate(cluster.gpus):
        found.setdefault(gpu.domain, set()).add(index)
    return found


def check(cluster: Cluster, model: Model, shape: Shape) -> None:
    groups = [group for replica in shape.replicas for group in replica]
    used = [gpu for group in groups for gpu in group]
    assert len(set(used)) == len(used), "a GPU is used twice"
    assert set(used) <= set(range(len(cluster.gpus)))
    whole = members(cluster)
    for group in groups:
        touched = {cluster.gpus[gpu].domain for gpu in group}
        inside = len(touched) == 1
        joined = set(group) == set().union(*(whole[domain] for domain in touched))
        assert inside or joined, "a group holds a part of another domain"
        assert len(group) % shape.tp == 0
        for start in range(0, len(group), shape.tp):
            tensor = group[start : start + shape.tp]
            parts = Counter(cluster.gpus[gpu].domain for gpu in tensor).values()
            assert len(parts) == 1 or (shape.tp == len(group) and len(set(parts)) == 1), "TP leaves a domain"
    stages = len(shape.replicas[0])
    assert 1 <= stages <= min(MAX_STAGES, len(model.layers))
    sizes = [[len(group) for group in replica] for replica in shape.replicas]
    assert all(row == sizes[0] for row in sizes), "replicas differ"
    assert all(layer.attention.heads % shape.tp == 0 for layer in model.layers)
    if model.moe is None:
        assert all(len(group) == shape.tp for group in groups)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(1, 12), min_size=1, max_size=4), st.booleans())
def test_any_domains(sizes: list[int], moe: bool) -> None:
    cluster, model = cut_cluster(*sizes), MOE if moe else DENSE
    shapes = list(enumerate_shapes(cluster, model))
    assert shapes
    for shape in shapes:
        check(cluster, model, shape)


def groups_of(shape: Shape) -> list[tuple[int, ...]]:
    return [group for replica in shape.replicas for group in replica]


def test_tensor_parallelism_over_domains_is_as_wide_as_the_group() -> None:
    """Two nodes of 8 GPUs: inside a node, or over both; not over domains of unequal size."""
    nodes = [s for s in enumerate_shapes(cut_cluster(8, 8), MOE) if len(groups_of(s)[0]) == 16]
    assert {shape.tp for shape in nodes} == {1, 2, 4, 8, 16}
    joined = [s for s in enumerate_shapes(cut_cluster(2, 1, 1), MOE) if len(groups_of(s)[0]) == 4]
    assert {shape.tp for shape in joined} == {1}


def test_tensor_parallelism_divides_the_heads() -> None:
    config = dict(resolve_model("llama-3.1-8b").config)
    config |= {"num_attention_heads": 12, "num_key_value_heads": 12, "num_hidden_layers": 2, "head_dim": 64}
    odd = model_from_config(config, name="twelve heads", weights=None)
    assert {shape.tp for shape in enumerate_shapes(resolve_cluster("hgx-h100"), odd)} == {1, 2, 4}
