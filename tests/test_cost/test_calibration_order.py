"""The order of corrected steps: of chips, formats, requests and lengths, whatever runs say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize

from cost.calibration.correction import OWN_PARTS, Correction, Runs, shipped_correction
from cost.calibration.order import as_good, in_order
from cost.inputs.deployment import Deployment
from cost.inputs.layout import StageSpec
from cost.inputs.machine import NO_RUNS
from cost.inputs.workload import StepShape, Workload
from cost.resolve import resolve_model
from cost.step.step import even_step, measured, physics_seconds
from topology.changes.overrides import overrides
from topology.files.resolve import resolve_cluster

NVIDIA = ("hgx-h100", "hgx-h200", "hgx-b200", "hgx-b300", "gb200-nvl72", "gb300-nvl72", "rubin-576")
CLUSTERS = (*NVIDIA, "hgx-h20", "l40s", "rtx-pro-6000")
SEQUENCES = np.array([1.0, 2.0, 3.0, 8.0, 20.0, 64.0, 150.0, 512.0])
POWERS = np.isin(SEQUENCES, 2.0 ** np.arange(10))
CLOSE = np.where(POWERS, 1e-7, 2e-3)
"""Between powers of two a correction is read off a table."""


def deployed(
    cluster: object,
    model: object = "deepseek-v3",
    *,
    context: int = 4096,
    weights: str | None = None,
    **changes: object,
) -> Deployment:
    found = resolve_cluster(cluster) if isinstance(cluster, str) else cluster
    work = Workload(phase="decode", context=context)
    return Deployment(found, resolve_model(model, weights=weights), work, **changes)


def shape_of(deployment: Deployment, gpus: int = 8, tp: int = 1) -> StepShape:
    ones = np.ones_like(SEQUENCES)
    widths = {"tp": tp, "attention_dp": gpus / tp, "ep": gpus, "domain_gpus": gpus}
    experts = deployment.model.moe.experts if deployment.model.moe else 0
    shape = StepShape(**{name: value * ones for name, value in widths.items()}, slots=experts * ones)
    return shape.under(deployment.workload, SEQUENCES / tp)


def seconds(deployment: Deployment, gpus: int = 8, tp: int = 1) -> np.ndarray:
    machine = deployment.machine(StageSpec(tuple(range(gpus)), range(len(deployment.model.layers))))
    shape = measured(shape_of(deployment, gpus, tp), machine)
    return even_step(deployment.model, shape, machine, bounds=False).total_s


@pytest.mark.parametrize("engine", ["", "vllm", "sglang"])
@pytest.mark.parametrize("model", ["deepseek-v3", "gpt-oss-120b"])
def test_a_chip_as_good_in_every_figure_is_never_slower(model: str, engine: str) -> None:
    found = {name: deployed(name, model, engine=engine) for name in CLUSTERS}
    chips = {name: one.cluster.spec.domains[0].gpu for name, one in found.items()}
    times = {name: seconds(one, 1) for name, one in found.items()}
    pairs = [(a, b) for a in CLUSTERS for b in CLUSTERS if a != b and as_good(chips[b], chips[a])]
    assert len(pairs) > 20
    for worse, better in pairs:
        assert (times[better] <= times[worse] * (1 + CLOSE)).all(), (worse, better)


@pytest.mark.parametrize("cluster", ["hgx-b200", "rubin-576", "mi355x"])
def test_more_requests_longer_prompts_and_more_bytes_are_never_faster(cluster: str) -> None:
    times = [seconds(deployed(cluster, context=context)) for context in (512, 3000, 8192, 65_536)]
    assert (np.diff(times, axis=0) >= 0).all()
    assert (np.diff(times, axis=1) >= 0).all()
    narrow = "mxfp4" if cluster == "mi355x" else "nvfp4"
    by_bits = [seconds(deployed(cluster, weights=weights)) for weights in ("bf16", "fp8", narrow)]
    assert (np.diff(by_bits, axis=0) <= 1e-9).all()


def test_a_chip_that_nobody_measured_has_the_factor_of_the_one_it_borrows_from() -> None:
    old, new = (deployed(name) for name in ("gb200-nvl72", "rubin-576"))
    stage = StageSpec(tuple(range(8)), range(61))
    lower = new.machine(stage)
    bound = lower.correction
    lender = bound.rivals[bound.lenders[0]]
    assert lender.chip.name == "gb200"
    shape = shape_of(new)
    on_old = np.exp(replace(old.machine(stage).correction, own=(lender,)).logs(shape, physics_seconds))
    np.testing.assert_allclose(np.exp(bound.logs(shape, physics_seconds)), on_old, rtol=0.02)
    assert abs(np.log(on_old)).max() > 0.05
    near = bound.near(shape.rows(np.array([0])), physics_seconds)
    assert (near.runs, near.band > 1.3) == (0, True)


@pytest.mark.parametrize("figure", ["hbm_bytes_per_s", "bf16_flop_per_s", "fp8_flop_per_s", "hbm_bytes"])
def test_an_invented_chip_that_is_better_is_no_slower_and_a_worse_one_no_faster(figure: str) -> None:
    plain = seconds(deployed("hgx-b200"))
    settings = [f"b200-sxm.{figure}={factor}x" for factor in (1.3, 0.8)]
    clusters = [overrides([resolve_cluster("hgx-b200")], [setting])[0] for setting in settings]
    better, worse = (seconds(deployed(cluster)) for cluster in clusters)
    assert (better <= plain * (1 + CLOSE)).all()
    assert (worse >= plain * (1 - CLOSE)).all()


def test_a_user_s_runs_on_one_chip_never_turn_the_order() -> None:
    base = shipped_correction()
    kind = replace(base.runs.kinds[0], chip="b200-sxm", engine="vllm")
    for off in (0.7, -0.7):
        own = Runs((kind,) * 6, base.runs.features[:6], np.zeros(6), OWN_PARTS).fitted(np.full(6, off))
        asked = replace(base, own=own)
        times = [
            seconds(deployed(name, correction=asked), 1) for name in ("hgx-h200", "hgx-b200", "gb200-nvl72")
        ]
        assert (np.diff(times, axis=0) <= CLOSE * times[0]).all()
        assert not np.allclose(times[1], seconds(deployed("hgx-b200"), 1), rtol=0.02)


def test_a_model_without_runs_is_the_physics() -> None:
    found = deployed("hgx-b200", "olmoe-1b-7b")
    assert found.machine(StageSpec((0,), range(len(found.model.layers)))).correction is None
    assert NO_RUNS.band is None


def test_the_table_is_the_correction_at_powers_of_two() -> None:
    found = deployed("hgx-b200")
    bound = found.machine(StageSpec(tuple(range(8)), range(61))).correction
    shape = shape_of(found)
    exact = np.exp(bound.logs(shape, physics_seconds))
    table = bound.applied(shape, physics_seconds).measured
    np.testing.assert_allclose(table[POWERS], exact[POWERS], rtol=1e-8)
    np.testing.assert_allclose(table, exact, rtol=5e-3)


def test_the_nearest_values_in_order() -> None:
    random = np.random.default_rng(0)
    no_slower = np.triu(np.ones((4, 4), dtype=bool))
    no_slower[1, 2] = False  # 0 before 1 and 2, which are apart, before 3
    for _ in range(5):
        values, weights = random.normal(size=(4, 3)), random.uniform(0.1, 3.0, 4)
        found = in_order(values, weights, no_slower, range(4))
        assert (found[0] >= found[1:3] - 1e-12).all()
        assert (found[1:3] >= found[3] - 1e-12).all()
        for point in range(3):
            limits = [
                {"type": "ineq", "fun": lambda x, a=a, b=b: x[a] - x[b]}
                for a, b in ((0, 1), (0, 2), (1, 3), (2, 3))
            ]
            best = minimize(
                lambda x, point=point, weights=weights, values=values: weights @ (x - values[:, point]) ** 2,
                np.zeros(4),
                constraints=limits,
            )
            np.testing.assert_allclose(found[:, point], best.x, atol=2e-3)
    there = np.array([[3.0], [2.0], [1.0], [0.0]])
    np.testing.assert_array_equal(in_order(there, np.ones(4), no_slower, range(4)), there)


def test_no_correction_without_runs() -> None:
    assert not Correction(Runs((), np.zeros((0, 8)), np.zeros(0))).tells_of(resolve_model("deepseek-v3"))
