"""Whole requests on a cluster: one pool for both phases or two pools, at the same limits, and where one overtakes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby

import numpy as np

from cost.inputs.deployment import Deployment
from cost.layouts import Sweep, sweep
from cost.layouts.arrays import Array
from cost.layouts.front import pareto
from cost.serving.cache_path import kv_path
from cost.serving.keeping import Keeping
from cost.serving.lengths import Lengths
from cost.serving.one_pool import Stays
from cost.serving.packing import Rooms
from cost.serving.pools import RateMatch, RateMatches, batches_held, match_rates
from topology.base.errors import InputError
from topology.cluster import Cluster

SLOWER_TTFT = 2.0
"""Times the fastest time to a first token that stand for a usual limit which nothing keeps."""
ONE_POOL, TWO_POOLS = "one pool", "two pools"
AHEAD_RATIO, SPEED_STEP, MIN_STEPS = 1.03, 1.05, 5
"""Times the throughput of the other way from which one is ahead, at speeds of which each is so many times the one
before; it is ahead at so many of them, or it is an accident of numbers that divide."""


def way_of(row: RateMatch) -> str:
    """Return which way a match is."""
    return ONE_POOL if row.one_pool else TWO_POOLS


HIT_TOLERANCE = 0.005
"""Of the prompts, within which what caches hold and what is priced agree."""


@dataclass(frozen=True, eq=False)
class Serving:
    """Sweeps of both ways of serving whole requests.

    Attributes
    ----------
    lengths, ttft_s:
        Of requests; longest time to the first token without waiting (None: no limit).
    decode, prompts:
        Two pools: decode, and prefill of each length of prompts with its share of the requests, the longest first.
    both:
        One pool; None where the two pools have clusters of their own, or are asked about alone.
    """

    lengths: Lengths
    ttft_s: float | None
    decode: Sweep
    prompts: Sequence[tuple[float, Sweep]]
    both: Sweep | None
    _known: dict[tuple[float | None, int | None], RateMatches] = field(default_factory=dict, repr=False)

    @classmethod
    def of(  # noqa: PLR0913 - what both ways are swept with
        cls,
        deployment: Deployment,
        lengths: Lengths,
        *,
        prefills: Cluster | None = None,
        ttft_s: float | None = None,
        speeds: Sequence[float] = (),
        redundant: int | None = None,
        imbalance: float | None = None,
        cut_experts: bool = True,
        together: bool = True,
    ) -> Serving:
        """Sweep a cluster, or one that decodes and another that ``prefills``; ``together``: one pool of it too.

        ``speeds``: tokens per second of a user at which each layout has its exact batch; the rest is as
        :func:`cost.layouts.sweep` takes it.
        """
        work = deployment.workload
        decoding, prompts = lengths.workloads(work, deployment.scheduler)
        mixed = replace(deployment, workload=lengths.in_one_pool(work, deployment.scheduler))
        where = deployment.cluster if prefills is None else prefills

        def swept(priced: Deployment, speeds: Sequence[float] = ()) -> Sweep:
            return sweep(
                priced, redundant=redundant, imbalance=imbalance, speeds=speeds, cut_experts=cut_experts
            )

        return cls(
            lengths,
            ttft_s,
            swept(replace(deployment, workload=decoding), speeds),
            [
                (share, swept(replace(deployment, cluster=where, workload=workload)))
                for share, workload in prompts
            ],
            swept(mixed, speeds) if together and where is deployment.cluster else None,
        )

    def reachable(self) -> Serving:
        """Return it with :data:`SLOWER_TTFT` times the fastest time to a first token if nothing keeps the limit."""
        if self.ttft_s is None or any(map(len, self.ways().values())):
            return self
        return replace(self, ttft_s=SLOWER_TTFT * self.fastest_ttft_s, _known={})

    @property
    def prefill(self) -> Sweep:
        """Prefill of the longest prompts."""
        return self.prompts[0][1]

    @property
    def gpus(self) -> int:
        """GPUs of the cluster, or of both."""
        decode, prefill = self.decode.deployment.cluster, self.prefill.deployment.cluster
        return len(decode.gpus) + (0 if prefill is decode else len(prefill.gpus))

    def sides(self, row: RateMatch) -> tuple[tuple[str, Sweep, int, int], ...]:
        """Return the pools of a match: role, sweep, configuration in it, workers."""
        if row.one_pool and self.both is not None:
            return (("both", self.both, row.decode, row.decode_workers),)
        return (
            ("prefill", self.prefill, row.prefill, row.prefill_workers),
            ("decode", self.decode, row.decode, row.decode_workers),
        )

    def at_rate(self, row: RateMatch, requests_per_s: float) -> RateMatch:
        """Return a match at another rate: with fewer in flight each is served faster, with more slower.

        At most as many as fit are in flight.
        """
        at = np.array([row.decode])
        if row.one_pool and self.both is not None:
            held, first_s = self._stays.at_rate(at, np.array([requests_per_s]))
            prefill_s = first_s.item()
        else:
            answers = self.decode.deployment.workload.tokens_per_step / row.osl
            per_s = np.array([requests_per_s / (answers * row.decode_gpus)])
            max_batch = self.decode.max_batch[at]
            held, prefill_s = batches_held(self.decode.run(at, max_batch, max_batch), per_s), row.prefill_s
        batch, step_s = (column.item() for column in held)
        return replace(
            row,
            requests_per_s=requests_per_s,
            tok_s_per_user=self.decode.deployment.workload.tokens_per_step / step_s,
            step_batch=batch,
            prefill_s=prefill_s,
        )

    def label(self, row: RateMatch) -> str:
        """Return the workers of each pool of a match, and their layouts."""
        return " + ".join(
            f"{workers} x {swept.worker_label(at)}" for _, swept, at, workers in self.sides(row)
        )

    def ways(self, tpot_s: float | None = None, domains: int | None = None) -> dict[str, RateMatches]:
        """Return the capacity of each serving mode within the limits; ``domains`` are shared by two pools."""
        ways: dict[str, RateMatches] = {}
        if self.both is not None:
            ways[ONE_POOL] = self._one.within(self.ttft_s, tpot_s)
        if not self.refused:
            ways[TWO_POOLS] = self._two(tpot_s, domains)
        keeping = self.lengths.keeping
        return ways if keeping is None else {name: self.kept(ways[name], keeping) for name in ways}

    def kept(self, matches: RateMatches, keeping: Keeping) -> RateMatches:
        """Return the matches whose caches hold as much of the prompts as they are priced with."""
        one = matches.path is None and self.both is not None
        swept, rows, workers = (
            (self.both, matches.decode, matches.decode_workers)
            if one and self.both is not None
            else (self.prefill, matches.prefill, matches.prefill_workers)
        )
        stay_s = matches.prefill_s + matches.transfer_s + matches.osl / matches.tok_s_per_user
        room = keeping.room(swept, rows, workers)
        hits = keeping.reached(room, workers, matches.requests_per_s, stay_s)
        return matches.rows(np.flatnonzero(hits >= self.lengths.prefix_hit - HIT_TOLERANCE))

    @cached_property
    def refused(self) -> str:
        """Why two pools cannot be matched here; empty where they can."""
        decode, prefill = self.decode.deployment, self.prefill.deployment
        try:
            Rooms.of(decode.cluster, prefill.cluster)
            kv_path(decode, prefill)
        except InputError as error:
            if self.both is None:
                raise
            return str(error)
        return ""

    def bests(self, tpot_s: float | None = None, domains: int | None = None) -> dict[str, RateMatch]:
        """Return the match with most throughput of each way that keeps the limits, the better one first."""
        bests = {name: matches.best() for name, matches in self.ways(tpot_s, domains).items()}
        able = {name: best for name, best in bests.items() if best is not None}
        return dict(sorted(able.items(), key=lambda entry: -entry[1].output_tok_s_per_gpu))

    def best(self, tpot_s: float | None = None) -> RateMatch | None:
        """Return the match with most throughput; None where nothing keeps the limits."""
        return next(iter(self.bests(tpot_s).values()), None)

    @property
    def fastest_ttft_s(self) -> float:
        """Shortest time to the first token of any way, limits or not."""
        return min((matches.fastest_ttft_s for matches in self.ways().values()), default=np.inf)

    def frontier(self) -> list[RateMatch]:
        """Return the matches of either way that none beats in speed and in throughput, slowest per user first."""
        rows = [matches.row(int(i)) for matches in self.ways().values() for i in matches.frontier()]
        edge = pareto([row.tok_s_per_user for row in rows], [row.output_tok_s_per_gpu for row in rows])
        return [rows[i] for i in edge.tolist()]

    def turns(self) -> list[tuple[str, float, float]]:
        """Return which way is ahead from which speed per user to which, slowest first (:data:`AHEAD_RATIO`).

        A way that alone reaches a speed is ahead there; where neither is, the last one stays.
        """
        ways = {
            name: np.stack([matches.tok_s_per_user, matches.output_tok_s_per_gpu], axis=1)[matches.frontier()]
            for name, matches in self.ways().items()
            if len(matches)
        }
        if not ways:
            return []
        ends = np.log([min(rows[0, 0] for rows in ways.values()), max(rows[-1, 0] for rows in ways.values())])
        speeds = np.exp(np.linspace(ends[0], ends[1], 2 + int((ends[1] - ends[0]) / np.log(SPEED_STEP))))
        speeds[-1] *= 1 - 1e-12

        def rates(rows: Array) -> Array:
            at = np.searchsorted(rows[:, 0], speeds)
            return np.asarray(np.append(rows[:, 1], 0.0)[at])

        table = {name: rates(rows) for name, rows in ways.items()}
        ahead: list[str] = []
        for at in range(len(speeds)):
            order = sorted(table, key=lambda name: -table[name][at])
            clear = len(order) < 2 or table[order[0]][at] > AHEAD_RATIO * table[order[1]][at]
            ahead.append(order[0] if clear or not ahead else ahead[-1])
        for at in range(1, len(speeds)):
            if ahead[at] != ahead[at - 1] and len(set(ahead[at : at + MIN_STEPS])) > 1:
                ahead[at] = ahead[at - 1]
        runs = [
            (name, [at for at, _ in run])
            for name, run in groupby(enumerate(ahead), lambda matches: matches[1])
        ]
        return [(name, float(speeds[run[0]]), float(speeds[run[-1]])) for name, run in runs]

    @cached_property
    def _one(self) -> RateMatches:
        """What one pool serves, limits or not."""
        return self._stays.matches()

    @cached_property
    def _stays(self) -> Stays:
        assert self.both is not None  # noqa: S101 - else it is refused
        prompts = [(share, side.deployment.workload) for share, side in self.prompts]
        return Stays.of(self.both, prompts, self.lengths.load_s)

    def _two(self, tpot_s: float | None, domains: int | None) -> RateMatches:
        key = tpot_s, domains
        if key not in self._known:
            # a match knows no more of configurations than their speeds and the shapes of their workers
            rows = self.decode.best_of_shapes[0] if tpot_s is None else self.decode.best_at_least(1 / tpot_s)
            path = kv_path(self.decode.deployment, self.prefill.deployment)
            matches = match_rates(
                self.decode.rows(rows),
                self.prefill,
                osl=self.lengths.mean_osl,
                ttft_s=self.ttft_s,
                tpot_s=tpot_s,
                path=replace(path, latency_s=path.latency_s + self.lengths.load_s),
                domains=domains,
                shorter=self.prompts[1:],
            )
            self._known[key] = replace(matches, decode=rows[matches.decode])
        return self._known[key]
