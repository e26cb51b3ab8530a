"""Columns of a fleet: one replica of a model in a role on some blocks, at its best batch within the service level."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cost.inputs.deployment import Deployment
from cost.inputs.layout import widths_label
from cost.layouts import Sweep, sweep
from cost.layouts.arrays import pairs
from cost.layouts.candidates import arrangement_of
from cost.layouts.deployable import MAX_MIXED_GPUS
from cost.layouts.idle_gpus import arranged_in
from cost.layouts.stages import Pricer
from cost.serving.cache_path import CachePath, kv_path
from cost.serving.one_pool import Stays
from cost.serving.packing import Workers
from cost.serving.pools import FirstToken, RateMatches, batches_held
from cost.serving.steady_state import busy_share
from placement.fleet.options import BOTH, DECODE, PREFILL, Traffic
from placement.fleet.shapes import Block, DomainClass, Group, Shape, shapes_like, stand
from placement.layouts.price import plan_rows
from topology.base.errors import InputError
from topology.cluster import Cluster

Floats = NDArray[np.float64]
_EQUAL = 1e-9
"""Part by which times and rates that are the same may differ by rounding."""


@dataclass(frozen=True, eq=False)
class Column:
    """One replica.

    Attributes
    ----------
    model, role, shape:
        Which model, what it does, and what it stands on.
    group:
        Of limits on the first token (:class:`Priced`); a replica of both phases is in none.
    requests_per_s:
        What it serves, in two pools at most.
    tok_s:
        Output tokens per second (prefill: input) of it alone.
    tp, batch, step_s:
        Tensor-parallel width, sequences per GPU, seconds of a step.
    limit_s:
        Longest step that keeps the limits.
    besides_s:
        Seconds to the first token besides a step: moving the caches of prefill, a prompt's own prefill in one pool.
    """

    model: int
    role: str
    shape: Shape
    group: int
    requests_per_s: float
    tok_s: float
    tp: int
    batch: float
    step_s: float
    limit_s: float
    besides_s: float = 0.0
    dcp: int = 1
    pcp: int = 1

    def label(self, *, moe: bool) -> str:
        """The layout in a few letters: ``EP72 TP1 PP1``."""
        ep = max(self.shape.sizes) if moe else None
        return widths_label(ep, 1, self.tp, self.shape.stages, self.dcp, self.pcp)

    @property
    def cut(self) -> tuple[int, int, int]:
        """Width of tensor parallelism, and context parallelism (:class:`cost.inputs.layout.Layout`)."""
        return self.tp, self.dcp, self.pcp

    def rows(self, swept: Sweep) -> NDArray[np.bool_]:
        """Rows of a sweep that are cut so."""
        return np.asarray((swept.tp == self.tp) & (swept.dcp == self.dcp) & (swept.pcp == self.pcp))

    @property
    def kind(self) -> Kind:
        """Which model in which role has which layout."""
        return self.model, self.role, self.shape, self.cut

    @property
    def phases(self) -> tuple[str, ...]:
        """Of which phases it serves requests."""
        return (DECODE, PREFILL) if self.role == BOTH else (self.role,)

    @property
    def blocks(self) -> Counter[Block]:
        """How many of each block it takes."""
        return Counter(self.shape.blocks)


@dataclass(frozen=True, eq=False)
class Priced:
    """What a model may run, and how it was priced.

    Attributes
    ----------
    sweeps:
        By role.
    columns:
        In groups: in each the caches reach every decoding replica soon enough from every prefilling one; and those of
        both phases.
    fastest_tpot_s, fastest_ttft_s:
        Of anything that fits, whatever the limits; infinite where nothing does.
    receive_s:
        Longest time in which a decoding replica receives a cache, of each group.
    """

    sweeps: dict[str, Sweep]
    columns: list[Column]
    fastest_tpot_s: float
    fastest_ttft_s: float
    receive_s: tuple[float, ...] = (np.inf,)
    path: CachePath | None = None


def sweep_shapes(cluster: Cluster, classes: Sequence[DomainClass], traffic: Traffic) -> list[Shape]:
    """Return the shapes of the replicas that a sweep of the whole cluster prices, for every model and role."""
    replicas: dict[tuple[tuple[int, ...], ...], None] = {}
    for deployment in (phase for pair in traffic.deployments for phase in pair if phase is not None):
        for arrangement in arranged_in(Pricer(deployment, traffic.redundant)):
            replicas |= {arrangement.replicas[index]: None for index, _ in arrangement.alike}
    return shapes_like(cluster, classes, replicas)


Reached = Mapping["Kind", float]
"""Part of their price that replicas of a kind reach where their experts are placed, of kinds that were."""
Kind = tuple[int, str, Shape, tuple[int, int, int]]


def price(
    classes: Sequence[DomainClass],
    shapes: Sequence[Shape],
    traffic: Traffic,
    model: int,
    reached: Reached | None = None,
) -> Priced:
    """Price every shape for a model in each role, all at once; the best columns that keep the limits.

    Experts are balanced; kinds that were ``reached`` by plans are priced at that part.
    """
    decode_deployment, prefill_deployment = traffic.deployments[model]
    places = [(shape, groups) for shape in shapes if (groups := stand(classes, shape)) is not None]
    sweeps, rows = {}, {}
    for role, deployment in ((DECODE, decode_deployment), (PREFILL, prefill_deployment)):
        if deployment is not None:
            swept, which = price_on(deployment, places, traffic, role)
            sweeps[role], rows[role] = swept, which
    decode = sweeps[DECODE]
    legal = {role: plan_rows(sweeps[role]) for role in sweeps}
    fastest_tpot_s = float(np.min(1 / decode.tok_s_per_user[legal[DECODE]], initial=np.inf))
    slowest_s = np.full(len(decode), (traffic.tpot_s or np.inf) * decode.deployment.workload.tokens_per_step)
    legal[DECODE] &= decode.tok_s_per_user >= (1 - _EQUAL) / traffic.tpot_s if traffic.tpot_s else True
    named = [shape for shape, _ in places]

    def best(columns: Sequence[Column]) -> list[Column]:
        parts = [1.0 if reached is None else reached.get(column.kind, 1.0) for column in columns]
        able = [
            column if part == 1.0 else with_figures(column, part * column.tok_s, column.batch, column.step_s)
            for column, part in zip(columns, parts, strict=True)
            if part
        ]
        return drop_dominated(able)

    if prefill_deployment is None:
        side = _Side(model, DECODE, decode, rows[DECODE], decode.tok_s, named)
        columns = best(side.best(legal[DECODE], 0, slowest_s))
        return Priced(sweeps, columns, fastest_tpot_s, 0.0)
    prefill = sweeps[PREFILL]
    decoders, prefillers, first_token, path = pool_rates(traffic, decode, prefill)
    sides = (
        _Side(model, DECODE, decode, rows[DECODE], decoders, named),
        _Side(model, PREFILL, prefill, rows[PREFILL], prefillers, named),
    )
    soonest = first_token.seconds(slice(None), np.min(first_token.receive_s, initial=np.inf))
    fastest_ttft_s = float(np.min(soonest, initial=np.inf))
    one_pool = _both_phases(traffic, model, places)
    limits = np.unique(first_token.receive_s[legal[DECODE]])[::-1]
    columns = []
    receive: list[float] = []
    previous: NDArray[np.bool_] | None = None
    for limit in limits.tolist():
        seconds = first_token.seconds(slice(None), np.float64(limit))
        able = legal[PREFILL] & (seconds <= (traffic.ttft_s or np.inf))
        move_s = np.asarray(seconds - prefill.step_s)
        if previous is not None and (able == previous).all():
            continue  # the same prefill for fewer decoding replicas
        previous, group = able, len(receive)
        receivers = legal[DECODE] & (first_token.receive_s <= limit)
        decode_columns = best(sides[0].best(receivers, group, slowest_s))
        prefill_columns = best(sides[1].best(able, group, (traffic.ttft_s or np.inf) - move_s, move_s))
        if decode_columns and prefill_columns:
            columns += decode_columns + prefill_columns
            receive.append(limit)
    return Priced(
        sweeps | one_pool.sweeps,
        columns + best(one_pool.columns),
        min(fastest_tpot_s, one_pool.fastest_tpot_s),
        min(fastest_ttft_s, one_pool.fastest_ttft_s),
        tuple(receive) or (np.inf,),
        path,
    )


def _both_phases(traffic: Traffic, model: int, places: Sequence[tuple[Shape, tuple[Group, ...]]]) -> Priced:
    """Return what replicas of both phases may be, the columns before any is left out that others beat.

    What they serve is what :class:`cost.serving.one_pool.Stays` says; no cache moves.
    """
    deployment = traffic.deployment(model, BOTH)
    largest = math.inf if deployment.any_shape else MAX_MIXED_GPUS
    able = [(shape, groups) for shape, groups in places if shape.gpus <= largest]
    none = Priced({}, [], math.inf, math.inf)
    try:
        swept, which = price_on(deployment, able, traffic, BOTH)
    except InputError:  # none of the few that are small enough is legal
        return none
    if not len(swept):
        return none
    swept, served = _with_stay(swept)
    legal, tpot_s, ttft_s = plan_rows(swept), traffic.tpot_s or np.inf, traffic.ttft_s or np.inf
    own_s = served.prefill_s - swept.step_s
    longest_s = np.minimum(tpot_s * deployment.workload.tokens_per_step, ttft_s - own_s)
    within = legal & (swept.step_s <= longest_s * (1 + _EQUAL))
    side = _Side(model, BOTH, swept, which, served.requests_per_s, [shape for shape, _ in able])
    token_s, first_s = (
        float(np.min(row[legal], initial=np.inf)) for row in (1 / swept.tok_s_per_user, served.prefill_s)
    )
    return Priced({BOTH: swept}, side.best(within, -1, longest_s, own_s), token_s, first_s)


def pool_rates(
    traffic: Traffic, decode: Sweep, prefill: Sweep
) -> tuple[Floats, Floats, FirstToken, CachePath]:
    """Return the requests per second of a replica of each row of both sweeps, and how caches move between them.

    A replica that prefills is as busy as all together are at about the rate that comes, at least as by itself with a
    decode pool of its own (:func:`cost.serving.steady_state.busy_share`): several share what comes, and wait less.
    """
    path = kv_path(decode.deployment, prefill.deployment)
    first_token = FirstToken.of(decode, prefill, path)
    answers = decode.deployment.workload.tokens_per_step / traffic.osl
    decoders = Workers.of(decode, answers, path, first_token.cache_bytes).requests_per_s
    prefillers = Workers.of(prefill, 1.0, path, first_token.cache_bytes).requests_per_s
    token_s = traffic.tpot_s or float(np.mean(decode.step_s)) / decode.deployment.workload.tokens_per_step
    in_step = prefill.batch * prefill.gpus
    prompts_per_s = np.maximum(in_step / prefill.step_s, traffic.near_per_s)
    busy = busy_share(prompts_per_s, traffic.osl * token_s + prefill.step_s, in_step)
    return decoders, np.minimum(prefillers, busy * in_step / prefill.step_s), first_token, path


def price_on(
    deployment: Deployment,
    places: Sequence[tuple[Shape, tuple[tuple[int, ...], ...]]],
    traffic: Traffic,
    role: str,
) -> tuple[Sweep, NDArray[np.int64]]:
    """Price one replica in a role on each of ``places``; the place of each row too, ``[configurations]``."""
    key = deployment.model.name, role, traffic.tpot_s, tuple(places)
    if key in traffic.swept:
        known: tuple[Sweep, NDArray[np.int64]] = traffic.swept[key]
        return known
    arranged = [
        # groups of unlike sizes are not cut by tensor parallelism
        arrangement_of(deployment.cluster, (groups,), cut=len({len(group) for group in groups}) == 1)
        for _, groups in places
    ]
    swept = sweep(
        deployment,
        redundant=traffic.redundant,
        cut_experts=False,
        imbalance=traffic.imbalance,
        speeds=(1 / traffic.tpot_s,) if role != PREFILL and traffic.tpot_s else (),
        arranged=arranged,
    )
    of = np.array([variant.number for variant in swept.variants], dtype=np.int64)
    traffic.swept[key] = swept, of[swept.layout]
    return swept, of[swept.layout]


def _with_stay(swept: Sweep) -> tuple[Sweep, RateMatches]:
    """Return a sweep of both phases whose tokens per second count the stay of a request, as a plan's do."""
    served = Stays.of(swept, [(1.0, swept.deployment.workload.of_prompt)]).matches()
    return replace(swept, tok_s=served.requests_per_s * served.osl), served


