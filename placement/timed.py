"""The search within a time limit: swaps to the end, copy counts, then CP-SAT on a few GPUs at a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait

import numpy as np

from placement.arrays import Experts, Floats, Index, Ints
from placement.copy_exchange import recount
from placement.cpsat import Improved, cores, improve
from placement.fast_path import TRIED
from placement.local_search import swap_down
from placement.pack import pack
from placement.problem import WIDE, ExpertProblem, keep_better, max_loads, proven, wide_layers
from placement.replication import exact_fold, replicate, search_counts

OnProgress = Callable[[int, int, float, float, float], None]


_FOLD_SHARE, _COUNT_SHARE, _RECOUNT_SHARE = 0.85, 0.5, 0.15  # of the time limit
_FEW = 4  # layers: each thread searches all of them, with other draws, every second one from greedy counts
_PROGRESS_S = 0.1


def search(
    problem: ExpertProblem,
    slot_expert: Experts,
    bound: Floats,
    *,
    time_limit_s: float,
    seed: int,
    on_progress: OnProgress | None = None,
) -> Improved:
    """Improve ``slot_expert`` ``[layers, slots]`` for some seconds; no layer gets worse.

    Swaps go on to a local optimum. Layers with a wide gap to their ``bound`` ``[layers]`` are searched for other
    copy counts, on all cores, and then by single exchanges. CP-SAT has the rest of the time. ``on_progress`` is
    called with done layers, all layers, objective, bound and seconds. Ctrl-C leaves the best so far.
    """
    timed = _Timed(problem, slot_expert, bound, on_progress)
    log: list[str] = []
    try:
        timed.descend()
        timed.counts(time_limit_s, seed)
        timed.exchange(time_limit_s)
    except KeyboardInterrupt:
        timed.interrupted = True
    better = int((max_loads(problem, timed.slot_expert) < max_loads(problem, slot_expert)).sum())
    log.append(f"swaps and other copy counts: {better} layers better in {timed.spent():.1f} s")
    if timed.interrupted:
        return Improved(
            timed.slot_expert, interrupted=True, log=(*log, "interrupted: the best placement so far is kept")
        )
    improved = improve(
        problem,
        timed.slot_expert,
        bound,
        time_limit_s=time_limit_s - timed.spent(),
        seed=seed,
        on_progress=timed.later(),
    )
    return Improved(improved.slot_expert, improved.interrupted, (*log, *improved.log))


class _Timed:
    """The incumbent and the clock."""

    def __init__(
        self, problem: ExpertProblem, slot_expert: Experts, bound: Floats, on_progress: OnProgress | None
    ) -> None:
        self.problem, self.slot_expert, self.bound = problem, slot_expert.copy(), bound
        self.on_progress = on_progress
        self.interrupted = False
        self.start = self.told = time.monotonic()

    def descend(self) -> None:
        """Swap on to a local optimum where the bound is not reached."""
        layers = np.flatnonzero(~proven(max_loads(self.problem, self.slot_expert), self.bound))
        part = self.problem.rows(layers)
        keep_better(self.problem, self.slot_expert, layers, swap_down(part, self.slot_expert[layers]))

    def counts(self, time_limit_s: float, seed: int) -> None:
        """Look for other counts in the layers with a wide gap."""
        fold = exact_fold(self.problem)
        # Where the fold is exact, counts are all there is to find, and CP-SAT has little to add.
        wide = wide_layers(self.problem, self.slot_expert, self.bound, WIDE / 10 if fold else WIDE)
        if wide.size == 0:
            return
        limit_s = self.spent() + (_FOLD_SHARE if fold else _COUNT_SHARE) * time_limit_s
        threads = cores()
        parts = [wide] * threads if wide.size <= _FEW else np.array_split(wide, threads)
        begun = self.spent()

        def part_spent() -> float:
            return 1.0 if self.interrupted else (self.spent() - begun) / (limit_s - begun)

        def one(layers: Index, draw: int) -> Ints:
            part = self.problem.rows(layers)
            again = layers.size <= _FEW and (draw - seed) % 2 == 1
            copies = replicate(part) if again else part.assignment(self.slot_expert[layers]).copies
            tried = TRIED if layers.size > _FEW else 3 * TRIED
            return search_counts(part, copies, tried=tried, spent=part_spent, seed=draw)

        with ThreadPoolExecutor(threads) as pool:
            running = [pool.submit(one, part, seed + i) for i, part in enumerate(parts) if part.size]
            try:
                while wait(running, timeout=_PROGRESS_S).not_done:
                    self.tell()
            except KeyboardInterrupt:
                self.interrupted = True
        for layers, search_ in zip(parts, running, strict=False):
            part = self.problem.rows(layers)
            keep_better(self.problem, self.slot_expert, layers, swap_down(part, pack(part, search_.result())))

    def exchange(self, time_limit_s: float) -> None:
        """Exchange single copies in the placement itself, where a gap is still wide."""
        if self.interrupted:
            return
        limit_s = self.spent() + _RECOUNT_SHARE * time_limit_s
        recount(
            self.problem,
            self.slot_expert,
            wide_layers(self.problem, self.slot_expert, self.bound),
            rounds=self.problem.slots,  # more than any descent needs
            keep_on=lambda: self.tell() < limit_s,
        )

    def spent(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.start

    def tell(self) -> float:
        """Report the incumbent now and then; return the seconds spent."""
        spent = self.spent()
        if self.on_progress is not None and self.start + spent - self.told >= _PROGRESS_S:
            self.told = self.start + spent
            load = max_loads(self.problem, self.slot_expert)
            done = int(proven(load, self.bound).sum())
            bound = float(np.minimum(self.bound, load).mean())
            self.on_progress(done, self.problem.layers, float(load.mean()), bound, spent)
        return spent

    def later(self) -> Callable[[int, int, float, float, float], None] | None:
        """Return the progress callback for a search that starts its own clock now."""
        tell, before = self.on_progress, self.spent()
        if tell is None:
            return None
        return lambda done, layers, objective, bound, spent: tell(
            done, layers, objective, bound, before + spent
        )
