"""Plans on heterogeneous GPUs: slots where HBM is left, memory GPU by GPU, loads by speed."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost.experts.loads import read_loads
from cost.inputs.deployment import Deployment
from cost.inputs.workload import Workload
from cost.resolve import resolve_model
from cost.step.memory import replica_max_batch, replica_memory
from placement.layouts.fitting import fitting_shapes, gpu_hbm_bytes, slots_by_free_hbm
from placement.options import PlanOptions
from placement.planner import make_plan
from placement.verify import verify_plan
from topology import build_cluster, resolve_cluster

MODEL = resolve_model("gpt-oss-20b")
LAYERS = len(MODEL.layers)
WHOLE = (range(LAYERS),)


def mixed(batch: int = 0) -> Deployment:
    spec = resolve_cluster("hgx-h200@16").spec
    small = resolve_cluster("hgx-h20").spec.domains[0]
    return Deployment(
        build_cluster(replace(spec, name="mixed", domains=(small, spec.domains[0]))),
        MODEL,
        Workload(batch=batch),
    )


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
    deployment = mixed(batch=1)
    (fitting,) = [
        found
        for found in fitting_shapes(deployment, 16)
        if len(found.shape.replicas[0][0]) == 16 and found.shape.tp == 1 and len(set(found.slots[0])) > 1
    ]
    from placement.layouts.partition import stage_specs

    (stage,) = stage_specs(fitting.shape.replicas[0], WHOLE)
    rows, capacity = fitting.slots[0], gpu_hbm_bytes(deployment, stage.gpus)
    (joint,) = replica_memory(deployment, [stage], tp=1, slots=[rows])
    # each GPU on its own, all with its slots and HBM
    alone = []
    for count, hbm in {*zip(rows.tolist(), capacity.tolist(), strict=True)}:
        (one,) = replica_memory(deployment, [stage], tp=1, slots=[int(rows.sum())], most=[count])
        alone.append(replica_max_batch([replace(one, capacity=hbm)], 1))
    assert replica_max_batch([joint], 1) == min(alone) == fitting.max_batch
    # equal slots leave room for fewer sequences
    (even,) = replica_memory(deployment, [stage], tp=1, slots=[np.full(16, 3)])
    assert even.room <= joint.room


@pytest.mark.wide
def test_a_plan_on_cards_that_differ_is_legal_and_uses_its_batch() -> None:
    deployment = mixed()
    loads = read_loads(["lognormal:0.63"], moe_layers=MODEL.moe_layers, layers=LAYERS, experts=32, seed=0)
    plan = make_plan(deployment, loads, PlanOptions(16, "none", time_limit_s=0.0, ep=16, tp=1))
    assert verify_plan(plan) == []
    assert plan.score.batch == plan.score.max_batch
    assert "unequally" in plan.baselines["eplb_global"].reason or plan.baselines["eplb_global"].score
    assert sum(plan.score.hbm_bytes.values()) in gpu_hbm_bytes(deployment, range(16))
