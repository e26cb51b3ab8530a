"""Where copies come from, and how long the links need."""

from __future__ import annotations

import pytest

from placement.migrate.steps import Step, nearest_sources, transfers
from topology import resolve_cluster

CLUSTER = resolve_cluster("hgx-h100@16")


def sources(holders: list[int], gpus: list[int]) -> list[int | None]:
    steps = [Step(0, gpu, 0, 9, None) for gpu in gpus]
    found = nearest_sources(CLUSTER, steps, {(0, 9): holders}, {0: 1e6})
    return [step.source for step in found]


def test_the_nearest_holder_sends() -> None:
    assert sources([12, 3], [0]) == [3]
    assert sources([12, 3], [9]) == [12]
    assert sources([12], [0]) == [12]


def test_without_a_holder_it_comes_from_storage() -> None:
    assert sources([], [0]) == [None]


def test_equally_near_holders_share_the_sending() -> None:
    assert sorted(str(source) for source in sources([1, 2], [4, 5, 6, 7])) == ["1", "1", "2", "2"]


def test_seconds_are_bytes_over_the_busiest_link() -> None:
    one = transfers(CLUSTER, [Step(0, 0, 0, 9, None, 1)], {0: 45e9, 1: 45e9})
    assert one.seconds == pytest.approx(45e9 / 450e9, rel=1e-3)  # NVLink 4: 450 GB/s per direction
    assert one.bytes_by_distance == {"node": 45e9, "domain": 0.0, "rack": 0.0, "across": 0.0, "storage": 0.0}
    two = transfers(CLUSTER, [Step(0, 0, 0, 9, None, 1), Step(1, 0, 0, 9, None, 2)], {0: 45e9, 1: 45e9})
    assert two.seconds == pytest.approx(2 * 45e9 / 450e9, rel=1e-3)  # both arrive at one GPU


def test_between_domains_the_scale_out_link_is_the_slow_one() -> None:
    found = transfers(CLUSTER, [Step(0, 0, 0, 9, None, 8)], {0: 5e9})
    assert found.seconds == pytest.approx(5e9 / 50e9, rel=1e-2)  # 400 Gb/s
    assert found.bytes_by_distance["node"] == found.bytes_by_distance["domain"] == 0.0


def test_what_comes_from_storage_takes_no_link() -> None:
    found = transfers(CLUSTER, [Step(0, 0, 0, 9, None)], {0: 5e9})
    assert (found.seconds, found.bytes_by_distance["storage"], found.bottleneck) == (0.0, 5e9, "")
