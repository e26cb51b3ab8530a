"""Where points are priced: processes of this machine (joblib), or tasks of a Ray cluster.

Either yields the row of each point as it comes: its figures, or the reason for their absence.
"""

from __future__ import annotations

import faulthandler
import logging
import math
import os
import platform
import signal
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import chdir, closing, contextmanager, redirect_stdout
from datetime import UTC, datetime
from functools import cache, lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from rackplan.studies.price import forget, price
from rackplan.studies.rows import FAILED, INFEASIBLE, OK, TIMEOUT, Row, version
from rackplan.studies.spec import Kind, Point
from topology.base.errors import InfeasibleError, InputError, NoAnswerError, RackplanError, one_line
from topology.base.reading import shown

DIGITS = 12
"""Significant digits of row figures; the last digits of a double depend on the processor."""
AGAIN_S = 0.1
"""Seconds between time-limit exceptions; one raised in a finalizer or callback is lost."""
HARD_S = 60.0
"""Seconds beyond twice the limit after which the process is ended, since C code may ignore signals."""
CONNECT_S = 5.0
"""Seconds for the head of a cluster to accept a connection; Ray itself would try for minutes."""
WATCH_S = 1.0
"""Seconds after the main process at which a worker ends."""
MAX_POINT_TRIES = 3
"""Workers that a point may lose, on this machine the last one with no other point at work beside it."""
Contents = tuple[tuple[str, bytes], ...]
"""Files that options name, by these names, for machines that do not have them."""


class _TimeLimit(BaseException):
    """A point exceeded its time limit; not an ``Exception``, so that no handler catches it."""


class Job(NamedTuple):
    """What all points of a study have in common: folder and digests of its files, and the rackplan that runs it."""

    kind: Kind
    limit_s: float
    base: str
    files: tuple[str, ...]
    version: str


@lru_cache(1)
def _prepared(job: Job, contents: Contents) -> Path:
    """Return the folder in which points of a study are priced, so that they read files by the names typed."""
    if version() != job.version:
        raise InputError(
            f"{platform.node()} has rackplan {version()}, but the study runs {job.version}; code or catalog differ. "
            "All rows are kept; use the code of the study on every machine."
        )
    forget()
    if not contents:
        return Path(job.base) if job.files else Path()
    folder = Path(tempfile.mkdtemp(prefix="rackplan-study-"), *Path(job.base).parts[1:])
    for name, data in contents:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def run_point(job: Job, point: Point, contents: Contents = ()) -> Row:
    """Return the row of one point: its figures, or the reason for their absence.

    Raises
    ------
    InputError
        If this worker has other code than the study was begun with.
    """
    folder = _prepared(job, contents)
    begun, cpu = time.perf_counter(), time.process_time()
    status, reason, figures = OK, None, Row()
    try:
        with chdir(folder):
            figures = _in_time(job, point)
    except (RackplanError, OSError, MemoryError) as error:
        ends = {InfeasibleError: INFEASIBLE, NoAnswerError: TIMEOUT}
        status = next((ends[kind] for kind in ends if isinstance(error, kind)), FAILED)
        reason = str(error) or type(error).__name__
    except (Exception, SystemExit, _TimeLimit) as error:  # noqa: BLE001 - a defect of one point must not end the others
        status, reason = FAILED, f"a defect: {type(error).__name__}: {one_line(error)}"
    seconds = time.perf_counter() - begun
    if seconds >= job.limit_s:  # whatever an interrupted callback of C code made of it
        status, reason, figures = TIMEOUT, f"exceeded its time limit of {job.limit_s:g} s (`limit_s`).", {}
    return {
        **{name: _rounded(value) for name, value in figures.items()},
        "digest": point.digest,
        "status": status,
        "reason": reason,
        "seconds": round(seconds, 6),
        "cpu_s": round(time.process_time() - cpu, 6),
        "host": platform.node(),
        "finished": datetime.now(UTC),
    }


