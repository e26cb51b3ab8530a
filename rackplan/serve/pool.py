"""Worker processes with one call at a time; a process is ended when its client disconnects or its time is up.

One process more than may be busy for long answers what is short.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

from rackplan.requests import flag_of
from rackplan.serve.question import FieldError
from topology.base.errors import RackplanError, one_line, spelling

MAX_WAITING = 16
"""Calls that may wait for a process; more are refused."""
ANSWER_S, JOB_S = 120, 900
"""Seconds that an answer and a job may compute."""
PROMPT_S = 3.0
"""Seconds that a call may take in the place for short ones."""
IDLE_S = 0.5
"""Seconds without a call after which a process collects garbage."""
_LOADED = "rackplan.serve.loaded"
_START: Any = get_context("forkserver" if sys.platform == "linux" else "spawn")
"""Processes are forked, ready in 50 ms, where that is safe with the libraries that are loaded."""
_START.set_forkserver_preload([_LOADED])


@dataclass(frozen=True)
class Line:
    """Connection between a call and its client: progress and cancellation."""

    pipe: Connection

    def send(self, progress: dict[str, Any]) -> None:
        """Report the progress of the call."""
        self.pipe.send(("progress", progress))

    def cancelled(self) -> bool:
        """Whether the server asked for the best result so far."""
        return self.pipe.poll()


class Worker:
    """A process, the server's end of its pipe, and whether it has loaded what it needs."""

    def __init__(self) -> None:
        self.ready = asyncio.Event()
        self.pipe, child_end = _START.Pipe()
        self.process = _START.Process(target=work, args=(child_end,), daemon=True)
        self.process.start()
        child_end.close()

    def send(self, message: object) -> None:
        """Send a message; if the process has ended, :meth:`receive` reports it."""
        with suppress(OSError):
            self.pipe.send(message)

    def receive(self) -> tuple[str, Any]:
        """Return the next message of the process."""
        try:
            message: tuple[str, Any] = self.pipe.recv()
        except (EOFError, OSError):
            return "ended", {"request": "the computation stopped; out of memory?"}
        return message


class LateError(Exception):
    """A call took long while as many others as may do so did."""


class Call:
    """The computation of ``name``; functions that ``reports`` receive a line for progress and cancellation."""

    def __init__(self, name: str, function: Callable[..., Any], *args: Any, reports: bool = False) -> None:
        self.name, self.reports, self.max_s = name, reports, JOB_S if reports else ANSWER_S
        self.message = (function, args, reports)
        self.progress: dict[str, Any] = {"stage": "queued"}
        self.worker: Worker | None = None

    def cancel(self) -> None:
        """Ask for the best result so far."""
        if self.worker is not None:
            self.worker.send(None)


class Pool:
    """Pool of processes that reuses the last one, since it has cached results.

    While ``calls`` compute, another that does not report has a place for short ones. After :data:`PROMPT_S` it moves
    to one of theirs; where none is free it is ended, and begins again when there is.
    """

    def __init__(self, calls: int = 2) -> None:
        self._idle = [Worker() for _ in range(calls + 1)]
        self._short, self._long = asyncio.Semaphore(), asyncio.Semaphore(calls)
        self._waiting = 0

    async def run(self, call: Call) -> Any:
        """Return the result of a call; if cancelled, its process is ended.

        Raises
        ------
        FieldError
            What is wrong, that too many wait, or that the call took longer than it may.
        """
        if self._long.locked() and not call.reports:
            with suppress(LateError):
                return await self._run(call, self._short)
        return await self._run(call, self._long)

    async def _run(self, call: Call, lane: asyncio.Semaphore) -> Any:
        if self._waiting >= MAX_WAITING:
            raise FieldError({"request": "too many requests are waiting; try again."}, status=429)
        self._waiting += 1
        try:
            await lane.acquire()
        finally:
            self._waiting -= 1
        call.worker = worker = self._idle.pop()
        answer, kind = asyncio.create_task(self._answer(call, worker)), ""
        try:
            await worker.ready.wait()
            if lane is self._short and not (await asyncio.wait([answer], timeout=PROMPT_S))[0]:
                if self._long.locked():
                    raise LateError
                await self._long.acquire()
                lane.release()
                lane = self._long
            kind, reply = await asyncio.wait_for(answer, call.max_s)
        except TimeoutError:
            reply = {
                "request": f"{call.name} was cut off after {call.max_s} s of computing; choose fewer or smaller "
                "clusters or a model of fewer layers, or use the command line, which has no such limit."
            }
        finally:
            call.worker = None
            if kind in ("done", "wrong"):
                self._idle.append(worker)
            else:  # who asked is gone, the time is up, or the process is gone
                answer.cancel()
                worker.process.kill()
                self._idle.insert(0, Worker())
            lane.release()
        if kind != "done":
            raise FieldError(reply)
        return reply

    async def _answer(self, call: Call, worker: Worker) -> tuple[str, Any]:
        """Return how a call ended in a process, and with what."""
        await asyncio.to_thread(worker.send, call.message)
        if not worker.ready.is_set():
            await asyncio.to_thread(worker.receive)
            worker.ready.set()
        kind, reply = "progress", {"stage": "starting"}
        while kind == "progress":
            call.progress = reply
            kind, reply = await asyncio.to_thread(worker.receive)
        return kind, reply

    def close(self) -> None:
        """End the processes without waiting."""
        for worker in self._idle:
            worker.process.kill()


def work(pipe: Connection) -> None:
    """Answer calls one by one until the server is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the server's
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    gc.set_threshold(100_000)  # seldom in the middle of an answer, where a whole collection takes 100 ms
    with spelling(flag_of), suppress(EOFError, OSError):  # the page shows the command to type
        import_module(_LOADED)
        pipe.send(("ready", None))
        while True:
            if not pipe.poll(IDLE_S):
                gc.collect()
            message = pipe.recv()
            if message is not None:  # else a cancellation that came after the end
                pipe.send(_outcome(pipe, *message))


def _outcome(
    pipe: Connection, function: Callable[..., Any], args: tuple[Any, ...], reports: bool
) -> tuple[str, Any]:
    try:
        return "done", function(*args, Line(pipe)) if reports else function(*args)
    except FieldError as error:
        return "wrong", error.fields
    except RackplanError as error:
        return "wrong", {"request": str(error)}
    except MemoryError:
        return "wrong", {"request": "out of memory; try a smaller cluster."}
    except Exception as error:  # noqa: BLE001 - the page says so, and the next call runs
        text = f"a defect in rackplan, please report it: {type(error).__name__}: {one_line(error)}"
        return "wrong", {"request": text}
