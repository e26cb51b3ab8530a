"""Where points are priced: processes of this machine (joblib), or tasks of a Ray cluster.

An engine yields the row of each point as it comes, and None for each worker that died. Points that were with one have
no row then; it is for :mod:`rackplan.studies.run` to price them again.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, redirect_stdout
from dataclasses import replace
from itertools import chain, islice
from typing import Any, Protocol

from rackplan.studies.columns import Row
from rackplan.studies.spec import Point
from rackplan.studies.work import Job, Shipped, pack, run_points, unpack
from topology.base.errors import InputError, one_line
from topology.base.reading import shown

ENGINES = ("local", "ray")
_CONNECT_S = 5.0
_THREADS = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
_BATCH_S, _MOST_BATCH = 0.25, 256
"""Approximate seconds per Ray task, and its maximum number of points."""
_MOST_LOST = 1_000
"""Tasks that may be lost with their machines before a study is aborted."""


class Engine(Protocol):
    """Prices points on some machines."""

    def price(self, job: Job, points: Sequence[Point], *, singly: bool) -> Iterator[Row | None]:
        """Yield rows as they complete, None if a worker died; ``singly``: one point at a time per worker."""


def require_engine(name: str, address: str | None) -> None:
    """Reject an unknown engine, an address without Ray, and an unreachable address.

    Ray itself would try to join that for minutes.
    """
    if name not in ENGINES:
        raise InputError(f"--engine {shown(name)}: expected {' or '.join(ENGINES)}.")
    if address is not None and name != "ray":
        raise InputError("--address: only allowed with --engine ray.")
    if address is None or address == "auto":
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S).close()
    except (OSError, ValueError, OverflowError) as error:
        raise InputError(
            f"--address {shown(address)}: cannot connect ({one_line(error)}); expected HOST:PORT of the head "
            "of a Ray cluster, ray://HOST:PORT or auto."
        ) from None


@contextmanager
def open_engine(name: str, address: str | None, workers: int | None) -> Iterator[Engine]:
    """Yield an engine; everything it started ends with the block.

    Raises
    ------
    InputError
        If what it needs is not installed, or no cluster answers.
    """
    if name == "ray":
        with _ray(address, workers) as ray:
            yield RayEngine(ray, workers)
        return
    import joblib

    with _environment(PYTHONSAFEPATH="1"):  # workers import nothing from the folder that they start in
        yield LocalEngine(workers or joblib.cpu_count())


@contextmanager
def _environment(**variables: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


class LocalEngine:
    """Processes on this machine; all are replaced when one dies."""

    def __init__(self, workers: int) -> None:
        self._workers = workers

    def price(self, job: Job, points: Sequence[Point], *, singly: bool) -> Iterator[Row | None]:
        """Yield rows as they complete, and None if a worker died."""
        from concurrent.futures.process import BrokenProcessPool

        from joblib import Parallel, delayed, parallel_config

        left = {point.digest: point for point in points}

        def calls(taken: set[str]) -> Iterator[Any]:
            for point in list(left.values()):
                taken.add(point.digest)
                yield delayed(run_points)(job, [point])

        while left:
            taken: set[str] = set()
            with parallel_config("loky", inner_max_num_threads=1):
                pool = Parallel(
                    n_jobs=max(2, self._workers),  # one would be this process, which a point must not end
                    pre_dispatch=self._workers,
                    batch_size=1 if singly else "auto",
                    return_as="generator_unordered",
                    max_nbytes=None,
                )
            try:
                with closing(pool(calls(taken))) as found:
                    for row in chain.from_iterable(found):
                        del left[row["digest"]]
                        yield row
            except BrokenProcessPool:
                yield None
                for digest in taken:
                    left.pop(digest, None)


class RayEngine:
    """Tasks of a Ray cluster, one core each."""

    def __init__(self, ray: Any, workers: int | None) -> None:
        self._ray, self._workers = ray, workers
        self._task = ray.remote(max_retries=0, num_cpus=1, scheduling_strategy="SPREAD")(_run_shipped)

    def price(self, job: Job, points: Sequence[Point], *, singly: bool) -> Iterator[Row | None]:
        """Yield rows as they complete, and None if a worker or its node died."""
        ray, errors = self._ray, self._ray.exceptions
        files = ray.put(pack(job.files))
        coming = iter(points)
        running: dict[Any, list[Point]] = {}
        size, lost = 1, 0
        while True:
            while len(running) < self._slots() and (batch := list(islice(coming, size))):
                running[self._task.remote(job, batch, files)] = batch
            if not running:
                return
            done = ray.wait(list(running), num_returns=1)[0][0]
            batch = running.pop(done)
            try:
                rows = ray.get(done)
            except (errors.WorkerCrashedError, errors.OutOfMemoryError):
                yield None
            except errors.RayTaskError as error:
                cause = error.cause or error
                why = str(cause) if isinstance(cause, InputError) else one_line(cause)
                raise InputError(
                    f"--engine ray: a node of the cluster cannot price points ({why}); all rows are kept. "
                    'Install the same "rackplan[ray]" on every node.'
                ) from None
            except errors.RayError as error:  # its machine: no point is to blame
                lost += 1
                if lost > _MOST_LOST:
                    raise InputError(
                        f"--engine ray: the cluster has lost {_MOST_LOST:,} tasks ({one_line(error)}); all "
                        "rows are kept; run the same command to resume."
                    ) from None
                coming = chain(batch, coming)
                yield None
            else:
                seconds = sum(row["seconds"] for row in rows) / len(rows)
                size = 1 if singly else int(min(max(_BATCH_S / max(seconds, 1e-6), 1), _MOST_BATCH))
                yield from rows

    def _slots(self) -> int:
        """Return the current number of cores of the cluster."""
        there = max(1, int(self._ray.cluster_resources().get("CPU", 0)))
        return min(there, self._workers or there)


def _run_shipped(job: Job, points: Sequence[Point], shipped: Shipped) -> list[Row]:
    """Price points in a Ray task, with their files included."""
    return run_points(replace(job, files=unpack(shipped)), points)


@contextmanager
def _ray(address: str | None, workers: int | None) -> Iterator[Any]:
    """Yield Ray connected to the cluster at ``address``, or to a local one that ends with the block."""
    try:
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        import ray
    except ImportError:
        raise InputError('--engine ray needs Ray: pip install "rackplan[ray]".') from None
    with ExitStack() as stack:
        stack.enter_context(redirect_stdout(sys.stderr))  # Ray reports a dead node where results go
        if not ray.is_initialized():
            more: dict[str, Any] = (
                {"num_cpus": workers, "include_dashboard": False} if address is None else {}
            )
            stack.callback(ray.shutdown)
            handler = signal.getsignal(signal.SIGTERM)  # Ray's own would end this process with a trace
            try:
                ray.init(
                    address=address or "local",
                    log_to_driver=False,
                    logging_level=logging.ERROR,
                    runtime_env={"env_vars": _THREADS},
                    **more,
                )
            except (ConnectionError, ValueError, RuntimeError, OSError, TimeoutError) as error:
                raise InputError(
                    f"--address {address}: no Ray cluster at this address ({one_line(error)})."
                ) from None
            signal.signal(signal.SIGTERM, handler)
        yield ray
