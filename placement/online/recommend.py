"""Recommended policy, interval and budget of a replay: most tokens, ties broken by fewest bytes moved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from placement.online.simulate import Run

EQUAL_TOKENS = 5e-4
"""Policies whose tokens differ by less, as a part of all, are as good: bytes moved decide, then re-plans."""


@dataclass(frozen=True, eq=False)
class Recommendation:
    """The recommended run.

    ``most`` serves the most tokens, ``best`` as many up to :data:`EQUAL_TOKENS` and moves the fewest bytes of those.
    """

    best: Run
    most: Run


def recommend(runs: Sequence[Run]) -> Recommendation:
    """Return which of the runs to take; ties go to the first."""
    fastest = max(runs, key=lambda run: run.tok_s)
    equal = [run for run in runs if run.tok_s >= fastest.tok_s * (1 - EQUAL_TOKENS)]
    return Recommendation(min(equal, key=lambda run: (run.bytes_moved, len(run.replans))), fastest)
