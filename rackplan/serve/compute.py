"""One thread that computes: requests wait in line, and those that nobody waits for any more are left out."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")
MOST_WAITING = 16
LOOKS_EVERY_S = 0.05


class BusyError(Exception):
    """More requests wait than are taken."""


class Compute:
    """A thread that ends with the process: a sweep that runs when Ctrl-C comes is not waited for."""

    def __init__(self) -> None:
        self._line: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = queue.SimpleQueue()
        threading.Thread(target=self._work, daemon=True, name="rackplan-compute").start()

    def _work(self) -> None:
        while True:
            future, run = self._line.get()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(run())
            except BaseException as error:  # noqa: BLE001 - whoever asked hears of it
                future.set_exception(error)

    def put(self, run: Callable[[], T]) -> Future[T]:
        """Put work in line."""
        future: Future[T] = Future()
        self._line.put((future, run))
        return future

    async def run(self, run: Callable[[], T], gone: Callable[[], Awaitable[bool]]) -> T:
        """Return what ``run`` returns; it is left out where whoever asked is ``gone`` before its turn.

        Raises
        ------
        BusyError
            If too many wait.
        asyncio.CancelledError
            If who asked is gone.
        """
        if self._line.qsize() >= MOST_WAITING:
            raise BusyError
        future = self.put(run)
        waiting = asyncio.wrap_future(future)
        while not waiting.done():
            await asyncio.wait([waiting], timeout=LOOKS_EVERY_S)
            if not waiting.done() and not future.running() and await gone():
                future.cancel()
        return await waiting
