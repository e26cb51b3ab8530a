"""Where points run: processes of this machine (loky of joblib), or tasks of a Ray cluster."""

from __future__ import annotations

import logging
import os
import platform
import re
import signal
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

from rackplan.studies.options import Kind
from rackplan.studies.store import version
from rackplan.studies.work import Shipped, Task, ignore_interrupts, load, pack, run_points, unpack
from topology.base.errors import InputError, one_line
from topology.base.files import scratch
from topology.base.host import cores
from topology.base.reading import shown

ENGINES = ("local", "ray")
_CONNECT_S, _JOIN_S = 5.0, 13.0
"""Seconds in which an address must answer, and a Ray cluster have taken another process in."""
_IDLE_S = 5.0
"""Seconds after which a worker without work ends: those of a study that was killed do not stay."""
_THREADS = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
_SAFE_PATH = {"PYTHONSAFEPATH": "1"}
"""Workers import nothing from the folder that they start in."""
Rows = list[dict[str, Any]]


class WorkerLostError(Exception):
    """The process that priced some points is gone: one of them may have ended it."""


class MachineLostError(Exception):
    """The machine that priced some points is gone: none of them is to blame."""


class Engine(Protocol):
    """What prices points somewhere."""

    @property
    def slots(self) -> int:
        """Points that it prices at once."""

    def submit(self, tasks: Sequence[Task]) -> object:
        """Begin with some points; return a handle."""

    def wait(self, handles: Iterable[Any], timeout_s: float) -> list[Any]:
        """Return those of some handles that are done, as soon as there is one."""

    def rows(self, handle: Any) -> Rows:
        """Return the rows of a handle that is done.

        Raises
        ------
        WorkerLostError
            If its worker died.
        MachineLostError
            If the whole machine did.
        """

    def began(self, handle: Any) -> float | None:
        """Return when a worker began with a handle, of the monotonic clock; None where none did."""

    def end(self, handle: Any) -> None:
        """End the worker of a handle, if it can be, and perhaps others with it: theirs are then lost too."""

    def close(self) -> None:
        """End all that runs."""


class LocalEngine:
    """Processes of this machine; a pool that lost one is replaced."""

    def __init__(
        self, kind: Kind, limit_s: float, files: Mapping[str, str], workers: int | None = None
    ) -> None:
        try:
            from joblib.externals import loky
        except ImportError:
            raise InputError('studies run on joblib: pip install "rackplan[study]".') from None
        self._loky = loky
        self._call = kind, limit_s, dict(files)
        self._workers: int = workers or loky.cpu_count()
        self._open = ExitStack()
        self._held = self._open.enter_context(scratch())
        self._marks: dict[Future[Rows], Path] = {}
        self._pool = self._made()

    @property
    def slots(self) -> int:
        """Processes."""
        return self._workers

    def _made(self) -> Any:
        return self._loky.ProcessPoolExecutor(
            self._workers, timeout=_IDLE_S, initializer=ignore_interrupts, env=_THREADS | _SAFE_PATH
        )

    def submit(self, tasks: Sequence[Task]) -> Future[Rows]:
        """Begin with some points, on a new pool where the last one broke."""
        kind, limit_s, files = self._call
        mark = self._held / f"{tasks[0][1]}-{time.monotonic_ns()}"
        call = _run_marked, mark, kind, tasks, limit_s, files, version()
        try:
            found: Future[Rows] = self._pool.submit(*call)
        except (RuntimeError, OSError):  # broken, between two submissions
            self._pool.shutdown(wait=False, kill_workers=True)
            self._pool = self._made()
            found = self._pool.submit(*call)
        self._marks[found] = mark
        return found

    def wait(self, handles: Iterable[Future[Rows]], timeout_s: float) -> list[Future[Rows]]:
        """Return those that are done."""
        return list(wait(handles, timeout=timeout_s, return_when=FIRST_COMPLETED).done)

    def rows(self, handle: Future[Rows]) -> Rows:
        """Return the rows of a handle that is done."""
        from concurrent.futures.process import BrokenProcessPool

        try:
            found = handle.result()
        except (
            BrokenProcessPool,
            self._loky.process_executor.ShutdownExecutorError,
            OSError,
            EOFError,
        ) as error:
            raise WorkerLostError(one_line(error)) from None
        self._marks.pop(handle).unlink(missing_ok=True)
        return found

    def began(self, handle: Future[Rows]) -> float | None:
        """Return what its worker wrote down when it began."""
        try:
            return float(self._marks[handle].read_text(encoding="ascii"))
        except (OSError, ValueError):  # not yet there, or not yet written
            return None

    def end(self, handle: Future[Rows]) -> None:  # noqa: ARG002 - a pool ends with one of its workers
        """End all workers: the next points begin a new pool."""
        self._pool.shutdown(wait=False, kill_workers=True)

    def close(self) -> None:
        """End the processes, whatever they do."""
        self._pool.shutdown(wait=False, kill_workers=True)
        self._open.close()


