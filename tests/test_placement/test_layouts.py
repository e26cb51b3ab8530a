"""Which layouts there are and fit: nodes filled, memory GPU by GPU; what cannot be, and what fits instead."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost.inputs.deployment import NONE_DEPLOYABLE, Deployment
from cost.inputs.workload import Workload
from cost.layouts import Sweep, best_at, sweep
from cost.layouts.candidates import MAX_STAGES
from cost.layouts.deployable import deployable_stage, is_power_of_two
from cost.memory.stages import replica_max_batch, replica_memory
from cost.model import Model
from cost.resolve import resolve_model
from placement.layouts.fitting import (
    fitted_layouts,
    fitting_shapes,
    gpu_usable_bytes,
    slots_by_free_hbm,
    stage_slots,
)
from placement.layouts.given import given_layout
from placement.layouts.partition import stage_specs
from placement.layouts.refuse import refuse_layout, tightest
from placement.layouts.shapes import Shape, enumerate_shapes
from placement.options import PlanOptions
from test_placement.builders import deployed, joined, quick
from topology import build_cluster, load_domain, load_scale_out, resolve_cluster
from topology.base.errors import InfeasibleError, InputError
from topology.cluster import Cluster, ClusterSpec

MIXTRAL = deployed("mixtral-8x7b", "hgx-h100")


def test_shapes_left_out_do_not_fit() -> None:
    """One-stage shapes against the memory model itself."""
    deployment = MIXTRAL
    kept = {fitting.shape for fitting in fitting_shapes(deployment, None)}
    checked = 0
    for shape in enumerate_shapes(deployment):
        slots = stage_slots(deployment, shape, None)
        if len(shape.replicas[0]) > 1 or slots is None:
            continue
        stages = stage_specs(shape.replicas[0], [range(32)])
        memories = replica_memory(deployment, stages, tp=shape.tp, slots=[int(slots[0].sum())])
        fits = replica_max_batch(memories, shape.tp) > 0
        assert fits == (shape in kept)
        checked += not fits
    assert checked, "some shape must be refused for this to say anything"


def test_copies_that_no_group_holds_are_refused() -> None:
    assert list(fitting_shapes(MIXTRAL, 57)) == []
    with pytest.raises(InputError, match="GPUs can hold 8 experts and 57 extra copies"):
        tightest(MIXTRAL, list(enumerate_shapes(MIXTRAL)), 57)


@settings(max_examples=30, deadline=None)
@given(
    free=st.lists(st.integers(0, 20), min_size=1, max_size=3),
    each=st.integers(1, 5),
    total=st.integers(0, 8),
    most=st.integers(1, 4),
)
def test_slots_leave_as_much_as_can_be_on_the_fullest_gpu(
    free: list[int], each: int, total: int, most: int
) -> None:
    total = min(total, most * len(free))
    found = slots_by_free_hbm(np.array(free, dtype=float), float(each), total=total, most=most)
    assert int(found.sum()) == total
    assert found.max(initial=0) <= most

    def least_left(slots: tuple[int, ...]) -> int:
        """HBM left on the fullest of the GPUs that hold a slot."""
        return min((f - each * s for f, s in zip(free, slots, strict=True) if s), default=0)

    best = max(
        least_left(slots) for slots in product(range(most + 1), repeat=len(free)) if sum(slots) == total
    )
    assert least_left(tuple(found.tolist())) == best


def test_memory_is_that_of_the_gpu_that_is_full_first() -> None:
    model = resolve_model("gpt-oss-20b")
    deployment = Deployment(joined("hgx-h20", "hgx-h200"), model, Workload(batch=1))
    (fitting,) = [
        found
        for found in fitting_shapes(deployment, 16)
        if len(found.shape.replicas[0][0]) == 16 and found.shape.tp == 1 and len(set(found.slots[0])) > 1
    ]
    (stage,) = stage_specs(fitting.shape.replicas[0], [range(len(model.layers))])
    rows, capacity = fitting.slots[0], gpu_usable_bytes(deployment, stage.gpus)
    (joint,) = replica_memory(deployment, [stage], tp=1, slots=[rows])
    # each GPU on its own, all with its slots and HBM
    alone = []
    for count, usable in {*zip(rows.tolist(), capacity.tolist(), strict=True)}:
        (one,) = replica_memory(deployment, [stage], tp=1, slots=[int(rows.sum())], most=[count])
        alone.append(replica_max_batch([replace(one, budget=replace(one.budget, usable=usable))], 1))
    assert replica_max_batch([joint], 1) == min(alone) == fitting.max_batch
    # equal slots leave room for fewer sequences
    (even,) = replica_memory(deployment, [stage], tp=1, slots=[np.full(16, 3)])
    assert even.room <= joint.room


@pytest.mark.parametrize(
    ("model", "cluster", "widths", "words"),
    [
        ("qwen3-8b", "hgx-h200", {"tp": 5}, "32 query heads do not divide by 5"),
        ("gpt-oss-20b", "hgx-h100", {"ep": 3}, "groups of 3 GPUs do not divide nodes of 8"),
        ("qwen3-30b-a3b", "hgx-h100", {"ep": 2, "tp": 8}, "which a sweep prices and plans do not offer"),
        ("qwen3-30b-a3b", "hgx-h100@16", {"ep": 1, "tp": 16}, "experts are cut within a scale-up domain"),
        ("qwen3-30b-a3b", "hgx-h100@32", {"ep": 32, "tp": 16}, "offered where it is as wide as the stage"),
        ("qwen3-30b-a3b", "hgx-h100", {"ep": 16}, "that takes 16 GPUs, and it has 8"),
        ("qwen3-30b-a3b", "hgx-h100@16", {"ep": 4, "stages": 17}, "at most 16 stages are offered"),
        ("llama-3.1-405b", "hgx-h100@16", {"tp": 8, "stages": 1}, "HBM capacity binds: it needs"),
    ],
)
def test_the_rule_that_binds_is_named(model: str, cluster: str, widths: dict[str, int], words: str) -> None:
    deployment = deployed(model, cluster)
    layouts = fitted_layouts(deployment, None)
    with pytest.raises(InfeasibleError) as refused:
        refuse_layout(deployment, PlanOptions(**widths), layouts)  # type: ignore[arg-type]
    refusal, _, offers = str(refused.value).partition("What fits: ")
    assert words in refusal
    fits = {(fit.layout.ep, fit.layout.tp, fit.layout.stages) for fit in layouts}
    for offer in offers.rstrip(".").split("; "):
        named = {key: int(width) for key, width in re.findall(r"`(\w+)` (\d+)", offer)}
        assert any(
            (named.get("ep", ep), named["tp"], named["stages"]) == (ep, tp, stages) for ep, tp, stages in fits
        )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"redundant": -1}, "`redundant` -1"),
        ({"tpot_s": 0.0}, "`tpot_ms`: expected a number above 0"),
        ({"time_limit_s": -1.0}, "`time_limit_s`: expected 0 or more seconds, not -1"),
        ({"seed": -1}, "`seed` -1"),
        ({"ep": 1, "tp": 8, "redundant": 8}, "with `ep` 1 no expert has copies"),
    ],
)
def test_each_bad_option_is_named(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        PlanOptions(**options)


@pytest.mark.parametrize(
    ("widths", "words"),
    [
        ({"ep": 8, "stages": 33}, "expected 1 to 32 stages"),
        ({"ep": 32}, "has no 1 groups of 32 GPUs"),
        ({"ep": 8, "tp": 3}, "possible widths are"),
        ({"ep": 8, "redundant": 100}, "cannot divide"),
    ],
)
def test_a_layout_of_given_widths_that_cannot_be_is_refused(widths: dict[str, int], words: str) -> None:
    with pytest.raises(InputError, match=words):
        given_layout(MIXTRAL, **widths)
    with pytest.raises(InfeasibleError, match="largest batch that fits"):
        given_layout(MIXTRAL.with_batch(10**6), 8)


def swept(model: str, cluster: str, *, any_shape: bool = False) -> Sweep:
    return sweep(Deployment(resolve_cluster(cluster), resolve_model(model), Workload(), any_shape=any_shape))


@pytest.mark.parametrize(
    ("node", "domain", "sizes"),
    [
        (8, 8, [1, 2, 4, 8, 16, 24]),
        (4, 72, [1, 2, 4, 8, 12, 16, 24, 32, 36, 40, 48, 56, 64, 72]),
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


def test_any_shape_where_no_deployable_layout_fits() -> None:
    """Experts of 438 GB need seven of the eight GPUs of a host, which has seven left."""
    seven, model = joined("hgx-h100", broken=("d0.n0.g1",)), resolve_model("qwen3-235b-a22b")
    deployment = Deployment(seven, model, Workload(), engine="vllm", mem_util=0.98)
    found = sweep(deployment)
    assert set(found.gpus.tolist()) == {7}
    assert found.deployment.notes[-1] == NONE_DEPLOYABLE
    plan = quick(deployment)
    assert plan.layout.gpus_used == 7
    assert plan.deployment.notes[-1] == NONE_DEPLOYABLE


MOE, DENSE = resolve_model("deepseek-v3"), resolve_model("llama-3.1-8b")


def check(cluster: Cluster, model: Model, shape: Shape) -> None:
    groups = [group for replica in shape.replicas for group in replica]
    used = [gpu for group in groups for gpu in group]
    assert len(set(used)) == len(used), "a GPU is used twice"
    assert set(used) <= set(range(len(cluster.gpus)))
    domain = [gpu.domain for gpu in cluster.gpus]
    for group in groups:
        touched = {domain[gpu] for gpu in group}
        joined = set(group) == {gpu for gpu, of in enumerate(domain) if of in touched}
        assert len(touched) == 1 or joined, "a group holds a part of another domain"
        assert len(group) % shape.tp == 0
        for start in range(0, len(group), shape.tp):
            parts = Counter(domain[gpu] for gpu in group[start : start + shape.tp]).values()
            assert len(parts) == 1 or (shape.tp == len(group) and len(set(parts)) == 1), "TP leaves a domain"
    assert 1 <= len(shape.replicas[0]) <= min(MAX_STAGES, len(model.layers))
    sizes = [[len(group) for group in replica] for replica in shape.replicas]
    assert all(row == sizes[0] for row in sizes), "replicas differ"
    assert all(layer.attention.heads % shape.tp == 0 for layer in model.layers)
    if model.moe is None:
        assert all(len(group) == shape.tp for group in groups)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(1, 12), min_size=1, max_size=4), st.booleans())
def test_any_domains(sizes: list[int], moe: bool) -> None:
    domain = replace(load_domain("gb200-nvl72"), gpus_per_node=1)
    domains = tuple(replace(domain, gpus=size) for size in sizes)
    cluster = build_cluster(ClusterSpec("cut", domains, load_scale_out("gb200-nvl72")))
    model = MOE if moe else DENSE
    shapes = list(enumerate_shapes(Deployment(cluster, model, Workload())))
    assert shapes
    for shape in shapes:
        check(cluster, model, shape)
