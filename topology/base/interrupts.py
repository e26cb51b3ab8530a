"""Signals that ask a process to end, as errors."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

ENDING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
"""Ctrl-C, what schedulers and containers send, and a terminal that was closed."""


class CtrlC:
    """Raises KeyboardInterrupt, and remembers that it ``came``: compiled modules lose one now and then, and go on."""

    came = False

    def __call__(self, *_: object) -> None:
        """Handle the signal."""
        self.came = True
        raise KeyboardInterrupt


class EndedError(BaseException):
    """A signal asked this process to end."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def signal_behind(error: BaseException | None) -> int | None:
    """Return the signal that an error came of, None where it came of none.

    A signal during the import of a compiled module ends as an ImportError that was caused by it.
    """
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return signal.SIGINT
        if isinstance(error, EndedError):
            return error.number
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return None


@contextmanager
def ending_by_signal() -> Iterator[CtrlC]:
    """Let SIGTERM and SIGHUP raise an :class:`EndedError` while the block runs, unless they are ignored (``nohup``).

    What is being written is then removed, as after Ctrl-C, which what is yielded remembers.
    """
    handlers: dict[int, Any] = {}
    ctrl_c = CtrlC()

    def end(number: int, _: FrameType | None) -> None:
        raise EndedError(number)

    try:
        if threading.current_thread() is threading.main_thread():
            for number in ENDING:
                if signal.getsignal(number) == signal.SIG_DFL:
                    handlers[number] = signal.signal(number, end)
                elif signal.getsignal(number) is signal.default_int_handler:
                    handlers[number] = signal.signal(number, ctrl_c)
        yield ctrl_c
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
