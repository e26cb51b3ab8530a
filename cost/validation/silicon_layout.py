"""The parallel layouts of the silicon sample, as they ran and not as they were written down.

The sample joins records of several origins, and some of them lost or multiplied widths. Rows of one and the same run
(equal times) that came in by two ways show what the odd ones mean; the counts are those of the calibration part.

- ``0`` and blank mean 1.
- *Multiplied widths*: ``tp 64, moe_tp 8, moe_ep 8`` is ``tp 8, ep 8`` (11 twins), ``attention_dp 64, moe_tp 8,
  moe_ep 8`` is ``attention_dp 8, ep 8`` (11 twins), ``tp 4, attention_dp 4, moe_ep 16`` is ``tp 4, ep 4``
  (42 twins). That holds for rows that come from dumps of a database, where every width of experts above 1 is so; in
  rows of benchmark logs ``tp 4, moe_tp 2, moe_ep 2`` is what ran (the model would not fit on 2 GPUs, or the batch
  is that of one of 4 ranks). ``batch_size`` of such rows is divided by the wrong width; the concurrency holds.
- *Ranks*: where the concurrency is ``batch_size`` times the width of tensor parallelism, the batch is that of a
  rank, so attention was data-parallel.
- *Disaggregated without counts of workers*: ``moe_ep`` of the decode pool repeats the prefill pool's and ``moe_tp``
  is what is left: ``prefill 4, decode tp 32, moe_tp 8, moe_ep 4`` is ``attention_dp 32, ep 32`` (13 twins), ``tp 8,
  moe_tp 2, moe_ep 4`` is ``tp 8, ep 8`` (6) or ``attention_dp 8, ep 8`` (4, all of 1,024 requests or more).
- *Total as width*: equal widths of both pools (or of an aggregated row) that are no layout, like 20 or 48, are the
  GPUs of the whole deployment: 48 is four prefill workers of 4 and one decode pool of 32 (twins of 20, 24, 48, 52).
- *All ones* on a model that no single GPU holds: nothing was recorded (twins: decode pools of 4 and of 32).
- Counts of decode workers that are not recorded are the medians of the 123 rows that have them, by kind of pool and
  engine; prefill workers that are not recorded are taken as enough (0: a count that never limits).

Whether a run drafted tokens is recorded nowhere: equal rows of the dated dumps differ by up to two times for that
reason. The rows of the database dump (``db-dump``) did not: the others scatter below them, never they below others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from cost.validation.point import Pool
from cost.validation.recipes import Recipe

# medians of the recorded counts: pools with tensor-parallel attention by engine, narrow and wide data-parallel pools
_TP_WORKERS = {"sglang": 1}
_OTHER_TP_WORKERS = 4
_NARROW_DP_WORKERS, _WIDE_DP_WORKERS = 2, 1
_WIDE_GPUS = 16
_DP_CONCURRENCY = (
    512  # recorded pools of 4 and 8 GPUs attend in data parallel beyond 700 requests, most from 512 on
)
_LARGEST_DECODE_GPUS = 32
_NODE = 4
_PREFILL = Pool(attention_dp=_NODE, ep=_NODE)


@dataclass(frozen=True)
class Recorded:
    """The widths of one pool as the file has them; ``workers`` and ``batch`` are 0 where it does not say.

    ``logged``: the row comes from a benchmark log, not from a dump of a database.
    """

    tp: int
    attention_dp: int
    moe_tp: int
    ep: int
    workers: int = 0
    batch: int = 0
    logged: bool = False

    @property
    def multiplied(self) -> bool:
        """Whether the attention's width is the product of two equal experts' widths."""
        equal = self.moe_tp == self.ep > 1 and self.tp * self.attention_dp == self.moe_tp * self.ep
        return equal and not self.logged

    @property
    def squared(self) -> bool:
        """Whether ``tp`` was written into ``attention_dp`` too and their product into ``ep``."""
        return self.tp == self.attention_dp > 1 and self.moe_tp == 1 and self.ep == self.tp**2

    @property
    def lost(self) -> bool:
        """Whether nothing was recorded."""
        return self.tp == self.attention_dp == self.moe_tp == self.ep == 1 and not self.workers

    @property
    def total(self) -> int:
        """GPUs of a whole deployment that stand as a width, 0 where the width is one."""
        odd = self.tp & (self.tp - 1) != 0 or self.tp > _WIDE_GPUS
        return self.tp if odd and self.moe_tp == self.tp and self.attention_dp == self.ep == 1 else 0


def aggregated_pool(recorded: Recorded, concurrency: int, *, moe: bool) -> Pool:
    """Return the pool of an aggregated row (those with a total as width: :func:`total_pools`)."""
    if not moe:
        return Pool(tp=recorded.tp, moe_tp=recorded.tp)
    if recorded.multiplied:
        width = recorded.ep
        dp = width if recorded.attention_dp > 1 else 1
        return Pool(tp=width // dp, attention_dp=dp, ep=width)
    if recorded.squared:
        return Pool(tp=recorded.tp, ep=recorded.tp)
    pool = _consistent(recorded)
    if recorded.batch and pool.attention_dp == 1 < pool.tp and concurrency == recorded.batch * pool.tp:
        return replace(pool, tp=1, attention_dp=pool.tp)
    return pool


def decode_pool(recorded: Recorded, prefill: Recorded, concurrency: int, engine: str, *, moe: bool) -> Pool:
    """Return the decode pool of a disaggregated row."""
    tp_workers = _TP_WORKERS.get(engine, _OTHER_TP_WORKERS)
    if not moe:
        return Pool(tp=recorded.tp, moe_tp=recorded.tp, workers=recorded.workers or tp_workers)
    if recorded.workers:
        return _experts_spread(replace(_consistent(recorded), workers=recorded.workers))
    width = recorded.tp * recorded.attention_dp
    repeated = 1 < recorded.ep == prefill.ep * prefill.attention_dp < width
    if recorded.attention_dp > 1 or (repeated and width >= _WIDE_GPUS) or concurrency >= _DP_CONCURRENCY:
        workers = _WIDE_DP_WORKERS if width >= _WIDE_GPUS else _NARROW_DP_WORKERS
        return Pool(attention_dp=width, ep=width, workers=workers)
    if recorded.ep == 1:
        return Pool(tp=width, moe_tp=width, workers=tp_workers)
    return Pool(tp=width, ep=width, workers=tp_workers)


def prefill_pool(recorded: Recorded, *, moe: bool) -> Pool:
    """Return the prefill pool of a disaggregated row; 0 workers where their count was not recorded."""
    workers = recorded.workers
    if not moe:
        return Pool(tp=recorded.tp, moe_tp=recorded.tp, workers=workers)
    return _experts_spread(replace(_consistent(recorded), workers=workers))


def total_pools(total: int, concurrency: int, engine: str) -> tuple[Pool, Pool]:
    """Return the prefill and the decode pool of a deployment of which only all GPUs are recorded.

    Few requests on up to 28 GPUs: one prefill worker of 4 and as many narrow decode workers as the rest holds (their
    concurrencies are multiples of that number). Else one wide decode pool, and prefill workers of 4 in the rest.
    """
    if concurrency < _DP_CONCURRENCY and total < _LARGEST_DECODE_GPUS:
        workers = max(1, (total - _NODE) // (_NODE if engine == "sglang" else 2 * _NODE))
        narrow = Pool(tp=4, moe_tp=4) if engine == "sglang" else Pool(tp=8, ep=8)
        return _PREFILL, replace(narrow, workers=workers)
    width = _LARGEST_DECODE_GPUS
    while width >= total * 0.9:
        width //= 2
    return replace(_PREFILL, workers=max(1, (total - width) // _NODE)), Pool(attention_dp=width, ep=width)


def lost_pools(concurrency: int, *, fp8: bool) -> tuple[Pool, Pool]:
    """Return the prefill and the decode pool of a row that is all ones though no single GPU holds the model."""
    if concurrency < _DP_CONCURRENCY:
        return replace(_PREFILL, workers=0), Pool(tp=4, moe_tp=4, workers=_NARROW_DP_WORKERS)
    prefill = Pool(attention_dp=8, ep=8) if fp8 else _PREFILL
    return replace(prefill, workers=0), Pool(attention_dp=_LARGEST_DECODE_GPUS, ep=_LARGEST_DECODE_GPUS)


def fits_engine(recorded: Recorded, pool: Pool, recipe: Recipe) -> bool:
    """Whether an aggregated row, read as ``pool``, can be a run of ``recipe``: widths that the row records agree."""
    ran = recipe.pool
    if (ran.gpus_per_worker, ran.ep) != (pool.gpus_per_worker, pool.ep):
        return False
    told = recorded.multiplied or recorded.attention_dp > 1
    return not told or (ran.attention_dp > 1) == (pool.attention_dp > 1)


def fits_total(total: int, recipe: Recipe) -> bool:
    """Whether ``total`` GPUs are those of both pools of ``recipe``."""
    return recipe.prefill_pool is not None and recipe.pool.gpus + recipe.prefill_pool.gpus == total


def fits_pools(prefill: Recorded, decode: Recorded, recipe: Recipe) -> bool:
    """Whether a disaggregated row can be a run of ``recipe``."""
    if recipe.prefill_pool is None:
        return False
    if prefill == decode and (decode.lost or decode.total) and not decode.workers:
        return decode.lost or fits_total(decode.total, recipe)
    sides = ((prefill, recipe.prefill_pool), (decode, recipe.pool))
    if not decode.workers and (prefill.ep > 1) != (recipe.prefill_pool.ep > 1):
        return False  # the experts' width of such a decode pool repeats the prefill pool's
    return all(
        ran.gpus_per_worker in (side.tp * side.attention_dp, side.moe_tp * side.ep)
        and side.workers in (0, ran.workers)
        for side, ran in sides
    )


def _consistent(recorded: Recorded) -> Pool:
    """Return the widths with both sides on the same GPUs: the wider side is the one that was recorded."""
    tp, dp = recorded.tp, recorded.attention_dp
    width, experts = tp * dp, recorded.moe_tp * recorded.ep
    if experts > width and experts % tp == 0:
        return Pool(tp, experts // tp, recorded.ep, recorded.moe_tp)
    if experts != width:
        return Pool(tp, dp, width if dp > 1 else 1, 1 if dp > 1 else width)
    return Pool(tp, dp, recorded.ep, recorded.moe_tp)


def _experts_spread(pool: Pool) -> Pool:
    """Experts of a pool with data-parallel attention are spread over it, not cut: so the twins say."""
    return pool if pool.attention_dp == 1 else replace(pool, ep=pool.attention_dp * pool.tp, moe_tp=1)
