"""Which layouts fit: slots, and memory GPU by GPU where GPUs differ; what cannot be, and what fits instead."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost.config.build import model_from_config
from cost.inputs.deployment import Deployment
from cost.inputs.workload import Workload
from cost.memory.stages import replica_max_batch, replica_memory
from cost.resolve import resolve_model
from placement.layouts.fitting import (
    fitted_layouts,
    fitting_shapes,
    gpu_usable_bytes,
    slots_by_free_hbm,
    stage_slots,
)
from placement.layouts.partition import stage_specs
from placement.layouts.refuse import refuse_layout, tightest
from placement.layouts.shapes import enumerate_shapes
from placement.options import PlanOptions
from placement.planner import make_plan
from placement.verify import verify_plan
from test_placement.builders import joined, loads_for
from topology import resolve_cluster
from topology.base.errors import InfeasibleError, InputError


def setting_of(model: str, cluster: str, batch: int = 0) -> Deployment:
    return Deployment(resolve_cluster(cluster), resolve_model(model), Workload(batch=batch))


def test_shapes_left_out_do_not_fit() -> None:
    """One-stage shapes against the memory model itself."""
    deployment = setting_of("mixtral-8x7b", "hgx-h100")
    kept = {fitting.shape for fitting in fitting_shapes(deployment, None)}
    checked = 0
    for shape in enumerate_shapes(deployment.cluster, deployment.model):
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
    deployment = setting_of("mixtral-8x7b", "hgx-h100")
    assert list(fitting_shapes(deployment, 57)) == []
    with pytest.raises(
        InputError, match="no group of hgx-h100's GPUs can hold 8 experts and 57 extra copies"
    ):
        tightest(deployment, list(enumerate_shapes(deployment.cluster, deployment.model)), 57)


# --- GPUs that differ

MODEL = resolve_model("gpt-oss-20b")
LAYERS = len(MODEL.layers)
WHOLE = (range(LAYERS),)


def mixed(batch: int = 0) -> Deployment:
    return Deployment(joined("hgx-h20", "hgx-h200"), MODEL, Workload(batch=batch))


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
    (stage,) = stage_specs(fitting.shape.replicas[0], WHOLE)
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


@pytest.mark.wide
def test_a_plan_on_cards_that_differ_is_legal_and_uses_its_batch() -> None:
    deployment = mixed()
    loads = loads_for(MODEL, "lognormal:0.63")
    plan = make_plan(deployment, loads, PlanOptions(16, "none", time_limit_s=0.0, ep=16, tp=1))
    assert verify_plan(plan) == []
    assert plan.score.batch == plan.score.max_batch
    assert "unequally" in plan.baselines["eplb_global"].reason or plan.baselines["eplb_global"].score
    assert sum(plan.score.hbm_bytes.values()) in {
        gpu.hbm_bytes for gpu in (domain.gpu for domain in deployment.cluster.spec.domains)
    }


# --- what cannot be

CONFIG = resolve_model("qwen3-8b").config
TWENTY_HEADS = model_from_config(
    {**CONFIG, "num_attention_heads": 20, "num_key_value_heads": 4}, name="twenty heads"
)


@pytest.mark.parametrize(
    ("model", "cluster", "widths", "words"),
    [
        ("twenty heads", "hgx-h200", {"tp": 8}, "20 query heads do not divide by 8"),
        ("twenty heads", "hgx-h200", {"tp": 5}, "TP 5 is not offered: plans have powers of two up to 64"),
        ("gpt-oss-20b", "hgx-h100", {"ep": 3}, "groups of 3 GPUs do not divide nodes of 8"),
        ("qwen3-30b-a3b", "hgx-h200@16", {"ep": 6}, "groups of 6 GPUs do not divide nodes of 8"),
        ("qwen3-30b-a3b", "hgx-h100", {"ep": 2, "tp": 8}, "which a sweep prices and plans do not offer"),
        ("qwen3-30b-a3b", "hgx-h100@16", {"ep": 1, "tp": 16}, "experts are cut within a scale-up domain"),
        ("qwen3-30b-a3b", "hgx-h100@32", {"ep": 32, "tp": 16}, "offered where it is as wide as the stage"),
        ("qwen3-30b-a3b", "hgx-h100", {"ep": 16}, "that takes 16 GPUs, and it has 8"),
        ("qwen3-30b-a3b", "hgx-h100@16", {"ep": 4, "stages": 17}, "at most 16 stages are offered"),
        ("llama-3.1-405b", "hgx-h100@16", {"tp": 8, "stages": 1}, "HBM capacity binds: it needs"),
    ],
)
def test_the_rule_that_binds_is_named(model: str, cluster: str, widths: dict[str, int], words: str) -> None:
    known = TWENTY_HEADS if model == TWENTY_HEADS.name else resolve_model(model)
    deployment = Deployment(resolve_cluster(cluster), known, Workload())
    layouts = fitted_layouts(deployment, None)
    with pytest.raises(InfeasibleError) as refused:
        refuse_layout(deployment, PlanOptions(**widths), layouts)  # type: ignore[arg-type]
    said = str(refused.value)
    assert words in said
    assert "What fits: " in said
    fits = {(fit.layout.ep, fit.layout.tp, fit.layout.stages) for fit in layouts}
    for spelled in said.partition("What fits: ")[2].rstrip(".").split("; "):
        words_of = spelled.replace("`", "").split()
        named = dict(zip(words_of[::2], map(int, words_of[1::2]), strict=True))
        assert any(
            (named.get("ep", ep), named["tp"], named["stages"]) == (ep, tp, stages) for ep, tp, stages in fits
        )


def test_a_batch_that_the_widths_cannot_have_is_no_want_of_memory() -> None:
    deployment = Deployment(resolve_cluster("hgx-h100"), resolve_model("qwen3-8b"), Workload(batch=0.125))
    layouts = fitted_layouts(deployment, None)
    assert {fit.layout.tp for fit in layouts} == {8}
    with pytest.raises(
        InfeasibleError, match=r"`batch` 0\.125 is no whole number of sequences of a group of 4"
    ):
        refuse_layout(deployment, PlanOptions(tp=4), layouts)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"redundant": -1}, "`redundant` -1"),
        ({"tpot_s": 0.0}, "`tpot_ms`: expected a number above 0"),
        ({"time_limit_s": -1.0}, "`time_limit_s`: expected 0 or more seconds, not -1"),
        ({"seed": -1}, "`seed` -1"),
        ({"ep": 1, "tp": 8, "redundant": 8}, "with `ep` 1 no expert has copies"),
        ({"ep": 1, "tp": 8, "redundant": "auto"}, "with `ep` 1 no expert has copies"),
        ({"ep": 1, "tp": 8, "spread": "node"}, "with `ep` 1 no expert has copies"),
    ],
)
def test_each_bad_option_is_named(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words) as refusal:
        PlanOptions(**options)
    assert "\n" not in str(refusal.value)
