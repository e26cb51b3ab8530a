"""Arrays of ``.npy`` files: mapped, or refused in one line."""

import io
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from topology.base.errors import InputError
from topology.base.npy import load_npy

VALUES = np.arange(24.0).reshape(2, 3, 4)


def with_header(text: str, data: bytes = bytes(8)) -> bytes:
    header = text.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + data


@pytest.mark.parametrize("values", [VALUES, VALUES.T, VALUES.astype(">i4"), VALUES[:0], np.array(3)])
def test_what_was_saved_is_read(tmp_path: Path, values: np.ndarray) -> None:
    np.save(tmp_path / "x.npy", values)
    for read in (
        load_npy(tmp_path / "x.npy", "x"),
        load_npy(io.BytesIO((tmp_path / "x.npy").read_bytes()), "x"),
    ):
        np.testing.assert_array_equal(read, values)
        assert read.dtype == values.dtype


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"PK\3\4 and so on",
        with_header("{'descr': '<i8', 'fortran_order': False, 'shape': (134217728,)}"),
        with_header("{'descr': '<i8', 'fortran_order': False, 'shape': (10000000000000000000000, 2)}"),
        with_header("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}"),
        with_header("{'descr': open('ran', 'w'), 'fortran_order': False, 'shape': (1,)}"),
        with_header("{'descr': '<i8', 'fortran_order': False}"),
        with_header("[" * 9000),
    ],
)
def test_what_is_no_whole_array_is_refused_in_one_line(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x.npy").write_bytes(data)
    for file in (tmp_path / "x.npy", io.BytesIO(data)):
        tracemalloc.start()
        with pytest.raises(InputError) as caught:
            load_npy(file, "x.npy")
        assert tracemalloc.get_traced_memory()[1] < 2**24
        tracemalloc.stop()
        assert "\n" not in str(caught.value)
