"""A pool that prefills and one that decodes: sizes at which neither waits for the other, and the first token."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from cost.layouts import Sweep
from cost.layouts.front import pareto
from cost.serving.cache_path import CachePath, kv_path, prompt_cache_bytes
from cost.serving.packing import Array, Index, Rooms, Workers, partners, worth_trying
from cost.serving.steady_state import held_batch
from topology.base.errors import InputError
from topology.base.figures import Evidence, Figure

TTFT_LIMIT = Figure(
    2.0,
    "s",
    Evidence.ASSUMED,
    "MLPerf Inference, server scenario: 99 % of first tokens of DeepSeek-R1 and of Llama 2 70B within 2 s",
    "2 s",
)
"""Longest time to the first token where nobody says; that benchmark's own counts waiting, ours does not."""

Real = TypeVar("Real", float, Array)
Whole = TypeVar("Whole", int, Index)


@dataclass(frozen=True, eq=False)
class _Match(Generic[Real, Whole]):
    """Pools that serve a mix of requests together: one match, or the columns of several.

    One pool for both phases has no workers that prefill alone: ``decode`` is its configuration in a sweep of both.

    Attributes
    ----------
    isl, osl, gpus:
        Tokens of a prompt and of an answer, and GPUs of the clusters.
    prefill, decode:
        Configurations, as indices into the two sweeps.
    prefill_workers, decode_workers, prefill_gpus, decode_gpus:
        Replicas of each, and the GPUs of each pool.
    requests_per_s:
        What both pools finish: the rate of the slower one, prefill busy as often as requests come
        (:func:`cost.serving.steady_state.busy_share`).
    tok_s_per_user, step_batch:
        Output tokens per second of one request while it decodes, and the sequences per GPU at which its steps are
        priced: those that the rate holds. Where prefill is the narrow place it is fewer than those of ``decode``.
    prefill_s, transfer_s:
        The prefill step that a prompt shares with others; moving the caches of that step to the decode pool. In one
        pool: the step that is under way when a prompt arrives and its own prefill; nothing moves.
    """

    isl: float
    osl: float
    gpus: int
    prefill: Whole
    decode: Whole
    prefill_workers: Whole
    decode_workers: Whole
    requests_per_s: Real
    tok_s_per_user: Real
    step_batch: Real
    prefill_s: Real
    transfer_s: Real
    prefill_gpus: Whole
    decode_gpus: Whole

    @property
    def output_tok_s_per_gpu(self) -> Real:
        """Output tokens per second over all GPUs of the clusters."""
        return self.requests_per_s * self.osl / self.gpus


@dataclass(frozen=True)
class RateMatch(_Match[float, int]):
    """One match."""

    @property
    def one_pool(self) -> bool:
        """Whether the same GPUs serve both phases."""
        return self.prefill_workers == 0

    @property
    def ttft_s(self) -> float:
        """Seconds to the first token without waiting."""
        return self.prefill_s + self.transfer_s

    @property
    def in_flight(self) -> float:
        """Requests that the workers which decode hold at a time, by Little's law; of one pool in prefill too."""
        stay_s = self.osl / self.tok_s_per_user + (self.ttft_s if self.one_pool else 0.0)
        return self.requests_per_s * stay_s

    @property
    def batch(self) -> float:
        """Of them, for each GPU of the workers that decode."""
        return self.in_flight / self.decode_gpus

    @property
    def gpus_used(self) -> int:
        """GPUs of both pools."""
        return self.prefill_gpus + self.decode_gpus

    @property
    def total_tok_s_per_gpu(self) -> float:
        """Input and output tokens together."""
        return self.requests_per_s * (self.isl + self.osl) / self.gpus

    @property
    def output_tok_s_per_gpu_used(self) -> float:
        """Output tokens per second over the GPUs of both pools."""
        return self.requests_per_s * self.osl / self.gpus_used


