"""Latency limits: defaults are relaxed if no layout meets them, and messages give the achievable values."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from typing import Any, TypeVar

from topology.base.errors import InfeasibleError, input_name

Request = TypeVar("Request")
Answer = TypeVar("Answer")


class LimitError(InfeasibleError):
    """No layout meets a limit; ``limit`` is its field: ``tpot_s``, ``ttft_s``."""

    def __init__(self, limit: str, message: str) -> None:
        super().__init__(message)
        self.limit = limit


def out_of_reach(limit: str, option: str, limit_s: float, where: str, best: str) -> LimitError:
    """Return the error of a limit that nothing keeps: its field and option, and the ``best`` that can be reached."""
    return LimitError(
        limit,
        f"{input_name(option)} {limit_s * 1e3:g} is out of reach on {where}: {best}; relax the limit, or use "
        "faster or more GPUs.",
    )


def relax_default_limits(
    solve: Callable[[Request], Answer], request: Request, defaults: Collection[str]
) -> tuple[Answer, tuple[LimitError, ...]]:
    """Return what ``solve`` makes of ``request``, and the limits that were left out for it.

    Parameters
    ----------
    request:
        A dataclass with the limits among its fields; None: no limit.
    defaults:
        Limits that the user did not give: each is left out where ``solve`` says that nothing keeps it.

    Raises
    ------
    LimitError
        If nothing keeps a limit that the user gave.
    """
    left_out: list[LimitError] = []
    while True:
        try:
            return solve(request), tuple(left_out)
        except LimitError as error:
            if error.limit not in defaults or getattr(request, error.limit) is None:
                raise
            left_out.append(error)
            free: Any = {error.limit: None}
            request = replace(request, **free)  # type: ignore[type-var]


def left_out_words(left_out: Iterable[LimitError]) -> tuple[str, ...]:
    """Return which default limits were left out, and why."""
    return tuple(f"a default limit is left out: {error}" for error in left_out)


def rounded_up(value: float) -> str:
    """Return ``value`` rounded up to four digits, so that the printed limit is achievable."""
    return _four_digits(value, ROUND_CEILING)


def rounded_down(value: float) -> str:
    """Return four digits of ``value``, never more than it."""
    return _four_digits(value, ROUND_FLOOR)


def _four_digits(value: float, rounding: str) -> str:
    exact = f"{value:.12g}"  # without what floating point adds to a number of a few digits
    return f"{float(Context(prec=4, rounding=rounding).create_decimal(exact)):,.10g}"
