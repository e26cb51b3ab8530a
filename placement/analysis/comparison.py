"""A comparison of clusters for one model as a result: its rows, the bill of each cluster, and the gains."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise, permutations

from cost.experts.loads import ExpertLoads
from cost.inputs.deployment import Deployment
from cost.money.bill import Bill, Totals
from cost.recipe import OtherRecipe
from cost.serving.lengths import Lengths
from cost.serving.points import LayoutPoint, frontier, layout_points, serving_points
from cost.serving.serving import Serving
from placement.analysis.compare import CompareRow, PoolLayout
from placement.analysis.gains import Gain, Rates, split_gains
from placement.plan import Plan
from placement.planner import make_plan
from topology.base.errors import InfeasibleError
from topology.base.shown import Shown

MAX_FRONTIER_POINTS = 60
"""Maximum points of whole requests on a frontier."""


@dataclass(frozen=True, eq=False)
class Placement:
    """A row of a comparison as it is laid out: its pools, and the plan of the first of them.

    There is no plan where none has the row's layout: ``reason`` says why.
    """

    row: CompareRow
    pools: Sequence[PoolLayout]
    plan: Plan | None = None
    reason: str = ""

    def batch(self, pool: int) -> float:
        """Return the sequences per GPU of a pool: those of the row where it is of whole requests and decodes."""
        return (self.row.batch if pool == 0 else None) or self.pools[pool][0].workload.batch


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(Shown):
    """Comparison of clusters for one model, one row per cluster and speed.

    Attributes
    ----------
    usual:
        Whether the rows are at the usual speed, since none was given.
    others:
        What the other recipe would bring at each speed where that is much.
    lengths, ttft_s, ttft_p99_s:
        Of whole requests, and the limits on the time to the first token without waiting and at the 99th percentile
        under load; None: one phase alone, no limit.
    scales, budget:
        How many times as many GPUs clusters have as are priced, by name, and what all may draw or cost, in words.
    rates:
        Returns tok/s/GPU of other machines at speeds per user; None of one phase alone.
    servings:
        Of whole requests, how each cluster serves them, by its name.
    placed_by:
        Loads by which experts are placed; None without experts.
    """

    rows: tuple[CompareRow, ...]
    deployments: tuple[Deployment, ...]
    loads: ExpertLoads | None
    usual: bool = False
    others: tuple[OtherRecipe, ...] = ()
    lengths: Lengths | None = None
    ttft_s: float | None = None
    ttft_p99_s: float | None = None
    scales: Mapping[str, float] = field(default_factory=dict)
    budget: str = ""
    rates: Callable[[Deployment, Sequence[float | None]], Rates] | None = None
    servings: Mapping[str, Serving] = field(default_factory=dict)
    placed_by: ExpertLoads | None = None

    @cached_property
    def bills(self) -> dict[str, Bill]:
        """Bill of all GPUs of each cluster, by name."""
        named = {deployment.cluster.name: deployment.bill for deployment in self.deployments}
        return named | {name: named[name].times(scale) for name, scale in self.scales.items() if scale != 1}

    def totals(self, row: CompareRow) -> Totals:
        """Return throughput, cost and power of the whole cluster of a row; no tokens if the speed is out of reach."""
        work, bill = self.deployments[0].workload, self.bills[row.cluster]
        return bill.totals(
            (row.tok_s_per_gpu or 0.0) * bill.gpus,
            work.token_word,
            phase=work.phase if self.lengths is None else "both",
            requests_per_s=row.requests_per_s,
        )

    @cached_property
    def gains(self) -> list[Gain]:
        """Gain of each cluster over the one before it at each speed, by cause; whole requests only."""
        if self.rates is None:
            return []
        rates, speeds = self.rates, len(self.rows) // len(self.deployments)
        targets = [row.target_tok_s_per_user for row in self.rows[:speeds]]
        reached = [row.tok_s_per_gpu for row in self.rows]
        sides = [(side, reached[at * speeds :][:speeds]) for at, side in enumerate(self.deployments)]
        return [
            gain
            for (old, old_rates), (new, new_rates) in pairwise(sides)
            for gain in split_gains(
                old, new, targets, (old_rates, new_rates), lambda side: rates(side, targets)
            )
        ]

    @cached_property
    def compared(self) -> list[CompareRow]:
        """The rows at the highest speed that the first cluster and another one reach; else any two, or one."""
        reached: dict[float, list[CompareRow]] = {}
        for row in self.rows:
            if row.tok_s_per_gpu is not None:
                reached.setdefault(row.target_tok_s_per_user or 0.0, []).append(row)
        several = {speed: rows for speed, rows in reached.items() if len(rows) > 1} or reached
        head = self.rows[0].cluster
        common = {speed: rows for speed, rows in several.items() if any(row.cluster == head for row in rows)}
        return reached[max(common or several)] if reached else []

    @cached_property
    def placements(self) -> list[Placement]:
        """The compared rows with the plan of their own layout, experts placed the fast way: takes seconds.

        Of two pools the plan is that of the one that decodes, at its own batch.
        """
        placements: list[Placement] = []
        for row in self.compared:
            layouts = row.layouts()
            try:
                deployment, fits, options = row.pools()[0]
                plan = make_plan(deployment, self.placed_by, options, layouts=fits)
            except InfeasibleError as error:
                placements.append(Placement(row, layouts, reason=str(error)))
            else:
                placements.append(Placement(row, [(plan.deployment, plan.layout), *layouts[1:]], plan))
        return placements

    def turned(self) -> Iterator[tuple[CompareRow, CompareRow]]:
        """Yield the faster and the slower of two rows whose order measured runs turned."""
        rows = [row for row in self.rows if row.tok_s_per_gpu]
        for fast, slow in permutations(rows, 2):
            fast_rate, slow_rate = fast.tok_s_per_gpu or 0.0, slow.tok_s_per_gpu or 0.0
            without = fast_rate * fast.near.factor < slow_rate * slow.near.factor
            if fast.target_tok_s_per_user == slow.target_tok_s_per_user and fast_rate > slow_rate and without:
                yield fast, slow

    @cached_property
    def frontiers(self) -> dict[str, list[LayoutPoint]]:
        """The best layouts and batches of each cluster, by its name; of whole requests some, evenly spaced."""
        points: dict[str, list[LayoutPoint]] = {}
        for side in self.deployments:
            serving = self.servings.get(side.cluster.name)
            if serving is not None:
                rows = serving.frontier()
                candidates = serving_points(serving, rows[:: -(-len(rows) // MAX_FRONTIER_POINTS) or 1])
            else:
                candidates = layout_points(side, None) if self.lengths is None else []
            points[side.cluster.name] = frontier(candidates)
        return points

    def brief(self) -> str:
        """Return the model, and what each cluster reaches."""
        word = self.deployments[0].workload.token_word
        rates = (
            f"{row.cluster} "
            + ("nothing" if row.tok_s_per_gpu is None else f"{row.tok_s_per_gpu:,.0f} {word} tok/s/GPU")
            for row in self.rows
        )
        sizes = sorted({row.gpus for row in self.rows})
        unequal = (
            f" ({' and '.join(f'{gpus:,}' for gpus in sizes)} GPUs)" if sizes[1:] and not self.budget else ""
        )
        return f"of {self.deployments[0].model.name}{unequal}: {', '.join(rates)}"
