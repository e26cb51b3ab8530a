"""Stages as sums of single layers, the frontier against brute force, and what steps are spent on."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost.inputs.deployment import Deployment
from cost.inputs.workload import Workload
from cost.layouts import Sweep, best_at, sweep
from cost.layouts.candidates import _candidates, candidates
from cost.layouts.front import pareto
from cost.layouts.partition import variants_of
from cost.layouts.pipelines import Widths, pipelines_of, stage_seconds
from cost.layouts.stages import Pricer
from cost.resolve import resolve_model
from topology import build_cluster, resolve_cluster
from topology.base.errors import InputError
from topology.changes.overrides import overrides


@pytest.mark.parametrize(
    ("model", "workload", "imbalance"),
    [
        ("deepseek-v2-lite", Workload(draft_tokens=1, accept_length=1.5), 1.0),
        ("deepseek-v2-lite", Workload(overlap=True), None),
        ("gpt-oss-20b", Workload(phase="prefill", context=900), 1.3),
    ],
)
def test_stages_are_sums_of_their_layers(model: str, workload: Workload, imbalance: float | None) -> None:
    deployment = Deployment(resolve_cluster("hgx-h100@16"), resolve_model(model), workload)
    pricer = Pricer(deployment)
    some = candidates(deployment.cluster, deployment.model).always[:12]
    pipelines = pipelines_of(pricer, variants_of(pricer, some), [pricer.lines(what) for what in some])
    stages = pipelines.stages
    every = np.arange(len(stages.machine))
    one = np.ones(len(every), dtype=np.int64)
    rng = np.random.default_rng(1)
    tp = np.where(stages.gpus % 2 == 0, rng.integers(1, 3, len(every)), one)
    batch = rng.integers(1, 40, len(every)) / tp
    asked = Widths(tp, one, batch, imbalance)
    found = stage_seconds(pricer, stages, every, every, asked)
    shape = pricer.shape(stages, every, tp=tp, moe_tp=one, batch=batch, imbalance=imbalance)
    told = pricer.seconds(stages, every, shape, stages.held(deployment, every))
    assert found == pytest.approx(told.step_s, rel=1e-12)


def test_parts_of_a_few_are_those_of_all() -> None:
    found = sweep(Deployment(resolve_cluster("hgx-h100@16"), resolve_model("deepseek-v2-lite"), Workload()))
    edge = found.frontier()
    few = found.rows(edge).rows(range(len(edge) - 1, -1, -3))
    which = edge[::-3]
    assert few.step_s.tolist() == found.step_s[which].tolist()
    assert few.lower_step_s.tolist() == found.lower_step_s[which].tolist()
    assert [few.bound(at) for at in range(len(few))] == [found.bound(int(at)) for at in which]
    for name, seconds in few.terms_s.items():
        assert seconds.tolist() == found.terms_s[name][which].tolist()
    assert sum(found.terms_s.values()) == pytest.approx(found.step_s, rel=1e-12)
    assert (found.lower_step_s <= found.step_s).all()


def test_nothing_that_is_kept_changes_an_answer() -> None:
    """Sweeps of the same figures are equal to the byte, whatever was priced before."""

    def priced(cluster: str, factor: str) -> list[bytes]:
        where = resolve_cluster(cluster)
        (where,) = overrides([where], [f"gpu.hbm_bytes_per_s={factor}"])
        spec = where.spec
        found = sweep(Deployment(build_cluster(spec), resolve_model("deepseek-v2-lite"), Workload()))
        return [np.asarray(values).tobytes() for values in found.columns().values()]

    _candidates.cache_clear()
    first = priced("hgx-h100@16", "2x")
    others = [priced("hgx-h200@16", "2x"), priced("hgx-h100@16", "0.5x"), priced("hgx-h100@24", "2x")]
    assert priced("hgx-h100@16", "2x") == first
    assert first not in others


@given(st.sampled_from([(4,), (4, 4), (2, 2, 2)]), st.integers(0, 2), st.integers(0, 2), st.floats(1, 8))
def test_more_bandwidth_is_never_slower(
    toy: SimpleNamespace, sizes: tuple[int, ...], moe: int, part: int, more: float
) -> None:
    def swept(factor: float) -> Sweep:
        hbm, link, out = (factor if place == part else 1.0 for place in range(3))
        domains = (toy.domain(size, link=link * 1e10, chip=toy.gpu(hbm_rate=hbm * 1e12)) for size in sizes)
        where = toy.cluster(*domains, out=out * 1e10)
        return sweep(toy.deployment(where, toy.model(moe=moe), batch=0, efficiency=toy.coefficients(False)))

    both = swept(1.0), swept(more)
    for speed in (0.0, *np.quantile(both[0].tok_s_per_user, (0.5, 0.9, 1.0)) * (1 - 1e-9)):
        least, most = (one.tok_s_per_gpu[best_at(one, speed)] for one in both)
        assert most >= least * (1 - 1e-9)


COORDINATE = st.one_of(
    st.integers(-3, 3).map(float), st.sampled_from([math.nan, math.inf, -math.inf, 0.5]), st.floats(-5, 5)
)


def brute(points: list[tuple[float, float]]) -> list[int]:
    """Every point against every other, by the definition."""
    kept = []
    for i, (x, y) in enumerate(points):
        if math.isnan(x) or math.isnan(y):
            continue
        beaten = any(
            (u >= x and v >= y and (u > x or v > y)) or ((u, v) == (x, y) and j < i)
            for j, (u, v) in enumerate(points)
            if j != i
        )
        if not beaten:
            kept.append(i)
    return sorted(kept, key=lambda i: points[i][0])


@given(st.lists(st.tuples(COORDINATE, COORDINATE), max_size=12))
@settings(max_examples=60, deadline=None)
def test_as_brute_force(points: list[tuple[float, float]]) -> None:
    x, y = [p[0] for p in points], [p[1] for p in points]
    assert pareto(x, y).tolist() == brute(points)


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 4), st.sampled_from([0.1, 0.2, 0.3, 7e9])), max_size=30
    )
)
@settings(max_examples=60, deadline=None)
def test_groups_do_not_beat_each_other(points: list[tuple[int, int, float]]) -> None:
    group, x, y = (np.array(each) for each in zip(*points, strict=True)) if points else (np.arange(0),) * 3
    alone: list[int] = []
    for one in range(4):
        rows = np.flatnonzero(group == one)
        alone += rows[pareto(x[rows], y[rows])].tolist()
    assert pareto(x, y, group).tolist() == alone


def test_lengths_must_agree() -> None:
    with pytest.raises(InputError, match="equal lengths"):
        pareto([1, 2], [1])
