"""Progress of long work on a terminal; silence in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from placement.migrate.migration import State
from topology.errors import printable


class Reporter:
    """Receives what the planner is doing; this one says nothing."""

    def stage(self, name: str) -> None:
        """Report the stage of the work."""

    def layers(self, done: int, total: int, objective: float, bound: float, elapsed_s: float) -> None:
        """Report the experts' placement: layers done, incumbent, bound and seconds."""

    def replan(self, state: State, elapsed_s: float) -> None:
        """Report a re-plan: the pass, what runs in it, and what would be answered now."""

    def arrived(self, part: float) -> None:
        """Report flows that share fairly: which part of the bytes has arrived."""


@contextmanager
def progress() -> Iterator[Reporter]:
    """Yield a reporter that draws on standard error if that is a terminal."""
    if not sys.stderr.isatty():
        yield Reporter()
        return
    from rich.console import Console
    from rich.status import Status
    from rich.text import Text

    class _Live(Reporter):
        def __init__(self, status: Status) -> None:
            self._status = status

        def stage(self, name: str) -> None:
            self._status.update(Text(f"{printable(name)} ..."))  # names of files are text, not markup

        def layers(self, done: int, total: int, objective: float, bound: float, elapsed_s: float) -> None:
            gap = 1 - bound / objective if objective > 0 else 0.0
            self._status.update(
                f"placing experts: {done} of {total} layers at their bound, {elapsed_s:.0f} s, "
                f"max/mean {objective:.4f}, bound {bound:.4f}, gap {gap:.2%} (Ctrl-C keeps the best)"
            )

        def replan(self, state: State, elapsed_s: float) -> None:
            self._status.update(
                f"re-planning: pass {state.search_pass}, {state.phase}; {state.layers_near} of {state.layers} layers "
                f"near a fresh plan, {elapsed_s:.0f} s, balancedness {state.balancedness:.4f} with "
                f"{state.moves:,} moves, target {state.target:.4f} (Ctrl-C keeps the best)"
            )

        def arrived(self, part: float) -> None:
            self._status.update(
                f"sharing links fairly: {part:.0%} of the bytes have arrived (Ctrl-C keeps the bound)"
            )

    with Status("starting ...", console=Console(stderr=True)) as status:
        yield _Live(status)
