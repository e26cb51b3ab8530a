"""Worker processes with one call at a time; a process is ended when its client disconnects."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

from rackplan.requests import flag_of
from rackplan.serve.question import FieldError
from topology.base.errors import RackplanError, spelling

MOST_WAITING = 16
IDLE_S = 0.5
"""Seconds without a call after which a process collects garbage."""
_SPAWN = get_context("spawn")


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
    """A process, and the server's end of its pipe."""

    def __init__(self) -> None:
        self.pipe, theirs = _SPAWN.Pipe()
        self.process = _SPAWN.Process(target=work, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()

    def send(self, message: object) -> None:
        """Send a message; if the process has ended, :meth:`receive` reports it."""
        with suppress(OSError):
            self.pipe.send(message)

    def receive(self) -> tuple[str, Any]:
        """Return the next message of the process."""
        try:
            found: tuple[str, Any] = self.pipe.recv()
        except (EOFError, OSError):
            return "ended", {"request": "the computation stopped; out of memory?"}
        return found


class Call:
    """A computation; functions that are ``told`` receive a line for progress and cancellation."""

    def __init__(self, function: Callable[..., Any], *args: Any, told: bool = False) -> None:
        self.message = (function, args, told)
        self.progress: dict[str, Any] = {"stage": "queued"}
        self.worker: Worker | None = None

    def cancel(self) -> None:
        """Ask for the best result so far."""
        if self.worker is not None:
            self.worker.send(None)


class Pool:
    """Pool of processes that reuses the last one, since it has cached results."""

    def __init__(self, size: int = 2) -> None:
        self._idle = [Worker() for _ in range(size)]
        self._free = asyncio.Semaphore(size)
        self._waiting = 0

    async def run(self, call: Call) -> Any:
        """Return the result of a call; if cancelled, its process is ended.

        Raises
        ------
        FieldError
            What is wrong, or that too many wait.
        """
        if self._waiting >= MOST_WAITING:
            raise FieldError({"request": "too many requests are waiting; try again."}, status=429)
        self._waiting += 1
        try:
            await self._free.acquire()
        finally:
            self._waiting -= 1
        call.worker = worker = self._idle.pop()
        kind, found = "progress", {"stage": "starting"}
        try:
            await asyncio.to_thread(worker.send, call.message)
            while kind == "progress":
                call.progress = found
                kind, found = await asyncio.to_thread(worker.receive)
        finally:
            call.worker = None
            if kind not in ("done", "wrong"):  # who asked is gone, or the process is
                worker.process.kill()
                worker = Worker()
            self._idle.append(worker)
            self._free.release()
        if kind != "done":
            raise FieldError(found)
        return found

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
        while True:
            if not pipe.poll(IDLE_S):
                gc.collect()
            message = pipe.recv()
            if message is not None:  # else a cancellation that came after the end
                pipe.send(_outcome(pipe, *message))


def _outcome(
    pipe: Connection, function: Callable[..., Any], args: tuple[Any, ...], told: bool
) -> tuple[str, Any]:
    try:
        return "done", function(*args, Line(pipe)) if told else function(*args)
    except FieldError as error:
        return "wrong", error.fields
    except RackplanError as error:
        return "wrong", {"request": str(error)}
    except MemoryError:
        return "wrong", {"request": "out of memory; try a smaller cluster."}
    except Exception as error:  # noqa: BLE001 - the page says so, and the next call runs
        text = f"a defect in rackplan, please report it: {type(error).__name__}: {error}"
        return "wrong", {"request": text}
