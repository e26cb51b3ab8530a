"""What the model chooses where a row of measurements leaves it: the best layout, the largest batch that fits.

Every legal layout of one stage on the row's GPUs is predicted as if the row stated it; the one with the highest
throughput per GPU is taken, at the largest batch that fits, or that keeps the row's limit on the time per token. The
measured figure plays no part, and no learned correction does. A prefill pool is chosen first, for the most prompt
tokens per second and GPU; where its GPUs are not stated it gets as many workers as the decode pool needs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cost.layouts.batches import batch_grid, most_that_fit
from cost.layouts.candidates import group_widths
from cost.model import Model
from cost.serving.steady_state import PREFILL_KEEPS_BUSY
from cost.step.memory import batch_room, even_memory
from cost.validation.point import Point, Pool
from cost.validation.serving import predict_serving
from cost.validation.serving_groups import group_points
from topology.files.resolve import resolve_cluster

Array = NDArray[np.float64]


_OF_THE_FIGURE = ("id", "source", "quantity", "measured", "token_kind", "pair", "notes")
_EVERY_COUNT = 8


@dataclass(frozen=True)
class Choice:
    """A point with everything stated and what was chosen for it; or None and the reason why nothing could be."""

    point: Point | None
    text: str


def choices(points: Sequence[Point]) -> list[Choice]:
    """Return what the model chooses for points that leave their layout or batch to it, in their order.

    Figures of one run (rows alike but for what was measured) get the same choice.
    """
    known: dict[Point, Choice] = {}
    found = []
    for point in points:
        run = _rate_of(replace(point, id="", source="", measured=1.0, pair="", notes=""))
        if run not in known:
            known[run] = _choose(run)
        choice = known[run]
        if choice.point is not None:
            own = {name: getattr(point, name) for name in _OF_THE_FIGURE}
            choice = replace(choice, point=replace(choice.point, **own))
        found.append(choice)
    return found


def legal_pools(
    model: Model, given: Pool, gpus: int, domain_gpus: int, workers: Sequence[int] = ()
) -> list[Pool]:
    """Return the pools of one stage that keep the widths of ``given`` that are not 0.

    Parameters
    ----------
    gpus:
        GPUs of the pool. Engines have a part of them that divides them, inside a scale-up domain of ``domain_gpus``
        or over whole ones.
    workers:
        Counts of engines to try, as far as ``gpus`` has room for them; none: as many as fill it.
    """
    found = []
    for width in (part for part in range(1, gpus + 1) if gpus % part == 0):
        if width > domain_gpus and width % domain_gpus:
            continue
        widths, parts = group_widths(model, width, {min(width, domain_gpus)}, cut_experts=True)
        for tp in widths:
            for part in parts if model.moe is not None else [width]:
                pool = Pool(tp, width // tp, width // part, part, slots=given.slots)
                if not _keeps(pool, given):
                    continue
                room = gpus // width
                counts = [given.workers] if given.workers else list(workers) or [room]
                found += [replace(pool, workers=count) for count in counts if count <= room]
    return found


def _keeps(pool: Pool, given: Pool) -> bool:
    return all(
        getattr(given, name) in (0, getattr(pool, name)) for name in ("tp", "attention_dp", "ep", "moe_tp")
    )


@dataclass(frozen=True)
class _Where:
    """What layouts depend on: the model, GPUs of a scale-up domain and of the catalog's cluster."""

    model: Model
    domain_gpus: int
    cluster_gpus: int

    @classmethod
    def of(cls, point: Point) -> _Where:
        groups, _ = group_points([replace(point, pool=Pool(), prefill_pool=None, batch=1.0)])
        (group,) = groups
        domain = int(np.asarray(group.pool.domain_gpus)[0])
        return cls(group.model, domain, len(resolve_cluster(point.cluster).gpus))


