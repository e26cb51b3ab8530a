"""Fleets as what units of a machine give, for sizes: replicas of different shapes where one shape wastes GPUs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from cost.inputs.deployment import Deployment
from cost.serving.lengths import Lengths
from cost.serving.sizing import Demand
from cost.serving.supply import Pool, ProofData, Served, merged
from placement.budget import Budget
from placement.fleet.fleet import make_fleet
from placement.fleet.options import PREFILL, WORTH_S, FleetOptions, Traffic
from topology.base.errors import InfeasibleError, NoAnswerError
from topology.changes.repeat import repeated

SEARCH_S = 2.5
"""Work of one fleet: a size shall not keep anybody waiting, and has no clock."""


@dataclass(eq=False)
class FleetOnUnits:
    """Makes one fleet on all of so many units joined, each number once (:data:`cost.serving.units.FleetOn`).

    Attributes
    ----------
    deployment:
        Model, workload and the cluster that is the unit.
    lengths:
        Tokens of prompts and answers, all alike; None: decode alone.
    """

    deployment: Deployment
    demand: Demand
    lengths: Lengths | None = None
    redundant: int | None = None
    imbalance: float | None = None
    _outcomes: dict[int, Served | InfeasibleError | NoAnswerError] = field(default_factory=dict)

    def __call__(self, units: int) -> Served:
        """Return what one fleet on all of ``units`` gives.

        Raises
        ------
        InfeasibleError, NoAnswerError
            If there is none.
        """
        if units not in self._outcomes:
            try:
                self._outcomes[units] = self._served(units)
            except (InfeasibleError, NoAnswerError) as error:
                self._outcomes[units] = error
        outcome = self._outcomes[units]
        if not isinstance(outcome, Served):
            raise outcome
        return outcome

    def _served(self, units: int) -> Served:
        cluster = repeated(self.deployment.cluster, units)
        lengths, demand = self.lengths, self.demand
        traffic = Traffic.of(
            [replace(self.deployment, cluster=cluster)],
            (1.0,),
            lengths,
            (demand.tpot_s, demand.ttft_s),
            redundant=self.redundant,
        )
        if self.imbalance is not None:
            traffic = replace(traffic, imbalance=self.imbalance)
        budget = Budget(None).part(SEARCH_S / WORTH_S)
        fleet = make_fleet(cluster, traffic, FleetOptions(goal="throughput"), budget=budget)
        if fleet.interrupted:
            raise KeyboardInterrupt
        moe = self.deployment.model.moe is not None
        decode = fleet.traffic.deployments[0][0].workload
        slowest_s = max(pool.step_s for pool in fleet.pools if pool.role != PREFILL)
        return Served(
            units=units,
            tok_s=fleet.tok_s,
            tok_s_per_user=decode.tokens_per_step / slowest_s,
            pools=merged(
                Pool(
                    role=pool.role,
                    layout=pool.column.label(moe=moe),
                    workers=len(pool.replicas),
                    gpus_per_worker=pool.column.shape.gpus,
                    batch=fleet.batch(pool),
                    step_s=pool.step_s,
                )
                for pool in fleet.pools
            ),
            joined=units,
            proof=ProofData(**vars(fleet.proof)),
            requests_per_s=None if self.lengths is None else fleet.requests_per_s,
        )