def _rounded(value: object) -> object:
    """Return a figure to :data:`DIGITS` digits; None for NaN and infinity."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    return value


def _in_time(job: Job, point: Point) -> Row:
    """Return the figures of a point; raise :class:`_TimeLimit` again and again from the limit on."""

    def ring(*_: object) -> None:
        raise _TimeLimit

    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        before = signal.signal(signal.SIGALRM, ring)
        faulthandler.dump_traceback_later(2 * job.limit_s + HARD_S, exit=True, file=nowhere)
        try:
            try:
                signal.setitimer(signal.ITIMER_REAL, job.limit_s, AGAIN_S)
                return price(job.kind, point.options)
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        finally:  # again: the first may have been interrupted
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
            faulthandler.cancel_dump_traceback_later()


def _lost(point: Point) -> Row:
    """Return the row of a point whose workers died."""
    reason = f"its worker died {MAX_POINT_TRIES} times: killed, out of memory, or stuck beyond twice its time limit."
    return {"digest": point.digest, "status": FAILED, "reason": reason, "finished": datetime.now(UTC)}


def price_here(workers: int | None, job: Job, points: Sequence[Point]) -> Iterator[Row]:
    """Price points in processes of this machine; all are replaced when one dies."""
    from joblib import Parallel, cpu_count, delayed, parallel_config
    from joblib.externals.loky.process_executor import BrokenProcessPool

    workers = workers or cpu_count()
    left, losses = {point.digest: point for point in points}, Counter[str]()
    while left:
        doubtful = [point for point in left.values() if losses[point.digest] == MAX_POINT_TRIES - 1]
        begun, waiting = list[Point](), iter(doubtful[:1] or list(left.values()))
        tasks = (begun.append(point) or delayed(_run)(job, point) for point in waiting)  # type: ignore[func-returns-value]
        with parallel_config("loky", inner_max_num_threads=1):  # one worker would be this process
            pool = Parallel(
                max(2, workers), pre_dispatch=workers, return_as="generator_unordered", max_nbytes=None
            )
        try:
            with closing(pool(tasks)) as rows:
                for row in rows:
                    del left[row["digest"]]
                    yield row
        except BrokenProcessPool:
            losses.update(point.digest for point in begun if point.digest in left)
            for digest in [digest for digest in left if losses[digest] == MAX_POINT_TRIES]:
                yield _lost(left.pop(digest))


def _run(job: Job, point: Point) -> Row:
    _attend(os.getppid())
    return run_point(job, point)


@cache
def _attend(parent: int) -> None:
    """Leave Ctrl-C to the main process, and end after it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(WATCH_S)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def price_on_ray(
    ray: Any, workers: int | None, contents: Contents, job: Job, points: Sequence[Point]
) -> Iterator[Row]:
    """Price points in tasks of a Ray cluster, one core each; Ray runs those of a lost node again."""
    errors, shared = ray.exceptions, ray.put(contents)
    task = ray.remote(max_retries=MAX_POINT_TRIES - 1, num_cpus=1, scheduling_strategy="SPREAD")(run_point)
    left, running = iter(points), dict[Any, Point]()
    while True:
        cores = max(1, int(ray.cluster_resources().get("CPU", 0)))  # machines may join and leave
        for point in islice(left, max(0, min(cores, workers or cores) - len(running))):
            running[task.remote(job, point, shared)] = point
        if not running:
            return
        done = ray.wait(list(running), num_returns=1)[0][0]
        point = running.pop(done)
        try:
            yield ray.get(done)
        except (errors.WorkerCrashedError, errors.OutOfMemoryError):
            yield _lost(point)
        except errors.RayError as error:
            cause = getattr(error, "cause", None) or error
            why = str(cause) if isinstance(cause, InputError) else one_line(cause)
            raise InputError(
                f"--engine ray: a node of the cluster cannot price points ({why}); all rows are kept. "
                'With the same "rackplan[ray]" on every node, the same command goes on.'
            ) from None


@contextmanager
def connected(address: str | None, workers: int | None) -> Iterator[Any]:
    """Yield Ray connected to the cluster at ``address``, or to a local one that ends with the block.

    Raises
    ------
    InputError
        If Ray is not installed, or no cluster answers.
    """
    if address not in (None, "auto"):
        host, _, port = address.removeprefix("ray://").rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_S).close()
        except (OSError, ValueError, OverflowError) as error:
            raise InputError(
                f"--address {shown(address)}: cannot connect ({one_line(error)}); expected HOST:PORT of the head "
                "of a Ray cluster, ray://HOST:PORT or auto."
            ) from None
    try:
        import ray
    except ImportError:
        raise InputError('--engine ray needs Ray: pip install "rackplan[ray]".') from None
    handler = signal.getsignal(signal.SIGTERM)  # Ray's own would end this process with a trace
    own = {"num_cpus": workers, "include_dashboard": False} if address is None else {}
    with redirect_stdout(sys.stderr):  # Ray reports a dead node where results go
        try:
            ray.init(address or "local", log_to_driver=False, logging_level=logging.ERROR, **own)
        except (ConnectionError, ValueError, RuntimeError, OSError, TimeoutError) as error:
            raise InputError(
                f"--address {address}: no Ray cluster at this address ({one_line(error)})."
            ) from None
        signal.signal(signal.SIGTERM, handler)
        try:
            yield ray
        finally:
            ray.shutdown()
