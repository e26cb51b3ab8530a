"""One cluster taken to another: both ends as a comparison has them, gains that multiply, steps nobody reaches."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import pytest

from cost.deployment import Deployment
from cost.loads import read_loads
from cost.workload import Workload
from helpers import few_layers
from placement import story
from placement.compare import CompareRow, compare_clusters
from placement.options import PlanOptions
from placement.story import Story, tell
from topology import InfeasibleError, InputError, resolve_cluster
from topology.cluster import Cluster

pytestmark = pytest.mark.wide

FAST = PlanOptions(time_limit_s=0.0)
MODEL = few_layers("mixtral-8x7b", 4)
LOADS = read_loads(["lognormal:0.63"], moe_layers=range(4), layers=4, experts=8, seed=0)


def told(first: str, second: str, target: float | None = 200.0) -> Story:
    where = Deployment(resolve_cluster(first), MODEL, Workload())
    return tell(where, resolve_cluster(second), LOADS, FAST, target)


@pytest.mark.parametrize("target", [200.0, None])
def test_ends_are_those_of_a_comparison_and_gains_multiply(target: float | None) -> None:
    names = "hgx-h100@16", "gb200-nvl72@16"
    found = told(*names, target)
    rows = compare_clusters(
        [resolve_cluster(name) for name in names], MODEL, Workload(), LOADS, FAST, [target] if target else ()
    )
    assert [found.first, found.last] == rows
    for order in (found.forward, found.backward):
        assert order[-1].row == rows[1]
        assert prod(step.gain or 1.0 for step in order) == pytest.approx(found.total)
    forward = [step.factor.name for step in found.forward]
    assert forward == [step.factor.name for step in found.backward][::-1]
    assert len(forward) > 4
    # more of a figure, all else equal, is never slower
    assert all(
        step.gain >= 1 - 1e-9 for step in (*found.forward, *found.backward) if step.factor.name != "kernels"
    )


def test_a_step_that_nobody_reaches_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    def few(clusters: list[Cluster], *args: object, **more: object) -> list[CompareRow]:
        rows = compare_clusters(clusters, *args, **more)  # type: ignore[arg-type]
        return [
            replace(row, tok_s_per_gpu=None, reason="too slow")
            if row.cluster.endswith("with HBM bandwidth of gb200-nvl72@16")
            else row
            for row in rows
        ]

    monkeypatch.setattr(story, "compare_clusters", few)
    found = told("hgx-h100@16", "gb200-nvl72@16")
    assert found.forward[0].gain is None
    assert found.forward[1].gain == pytest.approx(
        found.forward[1].row.tok_s_per_gpu / found.first.tok_s_per_gpu
    )
    assert prod(step.gain or 1.0 for step in found.forward) == pytest.approx(found.total)


def test_what_has_no_story() -> None:
    with pytest.raises(InputError, match="differ in nothing"):
        told("hgx-h100", "hgx-h100")
    with pytest.raises(InputError, match="equally many GPUs"):
        told("hgx-h100", "hgx-h200@16")
    with pytest.raises(
        InfeasibleError, match="without both of its ends: 1e\\+06 tok/s/user are out of reach"
    ):
        told("hgx-h100", "hgx-h200", 1e6)
