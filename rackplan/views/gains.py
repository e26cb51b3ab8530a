"""Why each cluster of a comparison is faster than the one before it, in words and as a waterfall chart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from placement.analysis.gains import Gain
from rackplan.views.blocks import Block, Chart, Heading, Text, labelled
from rackplan.views.charts import gains_chart
from rackplan.views.data import taken
from rackplan.views.pareto import HEIGHT

LEGEND = (
    "Changes are applied one by one in this order, and each intermediate machine is priced at the same "
    "speed per user: formats "
    "(of weights and cache, drafts, overlap, units beside BF16), HBM bandwidth and capacity, flop/s (the BF16 peak, "
    "others in proportion), domain (size and structure, hosts), fabric (rates and latencies of both); kernels are "
    "what calibration and measured runs add beyond the figures of the chips. The product of the factors is the gain."
)


@dataclass(frozen=True, kw_only=True)
class GainData:
    """Gain of a cluster over the one before it.

    Attributes
    ----------
    from, to, tok_s_per_user:
        Names of both, and the speed compared at; null: as much as fits.
    gain, factors, reason:
        tok/s/GPU over that of the one before (null: out of reach), and as the product of what changes one after the
        other: formats, HBM bandwidth, HBM capacity, flop/s, domain, fabric, and kernels, delays and correction by
        measured runs. A null is in the next one; empty for the ``reason``.
    """

    from_: Annotated[str, Field(alias="from")]
    to: str
    tok_s_per_user: float | None
    gain: float | None
    factors: dict[str, float | None]
    reason: str


def gains_data(gains: Sequence[Gain]) -> list[GainData]:
    """Return gains as data."""
    return [
        taken(GainData, one, **{"from": one.before, "to": one.after}, factors=dict(one.factors))
        for one in gains
    ]


def gain_words(gain: Gain) -> str:
    """Return a gain and its factors: ``a to b, 3.33x: HBM bandwidth 1.14x, flop/s 2.22x``."""
    at = f" at {gain.tok_s_per_user:g} tok/s/user" if gain.tok_s_per_user else ""
    factors = ", ".join(f"{step} {factor:.2f}x" for step, factor in gain.counting())
    why = f"not broken down, {gain.reason}" if gain.reason else factors or "no relevant difference"
    return f"{gain.before} to {gain.after}{at}, {gain.gain or 0.0:.2f}x: {why}"


def gain_blocks(gains: Sequence[Gain]) -> list[Block]:
    """Return all gains, and a legend of the factors."""
    lines = labelled("Gains", *map(gain_words, gains))
    return [Heading("Breakdown of gains", 2, folded=True), *lines, Text(LEGEND)] if lines else []


def gain_chart(gains: Sequence[Gain], tokens: str) -> list[Block]:
    """Return the chart of gains at one speed, from the first cluster to the last."""
    split = [gain for gain in gains if gain.factors]
    chart = gains_chart([(gain, gain.counting()) for gain in split], tokens)
    says = "; ".join(map(gain_words, split))
    title = Heading("Gain of each cluster over the one before", 2)
    return [title, Chart("gains", chart, says, HEIGHT)] if split else []
