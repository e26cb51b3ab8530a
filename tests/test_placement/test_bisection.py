"""The last number that holds, against counting."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from placement.partition import last_where


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 50), st.integers(0, 200))
def test_it_is_the_last_below_the_edge(low: int, room: int) -> None:
    for edge in range(low, low + room + 1):
        tried: list[int] = []

        def holds(number: int, edge: int = edge, tried: list[int] = tried) -> bool:
            tried.append(number)
            return number <= edge

        assert last_where(low, low + room + 1, holds) == edge
        assert low not in tried
        assert low + room + 1 not in tried