@dataclass(eq=False)
class _RayCall:
    """A task of Ray: it says that it begins, and then its rows."""

    said: Any
    began: float | None = None
    rows: Rows | None = None
    error: Exception | None = None


class RayEngine:
    """Tasks of a Ray cluster, one core each; without an address a cluster of this machine's cores is begun."""

    def __init__(
        self,
        kind: Kind,
        limit_s: float,
        files: Mapping[str, str],
        workers: int | None = None,
        address: str | None = None,
    ) -> None:
        try:
            os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
            import ray
        except ImportError:
            raise InputError('--engine ray needs Ray: pip install "rackplan[ray]".') from None
        self._ray: Any = ray
        self._most = workers
        self._began = not ray.is_initialized()
        self._quiet = ExitStack()
        # what Ray says of a node that dies goes to standard output, where results go
        self._quiet.enter_context(redirect_stdout(self._quiet.enter_context(_nowhere())))
        try:
            if self._began:
                with _handlers_kept():
                    _connect(ray, address, workers)
        except BaseException:
            self._quiet.close()
            raise
        self._task = self._ray.remote(
            max_retries=0, num_cpus=1, scheduling_strategy="SPREAD", num_returns="streaming"
        )(_run_shipped)
        self._files = ray.put((pack(files), dict(files)))
        self._call = kind, limit_s

    @property
    def slots(self) -> int:
        """Cores of the cluster now: nodes come and go."""
        there = int(self._ray.cluster_resources().get("CPU", 0))
        return max(1, there if self._most is None else min(there, self._most))

    def submit(self, tasks: Sequence[Task]) -> _RayCall:
        """Begin with some points."""
        kind, limit_s = self._call
        return _RayCall(self._task.remote(kind, list(tasks), limit_s, self._files, version()))

    def wait(self, handles: Iterable[_RayCall], timeout_s: float) -> list[_RayCall]:
        """Return those that are done."""
        calls = {call.said: call for call in handles}
        every = list(calls)
        ready, _ = self._ray.wait(every, num_returns=1, timeout=timeout_s, fetch_local=False)
        if ready and len(every) > 1:
            ready, _ = self._ray.wait(every, num_returns=len(every), timeout=0, fetch_local=False)
        return [calls[said] for said in ready if self._heard(calls[said])]

    def _heard(self, call: _RayCall) -> bool:
        """Take what a task says; return whether it was the last."""
        try:
            call.rows = self._ray.get(next(call.said))
        except self._ray.exceptions.RayError as error:
            call.error = error
            return True
        if call.rows is None:
            call.began = time.monotonic()
        return call.rows is not None

    def rows(self, handle: _RayCall) -> Rows:
        """Return the rows of a handle that is done."""
        errors = self._ray.exceptions
        error = handle.error
        if error is None:
            return handle.rows or []
        if isinstance(error, errors.WorkerCrashedError | errors.OutOfMemoryError):
            raise WorkerLostError(one_line(error))
        if not isinstance(error, errors.RayTaskError):
            raise MachineLostError(one_line(error))
        if isinstance(error.cause, InputError):
            raise InputError(f"--engine ray: a node of the cluster cannot take part: {error.cause}")
        if isinstance(error.cause, ImportError | RuntimeError):
            why = 'lacks what is installed here; install the same "rackplan[ray]" on every node'
        else:
            why = "cannot run points; every row is kept, and the same command goes on from there"
        said = one_line(error.cause or error)
        raise InputError(f"--engine ray: a node of the cluster {why} ({said}).")

    def began(self, handle: _RayCall) -> float | None:
        """Return when a node was heard to begin."""
        return handle.began

    def end(self, handle: Any) -> None:
        """Leave it: a task that says nothing may wait for a node, and Ray looks after those that run."""

    def close(self) -> None:
        """Leave the cluster; one that was begun here ends."""
        if self._began:
            self._ray.shutdown()
        self._quiet.close()


def _nowhere() -> IO[str]:
    return Path(os.devnull).open("w", encoding="utf-8")


def _connect(ray: Any, address: str | None, workers: int | None) -> None:
    """Join the cluster at ``address``, or begin one."""
    more: dict[str, Any] = (
        {"num_cpus": workers or cores(), "include_dashboard": False} if address is None else {}
    )
    if address is not None:
        _require_answer(address)
    try:
        ray.init(
            address=address or "local",
            log_to_driver=False,
            logging_level=logging.ERROR,
            configure_logging=True,
            runtime_env={"env_vars": _THREADS},
            **more,
        )
    except (ConnectionError, ValueError, RuntimeError, OSError, TimeoutError) as error:
        if address is not None:
            raise _no_cluster(address, one_line(error)) from None
        raise InputError(f"--engine ray: no cluster could be begun here ({one_line(error)}).") from None