@dataclass(frozen=True, eq=False)
class _Side:
    """The rows of one role: the sweep, the place of each, what each serves, and the shapes of the places."""

    model: int
    role: str
    sweep: Sweep
    place: NDArray[np.int64]
    requests_per_s: Floats
    shapes: Sequence[Shape]

    def best(
        self, mask: NDArray[np.bool_], group: int, limit_s: Floats, besides_s: Floats | None = None
    ) -> list[Column]:
        """The row of each shape and tensor-parallel width that serves most requests, of those kept.

        Shape by shape, best first: of equals the narrowest and fastest.
        """
        swept, rate, place = self.sweep, self.requests_per_s, self.place
        rows = np.flatnonzero(mask & (rate > 0))
        cut = pairs(swept.tp, pairs(swept.dcp, swept.pcp))
        order = rows[np.lexsort((swept.step_s[rows], cut[rows], -rate[rows], place[rows]))]
        widths = pairs(place, cut)[order]
        best_rows = order[np.sort(np.unique(widths, return_index=True)[1])]
        return [
            Column(
                self.model,
                self.role,
                self.shapes[place[row]],
                group,
                float(rate[row]),
                float(swept.tok_s[row]),
                int(swept.tp[row]),
                float(swept.batch[row]),
                float(swept.step_s[row]),
                float(limit_s[row]),
                0.0 if besides_s is None else float(besides_s[row]),
                int(swept.dcp[row]),
                int(swept.pcp[row]),
            )
            for row in best_rows.tolist()
        ]


