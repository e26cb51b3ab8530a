"""A pool that prefills and one that decodes: sizes at which neither waits for the other, and the first token."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from cost.cache_path import CachePath, kv_path, prompt_cache_bytes
from cost.layouts import Sweep
from cost.layouts.front import pareto
from cost.pool_room import Array, Index, Rooms, Workers, best_first, partners, served_per_s, worth_trying
from cost.quantity import LONGEST_CONTEXT
from cost.workload import Workload
from topology.base.errors import InputError
from topology.base.figures import Evidence, Figure

_SOURCE = "aiconfigurator 0.12.0, rate matching of disaggregated serving"
PREFILL_DERATE = Figure(0.9, "1", Evidence.ASSUMED, _SOURCE, "0.9")
DECODE_DERATE = Figure(0.92, "1", Evidence.ASSUMED, _SOURCE, "0.92")
"""Of its rate alone that a pool keeps in service, where requests do not come one exactly after the other."""
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
    """Two pools that serve a mix of requests together: one match, or the columns of several.

    Attributes
    ----------
    isl, osl, gpus:
        Tokens of a prompt and of an answer, and GPUs of the clusters.
    prefill, decode:
        Configurations, as indices into the two sweeps.
    prefill_workers, decode_workers, prefill_gpus, decode_gpus:
        Replicas of each, and the GPUs of each pool.
    requests_per_s:
        What both pools finish, at their derates: the rate of the slower one.
    tok_s_per_user:
        Output tokens per second of one request while it decodes.
    prefill_s, transfer_s:
        The prefill step that a prompt shares with others; moving the caches of that step to the decode pool.
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
    def ttft_s(self) -> float:
        """Seconds to the first token without waiting."""
        return self.prefill_s + self.transfer_s

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


@dataclass(frozen=True, eq=False)
class RateMatches(_Match[Array, Index]):
    """The best partner of each decode configuration that keeps the limits; every array is ``[matches]``.

    Besides: ``cache_bytes`` of a prompt and the ``path`` they take; ``fastest_ttft_s`` of any configuration that
    prefills, limits or not.
    """

    cache_bytes: float
    path: CachePath
    fastest_ttft_s: float

    def __len__(self) -> int:
        return len(self.decode)

    def frontier(self) -> Index:
        """Return the matches that none beats in speed per user and in throughput, slowest per user first."""
        return pareto(self.tok_s_per_user, self.output_tok_s_per_gpu)

    def best(self) -> RateMatch | None:
        """The match with most throughput; None where nothing keeps the limits."""
        return self.row(int(np.argmax(self.output_tok_s_per_gpu))) if len(self) else None

    def row(self, index: int) -> RateMatch:
        """One match."""
        values: dict[str, Any] = {each.name: getattr(self, each.name) for each in fields(RateMatch)}
        arrays = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
        return RateMatch(**(values | {name: value[index].item() for name, value in arrays.items()}))


