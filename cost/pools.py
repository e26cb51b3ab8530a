"""A pool that prefills and one that decodes: the way of a prompt's cache, and sizes at which neither pool waits.

A cache is moved once, whatever it is stored as: a latent that tensor parallelism replicates leaves each group once,
its GPUs sending equal parts side by side. What a receiving group copies among its own GPUs is not counted.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from cost.deployment import Deployment
from cost.dtypes import cache_bytes_per_element
from cost.layouts import Sweep
from cost.layouts.candidates import domain_gpus
from cost.layouts.result import pareto
from cost.machine import stage_rates
from cost.prices import cache_tier, figure_file
from cost.quantity import Quantity
from cost.workload import Workload
from topology.cluster import Cluster
from topology.errors import InputError, MissingFigureError
from topology.figures import Evidence, Figure
from topology.units import added

OUT_REACH = Figure(
    0.475,
    "1",
    Evidence.MEASURED,
    "Mooncake Transfer Engine, README: 190 GB/s over 8 x 400 Gb/s RoCE for 40 GB of cache (87 over 4 x 200 Gb/s)",
    "190 GB/s of 400 GB/s",
)
"""Of the scale-out NICs' rate that a transfer of caches reaches."""
UP_REACH = Figure(
    0.053,
    "1",
    Evidence.MEASURED,
    "NIXL issue 1037, November 2025: nixlbench 48 GB/s between GPUs of two nodes over NVLink 5 (UCX alone 746 GB/s)",
    "48 GB/s of 900 GB/s",
)
"""Of the scale-up links' rate that a transfer of caches reaches: the library's pipeline, not the links, limits it."""
HOST_REACH = Figure(
    0.88,
    "1",
    Evidence.MEASURED,
    "NVIDIA's article on nvbandwidth: 55.63 GB/s from host to device over PCIe 5.0 x16",
    "55.6 GB/s of 63 GB/s",
)
"""Of the link between GPU and host that copies reach."""


@dataclass(frozen=True)
class CachePath:
    """The way of a cache.

    Attributes
    ----------
    name:
        Fabric or tier, as reports print it.
    bytes_per_s:
        Of one GPU, in one direction, as transfers reach it.
    latency_s:
        Before the first byte arrives.
    reach:
        The part of the links' rate that ``bytes_per_s`` counts.
    """

    name: str
    bytes_per_s: float
    latency_s: float
    reach: Figure

    def seconds(self, moved: Quantity, gpus: Quantity) -> Quantity:
        """Seconds to move ``moved`` bytes, ``gpus`` side by side: ``latency + bytes / (gpus * rate)``."""
        return self.latency_s + moved / (gpus * self.bytes_per_s)


def prompt_cache_bytes(deployment: Deployment, tokens: float) -> float:
    """Return the cache bytes of ``tokens`` tokens of one sequence over all layers, each stored once."""
    element = cache_bytes_per_element(deployment.workload.kv_dtype)
    model = deployment.model
    counts = model.kind_counts(range(len(model.layers)))
    return float(added(count * layer.attention.cache_bytes(tokens, element) for layer, count in counts))


def kv_path(
    decode: Deployment, prefill: Deployment, *, up_reach: Figure = UP_REACH, out_reach: Figure = OUT_REACH
) -> CachePath:
    """Return the links that caches take from the pool that prefills to the one that decodes.

    Notes
    -----
    Pools that share a cluster of one scale-up domain use its links. In every other case any prefill worker may hand
    a prompt to any decode worker, so the path is that between domains: each GPU's scale-out links, less what the
    fabric is oversubscribed, at the slower of two clusters.

    Raises
    ------
    InputError
        If pools in several domains have no scale-out fabric between them.
    """
    clusters = [decode.cluster] if decode.cluster is prefill.cluster else [decode.cluster, prefill.cluster]
    rates = [stage_rates(cluster, range(len(cluster.gpus)), ("bf16",)) for cluster in clusters]
    if len(clusters) == 1 and len(domain_gpus(clusters[0])) == 1:
        one = rates[0]
        return CachePath(one.up_fabric, up_reach.value * one.up_bytes_per_s, one.up_latency_s, up_reach)
    for cluster, one in zip(clusters, rates, strict=True):
        if one.out_bytes_per_s <= 0:
            raise InputError(
                f"{cluster.name}: no `fabric:` leaves its domains, so caches cannot move between pools of "
                "prefill and of decode; add one."
            )
    slowest = min(rates, key=lambda one: one.out_bytes_per_s)
    latency_s = max(one.out_latency_s for one in rates)
    return CachePath(slowest.out_fabric, out_reach.value * slowest.out_bytes_per_s, latency_s, out_reach)


