"""Which layouts are costed, at which batch, in which order."""

from __future__ import annotations

import pytest

from cost.inputs.deployment import Deployment
from cost.inputs.workload import Workload
from cost.resolve import resolve_model
from cost.step.memory import batch_of, replica_max_batch, replica_memory
from placement.layouts.choose import candidates
from placement.layouts.fitting import fitted_layouts, fitting_shapes, stage_slots
from placement.layouts.goals import aim_of
from placement.layouts.partition import stage_specs
from placement.layouts.refuse import tightest
from placement.layouts.shapes import enumerate_shapes
from topology import resolve_cluster
from topology.base.errors import InputError


def setting_of(model: str, cluster: str, batch: int = 0) -> Deployment:
    return Deployment(resolve_cluster(cluster), resolve_model(model), Workload(batch=batch))


CASES = [("mixtral-8x7b", "hgx-h100"), ("deepseek-v3", "hgx-h100@16"), ("llama-3.1-70b", "hgx-h100")]


@pytest.mark.parametrize(("model", "cluster"), CASES)
def test_every_shape_that_fits_has_its_slots(model: str, cluster: str) -> None:
    deployment = setting_of(model, cluster)
    found = list(fitting_shapes(deployment, None))
    assert found
    for fitting in found:
        assert fitting.max_batch * fitting.shape.tp >= 1
        for group, slots in zip(fitting.shape.replicas[0], fitting.slots, strict=True):
            assert len(slots) == len(group)
            wanted = 0 if deployment.model.moe is None else deployment.model.moe.experts
            assert wanted <= slots.sum() < wanted + len(group)


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


@pytest.mark.wide
@pytest.mark.parametrize("times", [1.1, 3.0])
def test_candidates_hold_the_largest_batch_within_the_time(times: float) -> None:
    """Against a scan of all batches."""
    deployment = setting_of("mixtral-8x7b", "hgx-h100")
    layouts = fitted_layouts(deployment, None)
    tpot_s = times * min(fit.scorer.at(fit.least_batch).step_s for fit in layouts)
    found = candidates(deployment, layouts, tpot_s, aim_of(deployment, "throughput"))
    assert found
    for candidate in found:
        fit = candidate.fitted
        tp = fit.layout.tp
        held = (batch_of(count, tp) for count in range(1, round(fit.batch * tp) + 1))
        most = max(batch for batch in held if fit.scorer.at(batch).step_s <= tpot_s)
        assert candidate.deployment.workload.batch == candidate.score.batch == most
    scanned = [
        max(
            (
                fit.scorer.at(count / fit.layout.tp).tok_s_per_gpu
                for count in range(1, round(fit.batch * fit.layout.tp) + 1)
                if fit.scorer.at(count / fit.layout.tp).step_s <= tpot_s
            ),
            default=0.0,
        )
        for fit in layouts
    ]
    assert found[0].score.tok_s_per_gpu == pytest.approx(max(scanned))


def test_copies_that_no_group_holds_are_refused() -> None:
    deployment = setting_of("mixtral-8x7b", "hgx-h100")
    assert list(fitting_shapes(deployment, 57)) == []
    with pytest.raises(
        InputError, match="no group of hgx-h100's GPUs can hold 8 experts and 57 extra copies"
    ):
        tightest(deployment, list(enumerate_shapes(deployment.cluster, deployment.model)), 57)