@contextmanager
def _handlers_kept() -> Iterator[None]:
    """Have SIGTERM handled afterwards as before: a process that joins Ray would end by it at once, with a trace."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        with suppress(ValueError, TypeError):  # not the main thread, or no handler of Python's
            signal.signal(signal.SIGTERM, before)


_PROBE = """
import socket, sys
address, limit_s = sys.argv[1], float(sys.argv[2])
try:
    if address != "auto":
        host, _, port = address.removeprefix("ray://").rpartition(":")
        socket.create_connection((host.strip("[]"), int(port)), timeout=limit_s).close()
    import ray
    ray.init(address=address, log_to_driver=False, logging_level="ERROR")
except Exception as error:
    sys.exit(" ".join(str(error).split())[:300] or type(error).__name__)
"""


def _require_answer(address: str) -> None:
    """Refuse an address where no cluster answers: Ray would try for minutes, and say so on standard error.

    Another process joins first: nothing else ends an attempt to speak with what is no Ray, or to resolve a name.
    """
    import subprocess
    import sys

    command = [sys.executable, "-P", "-c", _PROBE, address, f"{_CONNECT_S:g}"]
    try:
        done = subprocess.run(  # noqa: S603 - Ray itself
            command, timeout=_JOIN_S, check=False, capture_output=True, text=True, errors="replace"
        )
    except subprocess.TimeoutExpired as late:
        if b"AuthToken" in (late.stderr or b""):
            why = "it wants the token that it was begun with: set RAY_AUTH_MODE=token, as Ray's documentation has it"
        else:
            why = f"nothing there takes another process in within {_JOIN_S:g} s: is it the head of a cluster?"
    else:
        if done.returncode == 0:
            return
        why = done.stderr.strip().rpartition("\n")[2] or f"exit code {done.returncode}"
    raise _no_cluster(address, why)


def _no_cluster(address: str, why: str) -> InputError:
    return InputError(
        f"--address {address}: no Ray cluster answers there ({why}); `ray start --head` begins one."
    )


def _require_same_code(wanted: str) -> None:
    """Refuse to price points of a study with other code: on a node, or here where files changed meanwhile."""
    if version() != wanted:
        raise InputError(
            f"{platform.node()} has rackplan {version()}, and the study runs {wanted}: code or catalog differ. Every "
            "row is kept; use the same code everywhere, that of the study."
        )


def _run_marked(
    mark: Path, kind: Kind, tasks: Sequence[Task], limit_s: float, files: Mapping[str, str], wanted: str
) -> Rows:
    """Price points in a process of this machine, which writes down when it begins."""
    _require_same_code(wanted)
    load(kind)
    with suppress(OSError):  # a full disk is no fault of the points
        mark.write_text(str(time.monotonic()), encoding="ascii")
    return run_points(kind, tasks, limit_s, files)


def _run_shipped(
    kind: Kind,
    tasks: Sequence[Task],
    limit_s: float,
    files: tuple[Shipped, Mapping[str, str]],
    wanted: str,
) -> Iterator[Rows | None]:
    """Price points in a task of Ray: files come with them. The first that it says is None: it begins."""
    _require_same_code(wanted)
    shipped, paths = files
    there = unpack(shipped, paths)
    load(kind)
    yield None
    yield run_points(kind, tasks, limit_s, there)


_ADDRESS = re.compile(r"(?:ray://)?(?:[\w.-]+|\[[0-9A-Fa-f:.%\w]+\]):([0-9]{1,5})")
_MOST_PORT = 65_535


def require_engine(name: str, address: str | None) -> None:
    """Refuse an engine or an address that cannot be, before anything is written or connected.

    Raises
    ------
    InputError
        If no engine is called ``name``, or ``address`` is not one of a Ray cluster.
    """
    if name not in ENGINES:
        raise InputError(f"--engine {shown(name)}: expected {' or '.join(ENGINES)}.")
    if address is None or address == "auto":
        port = 1
    elif found := _ADDRESS.fullmatch(address):
        port = int(found[1])
    else:
        port = 0
    if address is not None and name != "ray":
        raise InputError("--address: it is of a Ray cluster, only with --engine ray.")
    if not 1 <= port <= _MOST_PORT:
        raise InputError(
            f"--address {shown(address)}: expected HOST:PORT with a port from 1 to {_MOST_PORT}, "
            "ray://HOST:PORT or auto; without --address a cluster is begun on this machine."
        )


def make_engine(
    name: str,
    kind: Kind,
    limit_s: float,
    files: Mapping[str, str],
    *,
    workers: int | None = None,
    address: str | None = None,
) -> Engine:
    """Return the engine called ``name``, one that :func:`require_engine` lets pass.

    Raises
    ------
    InputError
        If what it needs is not there, or no cluster answers.
    """
    if name == "ray":
        return RayEngine(kind, limit_s, files, workers, address)
    return LocalEngine(kind, limit_s, files, workers)