def _choose(point: Point) -> Choice:
    where = _Where.of(point)
    prefill = point.prefill_pool
    if prefill is not None and prefill.best:
        chosen = _best_prefill(point, prefill, where)
        if chosen is None:
            return Choice(None, "no legal layout of the prefill pool has the widths given and fits in memory")
        point = replace(point, prefill_pool=chosen)
    rows = [replace(point, pool=pool) for pool in _decode_pools(point, where)]
    if not rows:
        return Choice(None, "no legal layout has the widths given on the GPUs of the row")
    if point.is_open:
        rows = _fitting(rows)
        if not rows:
            return Choice(None, "no layout with the widths given holds the model and the batch in its memory")
    kept = True
    if point.batch == math.inf or point.tpot_limit_ms:
        rows, kept = _within(rows)
    if prefill is not None and prefill.best and point.prefill_pool and not point.prefill_pool.workers:
        rows = _with_prefill_workers(rows)
    rates = _values([_rate_of(row) for row in rows])
    if not rows or not np.isfinite(rates).any():
        return Choice(None, "nothing that the model may choose serves the row")
    best = rows[int(np.nanargmax(rates))]
    text = _description(point, prefill, best)
    if not kept:
        text += f"; nothing keeps {point.tpot_limit_ms:.4g} ms a token, this comes nearest"
    return Choice(best, text)


def _rate_of(point: Point) -> Point:
    """The row of the throughput that is made as large as can be: per GPU, of what the phase puts out."""
    return replace(
        point, quantity="tok_s_per_gpu", token_kind="input" if point.phase == "prefill" else "output"
    )


def _values(rows: Sequence[Point]) -> Array:
    """Predictions, NaN where there is none."""
    found = predict_serving(rows, residual=False)
    return np.array([math.nan if one.value is None else one.value for one in found], dtype=np.float64)


def _tpots(rows: Sequence[Point]) -> Array:
    return _values([replace(row, quantity="tpot_ms") for row in rows])


def _most(rows: Sequence[Point]) -> Array:
    """Sequences per GPU that fit each row, whole ones of an attention group; 0 where none does."""
    most = np.zeros(len(rows))
    groups, _ = group_points([replace(row, batch=1.0) if row.batch == math.inf else row for row in rows])
    for group in groups:
        shape = replace(group.pool, prompt_length=group.requests.isl)
        memory = even_memory(group.model, group.workload, shape)
        room = np.asarray(batch_room(memory, group.rates.hbm_bytes))
        tp = np.asarray(group.pool.tp).astype(np.int64)
        most[group.index] = most_that_fit(np.broadcast_to(room, tp.shape), tp)
    return most


def _fitting(rows: Sequence[Point]) -> list[Point]:
    """The rows whose layout the memory holds, with their batch where decoding alone states one."""
    least = [
        (row.batch or row.concurrency / row.pool.gpus)
        if row.phase == "decode" and row.batch != math.inf
        else 0.0
        for row in rows
    ]
    return [
        row
        for row, most, batch in zip(rows, _most(rows).tolist(), least, strict=True)
        if most > 0 and batch <= most
    ]


def _best_prefill(point: Point, given: Pool, where: _Where) -> Pool | None:
    """The prefill pool with most prompt tokens per second and GPU; 0 workers where its GPUs are not known."""
    known = point.prefill_gpus
    if not known and point.gpus and not point.pool.best:
        known = point.gpus - point.pool.gpus
    if known < 0:
        return None
    pools = legal_pools(where.model, given, known or where.cluster_gpus, where.domain_gpus)
    rows = _fitting([_prefill_alone(point, pool, gpus=0) for pool in pools])
    rates = _values(rows)
    if not np.isfinite(rates).any():
        return None
    best = rows[int(np.nanargmax(rates))].pool
    return best if known or given.workers else replace(best, workers=0)


def _prefill_alone(point: Point, pool: Pool, gpus: int) -> Point:
    """The row's prompts on ``pool`` alone, its figure divided by ``gpus`` (0: those of the pool)."""
    own = replace(point, kernel="", imbalance=0.0, batch=0.0, token_kind="input")  # noqa: S106 - tokens of text
    return replace(own, phase="prefill", pool=pool, prefill_pool=None, gpus=gpus)


def _decode_pools(point: Point, where: _Where) -> list[Pool]:
    """The pools that decode (or the only ones) that may be chosen; the row's own where it states one."""
    if not point.pool.best:
        return [point.pool]
    gpus, prefill = point.gpus or where.cluster_gpus, point.prefill_pool
    counted = point.gpus > 0
    if prefill is not None and prefill.workers:
        gpus -= prefill.gpus if point.gpus else 0
    elif prefill is not None:
        counted = False  # what both pools share out
    one = point.batch > 0 or point.phase == "prefill"
    workers = [] if counted else [1] if one else _counts(gpus)
    return legal_pools(where.model, point.pool, gpus, where.domain_gpus, workers) if gpus > 0 else []


