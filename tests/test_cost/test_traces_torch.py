"""Torch files: what was saved is read, and whatever else a file may hold is refused without running it."""

from __future__ import annotations

import os
import pickle
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cost.experts.traces.counts import pieces
from cost.experts.traces.torch_file import load_torch_file
from topology.base.errors import InputError

COUNTS = np.arange(24, dtype=np.int32).reshape(2, 3, 4)


def same(saved: Any, read: Any) -> None:
    if isinstance(saved, np.ndarray):
        assert isinstance(read, np.ndarray)
        assert read.shape == saved.shape
        assert (read == saved).all()
        if saved.size and saved.ndim:
            assert (np.concatenate(list(pieces(read))) == saved).all()
    elif isinstance(saved, dict):
        assert list(saved) == list(read)
        for key in saved:
            same(saved[key], read[key])
    elif isinstance(saved, list):
        for before, other in zip(saved, read, strict=True):
            same(before, other)
    else:
        assert saved == read


@pytest.mark.parametrize(
    "dtype", ["int32", "int64", "float16", "float32", "uint8", "uint32", "uint64", "bool"]
)
def test_what_was_saved_is_read(tmp_path: Path, torch_save: Callable[..., Path], dtype: str) -> None:
    value = {
        "rank": 0,
        "logical_count": COUNTS.astype(dtype),
        "more": [COUNTS[0].astype(dtype), {"a": (1, -(2**40), "é", None, True)}],
        "none": None,
    }
    same(value, load_torch_file(torch_save(tmp_path / "x.pt", value)))


def test_views_share_a_storage(tmp_path: Path, torch_writer: Any) -> None:
    writer = torch_writer()
    writer.storages.append(COUNTS.tobytes())
    views = {
        "second": writer.view("IntStorage", 0, 24, 12, (1, 3, 4), (12, 4, 1)),
        "turned": writer.view("IntStorage", 0, 24, 0, (4, 2, 3), (1, 12, 4)),
        "repeated": writer.view("IntStorage", 0, 24, 4, (5, 4), (0, 1)),
        "one": writer.view("IntStorage", 0, 24, 23, (), ()),
        "none": writer.view("IntStorage", 0, 24, 0, (0, 4), (4, 1)),
    }
    read = load_torch_file(writer.save(tmp_path / "x.pt", views))
    same(COUNTS[1:], read["second"])
    same(COUNTS.transpose(2, 0, 1), read["turned"])
    same(np.stack([COUNTS[0, 1]] * 5), read["repeated"])
    assert read["one"] == 23
    assert read["none"].shape == (0, 4)
    assert list(pieces(read["none"])) == []


def test_big_endian_and_bfloat16(tmp_path: Path, torch_writer: Any) -> None:
    same(COUNTS, load_torch_file(torch_writer(">").save(tmp_path / "x.pt", COUNTS)))
    values = np.array([[1.0, 2.5, 1024.0, -3.0]], dtype=np.float32)
    halves = (values.view(np.uint32) >> 16).astype(np.uint16)
    assert (load_torch_file(torch_writer().save(tmp_path / "y.pt", halves)) == values).all()