def host_path(deployment: Deployment, tier: str, *, link: Figure | None = None) -> CachePath:
    """Return how caches that lie in a tier of the hosts come back to the GPUs that prefill.

    Parameters
    ----------
    tier:
        Name in the catalog of tiers (:func:`cost.prices.cache_tier`).
    link:
        Bytes/s between a GPU and its host in one direction; None: the catalog's for the slowest GPU.

    Notes
    -----
    Each GPU reads at ``min(reach * link, devices per GPU * bytes/s of a device)``; the devices of a host are shared
    out evenly over its GPUs. Latency of the device is not counted.

    Raises
    ------
    InputError
        If there is no such tier.
    MissingFigureError
        If the catalog has no link for a GPU, or no usual number of devices.
    """
    what = cache_tier(tier)
    if what.per_gpu is None:
        raise MissingFigureError(
            f"`kv_offload` {tier}: no figure says how many of them a host has for each GPU; take another tier."
        )
    table = figure_file("host_links", "gpus")
    rates = []
    for name in {domain.gpu.name for domain in deployment.cluster.spec.domains}:
        if link is None and name not in table.names:
            raise MissingFigureError(
                f"`kv_offload`: the link between {name} and its host is not in the catalog; give `host_link` RATE."
            )
        found = link or table.figures(table.entry(name), {"bytes_per_s": "byte/s"})["bytes_per_s"]
        rates.append(HOST_REACH.value * found.value)
    devices = what.per_gpu.value * what.bytes_per_s.value
    return CachePath(tier, min(*rates, devices), 0.0, HOST_REACH)


Array = NDArray[np.float64]
Index = NDArray[np.int64]


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


_ALIKE = 1e-12
"""Rates that differ by less are rounded."""
Real = TypeVar("Real", float, Array)
Whole = TypeVar("Whole", int, Index)


@dataclass(frozen=True, eq=False)
class _Matched(Generic[Real, Whole]):
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
    prefill_s, transfer_s, fetch_s:
        The prefill step that a prompt shares with others; moving the caches of that step to the decode pool; bringing
        their cached part back from where it lies (0: it is in HBM).
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
    fetch_s: Real
    prefill_gpus: Whole
    decode_gpus: Whole

    @property
    def output_tok_s_per_gpu(self) -> Real:
        """Output tokens per second over all GPUs of the clusters."""
        return self.requests_per_s * self.osl / self.gpus


