"""What measured runs took over the physics, near them and far; the order of corrected steps, whatever runs say."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import numpy as np
import pytest
from scipy.optimize import minimize

from cost.calibration.correction import (
    DAYS,
    OWN_PARTS,
    PHYSICS,
    SLOPE,
    Correction,
    Kind,
    Runs,
    correction_with,
    features_of,
    kind_of,
    lines_of,
    runs_of,
    shipped_correction,
)
from cost.calibration.order import in_order
from cost.inputs.deployment import Deployment
from cost.inputs.layout import StageSpec
from cost.inputs.workload import StepShape, Workload
from cost.resolve import resolve_model
from cost.step.step import even_step, measured, physics_seconds
from topology.base.errors import InputError
from topology.files.resolve import resolve_cluster

DAY = float(date(2026, 6, 1).toordinal())
KIND = Kind(1e9, "vllm", "h100-sxm", "disaggregated", "fp8")
TIMES = np.log(0.01) + 0.3 * np.arange(6)


def at(log_s: float, tp: float = 8.0, day: float = DAY) -> np.ndarray:
    return features_of(StepShape(tp=tp, context=2000.0, sequences=2.0), log_s, day)


def learned(logs: list[float], kinds: list[Kind] | None = None, **changes: object) -> Runs:
    features = np.concatenate([at(time) for time in TIMES[: len(logs)]])
    runs = Runs(tuple(kinds or [KIND] * len(logs)), features, np.zeros(len(logs)), **changes)
    return runs.fitted(np.array(logs))


def log_of(correction: Correction, kind: Kind, features: np.ndarray) -> float:
    return float(correction.corrected([kind], [features])[0, 0] - features[0, 0])


def test_what_takes_longer_by_physics_takes_longer() -> None:
    correction = Correction(learned([0.7, -0.7, 0.7, -0.7, 0.7, -0.7]))
    features = np.concatenate([at(time) for time in np.arange(-8.0, 2.0, 0.01)])
    logs = correction.corrected([KIND], [features])[0]
    steps = np.diff(logs)
    assert (steps >= SLOPE * 0.01 - 1e-9).all()
    assert steps.max() < 0.1


def test_runs_of_a_version_s_time_count_most() -> None:
    old = np.concatenate([at(TIMES[0], day=DAY - 8 * DAYS), at(TIMES[0])])
    runs = Runs((KIND, KIND), old, np.zeros(2), versions=("0.1", "0.2")).fitted(np.array([0.4, -0.2]))
    correction = Correction(runs)
    before, now = (
        log_of(correction, KIND, at(TIMES[0], day=correction.day_of(f"vllm{v}"))) for v in ("==0.1", "")
    )
    assert now < before
    assert correction.day_of("vllm==0.2") == correction.newest == DAY
    with pytest.raises(InputError, match=r"vllm==9.*no run was of that version; known: 0.1, 0.2"):
        correction.day_of("vllm==9")
    assert correction.days["vllm", "0.1"] == DAY - 8 * DAYS


def test_variance_is_that_of_the_process() -> None:
    runs = learned([0.1, 0.3, -0.2])
    asked = at(TIMES[1] + 0.1)
    kernel = runs.covariance(KIND, asked)
    between = np.concatenate([runs.covariance(KIND, row[None]) for row in runs.features])
    noise = 0.004 + 0.01 * np.eye(3)  # of one configuration, and of each run
    by_hand = 0.11 + 0.014 - kernel @ np.linalg.inv(between + noise) @ kernel.T
    np.testing.assert_allclose(runs.variance(KIND, asked), by_hand[0])


def test_own_runs_go_on_top_and_survive_a_file() -> None:
    own, asked = learned([0.2, 0.25, 0.22], parts=OWN_PARTS), at(TIMES[1])
    read = correction_with(lines_of(own), physics=True)
    assert read.physics
    assert log_of(read, KIND, asked) == pytest.approx(log_of(Correction(PHYSICS.runs, own), KIND, asked))
    other = log_of(read, replace(KIND, model=5e9, engine="sglang"), asked)
    assert 0.0 < other < log_of(read, KIND, asked)  # the user's machines are what is slower
    alone = learned([0.2, 0.25], parts=OWN_PARTS)
    off = abs(alone.mean(KIND, own.features[2:])[0] - 0.22)
    assert abs(own.left_out[2]) < off  # its configuration's share of the noise is known from the others
    assert correction_with() is shipped_correction()
    assert correction_with(physics=True) is PHYSICS


def test_the_file_that_ships() -> None:
    correction = shipped_correction()
    assert len(correction.runs.kinds) > 3000
    again = runs_of(lines_of(correction.runs))
    np.testing.assert_array_equal(again.weights, correction.runs.weights)
    model = resolve_model("deepseek-v3")
    kind = kind_of(model, "b200-sxm", "SGLang==0.5.9", "aggregated")
    assert (kind.engine, kind.architecture, kind.format) == ("sglang", "blackwell", "fp8")
    assert correction.has_seen(model)  # under another name: the runs are of DeepSeek-R1


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
    where = resolve_cluster(cluster) if isinstance(cluster, str) else cluster
    work = Workload(phase="decode", context=context)
    return Deployment(where, resolve_model(model, weights=weights), work, **changes)


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
    unseen = deployed("hgx-b200", "olmoe-1b-7b")
    assert unseen.machine(StageSpec((0,), range(len(unseen.model.layers)))).correction is None


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


def test_the_nearest_values_in_order() -> None:
    random = np.random.default_rng(0)
    no_slower = np.triu(np.ones((4, 4), dtype=bool))
    no_slower[1, 2] = False  # 0 before 1 and 2, which are apart, before 3
    for _ in range(5):
        values, weights = random.normal(size=(4, 3)), random.uniform(0.1, 3.0, 4)
        ordered = in_order(values, weights, no_slower, range(4))
        assert (ordered[0] >= ordered[1:3] - 1e-12).all()
        assert (ordered[1:3] >= ordered[3] - 1e-12).all()
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
            np.testing.assert_allclose(ordered[:, point], best.x, atol=2e-3)