class Runs:
    """Pickled, it makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.path}",)


def hostile(mark: Path, protocol: int = 2) -> bytes:
    """The opcodes of a value that would run a command."""
    data = pickle.dumps(Runs(mark), protocol)
    return data[2:-1] if protocol < 4 else data[11:-1]


@pytest.mark.parametrize(
    "value",
    [
        hostile,
        lambda mark: hostile(mark, 4),
        lambda mark: {"logical_count": hostile(mark)},
        lambda _: b"cbuiltins\ngetattr\n(cos\nsystem\nX\x01\x00\x00\x00xtR",
        lambda _: b"cbuiltins\neval\n(X\x01\x00\x00\x001tR",
        lambda _: b"(X\x05\x00\x00\x00touchios\nsystem\n",
        lambda _: b"(cos\nsystem\nX\x01\x00\x00\x00xo",
        lambda _: b"X\x06\x00\x00\x00os\x1b[2JX\x02\x00\x00\x00\na\x93)R",
        lambda _: b"ctorch._utils\n_rebuild_wrapper_subclass\n)R",
        lambda _: b"ctorch._utils\n_rebuild_tensor_v2\n}X\x08\x00\x00\x00__code__K\x01s\x86b",
        lambda _: b"]}X\x01\x00\x00\x00aK\x01sb",
        lambda _: b"\x8b" + struct.pack("<I", 2**31) + b"x",
        lambda _: b"h\x07",
        lambda mark: b"(" + hostile(mark) + b"tQ",
        lambda _: b"\x80\x09N",
        lambda _: b"c" + b"x" * 5000,
    ],
)
def test_nothing_in_a_pickle_is_run(
    tmp_path: Path, torch_save: Callable[..., Path], value: Callable[[Path], Any]
) -> None:
    mark = tmp_path / "ran"
    path = torch_save(tmp_path / "x.pt", value(mark))
    with pytest.raises(InputError) as caught:
        load_torch_file(path)
    assert "\n" not in str(caught.value)
    assert not mark.exists()


@pytest.mark.parametrize(
    "claim",
    [
        b"Nr" + struct.pack("<I", 2**27),  # an index of the memo, of eight bytes each
        b"X" + struct.pack("<I", 2**30),
        b"\x8e" + struct.pack("<Q", 2**30),
    ],
)
def test_what_claims_a_gigabyte_takes_no_memory(
    tmp_path: Path, torch_save: Callable[..., Path], claim: bytes
) -> None:
    path = torch_save(tmp_path / "far.pt", claim)
    tracemalloc.start()
    try:
        with pytest.raises(InputError) as caught:
            load_torch_file(path)
        assert tracemalloc.get_traced_memory()[1] < 2**24
    finally:
        tracemalloc.stop()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("view", "words"),
    [
        (("IntStorage", 0, 24, 0, (10**9, 4), (0, 1)), "needs more than the 24"),
        (("IntStorage", 0, 24, 20, (2, 4), (4, 1)), "needs more than the 24"),
        (("IntStorage", 0, 25, 0, (2, 4), (4, 1)), "96 bytes of 25 elements"),
        (("IntStorage", 0, 24, 0, (2, 4), (4,)), "impossible shape"),
        (("IntStorage", 0, 24, -1, (2, 4), (4, 1)), "impossible shape"),
        (("IntStorage", 0, 24, 0, (-2, 4), (4, 1)), "impossible shape"),
        (("IntStorage", 0, 24, 0, (2**65,), (1,)), "needs more than the 24"),
        (("IntStorage", 7, 24, 0, (2, 4), (4, 1)), "'x/data/7' is missing"),
        (("QInt8Storage", 0, 24, 0, (2, 4), (4, 1)), "torch.QInt8Storage"),
    ],
)
def test_sizes_are_checked_against_the_file(tmp_path: Path, torch_writer: Any, view: Any, words: str) -> None:
    writer = torch_writer()
    writer.storages.append(COUNTS.tobytes())
    with pytest.raises(InputError, match=words):
        load_torch_file(writer.save(tmp_path / "x.pt", writer.view(*view)))


def test_archives_that_torch_did_not_write(tmp_path: Path, torch_save: Callable[..., Path]) -> None:
    def archive(*names: str) -> Path:
        with zipfile.ZipFile(tmp_path / "z.pt", "w") as made:
            for name in names:
                made.writestr(name, b"\x80\x02N.")
        return tmp_path / "z.pt"

    for names in (("other.txt",), ("a/data.pkl", "b/data.pkl")):
        with pytest.raises(InputError, match=r"not one that torch\.save wrote"):
            load_torch_file(archive(*names))
    assert load_torch_file(archive("x/data.pkl")) is None
    whole = torch_save(tmp_path / "x.pt", COUNTS).read_bytes()
    header = whole.index(b"x/data/0") - 30
    (tmp_path / "header.pt").write_bytes(whole[:header] + b"KP" + whole[header + 2 :])
    with pytest.raises(InputError, match=r"its member 'x/data/0' is broken or encrypted"):
        load_torch_file(tmp_path / "header.pt")
    (tmp_path / "old.pt").write_bytes(b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.")
    with pytest.raises(InputError, match=r"format before version 1\.6; .*save it again"):
        load_torch_file(tmp_path / "old.pt")