@dataclass(frozen=True)
class RateMatch(_Matched[float, int]):
    """One match."""

    @property
    def ttft_s(self) -> float:
        """Seconds to the first token without waiting."""
        return self.fetch_s + self.prefill_s + self.transfer_s

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
class RateMatches(_Matched[Array, Index]):
    """The best partner of each decode configuration that keeps the limits; every array is ``[matches]``.

    Besides: ``cache_bytes`` of a prompt and the ``path`` they take; ``fetched_bytes`` of its cached part and the path
    that these come by, None where they are in HBM; ``fastest_ttft_s`` of any configuration that prefills, limits or
    not.
    """

    cache_bytes: float
    path: CachePath
    fetched_bytes: float
    fetch_path: CachePath | None
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
        If a length is not at least 1.
    """
    for name, value in (("`isl`", isl), ("`osl`", osl)):
        if value < 1:
            raise InputError(f"{name} {value}: expected 1 token or more.")
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
    fetch: CachePath | None = None,
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
        Longest time to the first token (without waiting: fetch, prefill and transfer), and longest time per output
        token; None: no limit.
    prefill_derate, decode_derate:
        Of its rate alone that each pool keeps.
    path:
        How caches move from pool to pool; None: over the clusters' own links (:func:`cost.pools.kv_path`).
    fetch:
        How the cached part of prompts comes back from its tier (:func:`cost.pools.host_path`); None: it is in the
        HBM of the prefill worker.
    domains:
        Domains that both pools share, alike those of the decode sweep's cluster, which may have fewer or more: what a
        worker does is the same among few and among many. None: those of the clusters.
    shorter:
        Where prompts differ in length: sweeps of prefill at those shorter than ``prefill``'s, each with its share of
        the requests; ``osl`` is then the mean, and no prefix is fetched.

    Notes
    -----
    With ``r_P`` prompts per second of a prefill worker and ``r_D`` output tokens per second of a decode worker,
    both derated, ``x_P`` and ``x_D`` workers serve ``min(x_P r_P, x_D r_D / osl)`` requests per second. For each
    decode configuration the numbers are taken that serve most, in whole groups of GPUs that do not straddle domains:
    as many decode workers as enough prefill workers find room beside, or one more, which waits at times; among
    prefill configurations those that keep the limit and that none beats.

    The whole prompt's cache of ``B`` bytes moves, its cached part too: the decode worker has none of it. The prompts
    of an attention group (``tp`` GPUs in each of ``p`` stages, ``b tp`` prompts at ``b`` per GPU) finish together and
    leave together, to different decode workers, each over the ``tp p`` GPUs that receive it:

        transfer = latency + max(b_P tp_P B / (tp_P p_P R), B / (tp_D p_D R))

    with ``R`` bytes/s of a GPU. All GPUs of a pool move caches all the time, so ``r_P`` and ``r_D / osl`` are at most
    ``GPUs of a worker * R / B``. A fetch of the cached part's ``F`` bytes goes the same way on the prefill side
    alone: ``b_P tp_P F / (tp_P p_P H)`` before the step, and ``r_P`` at most ``GPUs * H / F``.

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
    rooms = _Rooms.of(decode.deployment.cluster, prefill.deployment.cluster, domains)
    path = path or kv_path(decode.deployment, prefill.deployment)
    if fetch is not None and shorter:
        raise InputError("rate matching: prompts of several lengths fetch no prefix; leave one out.")
    first = FirstToken.of(decode, prefill, path, fetch)
    share = 1 - math.fsum(share for share, _ in shorter)
    prompts = _Prompts.of(decode, [(share, prefill), *shorter], path, fetch, prefill_derate.value)
    moved = path, prompts.mean_cache_bytes
    answers = decode_derate.value * decode.deployment.workload.tokens_per_step / osl
    decoders = Workers.of(decode, answers, moved)
    wanted = np.flatnonzero(decode.tok_s_per_user >= (1 / tpot_s if tpot_s else 0.0))
    matched = np.zeros((3, len(wanted)), dtype=np.int64)
    served = np.zeros(len(wanted))
    # which prefill keeps the limit depends on the decode side only by how fast it receives a cache
    for receive_s in np.unique(first.receive_s[wanted]):
        able, prefillers = prompts.able(receive_s, np.inf if ttft_s is None else ttft_s)
        tried = _worth_trying(prefill.step_s, prefillers, able)
        alike = first.receive_s[wanted] == receive_s
        some = decoders.some(wanted[alike])
        found = _partners(some, prefillers, tried, rooms)
        matched[:, alike] = found
        served[alike] = served_per_s(some, prefillers.some(found[2]), found[0], found[1])
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
        fetch_s=first.fetch_s[partner],
        prefill_gpus=count_p * prefill.gpus[partner],
        decode_gpus=count_d * decode.gpus[rows],
        cache_bytes=prompts.mean_cache_bytes,
        path=path,
        fetched_bytes=first.fetched_bytes,
        fetch_path=fetch,
        fastest_ttft_s=float(np.min(soonest, initial=np.inf)),
    )


@dataclass(frozen=True, eq=False)
class FirstToken:
    """What the time to the first token is made of: of each prefill configuration, and of each decode one."""

    step_s: Array
    send_s: Array
    fetch_s: Array
    receive_s: Array
    latency_s: float
    cache_bytes: float
    fetched_bytes: float

    @classmethod
    def of(cls, decode: Sweep, prefill: Sweep, path: CachePath, fetch: CachePath | None) -> FirstToken:
        """Return what it is made of for each configuration of two sweeps."""
        workload = prefill.deployment.workload
        whole = prompt_cache_bytes(prefill.deployment, workload.context)
        part = prompt_cache_bytes(prefill.deployment, workload.prompt_cached) if fetch else 0.0
        prompts, gpus = prefill.batch * prefill.tp, (prefill.tp * prefill.stages).astype(np.float64)
        return cls(
            step_s=prefill.step_s,
            send_s=np.asarray(prompts * whole / (gpus * path.bytes_per_s)),
            fetch_s=np.asarray(fetch.seconds(prompts * part, gpus) if fetch else np.zeros(len(prefill))),
            receive_s=np.asarray(whole / (decode.tp * decode.stages * path.bytes_per_s)),
            latency_s=path.latency_s,
            cache_bytes=whole,
            fetched_bytes=part,
        )

    def transfer_s(self, prefill: Index | slice, receive_s: Array | np.float64) -> Array:
        """Moving the caches of a prefill step to where they are received in ``receive_s`` each."""
        return np.asarray(self.latency_s + np.maximum(self.send_s[prefill], receive_s))

    def seconds(self, prefill: Index | slice, receive_s: Array | np.float64) -> Array:
        """Seconds to the first token."""
        return self.fetch_s[prefill] + self.step_s[prefill] + self.transfer_s(prefill, receive_s)


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
        fetch: CachePath | None,
        derate: float,
    ) -> _Prompts:
        """Return the prefill side of sweeps with their shares."""
        sweeps = [found for _, found in lengths]
        firsts = [FirstToken.of(decode, found, path, fetch) for found in sweeps]
        workers = [
            Workers.of(found, derate, (path, first.cache_bytes), (fetch, first.fetched_bytes))
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

    def able(self, receive_s: np.float64, ttft_s: float) -> tuple[NDArray[np.bool_], Workers]:
        """Return which rows of the longest keep the limit where its cache is received so fast, and what each serves.

        Of several lengths one row stands for each layout that keeps the limit at all of them.
        """
        longest = self.firsts[0].cache_bytes
        able = [
            first.seconds(slice(None), np.float64(receive_s * (first.cache_bytes / longest))) <= ttft_s
            for first in self.firsts
        ]
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


@dataclass(frozen=True, eq=False)
class Workers:
    """GPUs and stages of workers, and requests that each serves per second."""

    gpus: Index
    stages: Index
    requests_per_s: Array

    @classmethod
    def of(cls, sweep: Sweep, requests: float, *moved: tuple[CachePath | None, float]) -> Workers:
        """Return the workers of a sweep, ``requests`` done by a sequence's step; each moves bytes over paths."""
        rate = requests * sweep.batch * sweep.gpus / sweep.step_s
        for path, count in moved:
            if path is not None and count:
                rate = np.minimum(rate, sweep.gpus * path.bytes_per_s / count)
        return cls(sweep.gpus, sweep.stages, rate)

    def some(self, index: Index | int) -> Workers:
        """Return those at ``index``."""
        return Workers(self.gpus[index], self.stages[index], self.requests_per_s[index])

    @property
    def group(self) -> Index:
        """GPUs of one stage."""
        return self.gpus // self.stages


