"""Copies of experts that are fetched into quota slots, once a layer has routed the tokens of a micro-batch."""

from __future__ import annotations

from cost.dtypes import bytes_per_param
from cost.inputs.machine import Efficiency
from cost.inputs.workload import StepShape
from cost.terms.work import FIXED, PlacedExperts, StepCost, Term
from topology.base.figures import Evidence, Figure

_SOURCE = "UltraEP 1.0.0, README (July 2026), 64 GPUs of one NVLink domain, three levels of imbalance"
FETCH_REACH = Figure(
    0.79, "1", Evidence.DERIVED, f"{_SOURCE}: 706 to 715 GB/s of 900 (GB200)", "706 to 715 GB/s"
)
"""Part of a link's rate that the busiest sender reaches, one copy after the other: with 4, 5 and 6 copies of 37.7 MB
of the hottest expert it takes .214, .265 and .317 ms. Relays (.19 ms in each of these) are left out."""
PLAN_TIME = Figure(72e-6, "s", Evidence.MEASURED, f"{_SOURCE}: 67 to 78 us", "67 to 78 us")
"""Counting tokens over all GPUs and filling the slots; choosing each token's copy hides behind the fetch."""


def _add_placed(cost: StepCost, at: PlacedExperts, shape: StepShape, efficiency: Efficiency) -> None:
    """Fetches of each layer: loads are known after routing and tokens leave after it, so nothing hides them.

    But in two half batches: then one computes while the other fetches.
    """
    del shape
    filled, model = at.use.filled, at.deployment.model
    if filled is None or model.moe is None:
        return
    rates, scenarios = at.deployment.machine(at.stage).rates, at.use.share.shape[0]
    size = model.moe.expert_params * bytes_per_param(model.precision["experts"])
    peak_s = size * float(filled.busiest.sum()) / scenarios / rates.alltoall_bytes_per_s
    cost.busy(rates.up_fabric, peak_s)
    cost.add(FETCH.name, rates.up_fabric, peak_s if efficiency.ideal else peak_s / FETCH_REACH.value)
    if not efficiency.ideal:
        cost.add(FETCH.name, FIXED, PLAN_TIME.value * at.use.share.shape[1])


FETCH = Term(
    "fetch",
    "#117733",
    meaning="experts fetched into quota slots, which nothing hides but the other half batch",
    formula="layers x (time to plan + copies that the busiest GPU sends or receives x bytes of an expert / 79 % of "
    "the link rate)",
    sends=True,
    known_delays={"delay.quota": PLAN_TIME},
    of_placement=_add_placed,
)