def serving_workloads(
    workload: Workload, isl: int, osl: int, *, prefix_hit: float = 0.0
) -> tuple[Workload, Workload]:
    """Return what the decode pool and the prefill pool do for prompts of ``isl`` and answers of ``osl`` tokens.

    While it decodes, a request has ``isl + osl / 2`` tokens in its cache on average. ``prefix_hit`` of the prompt's
    tokens are not prefilled.

    Raises
    ------
    InputError
        If a length is not at least 1, or too long.
    """
    for name, value in (("`isl`", isl), ("`osl`", osl)):
        if not 1 <= value <= LONGEST_CONTEXT:
            raise InputError(f"{name} {value}: expected 1 token or more, at most {LONGEST_CONTEXT:,}.")
    decode = replace(workload, phase="decode", context=isl + osl // 2)
    prefill = replace(
        workload, phase="prefill", context=isl, draft_tokens=0, accept_length=1.0, prefix_hit=prefix_hit
    )
    return decode, prefill


def match_rates(  # noqa: PLR0913 - each limit, derate and path is set alone
    decode: Sweep,
    prefill: Sweep,
    *,
    osl: float,
    ttft_s: float | None = None,
    tpot_s: float | None = None,
    prefill_derate: Figure = PREFILL_DERATE,
    decode_derate: Figure = DECODE_DERATE,
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
    prefill_derate, decode_derate:
        Of its rate alone that each pool keeps.
    path:
        How caches move from pool to pool; None: over the clusters' own links (:func:`cost.cache_path.kv_path`).
    domains:
        Domains that both pools share, alike those of the decode sweep's cluster, which may have fewer or more: what a
        worker does is the same among few and among many. None: those of the clusters.
    shorter:
        Where prompts differ in length: sweeps of prefill at those shorter than ``prefill``'s, each with its share of
        the requests; ``osl`` is then the mean.

    Notes
    -----
    With ``r_P`` prompts per second of a prefill worker and ``r_D`` output tokens per second of a decode worker,
    both derated, ``x_P`` and ``x_D`` workers serve ``min(x_P r_P, x_D r_D / osl)`` requests per second. For each
    decode configuration the numbers are taken that serve most, in whole groups of GPUs that do not straddle domains:
    as many decode workers as enough prefill workers find room beside, or one more, which waits at times; among
    prefill configurations those that keep the limit and that none beats.

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
        raise InputError(f"`osl` {osl}: expected 1 token or more.")
    rooms = Rooms.of(decode.deployment.cluster, prefill.deployment.cluster, domains)
    path = path or kv_path(decode.deployment, prefill.deployment)
    first = FirstToken.of(decode, prefill, path)
    share = 1 - math.fsum(share for share, _ in shorter)
    prompts = _Prompts.of(decode, [(share, prefill), *shorter], path, prefill_derate.value)
    moved = path, prompts.mean_cache_bytes
    answers = decode_derate.value * decode.deployment.workload.tokens_per_step / osl
    decoders = Workers.of(decode, answers, moved)
    wanted = np.flatnonzero(decode.tok_s_per_user >= (1 / tpot_s if tpot_s else 0.0))
    matched, served = _matched(decoders.some(wanted), first.receive_s[wanted], prompts, rooms, ttft_s)
    matches = matched[0] > 0
    rows, (count_d, count_p, partner) = wanted[matches], matched[:, matches]
    soonest = first.seconds(slice(None), np.min(first.receive_s, initial=np.inf))
    return RateMatches(
        isl=prompts.mean_tokens,
        osl=osl,
        gpus=rooms.gpus,
        prefill=partner,
        decode=rows,
        prefill_workers=count_p,
        decode_workers=count_d,
        requests_per_s=served[matches],
        tok_s_per_user=decode.tok_s_per_user[rows],
        prefill_s=prefill.step_s[partner],
        transfer_s=first.transfer_s(partner, first.receive_s[rows]),
        prefill_gpus=count_p * prefill.gpus[partner],
        decode_gpus=count_d * decode.gpus[rows],
        cache_bytes=prompts.mean_cache_bytes,
        path=path,
        fastest_ttft_s=float(np.min(soonest, initial=np.inf)),
    )


def _matched(
    decode: Workers, receive_s: Array, prompts: _Prompts, rooms: Rooms, ttft_s: float | None
) -> tuple[Index, Array]:
    """Return decode workers, prefill workers and of which kind these are, ``[3, decode]``, and requests per second.

    Which prefill keeps the limit depends on the decode side only by how fast it receives a cache.
    """
    matched = np.zeros((3, len(receive_s)), dtype=np.int64)
    served = np.zeros(len(receive_s))
    kinds: list[tuple[list[NDArray[np.bool_]], list[float]]] = []
    for each_s in np.unique(receive_s):
        keeps = prompts.keeping(each_s, np.inf if ttft_s is None else ttft_s)
        if kinds and all(map(np.array_equal, keeps, kinds[-1][0])):
            kinds[-1][1].append(each_s)
        else:
            kinds.append((keeps, [each_s]))
    order, ordered = np.zeros(0, dtype=np.int64), None
    for keeps, seconds in kinds:
        able, prefill = prompts.serving(keeps)
        if prefill is not ordered:
            order, ordered = best_first(prompts.sweeps[0].step_s, prefill), prefill
        alike = np.isin(receive_s, seconds)
        some = decode.some(np.flatnonzero(alike))
        found = partners(some, prefill, worth_trying(order, prefill, able), rooms)
        matched[:, alike] = found
        served[alike] = served_per_s(some, prefill.some(found[2]), found[0], found[1])
    return matched, served


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
        whole = prompt_cache_bytes(prefill.deployment, workload.context)
        prompts, gpus = prefill.batch * prefill.tp, (prefill.tp * prefill.stages).astype(np.float64)
        return cls(
            step_s=prefill.step_s,
            send_s=np.asarray(prompts * whole / (gpus * path.bytes_per_s)),
            receive_s=np.asarray(whole / (decode.tp * decode.stages * path.bytes_per_s)),
            latency_s=path.latency_s,
            cache_bytes=whole,
        )

    def transfer_s(self, prefill: Index | slice, receive_s: Array | np.float64) -> Array:
        """Moving the caches of a prefill step to where they are received in ``receive_s`` each."""
        return np.asarray(self.latency_s + np.maximum(self.send_s[prefill], receive_s))

    def seconds(self, prefill: Index | slice, receive_s: Array | np.float64) -> Array:
        """Seconds to the first token."""
        return self.step_s[prefill] + self.transfer_s(prefill, receive_s)


@dataclass(frozen=True, eq=False)
class _Prompts:
    """The prefill side: prompts of each length, the longest first.

    Attributes
    ----------
    shares, sweeps, firsts, workers:
        Of the requests, ``[lengths]``; what was swept for each, how soon its first token comes, what a worker
        finishes of it alone.
    layout:
        For each sweep which layout a row is of, the same number in all.
    """

    shares: Sequence[float]
    sweeps: Sequence[Sweep]
    firsts: Sequence[FirstToken]
    workers: Sequence[Workers]
    layout: Sequence[Index]

    @classmethod
    def of(
        cls,
        decode: Sweep,
        lengths: Sequence[tuple[float, Sweep]],
        path: CachePath,
        derate: float,
    ) -> _Prompts:
        """Return the prefill side of sweeps with their shares."""
        sweeps = [found for _, found in lengths]
        firsts = [FirstToken.of(decode, found, path) for found in sweeps]
        workers = [
            Workers.of(found, derate, (path, first.cache_bytes))
            for found, first in zip(sweeps, firsts, strict=True)
        ]
        keys = [np.stack([f.gpus, f.stages, f.tp, f.ep, f.moe_tp]) for f in sweeps]
        number = np.unique(np.concatenate(keys, axis=1), axis=1, return_inverse=True)[1].reshape(-1)
        ends = np.cumsum([len(found) for found in sweeps])[:-1]
        return cls([share for share, _ in lengths], sweeps, firsts, workers, np.split(number, ends))

    @property
    def mean_tokens(self) -> float:
        """Tokens of a prompt on average."""
        lengths = [found.deployment.workload.context for found in self.sweeps]
        return lengths[0] if len(lengths) == 1 else math.fsum(map(operator.mul, self.shares, lengths))

    @property
    def mean_cache_bytes(self) -> float:
        """Bytes of a prompt's cache on average."""
        caches = [first.cache_bytes for first in self.firsts]
        return caches[0] if len(caches) == 1 else math.fsum(map(operator.mul, self.shares, caches))

    def keeping(self, receive_s: np.float64, ttft_s: float) -> list[NDArray[np.bool_]]:
        """Return which rows of each length keep the limit where the longest's cache is received so fast."""
        longest = self.firsts[0].cache_bytes
        return [
            first.seconds(slice(None), np.float64(receive_s * (first.cache_bytes / longest))) <= ttft_s
            for first in self.firsts
        ]

    def serving(self, able: Sequence[NDArray[np.bool_]]) -> tuple[NDArray[np.bool_], Workers]:
        """Return which rows of the longest serve where ``able`` of each length keep the limit, and what each serves.

        Of several lengths one row stands for each layout that keeps the limit at all of them.
        """
        if len(able) == 1:
            return able[0], self.workers[0]
        layouts = 1 + max(int(np.max(number, initial=0)) for number in self.layout)
        best = np.zeros((len(able), layouts))
        for row, number, workers, keeps in zip(best, self.layout, self.workers, able, strict=True):
            np.maximum.at(row, number[keeps], workers.requests_per_s[keeps])
        with np.errstate(divide="ignore"):
            rate = 1 / np.sum(np.array(self.shares)[:, None] / best, axis=0)
        ours, number = self.workers[0], self.layout[0]
        stands = able[0] & (ours.requests_per_s == best[0][number]) & (rate[number] > 0)
        return stands, Workers(ours.gpus, ours.stages, rate[number])