MATCH_FIELDS = tuple(each.name for each in fields(RateMatch))
"""The figures of a match."""
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class RateMatches(_Match[Array, Index]):
    """The best partner of each decode configuration that keeps the limits; every array is ``[matches]``.

    Besides: ``cache_bytes`` of a prompt and the ``path`` they take (None: one pool); ``fastest_ttft_s`` of any
    configuration that prefills, limits or not.
    """

    cache_bytes: float
    path: CachePath | None
    fastest_ttft_s: float

    def __len__(self) -> int:
        return len(self.decode)

    def frontier(self) -> Index:
        """Return the matches that none beats in speed per user and in throughput, slowest per user first."""
        return pareto(self.tok_s_per_user, self.output_tok_s_per_gpu)

    def within(self, ttft_s: float | None, tpot_s: float | None) -> RateMatches:
        """Return the matches that keep the limits."""
        speed, first_s = 1 / tpot_s if tpot_s else 0.0, np.inf if ttft_s is None else ttft_s
        return self.rows(
            np.flatnonzero((self.tok_s_per_user >= speed) & (self.prefill_s + self.transfer_s <= first_s))
        )

    def rows(self, rows: Index) -> RateMatches:
        """Return some of the matches."""
        arrays = {name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)}
        columns: dict[str, Any] = {name: value[rows] for name, value in arrays.items()}
        return replace(self, **columns)

    def best(self) -> RateMatch | None:
        """The match with most throughput, of equal ones the fastest; None where nothing keeps the limits."""
        rate = self.output_tok_s_per_gpu
        best_rows = np.flatnonzero(rate >= (1 - 1e-9) * np.max(rate, initial=0.0))
        return self.row(int(best_rows[np.argmax(self.tok_s_per_user[best_rows])])) if len(self) else None

    def row(self, index: int) -> RateMatch:
        """One match."""
        columns: Iterable[Any] = (getattr(self, name) for name in MATCH_FIELDS)
        return RateMatch(
            *(value.item(index) if isinstance(value, np.ndarray) else value for value in columns)
        )


def match_rates(
    decode: Sweep,
    prefill: Sweep,
    *,
    osl: float,
    ttft_s: float | None = None,
    tpot_s: float | None = None,
    path: CachePath | None = None,
    domains: int | None = None,
    shorter: Sequence[tuple[float, Sweep]] = (),
) -> RateMatches:
    """Size a pool of prefill workers for every decode configuration, with integers within the GPUs there are.

    Parameters
    ----------
    decode, prefill:
        Sweeps of the two phases. Of one cluster: its GPUs are shared out; of two clusters: each pool has its own.
        With a ``tpot_s``, sweep decode at the speed ``1 / tpot_s`` too: each layout then has its exact batch.
    osl:
        Tokens of an answer; the prompt's are those of the prefill sweep.
    ttft_s, tpot_s:
        Longest time to the first token (without waiting: prefill and transfer), and longest time per output
        token; None: no limit.
    path:
        How caches move from pool to pool; None: over the clusters' own links
        (:func:`cost.serving.cache_path.kv_path`).
    domains:
        Domains that both pools share, alike those of the decode sweep's cluster, which may have fewer or more: what a
        worker does is the same among few and among many. None: those of the clusters.
    shorter:
        Where prompts differ in length: sweeps of prefill at those shorter than ``prefill``'s, each with its share of
        the requests; ``osl`` is then the mean.

    Notes
    -----
    With ``r_P`` prompts per second of a prefill worker and ``r_D`` output tokens per second of a decode worker,
    ``x_P`` and ``x_D`` workers serve ``min(x_P r_P, x_D r_D / osl)`` requests per second, if prefill is always busy.
    Where prefill is the slower pool, it is busy only as often as requests come
    (:func:`cost.serving.steady_state.busy_share`). For each decode configuration the numbers are taken that serve
    most, in whole groups of GPUs that do not straddle domains (:func:`cost.serving.packing.partners`); among prefill
    configurations those that keep the limit and that none beats.

    All GPUs of a pool move caches all the time (:class:`FirstToken`), so with ``B`` bytes of a prompt's cache and
    ``R`` bytes/s of a GPU, ``r_P`` and ``r_D / osl`` are at most ``GPUs of a worker * R / B``.

    A prefill worker takes prompts of all lengths, each length in steps of its own: with shares ``s_i`` and ``r_i``
    prompts of that length per second at its best batch that keeps the limit, it finishes ``1 / sum(s_i / r_i)``
    prompts per second. The limit holds for every length, so for the longest.

    Raises
    ------
    InputError
        If the sweeps are of the wrong phases, or the domains of a cluster differ in size.
    """
    if not decode.deployment.workload.decodes or prefill.deployment.workload.decodes:
        raise InputError("rate matching: give a sweep of decode and one of prefill, in that order.")
    if osl < 1:
        raise InputError("expected 1 token or more.", field="osl", value=osl)
    rooms = Rooms.of(decode.deployment.cluster, prefill.deployment.cluster, domains)
    path = path or kv_path(decode.deployment, prefill.deployment)
    share = 1 - math.fsum(share for share, _ in shorter)
    prompts = _prompts(decode, [(share, prefill), *shorter], path)
    first_token, cache_bytes = (
        prompts[0].first,
        _mean(prompts, [prompt.first.cache_bytes for prompt in prompts]),
    )
    answers = decode.deployment.workload.tokens_per_step / osl
    decoders = Workers.of(decode, answers, path, cache_bytes)
    fast_enough = np.flatnonzero(decode.tok_s_per_user >= (1 / tpot_s if tpot_s else 0.0))
    matched, served = _matched(
        decoders.rows(fast_enough),
        decode.step_s[fast_enough] / answers,
        first_token.receive_s[fast_enough],
        prompts,
        rooms,
        np.inf if ttft_s is None else ttft_s,
    )
    matches = matched[0] > 0
    rows, (count_d, count_p, partner) = fast_enough[matches], matched[:, matches]
    per_s = served[matches] / (answers * count_d * decode.gpus[rows])
    batch, step_s = batches_held(decode.rows(rows), per_s)
    soonest = first_token.seconds(slice(None), np.min(first_token.receive_s, initial=np.inf))
    return RateMatches(
        isl=_mean(prompts, [prompt.sweep.deployment.workload.context for prompt in prompts]),
        osl=osl,
        gpus=rooms.gpus,
        prefill=partner,
        decode=rows,
        prefill_workers=count_p,
        decode_workers=count_d,
        requests_per_s=served[matches],
        tok_s_per_user=decode.deployment.workload.tokens_per_step / step_s,
        step_batch=batch,
        prefill_s=prefill.step_s[partner],
        transfer_s=first_token.transfer_s(partner, first_token.receive_s[rows]),
        prefill_gpus=count_p * prefill.gpus[partner],
        decode_gpus=count_d * decode.gpus[rows],
        cache_bytes=cache_bytes,
        path=path,
        fastest_ttft_s=float(np.min(soonest, initial=np.inf)),
    )


