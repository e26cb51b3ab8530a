"""One lever of a plan: the limit, the result, and the rate that the gain refers to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from placement.layouts.choose import batch_within
from placement.plan import Plan
from placement.scoring import placement_scorer

Kind = Literal["hardware", "workload", "precision", "layout"]
MIN_BATCH_GAIN = 1.05
"""How much larger the largest batch within a time may be than a plan's that was made for that time."""


@dataclass(frozen=True)
class ServiceLevel:
    """Limits that apply to a plan under every change.

    Attributes
    ----------
    tpot_s:
        Longest time per output token; None: none was asked for, and the batch is the largest that fits.
    asked:
        Whether the plan was made for that time; otherwise it is the plan's own.
    """

    tpot_s: float | None
    asked: bool

    @classmethod
    def of(cls, plan: Plan) -> ServiceLevel:
        """Return the time per token that a plan was made for; its own where its batch was chosen otherwise."""
        limit_s = plan.limit_s
        if not plan.deployment.workload.decodes or plan.request.goal == "latency":
            return cls(None, asked=False)
        full = plan.score.batch >= plan.score.max_batch
        if limit_s is not None and plan.over_limit is None:
            scorer, _ = placement_scorer(plan)
            # a batch that was given is well below what the time allows
            if (
                full
                or batch_within(scorer, scorer.max_batch, limit_s) <= 1 + MIN_BATCH_GAIN * plan.score.batch
            ):
                return cls(limit_s, asked=True)
        return cls(None if full else plan.score.tpot_s, asked=False)


def rate_of(plan: Plan) -> str:
    """Return which rate of a score counts for the goal of a plan.

    That of a GPU of the cluster, of those in use where the goal leaves some idle, of a user for the least latency.
    """
    special = dict.fromkeys(("gpus", "usd", "power"), "tok_s_per_gpu_used") | {"latency": "tok_s_per_user"}
    return special.get(plan.request.goal, "tok_s_per_gpu")


@dataclass(frozen=True)
class Reached:
    """Result of a change.

    Attributes
    ----------
    tok_s_per_gpu, tok_s_per_gpu_used, tok_s_per_user:
        Over all GPUs, over those in use, of one user.
    step_s, batch, layout:
        The step, the sequences per GPU, and the layout.
    gain:
        Over the plan's rate (:func:`rate_of`), as a fraction.
    """

    tok_s_per_gpu: float
    tok_s_per_gpu_used: float
    tok_s_per_user: float
    step_s: float
    batch: float
    layout: str
    gain: float


@dataclass(frozen=True)
class Lever:
    """One change, with its result or the reason why it is not possible.

    Attributes
    ----------
    change, to:
        By how much (``x2``), and what it is then (``16 TB/s``).
    batch_kept, layout_kept, layout_free:
        With placement and batch as in the plan; with the placement; with neither (None: nobody looked).
    note:
        What is odd about the change; empty where nothing is.
    """

    name: str
    kind: Kind
    change: str
    to: str
    batch_kept: Reached | str
    layout_kept: Reached | str
    layout_free: Reached | str | None = None
    note: str = ""

    @property
    def gain(self) -> float:
        """Gain with the same layout; if not possible, with any layout; -1 if neither is possible."""
        for result in (self.layout_kept, self.layout_free):
            if isinstance(result, Reached):
                return result.gain
        return -1.0
