"""The bare arrays: copies, loads of slots and GPUs, balancedness."""

from __future__ import annotations

import numpy as np
import pytest

from cost.experts.assignment import Assignment


def small() -> Assignment:
    """Two layers, three experts, GPUs of 2, 0, 1 and 1 slots."""
    rows = np.array([[0, 1, 2, 0], [2, 1, 0, 2]], dtype=np.int32)
    return Assignment(rows, np.array([0, 0, 2, 3], dtype=np.int32), experts=3, gpus=4)


def test_shapes_and_copies() -> None:
    assignment = small()
    assert (assignment.layers, assignment.slots) == (2, 4)
    assert assignment.slots_per_gpu.tolist() == [2, 0, 1, 1]
    assert assignment.copies.tolist() == [[2, 1, 1], [1, 1, 2]]


def test_loads_split_evenly_over_copies() -> None:
    load = np.array([[6.0, 1.0, 2.0], [5.0, 3.0, 4.0]])
    assignment = small()
    assert assignment.slot_load(load).tolist() == [[3, 1, 2, 3], [2, 3, 5, 2]]
    assert assignment.gpu_load(load).tolist() == [[4, 0, 2, 3], [5, 0, 5, 2]]
    assert assignment.balancedness(load) == pytest.approx([9 / 4 / 4, 12 / 4 / 5])


def test_gpus_without_slots_at_the_end_have_no_load() -> None:
    assignment = Assignment(np.array([[0, 1]]), np.array([1, 1]), experts=2, gpus=4)
    assert assignment.gpu_load(np.array([[2.0, 3.0]])).tolist() == [[0, 5, 0, 0]]
