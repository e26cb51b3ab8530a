"""Files appear whole, and what killed runs left beside them goes at the next write."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from topology.errors import InputError
from topology.files import write_whole


def test_leftovers_of_killed_runs_go_and_a_file_that_is_being_written_stays(tmp_path: Path) -> None:
    left, written = tmp_path / ".rackplan-writing-a", tmp_path / ".rackplan-writing-b"
    left.write_bytes(b"half")
    written.write_bytes(b"half")
    with written.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        write_whole(tmp_path / "plan.json", b"whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == [written.name, "plan.json"]


def test_a_new_file_never_takes_the_place_of_another(tmp_path: Path) -> None:
    target = tmp_path / "plan.json"
    write_whole(target, b"first", new=True)
    with pytest.raises(InputError, match="it exists, and is not overwritten"):
        write_whole(target, b"second", new=True)
    assert target.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [target]