def batches_held(decode: Sweep, per_s: Array) -> tuple[Array, Array]:
    """Return the batches at which a pool makes so many steps, and the seconds of each: its own where it makes all.

    ``per_s``: steps of a sequence per second and GPU.
    """
    layouts, layout = decode.parts_of.layouts, decode.parts_of.layout
    slack = np.flatnonzero(per_s * decode.step_s < decode.batch * (1 - _ROUNDING))
    batch, step_s = decode.batch.copy(), decode.step_s.copy()

    def seconds(batch: Array) -> Array:
        return layouts.price(layout[slack], batch).step_s

    batch[slack] = held_batch(per_s[slack], seconds, batch[slack])
    step_s[slack] = seconds(batch[slack])
    return batch, step_s


@dataclass(frozen=True, eq=False)
class FirstToken:
    """What the time to the first token is made of: of each prefill configuration, and of each decode one.

    The whole prompt's cache of ``B`` bytes moves, its cached part too: the decode worker has none of it. The prompts
    of an attention group (``tp`` GPUs in each of ``p`` stages, ``b tp`` prompts at ``b`` per GPU) finish together and
    leave together, to different decode workers, each over the ``tp p`` GPUs that receive it:

        transfer = latency + max(b_P tp_P B / (tp_P p_P R), B / (tp_D p_D R))

    with ``R`` bytes/s of a GPU.
    """

    step_s: Array
    send_s: Array
    receive_s: Array
    latency_s: float
    cache_bytes: float

    @classmethod
    def of(cls, decode: Sweep, prefill: Sweep, path: CachePath) -> FirstToken:
        """Return what it is made of for each configuration of two sweeps."""
        workload = prefill.deployment.workload
        cache_bytes = prompt_cache_bytes(prefill.deployment, workload.context)
        prompts, gpus = prefill.batch * prefill.tp, (prefill.tp * prefill.stages).astype(np.float64)
        return cls(
            step_s=prefill.step_s,
            send_s=np.asarray(prompts * cache_bytes / (gpus * path.bytes_per_s)),
            receive_s=np.asarray(cache_bytes / (decode.tp * decode.stages * path.bytes_per_s)),
            latency_s=path.latency_s,
            cache_bytes=cache_bytes,
        )

    def transfer_s(self, prefill: Index | slice, receive_s: Array | np.float64) -> Array:
        """Moving the caches of a prefill step to where they are received in ``receive_s`` each."""
        return np.asarray(self.latency_s + np.maximum(self.send_s[prefill], receive_s))

    def seconds(self, prefill: Index | slice, receive_s: Array | np.float64) -> Array:
        """Seconds to the first token."""
        return self.step_s[prefill] + self.transfer_s(prefill, receive_s)


