"""A pool of workers that prefill and one that decode, sized so that neither waits for the other."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from cost.gpu_groups import domain_gpus
from cost.pareto import pareto
from topology.errors import InputError
from topology.figures import Evidence, Figure

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cost.sweep import Sweep
    from cost.workload import Workload
    from topology.cluster import Cluster

    Array = NDArray[np.float64]
    Index = NDArray[np.int64]

__all__ = ["DECODE_DERATE", "PREFILL_DERATE", "RateMatch", "RateMatches", "match_rates", "serving_workloads"]

_SOURCE = "aiconfigurator 0.12.0, rate matching of disaggregated serving"
PREFILL_DERATE = Figure(0.9, "1", Evidence.ASSUMED, _SOURCE, "0.9")
DECODE_DERATE = Figure(0.92, "1", Evidence.ASSUMED, _SOURCE, "0.92")
"""Of its rate alone that a pool keeps in service, where requests do not come one exactly after the other."""


@dataclass(frozen=True)
class RateMatch:
    """Two pools that serve a mix of requests together.

    Attributes
    ----------
    prefill, decode:
        Configurations, as indices into the two sweeps.
    prefill_workers, decode_workers:
        Replicas of each.
    requests_per_s:
        What the decode pool finishes, at its derate; the prefill pool is never slower.
    output_tok_s_per_gpu, total_tok_s_per_gpu:
        Output tokens, and input and output tokens together, per second over all GPUs of the clusters.
    output_tok_s_per_gpu_used:
        Output tokens per second over the GPUs of both pools.
    tok_s_per_user:
        Output tokens per second of one request while it decodes.
    ttft_s:
        Seconds of the prefill step that a prompt is in. Waiting for that step to begin is not counted.
    gpus, gpus_used:
        GPUs of the clusters, and of the two pools.
    """

    prefill: int
    decode: int
    prefill_workers: int
    decode_workers: int
    requests_per_s: float
    output_tok_s_per_gpu: float
    total_tok_s_per_gpu: float
    output_tok_s_per_gpu_used: float
    tok_s_per_user: float
    ttft_s: float
    gpus: int
    gpus_used: int


@dataclass(frozen=True, eq=False)
class RateMatches:
    """The best partner of each decode configuration that keeps the limits; every array is ``[matches]``.

    Attributes as those of :class:`RateMatch`, and ``isl`` and ``osl``, the tokens of a prompt and of an answer.
    """

    isl: int
    osl: int
    gpus: int
    prefill: Index
    decode: Index
    prefill_workers: Index
    decode_workers: Index
    requests_per_s: Array
    tok_s_per_user: Array
    ttft_s: Array
    gpus_used: Index

    def __len__(self) -> int:
        return len(self.decode)

    @property
    def output_tok_s_per_gpu(self) -> Array:
        """Output tokens per second over all GPUs of the clusters."""
        return self.requests_per_s * self.osl / self.gpus

    def frontier(self) -> Index:
        """Return the matches that none beats in speed per user and in throughput, slowest per user first."""
        return pareto(self.tok_s_per_user, self.output_tok_s_per_gpu)

    def best(self) -> RateMatch | None:
        """The match with most throughput; None where nothing keeps the limits."""
        return self.row(int(np.argmax(self.output_tok_s_per_gpu))) if len(self) else None

    def row(self, index: int) -> RateMatch:
        """One match."""
        rate, used = float(self.requests_per_s[index]), int(self.gpus_used[index])
        return RateMatch(
            prefill=int(self.prefill[index]),
            decode=int(self.decode[index]),
            prefill_workers=int(self.prefill_workers[index]),
            decode_workers=int(self.decode_workers[index]),
            requests_per_s=rate,
            output_tok_s_per_gpu=rate * self.osl / self.gpus,
            total_tok_s_per_gpu=rate * (self.isl + self.osl) / self.gpus,
            output_tok_s_per_gpu_used=rate * self.osl / used,
            tok_s_per_user=float(self.tok_s_per_user[index]),
            ttft_s=float(self.ttft_s[index]),
            gpus=self.gpus,
            gpus_used=used,
        )


def serving_workloads(workload: Workload, isl: int, osl: int) -> tuple[Workload, Workload]:
    """Return what the decode pool and the prefill pool do for prompts of ``isl`` and answers of ``osl`` tokens.

    While it decodes, a request has ``isl + osl / 2`` tokens in its cache on average.

    Raises
    ------
    InputError
        If a length is not at least 1.
    """
    for name, value in (("--isl", isl), ("--osl", osl)):
        if value < 1:
            raise InputError(f"{name} {value}: expected 1 token or more.")
    decode = replace(workload, phase="decode", context=isl + osl // 2)
    prefill = replace(workload, phase="prefill", context=isl, draft_tokens=0, accept_length=1.0)
    return decode, prefill


def match_rates(
    decode: Sweep,
    prefill: Sweep,
    *,
    osl: int,
    ttft_s: float | None = None,
    tpot_s: float | None = None,
    prefill_derate: Figure = PREFILL_DERATE,
    decode_derate: Figure = DECODE_DERATE,
) -> RateMatches:
    """Size a pool of prefill workers for every decode configuration, with integers within the GPUs there are.

    Parameters
    ----------
    decode, prefill:
        Sweeps of the two phases. Of one cluster: its GPUs are shared out; of two clusters: each pool has its own.
    osl:
        Tokens of an answer; the prompt's are those of the prefill sweep.
    ttft_s, tpot_s:
        Longest prefill step, and longest time per output token.
    prefill_derate, decode_derate:
        Of its rate alone that each pool keeps.

    Notes
    -----
    With ``r_P`` prompts per second of a prefill worker and ``r_D`` output tokens per second of a decode worker,
    both derated, ``x_P`` and ``x_D`` workers match where ``x_P r_P >= x_D r_D / osl``. For each decode configuration
    the most decode workers are taken for which that many prefill workers still find room in whole groups of GPUs
    that do not straddle domains; among prefill configurations those that keep the limit and that none beats.

    Raises
    ------
    InputError
        If the sweeps are of the wrong phases, or the domains of a cluster differ in size.
    """
    if not decode.setting.workload.decodes or prefill.setting.workload.decodes:
        raise InputError("rate matching: give a sweep of decode and one of prefill, in that order.")
    if osl < 1:
        raise InputError(f"--osl {osl}: expected 1 token or more.")
    clusters = decode.setting.cluster, prefill.setting.cluster
    shared = clusters[0] is clusters[1]
    rooms = _Room.of(clusters[0]), _Room.of(clusters[1])
    rate_d = decode_derate.value * _rate(decode) * decode.setting.workload.tokens_per_step / osl
    rate_p = prefill_derate.value * _rate(prefill)
    wanted = np.flatnonzero(decode.tok_s_per_user >= (1 / tpot_s if tpot_s else 0.0))
    workers = _Workers(decode.gpus[wanted], decode.stages[wanted], rate_d[wanted])
    best_d = np.zeros(len(wanted), dtype=np.int64)
    best_p, partner = np.zeros_like(best_d), np.zeros_like(best_d)
    for index in _worth_trying(prefill, rate_p, ttft_s):
        one = _Workers(prefill.gpus[index], prefill.stages[index], rate_p[index])
        x_d, x_p = _most(workers, one, rooms, shared=shared)
        used = x_d * workers.gpus + x_p * one.gpus
        before = best_d * workers.gpus + best_p * prefill.gpus[partner]
        better = (x_d > best_d) | ((x_d == best_d) & (x_d > 0) & (used < before))
        best_d, best_p = np.where(better, x_d, best_d), np.where(better, x_p, best_p)
        partner = np.where(better, index, partner)
    found = np.flatnonzero(best_d > 0)
    rows, partner = wanted[found], partner[found]
    gpus = rooms[0].gpus if shared else rooms[0].gpus + rooms[1].gpus
    return RateMatches(
        isl=prefill.setting.workload.context,
        osl=osl,
        gpus=gpus,
        prefill=partner,
        decode=rows,
        prefill_workers=best_p[found],
        decode_workers=best_d[found],
        requests_per_s=best_d[found] * rate_d[rows],
        tok_s_per_user=decode.tok_s_per_user[rows],
        ttft_s=prefill.step_s[partner],
        gpus_used=best_d[found] * decode.gpus[rows] + best_p[found] * prefill.gpus[partner],
    )


def _rate(sweep: Sweep) -> Array:
    """Sequences that one replica finishes a step of, per second."""
    return sweep.batch * sweep.gpus / sweep.step_s


@dataclass(frozen=True, eq=False)
class _Workers:
    """GPUs and stages of a worker, and requests that it serves per second; numbers or arrays."""

    gpus: Index | np.int64
    stages: Index | np.int64
    requests_per_s: Array | np.float64

    @property
    def group(self) -> Index | np.int64:
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

    def most(self, workers: _Workers) -> Index:
        """Workers that fit in all of it."""
        none = np.zeros_like(np.asarray(workers.gpus))
        return np.asarray(self.beside(none, workers, workers))

    def beside(self, count: Index, workers: _Workers, others: _Workers) -> Index:
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

    def _groups(self, size: Index | np.int64) -> tuple[Index, Index]:
        """Groups of ``size`` GPUs in a domain, and domains of a group."""
        return np.maximum(1, self.size // size), np.maximum(1, size // self.size)


def _most(
    decode: _Workers, prefill: _Workers, rooms: tuple[_Room, _Room], *, shared: bool
) -> tuple[Index, Index]:
    """Most decode workers that enough prefill workers find room beside, and how many those are."""

    def needed(count: Index) -> Index:
        wanted = count * decode.requests_per_s / prefill.requests_per_s
        return np.ceil(wanted * (1 - 1e-12)).astype(np.int64)

    def fits(count: Index) -> NDArray[np.bool_]:
        room = rooms[0].beside(count, decode, prefill) if shared else rooms[1].most(prefill)
        return np.asarray(needed(count) <= room)

    low, high = np.zeros_like(decode.gpus), rooms[0].most(decode) + 1
    # `low` workers fit and `high` do not; more workers never leave more room
    while np.any(high - low > 1):
        middle = (low + high) // 2
        able = fits(middle)
        low, high = np.where(able, middle, low), np.where(able, high, middle)
    return low, needed(low)


def _worth_trying(prefill: Sweep, rate: Array, ttft_s: float | None) -> list[int]:
    """Prefill configurations within the limit that no smaller worker beats."""
    able = np.flatnonzero(prefill.step_s <= (np.inf if ttft_s is None else ttft_s))
    fastest = able[np.lexsort((prefill.step_s[able], -rate[able]))]
    sizes = np.stack([prefill.gpus[fastest], prefill.stages[fastest]])
    best = fastest[np.sort(np.unique(sizes, axis=1, return_index=True)[1])]
    kept: list[int] = []
    for index in sorted(best.tolist(), key=lambda i: (prefill.gpus[i], prefill.stages[i])):
        group = prefill.gpus[index] // prefill.stages[index]
        beaten = any(
            rate[other] >= rate[index] and group % (prefill.gpus[other] // prefill.stages[other]) == 0
            for other in kept
        )
        if not beaten:
            kept.append(index)
    return kept
