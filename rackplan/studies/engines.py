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
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, redirect_stdout
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from typing import Any

from rackplan.studies.rows import Row
from rackplan.studies.spec import Point
from rackplan.studies.work import Job, Shipped, pack, run_points, unpack
from topology.base.errors import InputError, one_line
from topology.base.reading import shown

ENGINES = ("local", "ray")
Engine = Callable[[Job, Sequence[Point]], Iterator[Row | None]]
_CONNECT_S = 5.0
_BATCH_S, _MOST_BATCH = 0.25, 256
"""Approximate seconds per Ray task, and its maximum number of points."""
_MOST_LOST = 1_000
"""Tasks that may be lost with their machines before a study is aborted."""


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
            yield partial(price_on_ray, ray, workers)
        return
    import joblib

    safe = os.environ.get("PYTHONSAFEPATH")
    os.environ["PYTHONSAFEPATH"] = "1"  # workers import nothing from the folder that they start in
    try:
        yield partial(price_here, workers or joblib.cpu_count())
    finally:
        if safe is None:
            del os.environ["PYTHONSAFEPATH"]


def price_here(workers: int, job: Job, points: Sequence[Point]) -> Iterator[Row | None]:
    """Price points in processes of this machine; all are replaced when one dies."""
    from concurrent.futures.process import BrokenProcessPool

    from joblib import Parallel, delayed, parallel_config

    left = iter(points)  # those that a broken pool had taken are gone from it
    while True:
        with parallel_config("loky", inner_max_num_threads=1):
            pool = Parallel(
                n_jobs=max(2, workers),  # one would be this process, which a point must not end
                pre_dispatch=workers,
                return_as="generator_unordered",
                max_nbytes=None,
            )
        try:
            with closing(pool(delayed(run_points)(job, [point]) for point in left)) as rows:
                yield from chain.from_iterable(rows)
        except BrokenProcessPool:
            yield None
        else:
            return


def price_on_ray(ray: Any, workers: int | None, job: Job, points: Sequence[Point]) -> Iterator[Row | None]:
    """Price points in tasks of a Ray cluster, one core each."""
    errors, files = ray.exceptions, ray.put(pack(job.files))
    task = ray.remote(max_retries=0, num_cpus=1, scheduling_strategy="SPREAD")(_run_shipped)
    left = iter(points)
    running: dict[Any, list[Point]] = {}
    size, lost = 1, 0
    while True:
        cores = max(1, int(ray.cluster_resources().get("CPU", 0)))  # machines may join and leave
        while len(running) < min(cores, workers or cores) and (batch := list(islice(left, size))):
            running[task.remote(job, batch, files)] = batch
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
            left = chain(batch, left)
            yield None
        else:
            seconds = sum(row["seconds"] for row in rows) / len(rows)
            size = int(min(max(_BATCH_S / max(seconds, 1e-6), 1), _MOST_BATCH))
            yield from rows


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
            own: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
            own |= {"num_cpus": workers, "include_dashboard": False} if address is None else {}
            stack.callback(ray.shutdown)
            handler = signal.getsignal(signal.SIGTERM)  # Ray's own would end this process with a trace
            try:
                ray.init(address=address or "local", **own)
            except (ConnectionError, ValueError, RuntimeError, OSError, TimeoutError) as error:
                raise InputError(
                    f"--address {address}: no Ray cluster at this address ({one_line(error)})."
                ) from None
            signal.signal(signal.SIGTERM, handler)
        yield ray
