"""Run a study: points go to workers in chunks of a quarter of a second, rows come back and are on disk at once."""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from rackplan.studies.columns import Row
from rackplan.studies.engines import Engine, MachineLostError, WorkerLostError
from rackplan.studies.progress import Progress, duration
from rackplan.studies.spec import Point
from rackplan.studies.statuses import FAILED, TIMEOUT
from rackplan.studies.store import Store, complete
from rackplan.studies.work import CHUNK_S, Task, hard_limit_s, late
from topology.base.errors import InputError

MOST_CHUNK = 256
SYNC_S = 0.25
"""Seconds between two times that rows are written out to the disk."""
_POLL_S = 0.1
_STOPPED_S = 5.0
"""Seconds without a turn after which this process is taken to have been stopped, its workers with it (Ctrl-Z)."""
_FROZEN_S = 60.0
"""Seconds beyond its limit, for a worker to begin in too, after which one that does not answer is ended from here."""
_WAITS_S = 10.0
"""Seconds in which no worker begins after which that is said."""
MOST_MACHINES = 1_000
"""Tasks in a row that may be lost with their machines before a study ends."""
MOST_LOST = 2
"""Times that a point's worker may die with nothing else running before the point is given up."""
DEADLY = "its worker died whenever it was priced, twice with nothing beside it: killed, or out of memory."


@dataclass
class _Flight:
    """Points that are with a worker."""

    points: list[Point]
    begun: float
    alone: bool = False
    stopped: bool = False
    """Whether time passed in which its worker was stopped: it may say that a point took too long."""


