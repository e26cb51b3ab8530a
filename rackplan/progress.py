"""Progress of long computations on a terminal; none in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock, Timer
from typing import TYPE_CHECKING

from topology.base.errors import printable

if TYPE_CHECKING:
    from rich.progress import Progress

    from placement.progress import Progress as PlanProgress

SILENT_S = 1.0
"""Seconds of silence after which a command reports progress."""


class Reporter:
    """Receives progress of the planner; this base class ignores it."""

    def stage(self, name: str) -> None:
        """Report the stage of the work."""

    def hear(self, progress: PlanProgress) -> None:
        """Report the progress of a plan or re-plan."""
        self.stage(progress.stage)

    def arrived(self, part: float) -> None:
        """Report the share of bytes delivered under fair sharing."""


class _Line(Reporter):
    """One line on standard error with what is done and for how long, drawn from the first silent second on."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._live: Progress | None = None
        self._timer: Timer | None = None
        self._lock = Lock()

    def rest(self) -> None:
        """Draw the line after a second, unless :meth:`hide` is called first."""
        self._timer = Timer(SILENT_S, self.say)
        self._timer.daemon = True
        self._timer.start()

    def say(self, text: str | None = None) -> None:
        """Draw the line, with other words where they are given."""
        from rich.console import Console
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        with self._lock:
            self._text = text or self._text
            if self._live is None:
                columns = (
                    SpinnerColumn(),
                    TimeElapsedColumn(),
                    TextColumn("{task.description}", markup=False),
                )
                self._live = Progress(*columns, console=Console(stderr=True), transient=True)
                self._live.add_task(self._text)
                self._live.start()
            self._live.update(self._live.task_ids[0], description=self._text)

    def hide(self) -> None:
        """Take the line away, before anything else is written."""
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            if self._live is not None:
                self._live.stop()
                self._live = None

    def stage(self, name: str) -> None:
        self.say(f"{printable(name)} ...")

    def hear(self, progress: PlanProgress) -> None:
        if not progress.total:
            self.stage(progress.stage)
            return
        self.say(
            f"{printable(progress.stage)}: {progress.done} of {progress.total} layers at their bound, "
            f"{progress.elapsed_s:.0f} s, max/mean {progress.objective:.4f}, bound {progress.bound:.4f}, "
            f"gap {progress.gap:.2%} (Ctrl-C keeps the best)"
        )

    def arrived(self, part: float) -> None:
        self.say(f"computing fair link sharing: {part:.0%} of bytes delivered (Ctrl-C keeps the bound)")


_LINE: ContextVar[_Line | None] = ContextVar("_LINE", default=None)
"""The progress line of the running command."""


@contextmanager
def working(task: str) -> Iterator[None]:
    """Show progress on a terminal after one second of silence."""
    if not sys.stderr.isatty():
        yield
        return
    line = _Line(f"{task} ...")
    token = _LINE.set(line)
    line.rest()
    try:
        yield
    finally:
        line.hide()
        _LINE.reset(token)


def hide() -> None:
    """Remove the progress line before results are written."""
    if line := _LINE.get():
        line.hide()


@contextmanager
def progress() -> Iterator[Reporter]:
    """Yield a reporter that draws on a terminal, and does nothing elsewhere."""
    if not sys.stderr.isatty():
        yield Reporter()
        return
    hide()
    line = _Line("starting ...")
    line.say()
    try:
        yield line
    finally:
        line.hide()
        if behind := _LINE.get():
            behind.rest()
