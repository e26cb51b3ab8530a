"""Limits on how long tokens take: one that nobody asked for gives way where nothing holds it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Any, TypeVar

from topology.base.errors import InfeasibleError

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")


class LimitError(InfeasibleError):
    """Nothing holds a limit.

    Attributes
    ----------
    limit:
        Which, by the field of what was asked: ``tpot_s``, ``ttft_s``.
    """

    def __init__(self, limit: str, message: str) -> None:
        super().__init__(message)
        self.limit = limit


def giving_way(
    solve: Callable[[Asked], Answer], asked: Asked, usual: Collection[str]
) -> tuple[Answer, tuple[LimitError, ...]]:
    """Return what ``solve`` makes of ``asked``, and the limits that were left out for it.

    Parameters
    ----------
    asked:
        A dataclass with the limits among its fields; None: no limit.
    usual:
        Those that nobody asked for: each is left out where ``solve`` says that nothing holds it.

    Raises
    ------
    LimitError
        If nothing holds one that somebody asked for.
    """
    left_out: list[LimitError] = []
    while True:
        try:
            return solve(asked), tuple(left_out)
        except LimitError as error:
            if error.limit not in usual or getattr(asked, error.limit) is None:
                raise
            left_out.append(error)
            free: Any = {error.limit: None}
            asked = replace(asked, **free)  # type: ignore[type-var]


def left_out_words(left_out: Iterable[LimitError]) -> tuple[str, ...]:
    """Say which usual limits were left out, and why."""
    return tuple(f"no limit was kept where nobody asked for one: {error}" for error in left_out)
