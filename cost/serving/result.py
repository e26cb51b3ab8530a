"""What a cluster comes to that serves whole requests: the best way within the limits, and what it costs."""

from __future__ import annotations

from dataclasses import dataclass

from cost.calibration.errors import ErrorOf, errors_in
from cost.layouts import Sweep
from cost.money.bill import Bill, Totals
from cost.serving.pools import RateMatch
from cost.serving.serving import Serving, way_of
from cost.step.step import near_runs
from topology.base.shown import Shown

SPEEDS = (10.0, 20.0, 50.0, 100.0, 200.0)
"""Speeds per user at which the best layouts are listed."""


@dataclass(frozen=True, eq=False, repr=False)
class Pools(Shown):
    """How a cluster serves whole requests: by one pool for both phases, or by two.

    Attributes
    ----------
    tpot_s:
        Maximum time per output token of the best; None: the highest throughput.
    tpot_default, ttft_default:
        Whether the limit on the time per output token, and to the first one, is the default.
    ttft_p99_s, loaded:
        Longest time to the first token that 99 of 100 requests may see, and the best way under load; None: waiting
        is left out.
    """

    serving: Serving
    tpot_s: float | None = None
    tpot_default: bool = False
    ttft_default: bool = False
    ttft_p99_s: float | None = None
    loaded: RateMatch | None = None

    def brief(self) -> str:
        """Return what is served, and the best way."""
        best, deployment = self.best, self.serving.decode.deployment
        of = f"{deployment.model.name} on {deployment.cluster.name}, {self.serving.lengths.brief()}"
        if best is None:
            return f"{of}: nothing keeps the limits"
        return (
            f"{of}: {way_of(best)}, {best.output_tok_s_per_gpu:,.0f} output tok/s/GPU at "
            f"{best.tok_s_per_user:,.3g} tok/s/user, TTFT {best.ttft_s:,.2f} s"
        )

    @property
    def best(self) -> RateMatch | None:
        """The match with most throughput within the limits, and at the rate at which 99 of 100 requests keep them."""
        return self.loaded or self.serving.best(self.tpot_s)

    @property
    def errors(self) -> tuple[ErrorOf, ...]:
        """The errors of the chips of all pools, each once."""
        best, errors = self.best, list[ErrorOf]()
        if best is not None:
            _, side, row, _ = self.serving.sides(best)[-1]
            near = near_runs(side.deployment, side.layout_of(row), best.batch)
            return errors_in(side.deployment, near=near)
        for side in (self.serving.decode, self.serving.prefill):
            errors += errors_in(side.deployment)
        return tuple(dict.fromkeys(errors))

    @property
    def bill(self) -> Bill:
        """What the GPUs of all pools cost and draw, and those left over; a cluster of both is paid for once."""
        decode, prefill = self.serving.decode.deployment, self.serving.prefill.deployment
        bills = [decode.bill] if decode.cluster is prefill.cluster else [decode.bill, prefill.bill]
        return Bill.together(bills)

    def totals(self, row: RateMatch) -> Totals:
        """Return what a match gives, costs and draws, GPUs of no pool too."""
        return self.bill.totals(
            row.requests_per_s * row.osl,
            requests_per_s=row.requests_per_s,
            gpus_idle=row.gpus - row.gpus_used,
        )


def sweeps_of(answer: Sweep | Pools) -> list[Sweep]:
    """Return what was swept: one phase, or decode, prefill and both phases together, if they are."""
    if isinstance(answer, Sweep):
        return [answer]
    serving = answer.serving
    return [serving.decode, serving.prefill, *([] if serving.both is None else [serving.both])]