def drop_dominated(columns: Sequence[Column]) -> list[Column]:
    """Return the columns of a model and role that nothing on the same GPUs beats.

    What ``s`` GPUs of a domain give at most, filled with replicas of one block each, is an unbounded knapsack; a
    column that gives no more than its own blocks so filled is never needed.
    """
    alone: dict[tuple[int, int], dict[int, Column]] = {}
    joins: list[Column] = []
    for column in columns:
        block = column.shape.blocks[0]
        if len(column.shape.blocks) > 1:
            joins.append(column)
            continue
        of = alone.setdefault((block.kind, block.slow), {})
        if block.size not in of or of[block.size].requests_per_s < column.requests_per_s:
            of[block.size] = column
    undominated: list[Column] = []
    filled: dict[tuple[int, int], Floats] = {}
    sizes = [block.size for column in columns for block in column.shape.blocks]
    for key, of in alone.items():
        best = np.zeros(max(sizes) + 1)
        chosen: list[int] = []
        for size in range(1, len(best)):
            best[size] = best[size - 1]
            if key[1] < 0:
                best[size] = max([best[size], *(best[s] + best[size - s] for s in chosen if s < size)])
            if size in of and of[size].requests_per_s > best[size] * (1 + _EQUAL):
                best[size] = of[size].requests_per_s
                chosen.append(size)
                undominated.append(of[size])
        filled[key] = best
    best_joins: dict[tuple[tuple[Block, int], ...], Column] = {}
    for column in joins:
        blocks = column.shape.blocks
        split = sum(
            float(filled[key][block.size]) for block in blocks if (key := (block.kind, block.slow)) in filled
        )
        key_of = tuple(sorted(column.blocks.items()))
        known = best_joins.get(key_of)
        better = known is None or known.requests_per_s < column.requests_per_s
        if column.requests_per_s > split * (1 + _EQUAL) and better:
            best_joins[key_of] = column
    return undominated + _largest_joins(list(best_joins.values()))


