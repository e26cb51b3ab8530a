"""Attention apart from the experts: how many GPUs of a replica have which, in how many micro-batches.

All ratios are priced at once with equally loaded experts; the best of them are layouts like any other from there on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import NoReturn

import numpy as np

from cost.inputs.deployment import Deployment
from cost.inputs.layout import POOLS_APART, Apart, Layout, StageSpec
from cost.layouts.candidates import MAX_REPLICA_GPUS, Group, Hosts, cuts, domain_gpus, equal_groups
from cost.memory.batches import batch_of, sequences_of
from cost.memory.stages import layout_memory, replica_max_batch
from cost.quantity import Quantity
from cost.step.apart import MICRO_BATCHES, Sides, Turns, apart_turns, require_apart
from cost.step.score import LayoutScorer
from placement.arrays import Floats, Ints
from placement.layouts.fitting import Fitted, balanced_uses, copies_of, stage_slots
from placement.layouts.refuse import refuse_speed
from placement.layouts.shapes import Shape
from placement.options import AUTO, PlanOptions
from topology.base.errors import InfeasibleError, InputError, input_name
from topology.cluster import Cluster

TP_WIDTHS = (1, 2, 4, 8)
"""Widths of attention groups: those of a host."""
QUARTERS_UP_TO = 96
"""GPUs of a replica up to which pools may be of quarter nodes; beyond, of whole ones."""
PLACED = 6
"""Of the ratios that are priced, those whose experts may be placed."""


@dataclass(frozen=True, eq=False)
class Ratios:
    """Layouts of all ratios, with as many sequences as the limit and the memory allow; arrays are ``[layouts]``.

    Attributes
    ----------
    sequences:
        Of each attention group; 0 where none holds the limit.
    step_s:
        Seconds of a step; with one sequence a group where none holds the limit.
    tok_s:
        Output tokens per second of all replicas.
    most_tok_s:
        What no ratio gives more of on all GPUs of the cluster: an attention GPU and an expert GPU as fast as any that
        was priced for the limit, in the proportion that keeps both busy.
    """

    deployment: Deployment
    layouts: tuple[Layout, ...]
    sequences: Ints
    step_s: Floats
    tok_s: Floats
    most_tok_s: float

    @cached_property
    def order(self) -> Ints:
        """Those that hold the limit, the fastest first; of equal ones the simplest."""
        turns = [layout.apart.micro_batches if layout.apart else 1 for layout in self.layouts]
        simple = [(layout.tp, len(layout.replicas)) for layout in self.layouts]
        order = np.lexsort([turns, *np.array(simple, dtype=np.int64).reshape(-1, 2).T, -self.tok_s])
        return np.asarray(order[self.tok_s[order] > 0], dtype=np.int64)

    def fitted(self, row: int, options: PlanOptions) -> Iterator[Fitted]:
        """Yield one of them as a layout that fits, with each number of copies that the options leave open."""
        layout, deployment = self.layouts[row], self.deployment
        shape, batch = Shape.of(layout), deployment.workload.batch
        copies = copies_of(deployment, shape, options.copies)
        for slots in filter(
            None, (stage_slots(deployment, shape, count, options.spread) for count in copies)
        ):
            scorer = LayoutScorer(deployment, layout, balanced_uses(deployment, layout, slots))
            if scorer.max_batch >= (batch or batch_of(1, layout.group_gpus)):
                yield Fitted(layout, slots, scorer, batch or scorer.max_batch, bool(batch))


def asked_ratio(afd: str) -> tuple[int, int] | None:
    """Return the GPUs of attention and of experts that ``M:N`` asks for; None of ``auto``.

    Raises
    ------
    InputError
        If it is neither.
    """
    if afd == AUTO:
        return None
    left, colon, right = afd.partition(":")
    if not (colon and left.isdecimal() and right.isdecimal() and int(left) and int(right)):
        raise InputError(
            "expected off, auto, or GPUs of attention and experts like 48:24.", field="afd", value=afd
        )
    return int(left), int(right)


def apart_fits(
    deployment: Deployment, options: PlanOptions, limit_s: float | None
) -> tuple[list[Fitted], float]:
    """Return the best layouts with attention apart, and the most tok/s of any ratio (:attr:`Ratios.most_tok_s`).

    Raises
    ------
    InputError
        If the model or the workload has no such layouts.
    InfeasibleError
        If none of the ratio that is asked for fits, or holds the limit.
    """
    ratios = price_ratios(deployment, options, limit_s)
    if not len(ratios.order) and options.afd != AUTO:
        tokens = deployment.workload.tokens_per_step
        refuse_speed(deployment, limit_s, float(ratios.step_s.min()) / tokens)
    rows = ratios.order[:PLACED].tolist()
    return [fit for row in rows for fit in ratios.fitted(row, options)], ratios.most_tok_s


def price_ratios(deployment: Deployment, options: PlanOptions, limit_s: float | None) -> Ratios:
    """Price every ratio of attention to expert GPUs, at the most sequences within ``limit_s`` a token.

    Raises
    ------
    InputError, InfeasibleError
        As of :func:`apart_fits`, whatever the limit.
    """
    require_apart(deployment.model, deployment.workload)
    if (deployment.dcp or 1) > 1:
        raise InputError(
            "attention apart from the experts: its caches are not split over GPUs; leave one of the two out.",
            field="dcp",
            value=deployment.dcp,
        )
    rows: dict[tuple[object, ...], list[_Row]] = {}
    for layout, slots in _layouts(deployment, options):
        row = _Row.of(deployment, layout, slots)
        if row.most:
            sides = row.sides
            rows.setdefault(
                (id(sides.attention), id(sides.experts), id(sides.links), sides.crosses), []
            ).append(row)
    known = [row for group in rows.values() for row in group]
    if not known and options.afd != AUTO:
        _refuse_ratio(deployment, options)
    if not known:
        return Ratios(deployment, (), np.zeros(0, np.int64), np.zeros(0), np.zeros(0), 0.0)
    priced = [_Priced(deployment, group) for group in rows.values()]
    tokens = deployment.workload.tokens_per_step
    limit = np.inf if limit_s is None else limit_s * tokens
    sequences = np.concatenate([part.most_within(limit) for part in priced])
    step_s = np.concatenate([part.step_s for part in priced])
    groups = np.array([len(row.layout.replicas) * row.layout.attention_dp for row in known])
    attends = max(part.attention_per_s(limit) for part in priced)
    holds = max(part.experts_per_s(limit) for part in priced)
    most = (
        tokens * len(deployment.cluster.gpus) * attends * holds / (attends + holds)
        if attends and holds
        else 0.0
    )
    return Ratios(
        deployment,
        tuple(row.layout for row in known),
        sequences,
        step_s,
        tokens * groups * sequences / step_s,
        most,
    )


def _refuse_ratio(deployment: Deployment, options: PlanOptions) -> NoReturn:
    """Raise InfeasibleError: what binds where no layout of the ratio that is asked for fits."""
    whose = f"{input_name('afd')} {options.afd} of {deployment.model.name} on {deployment.cluster.name}"
    lacking, batch = list[tuple[float, str, float]](), deployment.workload.batch
    for layout, slots in _layouts(deployment, options):
        least = batch or batch_of(1, layout.group_gpus)
        pools = zip(POOLS_APART, layout_memory(deployment, layout, 0, [slots]), strict=True)
        lacking.append(max((part.used(least) - part.usable, pool, part.usable) for pool, part in pools))
    if not lacking:
        ours, theirs = options.afd.split(":")
        raise InfeasibleError(
            f"{whose}: a replica has that many GPUs, in equal parts of domains, {input_name('ep')} {theirs}, "
            f"{input_name('stages')} 1, and a {input_name('tp')} of up to {TP_WIDTHS[-1]} that divides {ours} and "
            f"the heads; {input_name('afd')} auto compares all ratios."
        )
    lack, pool, usable = min(lacking)
    if lack <= 0:
        raise InfeasibleError(
            f"{whose}: {input_name('batch')} {batch:,.9g} is no whole number of sequences of an attention group, up "
            f"to the {deployment.most_sequences:,} that engines run ({input_name('max_seqs')} allows more)."
        )
    need, room = (f"{size / 1e9:,.1f} GB" for size in (usable + lack, usable))
    raise InfeasibleError(
        f"HBM capacity binds: {whose}: a GPU of {pool} needs {need}, {room} are usable; {input_name('afd')} auto "
        "compares all ratios."
    )


@dataclass(frozen=True, eq=False)
class _Row:
    """A layout with the slots of its expert GPUs, its two pools, and the most sequences of an attention group."""

    layout: Layout
    slots: Ints
    sides: Sides
    most: int

    @classmethod
    def of(cls, deployment: Deployment, layout: Layout, slots: Ints) -> _Row:
        (stage,), apart, batch = layout.replicas[0], layout.apart, deployment.workload.batch
        assert apart is not None  # noqa: S101 - all have it
        memories = layout_memory(deployment, layout, 0, [slots])
        most = round(replica_max_batch(memories, layout.group_gpus) * layout.group_gpus)
        if batch:
            asked = sequences_of(batch, layout.group_gpus) or 0
            most = asked if asked <= most else 0
        sides = Sides.of(
            deployment, StageSpec(apart.gpus[0], stage.layers), stage, layout.tp, float(slots.sum())
        )
        return cls(layout, slots, sides, most)


class _Priced:
    """Layouts on the same machines, priced together."""

    def __init__(self, deployment: Deployment, rows: Sequence[_Row]) -> None:
        self._deployment, self._sides = deployment, Sides.joined([row.sides for row in rows])
        self._turns = np.array([row.layout.apart.micro_batches for row in rows if row.layout.apart])
        self._most = np.array([row.most for row in rows])
        self.step_s = np.ones(len(rows))

    def _at(self, sequences: Ints) -> Turns:
        work, tp = self._deployment, self._sides.attends.tp
        return apart_turns(work.model, work.workload, self._sides, np.maximum(sequences, 1) / tp, self._turns)

    def _largest(self, most: Ints, within: Callable[[Turns], Quantity], limit_s: float) -> Ints:
        """Return the most sequences up to ``most`` whose seconds are ``within`` the limit, 0 where none are."""
        low, high = np.zeros_like(most), most.copy()
        while (low < high).any():
            middle = (low + high + 1) // 2
            holds = np.broadcast_to(within(self._at(middle)) <= limit_s, middle.shape)
            low, high = np.where(holds, middle, low), np.where(holds, high, middle - 1)
        return low

    def most_within(self, limit_s: float) -> Ints:
        """Return the most sequences of each layout whose step holds the limit; keeps the seconds of that."""
        sequences = self._largest(self._most, lambda turns: turns.step().total_s, limit_s)
        if self._deployment.workload.batch:
            sequences = np.where(sequences == self._most, sequences, 0)
        self.step_s = np.asarray(self._at(sequences).step().total_s)
        return sequences

    def attention_per_s(self, limit_s: float) -> float:
        """Return the most sequences per second of an attention GPU, were it never to wait."""
        sequences = self._largest(self._most, lambda turns: turns.attention_s, limit_s)
        return float(np.max(sequences / self._sides.attends.tp / self._at(sequences).attention_s))

    def experts_per_s(self, limit_s: float) -> float:
        """Return the same of an expert GPU, with as many sequences as any number of attention GPUs could send it."""
        sides = self._sides
        most = self._most * len(self._deployment.cluster.gpus)
        sequences = self._largest(most, lambda turns: turns.experts_s, limit_s)
        tokens = sequences * sides.attends.attention_dp / sides.holds.ep
        return float(np.max(tokens / self._at(sequences).experts_s))


def _layouts(deployment: Deployment, options: PlanOptions) -> Iterator[tuple[Layout, Ints]]:
    """Yield replicas of every size, ratio, width of attention and number of micro-batches, with their slots."""
    cluster, model = deployment.cluster, deployment.model
    heads, known = [layer.attention.heads for layer in model.kinds], dict[Group, Ints | None]()
    for pools in _splits(deployment, options):
        (ours, theirs), *_ = pools
        if theirs not in known:
            held = stage_slots(deployment, Shape(((theirs,),), 1), options.copies, options.spread)
            known[theirs] = None if held is None else held[0]
        slots, domains = known[theirs], np.array([cluster.gpus[gpu].domain for gpu in ours])
        if slots is None or options.ep not in (None, len(theirs)) or options.stages not in (None, 1):
            continue
        for tp in TP_WIDTHS:
            able = options.tp in (None, tp) and not len(ours) % tp and not any(count % tp for count in heads)
            if not able or (np.ptp(domains.reshape(-1, tp), axis=1) > 0).any():
                continue
            replicas = tuple((StageSpec(experts, range(len(model.layers))),) for _, experts in pools)
            for turns in MICRO_BATCHES:
                yield Layout(replicas, tp, apart=Apart(tuple(gpus for gpus, _ in pools), turns)), slots


def _splits(deployment: Deployment, options: PlanOptions) -> Iterator[list[tuple[Group, Group]]]:
    """Yield for every size and ratio the GPUs of attention and of experts of each replica."""
    cluster, asked = deployment.cluster, asked_ratio(options.afd)
    hosts, kinds, domains = Hosts.of(cluster), cluster.domain_kind, domain_gpus(cluster)
    sizes = cuts(cluster, domains, any_shape=deployment.any_shape)
    if asked is not None:
        sizes = {sum(asked): equal_groups(domains, sum(asked))}
    for size, groups in sizes.items():
        if size < 2 or not groups or (size > max(MAX_REPLICA_GPUS, hosts.domain) and asked is None):
            continue
        unit = 1 if deployment.any_shape else hosts.gpus if size > QUARTERS_UP_TO else max(1, hosts.gpus // 4)
        members = {cluster.gpus[gpu].domain for gpu in groups[0]}
        unlike = len({kinds[domain] for domain in members}) > 1
        ways = ("front", *["share"] * (len(members) > 1), *["back"] * unlike)
        for count, way in product(range(unit, size, unit) if asked is None else asked[:1], ways):
            pools = [parts for gpus in groups if (parts := _pools(cluster, gpus, count, way))]
            if len(pools) == len(groups):
                yield pools


def _pools(cluster: Cluster, gpus: Group, count: int, way: str) -> tuple[Group, Group] | None:
    """Return ``count`` attention GPUs of a replica and the rest: from its front, its back, or a share of each domain.

    None where no equal share of each domain is that many.
    """
    if way == "front":
        return gpus[:count], gpus[count:]
    if way == "back":
        return gpus[-count:], gpus[:-count]
    members = domain_gpus(cluster, gpus)
    if any(len(inside) * count % len(gpus) for inside in members):
        return None
    parts = [(inside, len(inside) * count // len(gpus)) for inside in members]
    ours = tuple(gpu for inside, cut in parts for gpu in inside[:cut])
    theirs = tuple(gpu for inside, cut in parts for gpu in inside[cut:])
    return ours, theirs