def _counts(most: int) -> list[int]:
    """Every count up to 8, then doubled up to ``most``."""
    few = list(range(1, min(most, _EVERY_COUNT) + 1))
    while few[-1] * 2 <= most:
        few.append(few[-1] * 2)
    return few


def _within(rows: list[Point]) -> tuple[list[Point], bool]:
    """The rows at the largest batch that fits and keeps the limit on the time per token; False where none keeps it.

    Then the row that comes nearest to the limit is the only one.
    """
    limit, largest = rows[0].tpot_limit_ms, rows[0].batch == math.inf
    most = _most(rows)
    if not limit:
        return [_at_batch(row, batch) for row, batch in zip(rows, most.tolist(), strict=True)], True
    grids = [
        [_at_batch(row, batch) for batch in _batches(top, row.pool.tp).tolist()] if largest else [row]
        for row, top in zip(rows, most.tolist(), strict=True)
    ]
    low, high = np.full(len(rows), -1), np.array([len(grid) for grid in grids])
    while np.any(high - low > 1):  # entry `low` of a grid keeps the limit, entry `high` does not
        middle = np.maximum(0, (low + high) // 2)
        tpots = _tpots(
            [grid[min(at, len(grid) - 1)] for grid, at in zip(grids, middle.tolist(), strict=True)]
        )
        keeps, open_ = tpots <= limit, high - low > 1
        low, high = np.where(open_ & keeps, middle, low), np.where(open_ & ~keeps, middle, high)
    kept = [grid[at] for grid, at in zip(grids, low.tolist(), strict=True) if at >= 0]
    if kept:
        return kept, True
    least = [grid[0] for grid in grids]
    return [least[int(np.nanargmin(_tpots(least)))]], False


def _batches(most: float, tp: int) -> Array:
    """Sequences per GPU up to ``most``, dense where they are few: whole ones of an attention group of ``tp`` GPUs."""
    few = batch_grid(min(float(tp), most * tp)) / tp
    return np.unique(np.concatenate([few, batch_grid(most), [most]]))


def _at_batch(row: Point, batch: float) -> Point:
    """The row with ``batch`` sequences per GPU; as requests in the system where both phases are served."""
    if row.phase == "decode":
        return replace(row, batch=batch)
    requests = max(1, round(batch * row.pool.gpus))
    return replace(row, batch=0.0, concurrency=requests)


def _with_prefill_workers(rows: Sequence[Point]) -> list[Point]:
    """The rows with as many prefill workers as the decode pool needs, or as the row's GPUs have room for."""
    if not rows or rows[0].prefill_pool is None:
        return []
    pool = rows[0].prefill_pool
    (each,) = PREFILL_KEEPS_BUSY * _values([_prefill_alone(rows[0], replace(pool, workers=1), gpus=1)])
    wanted = _values([replace(row, gpus=1, token_kind="input") for row in rows])  # noqa: S106 - tokens of text
    found = []
    for row, rate in zip(rows, wanted.tolist(), strict=True):
        workers = max(1, math.ceil(rate / each)) if math.isfinite(rate / each) else 0
        if row.gpus:
            workers = min(workers, (row.gpus - row.pool.gpus) // pool.gpus_per_worker)
        if workers > 0:
            found.append(replace(row, prefill_pool=replace(pool, workers=workers)))
    return found


def _description(row: Point, prefill: Pool | None, best: Point) -> str:
    """What was chosen, in a line."""
    parts = []
    if prefill is not None and prefill.best and best.prefill_pool is not None:
        parts.append(f"prefill {_label(best.prefill_pool)}")
    if row.pool.best:
        name = "" if row.phase == "aggregated" else f"{row.phase} " if prefill is None else "decode "
        parts.append(f"{name}{_label(best.pool)}")
    if row.batch == math.inf:
        batch = best.batch or best.concurrency / best.pool.gpus
        within = f" and keep {row.tpot_limit_ms:.4g} ms a token" if row.tpot_limit_ms else ""
        parts.append(f"{batch:.4g} sequences a GPU, the most that fit{within}")
    return "; ".join(parts)


def _label(pool: Pool) -> str:
    cut = f" ETP{pool.moe_tp}" if pool.moe_tp > 1 else ""
    return f"TP{pool.tp} DP{pool.attention_dp} EP{pool.ep}{cut} x{pool.workers}"