class Runner:
    """Prices points on an engine into a store.

    A worker that dies takes its chunk with it, and on one machine those of its siblings: their points are priced
    again one by one. A point whose worker died twice is priced with nothing beside it; if it dies there
    :data:`MOST_LOST` times the point is to blame, and has a row that says so.

    Parameters
    ----------
    say:
        Told how far it is, now and then.
    """

    def __init__(
        self,
        engine: Engine,
        store: Store,
        *,
        kind: str,
        columns: Mapping[str, str],
        limit_s: float,
        progress: Progress,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._engine, self._store, self._kind, self._columns = engine, store, kind, columns
        self._limit_s, self._progress, self._say = limit_s, progress, say
        self._flights: dict[Any, _Flight] = {}
        self._rest: deque[Point] = deque()
        self._again: deque[Point] = deque()
        self._suspects: deque[Point] = deque()
        self._lost: Counter[str] = Counter()
        self._lost_alone: Counter[str] = Counter()
        self._each_s: float | None = None
        self._machines_lost = 0
        self._synced = self._turned = time.monotonic()

    def run(self, points: Iterator[Point]) -> None:
        """Price all points that are not in the store."""
        coming = (point for point in points if point.digest not in self._store.digests)
        try:
            while self._fill(coming) or self._flights:
                done = self._engine.wait(list(self._flights), _POLL_S)
                self._look_at_clock(done)
                self._take(done)
                if time.monotonic() - self._synced >= SYNC_S:
                    self._sync()
        except KeyboardInterrupt:
            self._take(self._engine.wait(list(self._flights), 0.0) if self._flights else [])
            raise
        finally:
            self._sync(now=True)

    def _look_at_clock(self, done: Sequence[Any]) -> None:
        """Give points their time again that were stopped with this process; end a worker that does not answer."""
        now = time.monotonic()
        if now - self._turned > _STOPPED_S:
            for flight in self._flights.values():
                flight.begun, flight.stopped = now, True
        self._turned = now
        begun = now - hard_limit_s(self._limit_s) - CHUNK_S - _FROZEN_S
        frozen = [one for one, flight in self._flights.items() if flight.begun < begun and one not in done]
        if frozen:
            self._engine.end(frozen[0])

    def _sync(self, *, now: bool = False) -> None:
        self._store.sync(now=now)
        self._synced = time.monotonic()
        self._say(self._progress.words() + self._waiting())

    def _waiting(self) -> str:
        """Say so where no worker has begun with anything: a cluster may have no free CPU."""
        begun = min((flight.begun for flight in self._flights.values()), default=math.inf)
        waits = time.monotonic() - begun
        if waits < _WAITS_S or any(self._engine.began(one) is not None for one in self._flights):
            return ""
        return f"; no worker has been free for {duration(waits)}"

    def _fill(self, coming: Iterator[Point]) -> bool:
        """Give every free worker a chunk; return whether any work was given or waits."""
        if any(flight.alone for flight in self._flights.values()):
            return True
        while len(self._flights) < self._engine.slots:
            if self._again:
                self._submit([self._again.popleft()])
                continue
            chunk = [self._rest.popleft() for _ in range(min(self._chunk(), len(self._rest)))]
            chunk = chunk or list(islice(coming, self._chunk()))
            if not chunk:
                break
            self._submit(chunk)
        if not self._flights and self._suspects:
            self._submit([self._suspects.popleft()], alone=True)
        return bool(self._flights)

    def _chunk(self) -> int:
        if self._each_s is None:
            return 1
        return int(min(max(CHUNK_S / max(self._each_s, 1e-6), 1), MOST_CHUNK))

    def _submit(self, points: list[Point], *, alone: bool = False) -> None:
        tasks: list[Task] = [(point.number, point.digest, dict(point.options)) for point in points]
        self._flights[self._engine.submit(tasks)] = _Flight(points, time.monotonic(), alone)

    def _take(self, handles: Iterable[Any]) -> None:
        """Take what is done: rows go to the store, points of lost workers back into the queue."""
        lost = False
        for handle in handles:
            flight = self._flights.pop(handle)
            try:
                rows = self._engine.rows(handle)
            except MachineLostError as error:
                self._again.extend(flight.points)
                lost = True
                self._machines_lost += 1
                if self._machines_lost > MOST_MACHINES:
                    raise InputError(
                        f"the cluster has lost {MOST_MACHINES} tasks in a row ({error}); every row is kept, and the "
                        "same command goes on from there."
                    ) from None
            except WorkerLostError:
                if flight.stopped:
                    self._again.extend(flight.points)
                else:
                    began = self._engine.began(handle)
                    self._blame(flight, 0.0 if began is None else time.monotonic() - began)
                lost = True
            else:
                self._machines_lost = 0
                pairs = list(zip(rows, flight.points, strict=False))  # in their order, as far as it came
                again = [pair for pair in pairs if flight.stopped and pair[0]["status"] == TIMEOUT]
                self._again.extend(point for _, point in again)
                self._keep(pair for pair in pairs if pair not in again)
                self._rest.extend(flight.points[len(rows) :])
                if flight.stopped:
                    continue
                mean = sum(row["seconds"] for row in rows) / len(rows)
                self._each_s = mean if self._each_s is None else 0.5 * (self._each_s + mean)
        self._progress.replaced += lost

    def _keep(self, rows: Iterable[tuple[Row, Point]]) -> None:
        whole = [complete(row, point, self._kind, self._columns) for row, point in rows]
        self._store.add(whole)
        self._progress.took(whole)

    def _blame(self, flight: _Flight, took: float) -> None:
        """Decide what becomes of points whose worker died after so many seconds with them."""
        for point in flight.points:
            self._lost[point.digest] += 1
            if len(flight.points) == 1 and took >= self._limit_s:
                self._give_up(point, TIMEOUT, late(self._limit_s), took)
            elif flight.alone:
                self._lost_alone[point.digest] += 1
                if self._lost_alone[point.digest] < MOST_LOST:
                    self._suspects.appendleft(point)
                    continue
                self._give_up(point, FAILED, DEADLY, took)
            elif self._lost[point.digest] < 2:
                self._again.append(point)
            else:
                self._suspects.append(point)

    def _give_up(self, point: Point, status: str, reason: str, took: float) -> None:
        row: Row = {"point": point.number, "digest": point.digest, "status": status, "reason": reason}
        self._keep([(row | {"seconds": round(took, 6)}, point)])
