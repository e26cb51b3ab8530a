"""Files appear whole, where a file can be, and never where one must stay."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from topology.errors import InputError
from topology.files import write_whole


def test_a_new_file_never_takes_the_place_of_another(tmp_path: Path) -> None:
    target = tmp_path / "plan.json"
    write_whole(target, b"first", new=True)
    with pytest.raises(InputError, match="it exists, and is not overwritten"):
        write_whole(target, b"second", new=True)
    assert target.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [target]


def test_a_link_is_followed_to_its_file(tmp_path: Path) -> None:
    target, link = tmp_path / "real.csv", tmp_path / "link.csv"
    target.write_bytes(b"old")
    link.symlink_to(target)
    write_whole(link, b"new")
    assert (link.is_symlink(), target.read_bytes()) == (True, b"new")


def test_what_is_no_file_or_read_only_stays(tmp_path: Path) -> None:
    folder, pipe, protected = tmp_path / "folder", tmp_path / "pipe", tmp_path / "protected"
    folder.mkdir()
    os.mkfifo(pipe)
    protected.write_bytes(b"old")
    protected.chmod(0o444)
    for path, words in ((folder, "it is a folder"), (pipe, "no file"), (protected, "it is read-only")):
        with pytest.raises(InputError, match=words):
            write_whole(path, b"new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "pipe", "protected"]
    assert protected.read_bytes() == b"old"
