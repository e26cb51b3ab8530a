"""What a layout is chosen for: each goal against all candidates, the usual time per token, limits, tolerance."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from cost.experts.loads import read_loads
from cost.experts.traces.counts import Wanted
from cost.inputs.deployment import Deployment
from cost.inputs.workload import Workload
from cost.money.prices import PriceBook
from cost.resolve import resolve_model
from placement.layouts.choose import choose_layout
from placement.layouts.fitting import fitted_layouts
from placement.layouts.goals import aim_of
from placement.layouts.shapes import single_replicas
from placement.options import TOLERANCE, PlanOptions
from topology import build_cluster, load_domain, load_scale_out, resolve_cluster
from topology.cluster import ClusterSpec

pytestmark = pytest.mark.wide

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cost.experts.loads import ExpertLoads
    from placement.layouts.choose import Placed
    from placement.layouts.fitting import Fitted

MODEL = resolve_model("mixtral-8x7b")
LOADS = read_loads(["uniform"], Wanted(tuple(MODEL.moe_layers), 32, 8), seed=0)


@cache
def where(cluster: str = "hgx-h100@16", **asked: Any) -> Deployment:
    return Deployment(resolve_cluster(cluster), MODEL, Workload(**{"context": 512, **asked}))


KNOWN: dict[int, tuple[Deployment, Sequence[Fitted]]] = {}


def fits(deployment: Deployment) -> Sequence[Fitted]:
    """The layouts of a deployment, which is kept so that no other has its id."""
    if id(deployment) not in KNOWN:
        KNOWN[id(deployment)] = deployment, fitted_layouts(deployment, None)
    return KNOWN[id(deployment)][1]


def chosen(deployment: Deployment, loads: ExpertLoads | None = LOADS, **asked: Any) -> Placed:
    return choose_layout(deployment, loads, PlanOptions(time_limit_s=0, **asked), fits(deployment))


def test_the_least_latency_of_all_layouts() -> None:
    placed = chosen(where(), goal="latency", tolerance=0.0)
    assert placed.score.tpot_s == pytest.approx(
        min(fit.scorer.at(fit.least_batch).tpot_s for fit in fits(where()))
    )
    assert placed.score.batch == 1 / placed.candidate.layout.tp
    simple = chosen(where(), goal="latency")
    assert simple.score.tpot_s <= placed.score.tpot_s / (1 - TOLERANCE)


@pytest.mark.parametrize("tpot_s", [0.02, 0.05, "none"])
def test_the_fewest_gpus_that_hold_it(tpot_s: Any) -> None:
    deployment = where("hgx-h100@24")
    placed = chosen(deployment, goal="gpus", tpot_s=tpot_s)
    limit_s = None if tpot_s == "none" else tpot_s
    used = placed.candidate.layout.gpus_used
    assert len(placed.candidate.layout.replicas) == 1
    assert limit_s is None or placed.score.tpot_s <= limit_s
    # no replica of the cluster's even cuts has fewer, nor any single one

    def holds(fit: Fitted) -> bool:
        return limit_s is None or fit.scorer.at(1).tpot_s <= limit_s

    whole = [len(fit.layout.replicas[0]) * fit.layout.ep for fit in fits(deployment) if holds(fit)]
    assert used <= min(whole)
    fewer = fitted_layouts(deployment, None, arranged=single_replicas(deployment, used))
    assert not any(map(holds, fewer))


def two_kinds(**prices: float) -> Deployment:
    """Eight H100 and eight H20, which hold as much of the model and compute unlike."""
    domains = (load_domain("hgx-h100"), load_domain("hgx-h20"))
    spec = ClusterSpec("two-kinds", domains, load_scale_out("hgx-h100"))
    named = {name.replace("_", "-"): value for name, value in prices.items()}
    return Deployment(build_cluster(spec), MODEL, Workload(), prices=PriceBook(prices=named, powers=named))


@pytest.mark.parametrize(
    ("goal", "h100", "h20", "kept"), [("usd", 1.0, 100.0, {0}), ("power", 100.0, 0.5, {1})]
)
def test_dear_gpus_stay_idle_where_cost_counts(goal: Any, h100: float, h20: float, kept: set[int]) -> None:
    watts = 1000 if goal == "power" else 1
    deployment = two_kinds(h100_sxm=h100 * watts, h20_sxm=h20 * watts)
    placed = chosen(deployment, goal=goal)
    used = {
        deployment.cluster.gpus[gpu].domain
        for stages in placed.candidate.layout.replicas
        for stage in stages
        for gpu in stage.gpus
    }
    assert used == kept
    for fit in fits(deployment):
        for row in fit.scorer.alike:
            layout, scorer = fit.scorer.of_replicas(row)
            score = scorer.at(1)
            assert aim_of(deployment, goal)(layout, score) <= placed.worth
