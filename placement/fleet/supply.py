"""Fleets as what units of a machine give, for sizes: replicas of different shapes where one shape wastes GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from cost.deployment import Deployment
from cost.lengths import Lengths
from cost.sizing import Demand
from cost.supply import Pool, Served, merged
from placement.budget import Budget
from placement.fleet.columns import DECODE, Traffic
from placement.fleet.fleet import Fleet, make_fleet
from placement.fleet.options import WORTH_S, FleetOptions
from topology.base.errors import InfeasibleError, NoAnswerError
from topology.repeat import repeated

SEARCH_S = 2.5
"""Work of one fleet: a size shall not keep anybody waiting, and has no clock."""


@dataclass(eq=False)
class FleetSupply:
    """Fleets on one unit, or on two where the model does not fit one, as often as there are such (:class:`Supply`).

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
    joinable: Sequence[int] = (1,)
    _found: dict[int, Fleet | InfeasibleError | NoAnswerError] = field(default_factory=dict)

    @property
    def tpots(self) -> NDArray[np.float64]:
        """None: each fleet is of one limit."""
        return np.zeros(0)

    def rate(self, units: int, tpot_s: float | None) -> float:  # noqa: ARG002 - the limit is that of the demand
        """Return the output tokens per second of fleets on ``units``, each on as few of them as the model fits."""
        joined = self._joined()
        return 0.0 if joined is None else units // joined * self._tok_s(joined)

    def on(self, units: int) -> float:
        """Return the output tokens per second of one fleet on all of ``units``; 0 where there is none."""
        return self._tok_s(units)

    def served(self, units: int, tpot_s: float | None) -> Served:  # noqa: ARG002
        """Return how that rate is reached."""
        joined = self._joined()
        if joined is None:
            raise self.refusal
        return self.served_by(joined, units // joined, units)

    def served_by(self, joined: int, times: int, units: int) -> Served:
        """Return what fleets on ``joined`` units give, ``times`` of them."""
        fleet = self._fleet(joined)
        if not isinstance(fleet, Fleet):
            raise fleet
        moe = self.deployment.model.moe is not None
        decode = fleet.traffic.deployments[0][0].workload
        slowest_s = max(pool.column.step_s for pool in fleet.pools if pool.role == DECODE)
        return Served(
            units=units,
            tok_s=times * fleet.tok_s,
            tok_s_per_user=decode.tokens_per_step / slowest_s,
            pools=merged(
                Pool(
                    role=pool.role,
                    layout=pool.column.label(moe=moe),
                    replicas=times * len(pool.replicas),
                    gpus=pool.column.shape.gpus,
                    batch=pool.column.batch,
                    step_s=pool.column.step_s,
                )
                for pool in fleet.pools
            ),
            joined=joined,
            proof={
                "status": fleet.proof.status,
                "objective": fleet.proof.objective,
                "bound": fleet.proof.bound,
                "gap": fleet.proof.gap,
            },
            requests_per_s=None if self.lengths is None else times * fleet.requests_per_s,
        )

    @property
    def refusal(self) -> InfeasibleError | NoAnswerError:
        """Why there is no fleet on any number of units."""
        last = self._fleet(max(self._found))
        return InfeasibleError(str(last)) if isinstance(last, Fleet) else last

    def _joined(self) -> int | None:
        """The fewest units that a fleet fits; a raw graph, or one without a fabric, is not joined to another."""
        spec = self.deployment.cluster.spec
        for units in (1,) if spec.raw is not None or spec.scale_out is None else (1, 2):
            if isinstance(self._fleet(units), Fleet):
                return units
        return None

    def _tok_s(self, units: int) -> float:
        fleet = self._fleet(units)
        return fleet.tok_s if isinstance(fleet, Fleet) else 0.0

    def _fleet(self, units: int) -> Fleet | InfeasibleError | NoAnswerError:
        if units not in self._found:
            cluster = repeated(self.deployment.cluster, units)
            options = FleetOptions(goal="throughput")
            try:
                traffic = self._traffic(replace(self.deployment, cluster=cluster))
                budget = Budget(None).part(SEARCH_S / WORTH_S)
                found = make_fleet(cluster, traffic, options, budget=budget)
            except (InfeasibleError, NoAnswerError) as error:
                self._found[units] = error
            else:
                if found.interrupted:
                    raise KeyboardInterrupt
                self._found[units] = found
        return self._found[units]

    def _traffic(self, deployment: Deployment) -> Traffic:
        lengths, usual = self.lengths, 1.0 if self.lengths is None else None
        decode, prefill = deployment, None
        if lengths is not None:
            decoding, [(_, prefilling)] = lengths.workloads(deployment.workload)
            decode, prefill = (replace(deployment, workload=one) for one in (decoding, prefilling))
        return Traffic(
            deployments=((decode, prefill),),
            shares=(1.0,),
            isl=0 if lengths is None else lengths.isl[0],
            osl=1 if lengths is None else lengths.osl[0],
            tpot_s=self.demand.tpot_s,
            ttft_s=self.demand.ttft_s,
            imbalance=usual if self.imbalance is None else self.imbalance,
            redundant=self.redundant,
        )