def _largest_joins(columns: Sequence[Column]) -> list[Column]:
    """Leave out joins of one block that several smaller joins on as many blocks beat."""
    undominated: list[Column] = []
    of_block: dict[Block, list[Column]] = {}
    for column in sorted(columns, key=lambda join: len(join.shape.blocks)):
        count, kinds = len(column.shape.blocks), set(column.shape.blocks)
        smaller = of_block.setdefault(next(iter(kinds)), []) if len(kinds) == 1 else []
        beaten = any(
            count // len(join.shape.blocks) * join.requests_per_s >= column.requests_per_s * (1 - _EQUAL)
            for join in smaller
        )
        if not beaten:
            undominated.append(column)
            smaller.append(column)
    return undominated


def with_figures(column: Column, tok_s: float, batch: float, step_s: float) -> Column:
    """Return a column with other tokens per second, and requests in proportion."""
    served = column.requests_per_s * tok_s / column.tok_s
    return replace(column, requests_per_s=served, tok_s=tok_s, batch=batch, step_s=step_s)


def step_at(traffic: Traffic, column: Column, stages: tuple[Group, ...], requests_per_s: float) -> float:
    """Return the seconds of a step of a replica that decodes and serves so many requests per second.

    With balanced experts, at the batch that they hold.
    """
    deployment = traffic.deployment(column.model, column.role)
    swept, _ = price_on(deployment, [(column.shape, stages)], traffic, column.role)
    row = np.flatnonzero(column.rows(swept) & (swept.batch == column.batch))[:1]
    if column.role == BOTH:
        held, _ = Stays.of(swept, [(1.0, deployment.workload.of_prompt)]).at_rate(
            row, np.array([requests_per_s])
        )
    else:
        steps = traffic.osl / deployment.workload.tokens_per_step
        per_s = np.array([requests_per_s * steps / column.shape.gpus])
        held = batches_held(swept.rows(row), per_s)
    return float(held[1].item())


