"""The layouts offered: legal by construction, on even, uneven and odd domains."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from cost.config.build import model_from_config
from cost.layouts.candidates import MOST_STAGES
from cost.model import Model
from cost.resolve import resolve_model
from placement.layouts.shapes import Shape, enumerate_shapes
from topology import build_cluster, load_domain, load_scale_out, resolve_cluster
from topology.cluster import Cluster, ClusterSpec

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
    assert 1 <= stages <= min(MOST_STAGES, len(model.layers))
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
