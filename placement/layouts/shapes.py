"""Enumerate layouts: for each replica the GPUs of its stages, before layers are split and experts placed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from cost.inputs.deployment import Deployment
from cost.inputs.layout import CutReplicas, Layout, Replica, StageWidths
from cost.layouts.candidates import (
    MAX_STAGES,
    Arrangement,
    Group,
    Hosts,
    arrangement_of,
    candidates,
    cuts,
    domain_gpus,
    equal_groups,
    replicas_of,
    widths_of,
)
from cost.layouts.contexts import context_widths
from cost.layouts.deployable import WIDTHS
from cost.layouts.idle_gpus import arranged_in
from cost.layouts.stages import Pricer
from placement.layouts.partition import stage_specs

TP_WIDTHS = (1, 2, 4, 8, 16, 32, 64)
"""Widths of tensor parallelism that engines take."""
EVERY_SIZE = 16
"""Sizes of a group that are all looked at for the fewest GPUs; of larger ones those that divide a domain."""


@dataclass(frozen=True)
class Shape:
    """A layout before its layers are split: for each replica, the GPUs of each of its stages in order.

    Widths as of :class:`cost.inputs.layout.Layout`. ``alike`` is as of :class:`cost.inputs.layout.CutReplicas`;
    empty where unknown. ``what``: the arrangement that it is of, if any.
    """

    replicas: tuple[tuple[tuple[int, ...], ...], ...]
    tp: int
    moe_tp: int = 1
    dcp: int = 1
    pcp: int = 1
    alike: tuple[tuple[int, int], ...] = field(default=(), compare=False)
    what: Arrangement | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, layout: Layout) -> Shape:
        """Return the shape of a layout."""
        groups = tuple(tuple(stage.gpus for stage in stages) for stages in layout.replicas)
        return cls(groups, **layout.widths)

    @property
    def widths(self) -> StageWidths:
        """As :attr:`cost.inputs.layout.Layout.widths`."""
        return {"tp": self.tp, "moe_tp": self.moe_tp, "dcp": self.dcp, "pcp": self.pcp}

    def split(self, ranges: Sequence[range]) -> Layout:
        """Return the layout whose stages have these layers."""
        replicas: Sequence[Replica] = tuple(stage_specs(groups, ranges) for groups in self.replicas)
        if self.alike:
            replicas = CutReplicas(self.replicas, ranges, self.alike)
        return Layout(replicas, **self.widths)


def enumerate_shapes(deployment: Deployment, *, cut_experts: bool = False) -> Iterator[Shape]:
    """Yield groups in the order of the cluster (:func:`cost.layouts.candidates.candidates`), at widths of plans."""
    always = candidates(deployment.cluster, deployment.model).always
    yield from arranged_shapes(deployment, always, cut_experts=cut_experts)


def shapes_of(deployment: Deployment, redundant: int | None, *, cut_experts: bool = False) -> Iterator[Shape]:
    """Yield the sweep's arrangements at widths that plans may have; domains that differ come in better orders too."""
    arranged = arranged_in(Pricer(deployment, redundant), alone=False)
    yield from arranged_shapes(deployment, arranged, cut_experts=cut_experts)


def arranged_shapes(
    deployment: Deployment, arranged: Iterable[Arrangement], *, cut_experts: bool = False
) -> Iterator[Shape]:
    """Yield arrangements at widths that plans may have.

    With ``cut_experts`` those too in which tensor parallelism cuts each expert over all GPUs of a stage.
    """
    for arrangement in arranged:
        widths, parts = widths_of(deployment.model, arrangement, cut_experts=cut_experts)
        for moe_tp in sorted({1, arrangement.group} & set(parts)):
            yield from (
                Shape(arrangement.replicas, tp, moe_tp, dcp, pcp, arrangement.alike, arrangement)
                for tp in widths
                if tp in TP_WIDTHS
                for dcp, pcp in context_widths(deployment, tp)
            )


def single_replicas(deployment: Deployment, below: int) -> Iterator[Arrangement]:
    """Yield replicas of fewer than ``below`` GPUs, alone on the first domains of each kind; the other GPUs stay idle.

    Groups are of every size up to :data:`EVERY_SIZE` and of those that divide a domain, inside one, or of any number
    of whole domains, with any number of stages: of those, what is deployable unless any shape will do.
    """
    cluster, deepest = deployment.cluster, min(MAX_STAGES, len(deployment.model.layers))
    hosts = None if deployment.any_shape else Hosts.of(cluster)
    kinds: dict[tuple[int, int], list[Group]] = {}
    for gpus in domain_gpus(cluster):
        kind = cluster.domain_kind[cluster.gpus[gpus[0]].domain]
        kinds.setdefault((kind, len(gpus)), []).append(gpus)
    for (_, size), domains in kinds.items():
        inside = {n for n in range(1, size + 1) if n <= EVERY_SIZE or size % n == 0 or n in WIDTHS}
        for wide in (*sorted(inside), *(size * count for count in range(2, len(domains) + 1))):
            if wide >= below:
                break
            groups = equal_groups(domains if hosts is None else hosts.cut(domains, wide), wide)
            for stages in range(1, min(deepest, len(groups), (below - 1) // wide) + 1):
                if hosts is None or hosts.deployable(wide, stages):
                    yield arrangement_of(cluster, (tuple(groups[:stages]),))


def of_one_kind(deployment: Deployment) -> Iterator[Arrangement]:
    """Yield arrangements over the domains of one kind of GPU alone, of each kind where there are several."""
    cluster, deepest = deployment.cluster, min(MAX_STAGES, len(deployment.model.layers))
    hosts = Hosts.of(cluster)
    kinds: dict[str, list[Group]] = {}
    for gpus in domain_gpus(cluster):
        kinds.setdefault(cluster.domain_of(gpus[0]).gpu.name, []).append(gpus)
    for domains in kinds.values() if len(kinds) > 1 else ():
        for size, groups in cuts(cluster, domains, any_shape=deployment.any_shape).items():
            for stages in range(1, min(deepest, len(groups)) + 1):
                if deployment.any_shape or hosts.deployable(size, stages, len(groups)):
                    yield arrangement_of(cluster, replicas_of(groups, stages))