def reprice(
    traffic: Traffic, replicas: Sequence[tuple[Column, tuple[Group, ...]]], reached: Reached | None = None
) -> list[Column]:
    """Return the columns with what they cost on the GPUs that they really have, ``(column, GPUs by stage)`` each.

    On them a replica keeps its tensor-parallel width and has the largest batch, up to its own, that keeps the limits.
    """
    repriced: dict[int, Column] = {}
    for model in range(len(traffic.shares)):
        for role in traffic.roles:
            members = [
                n for n, (replica, _) in enumerate(replicas) if (replica.model, replica.role) == (model, role)
            ]
            if not members:
                continue
            places = [(replicas[n][0].shape, replicas[n][1]) for n in members]
            swept, where = price_on(traffic.deployment(model, role), places, traffic, role)
            if role == BOTH:
                swept, _ = _with_stay(swept)
            for number, n in enumerate(members):
                column = replicas[n][0]
                able = (where == number) & column.rows(swept) & (swept.batch <= column.batch)
                able &= swept.step_s <= column.limit_s * (1 + _EQUAL)
                rows = np.flatnonzero(able)
                if not len(rows):
                    raise AssertionError("a replica exceeds its limits at its location, please report it")
                row = int(rows[np.argmax(swept.batch[rows])])
                part = 1.0 if reached is None else reached.get(column.kind, 1.0)
                repriced[n] = with_figures(
                    column, part * float(swept.tok_s[row]), float(swept.batch[row]), float(swept.step_s[row])
                )
    return [repriced[n] for n in range(len(replicas))]
