"""The story of two clusters: one taken to the other a factor at a time, in both orders, each step priced alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from cost.deployment import Deployment
from cost.loads import ExpertLoads
from placement.compare import CompareRow, compare_clusters
from placement.options import PlanOptions
from topology.build import build_cluster
from topology.cluster import Cluster
from topology.errors import InfeasibleError, InputError
from topology.factors import Factor, between, differences


@dataclass(frozen=True)
class StoryStep:
    """A factor of the second cluster taken, and what the cluster does then.

    Attributes
    ----------
    factor:
        What is taken, besides all that was taken before it in this order.
    row:
        The best at the service level.
    gain:
        Throughput over that before: of the last step that reaches the service level. None where this one does not.
    """

    factor: Factor
    row: CompareRow
    gain: float | None


@dataclass(frozen=True)
class Story:
    """How the first cluster becomes the second.

    Attributes
    ----------
    first, last:
        What the two reach, as a comparison of them says.
    forward, backward:
        The factors that differ, one after the other: as listed, and from the last of them to the first.
    """

    first: CompareRow
    last: CompareRow
    forward: tuple[StoryStep, ...]
    backward: tuple[StoryStep, ...]

    @property
    def total(self) -> float:
        """Throughput of the second over that of the first: the product of the gains of either order."""
        return _reached(self.last) / _reached(self.first)

    @property
    def by_factor(self) -> Iterator[tuple[StoryStep, StoryStep]]:
        """Yield the two steps of each factor: forward, and backward."""
        return zip(self.forward, reversed(self.backward), strict=True)


def tell(
    first: Deployment,
    second: Cluster,
    loads: ExpertLoads | None,
    options: PlanOptions,
    target: float | None,
    *,
    on_progress: Callable[[str], None] | None = None,
) -> Story:
    """Return the story of two clusters at ``target`` tok/s/user (None: as much throughput as fits).

    ``first`` has the one that it begins with, and what both run; every step is priced as
    :func:`placement.compare.compare_clusters` does.

    Raises
    ------
    InputError
        If the clusters have different numbers of GPUs, do not differ, or no factor of one can be moved alone.
    InfeasibleError
        If one of the two does not reach the target.
    """
    start, model = first.cluster, first.model
    factors = differences(start.spec, second.spec)
    if not factors:
        raise InputError(
            f"{start.name} and {second.name} differ in nothing that a step depends on; give two that do."
        )
    paths = (factors, factors[::-1])
    clusters: dict[frozenset[str], Cluster] = {frozenset(): start}
    for path in paths:
        for count in range(1, len(path) + 1):
            taken = frozenset(factor.name for factor in path[:count])
            if taken not in clusters:
                whole = count == len(path)
                clusters[taken] = second if whole else build_cluster(between(start.spec, second.spec, taken))
    # the two themselves first: what they cannot do need not be told
    ends = [frozenset(), frozenset(factor.name for factor in factors)]
    order = [*ends, *(taken for taken in clusters if taken not in ends)]

    def rows_of(some: Sequence[frozenset[str]]) -> list[CompareRow]:
        sides = [clusters[taken] for taken in some]
        targets = () if target is None else (target,)
        shared = model, first.workload, loads, options, targets
        return compare_clusters(sides, *shared, engine=first.engine, on_progress=on_progress)

    rows = dict(zip(ends, rows_of(ends), strict=True))
    for row in rows.values():
        if row.tok_s_per_gpu is None:
            raise InfeasibleError(f"no story without both of its ends: {row.reason}")
    rows |= zip(order[2:], rows_of(order[2:]), strict=True)
    forward, backward = (tuple(_steps(path, rows)) for path in paths)
    return Story(rows[ends[0]], rows[ends[1]], forward, backward)


def _steps(path: Sequence[Factor], rows: dict[frozenset[str], CompareRow]) -> Iterator[StoryStep]:
    before, taken = _reached(rows[frozenset()]), frozenset[str]()
    for factor in path:
        taken |= {factor.name}
        row = rows[taken]
        if row.tok_s_per_gpu is None:
            yield StoryStep(factor, row, None)
        else:
            yield StoryStep(factor, row, row.tok_s_per_gpu / before)
            before = row.tok_s_per_gpu


def _reached(row: CompareRow) -> float:
    return row.tok_s_per_gpu or 0.0
