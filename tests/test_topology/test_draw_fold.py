"""What is seen from afar: counts of links in words, and parts that are the same."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topology.draw.fold import Links


def links(*edges: tuple[int, float, float]) -> Links:
    found = Links()
    for count, rate, health in edges:
        found.add({"count": count, "link_bytes_per_s": rate, "health": health})
    return found


@pytest.mark.parametrize(
    ("edges", "text"),
    [
        ([], "no link"),
        ([(1, 50e9, 1.0)], "50 GB/s each way"),
        ([(18, 25e9, 1.0)], "18 x 25 GB/s = 450 GB/s each way"),
        ([(9, 25e9, 1.0), (9, 25e9, 1.0)], "18 x 25 GB/s = 450 GB/s each way"),
        ([(1, 50e9, 0.5)], "50 GB/s x 0.5 = 25 GB/s each way"),
        ([(17, 50e9, 1.0), (1, 50e9, 0.5)], "17 x 50 GB/s + 1 x 50 GB/s x 0.5 = 875 GB/s each way"),
        ([(2, 64e9, 1.0), (4, 128e9, 1.0)], "4 x 128 GB/s + 2 x 64 GB/s = 640 GB/s each way"),
        ([(3, float("nan"), 1.0)], "3 x unpublished rate"),
    ],
)
def test_count_times_rate(edges: list[tuple[int, float, float]], text: str) -> None:
    assert links(*edges).text() == text


edge = st.tuples(st.integers(1, 99), st.sampled_from([25e9, 50e9]), st.sampled_from([1.0, 0.5]))


@given(st.lists(st.lists(edge, max_size=4), max_size=4))
@settings(deadline=None, max_examples=30)
def test_sums_lose_nothing(parts: list[list[tuple[int, float, float]]]) -> None:
    total = Links.sum(links(*part) for part in parts)
    assert total.count == sum(count for part in parts for count, _, _ in part)
    assert total.bytes_per_s == pytest.approx(sum(n * r * h for part in parts for n, r, h in part))
