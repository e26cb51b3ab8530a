"""Steps: replayed on the old placement they give the new one; where copies come from, and how long links need."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.migrate.steps import Step, in_order, nearest_sources, transfers
from topology import resolve_cluster


def replay(old: dict[tuple[int, int], int], steps: list[Step]) -> dict[tuple[int, int], int]:
    """Follow steps of one layer on ``{(GPU, slot): expert}``, as a runtime would."""
    held, buffered = dict(old), []
    for step in steps:
        if step.source is not None:
            assert any(gpu == step.source and expert == step.expert for (gpu, _), expert in held.items())
        assert held.get((step.gpu, step.slot)) == step.replaces
        if step.buffer:
            buffered.append(step)
        else:
            held[step.gpu, step.slot] = step.expert
    for step in buffered:
        held[step.gpu, step.slot] = step.expert
    return held


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 100_000), gpus=st.integers(2, 6), each=st.integers(1, 3))
def test_replayed_they_give_the_new_placement(seed: int, gpus: int, each: int) -> None:
    rng = np.random.default_rng(seed)
    experts = int(rng.integers(max(each, 2), gpus * each + 1))

    def placement() -> np.ndarray:
        return np.array([rng.permutation(experts)[:each] for _ in range(gpus)])

    old, new = placement(), placement()
    for gpu in range(gpus):  # copies that stay keep their slot
        stay = [expert if expert in new[gpu] else -1 for expert in old[gpu]]
        come = [expert for expert in new[gpu] if expert not in old[gpu]]
        new[gpu] = [expert if expert >= 0 else come.pop(0) for expert in stay]
    steps = []
    for gpu, slot in np.argwhere(old != new).tolist():
        expert = int(new[gpu, slot])
        sources = np.flatnonzero((old == expert).any(axis=1))
        source = int(rng.choice(sources)) if sources.size else None
        steps.append(Step(5, gpu, slot, expert, int(old[gpu, slot]), source))
    ordered = in_order(steps)
    assert len(ordered) == len(steps)
    before = {(g, s): int(old[g, s]) for g in range(gpus) for s in range(each)}
    after = {(g, s): int(new[g, s]) for g in range(gpus) for s in range(each)}
    assert replay(before, ordered) == after


def test_a_chain_needs_no_buffer_and_an_exchange_needs_one() -> None:
    chain = [Step(0, 0, 0, 1, 0, 1), Step(0, 1, 0, 2, 1, 2)]
    for steps in (chain, chain[::-1]):
        ordered = in_order(steps)
        assert [step.gpu for step in ordered] == [0, 1]
        assert not any(step.buffer for step in ordered)
    swap = in_order([Step(0, 0, 0, 1, 0, 1), Step(0, 1, 0, 0, 1, 0)])
    assert [step.buffer for step in swap] == [True, False]


CLUSTER = resolve_cluster("hgx-h100@16")


def sources(holders: list[int], gpus: list[int]) -> list[int | None]:
    steps = [Step(0, gpu, 0, 9, None) for gpu in gpus]
    found = nearest_sources(CLUSTER, steps, {(0, 9): holders}, {0: 1e6})
    return [step.source for step in found]


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