@dataclass(frozen=True, eq=False)
class _Prompt:
    """Prompts of one length: their share of the requests, and what each swept configuration does with them alone.

    ``layout``: which layout a row of the sweep is of, the same number at all lengths.
    """

    share: float
    sweep: Sweep
    first: FirstToken
    workers: Workers
    layout: Index


def _prompts(decode: Sweep, lengths: Sequence[tuple[float, Sweep]], path: CachePath) -> list[_Prompt]:
    """Return the prefill side of sweeps with their shares, the longest first."""
    sweeps = [swept for _, swept in lengths]
    shapes = [
        np.stack([swept.gpus, swept.stages, swept.tp, swept.ep, swept.moe_tp, swept.pcp]) for swept in sweeps
    ]
    number = np.unique(np.concatenate(shapes, axis=1), axis=1, return_inverse=True)[1].reshape(-1)
    layouts = np.split(number, np.cumsum([len(swept) for swept in sweeps])[:-1])
    prompts = []
    for (share, swept), layout in zip(lengths, layouts, strict=True):
        first_token = FirstToken.of(decode, swept, path)
        workers = Workers.of(swept, 1.0, path, first_token.cache_bytes)
        prompts.append(_Prompt(share, swept, first_token, workers, layout))
    return prompts


def _mean(prompts: Sequence[_Prompt], values: Sequence[float]) -> float:
    """Return a mean over requests."""
    if len(values) == 1:
        return values[0]
    return math.fsum(prompt.share * value for prompt, value in zip(prompts, values, strict=True))


def _matched(
    decode: Workers,
    answer_s: Array,
    receive_s: Array,
    prompts: Sequence[_Prompt],
    rooms: Rooms,
    ttft_s: float,
) -> tuple[Index, Array]:
    """Return decode workers, prefill workers and of which kind these are, ``[3, decode]``, and requests per second.

    ``answer_s``: seconds of an answer. Which prefill keeps the limit depends on the decode side only by how fast it
    receives a cache.
    """
    matched = np.zeros((3, len(receive_s)), dtype=np.int64)
    served = np.zeros(len(receive_s))
    groups: list[tuple[list[NDArray[np.bool_]], list[float]]] = []  # of times to receive that keep the same
    for each_s in np.unique(receive_s):
        able = [
            prompt.first.seconds(
                slice(None), each_s * (prompt.first.cache_bytes / prompts[0].first.cache_bytes)
            )
            <= ttft_s
            for prompt in prompts
        ]
        if groups and all(map(np.array_equal, able, groups[-1][0])):
            groups[-1][1].append(each_s)
        else:
            groups.append((able, [each_s]))
    for able, seconds in groups:
        stand_ins, prefill = _workers_of_all(prompts, able)
        rows = np.flatnonzero(np.isin(receive_s, seconds))
        decoders = decode.rows(rows)
        kinds = worth_trying(prefill, stand_ins, rooms.prefill)
        matched[:, rows], served[rows] = partners(decoders, answer_s[rows], prefill, kinds, rooms)
    return matched, served


def _workers_of_all(
    prompts: Sequence[_Prompt], able: Sequence[NDArray[np.bool_]]
) -> tuple[NDArray[np.bool_], Workers]:
    """Return which rows of the longest serve where ``able`` of each length keep the limit, and what each serves.

    Of several lengths one row stands for each layout that keeps the limit at all of them.
    """
    longest = prompts[0]
    if len(prompts) == 1:
        return able[0], longest.workers
    best = np.zeros((len(prompts), 1 + max(int(np.max(prompt.layout, initial=0)) for prompt in prompts)))
    for row, prompt, keeps in zip(best, prompts, able, strict=True):
        np.maximum.at(row, prompt.layout[keeps], prompt.workers.requests_per_s[keeps])
    with np.errstate(divide="ignore"):
        rate = 1 / np.sum(np.array([prompt.share for prompt in prompts])[:, None] / best, axis=0)
    workers, layout = longest.workers, longest.layout
    stand_ins = able[0] & (workers.requests_per_s == best[0][layout]) & (rate[layout] > 0)
    return stand_ins, replace(workers, requests_per_s=rate[layout])
