"""Traffic: patterns by hand, files of all shapes, refusals."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import pytest

from topology.base.errors import InputError
from topology.routes import PATTERNS, Traffic, pattern_traffic, read_traffic, traffic_matrix

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray


def dense(traffic: Traffic) -> NDArray[np.float64]:
    matrix = np.zeros((traffic.gpus, traffic.gpus))
    for alike in traffic.alike():
        matrix[alike.senders] += alike.amounts
    np.fill_diagonal(matrix, 0.0)
    for sources, targets, amounts in traffic.blocks():
        np.add.at(matrix, (sources, targets), amounts)
    return matrix


def test_patterns_by_hand() -> None:
    ring = dense(pattern_traffic("ring", 4, 5.0))
    assert np.argwhere(ring).tolist() == [[0, 1], [1, 2], [2, 3], [3, 0]]
    incast = dense(pattern_traffic("incast", 4, 5.0))
    assert np.argwhere(incast).tolist() == [[1, 0], [2, 0], [3, 0]]
    half = dense(pattern_traffic("permutation", 6, 5.0))
    assert np.argwhere(half).tolist() == [[0, 3], [1, 4], [2, 5], [3, 0], [4, 1], [5, 2]]
    everyone = dense(pattern_traffic("all-to-all", 5, 8.0))
    assert (everyone == 2.0 * (1 - np.eye(5))).all()


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("members", [None, range(2, 7), [6, 1]])
def test_each_gpu_sends_what_it_was_given(pattern: str, members: range | list[int] | None) -> None:
    traffic = pattern_traffic(pattern, 8, 12.0, members)
    who = list(range(8) if members is None else members)
    rows = dense(traffic).sum(axis=1)
    sends = who[1:] if pattern == "incast" else who
    assert np.flatnonzero(rows).tolist() == sorted(sends)
    assert rows[sends] == pytest.approx(12.0)
    assert traffic.total_bytes == pytest.approx(12.0 * len(sends))
    assert traffic.senders == len(sends)
    others = np.setdiff1d(np.arange(8), who)
    assert not dense(traffic)[:, others].any()


@pytest.mark.wide
def test_a_large_matrix_comes_in_blocks() -> None:
    matrix = np.random.default_rng(0).random((3000, 3000))
    blocks = list(traffic_matrix(matrix, 3000).blocks())
    assert len(blocks) > 1
    found = np.zeros_like(matrix)
    for sources, targets, amounts in blocks:
        found[sources, targets] = amounts
    np.fill_diagonal(matrix, 0.0)
    assert (found == matrix).all()


@pytest.mark.parametrize("dtype", ["f8", "f2", "f4", "i8", "u4", ">f8"])
def test_files(tmp_path: Path, dtype: str) -> None:
    matrix = np.arange(16, dtype=dtype).reshape(4, 4)
    np.save(tmp_path / "t.npy", matrix)
    traffic = read_traffic(tmp_path / "t.npy", 4)
    want = matrix.astype(float)
    np.fill_diagonal(want, 0.0)
    assert (dense(traffic) == want).all()
    assert traffic.total_bytes == want.sum()
    assert traffic.name == "t.npy"


def test_files_that_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.npy"

    def refused(message: str) -> None:
        with pytest.raises(InputError, match=message) as caught:
            read_traffic(path, 4)
        assert "\n" not in str(caught.value)

    refused("does not exist")
    path.write_bytes(b"")
    refused("not a complete .npy file")
    path.write_bytes(b"PK\x03\x04 no archive")
    refused("zip archive")
    np.save(path, np.array([[{}]], dtype=object), allow_pickle=True)
    refused("not a complete .npy file")
    with path.open("wb") as file:
        np.savez(file, a=np.ones((4, 4)))
    refused("zip archive")
    np.save(path, np.array([["a"] * 4] * 4))
    refused("not numbers")
    np.save(path, np.ones((4, 4), dtype=complex))
    refused("not numbers")
    for shape in ((3, 3), (4,), (4, 4, 1), (0, 0)):
        np.save(path, np.ones(shape))
        refused(r"must be \(4, 4\)")
    for bad in (np.nan, np.inf, -1.0, 1e308, 5e-324):
        matrix = np.ones((4, 4))
        matrix[2, 3] = bad
        np.save(path, matrix)
        refused("bytes from GPU 2 to GPU 3 are")
    np.save(path, np.full((4, 4), "1e4000", dtype=object).astype(np.longdouble))
    refused("bytes from GPU 0 to GPU 0 are")
    np.save(path, np.eye(4))
    refused("no bytes between different GPUs")


@pytest.mark.parametrize(
    ("pattern", "amount", "members", "message"),
    [
        ("all2all", 1.0, None, "did you mean all-to-all"),
        ("ring", float("nan"), None, "greater than zero"),
        ("all-to-all", 1e308, None, "at most 1e+30"),
        ("ring", 1.0, [3, 8], "from 0 to 7"),
        ("ring", 1.0, [2, 2], "different"),
    ],
)
def test_patterns_that_are_refused(
    pattern: str, amount: float, members: list[int] | None, message: str
) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        pattern_traffic(pattern, 8, amount, members)