@dataclass(frozen=True)
class _Room:
    """Domains of equal size, into which groups of GPUs are put: a part of one, or several whole ones."""

    domains: int
    size: int

    @classmethod
    def of(cls, cluster: Cluster) -> _Room:
        sizes = [len(gpus) for gpus in domain_gpus(cluster)]
        if len(set(sizes)) > 1:
            raise InputError(
                f"rate matching: the domains of {cluster.name} have {min(sizes)} to {max(sizes)} GPUs; give whole "
                "domains of one size, like name@N."
            )
        return cls(len(sizes), sizes[0])

    @property
    def gpus(self) -> int:
        return self.domains * self.size

    def most(self, workers: Workers) -> Index:
        """Workers that fit in all of it."""
        none = np.zeros_like(np.asarray(workers.gpus))
        return np.asarray(self.beside(none, workers, workers))

    def beside(self, count: Index, workers: Workers, others: Workers) -> Index:
        """How many ``others`` fit beside ``count`` ``workers``; negative where those alone do not.

        The workers fill domains one after the other; the last of them may have room left.
        """
        each, wide = self._groups(workers.group)
        groups = count * workers.stages
        whole, rest = groups // each, groups % each
        domains = np.where(wide > 1, groups * wide, whole + (rest > 0))
        left = self.domains - domains
        begun = np.where(rest > 0, self.size - rest * workers.group, 0)
        other_each, other_wide = self._groups(others.group)
        fits = np.where(other_wide > 1, left // other_wide, left * other_each + begun // others.group)
        return np.where(left < 0, -1, fits // others.stages)

    def _groups(self, size: Index) -> tuple[Index, Index]:
        """Groups of ``size`` GPUs in a domain, and domains of a group."""
        return np.maximum(1, self.size // size), np.maximum(1, size // self.size)


@dataclass(frozen=True)
class _Rooms:
    """The room of both pools, which is one and the same where they share a cluster."""

    decode: _Room
    prefill: _Room
    shared: bool

    @classmethod
    def of(cls, decode: Cluster, prefill: Cluster, domains: int | None = None) -> _Rooms:
        if domains is None:
            return cls(_Room.of(decode), _Room.of(prefill), decode is prefill)
        one = replace(_Room.of(decode), domains=domains)
        return cls(one, one, shared=True)

    @property
    def gpus(self) -> int:
        return self.decode.gpus if self.shared else self.decode.gpus + self.prefill.gpus

    def left(self, count: Index, decode: Workers, prefill: Workers) -> Index:
        """Prefill workers that fit where there are ``count`` decode workers; negative where those alone do not."""
        if self.shared:
            return self.decode.beside(count, decode, prefill)
        return np.where(count > self.decode.most(decode), -1, self.prefill.most(prefill))


def _partners(decode: Workers, prefill: Workers, tried: Sequence[int], rooms: _Rooms) -> Index:
    """Decode workers of each kind, prefill workers beside them, and of which kind these are, ``[3, decode]``.

    Of the kinds in ``tried`` the one with most requests per second, then the one with fewest GPUs. The decode workers
    are the most that enough prefill workers find room beside, or one more, which then waits for prefill.
    """
    kinds = np.asarray(tried, dtype=np.int64)
    if not len(kinds):
        return np.zeros((3, len(decode.gpus)), dtype=np.int64)
    one = prefill.some(kinds[:, None])
    enough_d, enough_p = _most(decode, one, rooms)  # [tried, decode]
    more_d, more_p = enough_d + 1, np.maximum(0, rooms.left(enough_d + 1, decode, one))
    count_d, count_p = np.stack([enough_d, more_d]), np.stack([enough_p, more_p])
    rate = served_per_s(decode, one, count_d, count_p).reshape(-1, len(decode.gpus))
    used = (count_d * decode.gpus + count_p * one.gpus).reshape(rate.shape)
    most = np.max(rate, axis=0)
    row = np.argmin(np.where(rate >= most * (1 - _ALIKE), used, np.iinfo(np.int64).max), axis=0)
    column = np.arange(len(row))
    found = [count.reshape(rate.shape)[row, column] for count in (count_d, count_p)]
    return np.where(most > 0, np.stack([*found, kinds[row % len(kinds)]]), 0)


def served_per_s(decode: Workers, prefill: Workers, count_d: Index, count_p: Index) -> Array:
    """Requests per second of so many workers of both pools: those of the slower pool."""
    return np.minimum(count_d * decode.requests_per_s, count_p * prefill.requests_per_s * (1 + _ALIKE))


def _most(decode: Workers, prefill: Workers, rooms: _Rooms) -> tuple[Index, Index]:
    """Most decode workers that enough prefill workers find room beside, and how many those are."""

    def needed(count: Index) -> Index:
        wanted = count * decode.requests_per_s / prefill.requests_per_s
        return np.ceil(wanted * (1 - _ALIKE)).astype(np.int64)

    def fits(count: Index) -> NDArray[np.bool_]:
        return np.asarray(needed(count) <= rooms.left(count, decode, prefill))

    shape = np.broadcast_shapes(decode.gpus.shape, prefill.gpus.shape)
    low = np.zeros(shape, dtype=np.int64)
    high = np.broadcast_to(rooms.decode.most(decode) + 1, shape)
    # `low` workers fit and `high` do not; more workers never leave more room
    while np.any(high - low > 1):
        middle = (low + high) // 2
        able = fits(middle)
        low, high = np.where(able, middle, low), np.where(able, high, middle)
    return low, needed(low)


def _worth_trying(step_s: Array, prefill: Workers, keeps: NDArray[np.bool_]) -> list[int]:
    """Prefill configurations that keep the limit and that no smaller worker beats."""
    rate = prefill.requests_per_s
    able = np.flatnonzero(keeps)
    fastest = able[np.lexsort((step_s[able], -rate[able]))]
    sizes = np.stack([prefill.gpus[fastest], prefill.stages[fastest]])
    best = fastest[np.sort(np.unique(sizes, axis=1, return_index=True)[1])]
    kept: list[int] = []
    group = prefill.group
    for index in sorted(best.tolist(), key=lambda i: (prefill.gpus[i], prefill.stages[i])):
        if not any(rate[one] >= rate[index] and group[index] % group[one] == 0 for one in kept):
            kept.append(index)
    return kept


@dataclass(frozen=True)
class FetchOrRecompute:
    """One prompt alone, its cached part brought back from a tier or prefilled anew.

    Attributes
    ----------
    fetch_s, rest_s:
        Seconds to bring the cached part back, and to prefill the rest over it.
    recompute_s:
        Seconds to prefill the whole prompt.
    """

    fetch_s: float
    rest_s: float
    recompute_s: float

    @property
    def faster(self) -> str:
        """``fetch`` or ``recompute``."""
        return "fetch" if self.fetch_s + self.rest_s <= self.recompute_s else "recompute"


def fetch_or_recompute(cached: Sweep, anew: Sweep, index: int, fetch: CachePath) -> FetchOrRecompute:
    """Return which is sooner for one prompt alone on the layout of ``cached``'s configuration ``index``.

    Parameters
    ----------
    cached, anew:
        Sweeps of prefill with and without cached tokens, otherwise alike.

    Raises
    ------
    InputError
        If ``anew`` has no such layout.
    """
    names = ("tp", "moe_tp", "ep", "stages", "gpus")

    def alone(found: Sweep) -> int:
        same = np.all([getattr(found, n) == getattr(cached, n)[index] for n in names], axis=0)
        rows = np.flatnonzero(same)
        if not len(rows):
            raise InputError("fetch or recompute: the sweep without cached tokens lacks that layout.")
        return int(rows[np.lexsort((found.step_s[rows], found.batch[rows]))[0]])

    part = prompt_cache_bytes(cached.deployment, cached.deployment.workload.prompt_cached)
    gpus = int(cached.tp[index] * cached.stages[index])
    return FetchOrRecompute(
        fetch_s=float(fetch.seconds(part, gpus)),
        rest_s=float(cached.step_s[alone(cached)]),
        recompute_s=float(anew.step_s[alone(anew)]),
    )
